"""The four operations M^-1 x, J x, J^T y, G^+ r, and their derivatives."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._results import RESULTS
from .._types import Force, Jacobian, MassMatrix, Rows, Velocity
from .base import (
    AbstractConstraintSolver,
    AbstractEquationMap,
    ConstraintEquations,
    MatrixMap,
)


def _directional(fn, equations, d_equations, like):
    """The derivative of `fn(equations)` along `d_equations`, zeros where it does not depend."""
    if not jax.tree.leaves(d_equations):
        return jax.tree.map(jnp.zeros_like, like)
    _, tangents = eqx.filter_jvp(fn, (equations,), (d_equations,))
    return tuple(_or_zeros(tangent, x) for tangent, x in zip(tangents, like, strict=True))


def _or_zeros(tangent, primal):
    return jnp.zeros_like(primal) if tangent is None else tangent


@eqx.filter_custom_jvp
def _free(solver, factor, equations, f):
    del equations
    return solver.free(factor, f)


@_free.def_jvp
def _free_jvp(primals, tangents):
    solver, factor, equations, f = primals
    _, _, d_equations, df = tangents
    a = _free(solver, factor, equations, f)
    (dMa,) = _directional(lambda e: (e.inertia(a),), equations, d_equations, (f,))
    return a, _free(solver, factor, equations, _or_zeros(df, f) - dMa)


@eqx.filter_custom_jvp
def _solve(solver, factor, equations, E, f, r):
    del equations, E
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
    solver, factor, equations, E, f, r = primals
    _, _, d_equations, dE, df, dr = tangents

    def solve(f, r):
        return _solve(solver, factor, equations, E, f, r)

    a, lam = solve(f, r)
    df, dr, dE = _or_zeros(df, f), _or_zeros(dr, r), _or_zeros(dE, r)
    d_left, dJa = _directional(
        lambda e: (e.inertia(a) - e.reaction(lam), e.rows(a)), equations, d_equations, (f, r)
    )
    df, dr = df - d_left, dr - dJa - dE * lam
    if not solver.allows_dependent(r.shape[0]):
        return (a, lam), solve(df, dr)

    at_rest = jnp.zeros_like(f)
    unreachable = solver.null(factor, r)
    x, w = solve(at_rest, lam)
    d_pull, dJx = _directional(
        lambda e: (e.reaction(unreachable), e.rows(x)), equations, d_equations, (f, r)
    )
    load = equations.rows(_free(solver, factor, equations, d_pull)) + dE * unreachable
    da, dlam = solve(df, dr + solve(at_rest, load)[1])
    return (a, lam), (da, dlam + solver.null(factor, dJx + dE * w))


class ConstraintOperator(eqx.Module):
    """The equations at one (t, q, v), factorised once: all that enforcement methods may use.

    **Arguments:** `solver`; `M`, `J` and `E` (`None` if rigid) to factorise; `equations`, the map
    to differentiate, by default that of the matrices.
    """

    solver: AbstractConstraintSolver
    factor: Any
    equations: AbstractEquationMap
    E: Rows | None

    def __init__(
        self,
        solver: AbstractConstraintSolver,
        M: MassMatrix,
        J: Jacobian,
        E: Rows | None = None,
        *,
        equations: AbstractEquationMap | None = None,
    ):
        self.solver = solver
        matrices = jax.lax.stop_gradient(ConstraintEquations(M, J, E))
        self.factor = jax.lax.stop_gradient(solver.factorise(matrices))
        self.equations = MatrixMap(M, J) if equations is None else equations
        self.E = E

    def free(self, f: Force) -> Velocity:
        """M^-1 f."""
        return _free(self.solver, self.factor, self.equations, f)

    def solve(self, f: Force, r: Rows) -> tuple[Velocity, Rows]:
        """(a, lam) with M a = f + J^T lam and J a + E lam = r."""
        if r.shape[0] == 0:
            return self.free(f), r
        return _solve(self.solver, self.factor, self.equations, self.E, f, r)

    def correct(self, r: Rows, like: Velocity) -> tuple[Velocity, Rows]:
        """(d, mu) with d = M^-1 J^T mu and J d = r: the change d of least kinetic energy
        d^T M d / 2 that moves the rows by r (Gauss's principle). Of `like` only the shape is
        used."""
        return self.solve(jnp.zeros_like(like), r)

    def rows(self, x: Velocity) -> Rows:
        """J x."""
        return self.equations.rows(x)

    def reaction(self, lam: Rows) -> Force:
        """J^T lam."""
        return self.equations.reaction(lam)

    def result(self) -> RESULTS:
        """Whether M is positive definite and the rows could be solved."""
        return self.solver.result(self.factor)
