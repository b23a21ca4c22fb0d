"""Contact points of two shapes."""

from ..._contact import ABSENT as ABSENT
from .base import ContactPoints as ContactPoints
from .base import perpendicular as perpendicular
from .bounding import bounding_ball as bounding_ball
from .bounding import is_unbounded as is_unbounded
from .broad import Balls as Balls
from .broad import NearPairs as NearPairs
from .broad import near_pairs as near_pairs
from .dispatch import collide as collide
from .dispatch import point_count as point_count
from .dispatch import takes_long as takes_long
from .nearest import nearest as nearest
