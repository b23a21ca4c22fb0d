"""The four operations M^-1 x, J x, J^T y, G^+ r, and their derivatives."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._results import RESULTS
from .._types import Force, Jacobian, MassMatrix, Rows, Velocity
from .base import AbstractConstraintSolver, ConstraintEquations


def _or_zeros(tangent, primal):
    return jnp.zeros_like(primal) if tangent is None else tangent


@eqx.filter_custom_jvp
def _free(solver, factor, M, f):
    del M
    return solver.free(factor, f)


@_free.def_jvp
def _free_jvp(primals, tangents):
    solver, factor, M, f = primals
    _, _, dM, df = tangents
    a = _free(solver, factor, M, f)
    load = _or_zeros(df, f)
    if dM is not None:
        load = load - dM @ a
    return a, _free(solver, factor, M, load)


@eqx.filter_custom_jvp
def _solve(solver, factor, equations, f, r):
    del equations
    return solver.solve(factor, f, r)


@_solve.def_jvp
def _solve_jvp(primals, tangents):
    # Differentiating M a - J^T lam = f, J a + E lam = r gives the same equations for (da, dlam),
    #     f' = df - dM a + dJ^T lam,    r' = dr - dJ a - dE lam,
    # one more solve with the same factor: exact for independent rows. For G^+ of a rank that is
    # constant nearby there are two terms more (Golub and Pereyra 1973, equation 4.12),
    #     dG^+ = -G^+ dG G^+ + G^+ G^+ dG N + N dG G^+ G^+,    N = 1 - G G^+,
    # acting on s = r - J M^-1 f. They simplify, since N J = 0 and N E = 0: N s = N r, and of
    # dG N only J M^-1 dJ^T N + dE N is left, of N dG only N dJ M^-1 J^T + N dE.
    solver, factor, equations, f, r = primals
    _, _, d_equations, df, dr = tangents
    M, J, _ = equations
    dM, dJ, dE = (None,) * 3 if d_equations is None else d_equations

    def solve(f, r):
        return _solve(solver, factor, equations, f, r)

    a, lam = solve(f, r)
    df, dr = _or_zeros(df, f), _or_zeros(dr, r)
    if dM is not None:
        df = df - dM @ a
    if dJ is None and dE is None:
        return (a, lam), solve(df, dr)

    dJ, dE = _or_zeros(dJ, J), jnp.zeros_like(r) if dE is None else dE
    df, dr = df + dJ.T @ lam, dr - dJ @ a - dE * lam
    if not solver.allows_dependent(r.shape[0]):
        return (a, lam), solve(df, dr)

    at_rest = jnp.zeros_like(f)
    unreachable = solver.null(factor, r)
    load = J @ _free(solver, factor, M, dJ.T @ unreachable) + dE * unreachable
    da, dlam = solve(df, dr + solve(at_rest, load)[1])
    x, w = solve(at_rest, lam)
    return (a, lam), (da, dlam + solver.null(factor, dJ @ x + dE * w))


class ConstraintOperator(eqx.Module):
    """The equations at one (t, q, v), factorised once: all that enforcement methods may use."""

    equations: ConstraintEquations
    solver: AbstractConstraintSolver
    factor: Any

    def __init__(
        self,
        solver: AbstractConstraintSolver,
        M: MassMatrix,
        J: Jacobian,
        E: Rows | None = None,
    ):
        self.equations = ConstraintEquations(M, J, E)
        self.solver = solver
        self.factor = jax.lax.stop_gradient(solver.factorise(jax.lax.stop_gradient(self.equations)))

    def free(self, f: Force) -> Velocity:
        """M^-1 f."""
        return _free(self.solver, self.factor, self.equations.M, f)

    def solve(self, f: Force, r: Rows) -> tuple[Velocity, Rows]:
        """(a, lam) with M a = f + J^T lam and J a + E lam = r."""
        if r.shape[0] == 0:
            return self.free(f), r
        return _solve(self.solver, self.factor, self.equations, f, r)

    def correct(self, r: Rows) -> tuple[Velocity, Rows]:
        """(d, mu) with d = M^-1 J^T mu and J d = r: the change d of least kinetic energy
        d^T M d / 2 that moves the rows by r (Gauss's principle)."""
        return self.solve(jnp.zeros(self.equations.J.shape[1], r.dtype), r)

    def rows(self, x: Velocity) -> Rows:
        """J x."""
        return self.equations.J @ x

    def reaction(self, lam: Rows) -> Force:
        """J^T lam."""
        return self.equations.J.T @ lam

    def result(self) -> RESULTS:
        """Whether M is positive definite and the rows could be solved."""
        return self.solver.result(self.factor)
