"""Reactions of joints and the audit of energy, against closed forms."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import motion
from reported import BOX, TIME, G, X, Y, Z, four_bar

import jaxmbd as mbd
from jaxmbd._compiler import to_jax
from jaxmbd._mechanism.reports.violation import dense_jacobian


def test_all_reactions_hold_the_bodies():
    """J^T lam is the sum of the reactions, whatever the joints and the pose are."""
    a, b = (mbd.Body(name, BOX, position=r) for name, r in (("a", X), ("b", [2.0, 1.0, 0.0])))
    joints = [
        mbd.Revolute("hinge", "ground", a, point=Y, axis=Z),
        mbd.Universal("cross", a, b, point=X + Y, axes=[X, Y]),
    ]
    mechanism = mbd.Mechanism([a, b], joints)
    rng = np.random.default_rng(0)
    q = np.reshape(np.asarray(mechanism.state().q) + 0.05 * rng.normal(size=14), (7, 2))
    q[3:] /= np.linalg.norm(q[3:], axis=0)
    lam = rng.normal(size=9)

    @jax.jit
    def sums(q):
        total = {body.name: jnp.zeros(6) for body in mechanism.bodies}
        for joint in mechanism.joints:
            for name in set(joint.bodies) - {"ground"}:
                wrench = mbd.reports.reactions(
                    mechanism, mbd.State(0.0, q, jnp.zeros(12)), joint.name, lam, on=name,
                    point=mechanism.pose(q, name).position,
                )  # fmt: skip
                total[name] += jnp.concatenate(wrench)
        J = dense_jacobian(mechanism, TIME, q, jnp.zeros(12))
        return jnp.stack([*total.values()], axis=1).ravel(), J.T @ lam

    np.testing.assert_allclose(*sums(q.ravel()), atol=1e-12)


class Skate(mbd.joints.AbstractJoint):
    """A blade along the x axis of b: no velocity across it, v_y = 0."""

    rows = 0
    directed = False

    def constraint(self, a, b, t):
        return jnp.zeros(0, a.position.dtype)

    def nonholonomic(self, a, b, twist_a, twist_b, t):
        return b.local_direction(twist_b.linear)[1:2]


def test_reaction_of_a_nonholonomic_joint():
    """The side force of a blade in the centre of a sled that turns at a constant rate is
    m v omega."""
    speed, omega = 2.0, 0.7
    sled = mbd.Body("sled", BOX, velocity=[speed, 0, 0], angular_velocity=[0, 0, omega])
    mechanism = mbd.Mechanism([sled], [Skate("skate", "ground", sled, point=[0, 0, 0])],
                              gravity=[0, 0, 0])  # fmt: skip
    state, (_, lam) = mechanism.state(), motion(mechanism)
    found = jax.jit(lambda state: mbd.reports.reactions(mechanism, state, "skate", lam))(state)
    np.testing.assert_allclose(found.force, [0, 1.3 * speed * omega, 0], atol=1e-12)
    np.testing.assert_allclose(found.torque, 0, atol=1e-12)
    with pytest.raises(ValueError, match="A `State` has no multipliers: give `multipliers`"):
        mbd.reports.reactions(mechanism, state, "skate")


@pytest.mark.slow
def test_unique_parts_of_reactions():
    """Loads in the plane of the four-bar are unique; those across it are not, and other
    multipliers of the same motion change them alone."""
    mechanism = four_bar()
    state = mechanism.state()
    _, lam = motion(mechanism)
    unique = mbd.reports.unique_reactions(mechanism, state, "B", frame="crank")
    np.testing.assert_array_equal(unique.force, [True, True, False])
    np.testing.assert_array_equal(unique.torque, [False, False, True])
    J = np.asarray(dense_jacobian(mechanism, TIME, state.q, state.v))
    null = np.linalg.svd(J)[0][:, 17:]
    other = lam + 10 * null @ np.array([1.0, 2.0, -1.0])
    first, second = (
        mbd.reports.reactions(mechanism, state, "B", x, frame="crank") for x in (lam, other)
    )
    for x, y, same in zip(first, second, unique, strict=True):
        np.testing.assert_array_equal(np.abs(x - y) < 1e-9, same)


def test_audit_of_a_pendulum():
    """A box on a ball joint, with a spring and a damper from its end to the ground. What the damper
    takes is missing in the energy; gravity, springs and joints take nothing. d(momentum)/dt is all
    of the forces from outside."""
    body = mbd.Body("body", BOX, position=[0.5, 0, 0])
    ball = mbd.Spherical("ball", "ground", body, point=[0, 0, 0])
    spring = mbd.Spring("spring", "ground", body, points=([1, 1, 0], [1, 0, 0]), stiffness=20.0,
                        rest_length=0.5)  # fmt: skip
    damper = mbd.Spring("damper", "ground", body, points=([1, -1, 0], [1, 0, 0]), stiffness=0.0,
                        damping=3.0, rest_length=0.0)  # fmt: skip
    mechanism = mbd.Mechanism([body], [ball], [spring, damper])

    def pull(q, v):
        parts = [
            e.wrenches(mechanism.frames(e, q), mechanism.frame_twists(e, q, v), TIME, None)[1].force
            for e in mechanism.forces
        ]
        return sum(parts)

    @jax.jit
    def motion():
        sol = mbd.simulate(
            mechanism, mbd.UdwadiaKalaba(), mechanism.state(), dt=2e-3, num_steps=150,
            saveat=diffrax.SaveAt(t0=True, steps=3), throw=False,
        )  # fmt: skip
        found = mbd.reports.audit(mechanism, sol)
        ball = mbd.reports.reactions(mechanism, sol, "ball")
        outside = ball.force + jax.vmap(pull)(sol.q, sol.v)
        return sol.t, found, found.given, found.imbalance, outside

    t, found, given, imbalance, outside = jax.device_get(motion())
    np.testing.assert_allclose(imbalance, 0, atol=1e-5)
    assert abs(found.work[-1]) > 0.1  # so that the balance is no coincidence
    assert np.all(found.powers["damper"] <= 0)
    moving = found.kinetic + found.gravitational
    np.testing.assert_allclose(sum(given.values()), moving - moving[0], atol=1e-5)
    np.testing.assert_allclose(found.constraint_power, 0, atol=1e-7)
    rate = np.gradient(found.momentum, t, axis=0)[1:-1]
    weight = np.array([0, 0, -1.3 * G])
    np.testing.assert_allclose(rate, (outside + weight)[1:-1], atol=0.05)


def test_audit_of_a_free_pair():
    """Momenta of two bodies in closed form, a batch of two solutions."""
    rng = np.random.default_rng(1)
    r, v, w = rng.normal(size=(3, 2, 3))
    bodies = [
        mbd.Body(name, BOX, position=r[i], velocity=v[i], angular_velocity=w[i])
        for i, name in enumerate("ab")
    ]
    mechanism = mbd.Mechanism(bodies)
    state = mechanism.state()
    zero, twice = to_jax(np.zeros((2, 1))), lambda x: to_jax(np.tile(x, (2, 1, 1)))
    sol = mbd.Solution(
        t=zero, q=twice(state.q), v=twice(state.v), multipliers=to_jax(np.zeros((2, 1, 0))),
        phi_norm=zero, phidot_norm=zero, ys=None, stats={}, result=mbd.RESULTS.successful,
    )  # fmt: skip
    found = jax.jit(lambda sol: mbd.reports.audit(mechanism, sol))(sol)
    spin = w @ np.asarray(BOX.tensor)
    for value, expected in (
        (found.momentum, 1.3 * v.sum(0)),
        (found.angular_momentum, (1.3 * np.cross(r, v) + spin).sum(0)),
        (found.center, r.mean(0)),
    ):
        np.testing.assert_allclose(value, np.broadcast_to(expected, (2, 1, 3)), rtol=1e-12)
    kinetic = 0.65 * np.sum(v**2) + 0.5 * np.sum(w * spin)
    np.testing.assert_allclose(found.kinetic, np.full((2, 1), kinetic), rtol=1e-12)
    weight = 1.3 * G * r[:, 2].sum()
    np.testing.assert_allclose(found.gravitational, np.full((2, 1), weight), rtol=1e-12)
    np.testing.assert_array_equal(found.work, np.zeros((2, 1)))
