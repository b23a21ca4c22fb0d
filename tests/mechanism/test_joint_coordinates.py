"""Coordinates of joints: their rates against differences, turns that are counted, motions that are
prescribed, and angles where they lose their meaning."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import (
    BOX,
    CAROUSEL,
    FRAME,
    KINDS,
    PITCH,
    TIME,
    UNTURNED,
    bodies_of,
    joint_of,
    product,
    slide,
    turn,
)

import jaxmbd as mbd
from jaxmbd import Pose

COORDINATES = [kind for kind in KINDS if KINDS[kind][2]]


@pytest.mark.parametrize("kind", COORDINATES, ids=lambda kind: kind.__name__)
def test_rates_are_those_of_differences(kind):
    rng = np.random.default_rng(4)
    joint = joint_of(kind, rng)
    mechanism = mbd.Mechanism(bodies_of(joint, rng), [joint])
    state = mechanism.state()
    step = 1e-5
    moved = jnp.stack([mechanism.retract(state.q, s * step * state.v) for s in (1, -1)])
    x = mechanism.joint_coordinates(moved, "joint")
    rates = jax.jit(lambda q, v: mbd.reports.joint_rates(mechanism, q, v, "joint"))(
        state.q, state.v
    )
    assert rates.shape == (joint.count(),)
    np.testing.assert_allclose(rates, (x[0] - x[1]) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("bend", [0.1, 0.7])
def test_shafts_that_are_bent(bend):
    """With both shafts held, a constant-velocity joint turns them alike, and a universal joint by
    tan(second) = tan(first) / cos(bend)."""
    frames = {"frame_a": FRAME, "frame_b": FRAME}
    even, cross = (
        mbd.ConstantVelocity("e", "a", "b", **frames),
        mbd.Universal("c", "a", "b", **frames),
    )
    for first in np.linspace(-3.0, 3.0, 7):
        a = Pose(slide(), turn(2, first))
        second = np.arctan2(np.sin(first), np.cos(first) * np.cos(bend))
        for joint, angle in ((even, first), (cross, second)):
            b = Pose(slide(), product(turn(1, bend), turn(2, angle)))
            np.testing.assert_allclose(joint.constraint(a, b, TIME), 0, atol=1e-12)
            off = Pose(slide(), product(turn(1, bend), turn(2, angle + 0.01)))
            assert abs(joint.constraint(a, off, TIME)[3]) > 1e-3


def test_gear_counts_no_turns():
    frames = {"frame_a": FRAME, "frame_b": FRAME}
    first, second = (mbd.Revolute(n, "ground", n, **frames) for n in "ab")
    gear = mbd.Gear("gear", first, second, teeth=(20, 35), phase=0.3)
    rack = mbd.RackAndPinion("rack", mbd.Prismatic("x", "ground", "a", **frames), second,
                             radius=0.15, offset=0.4)  # fmt: skip
    here = FRAME
    for phi in (-31.0, 0.2, 500.0):
        for error in (0.0, 0.001):
            a = Pose(slide(), turn(2, phi + error))
            b = Pose(slide(), turn(2, (0.3 - 20 * phi) / 35))
            row = gear.equations((here, a, here, b), TIME)
            np.testing.assert_allclose(row, [error], atol=1e-12)
            a = Pose(slide(z=0.15 * phi + 0.4 + error), UNTURNED)
            row = rack.equations((here, a, here, Pose(slide(), turn(2, phi))), TIME)
            np.testing.assert_allclose(row, [error], atol=1e-12)


class Ramp(eqx.Module):
    speed: jax.Array

    def __call__(self, t):
        return self.speed * t + 0.3 * jnp.sin(2.0 * t)


def follows(body, joints):
    """A motion of one driven body, from its state at t = 0."""
    mechanism = mbd.Mechanism([body], joints)
    ts = jnp.linspace(0.0, 1.0, 6)
    sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=1.0, dt=1e-2,
                       projection=mbd.Projection(), saveat=diffrax.SaveAt(steps=20))  # fmt: skip
    np.testing.assert_allclose(sol.t, ts[1:], atol=1e-12)
    return mechanism, sol


@pytest.mark.slow
def test_driven_joint_follows():
    """To 1e-10: an angle over several turns."""
    ramp = Ramp(jnp.asarray(15.0))
    body = mbd.Body("b", BOX, angular_velocity=[0, 0, 15.6])
    hinge = mbd.Revolute("hinge", "ground", body, point=[0, 0, 0], axis=[0, 0, 1.0])
    mechanism, sol = follows(body, [hinge, mbd.PrescribedMotion("turn", hinge, ramp)])
    expected = jax.jit(jax.vmap(ramp))(sol.t)
    path = mbd.reports.joint_path(mechanism, "hinge", sol.t, sol.q, sol.v)[:, 0]
    path = path + jnp.round((expected[0] - path[0]) / (2 * np.pi)) * 2 * np.pi
    np.testing.assert_allclose(path, expected, atol=1e-10)
    rates = mbd.reports.joint_rates(mechanism, sol.q, sol.v, "hinge")[:, 0]
    np.testing.assert_allclose(rates, jax.jit(jax.vmap(jax.grad(ramp)))(sol.t), atol=1e-10)


@pytest.mark.slow
def test_driven_pose_follows():
    """To 1e-10."""
    at, rate = jax.jvp(CAROUSEL, (TIME,), (jnp.ones(()),))
    body = mbd.Body("b", BOX, **at._asdict(), velocity=rate.position,
                    angular_velocity=[0, 0, CAROUSEL.speed])  # fmt: skip
    lead = mbd.PrescribedPose("lead", "ground", body, motion=CAROUSEL, frame_a=FRAME, frame_b=FRAME)
    mechanism, sol = follows(body, [lead])
    pose, expected = mechanism.pose(sol.q, "b"), jax.jit(jax.vmap(CAROUSEL))(sol.t)
    np.testing.assert_allclose(pose.position, expected.position, atol=1e-10)
    np.testing.assert_allclose(pose.orientation, expected.orientation, atol=1e-10)


@pytest.mark.slow
def test_turns_are_counted():
    """With the rates however many turns pass between samples; without, below half a turn each."""
    body = mbd.Body("b", BOX)
    joint = mbd.Cylindrical(
        "j", "ground", body, point=[0, 0, 0], axis=[0, 0, 1.0], limits=[(-1.0, 1.0), (-5.0, 40.0)]
    )
    mechanism = mbd.Mechanism([body], [joint])

    def exact(t):
        return jnp.stack([0.2 * t, 30.0 * t + 8.0 * jnp.sin(t)])

    def state(t):
        (z, phi), (dz, dphi) = exact(t), jax.jit(jax.jacfwd(exact))(t)
        q = jnp.concatenate([slide(z=z), turn(2, phi)])
        return q, jnp.concatenate([slide(z=dz), slide(z=dphi)])

    for ts, with_rates in (
        (jnp.linspace(0.0, 8.0, 17), True),
        (jnp.linspace(0.0, 8.0, 120), False),
    ):
        q, v = jax.jit(jax.vmap(state))(ts)
        path = mbd.reports.joint_path(mechanism, "j", ts, q, v if with_rates else None)
        np.testing.assert_allclose(path, jax.jit(jax.vmap(exact))(ts), atol=1e-10)
    beyond = joint.limit_violation(path)
    np.testing.assert_allclose(beyond[-1], [0.6, path[-1, 1] - 40.0], atol=1e-10)
    np.testing.assert_allclose(beyond[0], 0, atol=0)


@pytest.mark.parametrize("joint", [mbd.Revolute, mbd.Universal])
def test_angles_without_meaning_have_finite_derivatives(joint):
    """As of a hinge that is torn open until the x axis of b lies along the axis of a."""
    identity = mbd.Pose(jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0]))
    hinge = joint("hinge", "a", "b", frame_a=identity, frame_b=identity)

    def first_angle(p):
        return hinge.coordinates(identity, mbd.Pose(jnp.zeros(3), p))[0]

    # Turns x into z and y into x, without rounding.
    value, slope = jax.jit(jax.value_and_grad(first_angle))(jnp.array([0.5, -0.5, -0.5, -0.5]))
    np.testing.assert_array_equal(value, 0.0)
    assert np.all(np.isfinite(slope))


def slopes_of(fn, x):
    """The Jacobian in both modes."""
    return jax.jit(lambda x: (jax.jacfwd(fn)(x), jax.jacrev(fn)(x)))(x)


def all_finite(arrays):
    return all(np.all(np.isfinite(x)) for x in arrays)


@pytest.mark.parametrize("beta", [np.pi / 2, -np.pi / 2, 1.2])
def test_angles_of_a_ball_joint_give_its_rotation(beta):
    """Where the first and the last have one axis too: there the sum or the difference is right."""
    identity = mbd.Pose(jnp.zeros(3), UNTURNED)
    ball = mbd.Spherical("ball", "a", "b", frame_a=identity, frame_b=identity)
    p = product(turn(0, 0.4), turn(1, beta), turn(2, -2.3))
    angles = ball.coordinates(identity, mbd.Pose(jnp.zeros(3), p))
    again = product(*map(turn, range(3), angles))
    np.testing.assert_allclose(
        mbd.rotations.quaternion_to_matrix(again), mbd.rotations.quaternion_to_matrix(p), atol=1e-14
    )
    assert all_finite(slopes_of(lambda p: ball.coordinates(identity, mbd.Pose(jnp.zeros(3), p)), p))


def test_angles_of_a_ball_joint_locked_without_rounding():
    identity = mbd.Pose(jnp.zeros(3), UNTURNED)
    ball = mbd.Spherical("ball", "a", "b", frame_a=identity, frame_b=identity)
    angles = lambda p: ball.coordinates(identity, mbd.Pose(jnp.zeros(3), p))  # noqa: E731
    locked = jnp.array([0.5, 0.5, 0.5, 0.5])  # y into z, z into x
    found = angles(locked)
    np.testing.assert_allclose(found, [0.0, np.pi / 2, np.pi / 2], atol=1e-15)
    assert all_finite(slopes_of(angles, locked))
    # At the identity the rates of the angles are the angular velocity.
    at_rest = jax.jvp(angles, (UNTURNED,), (jnp.array([0.0, 0.1, 0.2, 0.3]),))[1]
    np.testing.assert_allclose(at_rest, [0.2, 0.4, 0.6], atol=1e-15)


def test_universal_by_its_axes():
    """The cross turns in a about the first axis, b on the cross about the second."""
    first, second = np.array([0.6, 0.8, 0.0]), np.array([0.0, 0.0, -1.0])
    body = mbd.Body("b", BOX)
    joint = mbd.Universal("u", "ground", body, point=[0.1, 0.2, 0.3], axes=[first, second])
    mechanism = mbd.Mechanism([body], [joint])
    np.testing.assert_allclose(
        mechanism.joint_coordinates(mechanism.state().q, "u"), [0.0, 0.0], atol=1e-15
    )
    p = product(
        mbd.rotations.quaternion_exp(0.5 * first), mbd.rotations.quaternion_exp(-1.1 * second)
    )
    arm = mbd.rotations.quaternion_rotate(p, jnp.array([-0.1, -0.2, -0.3]))
    q = jnp.concatenate([jnp.array([0.1, 0.2, 0.3]) + arm, p])
    np.testing.assert_allclose(mechanism.constraint(q, TIME), 0, atol=1e-15)
    np.testing.assert_allclose(mechanism.joint_coordinates(q, "u"), [0.5, -1.1], atol=1e-14)


def test_limits():
    body = mbd.Body("b", BOX)
    joint = mbd.Revolute("j", "ground", body, point=[0, 0, 0], axis=[0, 0, 1.0], limits=(2.5, 3.5))
    mechanism = mbd.Mechanism(
        [body],
        [
            joint,
        ],
    )
    angles = np.array([2.4, 2.6, -3.0, -2.7, 3.6])
    q = jnp.stack([jnp.concatenate([slide(), turn(2, phi)]) for phi in angles])
    expected = [[-0.1], [0], [0], [2 * np.pi - 2.7 - 3.5], [0.1]]
    np.testing.assert_allclose(mbd.reports.limit_violation(mechanism, q, "j"), expected, atol=1e-12)
    free = mbd.Mechanism(
        [body], [mbd.Revolute("j", "ground", body, point=[0, 0, 0], axis=[0, 0, 1.0])]
    )
    np.testing.assert_allclose(mbd.reports.limit_violation(free, q, "j"), 0, atol=0)


def test_screw_counts_no_turns():
    """The row holds over many turns, and a wrong thread shows."""
    joint = mbd.Screw("s", "a", "b", pitch=PITCH,
                      frame_a=Pose(slide(), UNTURNED), frame_b=Pose(slide(), UNTURNED))  # fmt: skip
    ground = FRAME
    for z in (-3.7, 0.02, 11.1):
        there = Pose(slide(z=z), turn(2, 2 * np.pi * z / PITCH))
        np.testing.assert_allclose(joint.constraint(ground, there, TIME), 0, atol=1e-12)
        left = Pose(slide(z=z), turn(2, 2 * np.pi * (z + 0.01) / PITCH))
        np.testing.assert_allclose(joint.constraint(ground, left, TIME)[4], 0.01, rtol=1e-9)
