"""The mass matrix with penalised rows."""

from .._linalg import ConstraintOperator, product, without_rows
from .._types import Jacobian, MassMatrix, Rows


def stiffened_operator(M: MassMatrix, J: Jacobian, weight: Rows) -> ConstraintOperator:
    """The operator of M + J^T W J, W = diag(weight). It is positive definite for any rows,
    including redundant ones."""
    return without_rows(M + product(J.T * weight[None, :], J))
