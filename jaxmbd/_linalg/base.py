"""What a constraint solver must provide."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float

from .._results import RESULTS
from .._types import Force, Rows, Velocity
from .blocks import dense


class ConstraintEquations(NamedTuple):
    """Coefficients, as arrays or, of many bodies, as `BlockDiagonal` and `BlockRows`, of

        M a - J^T lam = f,
        J a + E lam   = r,

    the one linear problem behind every enforcement method. The diagonal compliance E >= 0 is that
    of springs in series with the rows; `None` for rigid rows. `tilt` [rad]: by how much violation
    may have turned rows against each other (see `rank.py`); `None` where there is none.
    """

    M: Any
    J: Any
    E: Rows | None
    tilt: Float[Array, ""] | None = None

    def dense(self) -> "ConstraintEquations":
        """The same as arrays."""
        return self._replace(M=dense(self.M), J=dense(self.J))


class AbstractEquationMap(eqx.Module):
    """The left sides of the same equations as functions, through which they are differentiated:
    what the derivative rule needs is d(J^T lam) and d(J a) at fixed a and lam, which for a
    function of the state takes one directional derivative each, where the matrix takes one for
    each of its columns."""

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
        """(M a - J^T lam, J w), in one evaluation of what they share."""


class MatrixMap(AbstractEquationMap):
    """The equations of given matrices."""

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


class AbstractConstraintSolver(eqx.Module):
    """Factorises `ConstraintEquations` once and solves them for many right sides.

    With G = J M^-1 J^T + E (the Delassus operator), the solution is

        lam = G^+ (r - J M^-1 f),    a = M^-1 (f + J^T lam).

    A solver never differentiates: `operator.py` gives all of them one derivative rule, made of
    more solves with the same factor.
    """

    # Whether it makes use of sparse blocks; others are given arrays.
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

    def cutoff_given(self) -> bool:
        """Whether the user has said up to where rows count as dependent."""
        return False

    @abc.abstractmethod
    def allows_dependent(self, factor: Any) -> bool:
        """Whether `null` may be anything but zero, as far as the shapes in `factor` tell."""

    @abc.abstractmethod
    def dependent(self, factor: Any) -> Bool[Array, ""]:
        """Whether `null` of this factor may be anything but zero."""

    @abc.abstractmethod
    def null(self, factor: Any, s: Rows) -> Rows:
        """(1 - G G^+) s, linear in s: the part of a right side that dependent rows cannot satisfy;
        exactly zero where the rows are independent."""

    @abc.abstractmethod
    def result(self, factor: Any) -> RESULTS:
        """Whether the factor can be trusted."""
