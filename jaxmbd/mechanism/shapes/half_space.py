from .base import AbstractShape


class HalfSpace(AbstractShape):
    """All that is at z <= 0 of its frame: level ground, or a wall. It has no fields."""
