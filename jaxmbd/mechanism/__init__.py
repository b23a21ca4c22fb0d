"""Mechanisms of rigid bodies."""

from .body import Body as Body
from .inertia import Inertia as Inertia
from .pose import Pose as Pose
from .pose import Twist as Twist
