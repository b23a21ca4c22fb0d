"""The simulation of one part of a record, and its comparison with the measurements."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._methods import AbstractContinuousEnforcement, AbstractEnforcement
from .._results import RESULTS, first_failure
from .._search import Multipliers
from .._simulate import simulate
from .._system import State
from .interpolation import interpolated
from .parameters import Parameters
from .sensors import Sample
from .shooting import Parts, control_of
from .start import consistent, displaced


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

    model: Callable[..., Any]
    parameters: Parameters
    sensor: Callable[[Sample], Array]
    start: Callable[..., State] | None
    enforcement: AbstractEnforcement
    scheme: diffrax.AbstractSolver | None
    steps: int = eqx.field(static=True)
    constrained: bool = eqx.field(static=True)
    # Whether given starts must change with the parameters to stay consistent.
    follows: bool = eqx.field(static=True)

    def __call__(
        self,
        shared: Float[Array, " p"],
        own: Float[Array, " two_dof"],
        data: Data,
        k: Int[Array, ""],
    ) -> PartMotion:
        """The motion of part k."""
        parts = data.parts
        system = self.model(self.parameters.values(shared))
        control = control_of(parts, parts.record[k])
        state, start_result = self._start(system, own, data, k)
        duration = parts.t1[k] - parts.t0[k]
        sol = simulate(
            system,
            self.enforcement,
            state,
            dt=duration / self.steps,
            num_steps=self.steps,
            control=control,
            scheme=self.scheme,
            saveat=diffrax.SaveAt(t0=True, steps=1, fn=_state_vector),
            start_tolerance=jnp.inf,
            throw=False,
        )
        # The velocities of impulsive methods jump at steps.
        smooth = isinstance(self.enforcement, AbstractContinuousEnforcement)
        s = self.steps * (parts.time[k] - parts.t0[k]) / duration
        x = interpolated(sol.ys, s, points=6 if smooth else 2)

        def read(t, x):
            q, v = jnp.split(x, [state.q.shape[0]])
            return jnp.ravel(self.sensor(Sample(system, control, t, q, v)))

        readings = jax.vmap(read)(parts.time[k], x)
        residuals = parts.weights[k] * (readings - parts.measured[k])
        result = first_failure(start_result, sol.result)
        return PartMotion(residuals, sol.ys[0], sol.ys[-1], readings, result)

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


def _state_vector(t, state, system):
    del t, system
    return jnp.concatenate([state.q, state.v])
