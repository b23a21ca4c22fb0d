"""The state of a stepper."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._compiler import sum_with_error, tree_where
from .._printed import in_a_line, judged, printed
from .._results import RESULTS
from .._system import State
from .._types import Coordinates, RealScalarLike, Rows, Scalar, Velocity


class ContactMemory(NamedTuple):
    """The contacts in the previous step, for the next one.

    **Fields:**

    - `force`: of each contact the normal force, then friction along its tangents and further
      components, as means over the step, shape `(contacts, d)` [N].
    - `expected`: the same for the next step, where its solve starts: without what removed rounding
      in this one. Located impacts start from `force`.
    - `residual`: the largest residual of the contact problems so far [m/s].
    - `watched`: the contacts that were part of the contact problem. `resting`: which of them
      pressed without a bounce.
    - `allowed`: the deepest overlap of rigid contacts that the next step accepts at its start [m]:
      the tolerance of the start, and any after the first step.
    - `unlocated`: with `Located(n)`, the number of steps so far with more than n impacts; else
      `None`.
    - `pairs`: the pieces and the point of each contact without a fixed place, as in
      `Solution.contact_pairs`; `None` if all have fixed places.
    - `load`: the sum of the normal forces on each piece of such contacts, as means over the step,
      shape `(pieces,)` [N]; `None` likewise.
    """

    force: Float[Array, " *batch contacts d"]
    expected: Float[Array, " *batch contacts d"]
    residual: Float[Array, " *batch"]
    watched: Bool[Array, " *batch contacts"]
    resting: Bool[Array, " *batch contacts"]
    allowed: Float[Array, " *batch"]
    unlocated: Int[Array, " *batch"] | None = None
    pairs: Int[Array, " *batch contacts 3"] | None = None
    load: Float[Array, " *batch pieces"] | None = None


@printed
class StepperState(State):
    """A point of the motion, with the data of previous steps that the next step needs.
    `Stepper.init` and `Stepper.step` return it. It is a `State` and can be used as one.

    **Fields:**

    - `t`, `q`, `v`: time, coordinates and velocities.
    - `multipliers`: lam, the mean over the step before, shape `(nc,)`; for implicit methods the
      solution of that step; `None` for continuous methods, whose multipliers follow from the state.
      `Stepper.multipliers` returns them for all methods.
    - `contacts`: a `ContactMemory`; `None` for methods without contacts.
    - `active`: which rows acted in the step before, shape `(nc,)`; `None` for a system without a
      `switch`.
    - `angles`: the counted angles at the start of the step before [rad]; `None` for a system
      without any.
    - `z`: the internal states; `None` for a system without any.
    - `result`: the first failure, a member of `RESULTS`. After a failure only t advances; all other
      fields stay at the last good state.
    - `memory`: the state of the scheme, or what a method leaves to its next step. `lost`: the
      rounding error of t, which the next step corrects, so that it does not accumulate over many
      small steps.
    - `sampling`: what a `Sampled` control keeps; `None` without one.
    """

    t: Float[Array, " *batch"]
    multipliers: Rows | None = None
    contacts: ContactMemory | None = None
    active: Bool[Array, " *batch nc"] | None = None
    angles: Float[Array, " *batch angles"] | None = None
    z: Float[Array, " *batch nz"] | None = None
    result: RESULTS = eqx.field(default_factory=lambda: RESULTS.successful)
    memory: PyTree = None
    lost: Any = None
    sampling: Any = None

    def __str__(self) -> str:
        rows = [f"state at {in_a_line(self.t)} s: {judged(self.result, 'successful', 'failed')}"]
        return "\n".join([*rows, f"q = {in_a_line(self.q)}", f"v = {in_a_line(self.v)}"])

    def replace(self, **fields: Any) -> "StepperState":
        """The same state with new values of these fields."""
        new = object.__new__(type(self))
        vars(new).update({**vars(self), **fields})
        return new

    def bare(self) -> "StepperState":
        """The same state without the fields that only the next step needs."""
        return self.replace(memory=None, lost=None, result=None)

    def later(self, h: RealScalarLike) -> tuple[Scalar, Scalar]:
        """(t, lost) after a time h, by compensated summation.

        Reference: Kahan (1965), Further remarks on reducing truncation errors, Communications of
        the ACM 8."""
        return sum_with_error(self.t, h - self.lost)

    def held(self, good: Bool[Array, ""], old: "StepperState") -> "StepperState":
        """This state if the step was `good`, else the `old` one at this time."""
        kept = tree_where(good, self, old)
        contacts = kept.contacts
        if contacts is not None and self.contacts is not None and old.contacts is not None:
            # The residual explains why the step failed.
            residual = self.contacts.residual
            residual = jnp.where(jnp.isfinite(residual), residual, old.contacts.residual)
            contacts = contacts._replace(residual=residual)
        return kept.replace(
            t=self.t, lost=self.lost, memory=self.memory, result=self.result, contacts=contacts
        )


def without_past(t: Scalar, q: Coordinates, v: Velocity) -> StepperState:
    """(t, q, v) without data of previous steps."""
    # The result is an array, so that a loop can carry it.
    result = RESULTS.where(jnp.array(True), RESULTS.successful, RESULTS.nonfinite_state)
    return StepperState(t, q, v, result=result, lost=jnp.zeros((), q.dtype))


def finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every number in `tree` is finite."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
