"""Derivatives of the motion for few and for many variables, and the states near a point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trajopt_problems import Circle, on_circle

from jaxmbd import trajopt
from jaxmbd._search import Multipliers
from jaxmbd._tangent_space import difference, violations
from jaxmbd.trajopt.linear_quadratic import (
    FirstOrder,
    SecondOrder,
    chart,
    gradient_and_hessian,
    model,
    tangent,
)
from jaxmbd.trajopt.motion import Trajectory, advance, cost


@pytest.mark.parametrize("n", [2, 9])
def test_gradient_and_hessian(n):
    """Of (a . z)^3 and of its steps (a . z)^3 b."""
    a, z = np.arange(1.0, n + 1), np.linspace(0.1, 0.4, n)
    b, adjoint = np.array([2.0, -1.0]), np.array([0.5, 3.0])

    def cube(z):
        return (a @ z) ** 3

    @jax.jit
    def found(z):
        step = lambda z: cube(z) * b  # noqa: E731
        of_cube = gradient_and_hessian(lambda z: (cube(z), z), z)
        return of_cube, [e.expand(step, z, adjoint) for e in (FirstOrder(), SecondOrder())]

    (g, H, same, one), motions = found(z)
    x, outer = float(a @ z), np.outer(a, a)
    np.testing.assert_allclose(g, 3 * x**2 * a, rtol=1e-14)
    np.testing.assert_allclose(H, 6 * x * outer, rtol=1e-14)
    np.testing.assert_array_equal(same, z)
    np.testing.assert_array_equal(one, np.eye(n))
    for (ahead, slope, curvature), weight in zip(motions, (0.0, float(b @ adjoint)), strict=True):
        np.testing.assert_allclose(ahead, x**3 * b, rtol=1e-14)
        np.testing.assert_allclose(slope, 3 * x**2 * np.outer(b, a), rtol=1e-14)
        np.testing.assert_allclose(curvature, 6 * x * outer * weight, rtol=1e-14)


def test_chart():
    """Of motions whose first derivatives are Z: the constraints hold, and xi is the displacement
    along Z, both up to second order."""
    around = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-2.0, 3.0]])
    system, start = Circle(), on_circle(0.4, 0.7)
    problem = trajopt.Problem(system, start, 1.0, 1, nu=1)

    @jax.jit
    def found(t, q, v):
        here = tangent(problem, t, q, v, 2)
        states = chart(problem, here, t, q, v)

        def both(xi):
            moved = states(xi)
            along = here.Z.T @ difference(system, (q, v), moved)
            return along, violations(system, t, *moved)

        return jax.vmap(both)(1e-3 * around)

    along, off = found(np.zeros(()), start.q, start.v)
    np.testing.assert_array_equal(np.asarray(along)[0], np.zeros(2))
    # Terms of second order would be 1e-6.
    np.testing.assert_allclose(along, 1e-3 * around, rtol=0, atol=1e-8)
    np.testing.assert_allclose(off, np.zeros((4, 4)), rtol=0, atol=1e-8)


STEP = 2e-3
SHIFTS = np.concatenate([k * STEP * np.eye(3) for k in (2, 1, -1, -2)] + [np.zeros((1, 3))])


def test_model_has_the_derivatives_of_the_cost():
    """By the controls, first and second: those of the cost of the motion itself, the second ones by
    differences."""
    start = on_circle(np.arctan2(0.6, 0.8), 1.0)
    problem = trajopt.Problem(
        Circle(),
        start,
        0.6,
        3,
        nu=1,
        running_cost=lambda t, q, v, u: q[0] * v[1] + q[1] ** 2 + u[0] ** 2 * (1 + q[0]),
        final_cost=lambda t, q, v: 3 * q[0] * q[1] + v @ v,
        substeps=32,  # what drifts off the circle is not in the model
    )

    def motion(u):
        def forth(state, given):
            q, v, _ = advance(problem, given[0], *state, trajopt.Held(given[1]))
            return (q, v), (q, v)

        _, (q, v) = jax.lax.scan(forth, (start.q, start.v), (problem.times[:-1], u))
        q, v = jnp.concatenate([start.q[None], q]), jnp.concatenate([start.v[None], v])
        return Trajectory(q, v, u, jnp.array(True))

    def predicted(local):
        """The slope and the Hessian by all controls. Deviations are xi = X du."""
        slope, hessian, X = np.zeros(3), np.zeros((3, 3)), np.zeros((2, 3))
        for k, U in enumerate([*np.eye(3)[:, None], np.eye(3)[2:]]):  # the end has the last control
            z = np.concatenate([X, U])
            part = local.end if k == 3 else jax.tree.map(lambda x, k=k: x[k], local.stages)
            slope += np.concatenate([part.x, part.u]) @ z
            second = np.block([[part.xx, part.ux.T], [part.ux, part.uu]])
            if k < 3:
                second = second + local.curvature[k]
                X = local.A[k] @ X + local.B[k] @ U
            hessian += z.T @ second @ z
        return slope, hessian

    @jax.jit
    def found(u):
        path = motion(u)
        none = Multipliers.zeros(jnp.zeros(0), jnp.zeros((4, 0)), jnp.ones(()))
        local = model(problem, none, path, 2, SecondOrder(), jnp.array(False))
        slopes = jax.vmap(jax.grad(lambda u: cost(problem, motion(u[:, None]))))(u.T + SHIFTS)
        return local, slopes

    local, slopes = jax.tree.map(np.asarray, found(np.array([[4.0], [-3.0], [2.0]])))
    slope, hessian = predicted(local)
    middle, (a, b, c, d) = np.asarray(slopes)[12], np.asarray(slopes)[:12].reshape(4, 3, 3)
    expected = (8 * (b - c) - (a - d)) / (12 * STEP)
    np.testing.assert_allclose(slope, middle, rtol=0, atol=1e-8 * np.max(np.abs(middle)))
    np.testing.assert_allclose(hessian, expected, rtol=0, atol=1e-8 * np.max(np.abs(expected)))
