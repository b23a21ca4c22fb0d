"""The check of the energy balance, for all methods."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._loop import stop_gradient
from .._methods import SimulationProblem, StepperState, finite
from .._results import RESULTS
from .._types import RealScalarLike


class EnergyAccount(NamedTuple):
    """The energy balance of a motion. E - W should be constant, where E is the energy and W the
    supplied work. `start`, `lowest`: E - W at the start and its lowest value [J]; `work`: W [J];
    `power`: the supplied power after the last step [W]."""

    start: Float[Array, ""]
    lowest: Float[Array, ""]
    work: Float[Array, ""]
    power: Float[Array, ""]

    @staticmethod
    def initial(problem: SimulationProblem, state: StepperState) -> "EnergyAccount":
        """The account at the start of a motion."""
        energy, power = _balance(problem, state)
        return EnergyAccount(energy, energy, jnp.zeros_like(energy), power)

    def after(
        self, problem: SimulationProblem, state: StepperState, h: RealScalarLike, tolerance: Array
    ) -> tuple["EnergyAccount", RESULTS]:
        """The account after a step of length h, and the verdict: the step fails if the balance
        differs by more than the tolerance [J]. The power is integrated by the trapezoidal rule."""
        energy, power = _balance(problem, state)
        work = self.work + 0.5 * h * (self.power + power)
        kept = energy - work
        lowest = jnp.minimum(self.lowest, kept)
        # Rows begin to act with an impact, which dissipates energy.
        exact = problem.enforcement.keeps_energy and state.active is None
        off = jnp.abs(kept - self.start) if exact else kept - lowest
        verdict = RESULTS.where(off > tolerance, RESULTS.energy_balance, RESULTS.successful)
        verdict = RESULTS.where(finite((work, kept)), verdict, RESULTS.nonfinite_state)
        return EnergyAccount(self.start, lowest, work, power), verdict


def _balance(
    problem: SimulationProblem, state: StepperState
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The energy [J], and its rate according to the supplied power [W]. They are constant in
    derivatives, since only a verdict depends on them."""
    problem, state = stop_gradient((problem, state))
    system, control, method = problem.system, problem.control, problem.enforcement
    t, q, v = state.t, state.q, state.v
    u = None if control is None else control(t, q, v)
    energy = system.mechanical_energy(t, q, v) + method.row_energy(problem, state)
    power = system.supplied_power(t, q, v, u) + system.nonideal_force(q, v, t) @ v
    power = power + method.driving_power(problem, state)
    return jnp.asarray(energy, q.dtype), jnp.asarray(power, q.dtype)
