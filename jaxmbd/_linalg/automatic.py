"""The default solver."""

from typing import Any, ClassVar

import equinox as eqx

from .._compiler import FEW
from .base import AbstractConstraintSolver
from .block_sparse import BlockSparse
from .blocks import BlockRows
from .proximal import Proximal
from .pseudoinverse import Pseudoinverse


class _Factor(eqx.Module):
    solver: AbstractConstraintSolver
    factor: Any


class Automatic(AbstractConstraintSolver):
    """The default of every enforcement method: a solver that handles redundant rows, selected by
    size and structure. It is `BlockSparse` for mechanisms with more than 9 rows or with joints that
    form trees. Otherwise it is `Pseudoinverse` up to 9 rows, where it is fused and as fast as any,
    and `Proximal` above. `choose` returns the solver for a Jacobian.
    """

    sparse: ClassVar[bool] = True

    @staticmethod
    def choose(J: Any) -> AbstractConstraintSolver:
        """The solver for a Jacobian, an array or `BlockRows`, by its shape and structure."""
        few = J.shape[0] <= FEW
        if isinstance(J, BlockRows) and (J.independent or not few):
            return BlockSparse()
        return Pseudoinverse() if few else Proximal()

    def factorise(self, equations):
        solver = self.choose(equations.J)
        return _Factor(solver, solver.factorise(equations if solver.sparse else equations.dense()))

    def free(self, factor, f):
        return factor.solver.free(factor.factor, f)

    def solve(self, factor, f, r):
        return factor.solver.solve(factor.factor, f, r)

    def mobility(self, factor, forces):
        return factor.solver.mobility(factor.factor, forces)

    def whitened(self, factor):
        return factor.solver.whitened(factor.factor)

    def allows_dependent(self, factor):
        return factor.solver.allows_dependent(factor.factor)

    def dependent(self, factor):
        return factor.solver.dependent(factor.factor)

    def null(self, factor, s):
        return factor.solver.null(factor.factor, s)

    def result(self, factor):
        return factor.solver.result(factor.factor)
