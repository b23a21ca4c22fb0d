from ..relative import offset, z_axis
from .rolling import AbstractRolling


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
