"""Linear models against closed forms and against how deviations of a motion grow; LQR about
equilibria, continuous and sampled, against SciPy and quadratures."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
from analysis_systems import CartPole, Springs, all_are, gravity

import jaxmbd as mbd
from jaxmbd.analysis import linearise, lqr
from jaxmbd.analysis.lqr import continuous_riccati, discrete_riccati

UPRIGHT = mbd.State(0.0, np.zeros(2), np.zeros(2))
NO_PUSH = np.zeros(1)


def cart_pole(cart, pole, length):
    return CartPole(*map(jnp.asarray, (cart, pole, length)))


def spring(mass, stiffness, damping):
    return Springs(*(x * np.eye(1) for x in (mass, stiffness, damping)))


def at_origin(system, **options):
    return linearise(system, mbd.State(0.0, [0.0], [0.0]), NO_PUSH, **options)


def test_cart_pole_and_its_derivative():
    cart, pole, length = values = np.array([1.2, 0.3, 0.7])
    model = linearise(cart_pole(*values), UPRIGHT, NO_PUSH)
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
        return linearise(CartPole(*values), UPRIGHT, NO_PUSH, size=4).A[3, 1]

    both = lambda values: (jax.value_and_grad(entry)(values), jax.jacfwd(entry)(values))  # noqa: E731
    (value, reverse), forward = jax.jit(jax.vmap(both))(np.array([values, 2 * values]))
    np.testing.assert_allclose(value, A[3, 1] * np.array([1, 0.5]), rtol=1e-12)
    expected = [-pole / cart * slope, slope, -(cart + pole) / length * slope]
    for found in (forward, reverse):
        np.testing.assert_allclose(found, [expected, np.array(expected) / 4], rtol=1e-12)


def test_outputs_and_responses():
    """A damped mass on a spring that u pushes: y = (load of the spring, x)."""

    def output(t, q, v, u):
        return {"x": q, "load": u - 9 * q}

    model = at_origin(spring(2.0, 18.0, 4.0), output=output)
    np.testing.assert_allclose(model.C, [[-9, 0], [1, 0]], atol=1e-14)
    np.testing.assert_allclose(model.D, [[1], [0]], atol=1e-14)
    f = np.array([0.0, 0.3, 2.0])
    s = 2j * np.pi * f
    compliance = 1 / (2 * s**2 + 4 * s + 18)
    expected = np.stack([1 - 9 * compliance, compliance], axis=1)
    response = np.asarray(model.frequency_response(f))[:, :, 0]
    np.testing.assert_allclose(response, expected, rtol=1e-12)
    # q'' + 2 q' + 9 q = u / 2.
    A, B = map(np.asarray, model.discretised(0.1))
    w, decay = np.sqrt(8.0), np.exp(-0.1)
    c, sn = np.cos(0.1 * w), np.sin(0.1 * w) / w
    np.testing.assert_allclose(A, decay * np.array([[c + sn, sn], [-9 * sn, c - sn]]), rtol=1e-12)
    np.testing.assert_allclose(B[0, 0], (1 - A[0, 0]) / 18, rtol=1e-12)
    step = model.to_scipy().step(T=[0.0, 0.1])[1]
    np.testing.assert_allclose(step[1, 1], B[0, 0], rtol=1e-9)


class Tumbling(mbd.AbstractSystem):
    """A free rigid body in roll, pitch and yaw, whose chart is curved where it moves."""

    coordinates = mbd.coordinates.RollPitchYawBody()

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([0.3, 0.5, 0.7]))

    def force(self, t, q, v, u):
        return -mbd.rotations.cross(v, self.mass_matrix(q) @ v)


DRIVEN, TOP = h.CASES["driven_pendulum"], h.CASES["top"]
MOVING = {
    "pendulum": (h.RedundantPendulum(DRIVEN.system), DRIVEN.state),
    "tumbling": (Tumbling(), mbd.State(0.0, [0.3, 0.6, -0.4], [1.0, -2.0, 1.5])),
    "top": (TOP.system, TOP.state),
}


@pytest.mark.parametrize("name", h.slow_unless(lambda name: name == "pendulum", MOVING))
def test_deviations_of_a_motion(name):
    """A is the rate at which xi of a motion, measured from the motion that starts at the state
    itself, depends on xi at its start: (D(h) - 1) / h after one step of a scheme, extrapolated to
    h = 0 by halving it twice. A pendulum with redundant rows that move, a curved chart, and
    quaternions."""
    system, state = MOVING[name]
    model = linearise(system, state)
    n, nv = model.A.shape[0], state.v.size
    assert n == {"pendulum": 2, "tumbling": 6, "top": 6}[name]
    Z, S = np.asarray(model.Z), np.asarray(model.S)
    np.testing.assert_allclose(S.T @ Z, np.eye(n), atol=1e-12)
    stepper = mbd.Stepper(system, mbd.UdwadiaKalaba(), diffrax.Midpoint())

    @jax.jit
    @jax.jacfwd
    def moved(xi, dt):
        dx = Z @ xi
        q = system.retract(state.q, dx[:nv])
        end = stepper.step(stepper.init(mbd.State(state.t, q, state.v + dx[nv:])), dt)
        dp = system.difference(jax.lax.stop_gradient(end.q), end.q)
        return S.T @ jnp.concatenate([dp, end.v])

    steps = np.array([4e-3, 2e-3, 1e-3])
    a, b, c = ((np.asarray(moved(np.zeros(n), dt)) - np.eye(n)) / dt for dt in steps)
    found = (8 * c - 6 * b + a) / 3
    np.testing.assert_allclose(model.A, found, atol=3e-6 * np.abs(found).max())
    assert np.abs(np.asarray(model.A) - c).max() > 1e-5  # without the extrapolation
    with pytest.raises(ValueError, match="has no inputs"):
        lqr(model)
    whole = model.in_all_coordinates()
    turned = np.asarray(whole.A) @ Z
    np.testing.assert_allclose(S.T @ turned, model.A, atol=1e-10)
    np.testing.assert_allclose(turned, model.rates, atol=1e-10)


def test_verdicts():
    """A state beside the constraints and a wrong number of deviations show in the result, and raise
    unless they must not."""
    case = h.CASES["redundant_pendulum"]
    system, q, v = case.system, np.asarray(case.state.q), case.state.v
    found = linearise(system, case.state, size=3, throw=False)
    assert all_are(found.result, mbd.RESULTS.wrong_size)
    with pytest.raises(Exception, match="violates the constraints"):
        linearise(system, mbd.State(0.0, 1.1 * q, v), size=3)


DT = 0.15
WEIGHTS = np.array([3.0, 1.0, 0.5, 0.2])


@eqx.filter_jit
def model_of(masses):
    return linearise(CartPole(*masses), UPRIGHT, NO_PUSH, size=4)


MODEL = np.array([1.0, 0.1, 0.5])


def over_interval(model, weights, effort, dt):
    """A_d and B_d, and the integral of the cost of held inputs, by quadrature."""
    model = jax.tree.map(np.asarray, model)
    n, nu = model.B.shape
    rates = np.zeros((n + nu, n + nu))
    rates[:n] = np.concatenate([model.A, model.B], axis=1)
    W = scipy.linalg.block_diag(model.Z.T @ np.diag(weights) @ model.Z, effort * np.eye(nu))

    def rate(t):
        F = scipy.linalg.expm(t * rates)
        return F.T @ W @ F

    W = scipy.integrate.quad_vec(rate, 0.0, dt, epsabs=1e-14, epsrel=1e-13)[0]
    F = scipy.linalg.expm(dt * rates)
    return F[:n, :n], F[:n, n:], W[:n, :n], W[n:, n:], W[:n, n:]


def test_gains_of_two_integrators():
    model = at_origin(spring(1.0, 0.0, 0.0))
    np.testing.assert_allclose(lqr(model).gain, [[1.0, np.sqrt(3)]], rtol=1e-12)


@pytest.mark.parametrize("dt", [1e-3, DT, 3.0])
def test_sampled_gain_is_scipys(dt):
    """The cost of an interval by quadrature, the equation by SciPy; for 3 s the open loop grows
    e^14 times in an interval."""
    model = model_of(MODEL)
    A, B, Q, R, N = over_interval(model, WEIGHTS, 0.1, dt)
    P = scipy.linalg.solve_discrete_are(A, B, Q, R, s=N)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A + N.T)
    found = lqr(model, WEIGHTS, 0.1, dt=dt)
    np.testing.assert_allclose(found.gain, K, rtol=1e-7)
    np.testing.assert_allclose(found.value, P, rtol=1e-7)
    assert np.abs(np.linalg.eigvals(A - B @ np.asarray(found.gain))).max() < 1
    x = np.array([0.1, -0.2, 0.3, 0.4])
    u = eqx.filter_jit(lambda feedback, *at: feedback(*at))(found, 0.0, x[:2], x[2:])
    np.testing.assert_allclose(u, -K @ x, rtol=1e-6)


def test_derivatives_of_riccati_equations():
    """Along a change of all matrices, in both modes, against differences of SciPy's solutions."""
    rng = np.random.default_rng(0)
    A, B, N, *changes = (rng.normal(size=s) for s in ((3, 3), (3, 2), (3, 2)) * 2)
    Q, R = np.diag([2.0, 1.0, 0.5]) + 0.1, np.array([[1.0, 0.2], [0.2, 0.7]])
    dQ, dR = (x + x.T for x in (rng.normal(size=(3, 3)), rng.normal(size=(2, 2))))
    point, along = (A, B, Q, R, 0.1 * N), (*changes[:2], dQ, dR, 0.1 * changes[2])
    weights = rng.normal(size=(3, 3))
    scipys = (
        lambda A, B, Q, R, N: scipy.linalg.solve_continuous_are(A, B, Q, R),
        lambda A, B, Q, R, N: scipy.linalg.solve_discrete_are(A, B, Q, R, s=N),
    )
    ours = lambda A, B, Q, R, N: continuous_riccati(A, B, Q, R), discrete_riccati

    @jax.jit
    def found(point, along):
        results = []
        for fn in ours:
            P, dP = jax.jvp(fn, point, along)
            back = jax.grad(lambda x, fn=fn: jnp.vdot(weights, fn(*x)))(point)
            results.append((P, dP, sum(jnp.vdot(x, dx) for x, dx in zip(back, along))))
        return results

    for (P, dP, back), fn in zip(found(point, along), scipys):
        np.testing.assert_allclose(P, fn(*point), rtol=1e-9, atol=1e-9)
        near = [fn(*(x + e * dx for x, dx in zip(point, along))) for e in (1e-5, -1e-5)]
        np.testing.assert_allclose(dP, (near[0] - near[1]) / 2e-5, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(back, np.vdot(weights, dP), rtol=1e-9)


def test_batches_have_verdicts():
    """Under `vmap`, each sample has its verdict: what no input reaches is not held."""
    model = model_of(MODEL)

    @jax.jit
    @jax.vmap
    def found(reach):
        reached = eqx.tree_at(lambda m: m.B, model, reach * model.B)
        feedbacks = lqr(reached, throw=False), lqr(reached, dt=DT, throw=False)
        return [(x.gain, x.result == mbd.RESULTS.riccati_unsolved) for x in feedbacks]

    for gains, unsolved in found(np.array([1.0, 0.0])):
        np.testing.assert_array_equal(np.isnan(gains).all(axis=(1, 2)), [False, True])
        assert np.isfinite(np.asarray(gains)[0]).all()
        np.testing.assert_array_equal(unsolved, [False, True])


def test_refused():
    with pytest.raises(ValueError, match="`size`"):
        shape = jax.ShapeDtypeStruct((1,), float)
        jax.eval_shape(lambda u: linearise(CartPole(u[0], u[0], u[0]), UPRIGHT, u).A, shape)
    model = model_of(MODEL)
    for options, words in (
        (dict(Q=np.ones(3)), "`Q` must be a scalar or have 4"),
        (dict(final=1.0), "`final` is for motions"),
        (dict(dt=0.0), "`dt` of lqr must be positive"),
    ):
        with pytest.raises(ValueError, match=words):
            lqr(model, **options)
