from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._inputs import Number, checked, positive
from ..body import Body
from ..relative import offset, z_axis
from .base import AbstractJoint


class RollingSphere(AbstractJoint):
    """A sphere about the origin of b rolls without slip on the plane through the origin of a,
    normal to the axis of a. It stays on the plane: the contact can pull.

    Row: the height of the lowest point, z - radius (1). Nonholonomic rows: the velocity of the
    point of b that touches, relative to a, along x and y of a (2). Freedoms: 5 displacements and
    rotations with 3 independent velocities, the angular one. Coordinates: x and y of the contact.

    **Fields:** `radius` [m].
    """

    radius: Float[Array, ""]

    rows: ClassVar[int] = 1
    velocity_rows: ClassVar[int] = 2
    directed: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        radius: Annotated[Number, positive],
        **frames: Any,
    ):
        """**Arguments:** as `AbstractJoint`, in the world by `points`, one on the plane and the
        centre of the sphere, and `axis`, the normal of the plane.

        - `radius`: > 0 [m].
        """
        AbstractJoint.__init__(self, name, a, b, **frames)
        self.radius = jnp.asarray(radius, self.dtype)

    def constraint(self, a, b, t):
        del t
        return offset(a, b)[2:] - self.radius

    def nonholonomic(self, a, b, twist_a, twist_b, t):
        del t
        arm = -self.radius * z_axis(a)
        touching = b.position + arm
        slip = twist_b.at(arm) - twist_a.at(touching - a.position)
        return a.local_direction(slip)[:2]

    def coordinates(self, a, b):
        return offset(a, b)[:2]
