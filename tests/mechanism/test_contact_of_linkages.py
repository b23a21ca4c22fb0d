"""Loops, joint limits, sliders and ropes in contact, against closed forms. Budgets of contact
points, and bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_mechanisms import FLOOR, G, box, positions, run

import jaxmbd as mbd
from jaxmbd.mechanism.contact_rows import basis


def four_bar(limits=None, contacts=(), **law):
    """Crank, coupler and rocker in the xz plane, a redundant loop in space."""
    points = [np.array(p) for p in ((0, 0, 0), (0.2, 0, 0.3), (0.9, 0, 0.5), (0.8, 0, 0))]
    bodies, joints = [], []
    for name, a, b in zip(("crank", "coupler", "rocker"), points[:-1], points[1:], strict=True):
        d = (b - a) / np.linalg.norm(b - a)
        turn = np.array([1 + d[2], 0.0, d[0], 0.0])
        bodies.append(
            mbd.Body(
                name,
                mbd.Inertia.box(size=(0.05, 0.05, np.linalg.norm(b - a)), mass=1.0),
                position=(a + b) / 2,
                orientation=turn / np.linalg.norm(turn),
            )
        )
    ends = ["ground", *bodies, "ground"]
    for i, p in enumerate(points):
        joints.append(
            mbd.Revolute(
                f"hinge {i}",
                ends[i],
                ends[i + 1],
                point=p,
                axis=(0.0, 1.0, 0.0),
                limits=limits if i == 0 else None,
            )
        )
    if limits is not None:
        contacts = [*contacts, mbd.JointLimit(joints[0], **law)]
    return mbd.Mechanism(
        bodies, joints, contacts=[c(bodies) if callable(c) else c for c in contacts]
    )


@pytest.mark.slow
def test_four_bar_hits_its_limit():
    """Rows of the redundant loop stay below 1e-9, the limit is kept, and the crank comes back with
    e times its rate."""
    mechanism = four_bar(limits=(-0.6, 0.35), restitution=0.5)
    sol = run(mechanism, 0.6, 1e-3, impacts=2, every=1, projection=mbd.Projection())
    angle = np.asarray(mechanism.joint_coordinates(sol.q, "hinge 0"))[:, 0]
    rate = np.asarray(mbd.reports.joint_rates(mechanism, sol.q, sol.v, "hinge 0"))[:, 0]
    hits = np.flatnonzero(np.asarray(sol.contact_force)[:, :, 0].max(axis=1) > 0)
    assert hits.size
    assert sol.phi_norm.max() < 1e-9
    assert angle.max() < 0.35 + 1e-5 and angle.min() > -0.6 - 1e-5
    first = hits[0]
    np.testing.assert_allclose(rate[first] / rate[first - 1], -0.5, rtol=3e-2)


@pytest.mark.slow
def test_loop_in_contact():
    """A four-bar whose coupler comes to rest on a ball that is fixed: rows below 1e-9, at rest."""

    def stop(bodies):
        pose = mbd.Pose(jnp.array([0.6, 0.0, 0.2]), jnp.array([1.0, 0.0, 0.0, 0.0]))
        return mbd.Contact(
            "stop",
            "ground",
            bodies[1],
            mbd.Sphere(0.1),
            mbd.Capsule(0.02, 0.36),
            frame_a=pose,
            friction=0.4,
        )

    mechanism = four_bar(contacts=[stop])
    sol = run(mechanism, 2.0, 2e-3, every=10, projection=mbd.Projection())
    assert sol.phi_norm.max() < 1e-9
    gaps = jax.jit(jax.vmap(lambda q: mechanism.gap(q, 0.0)))(sol.q)
    assert np.min(gaps) > -1e-5
    assert np.asarray(sol.contact_force)[-1, :, 0].max() > 0
    np.testing.assert_allclose(sol.v[-1], 0.0, atol=1e-6)


@pytest.mark.slow
def test_slider_with_dry_friction():
    """Guided along x by a joint and pressed on the floor: mu m g t less speed, to a stop."""
    body = box("slider", (0.0, 0.0, 0.5), mass=2.0, velocity=(1.0, 0.0, 0.0))
    guide = mbd.PointOnLine(
        "guide", "ground", body, points=((0.0, 0.0, 0.5), (0.0, 0.0, 0.5)), axis=(1.0, 0.0, 0.0)
    )
    floor = mbd.Contact("floor", "ground", body, FLOOR, mbd.Box((0.5, 0.5, 0.5)), friction=0.25)
    mechanism = mbd.Mechanism([body], [guide], contacts=[floor])
    sol = run(mechanism, 0.6, 1e-2, every=10)
    speed = np.maximum(1.0 - 0.25 * G * np.asarray(sol.t), 0.0)
    carried = np.asarray(sol.contact_force)[:, :, 0].sum(axis=1)
    # What the guide carries rubs nowhere.
    rub = np.asarray(sol.contact_force)[0, :, 1].sum()
    np.testing.assert_allclose(rub, -0.25 * carried[0], rtol=1e-8)
    if abs(carried[0] - 2.0 * G) < 1e-6:
        np.testing.assert_allclose(sol.v[:, 0], speed, atol=1e-8)
    assert sol.phi_norm.max() < 1e-9


def test_rope():
    """A user's gap: falls free until the rope is taut, and stays there, without bouncing."""
    body = mbd.Body("weight", mbd.Inertia.sphere(radius=0.1, mass=2.0), position=(0.0, 0.0, -0.5))

    def slack(poses, t):
        d = poses[1].position - poses[0].position
        return 1.0 - jnp.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2])

    rope = mbd.Gap("rope", ["ground", body], slack)
    mechanism = mbd.Mechanism([body], contacts=[rope])
    sol = run(mechanism, 0.6, 1e-2, every=20)
    z = positions(mechanism, sol)[:, 2, 0]
    np.testing.assert_allclose(z[0], -0.5 - G * 0.2 * 0.21 / 2, atol=1e-12)
    np.testing.assert_allclose(z[-1], -1.0, atol=1e-9)
    np.testing.assert_allclose(sol.contact_force[-1, 0, 0], 2.0 * G, rtol=1e-8)
    assert mechanism.contact_names == ("rope",)


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


def test_tangents(getkey):
    """A right-handed orthonormal basis that begins with the normal, everywhere."""
    n = jax.random.normal(getkey(), (50, 3))
    n = jnp.concatenate([n, jnp.eye(3), -jnp.eye(3)])
    n = n / jnp.linalg.norm(n, axis=1, keepdims=True)
    B = basis(n)
    np.testing.assert_allclose(B[:, 0], n, atol=1e-15)
    np.testing.assert_allclose(
        B @ jnp.swapaxes(B, 1, 2), np.broadcast_to(np.eye(3), B.shape), atol=1e-14
    )
    np.testing.assert_allclose(jnp.linalg.det(B), 1.0, atol=1e-14)
    np.testing.assert_allclose(basis(jnp.array([0.0, 0.0, 1.0])), np.eye(3)[[2, 0, 1]], atol=0)


def test_bad_input():
    body = box("box", (0.0, 0.0, 0.5))
    other = box("other", (0.0, 0.0, 2.0))
    cube = mbd.Box((0.5, 0.5, 0.5))
    with pytest.raises(ValueError, match='"floor".*two bodies'):
        mbd.Contact("floor", body, body, cube, cube)
    with pytest.raises(ValueError, match="friction.*-1"):
        mbd.Contact("floor", "ground", body, FLOOR, cube, friction=-1.0)
    with pytest.raises(ValueError, match="HalfSpace"):
        mbd.Contact("floor", body, other, FLOOR, FLOOR)
    with pytest.raises(ValueError, match="shape"):
        mbd.Contact("floor", "ground", body, FLOOR, 0.5)
    with pytest.raises(ValueError, match="either `law`"):
        mbd.Contact("c", "ground", body, FLOOR, cube, law=mbd.ContactLaw(), friction=0.3)
    with pytest.raises(ValueError, match="other"):
        mbd.Mechanism([body], contacts=[mbd.Contact("c", body, other, cube, cube)])
    with pytest.raises(ValueError, match="contact_budget.*0"):
        mbd.Mechanism([body], contact_budget=0)
    hinge = mbd.Revolute("hinge", "ground", body, point=(0, 0, 0), axis=(0.0, 1.0, 0.0))
    with pytest.raises(ValueError, match="limits"):
        mbd.JointLimit(hinge)
    with pytest.raises(TypeError, match='Gap "gap" has no argument `friction`'):
        mbd.Gap("gap", [body], lambda poses, t: poses[0].position[2], friction=0.3)
    with pytest.raises(ValueError, match='`fn` of Gap "gap".*jnp.stack'):
        mbd.Gap("gap", [body], lambda poses, t: [t, t])
    low = mbd.Mechanism(
        [box("low", (0.0, 0.0, 0.3))],
        contacts=[mbd.Contact("floor", "ground", "low", FLOOR, cube)],
    )
    sol = run(low, 0.02, 1e-2, throw=False)
    assert sol.result == mbd.RESULTS.overlapping_start
