"""Trajectory optimisation: the best controls of a constrained motion."""

from .problem import Problem as Problem
