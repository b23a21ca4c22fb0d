"""Contact points of shapes that stand or lie on edges, faces and each other: against geometry by
hand, the outline of what faces have in common, and the convex hull of points."""

import itertools

import collision_pairs as pairs
import equinox as eqx
import jax
import numpy as np
import pytest
from helpers import slow_unless
from scipy.spatial import ConvexHull

from jaxmbd.mechanism.collisions import ABSENT
from jaxmbd.mechanism.collisions.manifold import manifold
from jaxmbd.mechanism.shapes import Box, Capsule, ConvexPoints, Cylinder

CUBE = ConvexPoints(np.array(list(itertools.product((-0.5, 0.5), repeat=3))))
# A pyramid with its base, of an obtuse angle, down, and points within the base.
BASE = np.array([[0.5, 0.0], [0.0, 0.1], [-0.5, 0.0], [0.1, -0.4]])
WITHIN = [[0.05, -0.1, 0.0], [0.0, -0.2, 0.0], [0.1, -0.1, 0.0]]
PYRAMID = ConvexPoints(np.concatenate([np.c_[BASE, 4 * [0.0]], [[0.0, 0.0, 0.5]], WITHIN]))
SLAB, DRUM = Box([1.0, 0.7, 0.3]), Cylinder(0.8, 0.2)


def outline(n, radius, start=0.0):
    """Corners of a regular polygon."""
    angle = start + 2 * np.pi * np.arange(n) / n
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


@eqx.filter_jit
def on_faces(a, pose_a, b, pose_b, normal, position):
    """Of shapes between planes across `normal` that are nearest at `position`, without a search for
    these."""
    faces, reach = [], []
    for shape, pose, n in ((a, pose_a, normal), (b, pose_b, -normal)):
        face = shape.face(pose.local_direction(n))
        faces.append(face._replace(corners=jax.vmap(pose.point)(face.corners)))
        farthest = pose.point(shape.support(pose.local_direction(n)))
        reach.append(normal @ farthest + (shape.margin if n is normal else -shape.margin))
    return manifold(*faces, normal, reach[1] - reach[0], position)


# Upper and lower shape, by how much their bottom and top are below and above their origins, the
# place and turn of the upper one, and the outline of what their faces have in common.
STANDING = [
    (pairs.CYLINDER, 0.4, SLAB, 0.3, (0.1, 0.0), 0.3, outline(8, 0.5, 0.3) + [0.1, 0.0]),
    (pairs.CYLINDER, 0.4, SLAB, 0.3, (1.0, 0.0), 0.0, outline(8, 0.5)[2:7] + [1.0, 0.0]),
    (pairs.CYLINDER, 0.4, DRUM, 0.2, (0.2, 0.1), 0.1, outline(8, 0.5, 0.1) + [0.2, 0.1]),
    (CUBE, 0.5, CUBE, 0.5, (0.0, 0.0), 0.0, outline(4, 0.5**0.5, np.pi / 4)),
    (CUBE, 0.5, CUBE, 0.5, (0.0, 0.0), np.pi / 4, outline(8, 0.5 / np.cos(np.pi / 8), np.pi / 8)),
    (CUBE, 0.5, SLAB, 0.3, (0.8, 0.0), 0.0, [[0.3, 0.5], [0.3, -0.5], [1.0, -0.5], [1.0, 0.5]]),
    (PYRAMID, 0.0, SLAB, 0.3, (0.0, 0.1), 0.0, BASE + [0.0, 0.1]),
    (PYRAMID, 0.0, CUBE, 0.5, (0.0, 0.1), 0.0, BASE + [0.0, 0.1]),
    (CUBE, 0.5, DRUM, 0.2, (0.0, 0.0), 1.0, outline(4, 0.5**0.5, np.pi / 4 + 1)),
    (SLAB, 0.3, Cylinder(0.5, 0.2), 0.2, (0.4, 0.1), 0.0, outline(8, 0.5)),
]


def check_standing(function, height, upper, below, lower, above, place, angle, expected):
    """In any common frame."""
    for k in range(2):
        base = pairs.one_of(pairs.FRAMES, slice(k, k + 1))
        up = pairs.rotated(base.orientation, pairs.UP)[0]
        at = pairs.moved_along(
            pairs.placed([*place, above + below + height], pairs.turn(angle * pairs.UP)), base
        )
        gap, position, normal = map(np.asarray, function(lower, base, upper, at, up))
        present = gap < ABSENT
        np.testing.assert_allclose(gap[present], height, atol=1e-12)
        np.testing.assert_allclose(normal, np.tile(up, (len(gap), 1)), atol=1e-12)
        found = pairs.local(position[present], base)
        np.testing.assert_allclose(found[:, 2], above + height / 2, atol=1e-12)
        # All points are at corners, and there is one at each.
        away = np.linalg.norm(found[:, None, :2] - np.asarray(expected)[None], axis=-1)
        assert away.shape == 2 * (len(expected),)
        for axis in (0, 1):
            np.testing.assert_allclose(away.min(axis=axis), 0.0, atol=1e-9)


def by_faces(lower, base, upper, at, up):
    poses = (pairs.one_of(pose, 0) for pose in (base, at))
    base, at = poses
    return on_faces(lower, base, upper, at, up, at.position)


@pytest.mark.parametrize("k", slow_unless(lambda k: k in (0, 1, 3, 4, 7), range(len(STANDING))))
def test_faces_touch_in_the_outline_of_what_they_have_in_common(k):
    for height in (1e-3, 0.0, -1e-3):
        check_standing(by_faces, height, *STANDING[k])


def test_faces_of_convex_points_are_those_of_their_hull():
    """Random points have triangles: each is found from directions near its normal."""
    rng = np.random.default_rng(2)
    face = eqx.filter_jit(jax.vmap(lambda shape, d: shape.face(d).corners, in_axes=(None, 0)))
    for _ in range(5):
        points = rng.normal(size=(20, 3))
        hull = ConvexHull(points)
        d = hull.equations[:, :3] + rng.uniform(-1e-3, 1e-3, hull.simplices.shape)
        d = np.resize(d / np.linalg.norm(d, axis=1, keepdims=True), (36, 3))
        corners = np.asarray(face(ConvexPoints(points), d))
        for found, triangle in zip(corners, hull.simplices, strict=False):
            assert {tuple(x) for x in found} == {tuple(x) for x in points[triangle]}


@pytest.mark.parametrize("tilt", [0.0, 1e-6, 0.05])
def test_tilted_cylinder_has_the_gaps_of_points_of_its_rim(tilt):
    """At the angle phi about its axis from that of the tilt the gap is by r (1 + sin(phi))
    sin(tilt) more than that of the deepest point, which is not among the eight of the face."""
    about_z, center = 0.3, 0.1
    tilted = pairs.product(pairs.turn([tilt, 0.0, 0.0]), pairs.turn(about_z * pairs.UP))
    pose = pairs.placed([center, 0.0, 0.7], tilted)
    at = np.array([-0.5 * np.sin(about_z), -0.5 * np.cos(about_z), -0.4])
    deepest = pose.position[0] + pairs.rotated(tilted, at)[0]
    gap, position, _ = map(
        np.asarray,
        on_faces(
            SLAB,
            pairs.one_of(pairs.FRAMES, 0),
            pairs.CYLINDER,
            pairs.one_of(pose, 0),
            pairs.UP,
            deepest,
        ),
    )
    angles = np.append(about_z + np.pi / 4 * np.arange(8), -np.pi / 2)
    x = center + 0.5 * np.cos(angles)
    rise = 0.5 * (1 + np.sin(angles)) * np.sin(tilt)
    off = np.hypot(position[:, :1] - x[None], gap[:, None] - gap.min() - rise[None])
    corner = np.argmin(off, axis=1)
    np.testing.assert_allclose(gap, deepest[2] - 0.3 + rise[corner], atol=1e-14)
    np.testing.assert_allclose(position[:, 0], x[corner], atol=1e-14)
    # All of the face; or of nine points, of two neighbours of the deepest one not the nearer.
    assert set(corner) == (set(range(9)) - {6} if tilt else set(range(8)))


def test_parallel_round_sides_touch_at_both_ends_of_what_they_share():
    """By s^2 / (2 (r + r')) more than where they cross, where their lines are s aside, up to the
    fourth power."""
    upper, r = Capsule(0.3, 0.2), 0.5 + 0.3
    below, crossing = pairs.one_of(pairs.lying(np.zeros(3)), 0), np.array([0.1, 0.0, 0.5])
    for angle in (0.0, 1e-9, 1e-5, 0.01):
        at = pairs.one_of(pairs.lying([0.1, 0.0, r], angle), 0)
        gap, position, _ = map(
            np.asarray, on_faces(pairs.CYLINDER, below, upper, at, pairs.UP, crossing)
        )
        ends = np.argsort(np.where(gap < ABSENT, position[:, 0], 0.1))[[0, -1]]
        expected = 0.1 + 0.2 * np.cos(angle) * np.array([-1, 1])
        np.testing.assert_allclose(position[ends, 0], expected, atol=1e-4)
        np.testing.assert_allclose(gap[ends], (0.2 * np.sin(angle)) ** 2 / (2 * r), atol=1e-15)
        assert np.sum(gap < ABSENT) == (3 if angle > 1e-7 else 2)


ORIGIN = pairs.placed(np.zeros(3))


def one(a, pose_a, b, pose_b):
    return pairs.one_of(pairs.collided(a, pose_a, b, pose_b), 0)


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
    at = pairs.placed([[shift, 0.0, height] for height in heights], pairs.turn(angle * pairs.UP))
    for k in range(2):
        base = pairs.one_of(pairs.FRAMES, slice(k, k + 1))
        upper = pairs.moved_along(at, base)
        lower = pairs.placed(np.tile(base.position, (3, 1)), base.orientation)
        for a, b, way in ((lower, upper, 1), (upper, lower, -1)):
            for height, *points in zip(heights, *pairs.collided(cube, a, cube, b), strict=True):
                gap, position, normal = points
                present = gap < ABSENT
                assert present.sum() == count
                np.testing.assert_allclose(gap[present], height - 1, atol=1e-12)
                found = pairs.local(position[present], base)
                np.testing.assert_allclose(found[:, 2], height / 2, atol=1e-12)
                np.testing.assert_allclose(area(found[:, :2]), expected, atol=3e-5)
                up = pairs.local(normal + base.position, base)
                np.testing.assert_allclose(up, np.tile(way * pairs.UP, (8, 1)), atol=1e-12)


def test_a_small_box_rests_on_four_corners_of_its_own():
    small, large = Box([0.2, 0.1, 0.3]), Box([5.0, 5.0, 0.5])
    pose = pairs.placed([1.0, 2.0, 0.79], pairs.turn(0.3 * pairs.UP))
    gap, position, _ = one(large, ORIGIN, small, pose)
    present = gap < ABSENT
    np.testing.assert_allclose(gap[present], -0.01, atol=1e-14)
    corners = [[x, y, -0.295] for x, y in itertools.product((0.2, -0.2), (0.1, -0.1))]
    corners = pairs.moved_along(pairs.placed(corners), pose).position
    np.testing.assert_allclose(
        sorted(position[present].tolist()), sorted(corners.tolist()), atol=1e-12
    )


def test_crossed_edges_touch_in_one_point():
    """Two cubes, each on an edge, one turned against the other by a right angle."""
    cube = Box([0.5, 0.5, 0.5])
    low = pairs.placed(np.zeros(3), pairs.turn([np.pi / 4, 0.0, 0.0]))
    high = pairs.placed([0.1, 0.2, 2**0.5 - 0.02], pairs.turn([0.0, np.pi / 4, 0.0]))
    gap, position, normal = one(cube, low, cube, high)
    np.testing.assert_allclose(gap, [-0.02] + 7 * [ABSENT], atol=1e-14)
    np.testing.assert_allclose(position[0], [0.1, 0.0, 0.5**0.5 - 0.01], atol=1e-14)
    np.testing.assert_allclose(normal[0], pairs.UP, atol=1e-14)


def test_capsule_lies_on_a_capsule_or_a_box_with_two_points():
    angles = np.array([0.0, 1e-9, 1e-4, 0.05, np.pi - 1e-5])
    x = np.ones((5, 1))
    upper = pairs.lying(x * [0.5, 0.0, 0.5], angles)
    gap, position, _ = pairs.collided(
        pairs.CAPSULE, pairs.lying(0 * x * pairs.UP), pairs.ROD, upper
    )
    np.testing.assert_allclose(gap, 0.0, atol=3e-3)
    width = np.ptp(position[..., 0], axis=1)
    assert np.all(width > 0.4) and np.all(width < 1.01)
    upper = pairs.lying(x * [0.3, 0.1, 0.2], angles)
    gap, position, _ = pairs.collided(
        pairs.BOX, pairs.placed(x * [0.0, 0.0, -0.4]), pairs.ROD, upper
    )
    np.testing.assert_allclose(gap, 0.0, atol=1e-12)
    ends = np.sort(position[..., 0], axis=1)
    np.testing.assert_allclose(ends, np.tile([-0.5, 0.5], (5, 1)), atol=1e-12)


def test_crossed_capsules_touch_in_one_point():
    x = np.ones((2, 1))
    upper = pairs.lying(x * [0.1, 0.0, 0.49], np.array([0.2, np.pi / 2]))
    gap, position, normal = pairs.collided(
        pairs.CAPSULE, pairs.lying(0 * x * pairs.UP), pairs.ROD, upper
    )
    np.testing.assert_allclose(gap, x * [-0.01, ABSENT], atol=1e-14)
    np.testing.assert_allclose(position[:, 0], x * [0.1, 0.0, 0.295], atol=1e-14)
    np.testing.assert_allclose(normal[:, 0], x * pairs.UP, atol=1e-14)


def test_cylinder_stands_on_four_points_and_lies_on_two():
    gap, position, _ = one(
        pairs.GROUND, ORIGIN, pairs.CYLINDER, pairs.placed([0.0, 0.0, 0.4], pairs.turn(pairs.UP))
    )
    below = gap < 1e-3
    assert below.sum() == 4
    np.testing.assert_allclose(area(position[below, :2]), 2 * 0.5**2, atol=1e-12)
    gap, position, _ = one(pairs.GROUND, ORIGIN, pairs.CYLINDER, pairs.lying([0.0, 0.0, 0.5]))
    np.testing.assert_allclose(sorted(position[gap < 1e-3, 0]), [-0.4, 0.4], atol=1e-12)
