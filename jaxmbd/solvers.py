"""What constraint and contact solvers are made of, for solvers of your own."""

from ._contact import AbstractContactSolver as AbstractContactSolver
from ._contact import InteriorPoint as InteriorPoint
from ._contact import ProjectedGaussSeidel as ProjectedGaussSeidel
from ._linalg import KKT as KKT
from ._linalg import AbstractConstraintSolver as AbstractConstraintSolver
from ._linalg import Automatic as Automatic
from ._linalg import BlockDiagonal as BlockDiagonal
from ._linalg import BlockRows as BlockRows
from ._linalg import BlockSparse as BlockSparse
from ._linalg import ConstraintEquations as ConstraintEquations
from ._linalg import ConstraintOperator as ConstraintOperator
from ._linalg import CoupledBlocks as CoupledBlocks
from ._linalg import Proximal as Proximal
