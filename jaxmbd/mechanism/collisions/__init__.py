"""Contact points of two shapes."""

from ..._contact import ABSENT as ABSENT
from .base import ContactPoints as ContactPoints
from .dispatch import collide as collide
from .dispatch import point_count as point_count
from .vectors import perpendicular as perpendicular
