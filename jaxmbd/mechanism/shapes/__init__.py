"""Shapes of bodies, for contact."""

from .base import AbstractConvexShape as AbstractConvexShape
from .base import AbstractShape as AbstractShape
from .base import Face as Face
from .box import Box as Box
from .capsule import Capsule as Capsule
from .convex_points import ConvexPoints as ConvexPoints
from .cylinder import Cylinder as Cylinder
from .disc import Disc as Disc
from .ellipsoid import Ellipsoid as Ellipsoid
from .gjk import gjk as gjk
from .half_space import HalfSpace as HalfSpace
from .height_field import HeightField as HeightField
from .sphere import Sphere as Sphere
