"""Loops and ropes in contact, budgets of contact points, and bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_mechanisms import FLOOR, G, box, positions, run

import jaxmbd as mbd
from jaxmbd.mechanism.contact_rows import basis


@pytest.mark.slow
def test_loop_in_contact():
    """A four-bar in the xz plane, a redundant loop in space, whose coupler comes to rest on a ball
    that is fixed: rows below 1e-9, at rest."""
    points = [np.array(p) for p in ((0, 0, 0), (0.2, 0, 0.3), (0.9, 0, 0.5), (0.8, 0, 0))]
    bodies = []
    for name, a, b in zip(("crank", "coupler", "rocker"), points[:-1], points[1:], strict=True):
        length = np.linalg.norm(b - a)
        d = (b - a) / length
        turn = np.array([1 + d[2], 0.0, d[0], 0.0])
        inertia = mbd.Inertia.box(size=(0.05, 0.05, length), mass=1.0)
        place = dict(position=(a + b) / 2, orientation=turn / np.linalg.norm(turn))
        bodies.append(mbd.Body(name, inertia, **place))
    ends = ["ground", *bodies, "ground"]
    joints = [
        mbd.Revolute(f"hinge {i}", ends[i], ends[i + 1], point=p, axis=(0.0, 1.0, 0.0))
        for i, p in enumerate(points)
    ]
    pose = mbd.Pose(jnp.array([0.6, 0.0, 0.2]), jnp.array([1.0, 0.0, 0.0, 0.0]))
    shapes = mbd.Sphere(0.1), mbd.Capsule(0.02, 0.36)
    stop = mbd.Contact("stop", "ground", bodies[1], *shapes, frame_a=pose, friction=0.4)
    mechanism = mbd.Mechanism(bodies, joints, contacts=[stop])
    sol = run(mechanism, 2.0, 2e-3, every=10, projection=mbd.Projection())
    assert sol.phi_norm.max() < 1e-9
    gaps = jax.jit(jax.vmap(lambda q: mechanism.gap(q, 0.0)))(sol.q)
    assert np.min(gaps) > -1e-5
    assert np.asarray(sol.contact_force)[-1, :, 0].max() > 0
    np.testing.assert_allclose(sol.v[-1], 0.0, atol=1e-6)


def test_rows_of_a_rope():
    """A user's gap: 1 m minus the distance of two bodies, with its rate by the velocities, and that
    at rest of a rope that grows."""
    inertia = mbd.Inertia.sphere(radius=0.1, mass=2.0)
    places = np.array([[0.1, 0.2, 0.0], [0.3, -0.1, -0.5]])
    bodies = [mbd.Body(name, inertia, position=x) for name, x in zip("ab", places, strict=True)]

    def slack(poses, t):
        d = poses[1].position - poses[0].position
        return 1.0 + 0.3 * t - jnp.sqrt(d @ d)

    mechanism = mbd.Mechanism(bodies, contacts=[mbd.Gap("rope", bodies, slack)])
    assert mechanism.contact_names == ("rope",)
    v = np.arange(12.0)

    @jax.jit
    def found(q, v):
        rows = mechanism.contact_rows(0.0, q)
        return rows.gap, rows.velocities(v), rows.drift

    gap, rate, drift = found(mechanism.state().q, v)
    d = places[1] - places[0]
    np.testing.assert_allclose(gap, [1.0 - np.linalg.norm(d)], rtol=1e-14)
    apart = v.reshape(6, 2)[:3] @ [-1.0, 1.0]
    np.testing.assert_allclose(rate, [[0.3 - apart @ d / np.linalg.norm(d)]], rtol=1e-13)
    np.testing.assert_allclose(drift, [[0.3]], rtol=1e-14)


@pytest.mark.slow
def test_budget():
    """Balls in a row on the floor: with room for all they rest; with less the result says so."""
    balls = [
        mbd.Body(f"{i}", mbd.Inertia.sphere(radius=0.1, mass=1.0), position=(0.3 * i, 0, 0.1))
        for i in range(4)
    ]
    pieces = [("ground", FLOOR), *((b, mbd.Sphere(0.1)) for b in balls)]
    contacts = mbd.contacts_among(pieces, law=mbd.ContactLaw(0.3))
    assert len(contacts) == 4 + 6 and contacts[0].body_a in ("ground", "0", "1", "2", "3")
    for budget, result in ((4, "successful"), (3, "contact_overflow")):
        mechanism = mbd.Mechanism(balls, contacts=contacts, contact_budget=budget)
        sol = run(mechanism, 0.1, 1e-2, throw=False)
        assert sol.result == getattr(mbd.RESULTS, result)
        assert sol.contact_force.shape[1] == len(mechanism.contact_names) == 10
    np.testing.assert_allclose(positions(mechanism, sol)[-1, 2].max(), 0.1, atol=1e-10)


@pytest.mark.slow
def test_overflow_in_the_last_step():
    """Of two balls there is room for the lower one. The other does not see the floor: in n steps it
    falls by g h^2 n (n + 1) / 2, through its gap of 15 mm in the sixth."""

    def fall(gap, steps, **options):
        inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0)
        balls = [
            mbd.Body("low", inertia, position=(0.0, 0.0, 0.105)),
            mbd.Body("high", inertia, position=jnp.stack([jnp.ones(()), jnp.zeros(()), 0.1 + gap])),
        ]
        contacts = [mbd.Contact(b.name, "ground", b, FLOOR, mbd.Sphere(0.1)) for b in balls]
        mechanism = mbd.Mechanism(balls, contacts=contacts, contact_budget=1)
        method = mbd.ContactImpulse(contact_solver=mbd.ProjectedGaussSeidel(10))
        state = mechanism.state()
        return mbd.simulate(mechanism, method, state, t0=0.0, num_steps=steps, dt=1e-2, **options)

    def height(gap):
        sol = fall(gap, 6, throw=False)
        return sol.q.reshape(7, 2)[2, 1], sol

    # The steps themselves are good, and the state is the one that overlaps.
    gaps = jnp.array([0.015, 0.021])
    z, sol = jax.jit(jax.vmap(height))(gaps)
    overflow = sol.result == mbd.RESULTS.contact_overflow
    successful = sol.result == mbd.RESULTS.successful
    np.testing.assert_array_equal([overflow, successful], [[True, False], [False, True]])
    np.testing.assert_array_equal(sol.stats["num_steps"], 6)
    np.testing.assert_allclose(z, 0.1 + gaps - 21 * G * 1e-4, rtol=1e-12)
    assert fall(gaps[0], 5).result == mbd.RESULTS.successful
    with pytest.raises(eqx.EquinoxRuntimeError, match="contact_budget"):
        jax.block_until_ready(fall(gaps[0], 6))


def test_tangents():
    """A right-handed orthonormal basis that begins with the normal, everywhere."""
    n = np.concatenate([np.random.default_rng(0).normal(size=(50, 3)), np.eye(3), -np.eye(3)])
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    B = np.asarray(jax.jit(basis)(n))
    np.testing.assert_allclose(B[:, 0], n, atol=1e-15)
    squares = np.broadcast_to(np.eye(3), B.shape)
    np.testing.assert_allclose(B @ np.swapaxes(B, 1, 2), squares, atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(B), 1.0, atol=1e-14)
    np.testing.assert_array_equal(B[52], np.eye(3)[[2, 0, 1]])


BODY, OTHER, CUBE = (
    box("box", (0.0, 0.0, 0.5)),
    box("other", (0.0, 0.0, 2.0)),
    mbd.Box((0.5, 0.5, 0.5)),
)
HINGE = mbd.Revolute("hinge", "ground", BODY, point=(0, 0, 0), axis=(0.0, 1.0, 0.0))


def on_floor(shape=CUBE, **options):
    return mbd.Contact("floor", "ground", BODY, FLOOR, shape, **options)


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: mbd.Contact("c", BODY, BODY, CUBE, CUBE), ValueError, '"c".*two bodies'),
        (lambda: on_floor(friction=-1.0), ValueError, "friction.*-1"),
        (lambda: mbd.Contact("c", BODY, OTHER, FLOOR, FLOOR), ValueError, "HalfSpace"),
        (lambda: on_floor(0.5), ValueError, "shape"),
        (lambda: on_floor(law=mbd.ContactLaw(), friction=0.3), ValueError, "either `law`"),
        (
            lambda: mbd.Mechanism([BODY], contacts=[mbd.Contact("c", BODY, OTHER, CUBE, CUBE)]),
            ValueError,
            "other",
        ),
        (lambda: mbd.Mechanism([BODY], contact_budget=0), ValueError, "contact_budget.*0"),
        (lambda: mbd.JointLimit(HINGE), ValueError, "limits"),
        (
            lambda: mbd.Gap("gap", [BODY], lambda poses, t: t, friction=0.3),
            TypeError,
            'Gap "gap" has no argument `friction`',
        ),
        (
            lambda: mbd.Gap("gap", [BODY], lambda poses, t: [t, t]),
            ValueError,
            '`fn` of Gap "gap".*jnp.stack',
        ),
    ],
)
def test_bad_input(make, error, words):
    with pytest.raises(error, match=words):
        make()
