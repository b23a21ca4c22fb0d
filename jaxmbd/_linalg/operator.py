"""The four operations M^-1 x, J x, J^T y, G^+ r, and their derivatives.

Each solve is a `lax.custom_linear_solve` of K x = b. Its value is computed by `solve` with the
factor, which is constant in derivatives. Derivatives are taken of `matvec`, x -> K x, through the
equation map. So K dx = db - dK x is one more solve with the same factor, in both modes and to any
order. A `custom_jvp` alone would not be enough: `lax.scan` drops its rule when a reverse pass
through the scan is differentiated.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from .._compiler import loops_cost_nothing
from .._results import RESULTS
from .._types import Force, Jacobian, MassMatrix, Rows, Velocity
from .base import (
    AbstractConstraintSolver,
    AbstractEquationMap,
    ConstraintEquations,
    MatrixMap,
    WhitenedRows,
)
from .block_sparse import BlockSparse
from .blocks import BlockDiagonal, BlockRows, CoupledBlocks
from .cholesky import Cholesky


class ConstraintOperator(eqx.Module):
    """The equations at one (t, q, v), factorised once, with the operations of enforcement methods.

    **Arguments:** `solver`; `M`, `J` and `E` (`None` if rigid) to factorise, where the field `M` is
    constant in derivatives; `tilt` as in `ConstraintEquations`; `equations`, the map to
    differentiate, by default that of the matrices.
    """

    solver: AbstractConstraintSolver
    M: MassMatrix | BlockDiagonal | CoupledBlocks
    factor: Any
    equations: AbstractEquationMap
    E: Rows | None
    in_blocks: bool = eqx.field(static=True)

    def __init__(
        self,
        solver: AbstractConstraintSolver,
        M: MassMatrix | BlockDiagonal | CoupledBlocks,
        J: Jacobian | BlockRows,
        E: Rows | None = None,
        *,
        tilt: Float[Array, ""] | None = None,
        equations: AbstractEquationMap | None = None,
    ):
        self.solver = solver
        matrices = jax.lax.stop_gradient(ConstraintEquations(M, J, E, tilt))
        self.M = matrices.M
        blocks = isinstance(M, BlockDiagonal | CoupledBlocks) and isinstance(J, BlockRows)
        if not (solver.sparse and blocks):
            matrices = matrices.dense()
        self.factor = jax.lax.stop_gradient(solver.factorise(matrices))
        self.equations = MatrixMap(M, J) if equations is None else equations
        self.E = E
        self.in_blocks = isinstance(J, BlockRows)

    def free(self, f: Force) -> Velocity:
        """M^-1 f."""

        def solve(_, f):
            return _free(self.solver, self.factor, f)

        # A method itself would be printed for the debug information, arrays and all.
        inertia = lambda a: self.equations.inertia(a)  # noqa: E731
        return jax.lax.custom_linear_solve(inertia, f, solve, symmetric=True)

    def solve(self, f: Force, r: Rows) -> tuple[Velocity, Rows]:
        """(a, lam) with M a = f + J^T lam and J a + E lam = r."""
        if r.shape[0] == 0:
            return self.free(f), r
        if self.solver.allows_dependent(self.factor):
            return _solve_by_rule(self, f, r, None)
        return _solve(self, f, r)

    def solve_fixed(self, f: Force, r: Rows) -> tuple[Velocity, Rows]:
        """`solve` as a linear function of (f, r): the equations are constant in derivatives."""
        fixed = jax.lax.stop_gradient(eqx.filter(self, eqx.is_array))
        operator = eqx.combine(fixed, eqx.filter(self, eqx.is_array, inverse=True))
        return (operator.free(f), r) if r.shape[0] == 0 else _solve(operator, f, r)

    def solve_fixed_each(self, *rights: tuple[Force, Rows]) -> list[tuple[Velocity, Rows]]:
        """`solve_fixed` for several (f, r)."""
        return self._each(self.solve_fixed, rights)

    def steer(self, r: Rows, v: Velocity) -> tuple[Velocity, Rows]:
        """(d, mu) with M d = J^T mu and J (v + d) + E mu = r: the change d of v with the least
        kinetic energy, after which the row velocities are r."""
        if r.shape[0] == 0:
            return jnp.zeros_like(v), r
        return _solve_by_rule(self, jnp.zeros_like(v), r, v)

    def steer_each(self, *rights: tuple[Rows, Velocity]) -> list[tuple[Velocity, Rows]]:
        """`steer` for several (r, v)."""
        return self._each(self.steer, rights)

    def solve_each(self, *rights: tuple[Force, Rows]) -> list[tuple[Velocity, Rows]]:
        """`solve` for several (f, r)."""
        return self._each(self.solve, rights)

    def _each(self, solve, rights):
        if not self.in_blocks:
            return [solve(*right) for right in rights]
        # Compiled once, since the code of a solve with blocks is long.
        stacked = tuple(map(jnp.stack, zip(*rights, strict=True)))
        if loops_cost_nothing():
            a, lam = jax.lax.map(lambda right: solve(*right), stacked)
        else:
            a, lam = jax.vmap(solve)(*stacked)
        return list(zip(a, lam, strict=True))

    def mobility(self, forces: Float[Array, "n nv"]) -> Float[Array, "n n"] | None:
        """See `AbstractConstraintSolver`; constant to derivatives."""
        return self.solver.mobility(*jax.lax.stop_gradient((self.factor, forces)))

    def whitened(self) -> WhitenedRows | None:
        """See `AbstractConstraintSolver`; constant to derivatives."""
        return self.solver.whitened(jax.lax.stop_gradient(self.factor))

    def correct(self, r: Rows, like: Velocity) -> tuple[Velocity, Rows]:
        """(d, mu) with d = M^-1 J^T mu and J d = r: the change d of least kinetic energy
        d^T M d / 2 that changes the rows by r (Gauss's principle). Of `like` only the shape is
        used."""
        return self.solve(jnp.zeros_like(like), r)

    def rows(self, x: Velocity) -> Rows:
        """J x."""
        return self.equations.rows(x)

    def reaction(self, lam: Rows) -> Force:
        """J^T lam."""
        return self.equations.reaction(lam)

    def compliant(self, lam: Rows) -> Rows:
        """E lam."""
        return jnp.zeros_like(lam) if self.E is None else self.E * lam

    def null(self, s: Rows) -> Rows:
        """(1 - G G^+) s."""
        return _null(self.solver, self.factor, s)

    def dependent(self) -> Bool[Array, ""]:
        """Whether `null` can be nonzero."""
        return self.solver.dependent(self.factor)

    def result(self) -> RESULTS:
        """The verdict on M (positive definite?) and on the rows (solvable?)."""
        return self.solver.result(self.factor)


def without_rows(
    M: MassMatrix | BlockDiagonal | CoupledBlocks, equations: AbstractEquationMap | None = None
) -> ConstraintOperator:
    """The operator of M without rows, differentiated through `equations` if they are given."""
    if isinstance(M, BlockDiagonal | CoupledBlocks):
        size, _, count = (M if isinstance(M, BlockDiagonal) else M.diagonal).blocks.shape
        J = BlockRows.none(count, size)
        return ConstraintOperator(BlockSparse(), M, J, equations=equations)
    none: Float[Array, "0 nv"] = M[:0]
    return ConstraintOperator(Cholesky(), M, none, equations=equations)


# Jitted, so that it is traced once for all factors of one structure: derivatives call it many
# times.
@eqx.filter_jit
def _by_factor(
    solver: AbstractConstraintSolver, factor: Any, f: Force, r: Rows
) -> tuple[Velocity, Rows]:
    return solver.solve(factor, f, r)


@eqx.filter_jit
def _free(solver: AbstractConstraintSolver, factor: Any, f: Force) -> Velocity:
    return solver.free(factor, f)


@eqx.filter_jit
def _null(solver: AbstractConstraintSolver, factor: Any, s: Rows) -> Rows:
    return solver.null(factor, s)


def _solve(operator: ConstraintOperator, f: Force, r: Rows) -> tuple[Velocity, Rows]:
    """(a, lam) for v = 0, differentiated as if the rows were independent."""
    # Both parts are one vector, since the transpose rule requires that either all of b depends on
    # the differentiated variables, or nothing.
    b, parts = ravel_pytree((f, r))

    def matvec(x):
        a, lam = parts(x)
        left, right = operator.equations.left(a, lam, a)
        return jnp.concatenate([left, right + operator.compliant(lam)])

    def solve(_, b):
        return jnp.concatenate(_by_factor(operator.solver, operator.factor, *parts(b)))

    def solve_transposed(_, b):
        # M a + J^T lam = f, -J a + E lam = r: the same equations in (a, -lam).
        f, r = parts(b)
        a, lam = _by_factor(operator.solver, operator.factor, f, -r)
        return jnp.concatenate([a, -lam])

    return parts(jax.lax.custom_linear_solve(matvec, b, solve, solve_transposed))


@eqx.filter_custom_jvp
def _solve_by_rule(
    operator: ConstraintOperator, f: Force, r: Rows, v: Velocity | None
) -> tuple[Velocity, Rows]:
    """(a, lam) with M a = f + J^T lam and J (v + a) + E lam = r, v = 0 for `None`. J v and J a, at
    fixed a and v, are differentiated together."""
    return _solve(operator, f, r if v is None else r - operator.rows(v))


@_solve_by_rule.def_jvp
def _solve_by_rule_jvp(primals, tangents):
    operator, f, r, v = primals
    d_operator, df, dr, dv = tangents
    df, dr = _or_zeros(df, f), _or_zeros(dr, r)
    a, lam = _solve_by_rule(operator, f, r, v)

    def left(operator, v):
        force, reached = operator.equations.left(a, lam, a if v is None else v + a)
        return force, reached + operator.compliant(lam)

    d_left, d_right = _directional(left, (operator, v), (d_operator, dv), (f, r))
    shift = extra = jnp.zeros_like(r)
    if operator.solver.allows_dependent(operator.factor):
        of_r = r if v is None else r - operator.rows(v)
        shift, extra = _of_dependent_rows(operator, d_operator, a, lam, of_r)
    da, dlam = _solve(operator, df - d_left, dr - d_right + shift)
    return (a, lam), (da, dlam + extra)


def _of_dependent_rows(operator, d_operator, a, lam, r):
    # For independent rows the derivative solves the same equations with f' = df - dM a + dJ^T lam
    # and r' = dr - dJ a - dE lam. The derivative of G^+, for a rank that is constant nearby, adds
    # two terms (Golub and Pereyra 1973, equation 4.12),
    #     dG^+ = -G^+ dG G^+ + G^+ G^+ dG N + N dG G^+ G^+,    N = 1 - G G^+,
    # acting on s = r - J M^-1 f. They simplify, since N J = 0 and N E = 0. So N s = N r. Of dG N
    # only J M^-1 dJ^T N + dE N remains, and of N dG only N dJ M^-1 J^T + N dE.
    # Derivatives of this rule treat N as constant. Derivatives of the motion are still exact if the
    # rows are consistent (N r = 0): the error is confined to multipliers that have no effect.
    rest, at_rest = jnp.zeros_like(a), jnp.zeros_like(r)

    def terms():
        # N r, computed from the residual. It stays zero for consistent rows, however N changes.
        unreachable = operator.null(r - operator.rows(a) - operator.compliant(lam))
        x, z = _solve_by_rule(operator, rest, lam, None)

        def turned(operator):
            force, reach = operator.equations.left(rest, unreachable, x)
            return force, operator.compliant(unreachable), reach + operator.compliant(z)

        pull, held, reach = _directional(turned, (operator,), (d_operator,), (rest, r, r))
        _, shift = _solve(operator, rest, operator.rows(operator.free(-pull)) + held)
        return shift, operator.null(reach)

    return jax.lax.cond(operator.dependent(), terms, lambda: (at_rest, at_rest))


def _directional(fn, primals, tangents, like):
    """The derivative of `fn(*primals)` along `tangents`, with zeros for outputs that do not depend
    on them."""
    if not jax.tree.leaves(tangents):
        return jax.tree.map(jnp.zeros_like, like)
    _, found = eqx.filter_jvp(fn, primals, tangents)
    return tuple(_or_zeros(tangent, x) for tangent, x in zip(found, like, strict=True))


def _or_zeros(tangent, primal):
    return jnp.zeros_like(primal) if tangent is None else tangent
