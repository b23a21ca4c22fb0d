from .base import AbstractContactSolver as AbstractContactSolver
from .base import Solved as Solved
from .interior_point import InteriorPoint as InteriorPoint
from .projected_gauss_seidel import ProjectedGaussSeidel as ProjectedGaussSeidel
