from .base import AbstractForce as AbstractForce
from .base import AbstractForceElement as AbstractForceElement
from .base import Wrench as Wrench
from .motor import Motor as Motor
from .spring import Spring as Spring
from .torsion_spring import TorsionSpring as TorsionSpring
