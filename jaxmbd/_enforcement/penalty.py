"""The mass matrix, alone or stiffened by penalised rows."""

from jaxtyping import Array, Float

from .._linalg import (
    AbstractEquationMap,
    BlockDiagonal,
    BlockRows,
    BlockSparse,
    Cholesky,
    ConstraintOperator,
    CoupledBlocks,
    product,
)
from .._types import Jacobian, MassMatrix, Rows


def free_operator(
    M: MassMatrix | BlockDiagonal | CoupledBlocks, equations: AbstractEquationMap | None = None
) -> ConstraintOperator:
    """M without any rows, differentiated through `equations` if they are given."""
    if isinstance(M, BlockDiagonal | CoupledBlocks):
        D = M if isinstance(M, BlockDiagonal) else M.diagonal
        size, _, count = D.blocks.shape
        J = BlockRows.none(count, size)
        return ConstraintOperator(BlockSparse(), M, J, equations=equations)
    no_rows: Float[Array, "0 nv"] = M[:0]
    return ConstraintOperator(Cholesky(), M, no_rows, equations=equations)


def stiffened_operator(M: MassMatrix, J: Jacobian, weight: Rows) -> ConstraintOperator:
    """M + J^T W J, W = diag(weight): positive definite for any rows, redundant ones too."""
    return free_operator(M + product(J.T * weight[None, :], J))
