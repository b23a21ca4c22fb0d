"""What contacts do between two saved times."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._types import RealScalarLike
from .state import StepperState


class ContactTally(NamedTuple):
    """Since the last saved time: the duration [s], the impulse of each contact [N s], and its force
    in the step in which its normal force was the greatest [N]."""

    duration: Float[Array, ""]
    impulse: Float[Array, "contacts d"]
    peak: Float[Array, "contacts d"]

    @staticmethod
    def none(state: StepperState) -> "ContactTally | None":
        """Nothing so far; `None` of a motion without contacts."""
        if state.contacts is None:
            return None
        nothing = jnp.zeros_like(state.contacts.force)
        return ContactTally(jnp.zeros((), nothing.dtype), nothing, nothing)

    def begun(self, anew: bool | Bool[Array, ""]) -> "ContactTally":
        """Nothing so far, if `anew`."""
        return jax.tree.map(lambda x: jnp.where(anew, 0, x), self)

    def plus(self, h: RealScalarLike, force: Float[Array, "contacts d"]) -> "ContactTally":
        """With a time h in which these are the mean forces."""
        peak = _stronger(self.peak, force)
        return ContactTally(self.duration + h, self.impulse + h * force, peak)

    def spanning(self, steps: "ContactTally", less: "ContactTally") -> "ContactTally":
        """That of whole steps and, after them, of the part of a step that is tallied here, `less`
        the part of a step before that belongs to the saved time before."""
        return ContactTally(
            steps.duration - less.duration + self.duration,
            steps.impulse - less.impulse + self.impulse,
            _stronger(steps.peak, self.peak),
        )

    def mean(self) -> Float[Array, "contacts d"]:
        """Force over the duration [N]; 0 if there is none."""
        lasts = self.duration > 0
        return jnp.where(lasts, self.impulse / jnp.where(lasts, self.duration, 1.0), 0.0)


def _stronger(a: Float[Array, "contacts d"], b: Float[Array, "contacts d"]) -> Array:
    """Of each contact the forces with the greater normal force."""
    return jnp.where(b[:, :1] > a[:, :1], b, a)
