"""Nonlinear programs and their solvers."""

from .base import AbstractNLPSolver as AbstractNLPSolver
from .base import NLPSolution as NLPSolution
from .program import Evaluator as Evaluator
from .program import NonlinearProgram as NonlinearProgram
from .program import Term as Term
from .scipy import SciPy as SciPy
from .uno import Uno as Uno
