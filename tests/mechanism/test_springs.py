"""Torsion springs, springs in parallel and rotation vectors, against closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from force_cases import AXIS, BOX, TIME, Z, random_body, random_pose
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd.mechanism import energy
from jaxmbd.mechanism.forces.bushing import _curvature
from jaxmbd.mechanism.relative import twist


@eqx.filter_jit
def external_force(mechanism, u=None):
    state = mechanism.state()
    return mechanism.external_force(TIME, state.q, state.v, u)


def test_twist_of_a_torsion_spring():
    """Against its definition: the turn left after the shortest one from axis to axis."""
    rng = np.random.default_rng(6)
    pairs = [[random_pose(rng), random_pose(rng)] for _ in range(5)]
    found = jax.jit(lambda pairs: [twist(*pair) for pair in pairs])(pairs)
    for pair, angle in zip(pairs, np.asarray(found), strict=True):
        A, B = (Rotation.from_quat(np.asarray(p.orientation), scalar_first=True) for p in pair)
        R = A.inv() * B
        e, tilted = np.array(Z), R.apply(Z)
        across = np.cross(e, tilted)
        swing = np.arctan2(np.linalg.norm(across), e @ tilted) * across / np.linalg.norm(across)
        expected = (Rotation.from_rotvec(-swing) * R).as_rotvec()
        np.testing.assert_allclose(expected[:2], 0.0, atol=1e-14)
        np.testing.assert_allclose(np.exp(1j * (angle - expected[2])), 1.0, atol=1e-13)


def push_and_line(bodies, ends):
    """Of two bodies and two points on them: the lever arms of the points, the line from the first
    to the second, its length and rate."""
    bodies = [body for body in bodies if body != "ground"]
    arms = [end - np.asarray(b.pose.position) for b, end in zip(bodies, ends[-len(bodies) :])]
    speeds = [np.asarray(b.twist.linear) + np.cross(b.twist.angular, r)
              for b, r in zip(bodies, arms)]  # fmt: skip
    line = ends[1] - ends[0]
    length = np.linalg.norm(line)
    speed = (speeds[-1] - speeds[0] * (len(bodies) > 1)) @ line / length
    return arms, line / length, length, speed


def test_springs_in_parallel():
    """Of one kind, evaluated together, between different bodies and on the ground; and one that is
    only an actuator and a damper, without a rest length. Forces and levers by vectors."""
    rng = np.random.default_rng(0)
    a, b = (random_body(name, rng) for name in "ab")
    points = rng.normal(size=(4, 2, 3))
    pairs = [(a, b), ("ground", a), (b, a), (a, b)]
    data = [(30.0, 2.0, 0.4), (50.0, 0.0, 1.0), (0.0, 3.0, 0.1), (0.0, 0.7, 0.0)]
    springs = [
        mbd.Spring(f"spring {i}", *pair, points=ends, stiffness=k, damping=c, rest_length=rest)
        for i, (pair, ends, (k, c, rest)) in enumerate(zip(pairs[:3], points, data))
    ]
    actuator = dict(damping=0.7, actuator=mbd.FromControl(0, gear=3.0))
    springs.append(mbd.Spring("cylinder", a, b, points=points[3], **actuator))
    mechanism = mbd.Mechanism([a, b], (), springs, gravity=np.zeros(3))
    expected = {body.name: np.zeros(6) for body in (a, b)}
    for i, (pair, ends, (k, c, rest)) in enumerate(zip(pairs, points, data)):
        arms, line, length, speed = push_and_line(pair, ends)
        push = -k * (length - rest) - c * speed + (15.0 if i == 3 else 0.0)
        moving = [body for body in pair if body != "ground"]
        for body, arm, sign in zip(moving, arms, (-1, 1)[-len(moving) :]):
            force = sign * push * line
            expected[body.name] += np.append(force, np.cross(arm, force))
    found = np.asarray(external_force(mechanism, jnp.array([5.0]))).reshape(6, 2)
    np.testing.assert_allclose(found.T, [*expected.values()], rtol=1e-11, atol=1e-11)


def test_torsion_spring_about_a_hinge_that_moves():
    """b turns about a hinge on the moving a: torque times joint rate, and nothing else."""
    rng = np.random.default_rng(1)
    a = random_body("a", rng)
    point, speed = rng.normal(size=3), 1.7
    b = mbd.Body(
        "b",
        BOX,
        position=point,
        velocity=a.twist.linear + np.cross(a.twist.angular, point - np.asarray(a.pose.position)),
        angular_velocity=a.twist.angular + speed * np.array(AXIS),
        orientation=[0, 1, 0, 0],
    )
    options = dict(point=point, axis=AXIS, stiffness=5.0, damping=0.3)
    # A rest angle within and one beyond half a turn, which is the same.
    springs = [
        mbd.TorsionSpring("t", a, b, rest_angle=0.2, **options),
        mbd.TorsionSpring("u", a, b, rest_angle=0.2 - 2 * np.pi, **options),
    ]
    mechanism = mbd.Mechanism([a, b], (), springs)
    state = mechanism.state()

    @jax.jit
    def values(q, v):
        powers = energy.powers(mechanism, q, v).values()
        stored = energy.stored_energies(mechanism, q).values()
        return [(entry.power, entry.lost, x) for entry, x in zip(powers, stored, strict=True)]

    power = (5.0 * 0.2 - 0.3 * speed) * speed
    expected = [power, 0.3 * speed**2, 2.5 * 0.2**2]
    np.testing.assert_allclose(values(state.q, state.v), [expected] * 2, rtol=1e-10)


def test_curvature_of_rotations():
    """The factor in the rate of the rotation vector: its series joins the closed form, and G
    inverts the matrix of exponential coordinates, whose own series converges everywhere."""
    angles, step = np.array([0.1, 0.999, 1.001, 3.0]), 1e-4
    at = np.concatenate([angles**2, [0.5, 0.0, 0.5 + step, 0.5 - step]])
    found, slope = jax.jit(jax.vmap(jax.value_and_grad(_curvature)))(at)
    for angle, c in zip(angles, np.asarray(found)):
        S = np.cross(np.eye(3), angle * np.array([1.0, 2.0, -2.0]) / 3)
        term, left = np.eye(3), np.eye(3)
        for k in range(2, 40):
            term = term @ S / k
            left = left + term
        np.testing.assert_allclose((np.eye(3) - S / 2 + c * S @ S) @ left, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(slope[4], (found[6] - found[7]) / (2 * step), rtol=1e-8)
    np.testing.assert_allclose(slope[5], 1 / 720, rtol=1e-14)
