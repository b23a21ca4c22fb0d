"""Shapes of bodies, for contact."""

from .base import AbstractConvexShape as AbstractConvexShape
from .base import AbstractShape as AbstractShape
from .base import Face as Face
from .base import clamped as clamped
from .convex import ConvexPoints as ConvexPoints
from .convex import gjk as gjk
from .solids import Box as Box
from .solids import Capsule as Capsule
from .solids import Cylinder as Cylinder
from .solids import Ellipsoid as Ellipsoid
from .solids import Sphere as Sphere
from .surfaces import Disc as Disc
from .surfaces import HalfSpace as HalfSpace
from .surfaces import HeightField as HeightField
