"""A slider-crank of bodies through its singular pose, against the crank angle by SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slider_crank import SliderCrank, exact_motion
from slider_crank_from_bodies import slider_crank_from_bodies

import jaxmbd as mbd

T1 = 1.25


@pytest.mark.slow
def test_motion_and_derivatives():
    """By the torque and the damping of the crank, past the pose in which the rows lose a rank."""

    def angle(x):
        mechanism = slider_crank_from_bodies(damping=x[1])
        method = mbd.UdwadiaKalaba(solver=mbd.Pseudoinverse())
        options = dict(t1=T1, dt=5e-3, control=lambda t, q, v: x[:1])
        sol = mbd.simulate(mechanism, method, mechanism.state(), **options)
        p = mechanism.pose(sol.q[-1], "crank").orientation
        slider = mechanism.pose(sol.q[-1], "slider").position[0]
        rate = mechanism.twist(sol.v[-1], "rod").angular[2]
        return 2 * jnp.arctan2(p[3], p[0]), (slider, rate, sol.phi_norm[-1])

    def exact(x, t=T1):
        return exact_motion(SliderCrank(torque=x[0], damping=x[1]), T1 + 0.1)(t)

    x, h = np.array([20.0, 5.0]), 1e-3
    found = jax.jit(jax.value_and_grad(angle, has_aux=True))(x)
    (theta, (slider, rate, open_by)), slopes = jax.device_get(found)
    assert theta > np.pi / 2 + 0.1
    np.testing.assert_allclose(theta, exact(x), atol=1e-6)
    np.testing.assert_allclose(slider, 2 * np.cos(exact(x)), atol=1e-6)
    turning = (exact(x, T1 + h) - exact(x, T1 - h)) / (2 * h)
    np.testing.assert_allclose(rate, -turning, atol=1e-4)
    differences = [(exact(x + h * e) - exact(x - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(slopes, differences, atol=5e-6)
    assert open_by < 1e-10
