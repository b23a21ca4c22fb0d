"""Rolling without slip on a plane."""

import abc
from typing import Annotated, ClassVar, Unpack

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._compiler import materialise, materialise_cotangent, to_jax
from ..._inputs import Number, Numbers, checked, number, positive
from ..body import Body
from ..frames import Frames
from ..pose import Pose
from ..relative import offset, z_axis
from .base import AbstractJoint, limit_pairs


class AbstractRolling(AbstractJoint):
    """A round body b rolls without slip on the plane through the origin of a, normal to the axis of
    a. The contact can pull: the body never leaves the plane. A subclass gives the contact point.

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
        limits: Annotated[Numbers, number] | None = None,
        **frames: Unpack[Frames],
    ):
        """**Arguments:** as `AbstractJoint`. In the world give `points`, one on the plane and the
        centre of the body, and `axis`, the normal of the plane. For a disc give `axes`, this normal
        and the axis of the disc.

        - `radius`: > 0 [m].
        """
        self._connect(name, a, b, frames)
        self.limits = limit_pairs(limits, self.dtype)
        self.radius = to_jax(radius, self.dtype)

    @abc.abstractmethod
    def arm(self, a: Pose, b: Pose) -> Float[Array, "3"]:
        """The vector from the centre to the lowest point, in world axes."""

    def nonholonomic(self, a, b, twist_a, twist_b, t):
        del t
        arm = self.arm(a, b)
        touching = b.position + arm
        slip = twist_b.at(arm) - twist_a.at(touching - a.position)
        return a.local_direction(slip)[:2]


class RollingDisc(AbstractRolling):
    """A thin disc about the axis of b rolls without slip on the plane through the origin of a,
    normal to the axis of a. The contact can pull: the disc never leaves the plane.

    Let e = (e_x, e_y, e_z) be the axis of b in frame a, and s = sqrt(e_x^2 + e_y^2) the sine of its
    angle to the normal. Then the lowest point of the rim is radius (e_x e_z / s, e_y e_z / s, -s)
    from the centre.

    Row: the height of this point, z - radius s (1). Nonholonomic rows: the velocity of the material
    point of b there, relative to a, along x and y of a (2). Freedoms: 5, of which only the 3
    rotations have independent velocities. Coordinates: x and y of the contact.

    A disc that lies flat touches all around and has no lowest point. Near this pose the contact
    runs around the rim quickly, and steps must be so small that s changes little in each. Exactly
    flat, the centre counts as the contact: all values are finite, but the motion is meaningless.

    **Fields:** `radius` [m].
    """

    def arm(self, a, b):
        return a.direction(self._arm(a, b))

    def constraint(self, a, b, t):
        del t
        return (offset(a, b) + self._arm(a, b))[2:]

    def coordinates(self, a, b):
        return (offset(a, b) + self._arm(a, b))[:2]

    def _arm(self, a: Pose, b: Pose) -> Float[Array, "3"]:
        """The vector from the centre to the lowest point, in frame a."""
        x, y, z = materialise(a.local_direction(z_axis(b)))
        s2 = x * x + y * y
        flat = s2 < jnp.finfo(s2.dtype).eps ** 2
        s = jnp.sqrt(jnp.where(flat, 1.0, s2))
        arm = jnp.stack([x * z / s, y * z / s, -s2 / s])
        return materialise_cotangent(self.radius * jnp.where(flat, 0.0, arm))


class RollingSphere(AbstractRolling):
    """A sphere about the origin of b rolls without slip on the plane through the origin of a,
    normal to the axis of a. The contact can pull: the sphere never leaves the plane.

    Row: the height of the lowest point, z - radius (1). Nonholonomic rows: the velocity of the
    material point of b there, relative to a, along x and y of a (2). Freedoms: 5, of which only the
    3 rotations have independent velocities. Coordinates: x and y of the contact.

    **Fields:** `radius` [m].
    """

    def arm(self, a, b):
        del b
        return -self.radius * z_axis(a)

    def constraint(self, a, b, t):
        del t
        return offset(a, b)[2:] - self.radius

    def coordinates(self, a, b):
        return offset(a, b)[:2]
