"""The derivative rule of contact impulses and their effects, the same for all contact solvers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import contract, each, loops_cost_nothing, product, root, stop_gradient
from .._linalg import BlockDiagonal, ConstraintOperator, block_whitener, dense
from .._types import Rows, Velocity
from .delassus import (
    AbstractDelassus,
    DenseDelassus,
    FactoredDelassus,
    GroupInverse,
)
from .newton import natural_derivative
from .problem import ContactProblem, Groups
from .rows import (
    AbstractContactJacobian,
    BodyContactJacobian,
    DenseContactJacobian,
    Impulses,
)
from .sparse_delassus import HeldRows, SparseDelassus

# With more contact rows for each velocity, systems of the velocities' size are cheaper.
_MANY = 2 / 3

# Beside equality rows, up to this many contact rows S is no larger as a matrix than as a program.
_SPARSE = 100


class ContactEquations(eqx.Module):
    """A contact problem as a function of the system, for differentiation. S lam is one solve with
    the equality rows; S is not formed as a matrix.

    **Fields:**

    - `operator`: M and the equality rows, factorised.
    - `J`: Jacobian of the contacts.
    - `b`: relative velocities without impulses, bias included, shape `(contacts, d)` [m/s].
    - `mu`: coefficients of the groups, shape `(contacts, groups)`.
    - `compliance`: added to S for the normal impulses, shape `(contacts,)` [1/kg].
    - `smoothing`: velocity [m/s] by which the laws are smoothed, or `None`.
    """

    operator: ConstraintOperator
    J: AbstractContactJacobian
    b: Impulses
    mu: Float[Array, "contacts groups"]
    compliance: Float[Array, " contacts"]
    smoothing: Float[Array, ""] | None
    groups: Groups

    def change(self, lam: Impulses, rows: int) -> tuple[Array, Array]:
        """Return the change of the velocities by `lam`, and the impulses of the equality rows."""
        return self.operator.solve(self.J.reaction(lam), jnp.zeros(rows, lam.dtype))

    def natural(self, lam: Impulses, change: Velocity, problem: ContactProblem) -> Impulses:
        """Return the natural map, in the units of `problem`, of scaled impulses and the `change` of
        the velocities that they cause."""
        scale = problem.scale[:, None]
        z = self.J.rows(change) + self.b
        z = z.at[:, 0].add(self.compliance * problem.scale * lam[:, 0]) * scale
        z = z.at[:, 1:].add(contract("cij,cj->ci", problem.held, lam[:, 1:]))
        smoothing = None if self.smoothing is None else self.smoothing * problem.scale
        y = jax.vmap(self.groups.project)(lam - z, self.mu, smoothing)
        return lam - y

    def problem(self, S: AbstractDelassus, passing: Impulses | None = None) -> ContactProblem:
        """Return the problem with the given S (see `delassus`) and the part of b that is `passing`,
        as a constant to derivatives."""
        fixed = stop_gradient((self.b, self.mu, self.compliance, self.smoothing, passing))
        b, mu, compliance, smoothing, passing = fixed
        own = jnp.zeros((*b.shape, b.shape[1]), b.dtype).at[:, 0, 0].set(compliance)
        return ContactProblem.scaled(S.plus(own), b, mu, self.groups, smoothing, passing)


def delassus(
    operator: ConstraintOperator, rows: int, J: AbstractContactJacobian, d: int
) -> AbstractDelassus:
    """Return S without compliance, in the form with the smaller systems, constant to
    derivatives."""
    operator, J = stop_gradient((operator, J))
    M, (count, dtype) = operator.M, (J.contacts, operator.M.dtype)
    n, shape = count * d, (count, d)
    own = jnp.zeros((*shape, d), dtype)
    many = n > _MANY * M.shape[0]
    if isinstance(J, BodyContactJacobian) and loops_cost_nothing():
        whitened = operator.whitened()
        if whitened is not None and (rows == 0 or n > _SPARSE):
            held = HeldRows(operator, J, whitened) if whitened.K.elements else None
            return SparseDelassus.of(J, whitened.root.whitener(), held)
    if rows == 0 and isinstance(M, BlockDiagonal):
        W = block_whitener(M.blocks)[0] if M.root is None else M.root.whitener()
        Y = J.whitened(W)
        return FactoredDelassus(Y, own) if many else DenseDelassus(Y.products())
    forces = J.matrix()
    S = None if many else operator.mobility(forces)
    if S is not None:
        return DenseDelassus(S.reshape(*shape, *shape))
    rest = jnp.zeros(rows, dtype)
    # One by one where loops cost nothing: a batch of all of them would call a library for its sums.
    changes = each(lambda f: operator.solve(f, rest)[0], forces)
    if many:
        # With equality rows S = J_c A J_c^T, where A = R^-T Q R^-1 with M = R R^T and a projection
        # Q. So Y = J_c A R has Y Y^T = S.
        Y = product(changes, root(dense(M)))
        return FactoredDelassus(DenseContactJacobian(Y.reshape(*shape, -1)), own)
    S = product(changes, forces.T)
    return DenseDelassus(((S + S.T) / 2).reshape(*shape, *shape))


class Applied(NamedTuple):
    """Contact impulses, and the changes of velocities and impulses of equality rows by them; and
    whether they have derivatives, if these are asked for (`None` among tangents)."""

    impulses: Impulses
    change: Velocity
    multipliers: Rows
    differentiable: Bool[Array, ""] | None


@eqx.filter_custom_jvp
def at_solution(
    equations: ContactEquations,
    problem: ContactProblem,
    lam: Impulses,
    rows: int,
    solves: Bool[Array, ""],
) -> Applied:
    """Return the scaled solution `lam` with its effects, as a function of the equations. The
    derivative follows from the zeros of the natural map F,

        dlam = -H^+ dF,    F(lam) = 0,    H = dF/dlam,

    taken on the active set. It is the derivative of the solution wherever no contact is about to
    change its state. Where one is, it is the derivative on one of the sides. For redundant contacts
    it is the derivative of the impulses of least norm. Where `lam` does not solve the problem, dlam
    is 0: the step has failed, and its derivatives must stay finite though H^+ may not be. So it is
    where there is no room for the factors of H, which only the derivatives need to know."""
    del solves
    impulses = lam * problem.scale[:, None]
    return Applied(impulses, *equations.change(impulses, rows), jnp.array(True))


@at_solution.def_jvp
def _at_solution_jvp(primals, tangents):
    equations, problem, lam, rows, solves = primals
    d_equations = tangents[0]
    out = at_solution(equations, problem, lam, rows, solves)
    if not jax.tree.leaves(d_equations) or lam.size == 0:
        none = jax.tree.map(jnp.zeros_like, out)
        return out, none._replace(differentiable=None)
    scale = problem.scale[:, None]
    impulses, change, *_ = out
    solution = impulses / scale  # equals `lam`, but with its derivatives, for second derivatives
    # The derivatives of the system enter here: the effects of fixed impulses change with it.
    d_change, d_multipliers = _tangents(
        lambda equations: equations.change(impulses, rows), (equations,), (d_equations,)
    )
    dF = _tangents(
        lambda equations, change: equations.natural(solution, change, problem),
        (equations, change),
        (d_equations, d_change),
    )
    fixed = jax.lax.stop_gradient(lam)
    inverse = GroupInverse(
        problem.S, *natural_derivative(problem, fixed, problem.velocities(fixed))
    )

    exists = stop_gradient(inverse.exists)
    solves = solves & exists

    def along(x):
        natural = lambda lam, change: equations.natural(lam, change, problem)  # noqa: E731
        moved = equations.change(x * scale, rows)[0]
        return jax.jvp(natural, (solution, change), (x, moved))[1]

    dlam = scale * jax.lax.custom_linear_solve(
        along,
        -dF,
        lambda _, r: jnp.where(solves, inverse.solve(r), 0.0),
        lambda _, r: jnp.where(solves, inverse.solve_transposed(r), 0.0),
    )
    moved, multipliers = equations.change(dlam, rows)
    found = Applied(dlam, d_change + moved, d_multipliers + multipliers, None)
    return out._replace(differentiable=exists), found


def _tangents(fn: Callable, primals: tuple, tangents: tuple) -> Any:
    """Return the tangents of the values of `fn`, zeros for values that do not depend on
    `primals`."""
    values, found = eqx.filter_jvp(fn, primals, tangents)
    return jax.tree.map(lambda x, dx: jnp.zeros_like(x) if dx is None else dx, values, found)
