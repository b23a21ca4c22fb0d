from ..relative import offset, z_axis
from .rolling import AbstractRolling


class RollingSphere(AbstractRolling):
    """A sphere about the origin of b rolls without slip on the plane through the origin of a,
    normal to the axis of a. It stays on the plane: the contact can pull.

    Row: the height of the lowest point, z - radius (1). Nonholonomic rows: the velocity of the
    point of b that touches, relative to a, along x and y of a (2). Freedoms: 5 displacements and
    rotations with 3 independent velocities, the angular one. Coordinates: x and y of the contact.

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
