"""Derivatives of simulations against those of motions in closed form."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import both_modes, complex_step

import jaxmbd as mbd


@pytest.mark.parametrize(
    "name", ["udwadia_kalaba", pytest.param("multipliers", marks=pytest.mark.slow)]
)
def test_guided_oscillator(name):
    """Spring, damper and gravity along an inclined guide, by m, k, c, angle, g, r0 and w0: 1e-8.
    The error of the scheme is 1e-10."""
    x, t = np.array([1.3, 5.0, 0.4, 0.6, 9.81, 0.7, -0.4]), 0.8

    def simulated(x):
        system = h.GuidedMass(*x[:5])
        along = jnp.stack([jnp.cos(x[3]), jnp.sin(x[3])])
        state = mbd.State(0.0, x[5] * along, x[6] * along)
        return h.method(name).simulate(system, state, t1=t, dt=4e-3).q[-1, 0]

    def exact(x):
        m, k, c, angle, g, r0, w0 = x
        rest = -m * g * np.sin(angle) / k
        return np.cos(angle) * (rest + h.oscillation(m, k, c, r0 - rest, w0, t)[0])

    expected = complex_step(exact, x)
    assert np.min(np.abs(expected)) > 1e-2
    for gradient in both_modes(simulated, x):
        np.testing.assert_allclose(gradient, expected, rtol=1e-8)


def test_free_oscillator():
    """Without constraints, velocity at the end; also at zero damping."""
    t = 0.8

    def simulated(x):
        state = mbd.State(0.0, x[3:4], x[4:])
        sol = mbd.simulate(h.Oscillator(*x[:3]), mbd.UdwadiaKalaba(), state, t1=t, dt=2e-3)
        return sol.v[-1, 0]

    for damping in (0.4, 0.0):
        x = np.array([1.3, 5.0, damping, 0.7, -0.4])
        expected = complex_step(lambda x: h.oscillation(*x, t)[1], x)
        for gradient in both_modes(simulated, x):
            np.testing.assert_allclose(gradient, expected, rtol=1e-8)


@pytest.mark.parametrize(
    "name", ["udwadia_kalaba", pytest.param("projected", marks=pytest.mark.slow)]
)
def test_small_angle_pendulum(name):
    """x = l theta0 cos(sqrt(g/l) t) by l, g and theta0; the amplitude of 1e-5 rad leaves 1e-10."""
    amplitude, t = 1e-5, 0.7

    def simulated(x):
        length, gravity, angle = x
        q = length * jnp.stack([jnp.sin(amplitude * angle), -jnp.cos(amplitude * angle)])
        system = h.Pendulum(length=length, gravity=gravity)
        state = mbd.State(0.0, q, jnp.zeros(2))
        return h.method(name).simulate(system, state, t1=t, dt=4e-3).q[-1, 0] / amplitude

    def exact(x):
        length, gravity, angle = x
        return length * angle * np.cos(np.sqrt(gravity / length) * t)

    x = np.array([0.9, 9.81, 1.1])
    for gradient in both_modes(simulated, x):
        np.testing.assert_allclose(gradient, complex_step(exact, x), rtol=1e-8)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_adaptive_steps(mode):
    """Against the closed form, at the tolerance of the controller."""
    x, t = np.array([1.3, 5.0, 0.4, 0.7, -0.4]), 0.5
    adjoint, jacobian = {
        "reverse": (diffrax.RecursiveCheckpointAdjoint(), jax.jacrev),
        "forward": (diffrax.ForwardMode(), jax.jacfwd),
    }[mode]

    def simulated(x):
        along = jnp.array([0.8, 0.6])
        system = h.GuidedMass(x[0], x[1], x[2], angle=jnp.arctan2(0.6, 0.8), gravity=0.0)
        sol = mbd.simulate(
            system,
            mbd.UdwadiaKalaba(),
            mbd.State(0.0, x[3] * along, x[4] * along),
            t1=t,
            dt=0.01,
            scheme=diffrax.Tsit5(),
            stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-9),
            adjoint=adjoint,
            max_steps=256,
        )
        return sol.q[-1, 0]

    expected = complex_step(lambda x: 0.8 * h.oscillation(*x, t)[0], x)
    gradient = jax.jit(jacobian(simulated))(jnp.asarray(x))
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
