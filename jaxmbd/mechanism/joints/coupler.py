from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._inputs import Number, checked, not_zero
from .base import AbstractJoint
from .coupling import AbstractCoupling


class Coupler(AbstractCoupling):
    """Couples two joint coordinates of the same kind with a fixed real ratio.

    Two displacements, as of a lever or of pistons joined by a pipe: the row
    x_1 - ratio x_2 - offset (1).

    Two angles, as of belts and friction wheels: the nonholonomic row phi_1' - ratio phi_2' (1).
    An equation between the angles would need the number of turns, which poses do not contain. So
    the row constrains the rates, and the initial state determines the angles. For a ratio of whole
    numbers prefer `Gear`, which constrains the angles themselves.

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
        - `ratio`: the first coordinate over the second, of any sign, not 0.
        - `offset`: the first displacement where the second is 0 [m]; 0 for angles.
        - `coordinates`: index of the coordinate of each joint, if it has several.

        **Raises:** `ValueError` for an angle and a displacement; use `RackAndPinion` for these.
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
        self.ratio = to_jax(ratio, self.dtype)
        self.offset = to_jax(offset, self.dtype)

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
