"""The default solver."""

from .base import AbstractConstraintSolver
from .proximal import Proximal
from .pseudoinverse import Pseudoinverse
from .small import MAX_SWEPT


def _choose(nc: int) -> AbstractConstraintSolver:
    return Pseudoinverse() if nc <= MAX_SWEPT else Proximal()


class Automatic(AbstractConstraintSolver):
    """A solver that survives redundant rows, chosen by size: `Pseudoinverse` up to 9 rows, where
    it is fused and as fast as any, `Proximal` above. The default of every enforcement method.
    """

    def factorise(self, equations):
        return _choose(equations.J.shape[0]).factorise(equations)

    def free(self, factor, f):
        return factor.whitened.free(f)

    def solve(self, factor, f, r):
        return _choose(r.shape[0]).solve(factor, f, r)

    def allows_dependent(self, nc):
        return nc > 1

    def dependent(self, factor):
        return _choose(factor.whitened.C.shape[0]).dependent(factor)

    def null(self, factor, s):
        return _choose(s.shape[0]).null(factor, s)

    def result(self, factor):
        nc = factor.whitened.C.shape[0]
        return _choose(nc).result(factor)
