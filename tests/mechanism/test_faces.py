"""Contact points of shapes that stand or lie on edges, faces and each other: against geometry by
hand, and the outline of what faces have in common."""

import itertools

import collision_pairs as pairs
import equinox as eqx
import jax
import numpy as np
import pytest
from helpers import slow_unless

from jaxmbd._mechanism.collisions import ABSENT
from jaxmbd._mechanism.collisions.manifold import manifold
from jaxmbd._mechanism.shapes import Box, Capsule, ConvexPoints, Cylinder

CUBE = ConvexPoints(np.array(list(itertools.product((-0.5, 0.5), repeat=3))))
# A pyramid with its base, of an obtuse angle, down, and points within the base.
BASE = np.array([[0.5, 0.0], [0.0, 0.1], [-0.5, 0.0], [0.1, -0.4]])
WITHIN = [[0.05, -0.1, 0.0], [0.0, -0.2, 0.0], [0.1, -0.1, 0.0]]
PYRAMID = ConvexPoints(np.concatenate([np.c_[BASE, 4 * [0.0]], [[0.0, 0.0, 0.5]], WITHIN]))
SLAB, DRUM = Box(size=[2.0, 1.4, 0.6]), Cylinder(radius=0.8, length=0.4)
SMALL, BLOCK = Box(size=[0.4, 0.4, 0.8]), Box(size=[1.0, 1.0, 1.0])


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
    (SLAB, 0.3, Cylinder(radius=0.5, length=0.4), 0.2, (0.4, 0.1), 0.0, outline(8, 0.5)),
    (SMALL, 0.4, SLAB, 0.3, (0.3, 0.2), 0.3, outline(4, 0.08**0.5, np.pi / 4 + 0.3) + [0.3, 0.2]),
    (BLOCK, 0.5, BLOCK, 0.5, (0.0, 0.0), 1e-9, outline(4, 0.5**0.5, np.pi / 4)),
    (BLOCK, 0.5, BLOCK, 0.5, (0.0, 0.0), np.pi / 4, outline(8, 0.5 / np.cos(np.pi / 8), np.pi / 8)),
    (
        BLOCK,
        0.5,
        BLOCK,
        0.5,
        (0.3, 0.0),
        np.pi / 2,
        [[-0.2, 0.5], [-0.2, -0.5], [0.5, -0.5], [0.5, 0.5]],
    ),
]


def check_standing(height, upper, below, lower, above, place, angle, expected):
    """In any common frame."""
    for k in range(2):
        base = pairs.one_of(pairs.FRAMES, slice(k, k + 1))
        up = pairs.rotated(base.orientation, pairs.UP)[0]
        at = pairs.moved_along(
            pairs.placed([*place, above + below + height], pairs.turn(angle * pairs.UP)), base
        )
        gap, position, normal = map(np.asarray, touching(lower, base, upper, at, up))
        present = gap < ABSENT
        np.testing.assert_allclose(gap[present], height, atol=1e-12)
        np.testing.assert_allclose(normal, np.tile(up, (len(gap), 1)), atol=1e-12)
        found = pairs.local(position[present], base)
        np.testing.assert_allclose(found[:, 2], above + height / 2, atol=1e-12)
        # All points are at corners, and there is one at each.
        away = np.linalg.norm(found[:, None, :2] - np.asarray(expected)[None], axis=-1)
        assert away.shape == 2 * (len(expected),)
        for axis in (0, 1):
            near = 2e-8 if upper is BLOCK else 1e-9
            np.testing.assert_allclose(away.min(axis=axis), 0.0, atol=near)


def one(a, pose_a, b, pose_b):
    return pairs.one_of(pairs.collided(a, pose_a, b, pose_b), 0)


def touching(lower, base, upper, at, up):
    if isinstance(lower, Box) and isinstance(upper, Box):
        return one(lower, base, upper, at)
    base, at = (pairs.one_of(pose, 0) for pose in (base, at))
    return on_faces(lower, base, upper, at, up, at.position)


@pytest.mark.parametrize("k", slow_unless(lambda k: k not in (2, 5, 6, 8, 9), range(len(STANDING))))
def test_faces_touch_in_the_outline_of_what_they_have_in_common(k):
    for height in (1e-3, 0.0, -1e-3):
        check_standing(height, *STANDING[k])


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
    upper, r = Capsule(radius=0.3, length=0.4), 0.5 + 0.3
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


def test_crossed_edges_touch_in_one_point():
    """Two cubes, each on an edge, one turned against the other by a right angle."""
    low = pairs.placed(np.zeros(3), pairs.turn([np.pi / 4, 0.0, 0.0]))
    high = pairs.placed([0.1, 0.2, 2**0.5 - 0.02], pairs.turn([0.0, np.pi / 4, 0.0]))
    gap, position, normal = one(BLOCK, low, BLOCK, high)
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
    np.testing.assert_allclose(np.linalg.norm(position[below, :2], axis=1), 0.5, atol=1e-12)
    np.testing.assert_allclose(position[below, :2].sum(axis=0), 0.0, atol=1e-12)
    gap, position, _ = one(pairs.GROUND, ORIGIN, pairs.CYLINDER, pairs.lying([0.0, 0.0, 0.5]))
    np.testing.assert_allclose(sorted(position[gap < 1e-3, 0]), [-0.4, 0.4], atol=1e-12)
