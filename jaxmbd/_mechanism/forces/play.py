"""A spring with play along a scalar coordinate, as of teeth and keys."""

from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from ..._compiler import array_namespace, to_jax
from ..._inputs import Number, checked, not_negative
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate
from .coordinate import AbstractCoordinateForce


class PlaySpring(AbstractCoordinateForce):
    """Teeth with play along a scalar coordinate x, such as a `DriveTwist`. With e = x - rest and
    the depth p = max(|e| - play / 2, 0) of the flank that touches,

        F = -sign(e) (f + d),    f = stiffness p (1 + hardening p^2),
        d = damping p', but no more than f in size.

    Within the play there is no force. The damper acts where teeth touch. Its limit keeps them from
    pulling and lets the force begin at 0, so that F never jumps. Without play the limit has no
    effect where d is small beside f; for a shaft without play use `CoordinateSpring`, or leave out
    `play`, and d has no limit.

    With `smoothing` w the corners of the play are round: p is (y + sqrt(y^2 + w^2)) / 2 on each
    flank, y = |e| - play / 2, and f that times its slope, so that it has the energy that is
    reported. This changes the force by stiffness w / 4 at a corner, and by less than
    stiffness w^4 / (16 |y|^3) elsewhere.

    **Fields:** `name`; `coordinate`; `stiffness` [N/m or N m/rad]; `play` from flank to flank [m
    or rad], or `None`; `rest` in the middle of the play [m or rad]; `damping` [N s/m or N m s/rad];
    `hardening` [1/m^2 or 1/rad^2], `smoothing` [m or rad], each `None` for 0.
    """

    stiffness: Float[Array, ""]
    play: Float[Array, ""] | None
    rest: Float[Array, ""]
    damping: Float[Array, ""]
    hardening: Float[Array, ""] | None
    smoothing: Float[Array, ""] | None

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        stiffness: Annotated[Number, not_negative],
        play: Annotated[Number, not_negative] | None = None,
        rest: Number = 0.0,
        damping: Annotated[Number, not_negative] = 0.0,
        hardening: Annotated[Number, not_negative] | None = None,
        smoothing: Annotated[Number, not_negative] | None = None,
    ):
        """**Arguments:** the fields.

        **Raises:** `ValueError` for a coefficient that is negative or not finite."""
        AlongCoordinate.__init__(self, name, coordinate)
        dtype = coordinate.dtype
        self.stiffness, self.rest, self.damping = (
            to_jax(x, dtype) for x in (stiffness, rest, damping)
        )
        self.play, self.hardening, self.smoothing = (
            None if x is None else to_jax(x, dtype) for x in (play, hardening, smoothing)
        )

    @property
    def glyphs(self):
        return (self.coordinate.spring_glyph,)

    def force(self, x, rate, t, u):
        del t, u
        elastic = jax.grad(self.stored)(x)
        damper = self.damping * rate
        if self.play is not None:
            most = self._pressing(x)
            # Within the play there is none, at rest either: `jnp.clip` would leave a part of it.
            damper = jnp.where(jnp.abs(damper) < most, damper, jnp.sign(damper) * most)
        return -elastic - damper

    def stored(self, x):
        return sum(map(self._energy, self._depths(x)), jnp.zeros_like(x))

    def _energy(self, p) -> Float[Array, ""]:
        square = p * p
        stiffer = 0.0 if self.hardening is None else self.hardening * square / 2
        return self.stiffness * square * (1 + stiffer) / 2

    def _depths(self, x) -> tuple[Float[Array, ""], ...]:
        """How deep each flank presses, or the twist if there is no play."""
        e = x - self.rest
        if self.play is None:
            return (e,)
        return tuple(self._rounded(y - self.play / 2) for y in (e, -e))

    def _rounded(self, y) -> Float[Array, ""]:
        if self.smoothing is None:
            return jnp.where(y <= 0, 0.0, y)
        square = y * y + self.smoothing * self.smoothing
        positive = square > 0
        root = jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)
        return (y + root) / 2

    def _pressing(self, x) -> Float[Array, ""]:
        """The elastic forces of both flanks, without their signs."""
        e = x - self.rest
        assert self.play is not None
        depth = jax.grad(lambda y: self._energy(self._rounded(y)))
        return depth(e - self.play / 2) + depth(-e - self.play / 2)

    @property
    def needs_turns(self) -> Bool[ArrayLike, "..."]:
        return array_namespace(self.stiffness).asarray(self.stiffness) != 0
