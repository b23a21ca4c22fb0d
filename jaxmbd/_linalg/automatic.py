"""The default solver."""

from typing import Any, ClassVar

import equinox as eqx

from .base import AbstractConstraintSolver
from .block_sparse import BlockSparse
from .blocks import BlockRows
from .proximal import Proximal
from .pseudoinverse import Pseudoinverse
from .small import FEW


class _Factor(eqx.Module):
    solver: AbstractConstraintSolver
    factor: Any


class Automatic(AbstractConstraintSolver):
    """A solver that survives redundant rows, chosen by size and structure: `Pseudoinverse` up to 9
    rows, where it is fused and as fast as any, `Proximal` above; `BlockSparse` for mechanisms of
    more rows, or whose joints form trees. The default of every enforcement method. `choose` tells
    which it is.
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

    def allows_dependent(self, factor):
        return factor.solver.allows_dependent(factor.factor)

    def dependent(self, factor):
        return factor.solver.dependent(factor.factor)

    def null(self, factor, s):
        return factor.solver.null(factor.factor, s)

    def result(self, factor):
        return factor.solver.result(factor.factor)
