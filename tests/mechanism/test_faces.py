"""Contact points of faces on faces, against the outline of what the faces have in common, and faces
of points against their convex hull."""

import itertools

import equinox as eqx
import jax
import numpy as np
import pytest
from collision_pairs import (
    CAPSULE,
    COUNT,
    CYLINDER,
    FRAMES,
    UP,
    collided,
    derived,
    extent,
    local,
    lying,
    many,
    matrices,
    moved_along,
    of_many,
    one_of,
    placed,
    product,
    rotated,
    separation,
    sphere_of_directions,
    turn,
)
from helpers import slow_unless
from scipy.spatial import ConvexHull

from jaxmbd.mechanism.collisions import ABSENT
from jaxmbd.mechanism.collisions.manifold import manifold
from jaxmbd.mechanism.pose import Pose
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
    (CYLINDER, 0.4, SLAB, 0.3, (0.1, 0.0), 0.3, outline(8, 0.5, 0.3) + [0.1, 0.0]),
    (CYLINDER, 0.4, SLAB, 0.3, (1.0, 0.0), 0.0, outline(8, 0.5)[2:7] + [1.0, 0.0]),
    (CYLINDER, 0.4, DRUM, 0.2, (0.2, 0.1), 0.1, outline(8, 0.5, 0.1) + [0.2, 0.1]),
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
        base = one_of(FRAMES, slice(k, k + 1))
        up = rotated(base.orientation, UP)[0]
        at = moved_along(placed([*place, above + below + height], turn(angle * UP)), base)
        gap, position, normal = map(np.asarray, function(lower, base, upper, at, up))
        present = gap < ABSENT
        np.testing.assert_allclose(gap[present], height, atol=1e-12)
        np.testing.assert_allclose(normal, np.tile(up, (len(gap), 1)), atol=1e-12)
        found = local(position[present], base)
        np.testing.assert_allclose(found[:, 2], above + height / 2, atol=1e-12)
        # All points are at corners, and there is one at each.
        away = np.linalg.norm(found[:, None, :2] - np.asarray(expected)[None], axis=-1)
        assert away.shape == 2 * (len(expected),)
        for axis in (0, 1):
            np.testing.assert_allclose(away.min(axis=axis), 0.0, atol=1e-9)


def by_faces(lower, base, upper, at, up):
    poses = (one_of(pose, 0) for pose in (base, at))
    base, at = poses
    return on_faces(lower, base, upper, at, up, at.position)


@pytest.mark.parametrize("k", slow_unless(lambda k: k in (0, 1, 3, 4, 7), range(len(STANDING))))
def test_faces_touch_in_the_outline_of_what_they_have_in_common(k):
    for height in (1e-3, 0.0, -1e-3):
        check_standing(by_faces, height, *STANDING[k])


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 4, 6, 8])
def test_shapes_stand_on_the_outline_of_what_their_faces_have_in_common(k):
    def function(*args):
        return one_of(collided(*args[:4]), 0)

    check_standing(function, -1e-3, *STANDING[k])


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
    tilted = product(turn([tilt, 0.0, 0.0]), turn(about_z * UP))
    pose = placed([center, 0.0, 0.7], tilted)
    at = np.array([-0.5 * np.sin(about_z), -0.5 * np.cos(about_z), -0.4])
    deepest = pose.position[0] + rotated(tilted, at)[0]
    gap, position, _ = map(
        np.asarray,
        on_faces(SLAB, one_of(FRAMES, 0), CYLINDER, one_of(pose, 0), UP, deepest),
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
    below, crossing = one_of(lying(np.zeros(3)), 0), np.array([0.1, 0.0, 0.5])
    for angle in (0.0, 1e-9, 1e-5, 0.01):
        at = one_of(lying([0.1, 0.0, r], angle), 0)
        gap, position, _ = map(np.asarray, on_faces(CYLINDER, below, upper, at, UP, crossing))
        ends = np.argsort(np.where(gap < ABSENT, position[:, 0], 0.1))[[0, -1]]
        expected = 0.1 + 0.2 * np.cos(angle) * np.array([-1, 1])
        np.testing.assert_allclose(position[ends, 0], expected, atol=1e-4)
        np.testing.assert_allclose(gap[ends], (0.2 * np.sin(angle)) ** 2 / (2 * r), atol=1e-15)
        assert np.sum(gap < ABSENT) == (3 if angle > 1e-7 else 2)


FLAT = {
    "Box-Cylinder": (SLAB, 0.3, CYLINDER, 0.4),
    "ConvexPoints-ConvexPoints": (CUBE, 0.5, PYRAMID, 0.0),
    "Cylinder-Cylinder": (CYLINDER, 0.4, Cylinder(0.6, 0.3), 0.3),
    "Cylinder-Capsule": (Cylinder(0.6, 0.3), 0.3, CAPSULE, 0.3),
}


def slightly_tilted(lower, above, upper, below):
    """One near the top of the other, by up to 0.05 apart or overlapping, and up to 0.1 tilted."""
    rng = np.random.default_rng(4)
    turns = turn(rng.uniform(-0.07, 0.07, (COUNT, 3)) * [1, 1, 20])
    if isinstance(upper, Capsule):
        turns = product(turns, lying(np.zeros((COUNT, 3))).orientation)
    places = rng.uniform(-1, 1, (COUNT, 3)) * [0.4, 0.4, 0.05] + [0.0, 0.0, above + below]
    return many(lower), placed(np.zeros((COUNT, 3))), many(upper), Pose(places, turns)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAT)
def test_points_of_nearly_parallel_faces_are_on_both_shapes(name):
    """With both points that the gap is between within the shapes no gap is too small, nor does a
    point hang in the air. The least gap is the true one."""
    args = slightly_tilted(*FLAT[name])
    gap, position, normal = of_many(*args)
    present = gap < ABSENT
    assert np.mean(present.sum(axis=1) > 1) > 0.5
    error = gap.min(axis=1) - separation(*args)
    # The direction of one pair of rims is not found to the last digit.
    assert -4e-5 < error.min() and error.max() < 1e-4
    directions = np.broadcast_to(sphere_of_directions(500), (COUNT, 500, 3))
    for shape, pose, way in ((args[0], args[1], 1), (args[2], args[3], -1)):
        R, reach = matrices(pose.orientation), extent(shape, directions)
        x = position - way * gap[..., None] / 2 * normal - pose.position[:, None]
        within = reach[:, None] - (x @ R) @ directions[0].T
        assert within[present].min() > -1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Box-Cylinder", "ConvexPoints-ConvexPoints"])
def test_derivatives_of_points_of_nearly_parallel_faces(name):
    """By a motion of b, where the differences to both sides agree."""
    args = slightly_tilted(*FLAT[name])
    step = np.random.default_rng(7).normal(size=(COUNT, 3))
    still = [jax.tree.map(np.zeros_like, x) for x in args]
    rates = derived(*args, tangents=(*still[:3], still[3]._replace(position=step))).rates
    ends = [
        of_many(*args[:3], args[3]._replace(position=args[3].position + s * step))
        for s in (-1e-6, 0.0, 1e-6)
    ]
    left, right = (
        jax.tree.map(lambda x, y: (y - x) / 1e-6, *pair) for pair in itertools.pairwise(ends)
    )
    smooth = (ends[1].gap < ABSENT) & (np.abs(right.gap - left.gap) < 1e-3)
    assert smooth.mean() > 0.1
    for rate, f, r in zip(rates, right, left, strict=True):
        rate, f, r = (x[smooth] for x in (rate, f, r))
        both = np.abs(f - r) < 1e-3
        assert both.mean() > 0.9
        np.testing.assert_allclose(rate[both], ((f + r) / 2)[both], atol=1e-4)
