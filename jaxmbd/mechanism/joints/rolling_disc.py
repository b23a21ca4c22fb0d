import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._fusion import materialise, materialise_cotangent
from ..pose import Pose
from ..relative import offset, z_axis
from .rolling import AbstractRolling


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
