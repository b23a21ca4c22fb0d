"""Derivatives of contact impulses at the solution, whatever solver found them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._linalg import ConstraintOperator
from .newton import LeastNorm, natural_derivative
from .problem import ContactProblem, Groups, Impulses
from .rows import AbstractContactJacobian


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
        """The same with S as a matrix, as constants."""
        fixed = jax.lax.stop_gradient(eqx.filter(self, eqx.is_array))
        fixed = eqx.combine(fixed, eqx.filter(self, eqx.is_array, inverse=True))
        n = self.b.size
        basis = jnp.eye(n, dtype=self.b.dtype).reshape(n, *self.b.shape)
        columns = jax.vmap(lambda e: fixed.J.rows(fixed.change(e, rows)[0]))(basis)
        S = columns.reshape(n, n) + jnp.diag(
            jnp.zeros_like(self.b).at[:, 0].set(fixed.compliance).ravel()
        )
        return ContactProblem.scaled((S + S.T) / 2, fixed.b, fixed.mu, self.groups, fixed.smoothing)


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
    H = LeastNorm(jax.lax.stop_gradient(natural_derivative(problem, lam)))

    def along(x):
        natural = lambda lam: equations.natural(lam, rows, problem).ravel()  # noqa: E731
        return jax.jvp(natural, (lam,), (x.reshape(lam.shape),))[1]

    dlam = jax.lax.custom_linear_solve(
        along,
        -dF.ravel(),
        lambda _, r: H.solve(r),
        lambda _, r: H.solve_transposed(r),
    )
    return lam, dlam.reshape(lam.shape)
