from typing import Annotated

from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._inputs import Number, checked, not_zero
from ..relative import within_half_a_turn
from .base import AbstractJoint
from .coupling import AbstractCoupling


class RackAndPinion(AbstractCoupling):
    """A toothed wheel drives a rack. The displacement x of the joint that guides the rack and the
    angle phi of the bearing of the pinion obey x = radius phi + offset.

    Row: radius ((x - offset) / radius - phi), with the difference of angles wrapped to within half
    a turn [m] (1). It holds for any number of turns, without counting them. The multiplier is the
    force on the rack.

    **Fields:** `radius` [m]: radius of the pitch circle, negative if the rack moves backwards for a
    positive angle. `offset` [m]: x at phi = 0.
    """

    radius: Float[Array, ""]
    offset: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        rack: AbstractJoint,
        pinion: AbstractJoint,
        *,
        radius: Annotated[Number, not_zero],
        offset: Number = 0.0,
        coordinates: tuple[int | None, int | None] = (None, None),
    ):
        """**Arguments:**

        - `rack`: a joint with a displacement, such as `Prismatic`.
        - `pinion`: a joint with an angle, such as `Revolute`.
        - `radius`, `offset`: the fields; `radius` is not 0.
        - `coordinates`: index of the coordinate of each joint, if several fit.

        **Raises:** `ValueError` for joints without such coordinates.
        """
        AbstractCoupling.__init__(
            self, name, rack, pinion, coordinates=coordinates, angles=(False, True)
        )
        self.radius = to_jax(radius, self.dtype)
        self.offset = to_jax(offset, self.dtype)

    def equations(self, poses, t):
        del t
        x, phi = self.first(poses[:2]), self.second(poses[2:])
        behind = within_half_a_turn((x - self.offset) / self.radius - phi)
        return (self.radius * behind)[None]
