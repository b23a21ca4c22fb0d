"""Coordinates of a system, by which q follows from velocities, and of a mechanism."""

from ._coordinates import AbstractCoordinates as AbstractCoordinates
from ._coordinates import Plain as Plain
from ._coordinates import Product as Product
from ._coordinates import QuaternionBody as QuaternionBody
from ._coordinates import QuaternionWorld as QuaternionWorld
from ._coordinates import RollPitchYawBody as RollPitchYawBody
from ._coordinates import RollPitchYawWorld as RollPitchYawWorld
from ._mechanism import AbstractOfFrames as AbstractOfFrames
from ._mechanism import AbstractScalarCoordinate as AbstractScalarCoordinate
from ._mechanism import Angle as Angle
from ._mechanism import Displacement as Displacement
from ._mechanism import DriveTwist as DriveTwist
from ._mechanism import OfJoint as OfJoint
from ._mechanism import PathLength as PathLength
from ._mechanism import TwistAngle as TwistAngle
from ._mechanism import WeightedSum as WeightedSum
