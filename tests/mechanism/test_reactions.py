"""Reactions of joints and the audit of energy, against closed forms and published values."""

import json

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reported import BOX, TIME, G, Y, Z, four_bar, multipliers

import jaxmbd as mbd
from jaxmbd.mechanism.reports.rows import dense_jacobian

# --- reactions ----------------------------------------------------------------------------------


def heavy_top(point):
    """The top of the reference in one of its states, its body frame in the centre of mass."""
    R = np.array(point["R"])
    top = mbd.Body(
        "top",
        mbd.Inertia(15.0, [0.234375, 0.46875, 0.234375]),
        position=point["x_com"],
        orientation=R,
        velocity=point["v_com"],
        angular_velocity=R @ point["W_body"],
    )
    return mbd.Mechanism([top], [mbd.Spherical("ball", "ground", top, point=[0, 0, 0])])


START = dict(R=np.eye(3), x_com=[0, 1, 0], v_com=[0, 0, 0], W_body=[0, 0, 0])


@pytest.mark.slow
def test_reaction_of_the_heavy_top(shared):
    """Force of the joint on the body at published states, as one batch; in the axes of the body,
    on the ground, and about the centre of mass."""
    reference = json.loads((shared / "references" / "heavy_top.json").read_text())["reference"]
    points = reference[:4]
    mechanism = heavy_top(START)
    states = [heavy_top(point).state() for point in points]
    q, v = jnp.stack([s.q for s in states]), jnp.stack([s.v for s in states])
    lam = jax.jit(jax.vmap(lambda q, v: multipliers(mechanism, mbd.State(0.0, q, v))))(q, v)
    expected = np.array([point["reaction_on_body"] for point in points])
    found = mbd.reports.reactions(mechanism, 0.0, q, lam, "ball")
    np.testing.assert_allclose(found.force, expected, rtol=1e-7)
    np.testing.assert_allclose(found.torque, 0, atol=1e-9)
    ground = mbd.reports.reactions(mechanism, 0.0, q, lam, "ball", on="ground")
    np.testing.assert_allclose(ground.force, -expected, rtol=1e-7)
    R = np.array([point["R"] for point in points])
    local = mbd.reports.reactions(mechanism, 0.0, q, lam, "ball", frame="top")
    np.testing.assert_allclose(local.force, np.einsum("kij,ki->kj", R, expected), rtol=1e-6)
    x_com = np.array([point["x_com"] for point in points])
    about = mbd.reports.reactions(mechanism, 0.0, q, lam, "ball", point=x_com)
    np.testing.assert_allclose(about.torque, np.cross(-x_com, expected), rtol=1e-6, atol=1e-6)


def beam(load=0.3):
    """A beam of 2 m at rest on a hinge and a roller, its centre of mass off its middle."""
    body = mbd.Body("beam", mbd.Inertia(4.0, np.diag([0.1, 1.0, 1.0])), position=[load, 0, 0])
    hinge = mbd.Revolute("hinge", "ground", body, point=[-1, 0, 0], axis=Y)
    roller = mbd.PointOnPlane("roller", "ground", body, point=[1, 0, 0], axis=Z)
    return mbd.Mechanism([body], [hinge, roller])


@pytest.mark.slow
def test_reactions_of_a_beam():
    mechanism = beam()
    q, lam = mechanism.state().q, multipliers(mechanism)
    assert mbd.reports.mobility(mechanism).indeterminate == ()
    left, right = (
        mbd.reports.reactions(mechanism, 0.0, q, lam, name) for name in ("hinge", "roller")
    )
    np.testing.assert_allclose(left.force, [0, 0, 4 * G * 0.7 / 2], atol=1e-10)
    np.testing.assert_allclose(right.force, [0, 0, 4 * G * 1.3 / 2], atol=1e-10)
    np.testing.assert_allclose(left.torque, 0, atol=1e-10)
    # About the other support the force has its arm.
    moved = mbd.reports.reactions(mechanism, 0.0, q, lam, "hinge", point=[1.0, 0, 0])
    np.testing.assert_allclose(moved.torque, [0, 2 * 4 * G * 0.7 / 2, 0], atol=1e-10)


@pytest.mark.slow
def test_derivative_of_a_static_reaction():
    """m g (1 + load) / 2 on the roller, with respect to the place of the load."""

    def roller(load):
        mechanism = beam(load)
        q, lam = mechanism.state().q, multipliers(mechanism)
        return mbd.reports.reactions(mechanism, 0.0, q, lam, "roller").force[2]

    np.testing.assert_allclose(jax.jit(jax.grad(roller))(jnp.array(0.3)), 4 * G / 2, rtol=1e-10)


@pytest.mark.parametrize(
    "mode",
    [jax.jacrev, pytest.param(jax.jacfwd, marks=pytest.mark.slow)],
    ids=["reverse", "forward"],
)
def test_derivative_of_a_reaction(mode):
    """With respect to the pose at given multipliers, in the axes of the beam, against
    differences."""
    mechanism = beam()
    rng = np.random.default_rng(3)
    q, lam = mechanism.state().q, jnp.asarray(rng.normal(size=6))

    def roller(q):
        wrench = mbd.reports.reactions(
            mechanism, 0.0, q, lam, "hinge", frame="beam", point=np.ones(3)
        )
        return jnp.concatenate(wrench)

    d, h = jnp.asarray(rng.normal(size=7)), 1e-5
    expected = (roller(q + h * d) - roller(q - h * d)) / (2 * h)
    np.testing.assert_allclose(mode(roller)(q) @ d, expected, atol=1e-8)


def test_all_reactions_hold_the_bodies():
    """J^T lam is the sum of the reactions, whatever the joints and the pose are."""
    mechanism = four_bar()
    rng = np.random.default_rng(0)
    q = mechanism.state().q + 0.05 * rng.normal(size=21)
    q = mechanism.coordinates.normalise(q)
    lam = jnp.asarray(rng.normal(size=20))
    J = dense_jacobian(mechanism, TIME, q, jnp.zeros(18))
    total = np.zeros((6, 3))
    for joint in mechanism.joints:
        for name in joint.bodies:
            if name != "ground":
                column = [body.name for body in mechanism.bodies].index(name)
                origin = mechanism.pose(q, name).position
                wrench = mbd.reports.reactions(
                    mechanism, 0.0, q, lam, joint.name, on=name, point=origin
                )
                total[:, column] += np.concatenate(wrench)
    np.testing.assert_allclose(total.ravel(), J.T @ lam, atol=1e-12)


class Skate(mbd.AbstractJoint):
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
    state, lam = mechanism.state(), multipliers(mechanism)
    found = mbd.reports.reactions(mechanism, 0.0, state.q, lam, "skate", v=state.v)
    np.testing.assert_allclose(found.force, [0, 1.3 * speed * omega, 0], atol=1e-12)
    np.testing.assert_allclose(found.torque, 0, atol=1e-12)
    with pytest.raises(ValueError, match='"skate" has nonholonomic rows: its reaction needs `v`'):
        mbd.reports.reactions(mechanism, 0.0, state.q, lam, "skate")


@pytest.mark.slow
def test_unique_parts_of_reactions():
    """Loads in the plane of the four-bar are unique; those across it are not, and other
    multipliers of the same motion change them alone."""
    mechanism = four_bar()
    state = mechanism.state()
    lam = multipliers(mechanism, solver=mbd.Pseudoinverse())
    unique = mbd.reports.unique_reactions(mechanism, state, "B", frame="crank")
    np.testing.assert_array_equal(unique.force, [True, True, False])
    np.testing.assert_array_equal(unique.torque, [False, False, True])
    J = np.asarray(dense_jacobian(mechanism, TIME, state.q, state.v))
    null = np.linalg.svd(J)[0][:, 17:]
    other = lam + 10 * null @ np.array([1.0, 2.0, -1.0])
    first, second = (
        mbd.reports.reactions(mechanism, 0.0, state.q, x, "B", frame="crank") for x in (lam, other)
    )
    for x, y, same in zip(first, second, unique, strict=True):
        np.testing.assert_array_equal(np.abs(x - y) < 1e-9, same)


def test_what_reactions_refuse():
    mechanism = beam()
    q, lam = mechanism.state().q, jnp.zeros(6)
    with pytest.raises(ValueError, match='There is no joint "x"'):
        mbd.reports.reactions(mechanism, 0.0, q, lam, "x")
    with pytest.raises(ValueError, match='`frame`.* be a body of "hinge", which are "ground", '):
        mbd.reports.reactions(mechanism, 0.0, q, lam, "hinge", frame="rod")


# --- audit --------------------------------------------------------------------------------------


def double_pendulum():
    """Two boxes on ball joints, and a spring from the end to the ground."""
    upper = mbd.Body("upper", BOX, position=[0.5, 0, 0])
    lower = mbd.Body("lower", BOX, position=[1.5, 0, 0], velocity=[0, 0, 0])
    joints = [
        mbd.Spherical("shoulder", "ground", upper, point=[0, 0, 0]),
        mbd.Spherical("elbow", upper, lower, point=[1, 0, 0]),
    ]
    spring = mbd.Spring("spring", "ground", lower, points=([2, 1, 0], [2, 0, 0]), stiffness=20.0,
                        rest_length=0.5)  # fmt: skip
    damper = mbd.Spring("damper", "ground", lower, points=([2, -1, 0], [2, 0, 0]), stiffness=0.0,
                        damping=3.0, rest_length=0.0)  # fmt: skip
    return mbd.Mechanism([upper, lower], joints, [spring, damper])


@pytest.fixture(scope="module")
def swing():
    mechanism = double_pendulum()
    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        mechanism.state(),
        t1=0.3,
        dt=2e-3,
        saveat=diffrax.SaveAt(t0=True, steps=1),
    )
    return mechanism, sol


def test_audit_of_a_pendulum(swing):
    """What the damper takes is missing in the energy; gravity, springs and joints take nothing."""
    mechanism, sol = swing
    found = mbd.reports.audit(mechanism, sol)
    np.testing.assert_allclose(found.imbalance, 0, atol=1e-5)
    assert abs(found.work[-1]) > 0.1  # so that the balance is no coincidence
    assert np.all(found.powers["damper"] <= 0)
    moving = found.kinetic + found.gravitational
    np.testing.assert_allclose(sum(found.given.values()), moving - moving[0], atol=1e-5)
    np.testing.assert_allclose(found.constraint_power, 0, atol=1e-7)
    # d(momentum)/dt is all of the forces from outside.
    shoulder = mbd.reports.reactions(mechanism, sol.t, sol.q, sol.multipliers, "shoulder").force
    ends = mechanism.pose(sol.q, "lower").position
    assert shoulder.shape == (151, 3) and ends.shape == (151, 3)
    weight = np.array([0, 0, -2 * 1.3 * G])
    rate = np.gradient(np.asarray(found.momentum), np.asarray(sol.t), axis=0)[1:-1]
    spring, damper = mechanism.forces

    def outside(q, v):
        pulls = [
            e.wrenches(mechanism.frames(e, q), mechanism.frame_twists(e, q, v), TIME, None)[1].force
            for e in (spring, damper)
        ]
        return sum(pulls)

    pull = np.asarray(jax.jit(jax.vmap(outside))(sol.q, sol.v))
    np.testing.assert_allclose(rate, (np.asarray(shoulder) + pull + weight)[1:-1], atol=0.05)
    assert "imbalance" in str(found)


def test_order_of_the_work():
    """The rule for the integral is of fourth order, also for uneven times."""
    from jaxmbd.mechanism.reports.audit import _integral

    errors = []
    for n in (20, 40):
        t = jnp.linspace(0, 1, n + 1) ** 1.2 * 2
        errors.append(np.max(np.abs(_integral(t, jnp.cos(3 * t)) - jnp.sin(3 * t) / 3)))
    assert errors[1] < errors[0] / 11


def test_audit_of_a_free_pair():
    """Momenta of two bodies in closed form, a batch of two solutions."""
    rng = np.random.default_rng(1)
    bodies = [
        mbd.Body(name, BOX, position=rng.normal(size=3), velocity=rng.normal(size=3),
                 angular_velocity=rng.normal(size=3))
        for name in "ab"
    ]  # fmt: skip
    mechanism = mbd.Mechanism(bodies)
    state = mechanism.state()
    zero = jnp.zeros((2, 1))
    sol = mbd.Solution(
        t=zero,
        q=jnp.broadcast_to(state.q, (2, 1, 14)),
        v=jnp.broadcast_to(state.v, (2, 1, 12)),
        multipliers=jnp.zeros((2, 1, 0)),
        phi_norm=zero,
        phidot_norm=zero,
        ys=None,
        stats={},
        result=mbd.RESULTS.successful,
    )
    found = mbd.reports.audit(mechanism, sol)
    linear = sum(1.3 * b.twist.linear for b in bodies)
    angular = sum(
        1.3 * np.cross(b.pose.position, b.twist.linear) + BOX.tensor @ b.twist.angular
        for b in bodies
    )
    kinetic = sum(
        0.65 * b.twist.linear @ b.twist.linear
        + 0.5 * b.twist.angular @ BOX.tensor @ b.twist.angular
        for b in bodies
    )
    weight = sum(1.3 * G * b.pose.position[2] for b in bodies)
    middle = sum(b.pose.position for b in bodies) / 2
    for value, expected in (
        (found.momentum, linear),
        (found.angular_momentum, angular),
        (found.center, middle),
    ):
        np.testing.assert_allclose(value, np.broadcast_to(expected, (2, 1, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.total, np.full((2, 1), kinetic + weight), rtol=1e-12)
    np.testing.assert_array_equal(found.work, np.zeros((2, 1)))
