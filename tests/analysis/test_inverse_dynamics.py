"""The inputs of a motion: those that made it, the least ones, and the closest motion."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from analysis_systems import (
    ARM,
    FIVE_BAR,
    FOUR_BAR,
    SLIDER_CRANK,
    CartPole,
    Springs,
    four_bar,
    gravity,
)
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import accelerations, inverse_dynamics, static_inputs


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
    dv = r * rise * tangent - r * rate**2 * radial
    system = Lever(jnp.array(m), jnp.array(r))

    def force(m, rise):
        dv = r * rise * tangent - r * rate**2 * radial
        return inverse_dynamics(Lever(m, r), state, dv, jnp.zeros(2)).u

    found = inverse_dynamics(system, state, dv, jnp.zeros(2))
    size = m * (r * rise + gravity * np.cos(a))
    np.testing.assert_allclose(found.u, size * tangent, rtol=1e-10)
    np.testing.assert_allclose(found.missed, 0.0, atol=1e-10)
    lam = found.multipliers[0] + 3 * found.multipliers[1]
    reaction = -m * r * rate**2 + m * gravity * np.sin(a)
    np.testing.assert_allclose(2 * r * lam, reaction, rtol=1e-10)
    for jac in (jax.jacfwd, jax.jacrev):
        by_m, by_rise = jax.jit(jac(force, argnums=(0, 1)))(m, rise)
        np.testing.assert_allclose(by_m, size / m * tangent, rtol=1e-8)
        np.testing.assert_allclose(by_rise, m * r * tangent, rtol=1e-8)


def test_weights_share_the_load():
    """Three inputs push one mass: shares are as 1 / w."""

    class Shared(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return 2.0 * jnp.eye(1)

        def force(self, t, q, v, u):
            return u["left"] + u["right"].sum(keepdims=True)

    rest, u = mbd.State(0.0, [0.0], [0.0]), {"left": jnp.zeros(1), "right": jnp.zeros(2)}
    found = inverse_dynamics(Shared(), rest, [5.5], u, weights=jnp.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(found.u["left"], [6.0], rtol=1e-12)
    np.testing.assert_allclose(found.u["right"], [3.0, 2.0], rtol=1e-12)


def test_accelerations_of_a_state_off_the_constraints():
    """They are no motion of the system: an error, or NaN, beside the numbers of good states."""
    q, v = jnp.array([[1.0, 0.4, -1.6], [1.0, 0.9, -1.6]]), jnp.zeros((2, 3))
    good = mbd.assemble(FOUR_BAR, q[0], v[0], fixed=[0])
    states = mbd.State(0.0, q.at[0].set(good.q), v)
    with pytest.raises(Exception, match="violates the constraints"):
        accelerations(FOUR_BAR, states, jnp.zeros(1))
    found = accelerations(FOUR_BAR, states, jnp.zeros(1), throw=False)
    np.testing.assert_array_equal(np.isnan(found), [[False] * 3, [True] * 3])


def test_traced_bounds_that_cross():
    system = CartPole(*jnp.array([1.2, 0.3, 0.7]))
    state = mbd.State(0.0, [0.0, 0.0], [0.0, 0.0])

    @jax.jit
    def result(lower):
        options = dict(lower=lower, upper=1.0, throw=False)
        return inverse_dynamics(system, state, [1.0, 0.0], jnp.zeros(1), **options).result

    assert result(jnp.array(-1.0)) == mbd.RESULTS.successful
    assert result(jnp.array(2.0)) == mbd.RESULTS.invalid_parameter


def test_underactuated():
    """The push on a cart cannot hold a pole that leans: it makes the acceleration that is closest
    in the norm of M, and says what is missing."""
    system = CartPole(*jnp.array([1.2, 0.3, 0.7]))
    state = mbd.State(0.0, [0.0, 0.4], [0.0, 0.0])
    found = inverse_dynamics(system, state, [0.0, 0.0], jnp.zeros(1))
    M = np.asarray(system.mass_matrix(state.q))
    assert np.abs(found.missed).max() > 1.0
    # The rest is orthogonal to what u can do: M^-1 (1, 0).
    np.testing.assert_allclose(found.missed[0], 0.0, atol=1e-12)
    made = np.linalg.solve(M, [found.u[0], 0.3 * 0.7 * gravity * np.sin(0.4)])
    np.testing.assert_allclose(found.missed, -made, atol=1e-12)


def torques(t, q, v):
    del q, v
    return 0.2 * jnp.stack([3 * jnp.sin(4 * t) + 2, jnp.cos(5 * t), -jnp.sin(3 * t)])


MOTIONS = {
    "arm": (ARM, [0.3, -0.5, 0.9], [1.0, -1.0, 2.0]),
    "five_bar": (FIVE_BAR, [2.0, 0.9, -0.9, -2.0], [-1.0, 0.0, 0.0, 2.0]),
    "slider_crank": (SLIDER_CRANK, [2.5, -0.2], [9.0, 0.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOTIONS)
def test_inverse_then_forward(name):
    """The inputs that the accelerations of a motion require are those that made it; of three motors
    on the two freedoms of a five-bar the shortest that do. A simulation that computes them on its
    way is the motion. The slider-crank passes its dead point."""
    system, q, v = MOTIONS[name]
    nu = system.motors.shape[1]
    closed = system.base is not None or system.slider is not None
    state = mbd.assemble(
        system, jnp.array(q), jnp.array(v), fixed=[0, 3] if nu == 3 and closed else [0]
    )
    options = dict(scheme=h.midpoint(), saveat=diffrax.SaveAt(t0=True, steps=4))

    def given(t, q, v):
        return torques(t, q, v)[:nu]

    def motion(control):
        return mbd.simulate(
            system, mbd.UdwadiaKalaba(), state, t1=0.3, dt=0.0025, control=control, **options
        )

    def required(t, q, v):
        # Stages of a step are off the constraints by the square of its length.
        options = dict(start_tolerance=jnp.inf, throw=False)
        dv = accelerations(system, mbd.State(t, q, v), given, **options)
        return inverse_dynamics(system, mbd.State(t, q, v), dv, jnp.zeros(nu), throw=False).u

    sol = motion(given)
    if name == "slider_crank":
        assert np.any(np.diff(np.sign(np.sin(sol.q[:, 0] - sol.q[:, 1]))))
    dv = accelerations(system, sol, given)
    found = inverse_dynamics(system, sol, dv, jnp.zeros(nu))
    expected = jax.jit(jax.vmap(given))(sol.t, sol.q, sol.v)
    np.testing.assert_allclose(found.missed, 0.0, atol=1e-9 * np.abs(dv).max())
    if name == "five_bar":
        # All torques with the same accelerations differ by multiples of one direction.
        more = np.asarray(expected - found.u)
        assert np.linalg.norm(more, axis=1).min() > 0.01
        np.testing.assert_allclose(np.sum(more * found.u, axis=1), 0.0, atol=1e-9)
    else:
        np.testing.assert_allclose(found.u, expected, atol=1e-9 * np.abs(expected).max())
    again = motion(required)
    for a, b in ((again.q, sol.q), (again.v, sol.v)):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.slow
def test_motion_of_a_four_bar_with_one_motor():
    """In space, with redundant rows: the torque that made the motion, by one program for all
    times. Its reactions are those of the simulation where they are unique."""
    mechanism = four_bar()

    def torque(t, q, v):
        del q, v
        return jnp.sin(3 * t)[None] * 4

    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        mechanism.state(),
        t1=1.0,
        dt=0.01,
        control=torque,
        saveat=diffrax.SaveAt(t0=True, steps=1),
        projection=mbd.Projection(),
    )
    dv = accelerations(mechanism, sol, torque)
    found = inverse_dynamics(mechanism, sol, dv, jnp.zeros(1))
    expected = 4 * np.sin(3 * np.asarray(sol.t))[:, None]
    np.testing.assert_allclose(found.u, expected, atol=4e-9)
    np.testing.assert_allclose(found.missed, 0.0, atol=1e-9 * np.abs(dv).max())

    envelope = mbd.reports.reaction_envelope(mechanism, sol.t, sol.q, found.multipliers)
    assert envelope.names == ("hinge 0", "hinge 1", "hinge 2", "hinge 3")
    for i, name in enumerate(envelope.names):
        one = mbd.reports.reactions(mechanism, sol.t, sol.q, found.multipliers, name)
        for value, index, time, vectors in (
            (envelope.force, envelope.force_index, envelope.force_time, one.force),
            (envelope.torque, envelope.torque_index, envelope.torque_time, one.torque),
        ):
            sizes = np.linalg.norm(vectors, axis=1)
            np.testing.assert_allclose(value[i], sizes.max(), rtol=1e-12)
            assert index[i] == sizes.argmax() and time[i] == sol.t[sizes.argmax()]
    assert "hinge 3" in str(envelope)


def test_weights_share_the_load_within_bounds():
    """Three inputs push one mass with 11 N, shares as 1 / w; what one may not give is shared by
    the others. More than all may give is missed."""

    class Shared(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return 2.0 * jnp.eye(1)

        def force(self, t, q, v, u):
            return u.sum(keepdims=True)

    rest = mbd.State(jnp.zeros(3), jnp.zeros((3, 1)), jnp.zeros((3, 1)))
    dv = jnp.array([[5.5], [-5.5], [20.0]])
    options = dict(weights=jnp.array([1.0, 2.0, 3.0]), lower=-7.0)

    def found(top):
        upper = jnp.stack([top, jnp.array(10.0), jnp.array(20.0)])
        return inverse_dynamics(Shared(), rest, dv, jnp.zeros(3), upper=upper, **options)

    inputs = found(jnp.array(4.0))
    expected = [[4.0, 4.2, 2.8], [-6.0, -3.0, -2.0], [4.0, 10.0, 20.0]]
    np.testing.assert_allclose(inputs.u, expected, rtol=1e-12)
    np.testing.assert_allclose(inputs.missed[:, 0], [0.0, 0.0, 3.0], atol=1e-12)
    for derivative in (jax.jacfwd, jax.jacrev):
        slope = jax.jit(derivative(lambda top: found(top).u))(4.0)
        np.testing.assert_allclose(slope, [[1, -0.6, -0.4], [0, 0, 0], [1, 0, 0]], atol=1e-10)


def test_bounds_against_an_independent_solver():
    """Random inputs of random systems within random bounds: Gauss's principle by SciPy."""
    rng = np.random.default_rng(5)
    nv, nu = 4, 3
    F = jnp.asarray(rng.normal(size=(nv, nu)))

    class Pushed(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.diag(jnp.array([1.0, 2.0, 0.5, 3.0]))

        def force(self, t, q, v, u):
            return F @ u - 3 * q

    q, dv = rng.normal(size=(2, 20, nv))
    lower, upper = np.array([-0.5, -0.2, 0.1]), np.array([0.5, 0.9, 0.4])
    states = mbd.State(0.0, q, np.zeros_like(q))
    found = inverse_dynamics(Pushed(), states, dv, jnp.zeros(nu), lower=lower, upper=upper)
    root = np.sqrt([1.0, 2.0, 0.5, 3.0])
    for i in range(20):
        target = root * dv[i] + 3 * q[i] / root
        best = scipy.optimize.lsq_linear(
            np.asarray(F) / root[:, None], target, (lower, upper), tol=1e-14
        )
        np.testing.assert_allclose(found.u[i], best.x, atol=1e-7)


def test_static_torques():
    """What holds an arm: the moments of the weights beyond each joint, whatever its velocities."""
    q = np.array([[0.3, -0.5, 0.9], [1.2, 0.1, 2.0]])
    found = static_inputs(ARM, mbd.State(0.0, q, np.ones_like(q)), jnp.zeros(3))
    lengths, masses = np.asarray(ARM.lengths), np.asarray(ARM.masses)
    for q, u in zip(q, found.u):
        bars = lengths * np.cos(q)
        centres = np.cumsum(bars) - bars / 2
        starts = np.cumsum(bars) - bars
        moments = [gravity * masses[i:] @ (centres[i:] - starts[i]) for i in range(3)]
        np.testing.assert_allclose(u, moments, rtol=1e-10)


def test_refused():
    system, rest = Springs(*(jnp.eye(1),) * 3), mbd.State(0.0, [0.0], [0.0])
    with pytest.raises(ValueError, match="`dv` must have shape"):
        inverse_dynamics(system, rest, [0.0, 0.0], jnp.zeros(1))
    with pytest.raises(ValueError, match="`lower` must not exceed"):
        inverse_dynamics(system, rest, [0.0], jnp.zeros(1), lower=1.0, upper=0.5)
    with pytest.raises(ValueError, match="`weights` must be a scalar or have one value"):
        inverse_dynamics(system, rest, [0.0], jnp.zeros(1), weights=jnp.ones(2))
