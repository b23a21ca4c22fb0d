"""The loads of contacts between two saved times."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._methods import StepperState
from .._types import RealScalarLike


class ContactTally(NamedTuple):
    """Since the last saved time: the duration [s], the impulse of each contact [N s], and its force
    in the step in which its normal force was the largest [N]."""

    duration: Float[Array, ""]
    impulse: Float[Array, "contacts d"]
    peak: Float[Array, "contacts d"]

    @staticmethod
    def none(state: StepperState) -> "ContactTally | None":
        """An empty tally; `None` for a motion without contacts."""
        if state.contacts is None:
            return None
        nothing = jnp.zeros_like(state.contacts.force)
        return ContactTally(jnp.zeros((), nothing.dtype), nothing, nothing)

    def reset(self, anew: bool | Bool[Array, ""]) -> "ContactTally":
        """An empty tally if `anew`, else this one."""
        return jax.tree.map(lambda x: jnp.where(anew, 0, x), self)

    def add(self, h: RealScalarLike, force: Float[Array, "contacts d"]) -> "ContactTally":
        """The tally after a further time h with these mean forces."""
        peak = _stronger(self.peak, force)
        return ContactTally(self.duration + h, self.impulse + h * force, peak)

    def spanning(self, steps: "ContactTally", less: "ContactTally") -> "ContactTally":
        """The tally of whole `steps` and of the part of a step after them that is counted here,
        without the part `less` of a step before them that belongs to the previous saved time."""
        return ContactTally(
            steps.duration - less.duration + self.duration,
            steps.impulse - less.impulse + self.impulse,
            _stronger(steps.peak, self.peak),
        )

    def mean(self) -> Float[Array, "contacts d"]:
        """The mean force over the duration [N]; 0 if there is none."""
        lasts = self.duration > 0
        return jnp.where(lasts, self.impulse / jnp.where(lasts, self.duration, 1.0), 0.0)


def _stronger(a: Float[Array, "contacts d"], b: Float[Array, "contacts d"]) -> Array:
    """For each contact the forces with the larger normal force."""
    return jnp.where(b[:, :1] > a[:, :1], b, a)
