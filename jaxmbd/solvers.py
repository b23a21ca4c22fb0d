"""What constraint and contact solvers are made of, for solvers of your own."""

from ._contact import AbstractContactSolver as AbstractContactSolver
from ._linalg import AbstractConstraintSolver as AbstractConstraintSolver
from ._linalg import BlockDiagonal as BlockDiagonal
from ._linalg import BlockRows as BlockRows
from ._linalg import ConstraintEquations as ConstraintEquations
from ._linalg import ConstraintOperator as ConstraintOperator
from ._linalg import CoupledBlocks as CoupledBlocks
