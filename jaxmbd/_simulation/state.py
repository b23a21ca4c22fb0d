"""The state that a stepper takes from step to step."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._fusion import once
from .._loop import chosen
from .._results import RESULTS
from .._system import State
from .._types import Coordinates, RealScalarLike, Rows, Scalar, Velocity


class ContactMemory(NamedTuple):
    """What contacts did in the step before.

    **Fields:**

    - `force`: of each contact the normal force, then friction along its tangents and what else acts
      there, means over the step, shape `(contacts, d)` [N]. The next step starts its search from
      these.
    - `residual`: the largest residual of the contact problems so far [m/s].
    - `watched`: which contacts were solved for. `resting`: which of these pressed without a bounce.
    """

    force: Float[Array, " *batch contacts d"]
    residual: Float[Array, " *batch"]
    watched: Bool[Array, " *batch contacts"]
    resting: Bool[Array, " *batch contacts"]


class StepperState(State):
    """A point of the motion, and what the next step needs to know of those before: from
    `Stepper.init`, and from each `Stepper.step`. A `State`, for all that takes one.

    **Fields:**

    - `t`, `q`, `v`: time, coordinates and velocities.
    - `multipliers`: lam, mean over the step before, shape `(nc,)`; `None` with continuous methods,
      whose multipliers follow from the state, see `Stepper.multipliers`.
    - `contacts`: a `ContactMemory`; `None` with methods without contacts.
    - `active`: which rows acted in the step before, shape `(nc,)`; `None` for a system without a
      `switch`.
    - `result`: the first failure, a member of `RESULTS`. After it t goes on, and all else is held
      at the last good state.
    - `scheme`: what the scheme remembers. `lost`: what rounding took off t, for the next step to
      add: many small steps leave no error in t.
    """

    t: Float[Array, " *batch"]
    multipliers: Rows | None = None
    contacts: ContactMemory | None = None
    active: Bool[Array, " *batch nc"] | None = None
    result: RESULTS = eqx.field(default_factory=lambda: RESULTS.successful)
    scheme: Any = None
    lost: Any = None

    def replace(self, **fields: Any) -> "StepperState":
        """The same with other values of these fields."""
        new = object.__new__(type(self))
        vars(new).update({**vars(self), **fields})
        return new

    def bare(self) -> "StepperState":
        """The same without what only the next step needs."""
        return self.replace(scheme=None, lost=None, result=None)

    def later(self, h: RealScalarLike) -> tuple[Scalar, Scalar]:
        """(t, lost) after a time h, by compensated summation.

        Reference: Kahan (1965), Further remarks on reducing truncation errors, Communications of
        the ACM 8."""
        missing = h - self.lost
        t = once(self.t + missing)
        return t, jax.lax.stop_gradient((t - self.t) - missing)

    def held(self, good: Bool[Array, ""], old: "StepperState") -> "StepperState":
        """This state after a `good` step, else the `old` one at this time."""
        kept = chosen(good, self, old)
        contacts = kept.contacts
        if contacts is not None and self.contacts is not None and old.contacts is not None:
            # The residual tells why a step was not good.
            residual = self.contacts.residual
            residual = jnp.where(jnp.isfinite(residual), residual, old.contacts.residual)
            contacts = contacts._replace(residual=residual)
        return kept.replace(
            t=self.t, lost=self.lost, scheme=self.scheme, result=self.result, contacts=contacts
        )


def without_past(t: Scalar, q: Coordinates, v: Velocity) -> StepperState:
    """(t, q, v) without a past."""
    # A result that a loop can carry is an array.
    result = RESULTS.where(jnp.array(True), RESULTS.successful, RESULTS.nonfinite_state)
    return StepperState(t, q, v, result=result, lost=jnp.zeros((), q.dtype))


def finite(tree: Any) -> Bool[Array, ""]:
    """Whether every number in `tree` is finite."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
