"""The mass matrix, stiffened by penalised rows."""

from .._linalg import ConstraintOperator, product, without_rows
from .._types import Jacobian, MassMatrix, Rows


def stiffened_operator(M: MassMatrix, J: Jacobian, weight: Rows) -> ConstraintOperator:
    """M + J^T W J, W = diag(weight): positive definite for any rows, redundant ones too."""
    return without_rows(M + product(J.T * weight[None, :], J))
