"""Computed minus measured, as a function of the free numbers; and its Jacobian."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._enforcement import AbstractContinuousEnforcement, AbstractEnforcement
from .._results import RESULTS, first_failure
from .._simulation import simulate
from .._system import State
from .interpolation import interpolated
from .losses import AbstractLoss
from .parameters import Parameters
from .sensors import Sample
from .shooting import Parts, control_of
from .start import consistent, displaced


class Data(NamedTuple):
    """What the residuals are computed from; all of it numbers.

    - `parts`: the measurements.
    - `starts`: of each part, q and v, `(parts, nq)`, `(parts, nv)`; of no use where the record
      gives a function of the system.
    - `begins`: which parts are the first of their record, `(parts,)`.
    - `directions`: admissible ones there, `(parts, nv, dof)`.
    - `scale`, `prior`: natural changes of the starts, and weights of what is known of them,
      `(parts, 2 dof)`.
    - `places`: of the free numbers of each start, `(parts, 2 dof)`; one past the end if fixed.
    - `links`: parts after which another one goes on, `(links,)`.
    - `multipliers`, `penalty`: of the continuity, `(links, nq + nv)`.
    """

    parts: Parts
    starts: tuple[Float[Array, "parts nq"], Float[Array, "parts nv"]]
    begins: Bool[Array, " parts"]
    directions: Float[Array, "parts nv dof"]
    scale: Float[Array, "parts two_dof"]
    prior: Float[Array, "parts two_dof"]
    places: Int[Array, "parts two_dof"]
    links: Int[Array, " links"]
    multipliers: Float[Array, "links state"]
    penalty: Float[Array, ""]


class OfPart(NamedTuple):
    """Of one part: weighted residuals `(n, m)`, first and last state `(nq + nv,)`, what the sensors
    read `(n, m)`, verdict."""

    residuals: Float[Array, "n m"]
    first: Float[Array, " state"]
    last: Float[Array, " state"]
    readings: Float[Array, "n m"]
    result: RESULTS


class Residuals(eqx.Module):
    """r(z): z holds the free numbers of the parameters, then those of the starts.

    The rows: weighted residuals of all samples, what is known of parameters and of starts, and
    sqrt(penalty) (c + multipliers / penalty) of the continuity c = 0.
    """

    model: Callable[..., Any]
    parameters: Parameters
    sensor: Callable[[Sample], Array]
    loss: AbstractLoss
    start: Callable[..., State] | None
    enforcement: AbstractEnforcement
    scheme: diffrax.AbstractSolver | None
    steps: int = eqx.field(static=True)
    constrained: bool = eqx.field(static=True)
    # Whether starts that are given must follow the parameters to stay consistent.
    following: bool = eqx.field(static=True)

    def __call__(self, z: Float[Array, " n"], data: Data) -> Float[Array, " rows"]:
        shared, own = self.split(z, data)
        found = self._parts(shared, own, data)
        return self.rows(shared, own, found, data)

    def split(self, z: Float[Array, " n"], data: Data):
        """Free numbers of the parameters, and of the starts, `(parts, 2 dof)`."""
        size = self.parameters.size
        return z[:size], jnp.append(z[size:], 0.0)[data.places]

    def rows(self, shared, own, found: OfPart, data: Data) -> Float[Array, " rows"]:
        """All residuals as one vector."""
        continuity = found.last[data.links] - found.first[data.links + 1]
        root = jnp.sqrt(data.penalty)
        return jnp.concatenate(
            [
                self.loss(found.residuals.ravel()),
                self.parameters.prior(shared),
                (data.prior * own).ravel(),
                (root * continuity + data.multipliers / root).ravel(),
            ]
        )

    def jacobian(self, z: Float[Array, " n"], data: Data):
        """r and dr/dz. The motion of a part depends on the parameters and its own start alone, and
        only these tangents are propagated: S parts cost as much as one."""
        shared, own = self.split(z, data)

        def of_part(k):
            def both(x):
                size = shared.size
                found = self.part(x[:size], x[size:], data, k)
                return found[:3], found

            return jax.jacfwd(both, has_aux=True)(jnp.concatenate([shared, own[k]]))

        J, found = _each(of_part, len(data.places))
        spread = lambda J: self._spread(J, data, z.size)  # noqa: E731
        # From what each part gives to the rows: linear but for the loss and the prior.
        first, last = spread(J[1]), spread(J[2])
        samples = spread(J[0]).reshape(-1, z.size)
        r = found.residuals.ravel()
        _, slope = jax.jvp(self.loss, (r,), (jnp.ones_like(r),))
        prior = jnp.pad(
            jax.jacfwd(self.parameters.prior)(shared), ((0, 0), (0, z.size - shared.size))
        )
        known = jax.jacfwd(lambda z: (data.prior * self.split(z, data)[1]).ravel())(z)
        continuity = (last[data.links] - first[data.links + 1]).reshape(-1, z.size)
        matrix = jnp.concatenate(
            [slope[:, None] * samples, prior, known, jnp.sqrt(data.penalty) * continuity]
        )
        return self.rows(shared, own, found, data), matrix

    def continuity(self, z: Float[Array, " n"], data: Data):
        """c at z, `(links, nq + nv)`, and what was found of the parts."""
        shared, own = self.split(z, data)
        found = self._parts(shared, own, data)
        return found.last[data.links] - found.first[data.links + 1], found

    def part(self, shared, own, data: Data, k) -> OfPart:
        """Simulate part k."""
        parts = data.parts
        system = self.model(self.parameters.values(shared))
        control = control_of(parts, parts.record[k])
        state, met = self._start_of(system, own, data, k)
        sol = simulate(
            system,
            self.enforcement,
            state,
            dt=(parts.t1[k] - parts.t0[k]) / self.steps,
            num_steps=self.steps,
            control=control,
            scheme=self.scheme,
            saveat=diffrax.SaveAt(t0=True, steps=1, fn=_of_state),
            start_tolerance=jnp.inf,
            throw=False,
        )

        # Velocities of impulsive methods jump at steps.
        smooth = isinstance(self.enforcement, AbstractContinuousEnforcement)
        s = self.steps * (parts.time[k] - parts.t0[k]) / (parts.t1[k] - parts.t0[k])
        x = interpolated(sol.ys, s, points=6 if smooth else 2)

        def read(t, x):
            q, v = jnp.split(x, [state.q.shape[0]])
            return jnp.ravel(self.sensor(Sample(system, control, t, q, v)))

        readings = jax.vmap(read)(parts.time[k], x)
        return OfPart(
            parts.weights[k] * (readings - parts.measured[k]),
            sol.ys[0],
            sol.ys[-1],
            readings,
            first_failure(met, sol.result),
        )

    def _start_of(self, system, own, data: Data, k) -> tuple[State, RESULTS]:
        t0 = data.parts.t0[k]
        state = State(t0, data.starts[0][k], data.starts[1][k])
        if self.start is not None:
            begin = self.start(system)
            q = jnp.where(data.begins[k], begin.q, state.q)
            state = State(t0, q, jnp.where(data.begins[k], begin.v, state.v))
        if own.size:
            z = data.scale[k] * own
            return displaced(system, state, data.directions[k], z, self.constrained)
        return consistent(system, state, self.following)

    def _parts(self, shared, own, data: Data) -> OfPart:
        return _each(lambda k: self.part(shared, own[k], data, k), len(data.places))

    def _spread(self, J, data: Data, size: int):
        """Derivatives by what a part depends on, as derivatives by z: `(parts, ..., size)`."""
        p = self.parameters.size
        whole = jnp.zeros((*J.shape[:-1], size + 1), J.dtype).at[..., :p].set(J[..., :p])

        def placed(whole, J, places):
            return whole.at[..., places].add(J[..., p:])

        # Numbers of a fixed start go to a column that is dropped.
        return jax.vmap(placed)(whole, J, p + data.places)[..., :size]


def _each(fn: Callable[..., Any], count: int) -> Any:
    """fn(k) of all parts; of a single one without an axis for them, which would only cost."""
    if count == 1:
        return jax.tree.map(lambda x: jnp.asarray(x)[None], fn(jnp.array(0)))
    return jax.vmap(fn)(jnp.arange(count))


def _of_state(t, state, system):
    del t, system
    return jnp.concatenate([state.q, state.v])
