"""Torsion springs and rotation vectors, against closed forms."""

import jax
import numpy as np
from force_cases import AXIS, BOX, Z, random_body, random_pose
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd.mechanism import energy
from jaxmbd.mechanism.forces.bushing import _curvature
from jaxmbd.mechanism.relative import twist


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
