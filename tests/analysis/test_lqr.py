"""LQR about equilibria, continuous and sampled: against SciPy, quadratures and differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
from analysis_systems import CartPole, Springs
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import linearise, lqr

UPRIGHT = mbd.State(0.0, jnp.zeros(2), jnp.zeros(2))
DT = 0.15
WEIGHTS = np.array([3.0, 1.0, 0.5, 0.2])


@eqx.filter_jit
def model_of(masses):
    return linearise(CartPole(*masses), UPRIGHT, jnp.zeros(1), size=4)


MODEL = jnp.array([1.0, 0.1, 0.5])


def over_interval(model, weights, effort, dt):
    """A_d and B_d, and the integral of the cost of held inputs, by quadrature."""
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
    assert np.abs(np.linalg.eigvals(A - B @ found.gain)).max() < 1


def test_fast_sampling_is_continuous():
    """To first order in dt, the sampled gain is that at half an interval later, and twice the
    interval is twice as far away."""
    model = model_of(MODEL)
    K = lqr(model, WEIGHTS, 0.1).gain
    one, two = (lqr(model, WEIGHTS, 0.1, dt=dt).gain - K for dt in (1e-4, 2e-4))
    np.testing.assert_allclose(2 * one, two, rtol=2e-3)
    half = -K @ (model.A - model.B @ K) * 5e-5
    np.testing.assert_allclose(half, -one, rtol=2e-3)


def test_value_is_the_cost_of_the_motion():
    """x^T P x is the integral of the cost, between the samples too, of the cart-pole with held
    inputs. It is of second order in the deviation, so nonlinear terms are small."""
    model, system = model_of(MODEL), CartPole(*MODEL)
    feedback = lqr(model, WEIGHTS, 0.1, dt=DT)
    x0 = 1e-4 * np.array([1.0, -0.5, 0.3, 0.7])
    start = mbd.State(0.0, UPRIGHT.q + x0[:2], x0[2:])
    substeps, steps = 20, 60
    problem = mbd.trajopt.Problem(system, start, steps * DT, steps, nu=1, substeps=substeps)
    plan = mbd.trajopt.perform(problem, feedback)
    paid, F = 0.0, over_interval(model, WEIGHTS, 0.1, DT)
    for q, v, u in zip(plan.q, plan.v, plan.u):
        x = np.concatenate([q - UPRIGHT.q, v])
        np.testing.assert_allclose(u, -feedback.gain @ x, rtol=1e-9, atol=1e-15)
        paid += x @ F[2] @ x + 2 * x @ F[4] @ u + u @ F[3] @ u
    # What is left after the end is e^-12 of it.
    assert np.isclose(paid, x0 @ feedback.value @ x0, rtol=1e-4)
    assert np.max(np.abs(plan.q[-1] - UPRIGHT.q)) < 1e-6


@pytest.mark.parametrize("sampled", [False, True])
def test_derivatives_of_gains(sampled):
    """By masses and lengths, weights and the sampling interval, in both modes, as differences."""

    @jax.jit
    def gains(x):
        model = model_of(x[:3])
        dt = x[8] if sampled else None
        found = lqr(model, x[3:7], x[7], dt=dt, throw=False)
        return jnp.concatenate([found.gain.ravel(), found.value[jnp.triu_indices(4)]])

    x = jnp.concatenate([MODEL, WEIGHTS, jnp.array([0.1, DT])])
    forward, reverse = jax.jit(lambda x: (jax.jacfwd(gains)(x), jax.jacrev(gains)(x)))(x)
    steps = 1e-4 * np.diag(x)
    far, near = (
        np.stack([(gains(x + h) - gains(x - h)) / (2 * np.sum(h)) for h in s])
        for s in (steps, steps / 2)
    )
    expected = ((4 * near - far) / 3).T
    scale = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(forward / scale, expected / scale, atol=1e-7)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-9 * scale.max())


class OnCircle(mbd.AbstractSystem):
    """A pendulum by its place on a circle, stated twice, pushed along it."""

    length: Array
    mass: Array

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2)

    def force(self, t, q, v, u):
        along = jnp.stack([q[1], -q[0]]) / self.length
        return self.mass * jnp.array([0.0, -9.81]) + u[0] * along

    def constraint(self, q, t):
        return jnp.full(2, (q @ q - self.length**2) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("dt", [None, DT])
def test_derivatives_with_constraints(dt):
    """A pendulum upright, by its place as by the arc s from upright: u = -k (s, s')."""

    def by_place(x):
        length, mass = x
        state = mbd.State(0.0, jnp.stack([0.0 * length, length]), jnp.zeros(2))
        model = linearise(OnCircle(length, mass), state, jnp.zeros(1), size=2, throw=False)
        found = lqr(model, 2.0, 0.3, dt=dt, throw=False)
        # On (x, x'), the arc upright.
        return (found.gain @ model.S.T)[0, jnp.array([0, 2])]

    def by_arc(x):
        length, mass = x
        system = Springs(mass[None, None], -(mass * 9.81 / length)[None, None], jnp.zeros((1, 1)))
        model = linearise(system, mbd.State(0.0, [0.0], [0.0]), jnp.zeros(1), size=2, throw=False)
        return lqr(model, 2.0, 0.3, dt=dt, throw=False).gain[0]

    x = jnp.array([0.8, 1.3])
    both = [
        jax.jit(lambda x, f=f: (f(x), jax.jacfwd(f)(x), jax.jacrev(f)(x)))(x)
        for f in (by_place, by_arc)
    ]
    for place, arc in zip(*both):
        np.testing.assert_allclose(place, arc, rtol=1e-8, atol=1e-9)


def test_batches_and_verdicts():
    """Under `vmap`, each sample has its verdict: what no input reaches is not held."""

    @jax.jit
    @jax.vmap
    def found(reach):
        model = model_of(MODEL)
        model = eqx.tree_at(lambda m: m.B, model, reach * model.B)
        feedbacks = lqr(model, throw=False), lqr(model, dt=DT, throw=False)
        return [(x.gain, x.result == mbd.RESULTS.riccati_unsolved) for x in feedbacks]

    for gains, unsolved in found(jnp.array([1.0, 0.0])):
        assert np.isfinite(gains[0]).all() and np.isnan(gains[1]).all()
        np.testing.assert_array_equal(unsolved, [False, True])
    model = model_of(MODEL)
    alone = eqx.tree_at(lambda m: m.B, model, 0 * model.B)
    with pytest.raises(RuntimeError, match="^The Riccati equation of `lqr` has no solution"):
        lqr(alone, dt=DT)
    with pytest.raises(ValueError, match="`dt` of lqr must be positive"):
        lqr(model, dt=0.0)
