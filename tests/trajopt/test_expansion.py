"""Second derivatives of the motion for few and for many variables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.trajopt.expansion import SecondOrder, gradient_and_hessian


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
        return gradient_and_hessian(cube, z), SecondOrder().curvature(step, z, adjoint)

    (g, H), curvature = found(z)
    x, outer = float(a @ z), np.outer(a, a)
    np.testing.assert_allclose(g, 3 * x**2 * a, rtol=1e-14)
    np.testing.assert_allclose(H, 6 * x * outer, rtol=1e-14)
    np.testing.assert_allclose(curvature, 6 * x * outer * float(b @ adjoint), rtol=1e-14)
