"""Whether a motion keeps the balance of energy, with any method."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._loop import constant
from .._results import RESULTS
from .._types import RealScalarLike
from .state import StepperState, finite
from .steps import AbstractSteps


class EnergyAccount(NamedTuple):
    """What a motion should have kept, E - W, with the energy E and the work W supplied: at the
    `start` and at its `lowest`; the `work` [J], and the `power` [W] after the last step."""

    start: Float[Array, ""]
    lowest: Float[Array, ""]
    work: Float[Array, ""]
    power: Float[Array, ""]

    @staticmethod
    def opened(steps: AbstractSteps, state: StepperState) -> "EnergyAccount":
        """At the start."""
        energy, power = _balance(steps, state)
        return EnergyAccount(energy, energy, jnp.zeros_like(energy), power)

    def after(
        self, steps: AbstractSteps, state: StepperState, h: RealScalarLike, tolerance: Array
    ) -> tuple["EnergyAccount", RESULTS]:
        """After a step of length h, which fails if energy is off by more than the tolerance [J]:
        power is integrated by the trapezoidal rule."""
        energy, power = _balance(steps, state)
        work = self.work + 0.5 * h * (self.power + power)
        kept = energy - work
        lowest = jnp.minimum(self.lowest, kept)
        # Rows begin to act by an impact, which takes energy.
        exact = steps.keeps_energy and state.active is None
        off = jnp.abs(kept - self.start) if exact else kept - lowest
        verdict = RESULTS.where(off > tolerance, RESULTS.energy_balance, RESULTS.successful)
        verdict = RESULTS.where(finite((work, kept)), verdict, RESULTS.nonfinite_state)
        return EnergyAccount(self.start, lowest, work, power), verdict


def _balance(
    steps: AbstractSteps, state: StepperState
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The energy [J], and the power [W] that should change it. Without derivatives: nothing but a
    verdict follows."""
    steps, state = constant((steps, state))
    system, control = steps.system, steps.problem.control
    t, q, v = state.t, state.q, state.v
    u = None if control is None else control(t, q, v)
    energy = system.mechanical_energy(t, q, v) + steps.row_energy(state)
    power = system.supplied_power(t, q, v, u) + system.nonideal_force(q, v, t) @ v
    power = power + steps.driving_power(state)
    return jnp.asarray(energy, q.dtype), jnp.asarray(power, q.dtype)
