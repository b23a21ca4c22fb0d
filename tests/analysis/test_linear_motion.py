"""Linear models along motions against the growth of deviations, and LQR along motions against
closed forms."""

import functools

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
from analysis_systems import CartPole, Springs, Unit, all_are, through

import jaxmbd as mbd
from jaxmbd.analysis import linearise, linearise_along, lqr


def push(t, q, v):
    del q, v
    return 4 * jnp.cos(3 * t)[None]


def moving(name):
    """A system, its start and its control."""
    if name == "cart_pole":
        start = mbd.State(0.0, [0.0, 0.4], [0.5, -1.0])
        return CartPole(*np.array([1.2, 0.3, 0.7])), start, push
    return h.CASES[name].system, h.CASES[name].state, None


@pytest.mark.parametrize(
    "name", h.slow_unless(lambda name: name == "cart_pole", ["cart_pole", "top", "skate_in_space"])
)
def test_deviations_grow_as_the_model_says(name):
    """A_d and B_d of an interval are the derivatives of its end by its beginning and by a constant
    added to the inputs. The error falls with the fifth power of the interval."""
    system, state, control = moving(name)
    stepper = mbd.Stepper(system, mbd.UdwadiaKalaba())
    nv, errors = state.v.size, []

    def flow(state, du, dt):
        def with_push(t, q, v):
            return None if control is None else control(t, q, v) + du

        begin = stepper.init(state, start_tolerance=jnp.inf)
        return jax.lax.fori_loop(0, 8, lambda _, x: stepper.step(x, dt / 8, with_push), begin)

    def end(z, Z, dt, ahead):
        dx = Z @ z[: Z.shape[1]]
        moved = mbd.State(state.t, system.retract(state.q, dx[:nv]), state.v + dx[nv:])
        x = flow(moved, z[Z.shape[1] :], dt)
        return jnp.concatenate([system.difference(ahead.q, x.q), x.v - ahead.v])

    step, by_begin = jax.jit(flow), jax.jit(jax.jacfwd(end))
    nu = 0 if control is None else 1
    for dt in np.array([0.04, 0.02]):
        ahead = step(state, np.zeros(nu), dt)
        ends = zip((0.0, state.q, state.v), (dt, ahead.q, ahead.v))
        model = linearise_along(system, through(*map(np.stack, ends)), control)
        Z = np.asarray(model.Z)
        np.testing.assert_allclose(Z.mT @ Z, np.stack([np.eye(Z.shape[2])] * 2), atol=1e-12)
        D = Z[1].T @ np.asarray(by_begin(np.zeros(Z.shape[2] + nu), Z[0], dt, ahead))
        model = model.discretised()
        found = np.concatenate([model.A, model.B], axis=2)[0]
        errors.append(np.abs(found - D).max())
        assert np.abs(D - np.eye(*D.shape)).max() > 0.01
    assert errors[1] < 3e-7 and errors[1] < errors[0] / 20, errors


class Pushed(Unit):
    """A mass of 1 kg; the push u has the effect 1 + t."""

    def force(self, t, q, v, u):
        return (1 + t) * u


T6 = np.array([0.0, 0.3, 0.5, 1.1, 1.3, 2.0])
NO_PUSH = np.zeros(1)


@functools.cache
def pushed_at_rest():
    rest = through(T6, np.zeros((6, 1)), np.zeros((6, 1)))
    return linearise_along(Pushed(), rest, NO_PUSH, size=2)


WEIGHTS = np.cos(np.arange(12.0)).reshape(6, 2)


@jax.jit
def of_pushed(model, r, final):
    """Only the velocity at the end costs: gains, their weighted slope by r, and what is solved, in
    continuous time and sampled."""

    def found(r):
        options = dict(Q=0.0, R=r, final=jnp.stack([0.0, final]), throw=False)
        along = lqr(model, **options)
        results = along.result, lqr(model.discretised(), **options).result
        return along.gains[:, 0], [x == mbd.RESULTS.successful for x in results]

    gains, pull, good = jax.vjp(found, r, has_aux=True)
    return gains, pull(WEIGHTS)[0], jnp.stack(good)


def test_riccati_equation_in_closed_form():
    """p' = (1 + t)^2 p^2 / r, p(T) = f, so that 1 / p = 1 / f + ((1 + T)^3 - (1 + t)^3) / (3 r),
    with the gain (1 + t) p / r on the velocity."""
    t, f, r = T6, 7.0, 0.4
    gains, slope, _ = of_pushed(pushed_at_rest(), r, f)
    p = 1 / (1 / f + (27 - (1 + t) ** 3) / (3 * r))
    np.testing.assert_allclose(gains, np.stack([0 * t, (1 + t) * p / r], axis=1), rtol=1e-9)
    np.testing.assert_allclose(slope, WEIGHTS[:, 1] @ (-(1 + t) * (p / r) ** 2 / f), rtol=1e-8)


def at_rest(stiffness, damping, t):
    """Two masses in springs and dampers at rest, linearised along it."""
    system = Springs(np.eye(2), np.diag(stiffness), np.diag(damping))
    still = through(np.array(t), np.zeros((3, 2)), np.zeros((3, 2)))
    return system, linearise_along(system, still, np.zeros(2), size=4)


def test_stiff_dampers():
    """One mass in a damper whose motion decays by exp(-1e5) in an interval, beside a slow one: with
    the cost to go of the equilibrium at the end, the gains are those about the equilibrium, and the
    control is its feedback between the points too. Growing exponentials of this size would leave
    NaN."""
    system, model = at_rest([1e5, 2.0], [1e4, 0.1], [0.0, 10.0, 20.0])
    about = lqr(linearise(system, mbd.State(0.0, np.zeros(2), np.zeros(2)), np.zeros(2)))
    found = lqr(model, final=about.value)
    K = np.asarray(about.gain) @ np.asarray(about.model.S).T
    np.testing.assert_allclose(found.gains, np.stack([K] * 3), atol=1e-9 * np.abs(K).max())
    assert all_are(found.result, mbd.RESULTS.successful)
    A, B = map(np.asarray, model.in_all_coordinates())
    np.testing.assert_allclose(A[1], about.model.A, rtol=1e-12)
    np.testing.assert_allclose(B[1], about.model.B, rtol=1e-12)
    x = np.array([0.2, 0.3, -0.1, 0.4])
    u = eqx.filter_jit(lambda control, *at: control(*at))(found, 3.3, x[:2], x[2:])
    np.testing.assert_allclose(u, -K @ x, rtol=1e-8)


def test_verdicts():
    """Of a cost at the end that is negative, which only numbers that are known refuse; of intervals
    in which deviations grow beyond all numbers; and of the model. `throw=True` raises."""
    for final in (0.1, -0.1):
        np.testing.assert_array_equal(of_pushed(pushed_at_rest(), 1.0, final)[2], [final > 0] * 2)
    model = at_rest([-1.0, 1.0], [0.0, 0.0], [0.0, 1.0, 800.0])[1].discretised()
    with pytest.raises(RuntimeError, match="^The Riccati equation of `lqr` has no solution"):
        lqr(model)
    spoilt = eqx.tree_at(lambda x: x.result, model.motion, mbd.RESULTS.inconsistent_start)
    assert all_are(lqr(spoilt, throw=False).result, mbd.RESULTS.inconsistent_start)
    with pytest.raises(RuntimeError, match="^The initial state violates"):
        lqr(spoilt)


@pytest.mark.slow
def test_digital_controller():
    """With the cost to go of the endless horizon at the end, the gains are those of the discrete
    algebraic Riccati equation. On the grid of a problem, the correction is held through each
    interval, and x(k+1) = (A - B K) x(k)."""
    mass, k, d, dt = 2.0, 18.0, 4.0, 0.25
    system = Springs(*(x * jnp.eye(1) for x in (mass, k, d)))
    a, b = np.array([[0.0, 1.0], [-k / mass, -d / mass]]), np.array([[0.0], [1 / mass]])
    flow = scipy.linalg.expm(dt * np.block([[a, b], [np.zeros((1, 3))]]))
    A, B, Q, R = flow[:2, :2], flow[:2, 2:], dt * np.diag([40.0, 1.0]), dt * 0.05 * np.eye(1)
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)

    t, zeros = dt * np.arange(9), np.zeros((9, 1))
    model = linearise_along(system, through(t, zeros, zeros), jnp.zeros(1)).discretised()
    found = lqr(model, Q=jnp.array([40.0, 1.0]), R=0.05, final=P)
    np.testing.assert_allclose(found.gains, np.stack([K] * 8), rtol=1e-9)
    np.testing.assert_allclose(found.value, np.stack([P] * 9), rtol=1e-9)

    start = mbd.State(0.0, [0.3], [-0.1])
    problem = mbd.trajopt.Problem(system, start, 2.0, 8, nu=1, substeps=30)
    plan = mbd.trajopt.perform(problem, found)
    x = np.array([0.3, -0.1])
    for q, v in zip(plan.q, plan.v):
        np.testing.assert_allclose(np.append(q, v), x, atol=1e-7)
        x = (A - B @ K) @ x
    assert np.abs(found(0.0, start.q, start.v) + K @ np.array([0.3, -0.1])).max() < 1e-12


def test_refused():
    zeros = np.zeros((6, 1))
    motion = through(T6, zeros, zeros)
    pair = jax.tree.map(lambda x: np.stack([x, x]), motion)
    for wrong, words in (
        (through(T6[:1], zeros[:1], zeros[:1]), "at least two points"),
        (through(T6[::-1], zeros, zeros), "times that increase"),
        (pair, "must be one motion"),
    ):
        with pytest.raises(ValueError, match=words):
            linearise_along(Pushed(), wrong, NO_PUSH)
    for final, words in (
        ([1.0, -2.0], "`final` must not be negative in any"),
        (np.ones((2, 3)), "`final` must be a scalar or have 2 entries, or be 2 x 2"),
    ):
        with pytest.raises(ValueError, match=words):
            lqr(pushed_at_rest(), final=np.array(final))
    with pytest.raises(ValueError, match="`size`"):
        shape = jax.ShapeDtypeStruct((1,), float)
        jax.eval_shape(lambda u: linearise_along(Pushed(), motion, u).A, shape)
