"""Optimal control problems with known solutions, for the tests of `mbd.trajopt`."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.optimize
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import trajopt as T
from jaxmbd._compiler import to_jax
from jaxmbd._results import code

HERMITE, TRAPEZOIDAL, SHOOTING = T.HermiteSimpson(), T.Trapezoidal(), T.DirectMultipleShooting()

M = np.array([[2.0, 0.3], [0.3, 1.0]])
K = np.array([[5.0, -2.0], [-2.0, 3.0]])
D = np.array([[0.4, -0.1], [-0.1, 0.2]])
START = np.array([0.7, -0.4, 0.2, 0.5])
DT = 0.1


class Masses(mbd.AbstractSystem):
    """M v' = -K q - D v + u: linear, nothing constrained."""

    stiffness: Array = eqx.field(converter=to_jax, default=1.0)

    def mass_matrix(self, q):
        return jnp.asarray(M)

    def force(self, t, q, v, u):
        return -self.stiffness * (K @ q) - D @ v + u


class QuadraticRunning(eqx.Module):
    """x^T Q x + u^T R u."""

    Q: Array = eqx.field(converter=to_jax)
    R: Array = eqx.field(converter=to_jax)

    def __call__(self, t, q, v, u):
        x = jnp.concatenate([q, v])
        return x @ self.Q @ x + u @ self.R @ u


class QuadraticFinal(eqx.Module):
    """x^T Q x."""

    Q: Array = eqx.field(converter=to_jax)

    def __call__(self, t, q, v):
        x = jnp.concatenate([q, v])
        return x @ self.Q @ x


class Effort(eqx.Module):
    """weight |u|^2."""

    weight: Array = eqx.field(converter=to_jax, default=1.0)

    def __call__(self, t, q, v, u):
        return self.weight * jnp.sum(u**2)


class Reach(eqx.Module):
    """(q, v) = (goal, speed)."""

    goal: Array = eqx.field(converter=to_jax)
    speed: Array = eqx.field(converter=to_jax, default=0.0)

    def __call__(self, t, q, v):
        return jnp.concatenate([q - self.goal, v - self.speed])


class Cart(mbd.AbstractSystem):
    """q'' = u / mass."""

    mass: Array = eqx.field(converter=to_jax, default=1.0)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1)

    def force(self, t, q, v, u):
        return u


REST = mbd.State(0.0, np.zeros(1), np.zeros(1))


def runge_kutta(h: float = DT, stiffness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """x(k+1) = A x(k) + B u(k), exactly what RK4 makes of `Masses`, x' = a x + b u, with u held."""
    inverse, one = np.linalg.inv(M), np.eye(4)
    a = np.block([[np.zeros((2, 2)), np.eye(2)], [-inverse @ (stiffness * K), -inverse @ D]])
    b = np.concatenate([np.zeros((2, 2)), inverse])
    A = one + h * a @ (one + h / 2 * a @ (one + h / 3 * a @ (one + h / 4 * a)))
    return A, h * (one + h / 2 * a @ (one + h / 3 * a @ (one + h / 4 * a))) @ b


Q, R = np.diag([3.0, 1.0, 0.5, 0.2]), np.array([[0.1, 0.02], [0.02, 0.2]])


def riccati() -> tuple[np.ndarray, np.ndarray]:
    """P of the endless horizon of `masses` and its gain, for costs dt (x^T Q x + u^T R u)."""
    A, B = runge_kutta()
    P = scipy.linalg.solve_discrete_are(A, B, DT * Q, DT * R)
    return P, np.linalg.solve(DT * R + B.T @ P @ B, B.T @ P @ A)


def condensed(steps: int, final: Any = None) -> tuple[np.ndarray, ...]:
    """Rows r(U) = a U + b with |r|^2 = cost of `masses`, U all controls one after the other."""
    A, B = runge_kutta()
    q, r = np.linalg.cholesky(DT * Q).T, np.linalg.cholesky(DT * R).T
    x, x_of_u = START, np.zeros((4, 2 * steps))
    rows, right = [], []
    for k in range(steps):
        u_of_u = np.eye(2, 2 * steps, 2 * k)
        rows += [q @ x_of_u, r @ u_of_u]
        right += [q @ x, np.zeros(2)]
        x, x_of_u = A @ x, A @ x_of_u + B @ u_of_u
    if final is not None:
        end = np.linalg.cholesky(final).T
        rows, right = [*rows, end @ x_of_u], [*right, end @ x]
    return np.concatenate(rows), np.concatenate(right)


def masses(steps: int = 12, dt: float = DT, final: Any = None, end: Any = None, **options) -> Any:
    """The regulator of `Masses`, with the cost x^T final x at the end, and the condition `end`."""
    return T.Problem(
        Masses(options.pop("stiffness", 1.0)),
        mbd.State(0.0, START[:2], START[2:]),
        steps * dt,
        steps,
        nu=2,
        running_cost=QuadraticRunning(Q, R),
        final_cost=None if final is None else QuadraticFinal(final),
        final=end,
        **options,
    )


def cart(
    steps: int, duration: float = 1.0, distance: float = 1.0, mass: float = 1.0, **options
) -> Any:
    """Move a cart by a distance, from rest to rest, with least effort."""
    options = {"running_cost": Effort(), "final": Reach(np.array([distance])), **options}
    return T.Problem(Cart(mass), REST, duration, steps, nu=1, **options)


def solve(problem, method=HERMITE, guess=None, **options):
    return T.transcription(problem, guess, method, progress=False, **options)


def ended(plan, name):
    """Whether the plan has the result of this name."""
    return int(code(plan.result)) == int(code(getattr(mbd.RESULTS, name)))


def converged(plan):
    return ended(plan, "successful")


def least_norm(dt: float, rows: np.ndarray, goal: Any) -> tuple[np.ndarray, float]:
    """The controls of least sum dt u^2 with rows u = goal, and that sum."""
    u = np.linalg.lstsq(rows, goal, rcond=None)[0]
    return u, float(dt * u @ u)


def moved_by(steps: int, dt: float, semi_implicit: bool) -> np.ndarray:
    """Rows (place, rate) at the end of x'' = u by controls held through each step."""
    left = dt * np.arange(steps, 0, -1)
    return np.stack([dt * (left if semi_implicit else left - dt / 2), np.full(steps, dt)])


def least_effort_between(steps: int, speed: float, least: float = -np.inf) -> Any:
    """The controls of least sum dt u^2 of `cart(steps)` with v <= speed and u >= least, by SLSQP,
    as `x`, and that sum as `fun`."""
    dt, rows = 1 / steps, moved_by(steps, 1 / steps, False)
    speeds = dt * np.tril(np.ones((steps, steps)))
    return scipy.optimize.minimize(
        lambda u: dt * u @ u,
        np.zeros(steps),
        jac=lambda u: 2 * dt * u,
        method="SLSQP",
        bounds=[(least, np.inf)] * steps,
        constraints=[
            dict(type="eq", fun=lambda u: rows @ u - [1, 0]),
            dict(type="ineq", fun=lambda u: speed - speeds @ u),
        ],
        options=dict(ftol=1e-14, maxiter=300),
    )


class Circle(mbd.AbstractSystem):
    """1 kg on a circle of radius 1 that is stated twice, under gravity, pushed along it."""

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        tangent = jnp.stack([q[1], -q[0]]) / (q @ q)
        return jnp.array([0.0, -9.81]) + u[0] * tangent

    def constraint(self, q, t):
        return jnp.full(2, (q @ q - 1.0) / 2)


def on_circle(angle: float, rate: float) -> mbd.State:
    """By the angle from the top, clockwise."""
    q = np.array([np.sin(angle), np.cos(angle)])
    return mbd.State(0.0, q, rate * np.array([q[1], -q[0]]))


class Below(eqx.Module):
    """q, or v, <= limit."""

    limit: Array = eqx.field(converter=to_jax)
    of_rate: bool = eqx.field(static=True, default=False)

    def __call__(self, t, q, v, u):
        return (v if self.of_rate else q) - self.limit


class Block(mbd.AbstractSystem):
    """A block of 1 kg on the ground, pushed sideways against dry friction of 2 N."""

    @property
    def contact_law(self):
        return mbd.ContactLaw(friction=0.2)

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.stack([u[0], -10 * jnp.ones_like(u[0])])

    def gap(self, q, t):
        return q[1:]

    def slip(self, q, v, t):
        return v[None, :1]


class Passing(eqx.Module):
    """There with some speed, so that it never sticks."""

    def __call__(self, t, q, v):
        return jnp.stack([q[0] - 0.5, v[0] - 0.3])


def pushed(steps: int, smoothing: float) -> Any:
    """The block over 0.5 m in a second with the least effort."""
    return T.Problem(
        Block(),
        mbd.State(0.0, np.zeros(2), np.zeros(2)),
        duration=1.0,
        steps=steps,
        nu=1,
        running_cost=Effort(),
        final=Passing(),
        enforcement=mbd.ContactImpulse(smoothing=smoothing),
    )


def least_push(steps: int) -> tuple[np.ndarray, float]:
    """Its controls and their cost, while it slides all the time and without smoothing."""
    rows = moved_by(steps, 1 / steps, True)
    return least_norm(1 / steps, rows, np.array([0.5, 0.3]) + rows @ np.full(steps, 2.0))
