"""Shapes that touch, and the base of your own."""

from ._mechanism import AbstractShape as AbstractShape
from ._mechanism import Box as Box
from ._mechanism import Capsule as Capsule
from ._mechanism import ConvexPoints as ConvexPoints
from ._mechanism import Cylinder as Cylinder
from ._mechanism import Disc as Disc
from ._mechanism import Ellipsoid as Ellipsoid
from ._mechanism import HalfSpace as HalfSpace
from ._mechanism import HeightField as HeightField
from ._mechanism import Sphere as Sphere
