"""Whether a motion keeps the balance of energy, with any method."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._results import RESULTS, first_failure
from .._types import RealScalarLike
from .stepping import AbstractStepper


class EnergyAccount(NamedTuple):
    """What a motion should have kept, E - W, with the energy E and the work W supplied: at the
    `start` and at its `lowest`; the `work` [J], and the `power` [W] after the last step."""

    start: Float[Array, ""]
    lowest: Float[Array, ""]
    work: Float[Array, ""]
    power: Float[Array, ""]


class AccountingStepper(AbstractStepper):
    """The steps of a method, which fail where energy is off by more than the `tolerance` [J]; y is
    that of the method, and then the `EnergyAccount`."""

    inner: AbstractStepper
    tolerance: Float[Array, ""]

    @property
    def problem(self):
        return self.inner.problem

    @property
    def scheme(self):
        return self.inner.scheme

    @property
    def checkpoints(self):
        return self.inner.checkpoints

    @property
    def keeps_energy(self):
        return self.inner.keeps_energy

    def system(self, y):
        return self.inner.system(y[:-1])

    def active(self, y):
        return self.inner.active(y[:-1])

    def start(self, t, h, q, v):
        y, scheme_state = self.inner.start(t, h, q, v)
        energy, power = self._balance(t, y)
        return (*y, EnergyAccount(energy, energy, jnp.zeros_like(energy), power)), scheme_state

    def start_result(self, t, q, v, tolerance):
        return self.inner.start_result(t, q, v, tolerance)

    def end_result(self, t, y):
        return self.inner.end_result(t, y[:-1])

    def step(self, t0, t1, y, scheme_state):
        *y, account = y
        step = self.inner.step(t0, t1, tuple(y), scheme_state)
        energy, power = self._balance(t1, step.y)
        work = account.work + 0.5 * (t1 - t0) * (account.power + power)
        kept = energy - work
        lowest = jnp.minimum(account.lowest, kept)
        off = jnp.abs(kept - account.start) if self.keeps_energy else kept - lowest
        verdict = RESULTS.where(off > self.tolerance, RESULTS.energy_balance, RESULTS.successful)
        account = EnergyAccount(account.start, lowest, work, power)
        return step._replace(y=(*step.y, account), result=first_failure(step.result, verdict))

    def between(self, t0, h, t, y):
        return (*self.inner.between(t0, h, t, y[:-1]), y[-1])

    def multipliers(self, t, y):
        return self.inner.multipliers(t, y[:-1])

    def row_energy(self, t, y):
        return self.inner.row_energy(t, y[:-1])

    def driving_power(self, t, y):
        return self.inner.driving_power(t, y[:-1])

    def held(self, good, new, old):
        account = jax.tree.map(lambda a, b: jnp.where(good, a, b), new[-1], old[-1])
        return (*self.inner.held(good, new[:-1], old[:-1]), account)

    def contacts(self, y):
        return self.inner.contacts(y[:-1])

    def tally(self, y):
        return self.inner.tally(y[:-1])

    def with_tally(self, y, tally):
        return (*self.inner.with_tally(y[:-1], tally), y[-1])

    def _balance(self, t: RealScalarLike, y: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The energy [J], and the power [W] that should change it. Without derivatives: nothing but
        a verdict follows."""
        stepper, t, y = _constant((self.inner, jnp.asarray(t, y[0].dtype), y))
        system, q, v = stepper.system(y), y[0], y[1]
        problem = stepper.problem
        u = None if problem.control is None else problem.control(t, q, v)
        energy = system.mechanical_energy(t, q, v) + stepper.row_energy(t, y)
        power = system.supplied_power(t, q, v, u) + system.nonideal_force(q, v, t) @ v
        power = power + stepper.driving_power(t, y)
        return jnp.asarray(energy, q.dtype), jnp.asarray(power, q.dtype)


def _constant(tree: PyTree) -> PyTree:
    """The same without derivatives."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, tree)
