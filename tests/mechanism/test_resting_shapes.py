"""Contact points of shapes that stand or lie on edges, faces and each other, against geometry by
hand."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collision_pairs import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    GROUND,
    IDENTITY,
    ROD,
    about_x,
    about_z,
    collide_one,
    lying,
    matrices,
    moved,
    turned,
)

from jaxmbd.mechanism.collisions import ABSENT, collide
from jaxmbd.mechanism.pose import Pose
from jaxmbd.mechanism.shapes import Box, Ellipsoid
from jaxmbd.rotations import quaternion_exp, quaternion_product

# --- curved shapes on edges, faces and vertices ---------------------------------------------------


def on_an_edge(height):
    """A box with an edge along x up, the edge through the origin, and a cylinder that lies along y
    above it, not centred."""
    box = Pose(jnp.array([0.1, 0.0, -(0.5**0.5)]), about_x(np.pi / 4))
    cylinder = Pose(jnp.array([0.05, 0.1, 0.5 + height]), about_x(np.pi / 2))
    return Box([0.4, 0.5, 0.5]), box, CYLINDER, cylinder


@pytest.mark.slow
@pytest.mark.parametrize("height", [0.3, 1e-9, 0.0, -0.01])
def test_cylinder_across_an_edge(height):
    """The side is above the edge where the axes cross."""
    gap, position, normal = collide_one(*on_an_edge(height))
    np.testing.assert_allclose(gap, [height] + 7 * [ABSENT], atol=1e-14)
    np.testing.assert_allclose(position[0], [0.05, 0.0, height / 2], atol=1e-13)
    np.testing.assert_allclose(normal[0], [0.0, 0.0, 1.0], atol=1e-13)


@eqx.filter_jit
def points_and_rates(a, b, x, turn):
    """Those of a at the origin and b at x, and the rates by x and a turn of b about it."""

    def points(step):
        origin = Pose(jnp.zeros(3), jnp.array(IDENTITY))
        return collide(a, origin, b, moved(Pose(x, turn), step))

    return points(jnp.zeros(6)), jax.jacfwd(points)(jnp.zeros(6))


@pytest.mark.slow
@pytest.mark.parametrize("height", [0.3, 0.0, -0.01])
def test_ellipsoid_over_a_face_touches_at_its_lowest_point(height):
    """z . x is least at x = -D z / sqrt(z . D z), with D = R diag(a^2) R^T; how that depends on a
    turn of the ellipsoid is found by differences."""
    p = jnp.array(turned(np.random.default_rng(1), 1)[0])

    def lowest(turn):
        R = matrices(np.asarray(quaternion_product(quaternion_exp(jnp.array(turn)), p))[None])[0]
        D = (R * np.asarray(ELLIPSOID.semi_axes) ** 2) @ R.T
        return -D[:, 2] / np.sqrt(D[2, 2])

    at = lowest(np.zeros(3))
    center = jnp.array([0.0, 0.0, 1.0 + height - at[2]])
    (gap, position, normal), rate = points_and_rates(Box([2.0, 3.0, 1.0]), ELLIPSOID, center, p)
    np.testing.assert_allclose(gap, [height], atol=1e-13)
    np.testing.assert_allclose(position, [[at[0], at[1], 1 + height / 2]], atol=1e-13)
    np.testing.assert_allclose(normal, [[0.0, 0.0, 1.0]], atol=1e-13)
    h = 1e-6
    expected = np.stack([(lowest(h * e) - lowest(-h * e)) / (2 * h) for e in np.eye(3)], axis=1)
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(rate.gap[0, 3:], expected[2], atol=1e-9)
    np.testing.assert_allclose(rate.position[0, :2, 3:], expected[:2], atol=1e-9)
    np.testing.assert_allclose(rate.normal[0], 0.0, atol=1e-12)


@pytest.mark.slow
def test_ellipsoids_one_above_the_other_move_the_point_as_balls():
    """Of the radii of curvature r = a_x^2 / a_z: shifted along x by s, the normal turns by
    s / (r + r' + gap), and the point on the lower one moves by r times that."""
    other, gap = Ellipsoid([0.5, 0.3, 0.7]), 0.2
    center = jnp.array([0.0, 0.0, 0.8 + 0.7 + gap])
    points, rate = points_and_rates(ELLIPSOID, other, center, jnp.array(IDENTITY))
    np.testing.assert_allclose(points.gap, [gap], atol=1e-14)
    np.testing.assert_allclose(points.position, [[0.0, 0.0, 0.8 + gap / 2]], atol=1e-14)
    for k, (r, s) in enumerate(((0.4**2 / 0.8, 0.5**2 / 0.7), (0.6**2 / 0.8, 0.3**2 / 0.7))):
        between = r + s + gap
        np.testing.assert_allclose(rate.normal[0, k, k], 1 / between, atol=1e-11)
        np.testing.assert_allclose(rate.position[0, k, k], (r + gap / 2) / between, atol=1e-11)


# --- boxes on boxes -------------------------------------------------------------------------------


def area(points):
    """Of the convex polygon of points in the xy plane, in any order."""
    center = points.mean(axis=0)
    order = np.argsort(np.arctan2(*(points - center).T))
    x, y = points[order].T
    return abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) / 2


@pytest.mark.parametrize("height", [0.9999, 1.0, 1.0001])
@pytest.mark.parametrize(
    "angle, shift, count, expected",
    [
        (0.0, 0.0, 4, 1.0),
        (np.pi / 2, 0.0, 4, 1.0),
        (1e-9, 0.0, 4, 1.0),
        (1e-5, 0.0, 8, 1.0),
        (np.pi / 4, 0.0, 8, 2 * (2**0.5 - 1)),
        (0.0, 0.3, 4, 0.7),
        (np.pi / 2, -0.5, 4, 0.5),
    ],
)
def test_stacked_boxes_touch_all_over_their_common_face(height, angle, shift, count, expected):
    cube = Box([0.5, 0.5, 0.5])
    turn = jnp.array(turned(np.random.default_rng(0), 1)[0])
    for base in (Pose(jnp.zeros(3), jnp.array(IDENTITY)), Pose(jnp.ones(3), turn)):
        upper = base.compose(Pose(jnp.array([shift, 0.0, height]), about_z(angle)))
        for a, b, way in ((base, upper, 1), (upper, base, -1)):
            gap, position, normal = collide_one(cube, a, cube, b)
            present = np.asarray(gap) < ABSENT
            assert present.sum() == count
            np.testing.assert_allclose(gap[present], height - 1, atol=1e-12)
            local = np.asarray(jax.jit(jax.vmap(base.local_point))(position))[present]
            np.testing.assert_allclose(local[:, 2], height / 2, atol=1e-12)
            np.testing.assert_allclose(area(local[:, :2]), expected, atol=3e-5)
            up = jax.jit(jax.vmap(base.local_direction))(normal)
            np.testing.assert_allclose(up, np.tile([0, 0, way], (8, 1)), atol=1e-12)


def test_a_small_box_rests_on_four_corners_of_its_own():
    small, large = Box([0.2, 0.1, 0.3]), Box([5.0, 5.0, 0.5])
    pose = Pose(jnp.array([1.0, 2.0, 0.79]), about_z(0.3))
    gap, position, _ = collide_one(large, Pose(jnp.zeros(3), jnp.array(IDENTITY)), small, pose)
    present = np.asarray(gap) < ABSENT
    np.testing.assert_allclose(gap[present], -0.01, atol=1e-14)
    corners = [
        pose.point(jnp.array([x, y, -0.295]))
        for x, y in itertools.product((0.2, -0.2), (0.1, -0.1))
    ]
    np.testing.assert_allclose(
        sorted(position[present].tolist()), sorted(np.array(corners).tolist()), atol=1e-12
    )


def test_crossed_edges_touch_in_one_point():
    """Two cubes, each on an edge, one turned against the other by a right angle."""
    cube, half = Box([0.5, 0.5, 0.5]), np.pi / 8
    low = jnp.array([np.cos(half), np.sin(half), 0.0, 0.0])
    high = jnp.array([np.cos(half), 0.0, np.sin(half), 0.0])
    x = jnp.array([0.1, 0.2, 2**0.5 - 0.02])
    gap, position, normal = collide_one(cube, Pose(jnp.zeros(3), low), cube, Pose(x, high))
    np.testing.assert_allclose(gap, [-0.02] + 7 * [ABSENT], atol=1e-14)
    np.testing.assert_allclose(position[0], [0.1, 0.0, 0.5**0.5 - 0.01], atol=1e-14)
    np.testing.assert_allclose(normal[0], [0.0, 0.0, 1.0], atol=1e-14)


# --- capsules and cylinders at rest ---------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 0.05, np.pi - 1e-5])
def test_capsule_lies_on_a_capsule_or_a_box_with_two_points(angle):
    lower = lying(0.0, 0.0, 0.0)
    gap, position, _ = collide_one(CAPSULE, lower, ROD, lying(0.5, 0.0, 0.5, angle))
    np.testing.assert_allclose(gap, 0.0, atol=3e-3)
    assert np.ptp(position[:, 0]) > 0.4 and np.ptp(position[:, 0]) < 1.01
    ground = Pose(jnp.array([0.0, 0.0, -0.4]), jnp.array(IDENTITY))
    gap, position, _ = collide_one(BOX, ground, ROD, lying(0.3, 0.1, 0.2, angle))
    np.testing.assert_allclose(gap, 0.0, atol=1e-12)
    np.testing.assert_allclose(sorted(position[:, 0]), [-0.5, 0.5], atol=1e-12)


@pytest.mark.parametrize("angle", [0.2, np.pi / 2])
def test_crossed_capsules_touch_in_one_point(angle):
    gap, position, normal = collide_one(
        CAPSULE, lying(0.0, 0.0, 0.0), ROD, lying(0.1, 0.0, 0.49, angle)
    )
    np.testing.assert_allclose(gap, [-0.01, ABSENT], atol=1e-14)
    np.testing.assert_allclose(position[0], [0.1, 0.0, 0.295], atol=1e-14)
    np.testing.assert_allclose(normal[0], [0.0, 0.0, 1.0], atol=1e-14)


def test_cylinder_stands_on_four_points_and_lies_on_two():
    ground = Pose(jnp.zeros(3), jnp.array(IDENTITY))
    gap, position, _ = collide_one(
        GROUND, ground, CYLINDER, Pose(jnp.array([0.0, 0.0, 0.4]), about_z(1.0))
    )
    below = np.asarray(gap) < 1e-3
    assert below.sum() == 4
    np.testing.assert_allclose(area(np.asarray(position)[below, :2]), 2 * 0.5**2, atol=1e-12)
    gap, position, _ = collide_one(GROUND, ground, CYLINDER, lying(0.0, 0.0, 0.5))
    below = np.asarray(gap) < 1e-3
    np.testing.assert_allclose(sorted(position[below, 0]), [-0.4, 0.4], atol=1e-12)
