"""The largest dry friction in a step, which may depend on the load that it changes.

Reference: Irons and Tuck (1969), A version of the Aitken accelerator for computer iteration, Int.
J. Num. Meth. Eng. 1, for the turns.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jaxtyping import Array, Bool, Float

from ..._equations import inputs
from ..._results import RESULTS
from ..._system import AbstractSystem
from ..._types import Control, Coordinates, RealScalarLike, Rows, Scalar, Velocity

# The largest friction by a load is found in turns, each with the load of the turn before. Changes
# below the first share end the turns, and after the last one no more than the second may be left
# (powers of the machine precision).
TURNS = 16
_SETTLED, _LEFT = 0.6, 0.4


class DryFriction(NamedTuple):
    """The bounds of dry friction in a part of a step, which begins at t, q and v, and has the
    `duration`; 0 for an instant, in which dry friction has no impulse. `frictions`: how many."""

    system: AbstractSystem
    frictions: int
    t: RealScalarLike
    q: Coordinates
    v: Velocity
    duration: RealScalarLike
    control: Control | None

    def by_load(self, multipliers: Rows) -> bool:
        """Whether the bounds depend on the impulses of the rows, by the functions alone."""
        if not self.frictions:
            return False
        program = jax.make_jaxpr(self.largest)(multipliers).jaxpr
        found = set(program.invars)
        for equation in program.eqns:
            if any(x in found for x in equation.invars if not isinstance(x, Literal)):
                found.update(equation.outvars)
        return any(x in found for x in program.outvars if not isinstance(x, Literal))

    def largest(self, multipliers: Rows) -> Float[Array, " frictions"] | None:
        """The largest impulses, beside these impulses of the equality rows; `None` without dry
        friction."""
        if not self.frictions:
            return None
        lasts = jnp.asarray(self.duration, self.q.dtype)
        lam = multipliers / jnp.where(lasts > 0, lasts, 1.0)
        given = inputs(self.control, self.t, self.q, self.v)
        bounds = self.system.friction_bounds(self.q, self.v, self.t, lam, *given)
        bounds = jnp.asarray(bounds, lam.dtype)
        if bounds.shape != (self.frictions,):
            raise ValueError(
                "`friction_bounds(q, v, t, multipliers, u)` must return one bound for each of the "
                f"{self.frictions} `friction_rates`, but has shape {bounds.shape}."
            )
        return lasts * bounds


class LoadSearch(NamedTuple):
    """A turn of the search for bounds by the load: those `used` in its problem, by how much they
    were `missed` in the turn before, the `share` of this that was taken, the largest `change`, as a
    share of the largest bound, infinite in the first turn; and whether there is such a turn."""

    used: Float[Array, " frictions"]
    missed: Float[Array, " frictions"]
    share: Scalar
    change: Scalar
    exists: Bool[Array, ""]

    @classmethod
    def first(cls, guess: Float[Array, " frictions"]) -> "LoadSearch":
        """The turn with a guess of the bounds."""
        one = jnp.ones((), guess.dtype)
        return cls(guess, jnp.zeros_like(guess), one, one * jnp.inf, jnp.array(True))

    def next(self, found: Float[Array, " frictions"]) -> "LoadSearch":
        """The turn after one that `found` these bounds. One more follows the turn in which they no
        longer change, since derivatives are those of a turn that starts at the bounds."""
        missed = found - self.used
        turn = missed - self.missed
        # Aitken's relaxation: the secant of what was missed, for one bound.
        square = jnp.sum(turn * turn)
        again = jnp.any(self.missed != 0) & (square > 0)
        share = -self.share * jnp.sum(self.missed * turn) / jnp.where(square > 0, square, 1.0)
        share = jax.lax.stop_gradient(jnp.where(again, share, 1.0))
        size = jnp.max(jnp.abs(found))
        change = jnp.max(jnp.abs(missed)) / jnp.where(size > 0, size, 1.0)
        goes_on = self.change > jnp.finfo(change.dtype).eps ** _SETTLED
        used = jnp.maximum(self.used + share * missed, 0.0)
        return LoadSearch(used, missed, share, change, goes_on)

    @property
    def result(self) -> RESULTS:
        """The verdict after the last turn."""
        small = self.change <= jnp.finfo(self.change.dtype).eps ** _LEFT
        return RESULTS.where(small, RESULTS.successful, RESULTS.friction_unsettled)
