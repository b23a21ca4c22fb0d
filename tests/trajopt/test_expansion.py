"""Derivatives of the motion for few and for many variables, and the states near a point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import trajopt
from jaxmbd._tangent_space import difference, violations
from jaxmbd.trajopt.expansion import FirstOrder, SecondOrder, gradient_and_hessian
from jaxmbd.trajopt.tangent import chart, tangent


@pytest.mark.parametrize("n", [2, 9])
def test_gradient_and_hessian(n):
    """Of (a . z)^3 and of its steps (a . z)^3 b."""
    a, z = jnp.arange(1.0, n + 1), jnp.linspace(0.1, 0.4, n)
    b, adjoint = jnp.array([2.0, -1.0]), jnp.array([0.5, 3.0])

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
    """Of a body on a hinge away from its origin and its centre of mass, whose first derivatives are
    Z: the constraints hold, and xi is the displacement along Z, both up to second order."""
    inertia = mbd.Inertia(2.0, [0.1, 0.2, 0.25], center=[0.1, -0.2, 0.05])
    body = mbd.Body("body", inertia, position=[0.3, 0.1, -0.2])
    hinge = mbd.Revolute("hinge", "ground", body, point=[0.0, 0.2, 0.1], axis=[0.6, 0.0, 0.8])
    system = mbd.Mechanism([body], [hinge])
    start = mbd.assemble(system, system.state().q, 0.7 * jnp.arange(6.0))
    problem = trajopt.Problem(system, start, 1.0, 1, nu=1)

    @jax.jit
    def found(t, q, v):
        here = tangent(problem, t, q, v, 2)
        states = chart(problem, here, t, q, v)

        def both(xi):
            moved = states(xi)
            along = here.Z.T @ difference(system, (q, v), moved)
            return along, violations(system, t, *moved)

        first = jax.jacfwd(both)
        return both(jnp.zeros(2)), first(jnp.zeros(2)), jax.jacfwd(first)(jnp.zeros(2))

    (along, _), (slope, turned), bends = found(start.t, start.q, start.v)
    np.testing.assert_array_equal(along, np.zeros(2))
    np.testing.assert_allclose(slope, np.eye(2), rtol=0, atol=1e-14)
    np.testing.assert_allclose(turned, np.zeros((10, 2)), rtol=0, atol=1e-13)
    for bend in bends:
        np.testing.assert_allclose(bend, np.zeros_like(bend), rtol=0, atol=1e-12)
