"""Mechanisms of rigid bodies."""

from .body import Body as Body
from .element import AbstractElement as AbstractElement
from .forces import AbstractForce as AbstractForce
from .forces import AbstractForceElement as AbstractForceElement
from .forces import Motor as Motor
from .forces import Spring as Spring
from .forces import TorsionSpring as TorsionSpring
from .forces import Wrench as Wrench
from .inertia import Inertia as Inertia
from .joints import AbstractConstraint as AbstractConstraint
from .joints import AbstractJoint as AbstractJoint
from .joints import Cylindrical as Cylindrical
from .joints import Distance as Distance
from .joints import Fixed as Fixed
from .joints import Planar as Planar
from .joints import PointOnLine as PointOnLine
from .joints import PointOnPlane as PointOnPlane
from .joints import Prismatic as Prismatic
from .joints import Revolute as Revolute
from .joints import Screw as Screw
from .joints import Spherical as Spherical
from .joints import Universal as Universal
from .mechanism import Mechanism as Mechanism
from .pose import Pose as Pose
from .pose import Twist as Twist
