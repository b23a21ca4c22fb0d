"""The linear-quadratic problem about a motion, and the best change of the controls."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._compiler import is_known
from .._equations import equations
from .._extensible import Extensible
from .._search import (
    Multipliers,
    bounded_least_squares,
    nonzero,
    normal_inverse,
    redundancy,
    with_value,
)
from .._tangent_space import admissible_count, difference, displaced, state_jacobian, violations
from .._types import Coordinates, RealScalarLike, Velocity
from .controls import Held
from .motion import Trajectory, advance, final_conditions, final_cost, path_conditions, running_cost
from .problem import Problem

# The order to which `ilqr` expands the motion.


# Second derivatives in forward mode twice compile in half the time. With more variables than these,
# reverse mode takes less time to run.
_FEW = 6


class AbstractExpansion(Extensible):
    """The curvature of the motion that the quadratic problem includes."""

    @abc.abstractmethod
    def expand(
        self, step: Callable, z: Float[Array, " n"], adjoint: Float[Array, " m"]
    ) -> tuple[Float[Array, " m"], Float[Array, "m n"], Float[Array, "n n"]]:
        """step(z) with its first derivative, and the second derivative of adjoint . step(z) or an
        approximation of it, in z = (xi, u)."""


class SecondOrder(AbstractExpansion):
    """Second derivatives of the motion, weighted by the adjoint (the gradient of the cost with
    respect to the state). This is Newton's method on the whole problem, which converges
    quadratically. If the quadratic problem then has no minimum, the iteration omits them."""

    def expand(self, step, z, adjoint):
        def weighted(z):
            ahead = step(z)
            return adjoint @ ahead, ahead

        _, H, ahead, along = gradient_and_hessian(weighted, z)
        return ahead, along, H


class FirstOrder(AbstractExpansion):
    """Only first derivatives of the motion. Each iteration is cheaper by a factor of two or three,
    and convergence is linear. Use it for motions without second derivatives, like those with
    contact."""

    def expand(self, step, z, adjoint):
        del adjoint
        along, ahead = jax.jacfwd(with_value(step), has_aux=True)(z)
        return ahead, along, jnp.zeros((z.shape[0], z.shape[0]), z.dtype)


def gradient_and_hessian(
    fn: Callable, z: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, "n n"], PyTree, PyTree]:
    """`first_and_second` of a scalar."""
    return first_and_second(fn, z, jax.jacfwd if z.shape[0] <= _FEW else jax.grad)


def first_and_second(
    fn: Callable, z: Float[Array, " n"], derivative: Callable = jax.jacfwd
) -> tuple[PyTree, PyTree, PyTree, PyTree]:
    """The first and second derivatives of what fn returns first, and its second output with the
    first derivatives. `derivative`: the mode of the first one."""
    (second, along), (first, rest) = jax.jacfwd(
        with_value(derivative(fn, has_aux=True)), has_aux=True
    )(z)
    return first, second, rest, along


# Bases of the displacements that the constraints of a problem admit.


class Tangent(NamedTuple):
    """The displacements dx of a state that do not violate (Phi, Phi', Psi), to first order.

    - `Z`: an orthonormal basis of the admissible dx, `(nx, m)`. Surplus columns are zero.
    - `back`: the matrix from a violation of the rows to the smallest dx for it, `(nx, rows)`.
    """

    Z: Float[Array, "*batch nx m"]
    back: Float[Array, "*batch nx rows"]


def is_constrained(problem: Problem) -> bool:
    """Whether the motion has constraints that hold exactly."""
    # With a compliant method all directions are admissible.
    state = problem.state
    return bool(problem.enforcement.rigid) and equations(problem.system).row_count(*_at(state)) > 0


def _at(state):
    return state.t, state.q, state.v


def tangent_size(problem: Problem) -> int:
    """The number of admissible directions at the start; all directions if the start is traced."""
    nx = 2 * problem.state.v.shape[0]
    if not is_constrained(problem) or not is_known((problem.system, problem.state)):
        return nx
    return admissible_count(problem.system, *_at(problem.state))


def tangent(problem: Problem, t: RealScalarLike, q: Coordinates, v: Velocity, size: int) -> Tangent:
    """The `size` directions that change the rows least. Those that do change them are zero."""
    nx = 2 * v.shape[0]
    if not is_constrained(problem):
        return Tangent(jnp.eye(nx, dtype=v.dtype), jnp.zeros((nx, 0), v.dtype))
    C = state_jacobian(problem.system, t, q, v)
    U, s, Vh = jnp.linalg.svd(C, full_matrices=True)
    independent = nonzero(s, redundancy(s.dtype))
    rank = jnp.sum(independent)
    admissible = jnp.arange(nx - size, nx) >= rank
    Z = jnp.where(admissible[None, :], Vh[nx - size :].T, 0.0)
    inverse = jnp.where(independent, 1 / jnp.where(independent, s, 1.0), 0.0)
    k = s.shape[0]
    return Tangent(Z, (Vh[:k].T * inverse[None, :]) @ U[:, :k].T)


class Chart(NamedTuple):
    """The states (q, v) near a point of the grid as polynomials in xi: their values at xi = 0, and
    their first and second derivatives."""

    value: tuple[Array, Array]
    slope: tuple[Array, Array]
    bend: tuple[Array, Array]

    def __call__(self, xi: Float[Array, " m"]) -> tuple[Coordinates, Velocity]:
        return jax.tree.map(lambda x, slope, bend: x + (slope + bend @ xi / 2) @ xi, *self)


def chart(
    problem: Problem, tangent: Tangent, t: RealScalarLike, q: Coordinates, v: Velocity
) -> Chart:
    """The states after the displacement Z xi and a correction back onto the constraints, exact up
    to second order in xi. It takes one pass through the equations, however many functions of xi
    follow."""
    system, zero = problem.system, jnp.zeros(tangent.Z.shape[1], v.dtype)
    moved = Chart(*_expanded(lambda xi: displaced(system, q, v, tangent.Z @ xi), zero))
    if tangent.back.shape[1] == 0:
        return moved
    _, _, bent = _expanded(lambda xi: violations(system, t, *moved(xi)), zero)
    # The correction is of second order, so that it adds to the state along q' = N dp.
    dp, dv = jnp.split(jnp.tensordot(tangent.back, bent, 1), 2)
    dq = jax.vmap(jax.vmap(lambda dp: system.qdot(q, dp), 1, 1), 2, 2)(dp)
    q_bend, v_bend = moved.bend
    return moved._replace(bend=(q_bend - dq, v_bend - dv))


def _expanded(fn, x):
    """fn(x) and its first and second derivatives."""
    slope, bend, value, _ = first_and_second(with_value(fn), x)
    return value, slope, bend


# The linear-quadratic problem about a motion: derivatives of its steps and costs, and the best
# change of the controls.


class Quadratic(NamedTuple):
    """The gradient and Hessian of a value with respect to the admissible displacement xi and u."""

    x: Float[Array, "*batch m"]
    u: Float[Array, "*batch nu"]
    xx: Float[Array, "*batch m m"]
    ux: Float[Array, "*batch nu m"]
    uu: Float[Array, "*batch nu nu"]


class Model(NamedTuple):
    """The model xi(k+1) = A xi(k) + B du(k) + gap(k), and the cost to second order. `end` is the
    cost at the end, as a function of the last control too. `curvature` is that of the motion in
    (xi, u), weighted by the adjoint. A gap is the displacement from the next point of the grid to
    the end of the motion from this one. It is zero if the points are one motion."""

    A: Float[Array, "n m m"]
    B: Float[Array, "n m nu"]
    gaps: Float[Array, "n m"]
    curvature: Float[Array, "n z z"]
    stages: Quadratic
    end: Quadratic
    basis: Float[Array, "points nx m"]


class _Knot(NamedTuple):
    """A point of the grid: its time, control, states nearby and multipliers of inequalities, the
    next state and its basis."""

    t: Array
    u: Array
    chart: Chart
    mu: Array
    next: tuple[Array, Array]
    Z: Array


class Change(NamedTuple):
    """The change du = scale open + gains xi. The expected change of the cost without gaps is
    scale * linear + scale^2 * quadratic. `convex`: whether the problem had a minimum. `price`: the
    largest derivative of the cost by a state, which bounds the cost of closing a gap of size 1."""

    open: Float[Array, "n nu"]
    gains: Float[Array, "n nu m"]
    linear: Float[Array, ""]
    quadratic: Float[Array, ""]
    convex: Bool[Array, ""]
    price: Float[Array, ""]


def _quadratic(fn, m: int, u: Array) -> Quadratic:
    """The derivatives of fn(xi, u) at xi = 0."""
    z = jnp.concatenate([jnp.zeros(m, u.dtype), u])

    def joined(z):
        return fn(z[:m], z[m:]), ()

    g, H, *_ = gradient_and_hessian(joined, z)
    H = (H + H.T) / 2
    return Quadratic(g[:m], g[m:], H[:m, :m], H[m:, :m], H[m:, m:])


def model(
    problem: Problem,
    multipliers: Multipliers,
    path: Trajectory,
    size: int,
    expansion: AbstractExpansion,
    split: Bool[Array, ""],
) -> Model:
    """The linear-quadratic problem about `path`, in `size` admissible directions at each point of
    the grid. `split`: whether the points of `path` are not one motion."""
    t = problem.times
    tangents = jax.vmap(lambda t, q, v: tangent(problem, t, q, v, size))(t, path.q, path.v)

    zero = jnp.zeros(size + problem.nu, path.u.dtype)
    # A loop compiles faster than a batch.
    charts = jax.lax.map(lambda x: chart(problem, *x), (tangents, t, path.q, path.v))
    here, last = jax.tree.map(lambda x: x[:-1], charts), jax.tree.map(lambda x: x[-1], charts)

    def stage(knot: _Knot):
        def fn(xi, u):
            q, v = knot.chart(xi)
            d = path_conditions(problem, knot.t, q, v, u)
            paid = running_cost(problem, knot.t, q, v, u)
            return paid + multipliers.of_inequalities(knot.mu, d)

        return _quadratic(fn, size, knot.u)

    mu = multipliers.inequality

    def end(xi, u):
        q, v = last(xi)
        c = final_conditions(problem, t[-1], q, v)
        d = path_conditions(problem, t[-1], q, v, u)
        terms = multipliers.of_equations(c) + multipliers.of_inequalities(mu[-1], d)
        return final_cost(problem, t[-1], q, v) + terms

    def back(adjoint, knot: _Knot):
        def step(z):
            q, v = knot.chart(z[:size])
            q, v, _ = advance(problem, knot.t, q, v, Held(knot.u + z[size:]))
            return knot.Z.T @ difference(problem.system, knot.next, (q, v))

        gap, AB, bend = expansion.expand(step, zero, adjoint)
        A, B = AB[:, :size], AB[:, size:]
        cost = stage(knot)
        # The gaps of one motion are rounding errors.
        return cost.x + A.T @ adjoint, (A, B, jnp.where(split, gap, 0.0), bend, cost)

    ahead = path.q[1:], path.v[1:]
    knots = _Knot(t[:-1], path.u, here, mu[:-1], ahead, tangents.Z[1:])
    final = _quadratic(end, size, path.u[-1])
    _, (A, B, gaps, bend, stages) = jax.lax.scan(back, final.x, knots, reverse=True)
    return Model(A, B, gaps, bend, stages, final, tangents.Z)


def best_change(
    model: Model, room: tuple[Array, Array], u: Array, regularisation: Array, bent: Array
) -> Change:
    """Solve the linear-quadratic problem with bounds of u by dynamic programming from the end.
    `room`: the least and the largest change of u, `(n, nu)` each. `regularisation` |du|^2 / 2 is
    added in each interval. The curvature of the motion is included if `bent` is 1, and left out if
    it is 0.

    Reference: Tassa, Mansard and Todorov (2014), Control-limited differential dynamic programming,
    ICRA, equations (5), (11) and section III.
    """
    nu = u.shape[1]

    def backward(carry, knot):
        V, du, linear, quadratic, convex, price = carry
        A, B, gap, curvature, stage, down, up = knot
        curvature, m = bent * curvature, A.shape[0]
        V = V._replace(x=V.x + V.xx @ gap, u=V.u + V.ux @ gap)
        price = jnp.maximum(price, jnp.max(jnp.abs(V.x), initial=0.0))
        # At the end, V may depend on the last control in addition to the state.
        Q = Quadratic(
            stage.x + A.T @ V.x,
            stage.u + B.T @ V.x + V.u,
            stage.xx + A.T @ V.xx @ A + curvature[:m, :m],
            stage.ux + (B.T @ V.xx + V.ux) @ A + curvature[m:, :m],
            stage.uu + B.T @ V.xx @ B + V.ux @ B + (V.ux @ B).T + V.uu + curvature[m:, m:],
        )
        one = jnp.eye(nu, dtype=u.dtype)
        # With R^T R = H, minimise |R k - b|^2 within the bounds.
        R = jnp.linalg.cholesky(Q.uu + regularisation * one, upper=True)
        positive = jnp.all(jnp.isfinite(R))
        R = jnp.where(positive, R, one)
        b = -jax.scipy.linalg.solve_triangular(R, Q.u, trans=1)
        k, free, _ = bounded_least_squares(R, b, down, up, du)
        K = -normal_inverse(R, free) @ Q.ux
        cross = K.T @ Q.ux
        xx = Q.xx + K.T @ Q.uu @ K + cross + cross.T
        V = Quadratic(
            Q.x + K.T @ Q.uu @ k + K.T @ Q.u + Q.ux.T @ k,
            jnp.zeros_like(Q.u),
            (xx + xx.T) / 2,
            jnp.zeros_like(Q.ux),
            jnp.zeros_like(Q.uu),
        )
        linear = linear + k @ Q.u
        quadratic = quadratic + k @ Q.uu @ k / 2
        return (V, k, linear, quadratic, convex & positive, price), (k, K)

    zero = jnp.zeros((), u.dtype)
    first = (model.end, jnp.zeros_like(u[0]), zero, zero, jnp.array(True), zero)
    knots = (model.A, model.B, model.gaps, model.curvature, model.stages, *room)
    (_, _, linear, quadratic, convex, price), (k, K) = jax.lax.scan(
        backward, first, knots, reverse=True
    )
    return Change(k, K, linear, quadratic, convex, price)
