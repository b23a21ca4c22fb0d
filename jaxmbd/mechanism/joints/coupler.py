from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._inputs import Number, checked, not_zero
from .base import AbstractJoint
from .coupling import AbstractCoupling


class Coupler(AbstractCoupling):
    """A real ratio between two joint coordinates of the same kind.

    Two displacements, as of a lever or of pistons joined by a pipe: the row
    x_1 - ratio x_2 - offset (1).

    Two angles, as of belts and friction wheels: the nonholonomic row phi_1' - ratio phi_2' (1).
    The poses alone cannot tell phi_1 = ratio phi_2 from what it is some turns later unless the
    ratio is one of whole numbers; the rates can, and the rest is what the motion started with. For
    whole numbers prefer `Gear`, which holds the angles themselves.

    **Fields:** `ratio` [1], `offset` [m].
    """

    ratio: Float[Array, ""]
    offset: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        first: AbstractJoint,
        second: AbstractJoint,
        *,
        ratio: Annotated[Number, not_zero],
        offset: Number = 0.0,
        coordinates: tuple[int | None, int | None] = (None, None),
    ):
        """**Arguments:**

        - `first`, `second`: the joints.
        - `ratio`: of the first coordinate to the second, of any sign, not 0.
        - `offset`: of the first displacement where the second is 0 [m]; 0 for angles.
        - `coordinates`: which of the coordinates of each joint, if it has several.

        **Raises:** `ValueError` for an angle with a displacement, which is a `RackAndPinion`.
        """
        AbstractCoupling.__init__(self, name, first, second, coordinates=coordinates)
        if self.first.angle != self.second.angle:
            raise ValueError(
                f'Coupler "{name}" needs two displacements or two angles, but "{first.name}" and '
                f'"{second.name}" give one of each. Use `RackAndPinion`.'
            )
        if self.first.angle and not (isinstance(offset, float | int) and offset == 0):
            raise ValueError(
                f'Coupler "{name}" acts on the rates of two angles, so it has no `offset`, but got '
                f"{offset}. Use `Gear` with a `phase`, or start from the angles you want."
            )
        self.ratio = jnp.asarray(ratio, self.dtype)
        self.offset = jnp.asarray(offset, self.dtype)

    def equations(self, poses, t):
        del t
        if self.first.angle:
            return jnp.zeros(0, poses[0].position.dtype)
        return (self.first(poses[:2]) - self.ratio * self.second(poses[2:]) - self.offset)[None]

    def velocity_equations(self, poses, twists, t):
        del t
        if not self.first.angle:
            return jnp.zeros(0, poses[0].position.dtype)
        first = self.first.rate(poses[:2], twists[:2])
        return (first - self.ratio * self.second.rate(poses[2:], twists[2:]))[None]
