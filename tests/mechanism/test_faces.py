"""Contact points of faces on faces, against the outline of what the faces have in common, and faces
of points against their convex hull."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collision_pairs import (
    CAPSULE,
    CYLINDER,
    IDENTITY,
    about_x,
    about_z,
    check_derivatives,
    collide_all,
    collide_one,
    extent,
    lying,
    matrices,
    one_of,
    separation,
    sphere_of_directions,
    turned,
)
from scipy.spatial import ConvexHull

from jaxmbd.mechanism.collisions import ABSENT
from jaxmbd.mechanism.collisions.manifold import manifold
from jaxmbd.mechanism.pose import Pose
from jaxmbd.mechanism.shapes import Box, Capsule, ConvexPoints, Cylinder
from jaxmbd.rotations import quaternion_exp, quaternion_product

CUBE = ConvexPoints(np.array(list(itertools.product((-0.5, 0.5), repeat=3))))
# A pyramid with its base, of an obtuse angle, down, and a point within the base.
BASE = np.array([[0.5, 0.0], [0.0, 0.1], [-0.5, 0.0], [0.1, -0.4]])
PYRAMID = ConvexPoints(
    np.concatenate([np.c_[BASE, 4 * [0.0]], [[0.0, 0.0, 0.5], [0.05, -0.1, 0.0]]])
)
SLAB = Box([1.0, 0.7, 0.3])
OCTAGON = 2 * 2**0.5 * 0.5**2


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
        reach.append(jnp.sum(n * farthest) + shape.margin)
    return manifold(*faces, normal, -reach[0] - reach[1], position)


# Upper and lower shape, by how much their bottom and top are below and above their origins, the
# place and turn of the upper one, and the outline of what their faces have in common.
STANDING = [
    (CYLINDER, 0.4, SLAB, 0.3, (0.1, 0.0), 0.3, outline(8, 0.5, 0.3) + [0.1, 0.0]),
    (CYLINDER, 0.4, SLAB, 0.3, (1.0, 0.0), 0.0, outline(8, 0.5)[2:7] + [1.0, 0.0]),
    (CYLINDER, 0.4, Cylinder(0.8, 0.2), 0.2, (0.2, 0.1), 0.1, outline(8, 0.5, 0.1) + [0.2, 0.1]),
    (CUBE, 0.5, CUBE, 0.5, (0.0, 0.0), 0.0, outline(4, 0.5**0.5, np.pi / 4)),
    (CUBE, 0.5, CUBE, 0.5, (0.0, 0.0), np.pi / 4, outline(8, 0.5 / np.cos(np.pi / 8), np.pi / 8)),
    (CUBE, 0.5, SLAB, 0.3, (0.8, 0.0), 0.0, [[0.3, 0.5], [0.3, -0.5], [1.0, -0.5], [1.0, 0.5]]),
    (PYRAMID, 0.0, SLAB, 0.3, (0.0, 0.1), 0.0, BASE + [0.0, 0.1]),
    (PYRAMID, 0.0, CUBE, 0.5, (0.0, 0.1), 0.0, BASE + [0.0, 0.1]),
    (CUBE, 0.5, Cylinder(0.8, 0.2), 0.2, (0.0, 0.0), 1.0, outline(4, 0.5**0.5, np.pi / 4 + 1)),
    (SLAB, 0.3, Cylinder(0.5, 0.2), 0.2, (0.4, 0.1), 0.0, outline(8, 0.5)),
]


def case_name(case):
    return f"{type(case[0]).__name__}-{type(case[2]).__name__}"


def is_outline(found, expected):
    """All points are at corners, and there is one at each."""
    distances = np.linalg.norm(found[:, None] - np.asarray(expected)[None], axis=-1)
    np.testing.assert_allclose(distances.min(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(distances.min(axis=1), 0.0, atol=1e-9)
    assert len(found) == len(expected)


def check_standing(function, height, upper, below, lower, above, place, angle, expected):
    """In any common frame."""
    turn = jnp.array(turned(np.random.default_rng(0), 1)[0])
    for base in (Pose(jnp.zeros(3), jnp.array(IDENTITY)), Pose(jnp.ones(3), turn)):
        up = base.direction(jnp.array([0.0, 0.0, 1.0]))
        at = base.compose(Pose(jnp.array([*place, above + below + height]), about_z(angle)))
        gap, position, normal = function(lower, base, upper, at, up, at.position)
        present = np.asarray(gap) < ABSENT
        np.testing.assert_allclose(gap[present], height, atol=1e-12)
        np.testing.assert_allclose(normal, np.tile(up, (len(gap), 1)), atol=1e-12)
        local = np.asarray(jax.jit(jax.vmap(base.local_point))(position))[present]
        np.testing.assert_allclose(local[:, 2], above + height / 2, atol=1e-12)
        is_outline(local[:, :2], expected)


@pytest.mark.parametrize(
    "case",
    # By default each pair of kinds once.
    [
        case if i in (0, 2, 3, 5, 8, 9) else pytest.param(case, marks=pytest.mark.slow)
        for i, case in enumerate(STANDING)
    ],
    ids=case_name,
)
def test_faces_touch_in_the_outline_of_what_they_have_in_common(case):
    for height in (1e-3, 0.0, -1e-3):
        check_standing(on_faces, height, *case)


def test_faces_of_convex_points_are_those_of_their_hull():
    """Random points have triangles: each is found from directions near its normal."""
    rng = np.random.default_rng(2)
    face = eqx.filter_jit(jax.vmap(lambda shape, d: shape.face(d).corners, in_axes=(None, 0)))
    for _ in range(5):
        points = rng.normal(size=(20, 3))
        hull = ConvexHull(points)
        d = hull.equations[:, :3] + rng.uniform(-1e-3, 1e-3, hull.simplices.shape)
        d /= np.linalg.norm(d, axis=1, keepdims=True)
        for corners, triangle in zip(face(ConvexPoints(points), d), hull.simplices, strict=True):
            found = {tuple(x) for x in np.asarray(corners)}
            assert found == {tuple(x) for x in points[triangle]}


@pytest.mark.slow
@pytest.mark.parametrize("case", [STANDING[k] for k in (1, 3, 4, 6, 8)], ids=case_name)
def test_shapes_stand_on_the_outline_of_what_their_faces_have_in_common(case):
    check_standing(lambda *args: collide_one(*args[:4]), -1e-3, *case)


@pytest.mark.parametrize("tilt", [0.0, 1e-6, 0.05])
def test_tilted_cylinder_has_the_gaps_of_points_of_its_rim(tilt):
    """At the angle phi about its axis from that of the tilt the gap is by r (1 + sin(phi))
    sin(tilt) more than that of the deepest point, which is not among the eight of the face."""
    turn, center = 0.3, 0.1
    pose = Pose(jnp.array([center, 0.0, 0.7]), quaternion_product(about_x(tilt), about_z(turn)))
    up = jnp.array([0.0, 0.0, 1.0])
    deepest = pose.point(jnp.array([-0.5 * np.sin(turn), -0.5 * np.cos(turn), -0.4]))
    ground = Pose(jnp.zeros(3), jnp.array(IDENTITY))
    gap, position, _ = on_faces(SLAB, ground, CYLINDER, pose, up, deepest)
    angles = np.append(turn + np.pi / 4 * np.arange(8), -np.pi / 2)
    x = center + 0.5 * np.cos(angles)
    rise = 0.5 * (1 + np.sin(angles)) * np.sin(tilt)
    corner = np.argmin(
        np.hypot(position[:, :1] - x[None], gap[:, None] - gap.min() - rise[None]), axis=1
    )
    np.testing.assert_allclose(gap, deepest[2] - 0.3 + rise[corner], atol=1e-14)
    np.testing.assert_allclose(position[:, 0], x[corner], atol=1e-14)
    # All of the face; or of nine points, of two neighbours of the deepest one not the nearer.
    assert set(corner) == (set(range(9)) - {6} if tilt else set(range(8)))


def test_parallel_round_sides_touch_at_both_ends_of_what_they_share():
    """By s^2 / (2 (r + r')) more than where they cross, where their lines are s aside, up to the
    fourth power."""
    upper, r = Capsule(0.3, 0.2), 0.5 + 0.3
    up, crossing = jnp.array([0.0, 0.0, 1.0]), jnp.array([0.1, 0.0, 0.5])
    for angle in (0.0, 1e-9, 1e-5, 0.01):
        at = lying(0.1, 0.0, r, angle)
        gap, position, _ = on_faces(CYLINDER, lying(0.0, 0.0, 0.0), upper, at, up, crossing)
        ends = np.argsort(np.where(gap < ABSENT, position[:, 0], 0.1))[jnp.array([0, -1])]
        expected = 0.1 + 0.2 * np.cos(angle) * np.array([-1, 1])
        np.testing.assert_allclose(position[ends, 0], expected, atol=1e-4)
        np.testing.assert_allclose(gap[ends], (0.2 * np.sin(angle)) ** 2 / (2 * r), atol=1e-15)
        assert np.sum(gap < ABSENT) == (3 if angle > 1e-7 else 2)


FLAT = [
    (SLAB, 0.3, CYLINDER, 0.4),
    (CUBE, 0.5, PYRAMID, 0.0),
    (Cylinder(0.8, 0.2), 0.2, CUBE, 0.5),
    (CYLINDER, 0.4, Cylinder(0.6, 0.3), 0.3),
    (Cylinder(0.6, 0.3), 0.3, CAPSULE, 0.3),
    (CUBE, 0.5, CAPSULE, 0.3),
    (SLAB, 0.3, CUBE, 0.5),
]


def slightly_tilted(lower, above, upper, below, n):
    """One near the top of the other, by up to 0.05 apart or overlapping, and up to 0.1 tilted."""
    rng = np.random.default_rng(4)
    turns = jax.jit(jax.vmap(quaternion_exp))(
        jnp.array(rng.uniform(-0.07, 0.07, (n, 3)) * [1, 1, 20])
    )
    if isinstance(upper, Capsule):
        side = lying(0.0, 0.0, 0.0).orientation
        turns = jax.jit(jax.vmap(lambda p: quaternion_product(p, side)))(turns)
    places = rng.uniform(-1, 1, (n, 3)) * [0.4, 0.4, 0.05] + [0.0, 0.0, above + below]
    shapes = jax.tree.map(lambda x: jnp.stack(n * [x]), (lower, upper))
    origin = Pose(jnp.zeros((n, 3)), jnp.tile(jnp.array(IDENTITY), (n, 1)))
    return shapes[0], origin, shapes[1], Pose(jnp.array(places), turns)


@pytest.mark.slow
@pytest.mark.parametrize("case", [FLAT[k] for k in (0, 1, 3, 4)], ids=case_name)
def test_points_of_nearly_parallel_faces_are_on_both_shapes(case):
    """With both points that the gap is between within the shapes no gap is too small, nor does a
    point hang in the air. The least gap is the true one."""
    n, directions = 40, sphere_of_directions(500)
    a, pose_a, b, pose_b = slightly_tilted(*case, n)
    points = jax.tree.map(np.asarray, collide_all(a, pose_a, b, pose_b))
    present = points.gap < ABSENT
    assert np.mean(present.sum(axis=1) > 1) > 0.5
    for k in range(n):
        gap, position, normal = (x[k][present[k]] for x in points)
        truth = separation(*one_of((a, pose_a, b, pose_b), k))
        # The direction of one pair of rims is not found to the last digit.
        assert -4e-5 < gap.min() - truth < 1e-4
        for shape, pose, way in ((a, pose_a, 1), (b, pose_b, -1)):
            R = matrices(pose.orientation)[k]
            x = (position - way * gap[:, None] / 2 * normal - np.asarray(pose.position[k])) @ R
            within = extent(one_of(shape, k), directions)[None] - x @ directions.T
            assert within.min() > -1e-9


@pytest.mark.slow
@pytest.mark.parametrize("case", FLAT[:2] + FLAT[4:5], ids=case_name)
def test_derivatives_of_points_of_nearly_parallel_faces(case):
    n = 40
    a, pose_a, b, pose_b = slightly_tilted(*case, n)
    rng = np.random.default_rng(7)
    # In proportion: corners that are moved one by one leave their face.
    direction = jax.tree.map(lambda x: jnp.array(0.3 * rng.normal()) * x, (a, b))
    steps = jnp.array(rng.normal(size=(2, n, 6)))
    check_derivatives(a, pose_a, b, pose_b, (direction, *steps))
