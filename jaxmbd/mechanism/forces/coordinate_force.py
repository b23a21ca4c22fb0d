import abc

from jaxtyping import Array, Float

from ..scalar_coordinates import AlongCoordinate
from .base import AbstractForceElement, Wrench


class AbstractCoordinateForce(AlongCoordinate, AbstractForceElement):
    """A force or torque along a scalar coordinate."""

    @abc.abstractmethod
    def along(self, poses, twists, u) -> Float[Array, ""]:
        """The force or torque along the coordinate [N or N m]."""

    def wrenches(self, poses, twists, t, u):
        del t
        force = self.along(poses, twists, u)
        directions = self.coordinate.directions(poses)
        return tuple(Wrench(force * d.linear, force * d.angular) for d in directions)
