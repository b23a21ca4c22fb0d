"""The simulation of a record in parts, and the residuals (computed minus measured) of a fit."""

import abc
from collections.abc import Callable
from typing import Annotated, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._extensible import Extensible
from .._inputs import checked, positive
from .._lanes import forward_jacobian
from .._methods import AbstractEnforcement
from .._results import RESULTS, first_failure
from .._search import Multipliers
from .._simulate import simulate
from .._step import Stepper
from .._system import State
from .guide import Guide, saved
from .parameters import Parameters
from .rig import Rig
from .sample import SavedMotion, interpolated, on_grid
from .shooting import Parts, consistent, control_of, displaced


class AbstractLoss(Extensible):
    """A loss rho(r) of weighted residuals r, given by r-hat with r-hat^2 = rho(r) and the sign of
    r. Least squares of r-hat minimise the sum of rho."""

    @abc.abstractmethod
    def __call__(self, r: Float[Array, " n"]) -> Float[Array, " n"]:
        """The transformed residual r-hat(r), which is smooth and equals r for small r."""


class Squares(AbstractLoss):
    """Least squares: rho = r^2."""

    def __call__(self, r):
        return r


@checked
class Huber(AbstractLoss):
    """Quadratic up to |r| = `delta` and linear beyond: rho = r^2 or 2 delta |r| - delta^2. `delta`
    is in units of the weighted residuals.

    Reference: Huber (1964), Robust estimation of a location parameter, Ann. Math. Statist. 35."""

    delta: Annotated[float | Float[Array, ""], positive] = 1.345

    def __call__(self, r):
        delta = jnp.asarray(self.delta, r.dtype)
        large = jnp.abs(r) > delta
        size = jnp.where(large, jnp.abs(r), delta)
        return jnp.where(large, jnp.sign(r) * jnp.sqrt(2 * delta * size - delta**2), r)


@checked
class Cauchy(AbstractLoss):
    """Logarithmic: rho = scale^2 log(1 + (r/scale)^2), in which far outliers hardly count. `scale`
    is in units of the weighted residuals. It has local minima; start from a fit by `Huber`."""

    scale: Annotated[float | Float[Array, ""], positive] = 2.385

    def __call__(self, r):
        scale = jnp.asarray(self.scale, r.dtype)
        x = (r / scale) ** 2
        small = x < 1e-8
        safe = jnp.where(small, 1.0, x)
        factor = jnp.where(small, 1 - x / 4, jnp.sqrt(jnp.log1p(safe) / safe))
        return r * factor


class Data(NamedTuple):
    """The data of the residuals, which are all numbers.

    - `parts`: the measurements.
    - `starts`: q and v at the start of each part, `(parts, nq)`, `(parts, nv)`. They are not used
      if the start of the record is a function of the system.
    - `begins`: which parts are the first of their record, `(parts,)`.
    - `directions`: the admissible directions at the starts, `(parts, nv, dof)`.
    - `scale`, `prior`: typical changes of the starts, and the weights of their priors,
      `(parts, 2 dof)`.
    - `places`: indices of the free numbers of each start, `(parts, 2 dof)`; past the end if fixed.
    - `links`: the parts that another part continues, `(links,)`.
    - `multipliers`: the multipliers of the continuity, `(links, nq + nv)`.
    """

    parts: Parts
    starts: tuple[Float[Array, "parts nq"], Float[Array, "parts nv"]]
    begins: Bool[Array, " parts"]
    directions: Float[Array, "parts nv dof"]
    scale: Float[Array, "parts two_dof"]
    prior: Float[Array, "parts two_dof"]
    places: Int[Array, "parts two_dof"]
    links: Int[Array, " links"]
    multipliers: Multipliers


class PartMotion(NamedTuple):
    """The weighted residuals `(n, m)`, the first and last state `(nq + nv,)`, the readings of the
    sensors `(n, m)`, and the verdict. For all parts together, they have a leading axis."""

    residuals: Float[Array, "*parts n m"]
    first: Float[Array, "*parts state"]
    last: Float[Array, "*parts state"]
    readings: Float[Array, "*parts n m"]
    result: RESULTS


class PartSimulation(eqx.Module):
    """The simulation of a part, as a function of the free numbers of parameters and start."""

    rig: Rig
    parameters: Parameters
    start: Callable[..., State] | None
    enforcement: AbstractEnforcement
    scheme: diffrax.AbstractSolver | None
    steps: int = eqx.field(static=True)
    constrained: bool = eqx.field(static=True)
    # Whether given starts must change with the parameters to stay consistent.
    follows: bool = eqx.field(static=True)
    # Whether sensors round their readings.
    rounded: bool = eqx.field(static=True)
    # What pulls the simulation towards the measurements; `None` for nothing.
    guide: Guide | None = None

    def __call__(
        self,
        shared: Float[Array, " p"],
        own: Float[Array, " two_dof"],
        data: Data,
        k: Int[Array, ""],
    ) -> PartMotion:
        """The motion of part k."""
        parts = data.parts
        rigged = self.rig(self.parameters.values(shared))
        system = rigged.system
        control = control_of(parts, parts.record[k])
        state, start_result = self._start(system, own, data, k)
        duration = parts.t1[k] - parts.t0[k]
        dt = duration / self.steps
        if self.guide is None:
            states, result = self._simulated(system, state, control, dt)
        else:
            stepper = Stepper(system, self.enforcement, self.scheme)
            sensors = tuple(rigged.named.values())
            guided = self.guide.states
            states, result = guided(stepper, sensors, state, control, parts, k, dt, self.steps)
        # The velocities of impulsive methods jump at steps.
        points = 6 if self.enforcement.continuous else 2
        nq, end = state.q.shape[0], state.q.shape[0] + state.v.shape[0]
        motion = SavedMotion(
            system, control, parts.t0[k], dt, states, nq, end - nq, points, self.rounded
        )
        time = parts.time[k]
        if rigged.clocks is None:
            s = on_grid(self.steps * (time - parts.t0[k]) / duration)
        else:
            offset, drift, begin = rigged.clocks[parts.record[k]]
            s = motion.steps_at(time + offset + drift * (time - begin))
            time = parts.t0[k] + dt * s
        x = interpolated(states, s, points)

        def read(t, x):
            return jnp.ravel(rigged.sensors(motion.moment(t, x)))

        readings = jax.vmap(read)(time, x)
        residuals = parts.weights[k] * (readings - parts.measured[k])
        result = first_failure(start_result, result)
        return PartMotion(residuals, states[0, :end], states[-1, :end], readings, result)

    def _simulated(self, system, state, control, dt) -> tuple[Float[Array, "steps_1 d"], RESULTS]:
        """The states at all steps, and the verdict."""
        sol = simulate(
            system,
            self.enforcement,
            state,
            dt=dt,
            num_steps=self.steps,
            control=control,
            scheme=self.scheme,
            saveat=diffrax.SaveAt(t0=True, steps=1, fn=lambda t, state, system: saved(state)),
            start_tolerance=jnp.inf,
            throw=False,
        )
        return sol.ys, sol.result

    def _start(self, system, own, data: Data, k) -> tuple[State, RESULTS]:
        t0 = data.parts.t0[k]
        state = State(t0, data.starts[0][k], data.starts[1][k])
        if self.start is not None:
            begin = self.start(system)
            q = jnp.where(data.begins[k], begin.q, state.q)
            state = State(t0, q, jnp.where(data.begins[k], begin.v, state.v))
        if own.size:
            z = data.scale[k] * own
            return displaced(system, state, data.directions[k], z, self.constrained)
        return consistent(system, state, self.follows)


class Residuals(eqx.Module):
    """The residuals r(z). z holds the free numbers of the parameters, then of the starts.

    The rows are the weighted residuals of all samples, the priors of parameters and starts, and the
    terms of the continuity c = 0 in the method of multipliers.
    """

    simulation: PartSimulation
    loss: AbstractLoss

    @property
    def parameters(self) -> Parameters:
        """The parameters, whose free numbers come first in z."""
        return self.simulation.parameters

    def __call__(self, z: Float[Array, " n"], data: Data) -> Float[Array, " rows"]:
        return self.rows(z, self.motions(z, data), data)

    def motions(self, z: Float[Array, " n"], data: Data) -> PartMotion:
        """The motions of all parts at z."""
        shared, own = self._split(z, data)
        return _for_each(lambda k: self.simulation(shared, own[k], data, k), len(own))

    def jacobian(
        self, z: Float[Array, " n"], data: Data
    ) -> tuple[Float[Array, " rows"], Float[Array, "rows n"], PartMotion]:
        """r, dr/dz and the motions of all parts. The motion of a part depends only on the
        parameters and its own start, and only these tangents are propagated. So S parts cost as
        much as one."""
        shared, own = self._split(z, data)

        def derivatives(k):
            def motion(x):
                found = self.simulation(x[: shared.size], x[shared.size :], data, k)
                return found[:3], found

            return forward_jacobian(motion, jnp.concatenate([shared, own[k]]))

        slopes, found = _for_each(derivatives, len(own))
        slopes = [_by_z(slope, shared.size, data, z.size) for slope in slopes]

        def rows(z, motion):
            return self.rows(z, PartMotion(*motion, *found[3:]), data)

        def column(dz, motion):
            return jax.jvp(rows, (z, list(found[:3])), (dz, motion))[1]

        J = jax.vmap(column, in_axes=-1, out_axes=-1)(jnp.eye(z.size, dtype=z.dtype), slopes)
        return self.rows(z, found, data), J, found

    def rows(self, z, found: PartMotion, data: Data) -> Float[Array, " rows"]:
        """The residuals of motions at z."""
        shared, own = self._split(z, data)
        return jnp.concatenate(
            [
                self.loss(found.residuals.ravel()),
                self.parameters.prior(shared),
                (data.prior * own).ravel(),
                data.multipliers.residuals(continuity(found, data)).ravel(),
            ]
        )

    def _split(self, z, data: Data):
        """The free numbers of the parameters, and of the starts, `(parts, 2 dof)`."""
        size = self.parameters.size
        return z[:size], jnp.append(z[size:], 0.0)[data.places]


def continuity(found: PartMotion, data: Data) -> Float[Array, "links state"]:
    """The violation c of continuity: the end of each part minus the start of the next one."""
    return found.last[data.links] - found.first[data.links + 1]


def _by_z(slope: Array, shared: int, data: Data, size: int) -> Array:
    """Expand derivatives by the numbers of each part, `(parts, ..., shared + own)`, to all of z."""
    # The numbers of a fixed start go to a column that is dropped.
    whole = jnp.zeros((*slope.shape[:-1], size + 1), slope.dtype)
    whole = whole.at[..., :shared].set(slope[..., :shared])
    add = lambda whole, slope, places: whole.at[..., places].add(slope)  # noqa: E731
    return jax.vmap(add)(whole, slope[..., shared:], shared + data.places)[..., :size]


def _for_each(fn: Callable[..., PyTree], count: int) -> PyTree:
    """fn(k) of all parts. A single part is computed without a batch axis, which is faster."""
    if count == 1:
        return jax.tree.map(lambda x: jnp.asarray(x)[None], fn(jnp.array(0)))
    return jax.vmap(fn)(jnp.arange(count))
