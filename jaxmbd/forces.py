"""Forces, springs, friction and actuators of a mechanism, and the bases of your own."""

from ._mechanism import AbstractCoordinateForce as AbstractCoordinateForce
from ._mechanism import AbstractForce as AbstractForce
from ._mechanism import AbstractForceElement as AbstractForceElement
from ._mechanism import AbstractLoad as AbstractLoad
from ._mechanism import AbstractSignal as AbstractSignal
from ._mechanism import Bushing as Bushing
from ._mechanism import CoordinateActuator as CoordinateActuator
from ._mechanism import CoordinateSpring as CoordinateSpring
from ._mechanism import DCMotor as DCMotor
from ._mechanism import Drag as Drag
from ._mechanism import Force as Force
from ._mechanism import FromControl as FromControl
from ._mechanism import JointFriction as JointFriction
from ._mechanism import LinearActuator as LinearActuator
from ._mechanism import LuGreFriction as LuGreFriction
from ._mechanism import Motor as Motor
from ._mechanism import PIDController as PIDController
from ._mechanism import PlaySpring as PlaySpring
from ._mechanism import PointForce as PointForce
from ._mechanism import SlidingFriction as SlidingFriction
from ._mechanism import Spring as Spring
from ._mechanism import Torque as Torque
from ._mechanism import TorsionSpring as TorsionSpring
from ._mechanism import TurningFriction as TurningFriction
from ._mechanism import WindingHeat as WindingHeat
from ._mechanism import Wrench as Wrench
