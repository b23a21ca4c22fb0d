"""Coordinates of joints: turns that are counted, rows that need no count, angles by their axes and
where they lose their meaning."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import BOX, FRAME, PITCH, TIME, UNTURNED, WAVE, exp, product, slide, turn, turned

import jaxmbd as mbd
from jaxmbd import Pose

FRAMES = {"frame_a": FRAME, "frame_b": FRAME}
Z = [0.0, 0.0, 1.0]


def rows(joint, *poses):
    """Of a joint at several poses of its frames, or at one for frames that do not move."""
    axes = [0 if pose.position.ndim > 1 else None for pose in poses]
    found = eqx.filter_jit(jax.vmap(lambda *poses: joint.equations(poses, TIME), axes))
    return np.asarray(found(*poses))


@eqx.filter_jit
def coordinates(joint, a, b):
    """Of a joint at several poses of its second frame."""
    return jax.vmap(lambda b: joint.coordinates(a, b))(b)


def poses(*of):
    """Poses of many frames as one."""
    return Pose(*(np.stack(x) for x in zip(*of, strict=True)))


@pytest.mark.parametrize("bend", [0.1, 0.7])
def test_shafts_that_are_bent(bend):
    """With both shafts held, a constant-velocity joint turns them alike, and a universal joint by
    tan(second) = tan(first) / cos(bend)."""
    first = np.linspace(-3.0, 3.0, 7)
    second = np.arctan2(np.sin(first), np.cos(first) * np.cos(bend))
    a = poses(*(Pose(slide(), turn(2, x)) for x in first))
    for kind, angles in ((mbd.ConstantVelocity, first), (mbd.Universal, second)):
        found = [
            rows(
                kind("j", "a", "b", **FRAMES), a,
                poses(*(Pose(slide(), product(turn(1, bend), turn(2, x + e))) for x in angles)),
            )
            for e in (0.0, 0.01)
        ]  # fmt: skip
        np.testing.assert_allclose(found[0], 0, atol=1e-12)
        assert np.all(np.abs(found[1][:, 3]) > 1e-3)


ERRORS = np.array([0.0, 0.001, 0.0, 0.001, 0.0, 0.001])
MANY = np.array([-31.0, -31.0, 0.2, 0.2, 500.0, 500.0])


def turns_of(angles):
    return poses(*(Pose(slide(), turn(2, x)) for x in angles))


def shifts_of(z):
    return poses(*(Pose(slide(z=x), UNTURNED) for x in z))


def test_rows_that_count_no_turns():
    """They hold over many turns, and show an error."""
    first, second = (mbd.Revolute(n, "ground", n, **FRAMES) for n in "ab")
    guide = mbd.Prismatic("x", "ground", "a", **FRAMES)
    gear = mbd.Gear("gear", first, second, teeth=(20, 35), phase=0.3)
    meshing = turns_of((0.3 - 20 * MANY) / 35)
    rack = mbd.RackAndPinion("rack", guide, second, radius=0.15, offset=0.4)
    drive = mbd.PrescribedMotion("drive", first, WAVE)
    screw = mbd.Screw("s", "ground", "b", pitch=PITCH, **FRAMES)
    z = PITCH / (2 * np.pi) * MANY
    on_screw = poses(
        *(Pose(slide(z=z), turn(2, x)) for z, x in zip(z, MANY + 2 * np.pi / PITCH * ERRORS))
    )
    wave = 0.3 + 0.5 * np.sin(3.0 * TIME)
    full = 2 * np.pi * np.array([-5, -5, 0, 0, 80, 80])
    found = [
        rows(gear, FRAME, turns_of(MANY + ERRORS), FRAME, meshing)[:, 0],
        rows(rack, FRAME, shifts_of(0.15 * MANY + 0.4 + ERRORS), FRAME, turns_of(MANY))[:, 0],
        rows(drive, FRAME, turns_of(wave + full + ERRORS))[:, 0],
        rows(screw, FRAME, on_screw)[:, 4],
    ]
    np.testing.assert_allclose(found, np.tile(ERRORS, (4, 1)), atol=1e-12)


def test_turns_are_counted():
    """With the rates however many turns pass between samples; without, below half a turn each."""
    body = mbd.Body("b", BOX)
    limits = [(-1.0, 1.0), (-5.0, 40.0)]
    joint = mbd.Cylindrical("j", "ground", body, point=[0, 0, 0], axis=Z, limits=limits)
    mechanism = mbd.Mechanism([body], [joint])
    for samples, with_rates in ((17, True), (120, False)):
        t = np.linspace(0.0, 8.0, samples)
        z, phi = exact = np.stack([0.2 * t, 30.0 * t + 8.0 * np.sin(t)])
        o = 0 * t
        q = np.stack([o, o, z, np.cos(phi / 2), o, o, np.sin(phi / 2)], axis=1)
        v = np.stack([o, o, o + 0.2, o, o, 30.0 + 8.0 * np.cos(t)], axis=1)
        path = mbd.reports.joint_path(mechanism, "j", t, q, v if with_rates else None)
        np.testing.assert_allclose(path, exact.T, atol=1e-10)
    beyond = np.asarray(eqx.filter_jit(joint.limit_violation)(path))
    np.testing.assert_allclose(beyond[-1], [0.6, phi[-1] - 40.0], atol=1e-10)
    np.testing.assert_allclose(beyond[0], 0, atol=0)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_three_turns_in_series(order):
    """Of the two ways to reach an orientation, the one whose second turn is below a right angle."""
    angles = np.array([[0.0, 0.0, 0.0], [0.4, -1.2, 2.5], [-2.0, 1.5, -0.3]])
    still = Pose(np.zeros(3), np.eye(4)[0])
    joint = mbd.Serial("j", "a", "b", axes=np.eye(3)[list(order)], frame_a=still, frame_b=still)
    turned = poses(*(Pose(slide(), product(*map(turn, order, x))) for x in angles))
    np.testing.assert_allclose(coordinates(joint, still, turned), angles, atol=1e-14)


# --- where angles lose their meaning --------------------------------------------------------------


@eqx.filter_jit
def angles_and_slopes(joint, p):
    """Coordinates at an orientation of b, with their Jacobian in both modes."""
    angles = lambda p: joint.coordinates(FRAME, Pose(jnp.zeros(3), p))  # noqa: E731
    return angles(p), jax.jacfwd(angles)(p), jax.jacrev(angles)(p)


TORN = np.array([0.5, -0.5, -0.5, -0.5])  # turns x into z and y into x, without rounding


@pytest.mark.parametrize("kind", [mbd.Revolute, mbd.Universal])
def test_angles_without_meaning_have_finite_derivatives(kind):
    """As of a hinge that is torn open until the x axis of b lies along the axis of a."""
    angles, *slopes = jax.device_get(angles_and_slopes(kind("h", "a", "b", **FRAMES), TORN))
    assert angles[0] == 0.0
    assert np.all(np.isfinite(slopes))


BALL = mbd.Spherical("ball", "a", "b", **FRAMES)


@pytest.mark.parametrize("beta", [np.pi / 2, -np.pi / 2, 1.2])
def test_angles_of_a_ball_joint_give_its_rotation(beta):
    """Where the first and the last have one axis too: there the sum or the difference is right."""
    p = product(turn(0, 0.4), turn(1, beta), turn(2, -2.3))
    angles, *slopes = angles_and_slopes(BALL, p)
    again = product(*map(turn, range(3), np.asarray(angles)))
    np.testing.assert_allclose(np.outer(again, again), np.outer(p, p), atol=1e-14)
    assert np.all(np.isfinite(slopes))


def test_angles_of_a_ball_joint_without_rounding():
    angles, *slopes = angles_and_slopes(BALL, np.full(4, 0.5))  # y into z, z into x
    np.testing.assert_allclose(angles, [0.0, np.pi / 2, np.pi / 2], atol=1e-15)
    assert np.all(np.isfinite(slopes))
    # At the identity the rates of the angles are the angular velocity.
    _, slope, _ = angles_and_slopes(BALL, UNTURNED)
    np.testing.assert_allclose(
        np.asarray(slope) @ [0.0, 0.1, 0.2, 0.3], [0.2, 0.4, 0.6], atol=1e-15
    )


def test_universal_by_its_axes():
    """The cross turns in a about the first axis, b on the cross about the second."""
    first, second = np.array([0.6, 0.8, 0.0]), np.array([0.0, 0.0, -1.0])
    body, place = mbd.Body("b", BOX), np.array([0.1, 0.2, 0.3])
    joint = mbd.Universal("u", "ground", body, point=place, axes=[first, second])
    mechanism = mbd.Mechanism([body], [joint])
    p = product(exp(0.5 * first), exp(-1.1 * second))
    q = np.concatenate([place + turned(p, -place), p])
    found = jax.jit(lambda q: (mechanism.constraint(q, 0.0), mechanism.joint_coordinates(q, "u")))
    for q, angles in ((mechanism.state().q, [0.0, 0.0]), (q, [0.5, -1.1])):
        phi, x = found(q)
        np.testing.assert_allclose(phi, 0, atol=1e-15)
        np.testing.assert_allclose(x, angles, atol=1e-14)


def test_limits():
    body = mbd.Body("b", BOX)
    angles = np.array([2.4, 2.6, -3.0, -2.7, 3.6])
    q = np.stack([np.concatenate([slide(), turn(2, phi)]) for phi in angles])
    for limits, expected in (
        ((2.5, 3.5), [[-0.1], [0], [0], [2 * np.pi - 2.7 - 3.5], [0.1]]),
        (None, np.zeros((5, 1))),
    ):
        joint = mbd.Revolute("j", "ground", body, point=[0, 0, 0], axis=Z, limits=limits)
        found = mbd.reports.limit_violation(mbd.Mechanism([body], [joint]), q, "j")
        np.testing.assert_allclose(found, expected, atol=1e-12)
