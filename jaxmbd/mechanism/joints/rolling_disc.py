from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._inputs import Number, checked, positive
from ..body import Body
from ..pose import Pose
from ..relative import offset, z_axis
from .base import AbstractJoint


class RollingDisc(AbstractJoint):
    """A thin disc about the axis of b rolls without slip on the plane through the origin of a,
    normal to the axis of a. It stays on the plane: the contact can pull.

    With e = (e_x, e_y, e_z) the axis of b in frame a and s = sqrt(e_x^2 + e_y^2) the sine of its
    angle to the normal, the rim is lowest at radius (e_x e_z / s, e_y e_z / s, -s) from the centre.

    Row: the height of that point, z - radius s (1). Nonholonomic rows: the velocity of the point of
    b there, relative to a, along x and y of a (2). Freedoms: 5 displacements and rotations with 3
    independent velocities, the angular one. Coordinates: x and y of the contact.

    Flat on the plane a disc touches all around and has no lowest point; near there the point runs
    round quickly, and steps must be small enough to follow (s changes by little in each). Exactly
    flat the centre counts as the contact: everything stays finite, but a motion through it has no
    meaning.

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
        centre of the disc, and `axes`, the normal of the plane and the axis of the disc.

        - `radius`: > 0 [m].
        """
        AbstractJoint.__init__(self, name, a, b, **frames)
        self.radius = jnp.asarray(radius, self.dtype)

    def constraint(self, a, b, t):
        del t
        return (offset(a, b) + self._arm(a, b))[2:]

    def nonholonomic(self, a, b, twist_a, twist_b, t):
        del t
        arm = a.direction(self._arm(a, b))
        touching = b.position + arm
        slip = twist_b.at(arm) - twist_a.at(touching - a.position)
        return a.local_direction(slip)[:2]

    def coordinates(self, a, b):
        return (offset(a, b) + self._arm(a, b))[:2]

    def _arm(self, a: Pose, b: Pose) -> Float[Array, "3"]:
        """From the centre to the lowest point, in frame a."""
        x, y, z = a.local_direction(z_axis(b))
        s2 = x * x + y * y
        flat = s2 < jnp.finfo(s2.dtype).eps ** 2
        s = jnp.sqrt(jnp.where(flat, 1.0, s2))
        arm = jnp.stack([x * z / s, y * z / s, -s2 / s])
        return self.radius * jnp.where(flat, 0.0, arm)
