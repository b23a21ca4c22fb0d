from .base import AbstractShape


class HalfSpace(AbstractShape):
    """All points with z <= 0 in its frame: level ground, or a wall. It has no fields."""
