"""Linear models against closed forms, and against how deviations of a motion grow."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import CartPole, Springs, gravity

import jaxmbd as mbd
from jaxmbd.analysis import inverse_dynamics, linearise, lqr

UPRIGHT = mbd.State(0.0, jnp.zeros(2), jnp.zeros(2))


def test_cart_pole_and_its_derivative():
    cart, pole, length = values = np.array([1.2, 0.3, 0.7])
    model = linearise(CartPole(*jnp.array(values)), UPRIGHT, jnp.zeros(1))
    A, B = np.zeros((4, 4)), np.zeros((4, 1))
    slope = gravity / (cart * length)
    A[:2, 2:], A[2, 1], A[3, 1] = np.eye(2), -pole * gravity / cart, (cart + pole) * slope
    B[2:, 0] = 1 / cart, -1 / (cart * length)
    np.testing.assert_array_equal(model.S, np.eye(4))
    np.testing.assert_allclose(model.A, A, atol=1e-12)
    np.testing.assert_allclose(model.B, B, atol=1e-12)
    np.testing.assert_array_equal(model.C, np.eye(4))
    np.testing.assert_array_equal(model.D, np.zeros((4, 1)))

    def entry(values):
        return linearise(CartPole(*values), UPRIGHT, jnp.zeros(1), size=4).A[3, 1]

    expected = [-pole / cart * slope, slope, -(cart + pole) / length * slope]
    for derivative in (jax.jacfwd(entry), jax.jacrev(entry)):
        np.testing.assert_allclose(jax.jit(derivative)(jnp.array(values)), expected, rtol=1e-12)
    together = jax.jit(jax.vmap(entry))(jnp.array([values, 2 * values]))
    np.testing.assert_allclose(together, A[3, 1] * np.array([1, 0.5]), rtol=1e-12)


def test_outputs_and_responses():
    """A damped mass on a spring that u pushes: y = (load of the spring, x)."""
    system = Springs(*(x * jnp.eye(1) for x in (2.0, 18.0, 4.0)))

    def output(t, q, v, u):
        del t, v
        return {"x": q, "load": u - 9 * q}

    model = linearise(system, mbd.State(0.0, [0.0], [0.0]), jnp.zeros(1), output=output)
    np.testing.assert_allclose(model.C, [[-9, 0], [1, 0]], atol=1e-14)
    np.testing.assert_allclose(model.D, [[1], [0]], atol=1e-14)
    f = np.array([0.0, 0.3, 2.0])
    s = 2j * np.pi * f
    compliance = 1 / (2 * s**2 + 4 * s + 18)
    expected = np.stack([1 - 9 * compliance, compliance], axis=1)
    np.testing.assert_allclose(model.frequency_response(f)[:, :, 0], expected, rtol=1e-12)
    # q'' + 2 q' + 9 q = u / 2.
    A, B = model.discretised(0.1)
    w, decay = np.sqrt(8.0), np.exp(-0.1)
    c, sn = np.cos(0.1 * w), np.sin(0.1 * w) / w
    np.testing.assert_allclose(A, decay * np.array([[c + sn, sn], [-9 * sn, c - sn]]), rtol=1e-12)
    np.testing.assert_allclose(B[0, 0], (1 - A[0, 0]) / 18, rtol=1e-12)
    step = model.to_scipy().step(T=[0.0, 0.1])[1]
    np.testing.assert_allclose(step[1, 1], B[0, 0], rtol=1e-9)


class Tumbling(mbd.AbstractSystem):
    """A free rigid body in roll, pitch and yaw, whose chart is curved where it moves."""

    coordinates = mbd.RollPitchYawBody()

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([0.3, 0.5, 0.7]))

    def force(self, t, q, v, u):
        return -mbd.rotations.cross(v, self.mass_matrix(q) @ v)


TUMBLING = Tumbling(), mbd.State(0.0, [0.3, 0.6, -0.4], [1.0, -2.0, 1.5])


@pytest.mark.parametrize(
    "name",
    h.slow_unless(
        lambda name: name not in ("top", "skate_in_space"),
        ["driven_pendulum", "redundant_pendulum", "top", "skate_in_space", "tumbling"],
    ),
)
def test_deviations_of_a_motion(name):
    """A is the rate at which xi of a motion, measured from the motion that starts at the state
    itself, depends on xi at its start: (D(h) - 1) / h after one step of Runge and Kutta's method,
    extrapolated to h = 0 by halving it twice. States that move, quaternions, redundant, moving and
    nonholonomic rows."""
    free = name == "tumbling"
    system, state = TUMBLING if free else (h.CASES[name].system, h.CASES[name].state)
    model = linearise(system, state)
    n, nv = model.A.shape[0], state.v.size
    assert free or n < 2 * nv
    np.testing.assert_allclose(model.S.T @ model.Z, np.eye(n), atol=1e-12)
    stepper = mbd.Stepper(system, mbd.UdwadiaKalaba(), diffrax.Dopri5())

    @jax.jit
    @jax.jacfwd
    def moved(xi, dt):
        dx = model.Z @ xi
        q = system.retract(state.q, dx[:nv])
        ahead, end = (
            stepper.step(stepper.init(x), dt)
            for x in (state, mbd.State(state.t, q, state.v + dx[nv:]))
        )
        dp = system.difference(ahead.q, end.q)
        return model.S.T @ jnp.concatenate([dp, end.v])

    a, b, c = ((moved(jnp.zeros(n), dt) - np.eye(n)) / dt for dt in (4e-3, 2e-3, 1e-3))
    found = (8 * c - 6 * b + a) / 3
    np.testing.assert_allclose(model.A, found, atol=3e-6 * np.abs(found).max())
    assert np.abs(model.A - c).max() > 1e-5  # without the extrapolation


def test_feedback():
    """The cart-pole is brought upright from 0.5 rad; K is that of two integrators in closed form;
    what no input reaches is refused."""
    system = CartPole(*jnp.array([1.0, 0.1, 0.5]))
    feedback = lqr(linearise(system, UPRIGHT, jnp.zeros(1)), Q=1.0, R=0.1)
    assert np.all(linearise(system, UPRIGHT, feedback).poles.real < -0.5)
    start = mbd.State(0.0, [0.2, 0.5], [0.0, 0.0])
    sol = mbd.simulate(system, mbd.UdwadiaKalaba(), start, t1=12.0, dt=0.01, control=feedback)
    np.testing.assert_allclose(np.concatenate([sol.q, sol.v]), 0.0, atol=1e-4)

    mass = Springs(jnp.eye(1), jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    model = linearise(mass, mbd.State(0.0, [0.0], [0.0]), jnp.zeros(1))
    np.testing.assert_allclose(lqr(model).gain, [[1.0, np.sqrt(3)]], rtol=1e-12)

    class Deaf(Springs):
        def force(self, t, q, v, u):
            return q

    unstable = Deaf(*(jnp.eye(1),) * 3)
    model = linearise(unstable, mbd.State(0.0, [0.0], [0.0]), jnp.zeros(1))
    with pytest.raises(RuntimeError, match="^The Riccati equation of `lqr` has no solution"):
        lqr(model)
    assert lqr(model, throw=False).result == mbd.RESULTS.riccati_unsolved


def test_refused():
    with pytest.raises(ValueError, match="`size`"):
        jax.jit(lambda u: linearise(CartPole(u[0], u[0], u[0]), UPRIGHT, u).A)(jnp.ones(1))
    model = linearise(CartPole(*jnp.ones(3)), UPRIGHT, jnp.zeros(1))
    with pytest.raises(ValueError, match="`Q` must be a scalar or have 4"):
        lqr(model, Q=jnp.ones(3))
    with pytest.raises(ValueError, match="`final` is for motions"):
        lqr(model, final=1.0)


def test_verdicts():
    """A state beside the constraints, a wrong number of deviations and rows that the solver cannot
    tell apart show in the result, and raise unless they must not."""
    case = h.CASES["redundant_pendulum"]
    system, q, v = case.system, case.state.q, case.state.v
    beside = mbd.State(0.0, 1.1 * q, v)
    cholesky = dict(size=2, solver=mbd.Cholesky())
    for state, options, expected in (
        (case.state, {}, mbd.RESULTS.successful),
        (beside, dict(size=2), mbd.RESULTS.inconsistent_start),
        (case.state, dict(size=3), mbd.RESULTS.wrong_size),
        (case.state, cholesky, mbd.RESULTS.singular_constraints),
    ):
        assert linearise(system, state, throw=False, **options).result == expected
    with pytest.raises(Exception, match="violates the constraints"):
        linearise(system, beside, size=2)
    found = inverse_dynamics(system, beside, jnp.zeros_like(v), jnp.zeros(1), throw=False)
    assert found.result == mbd.RESULTS.inconsistent_start
