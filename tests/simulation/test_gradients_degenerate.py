"""Derivatives of simulations in hard places, against closed forms, literal schemes and differences.

Rows lose rank, nothing moves, or rows are infinitely soft or stiff."""

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import both_modes, check, loss_of, options_of
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd

# One of each kind that divides by something made of the rows.
ROBUST = [
    "udwadia_kalaba", "impulse_dead_beat", "dual_penalty", "augmented_lagrangian", "projected",
]  # fmt: skip
SINGULAR = {  # a pose where rows lose rank, and a motion along the branch that must be kept
    "slider_crank": (
        h.EqualSliderCrank(),
        np.array([0.0, 0.0, np.pi / 2, -np.pi / 2]),
        np.array([0.0, 0.0, 1.5, -1.5]),
    ),
    "two_four_bars": (
        h.TwoFourBars(),
        np.array([1.0, 0.0, 2.0, 0.0, 3.0, 0.0]),
        np.array([0.0, -1.0] * 3),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, method",
    [("two_four_bars", m) for m in ROBUST] + [("slider_crank", "impulse_dead_beat")],
)
def test_finite_at_singular_poses(name, method):
    """Started exactly in the pose, at rest or moving: every derivative is a number."""
    system, q, v = SINGULAR[name]
    method = h.method(method)
    tree = (system, method.enforcement, method.projection, None, jnp.asarray(q), v)
    tree, fixed = eqx.partition(h.cast(tree, float), eqx.is_inexact_array)
    loss = loss_of(fixed, **options_of(method, num_steps=5))
    moving, unravel = ravel_pytree(tree)

    # Along a direction that has a part of every number.
    direction = jnp.cos(jnp.arange(moving.size, dtype=float))

    @jax.jit
    def gradients(x):
        of = lambda x: loss(unravel(x))  # noqa: E731
        return jax.jacrev(of)(x), jax.jvp(of, (x,), (direction,))[1]

    at_rest = np.append(moving[: -v.size], np.zeros(v.size))  # the velocities are the last
    for x in (moving, at_rest):
        reverse, forward = gradients(jnp.asarray(x))
        assert np.all(np.isfinite(reverse)) and np.any(reverse != 0)
        largest = np.max(np.abs(reverse))
        np.testing.assert_allclose(reverse @ direction, forward, rtol=1e-9, atol=1e-9 * largest)


@pytest.mark.parametrize("solver", ["automatic", pytest.param("proximal", marks=pytest.mark.slow)])
def test_through_the_singular_pose(solver):
    """Parallel cranks pass the horizontal, where five rows have rank three: all derivatives are
    those of theta'' = 7/6 g/l sin(theta), the angle from the upright."""

    def start(theta, rate, length):
        tip = length * jnp.stack([jnp.sin(theta), jnp.cos(theta)])
        speed = length * rate * jnp.stack([jnp.cos(theta), -jnp.sin(theta)])
        pivots = length * jnp.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
        return jnp.ravel(tip[None] + pivots), jnp.tile(speed, 3)

    def simulated(x):
        gravity, length, theta, rate = x
        system = h.TwoFourBars(gravity=gravity, length=length)
        enforcement = mbd.UdwadiaKalaba(h.SOLVERS[solver])
        state = mbd.State(0.0, *start(theta, rate, length))
        return mbd.simulate(system, enforcement, state, t1=0.1, dt=2e-3).q[-1, 1]

    def exact(x):
        """The same by many small steps in the one coordinate."""
        gravity, length, theta, rate = x
        steps = 2000

        def rates(y):
            return jnp.stack([y[1], 7 / 6 * gravity / length * jnp.sin(y[0])])

        def step(y, _):
            dt = 0.1 / steps
            k1 = rates(y)
            k2 = rates(y + dt / 2 * k1)
            k3 = rates(y + dt / 2 * k2)
            k4 = rates(y + dt * k3)
            return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        y, _ = jax.lax.scan(step, jnp.stack([theta, rate]), length=steps)
        return length * jnp.cos(y[0])

    x = jnp.array([9.81, 1.0, 1.4, 3.0])
    expected = jax.jit(jax.jacfwd(exact))(x)
    gradient = jax.jit(jax.jacrev(simulated))(x)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


@pytest.mark.parametrize("method", h.slow_unless(lambda m: m == "udwadia_kalaba", ROBUST))
def test_at_rest_without_damping(method):
    """A pendulum that hangs still: every derivative is finite and right, none by luck."""
    rest = np.array([0.0, -0.9]), np.array([0.0, 0.0])
    case = h.Case(h.Pendulum(damping=0.0), lambda t: rest)
    method = h.method(method)
    check(case, method, **options_of(method, num_steps=10))


# The dual form needs a stiffness or a damping in each row.
NO_ROWS = [(0.0, 0.0, mbd.Primal())]


@pytest.mark.parametrize(
    "stiffness, damping, form",
    [(k, d, f) for k, d in [(50.0, 0.0), (0.0, 2.0)] for f in (mbd.Dual(), mbd.Primal())] + NO_ROWS,
)
def test_soft_rows(stiffness, damping, form):
    """From nothing on: derivatives by K and D are those of the literal scheme, each step
    (M + h J^T (h K + D) J) v+ = M v* - h J^T K Phi."""
    pendulum, h_ = h.Pendulum(), 0.01
    q0, v0 = jnp.array([0.8, -0.6]), jnp.array([0.5, 0.4])

    def simulated(x):
        enforcement = mbd.ImplicitPenalty(x[0], x[1], form)
        sol = mbd.simulate(pendulum, enforcement, mbd.State(0.0, q0, v0), dt=h_, num_steps=5)
        return sol.q[-1, 0] + sol.v[-1, 1]

    def literal(x):
        K, D = x
        q, v = q0, v0
        M, weight = pendulum.mass_matrix(q), pendulum.force(0.0, q, v, None)
        for _ in range(5):
            J, phi = 2 * q[None], q @ q - pendulum.length**2
            left = M + h_ * (h_ * K + D) * J.T @ J
            v = jnp.linalg.solve(left, M @ v + h_ * weight - h_ * K * phi * J[0])
            q = q + h_ * v
        return q[0] + v[1]

    x = jnp.array([stiffness, damping])
    expected = jax.jit(jax.jacfwd(literal))(x)
    assert np.min(np.abs(expected)) > 1e-5
    for gradient in both_modes(simulated, x):
        np.testing.assert_allclose(gradient, expected, rtol=1e-10)


def test_infinitely_stiff_rows():
    """K = inf is rigid: all other derivatives are those of the impulse that lands on Phi = 0."""
    case = h.CASES["pendulum"]

    def gradient(enforcement):
        def loss(system, q, v):
            state = mbd.State(0.0, q, v)
            options = dict(dt=0.01, num_steps=10, start_tolerance=1.0)
            sol = mbd.simulate(system, enforcement, state, **options)
            return sol.q[-1, 0] + sol.v[-1, 1] + 0.1 * sol.multipliers[-1, 0]

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(case.system, case.state.q, case.state.v)

    stiff = gradient(mbd.ImplicitPenalty(jnp.inf, 0.0))
    rigid = gradient(mbd.VelocityImpulse(stabilisation=mbd.DeadBeat()))
    for a, b in zip(jax.tree.leaves(stiff), jax.tree.leaves(rigid), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
