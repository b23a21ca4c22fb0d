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
    FRAMES,
    GROUND,
    ROD,
    UP,
    collided,
    local,
    lying,
    matrices,
    moved_along,
    one_of,
    placed,
    product,
    turn,
    turned,
)

from jaxmbd.mechanism.collisions import ABSENT, collide
from jaxmbd.mechanism.pose import Pose
from jaxmbd.mechanism.shapes import Box, Ellipsoid
from jaxmbd.rotations import quaternion_exp, quaternion_product

ORIGIN = placed(np.zeros(3))


def one(a, pose_a, b, pose_b):
    return one_of(collided(a, pose_a, b, pose_b), 0)


# --- curved shapes on edges and faces -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("height", [0.3, 1e-9, 0.0, -0.01])
def test_cylinder_across_an_edge(height):
    """A box with an edge along x up, the edge through the origin, and a cylinder that lies along y
    above it, not centred: the side is above the edge where the axes cross."""
    box = placed([0.1, 0.0, -(0.5**0.5)], turn([np.pi / 4, 0.0, 0.0]))
    cylinder = placed([0.05, 0.1, 0.5 + height], turn([np.pi / 2, 0.0, 0.0]))
    gap, position, normal = one(Box([0.4, 0.5, 0.5]), box, CYLINDER, cylinder)
    np.testing.assert_allclose(gap, [height] + 7 * [ABSENT], atol=1e-14)
    np.testing.assert_allclose(position[0], [0.05, 0.0, height / 2], atol=1e-13)
    np.testing.assert_allclose(normal[0], UP, atol=1e-13)


@eqx.filter_jit
def points_and_rates(a, b, x, orientation):
    """Those of a at the origin and b at x, and the rates by x and a turn of b about it."""

    def points(step):
        origin = Pose(jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0]))
        turned = quaternion_product(quaternion_exp(step[3:]), orientation)
        return collide(a, origin, b, Pose(x + step[:3], turned))

    return points(jnp.zeros(6)), jax.jacfwd(points)(jnp.zeros(6))


@pytest.mark.slow
@pytest.mark.parametrize("height", [0.3, 0.0, -0.01])
def test_ellipsoid_over_a_face_touches_at_its_lowest_point(height):
    """z . x is least at x = -D z / sqrt(z . D z), with D = R diag(a^2) R^T; how that depends on a
    turn of the ellipsoid is found by differences."""
    p = turned(np.random.default_rng(1), 1)

    def lowest(x):
        R = matrices(product(turn(x), p))[0]
        D = (R * np.asarray(ELLIPSOID.semi_axes) ** 2) @ R.T
        return -D[:, 2] / np.sqrt(D[2, 2])

    at = lowest(np.zeros(3))
    center = np.array([0.0, 0.0, 1.0 + height - at[2]])
    (gap, position, normal), rate = points_and_rates(Box([2.0, 3.0, 1.0]), ELLIPSOID, center, p[0])
    np.testing.assert_allclose(gap, [height], atol=1e-13)
    np.testing.assert_allclose(position, [[at[0], at[1], 1 + height / 2]], atol=1e-13)
    np.testing.assert_allclose(normal, [UP], atol=1e-13)
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
    center = np.array([0.0, 0.0, 0.8 + 0.7 + gap])
    points, rate = points_and_rates(ELLIPSOID, other, center, np.eye(4)[0])
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
def test_stacked_boxes_touch_all_over_their_common_face(angle, shift, count, expected):
    cube, heights = Box([0.5, 0.5, 0.5]), [0.9999, 1.0, 1.0001]
    at = placed([[shift, 0.0, height] for height in heights], turn(angle * UP))
    for k in range(2):
        base = one_of(FRAMES, slice(k, k + 1))
        upper = moved_along(at, base)
        lower = placed(np.tile(base.position, (3, 1)), base.orientation)
        for a, b, way in ((lower, upper, 1), (upper, lower, -1)):
            for height, *points in zip(heights, *collided(cube, a, cube, b), strict=True):
                gap, position, normal = points
                present = gap < ABSENT
                assert present.sum() == count
                np.testing.assert_allclose(gap[present], height - 1, atol=1e-12)
                found = local(position[present], base)
                np.testing.assert_allclose(found[:, 2], height / 2, atol=1e-12)
                np.testing.assert_allclose(area(found[:, :2]), expected, atol=3e-5)
                up = local(normal + base.position, base)
                np.testing.assert_allclose(up, np.tile(way * UP, (8, 1)), atol=1e-12)


def test_a_small_box_rests_on_four_corners_of_its_own():
    small, large = Box([0.2, 0.1, 0.3]), Box([5.0, 5.0, 0.5])
    pose = placed([1.0, 2.0, 0.79], turn(0.3 * UP))
    gap, position, _ = one(large, ORIGIN, small, pose)
    present = gap < ABSENT
    np.testing.assert_allclose(gap[present], -0.01, atol=1e-14)
    corners = [[x, y, -0.295] for x, y in itertools.product((0.2, -0.2), (0.1, -0.1))]
    corners = moved_along(placed(corners), pose).position
    np.testing.assert_allclose(
        sorted(position[present].tolist()), sorted(corners.tolist()), atol=1e-12
    )


def test_crossed_edges_touch_in_one_point():
    """Two cubes, each on an edge, one turned against the other by a right angle."""
    cube = Box([0.5, 0.5, 0.5])
    low = placed(np.zeros(3), turn([np.pi / 4, 0.0, 0.0]))
    high = placed([0.1, 0.2, 2**0.5 - 0.02], turn([0.0, np.pi / 4, 0.0]))
    gap, position, normal = one(cube, low, cube, high)
    np.testing.assert_allclose(gap, [-0.02] + 7 * [ABSENT], atol=1e-14)
    np.testing.assert_allclose(position[0], [0.1, 0.0, 0.5**0.5 - 0.01], atol=1e-14)
    np.testing.assert_allclose(normal[0], UP, atol=1e-14)


# --- capsules and cylinders at rest ---------------------------------------------------------------


def test_capsule_lies_on_a_capsule_or_a_box_with_two_points():
    angles = np.array([0.0, 1e-9, 1e-4, 0.05, np.pi - 1e-5])
    x = np.ones((5, 1))
    upper = lying(x * [0.5, 0.0, 0.5], angles)
    gap, position, _ = collided(CAPSULE, lying(0 * x * UP), ROD, upper)
    np.testing.assert_allclose(gap, 0.0, atol=3e-3)
    width = np.ptp(position[..., 0], axis=1)
    assert np.all(width > 0.4) and np.all(width < 1.01)
    upper = lying(x * [0.3, 0.1, 0.2], angles)
    gap, position, _ = collided(BOX, placed(x * [0.0, 0.0, -0.4]), ROD, upper)
    np.testing.assert_allclose(gap, 0.0, atol=1e-12)
    ends = np.sort(position[..., 0], axis=1)
    np.testing.assert_allclose(ends, np.tile([-0.5, 0.5], (5, 1)), atol=1e-12)


def test_crossed_capsules_touch_in_one_point():
    x = np.ones((2, 1))
    upper = lying(x * [0.1, 0.0, 0.49], np.array([0.2, np.pi / 2]))
    gap, position, normal = collided(CAPSULE, lying(0 * x * UP), ROD, upper)
    np.testing.assert_allclose(gap, x * [-0.01, ABSENT], atol=1e-14)
    np.testing.assert_allclose(position[:, 0], x * [0.1, 0.0, 0.295], atol=1e-14)
    np.testing.assert_allclose(normal[:, 0], x * UP, atol=1e-14)


def test_cylinder_stands_on_four_points_and_lies_on_two():
    gap, position, _ = one(GROUND, ORIGIN, CYLINDER, placed([0.0, 0.0, 0.4], turn(UP)))
    below = gap < 1e-3
    assert below.sum() == 4
    np.testing.assert_allclose(area(position[below, :2]), 2 * 0.5**2, atol=1e-12)
    gap, position, _ = one(GROUND, ORIGIN, CYLINDER, lying([0.0, 0.0, 0.5]))
    np.testing.assert_allclose(sorted(position[gap < 1e-3, 0]), [-0.4, 0.4], atol=1e-12)
