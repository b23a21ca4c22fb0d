"""Derivatives of contact impulses at the solution, whatever solver found them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._linalg import BlockDiagonal, ConstraintOperator, dense
from .._linalg.block_sparse import swept_whitener
from .delassus import AbstractDelassus, DenseDelassus, FactoredDelassus, Inverse
from .newton import natural_derivative
from .problem import ContactProblem, Groups
from .rows import (
    AbstractContactJacobian,
    BodyContactJacobian,
    DenseContactJacobian,
    Impulses,
)

# Rows of contacts for each velocity, from which on systems of the velocities' size take less.
_MANY = 2 / 3


class ContactEquations(eqx.Module):
    """A contact problem as a function of the system, through which it is differentiated: S lam is
    one solve with the equality rows and not a matrix.

    **Fields:**

    - `operator`: M and the equality rows, factorised.
    - `J`: of the contacts.
    - `b`: relative velocities without impulses, with the bias, shape `(contacts, d)` [m/s].
    - `mu`: coefficients of the groups, shape `(contacts, groups)`.
    - `compliance`: what is added to S for the normal impulses, shape `(contacts,)` [1/kg].
    - `smoothing`: velocity [m/s] by which the laws are smoothed.
    """

    operator: ConstraintOperator
    J: AbstractContactJacobian
    b: Impulses
    mu: Float[Array, "contacts groups"]
    compliance: Float[Array, " contacts"]
    smoothing: Float[Array, ""]
    groups: Groups

    def change(self, lam: Impulses, rows: int) -> tuple[Array, Array]:
        """Change of the velocities by contact impulses, and the impulses of the equality rows."""
        return self.operator.solve(self.J.reaction(lam), jnp.zeros(rows, lam.dtype))

    def velocities(self, lam: Impulses, rows: int) -> Impulses:
        """z."""
        z = self.J.rows(self.change(lam, rows)[0]) + self.b
        return z.at[:, 0].add(self.compliance * lam[:, 0])

    def natural(self, lam: Impulses, rows: int, problem: ContactProblem) -> Impulses:
        """The natural map of scaled impulses, in the units of `problem`."""
        scale = problem.scale[:, None]
        z = self.velocities(lam * scale, rows) * scale
        z = z.at[:, 1:].add(jnp.einsum("cij,cj->ci", problem.held, lam[:, 1:]))
        y = jax.vmap(self.groups.project)(lam - z, self.mu, self.smoothing * problem.scale)
        return lam - y

    def problem(self, rows: int) -> ContactProblem:
        """The same with S as an operator of its own, as constants."""
        fixed = jax.lax.stop_gradient(eqx.filter(self, eqx.is_array))
        fixed = eqx.combine(fixed, eqx.filter(self, eqx.is_array, inverse=True))
        d = self.groups.d
        own = jnp.zeros((*self.b.shape, d), self.b.dtype).at[:, 0, 0].set(fixed.compliance)
        S = fixed.delassus(rows).plus(own)
        return ContactProblem.scaled(S, fixed.b, fixed.mu, self.groups, fixed.smoothing)

    def delassus(self, rows: int) -> AbstractDelassus:
        """S without compliance, in the form with the smaller systems."""
        M, J, shape, n = self.operator.M, self.J, self.b.shape, self.b.size
        own = jnp.zeros((*shape, shape[1]), self.b.dtype)
        many = n > _MANY * M.shape[0]
        if rows == 0 and isinstance(M, BlockDiagonal) and isinstance(J, BodyContactJacobian):
            Y = J.whitened(swept_whitener(M.blocks)[0])
            return FactoredDelassus(Y, own) if many else DenseDelassus(Y.products())
        basis = jnp.eye(n, dtype=self.b.dtype).reshape(n, *shape)
        changes = jax.vmap(lambda e: self.change(e, rows)[0])(basis)
        if many:
            # J_c A, where A lets pass what equality rows do: with M = R R^T, A = R^-T Q R^-1 with a
            # projection Q, and so Y = J_c A R has Y Y^T = J_c A J_c^T.
            Y = changes @ jnp.linalg.cholesky(dense(M))
            return FactoredDelassus(DenseContactJacobian(Y.reshape(*shape, -1)), own)
        S = jax.vmap(J.rows)(changes).reshape(n, n)
        return DenseDelassus(((S + S.T) / 2).reshape(*shape, *shape))


@eqx.filter_custom_jvp
def at_solution(
    equations: ContactEquations, problem: ContactProblem, lam: Impulses, rows: int
) -> Impulses:
    """`lam`, the scaled solution, as a function of the equations: with the derivative

        dlam = -H^+ dF

    of F(lam) = 0, the natural map, H = dF/dlam. That is the derivative on the active set, which
    is that of the solution wherever no contact is about to change its state; where one is, that of
    one of the sides. Redundant contacts have it for the impulses of least norm."""
    del equations, problem, rows
    return lam


@at_solution.def_jvp
def _at_solution_jvp(primals, tangents):
    equations, problem, lam, rows = primals
    d_equations = tangents[0]
    lam = at_solution(equations, problem, lam, rows)
    if not jax.tree.leaves(d_equations) or lam.size == 0:
        return lam, jnp.zeros_like(lam)
    _, dF = eqx.filter_jvp(
        lambda equations: equations.natural(lam, rows, problem), (equations,), (d_equations,)
    )
    fixed = jax.lax.stop_gradient(lam)
    inverse = Inverse.group(
        problem.S, *natural_derivative(problem, fixed, problem.velocities(fixed))
    )

    def along(x):
        natural = lambda lam: equations.natural(lam, rows, problem)  # noqa: E731
        return jax.jvp(natural, (lam,), (x,))[1]

    dlam = jax.lax.custom_linear_solve(
        along,
        -dF,
        lambda _, r: inverse.solve(r),
        lambda _, r: inverse.solve_transposed(r),
    )
    return lam, dlam
