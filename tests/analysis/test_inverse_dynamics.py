"""The inputs of a motion: those that made it, the least ones, and the closest motion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import CartPole, Springs, Unit, four_bar, gravity
from helpers import assert_verdicts
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd._compiler import to_jax
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


LEVER = Lever(*map(to_jax, (0.8, 1.5)))


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
    with pytest.raises(Exception, match="violates the constraints"):
        accelerations(LEVER, states, np.zeros(2))
    found = accelerations(LEVER, states, np.zeros(2), throw=False)
    np.testing.assert_allclose(found, [[0, -gravity], [np.nan] * 2], atol=1e-12)


def test_closest_motion_and_traced_bounds_that_cross():
    """A cart cannot move while its pole turns with it: by Gauss's principle, where what is missed
    is measured by M, the push moves the cart as if alone."""
    state, dv = mbd.State(0.0, [0.0, 0.0], [0.0, 0.0]), np.array([0.5, 0.0])

    @jax.jit
    def found(lower):
        options = dict(lower=lower, upper=1.0, throw=False)
        return inverse_dynamics(CART_POLE, state, dv, np.zeros(1), **options)

    closest = found(-1.0)
    assert_verdicts(closest.result, mbd.RESULTS.successful)
    np.testing.assert_allclose(closest.u, 1.2 * dv[:1], rtol=1e-10)
    np.testing.assert_allclose(closest.missed, [0.0, 0.5 / 0.7], atol=1e-10)
    assert_verdicts(found(2.0).result, mbd.RESULTS.invalid_parameter)


@pytest.mark.slow
def test_envelope_of_reactions():
    """The largest forces and torques of each joint, and when they act, of any multipliers."""
    mechanism, t = four_bar(), np.array([0.1, 0.4, 0.5])
    q = np.tile(mechanism.state().q, (3, 1))
    lam = np.random.default_rng(0).normal(size=(3, 20))
    states = mbd.State(t, q, np.zeros((3, 18)))
    envelope = mbd.reports.reaction_envelope(mechanism, states, multipliers=lam)
    for i, name in enumerate(envelope.names):
        one = mbd.reports.reactions(mechanism, states, name, lam)
        force, torque = (np.linalg.norm(x, axis=1) for x in (one.force, one.torque))
        sizes = envelope.force[i], envelope.torque[i]
        np.testing.assert_allclose(sizes, [force.max(), torque.max()], rtol=1e-12)
        assert envelope.force_time[i] == t[force.argmax()]
        assert envelope.torque_time[i] == t[torque.argmax()]


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


def test_static_forces():
    """What holds a lever at an angle: along the circle against its weight, whatever its
    velocity."""
    a = np.array([0.3, 1.2])
    radial, tangent = np.stack([np.cos(a), np.sin(a)], 1), np.stack([-np.sin(a), np.cos(a)], 1)
    found = static_inputs(LEVER, mbd.State(0.0, 1.5 * radial, tangent), np.zeros(2))
    np.testing.assert_allclose(found.u, 0.8 * gravity * np.cos(a)[:, None] * tangent, rtol=1e-10)


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


class Points(mbd.AbstractSystem):
    """A mass above a rigid floor, and one above a soft floor; u are upward forces on them."""

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return u - gravity

    def gap(self, q, t):
        return q

    @property
    def contact_law(self):
        return mbd.ContactLaw(stiffness=jnp.array([jnp.inf, 1e3]))


@pytest.mark.parametrize("call", ["accelerations", "inverse_dynamics"])
def test_contacts_that_act_are_told(call):
    """Those that press or strike, and not those that are open or opening."""
    high, u = (1.0, 0.0), np.zeros(2)
    cases = [
        (high, high, False),
        ((0.0, 0.0), high, True),  # rests
        ((1e-9, 0.0), high, True),
        ((0.0, -1.0), high, True),  # strikes
        ((0.0, 1.0), high, False),  # leaves
        ((1e-3, -1.0), high, False),
        (high, (-0.02, 0.0), True),  # compressed
        (high, (-0.02, 1.0), True),
        (high, (1e-9, 0.0), False),
    ]
    q, v = (np.array([[x[k] for x in case[:2]] for case in cases]) for k in (0, 1))
    state = mbd.State(np.zeros(len(cases)), q, v)
    acts = np.array([case[2] for case in cases])
    if call == "accelerations":
        dv = np.asarray(accelerations(Points(), state, u, throw=False))
        np.testing.assert_array_equal(np.isnan(dv), np.stack([acts, acts], axis=1))
        np.testing.assert_allclose(dv[~acts], -gravity, rtol=1e-12)
        return
    # Free fall needs no force; on the floor the forces that hold both masses suffice.
    needed = jax.jit(lambda wanted: inverse_dynamics(Points(), state, wanted, u, throw=False))
    for wanted, told in ((np.full((9, 2), -gravity), acts), (np.zeros((9, 2)), None)):
        found = needed(wanted)
        np.testing.assert_allclose(found.u, wanted + gravity, atol=1e-12)
        told = np.isin(np.arange(9), [3, 6, 7]) if told is None else told
        expected = [mbd.RESULTS.contact_acts if x else mbd.RESULTS.successful for x in told]
        assert_verdicts(found.result, expected)


@pytest.mark.slow
def test_limits_of_joints_within_their_range_do_not_act():
    """A pendulum with limits moves as without them, but for where it presses on one. A ball presses
    on the ground, unless gravity lifts it."""
    bob = mbd.Body("bob", mbd.Inertia.sphere(radius=0.1, mass=2.0), position=[0.5, 0.0, 0.0])
    place = dict(point=[0.0, 0.0, 0.0], axis=[0.0, -1.0, 0.0])
    hinge = mbd.Revolute("hinge", "ground", bob, **place, limits=[0.0, 1.0])
    limit = mbd.JointLimit(hinge)
    free, held = (mbd.Mechanism([bob], [hinge], contacts=x) for x in ([], [limit]))
    for angle, rate, acts in ((0.5, 0.0, False), (0.0, 0.0, True), (0.0, 1.0, False)):
        state = mbd.place_bodies(free, {"hinge": angle}, rates={"hinge": rate})
        expected = accelerations(free, state)
        if acts:
            with pytest.raises(Exception, match="presses or strikes"):
                accelerations(held, state)
        else:
            np.testing.assert_allclose(accelerations(held, state), expected, rtol=1e-12)
    ball = mbd.Body("ball", mbd.Inertia.sphere(radius=0.1, mass=1.0), position=[0.0, 0.0, 0.1])
    floor = mbd.Contact("floor", "ground", ball, mbd.HalfSpace(), mbd.Sphere(0.1))
    lifted = mbd.Mechanism([ball], contacts=[floor], gravity=[0.0, 0.0, 1.0])
    np.testing.assert_allclose(accelerations(lifted, lifted.state()), [0, 0, 1, 0, 0, 0])
    with pytest.raises(Exception, match="presses or strikes"):
        accelerations(mbd.Mechanism([ball], contacts=[floor]), lifted.state())
