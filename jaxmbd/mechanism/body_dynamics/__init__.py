"""Coordinates, inertia and weight of the bodies of a mechanism, in space or in a plane."""

from .base import AbstractBodyDynamics as AbstractBodyDynamics
from .planar import PlanarDynamics as PlanarDynamics
from .spatial import SpatialDynamics as SpatialDynamics
