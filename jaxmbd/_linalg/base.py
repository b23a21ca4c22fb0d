"""The interface of constraint solvers."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float

from .._extensible import Extensible
from .._results import RESULTS
from .._types import Force, Rows, Velocity
from .blocks import BlockRoot, BlockRows, dense


class ConstraintEquations(NamedTuple):
    """Coefficients, as arrays or as blocks of many bodies (`BlockDiagonal`, `BlockRows`), of

        M a - J^T lam = f,
        J a + E lam   = r,

    the linear problem of every enforcement method. The diagonal E >= 0 is the compliance of springs
    in series with the rows; `None` for rigid rows. `tilt` [rad]: an upper bound on the angle by
    which violation may have rotated rows against each other (see `rank.py`); `None` for no
    violation.
    """

    M: Any
    J: Any
    E: Rows | None
    tilt: Float[Array, ""] | None = None

    def dense(self) -> "ConstraintEquations":
        """The same equations, as arrays."""
        return self._replace(M=dense(self.M), J=dense(self.J))


class WhitenedRows(NamedTuple):
    """Rows of many bodies in coordinates in which the mass is 1.

    **Fields:** `root`: R with R R^T = M^-1; `K` = J R; compliance `E`, `None` for rigid rows. Rows
    of shared inertia (see `CoupledBlocks`) follow the others."""

    root: BlockRoot
    K: BlockRows
    E: Rows | None


class AbstractEquationMap(eqx.Module):
    """The left sides of the same equations as functions. The derivative rule differentiates these
    functions: it needs d(J^T lam) and d(J a) at fixed a and lam."""

    @abc.abstractmethod
    def inertia(self, a: Velocity) -> Force:
        """M a."""

    @abc.abstractmethod
    def rows(self, a: Velocity) -> Rows:
        """J a."""

    @abc.abstractmethod
    def reaction(self, lam: Rows) -> Force:
        """J^T lam."""

    @abc.abstractmethod
    def left(self, a: Velocity, lam: Rows, w: Velocity) -> tuple[Force, Rows]:
        """(M a - J^T lam, J w), with common terms evaluated once."""


class MatrixMap(AbstractEquationMap):
    """The functions of given matrices, which are differentiated."""

    M: Any
    J: Any

    def inertia(self, a):
        return self.M @ a

    def rows(self, a):
        return self.J @ a

    def reaction(self, lam):
        return lam @ self.J

    def left(self, a, lam, w):
        return self.M @ a - lam @ self.J, self.J @ w


class AbstractConstraintSolver(Extensible):
    """Factorises `ConstraintEquations` once and solves them for many right sides.

    With G = J M^-1 J^T + E (the Delassus operator), the solution is

        lam = G^+ (r - J M^-1 f),    a = M^-1 (f + J^T lam).

    Solvers need no derivatives. `operator.py` has one derivative rule for all of them, which solves
    again with the same factor.
    """

    # Whether the solver takes sparse blocks. Other solvers get arrays.
    sparse: ClassVar[bool] = False

    @abc.abstractmethod
    def factorise(self, equations: ConstraintEquations) -> Any:
        """A factor, any pytree."""

    @abc.abstractmethod
    def free(self, factor: Any, f: Force) -> Velocity:
        """M^-1 f."""

    @abc.abstractmethod
    def solve(self, factor: Any, f: Force, r: Rows) -> tuple[Velocity, Rows]:
        """(a, lam); linear in (f, r)."""

    def mobility(self, factor: Any, forces: Float[Array, "n nv"]) -> Float[Array, "n n"] | None:
        """The powers F A F^T of forces F in the rows, at the accelerations a = A f of `solve` for
        r = 0; `None` if the factor gives them at no less cost than one solve for each force."""
        del factor, forces
        return None

    def whitened(self, factor: Any) -> WhitenedRows | None:
        """The rows of a factor by sparse blocks; `None` for a factor of arrays."""
        del factor
        return None

    def cutoff_given(self) -> bool:
        """Whether the user has set the cutoff up to which rows count as dependent."""
        return False

    @abc.abstractmethod
    def allows_dependent(self, factor: Any) -> bool:
        """Whether `null` can be nonzero, judged by the shapes in `factor` alone."""

    @abc.abstractmethod
    def dependent(self, factor: Any) -> Bool[Array, ""]:
        """Whether `null` of this factor can be nonzero."""

    @abc.abstractmethod
    def null(self, factor: Any, s: Rows) -> Rows:
        """(1 - G G^+) s, linear in s: the part of a right side that dependent rows cannot satisfy.
        It is exactly zero if the rows are independent."""

    @abc.abstractmethod
    def result(self, factor: Any) -> RESULTS:
        """The verdict on the factor."""
