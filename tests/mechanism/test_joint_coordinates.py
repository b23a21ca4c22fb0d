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


def poses(*of):
    """Poses of many frames as one."""
    return Pose(*(np.stack(x) for x in zip(*of, strict=True)))


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
    rack = mbd.joints.RackAndPinion("rack", guide, second, radius=0.15, offset=0.4)
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
    joint = mbd.Cylindrical("j", "ground", body, point=[0, 0, 0], axis=Z)
    mechanism = mbd.Mechanism([body], [joint])
    for samples, with_rates in ((17, True), (120, False)):
        t = np.linspace(0.0, 8.0, samples)
        z, phi = exact = np.stack([0.2 * t, 30.0 * t + 8.0 * np.sin(t)])
        o = 0 * t
        q = np.stack([o, o, z, np.cos(phi / 2), o, o, np.sin(phi / 2)], axis=1)
        v = np.stack([o, o, o + 0.2, o, o, 30.0 + 8.0 * np.cos(t)], axis=1)
        path = mbd.reports.joint_path(mechanism, mbd.State(t, q, v if with_rates else 0 * v), "j")
        np.testing.assert_allclose(path, exact.T, atol=1e-10)


def test_three_turns_in_series():
    """Of the two ways to reach an orientation, the one whose second turn is below a right angle."""
    angles = np.array([[0.0, 0.0, 0.0], [0.4, -1.2, 2.5], [-2.0, 1.5, -0.3]])
    for order in ([0, 1, 2], [2, 1, 0]):
        joint = mbd.joints.Serial("j", "a", "b", axes=np.eye(3)[order], **FRAMES)
        turned = poses(*(Pose(slide(), product(*map(turn, order, x))) for x in angles))
        found = eqx.filter_jit(jax.vmap(lambda b, joint=joint: joint.coordinates(FRAME, b)))(turned)
        np.testing.assert_allclose(found, angles, atol=1e-14)


@eqx.filter_jit
def angles_and_slopes(joint, p):
    """Coordinates at an orientation of b, with their Jacobian in both modes."""
    angles = lambda p: joint.coordinates(FRAME, Pose(jnp.zeros(3), p))  # noqa: E731
    return angles(p), jax.jacfwd(angles)(p), jax.jacrev(angles)(p)


@pytest.mark.parametrize("kind", [mbd.Revolute, mbd.Universal])
def test_angles_without_meaning_have_finite_derivatives(kind):
    """As of a hinge that is torn open until the x axis of b lies along the axis of a."""
    torn = np.array([0.5, -0.5, -0.5, -0.5])  # turns x into z and y into x, without rounding
    angles, *slopes = jax.device_get(angles_and_slopes(kind("h", "a", "b", **FRAMES), torn))
    assert angles[0] == 0.0
    assert np.all(np.isfinite(slopes))


@pytest.mark.parametrize(
    "p",
    [
        *(product(turn(0, 0.4), turn(1, x), turn(2, -2.3)) for x in (np.pi / 2, -np.pi / 2, 1.2)),
        np.full(4, 0.5),  # y into z and z into x, without rounding
    ],
)
def test_angles_of_a_ball_joint_give_its_rotation(p):
    """Where the first and the last have one axis too: there the sum or the difference is right."""
    angles, *slopes = angles_and_slopes(mbd.Spherical("ball", "a", "b", **FRAMES), p)
    again = product(*map(turn, range(3), np.asarray(angles)))
    np.testing.assert_allclose(np.outer(again, again), np.outer(p, p), atol=1e-14)
    assert np.all(np.isfinite(slopes))


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
    q = [np.concatenate([slide(), turn(2, phi)]) for phi in (2.4, 2.6, -3.0, -2.7, 3.6)]
    joint = mbd.Revolute("j", "ground", body, point=[0, 0, 0], axis=Z, limits=(2.5, 3.5))
    state = mbd.State(0.0, np.stack(q), np.zeros((5, 6)))
    found = mbd.reports.limit_violation(mbd.Mechanism([body], [joint]), state, "j")
    expected = [-0.1, 0, 0, 2 * np.pi - 2.7 - 3.5, 0.1]
    np.testing.assert_allclose(np.asarray(found)[:, 0], expected, atol=1e-12)
