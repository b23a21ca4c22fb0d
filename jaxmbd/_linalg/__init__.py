from .automatic import Automatic as Automatic
from .base import AbstractConstraintSolver as AbstractConstraintSolver
from .base import ConstraintEquations as ConstraintEquations
from .cholesky import Cholesky as Cholesky
from .kkt import KKT as KKT
from .operator import ConstraintOperator as ConstraintOperator
from .proximal import Proximal as Proximal
from .pseudoinverse import Pseudoinverse as Pseudoinverse
