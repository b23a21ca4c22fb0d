"""The inputs of a motion: those that made it, the least ones, and the closest motion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from analysis_systems import ARM, CartPole, Springs, Unit, four_bar, gravity
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd._concrete import to_jax
from jaxmbd.analysis import accelerations, inverse_dynamics, static_inputs

CART_POLE = CartPole(*map(to_jax, (1.2, 0.3, 0.7)))


class Lever(mbd.AbstractSystem):
    """A point mass on a circle of radius r, stated twice; u are forces along x and y."""

    mass: Array
    r: Array

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2)

    def force(self, t, q, v, u):
        return u + self.mass * jnp.array([0.0, -gravity])

    def constraint(self, q, t):
        row = q @ q - self.r**2
        return jnp.stack([row, 3 * row])


def test_least_force_on_redundant_rows():
    """At an angle a only the tangential force matters: u = (m r a'' + m g cos a) tangent."""
    m, r, a, rate, rise = 0.8, 1.5, 0.7, 2.0, 3.0
    radial, tangent = np.array([np.cos(a), np.sin(a)]), np.array([-np.sin(a), np.cos(a)])
    state = mbd.State(0.0, r * radial, r * rate * tangent)

    def force(m, rise):
        dv = r * rise * tangent - r * rate**2 * radial
        found = inverse_dynamics(
            Lever(m, r * jnp.ones_like(m)), state, dv, np.zeros(2), throw=False
        )
        return found.u, found

    both = [d(force, argnums=(0, 1), has_aux=True) for d in (jax.jacfwd, jax.jacrev)]
    (forward, found), (reverse, _) = jax.jit(lambda *x: [d(*x) for d in both])(m, rise)
    size = m * (r * rise + gravity * np.cos(a))
    np.testing.assert_allclose(found.u, size * tangent, rtol=1e-10)
    np.testing.assert_allclose(found.missed, 0.0, atol=1e-10)
    lam = np.asarray(found.multipliers) @ [1, 3]
    reaction = -m * r * rate**2 + m * gravity * np.sin(a)
    np.testing.assert_allclose(2 * r * lam, reaction, rtol=1e-10)
    for by_m, by_rise in (forward, reverse):
        np.testing.assert_allclose(by_m, size / m * tangent, rtol=1e-8)
        np.testing.assert_allclose(by_rise, m * r * tangent, rtol=1e-8)


def test_accelerations_of_a_state_off_the_constraints():
    """They are no motion of the system: an error, or NaN, beside the numbers of good states: of a
    lever that falls by its weight."""
    q = np.array([[1.5, 0.0], [1.5, 0.9]])
    states = mbd.State(0.0, q, np.zeros((2, 2)))
    lever = Lever(jnp.array(0.8), jnp.array(1.5))
    with pytest.raises(Exception, match="violates the constraints"):
        accelerations(lever, states, np.zeros(2))
    found = accelerations(lever, states, np.zeros(2), throw=False)
    np.testing.assert_allclose(found, [[0, -gravity], [np.nan] * 2], atol=1e-12)


def test_traced_bounds_that_cross():
    state = mbd.State(0.0, [0.0, 0.0], [0.0, 0.0])

    @jax.jit
    def result(lower):
        options = dict(lower=lower, upper=1.0, throw=False)
        return inverse_dynamics(CART_POLE, state, [1.0, 0.0], np.zeros(1), **options).result

    assert result(-1.0) == mbd.RESULTS.successful
    assert result(2.0) == mbd.RESULTS.invalid_parameter


@pytest.mark.slow
def test_envelope_of_reactions():
    """The largest forces and torques of each joint, and when they act, of any multipliers."""
    mechanism, t = four_bar(), np.array([0.1, 0.4, 0.5])
    q = np.tile(mechanism.state().q, (3, 1))
    lam = np.random.default_rng(0).normal(size=(3, 20))
    envelope = mbd.reports.reaction_envelope(mechanism, t, q, lam)
    assert envelope.names == ("hinge 0", "hinge 1", "hinge 2", "hinge 3")
    for i, name in enumerate(envelope.names):
        one = mbd.reports.reactions(mechanism, t, q, lam, name)
        for value, index, time, vectors in (
            (envelope.force, envelope.force_index, envelope.force_time, one.force),
            (envelope.torque, envelope.torque_index, envelope.torque_time, one.torque),
        ):
            sizes, value, index, time = map(
                np.asarray, (np.linalg.norm(vectors, axis=1), value, index, time)
            )
            np.testing.assert_allclose(value[i], sizes.max(), rtol=1e-12)
            assert index[i] == sizes.argmax() and time[i] == t[sizes.argmax()]
    assert "hinge 3" in str(envelope)


def test_weights_share_the_load_within_bounds():
    """Three inputs push 1 kg with 11 N, shares as 1 / w; what one may not give is shared by the
    others. More than all may give is missed."""

    class Shared(Unit):
        def force(self, t, q, v, u):
            return u["left"] + u["right"].sum(keepdims=True)

    rest = mbd.State(np.zeros(3), np.zeros((3, 1)), np.zeros((3, 1)))
    dv = np.array([[11.0], [-11.0], [40.0]])

    def found(top):
        upper = jnp.stack([top, jnp.array(10.0), jnp.array(20.0)])
        inputs = inverse_dynamics(
            Shared(), rest, dv, {"left": np.zeros(1), "right": np.zeros(2)},
            weights=np.array([1.0, 2.0, 3.0]), lower=-7.0, upper=upper, throw=False,
        )  # fmt: skip
        u = jnp.concatenate([inputs.u["left"], inputs.u["right"]], axis=1)
        return u, (u, inputs.missed)

    both = [d(found, has_aux=True) for d in (jax.jacfwd, jax.jacrev)]
    (forward, (u, missed)), (reverse, _) = jax.jit(lambda top: [d(top) for d in both])(4.0)
    np.testing.assert_allclose(u, [[4.0, 4.2, 2.8], [-6, -3, -2], [4, 10, 20]], rtol=1e-12)
    np.testing.assert_allclose(np.ravel(missed), [0.0, 0.0, 6.0], atol=1e-12)
    for slope in (forward, reverse):
        np.testing.assert_allclose(slope, [[1, -0.6, -0.4], [0, 0, 0], [1, 0, 0]], atol=1e-10)


def test_bounds_against_an_independent_solver():
    """Random inputs of random systems within random bounds: Gauss's principle by SciPy."""
    rng = np.random.default_rng(5)
    nv, nu = 4, 3
    F = rng.normal(size=(nv, nu))

    M = np.diag([1.0, 2.0, 0.5, 3.0]) + 0.2
    half = np.linalg.cholesky(M)

    class Pushed(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.asarray(M)

        def force(self, t, q, v, u):
            return F @ u - 3 * q

    q, dv = rng.normal(size=(2, 20, nv))
    lower, upper = np.array([-0.5, -0.2, 0.1]), np.array([0.5, 0.9, 0.4])
    states = mbd.State(0.0, q, np.zeros_like(q))
    found = inverse_dynamics(Pushed(), states, dv, np.zeros(nu), lower=lower, upper=upper)
    per_input = np.linalg.solve(half, F)
    for q, dv, u, missed in zip(q, dv, np.asarray(found.u), found.missed):
        target = half.T @ dv + np.linalg.solve(half, 3 * q)
        best = scipy.optimize.lsq_linear(per_input, target, (lower, upper), tol=1e-14).x
        np.testing.assert_allclose(u, best, atol=1e-7)
        np.testing.assert_allclose(missed, dv - np.linalg.solve(M, F @ u - 3 * q), atol=1e-12)


def test_static_torques():
    """What holds an arm: the moments of the weights beyond each joint, whatever its velocities."""
    q = np.array([[0.3, -0.5, 0.9], [1.2, 0.1, 2.0]])
    found = static_inputs(ARM, mbd.State(0.0, q, np.ones_like(q)), np.zeros(3))
    lengths, masses = np.asarray(ARM.lengths), np.asarray(ARM.masses)
    for q, u in zip(q, np.asarray(found.u)):
        bars = lengths * np.cos(q)
        centres = np.cumsum(bars) - bars / 2
        starts = np.cumsum(bars) - bars
        moments = [gravity * masses[i:] @ (centres[i:] - starts[i]) for i in range(3)]
        np.testing.assert_allclose(u, moments, rtol=1e-10)


@pytest.mark.parametrize(
    "dv, options, words",
    [
        ([0.0, 0.0], {}, "`dv` must have shape"),
        ([0.0], dict(lower=1.0, upper=0.5), "`lower` must not exceed"),
        ([0.0], dict(weights=np.ones(2)), "`weights` must be a scalar or have one value"),
    ],
)
def test_refused(dv, options, words):
    system, rest = Springs(*(np.eye(1),) * 3), mbd.State(0.0, [0.0], [0.0])
    with pytest.raises(ValueError, match=words):
        inverse_dynamics(system, rest, dv, np.zeros(1), **options)
