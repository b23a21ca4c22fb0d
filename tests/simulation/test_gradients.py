"""Derivatives where they are hard: adaptive steps, twice, at singular poses, with nothing moving,
with soft rows. What all methods have is in test_families.py and enforcement/test_steps.py."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd

UK, EULER = mbd.UdwadiaKalaba(), diffrax.Euler()


def complex_step(fn, x):
    """Exact derivatives of an analytic NumPy function."""
    return np.array([np.imag(fn(x + 1e-30j * e)) / 1e-30 for e in np.eye(len(x))])


@pytest.mark.parametrize("adjoint", [diffrax.RecursiveCheckpointAdjoint(), diffrax.ForwardMode()])
def test_adaptive_steps(adjoint):
    """Of a mass on a spring and a damper on an inclined guide, to the tolerance of the controller;
    each adjoint in its mode."""
    controller = diffrax.PIDController(rtol=1e-8, atol=1e-8)
    options = dict(scheme=diffrax.Bosh3(), stepsize_controller=controller, adjoint=adjoint)

    def end(x):
        along = jnp.stack([jnp.cos(x[3]), jnp.sin(x[3])])
        system, state = h.GuidedMass(*x[:5]), mbd.State(0.0, x[5] * along, x[6] * along)
        sol = mbd.simulate(system, UK, state, t1=0.5, dt=0.01, max_steps=256, **options)
        return sol.q[-1, 0]

    def exact(x):
        m, k, c, angle, g, r0, w0 = x
        rest = -m * g * np.sin(angle) / k
        return np.cos(angle) * (rest + h.oscillation(m, k, c, r0 - rest, w0, 0.5)[0])

    x = np.array([1.3, 5.0, 0.4, 0.6, 9.81, 0.7, -0.4])
    jacobian = jax.jacfwd if isinstance(adjoint, diffrax.ForwardMode) else jax.jacrev
    np.testing.assert_allclose(jax.jit(jacobian(end))(x), complex_step(exact, x), rtol=1e-5)


@pytest.mark.parametrize("method", [UK, mbd.VelocityImpulse()])
def test_checkpoints_change_nothing(method):
    """Recomputed in chunks, stored, and forward: the same derivatives to rounding. One method has
    checkpoints of its own in each step."""

    def end(system, adjoint):
        start = mbd.State(0.0, np.array([0.7]), np.array([-0.4]))
        options = dict(dt=1e-3, num_steps=1031, adjoint=adjoint)
        sol = mbd.simulate(system, method, start, **options)
        return sol.q[-1, 0] + sol.v[-1, 0]

    ways = [
        (jax.grad, diffrax.RecursiveCheckpointAdjoint()),
        (jax.grad, diffrax.DirectAdjoint()),
        (jax.jacfwd, diffrax.ForwardMode()),
    ]

    @jax.jit
    def gradients(system):
        slopes = [jacobian(lambda x, a=a: end(x, a))(system) for jacobian, a in ways]
        return [jnp.stack(jax.tree.leaves(slope)) for slope in slopes]

    checkpointed, stored, forward = gradients(h.Oscillator())
    assert np.all(np.abs(forward) > 0.01)
    np.testing.assert_allclose(stored, checkpointed, rtol=1e-12)
    np.testing.assert_allclose(forward, checkpointed, rtol=1e-11)


# A solver with derivatives of its own is differentiated most deeply twice in reverse mode.
@pytest.mark.parametrize(
    "name, inner",
    [
        ("pendulum", "forward"),
        pytest.param("redundant_pendulum", "reverse", marks=pytest.mark.slow),
    ],
)
def test_second_derivatives(name, inner):
    """Of a directional derivative: both modes, and differences."""
    case = h.CASES[name]

    def bent(tree):
        system, q, v = tree
        options = dict(dt=0.02, num_steps=4, scheme=EULER, start_tolerance=1.0)
        sol = mbd.simulate(system, UK, mbd.State(0.0, q, v), **options)
        return sol.q[-1, 0] + sol.v[-1, 1]

    def slope(tree):
        flat, unravel = ravel_pytree(tree)
        direction = jnp.cos(jnp.arange(flat.size, dtype=flat.dtype))
        if inner == "reverse":
            return jax.grad(lambda x: bent(unravel(x)))(flat) @ direction
        return jax.jvp(lambda x: bent(unravel(x)), (flat,), (direction,))[1]

    h.check_scalar(slope, (case.system, case.state.q, case.state.v))


def test_through_the_singular_pose():
    """Parallel cranks pass the horizontal."""

    def end(x):
        gravity, length, theta, rate = x
        tip = length * jnp.stack([jnp.sin(theta), jnp.cos(theta)])
        speed = length * rate * jnp.stack([jnp.cos(theta), -jnp.sin(theta)])
        pivots = length * jnp.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
        state = mbd.State(0.0, jnp.ravel(tip[None] + pivots), jnp.tile(speed, 3))
        system = h.TwoFourBars(gravity=gravity, length=length)
        return mbd.simulate(system, UK, state, t1=0.1, dt=2e-3).q[-1, 1]

    h.check_scalar(end, np.array([9.81, 1.0, 1.4, 3.0]))


def test_at_rest():
    """A pendulum that hangs still, without damping: derivatives are finite and right."""

    def end(tree):
        system, q, v = tree
        options = dict(dt=0.01, num_steps=10, scheme=EULER, start_tolerance=jnp.inf)
        sol = mbd.simulate(system, UK, mbd.State(0.0, q, v), **options)
        return sol.q[-1] @ np.array([0.5, 0.9]) + sol.v[-1, 0] + 0.1 * sol.multipliers[-1, 0]

    h.check_scalar(end, (h.Pendulum(), np.array([0.0, -0.9]), np.zeros(2)))


@pytest.mark.parametrize("form", [mbd.methods.Dual(), mbd.methods.Primal()])
def test_soft_rows(form):
    """From nothing on, derivatives by K and D are those of the steps (M + h J^T (h K + D) J) v+ =
    M v* - h J^T K Phi. The dual form needs one of both."""
    pendulum, dt = h.Pendulum(), 0.01
    length, mass, weight = 0.9, 1.2, np.array([0.0, -1.2 * 9.81])

    @jax.jit
    def simulated(x):
        def end(x):
            start = mbd.State(0.0, np.array([0.8, -0.6]), np.array([0.5, 0.4]))
            enforcement = mbd.ImplicitPenalty(x[0], x[1], form)
            sol = mbd.simulate(pendulum, enforcement, start, dt=dt, num_steps=5)
            return sol.q[-1, 0] + sol.v[-1, 1]

        return h.both_modes(end, x)[1:]

    def literal(x):
        q, v, (K, D) = np.array([0.8, -0.6]), np.array([0.5, 0.4]), x
        for _ in range(5):
            J, phi = 2 * q, q @ q - length**2
            left = mass * np.eye(2) + dt * (dt * K + D) * np.outer(J, J)
            v = np.linalg.solve(left, mass * v + dt * weight - dt * K * phi * J)
            q = q + dt * v
        return q[0] + v[1]

    nothing = [(0.0, 0.0)] if isinstance(form, mbd.methods.Primal) else []
    for x in [(50.0, 0.0), (0.0, 2.0), *nothing]:
        expected = complex_step(literal, np.array(x))
        assert np.min(np.abs(expected)) > 1e-5
        for gradient in simulated(np.array(x)):
            np.testing.assert_allclose(gradient, expected, rtol=1e-10)
