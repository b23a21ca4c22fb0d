"""Coordinates, inertia and weight of the bodies of a mechanism, in space or in a plane."""

from .base import AbstractMotion as AbstractMotion
from .planar import PlanarMotion as PlanarMotion
from .spatial import SpatialMotion as SpatialMotion
