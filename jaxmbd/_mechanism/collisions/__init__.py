"""Contact points of two shapes."""

from ..._contact import ABSENT as ABSENT
from .base import ContactPoints as ContactPoints
from .base import perpendicular as perpendicular
from .dispatch import collide as collide
from .dispatch import point_count as point_count
