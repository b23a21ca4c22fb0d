"""Contact points of pairs of shapes at random poses, and their derivatives.

Derivatives are those by differences, and finite everywhere, also where shapes coincide."""

import itertools

import collision_pairs as pairs
import equinox as eqx
import jax
import numpy as np
import pytest
from helpers import slow_unless

from jaxmbd._mechanism.collisions import ABSENT, point_count
from jaxmbd._mechanism.pose import Pose
from jaxmbd._mechanism.shapes import Box, Capsule, ConvexPoints, HeightField, Sphere


def each(*kinds, quick=lambda name: name not in pairs.SEARCHED):
    return pytest.mark.parametrize("name", slow_unless(quick, [x for kind in kinds for x in kind]))


@each(pairs.CLOSED, pairs.BOXES, pairs.SEARCHED)
def test_least_gap_is_the_distance_or_the_overlap(name):
    """Half the gap from the point to both sides is the farthest point of each shape along the
    normal, and a point of it: then no other points are nearer. In no other direction are the shapes
    farther apart. The choice of an axis of boxes may cost 1e-3 of the half sizes, and where they
    are apart the gap is a bound."""
    (a, pose_a, b, pose_b), _, _, found = pairs.at_random(name)
    deepest = np.arange(pairs.COUNT), np.argmin(found.points.gap, axis=1)
    gap, position, normal = (x[deepest] for x in found.points)
    assert (gap < -0.05).sum() >= 5 and (gap > 0.05).sum() >= 5
    within, tolerance = (1e-3, 6e-4) if name in pairs.BOXES else (1e-12, 1e-12)
    n = np.broadcast_to(pairs.sphere_of_directions(8000), (pairs.COUNT, 8000, 3))
    apart = np.sum(n * (pose_b.position - pose_a.position)[:, None], axis=2)
    for shape, pose, way in ((a, pose_a, 1), (b, pose_b, -1)):
        x = pairs.local(position - way * gap[:, None] / 2 * normal, pose)
        outward = way * pairs.local(normal + pose.position, pose)
        reach = pairs.extent(shape, outward[:, None])[:, 0]
        np.testing.assert_allclose(np.sum(x * outward, axis=1), reach, atol=1e-12)
        bound = name in pairs.BOXES and gap > 0
        room = np.min(pairs.extent(shape, n) - np.sum(x[:, None] * n, axis=2), axis=1)
        assert np.all((room > -within) | bound)
        apart -= pairs.extent(shape, way * n @ pairs.matrices(pose.orientation))
    assert np.all((apart.max(axis=1) < gap + tolerance) | bound)


@each(pairs.ON_GROUND)
def test_least_gap_above_the_ground(name):
    """All points are midway between the plane and points of the shape."""
    (_, pose_a, b, pose_b), _, _, found = pairs.at_random(name)
    normals = pairs.matrices(pose_a.orientation)[:, :, 2]
    depth = pairs.extent(b, pairs.local(pose_b.position - normals, pose_b)[:, None])[:, 0]
    d = pose_b.position - pose_a.position
    expected = np.sum(d * normals, axis=1) - depth
    gap, position, normal = found.points
    np.testing.assert_allclose(gap.min(axis=1), expected, atol=1e-13)
    np.testing.assert_allclose(normal, normals[:, None] + 0 * normal, atol=1e-13)
    height = np.sum((position - pose_a.position[:, None]) * normal, axis=2)
    np.testing.assert_allclose(height, gap / 2, atol=1e-12)


@each(pairs.ON_TERRAIN, quick=lambda name: name in pairs.DERIVED)
def test_terrain_that_is_a_plane_is_ground(name):
    (_, pose_a, b, pose_b), *_ = pairs.at_random(name)
    slope_x, slope_y = 0.3, -0.2
    x, y = 0.5 * (np.arange(9.0) - 4), 0.6 * (np.arange(8.0) - 3.5)
    plane = HeightField(slope_x * x[:, None] + slope_y * y[None], pairs.TERRAIN.spacing)
    axis = np.array([slope_y, -slope_x, 0.0])
    tilt = pairs.turn(np.arctan(np.linalg.norm(axis)) * axis / np.linalg.norm(axis))
    tilted = Pose(
        pose_a.position, pairs.product(pose_a.orientation, np.tile(tilt, (pairs.COUNT, 1)))
    )
    found, expected = (
        pairs.of_many(pairs.many(plane), pose_a, b, pose_b),
        pairs.of_many(pairs.GROUND, tilted, b, pose_b),
    )
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)


def test_terrain_is_its_triangles():
    """The surface is linear in each triangle: the plane through the corners of the one at x, y."""
    surface = jax.jit(lambda x, y: pairs.TERRAIN.surface(x, y))
    for x, y in [(0.1, 0.2), (0.7, -1.9), (-1.99, 2.0), (5.0, 0.1)]:
        i = int(np.clip(np.floor(x / 0.5 + 4), 0, 7))
        j = int(np.clip(np.floor(y / 0.6 + 3.5), 0, 6))
        u, v = x / 0.5 + 4 - i, y / 0.6 + 3.5 - j
        nodes = [(i, j), (i + 1, j + 1), (i + 1, j) if u > v else (i, j + 1)]
        rows = [[1, 0.5 * (k - 4), 0.6 * (m - 3.5)] for k, m in nodes]
        plane = np.linalg.solve(rows, [pairs.WAVES[node] for node in nodes])
        np.testing.assert_allclose(
            surface(x, y), [plane @ [1, x, y], plane[1], plane[2]], atol=1e-14
        )


@each(
    ["Capsule-Sphere", "Sphere-Sphere", "Capsule-Capsule", "Box-Box", "ConvexPoints-ConvexPoints"]
)
def test_swapped_shapes_give_opposite_normals(name):
    (a, pose_a, b, pose_b), _, _, found = pairs.at_random(name)
    one, other = found.points, pairs.of_many(b, pose_b, a, pose_a)
    if type(a) is not type(b):  # else the points of a and b have other roles
        for x, y in zip(one, (other.gap, other.position, -other.normal), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-14, atol=1e-14)
    # Boxes prefer the faces of a a little.
    np.testing.assert_allclose(one.gap.min(axis=1), other.gap.min(axis=1), atol=1e-3)


def test_a_capsule_that_sinks_into_a_face_has_points_at_both_ends():
    """Its axis, across the longest side of the box, passes through the face at a small angle."""
    bend, up = np.linspace(-0.08, 0.08, pairs.COUNT), np.eye(3)[2]
    still = np.tile(pairs.IDENTITY, (pairs.COUNT, 1))
    lying = pairs.turn(np.outer(bend - np.pi / 2, np.eye(3)[0]))
    middle = np.tile(np.asarray(pairs.BOX.size) / 2 * up, (pairs.COUNT, 1))
    box, capsule = pairs.many(pairs.BOX), pairs.many(pairs.CAPSULE)
    points = pairs.of_many(box, Pose(0 * middle, still), capsule, Pose(middle, lying))
    radius, length = map(np.asarray, (pairs.CAPSULE.radius, pairs.CAPSULE.length))
    reach = length / 2 * np.sin(np.abs(bend))
    gaps = np.stack([-reach, reach], axis=1) - radius
    np.testing.assert_allclose(points.gap, gaps, atol=1e-14)
    np.testing.assert_allclose(points.normal, np.tile(up, (pairs.COUNT, 2, 1)), atol=1e-14)


def test_gaps_of_nearly_parallel_capsules_open_at_the_rate_of_their_points():
    """One that moves along the normal of a point, askew and beside the other in part."""
    rng = np.random.default_rng(3)
    a, b = pairs.scaled(pairs.CAPSULE, 0), pairs.scaled(pairs.CAPSULE, 1)
    askew = np.pad(0.05 * rng.normal(size=(pairs.COUNT, 2)), ((0, 0), (0, 1)))
    beside = np.asarray(a.radius)[:, None] * rng.normal(size=(pairs.COUNT, 3)) * [1, 1, 3]
    poses = (pairs.placed(np.zeros((pairs.COUNT, 3))), pairs.placed(beside, pairs.turn(askew)))
    args = a, poses[0], b, poses[1]
    points = pairs.derived(*args).points
    assert 5 < np.sum(points.gap[:, 1] < ABSENT) < pairs.COUNT
    for k in range(2):
        tangents = jax.tree.map(np.zeros_like, args)
        tangents[3].position[:] = points.normal[:, k]
        rates = pairs.derived(*args, tangents=tangents).rates.gap[:, k]
        present = points.gap[:, k] < ABSENT
        np.testing.assert_allclose(rates[present], 1.0, atol=1e-12)


@pytest.mark.parametrize(
    "shape",
    [pairs.SPHERE, pairs.CAPSULE, pairs.BOX, pairs.CYLINDER, pairs.ELLIPSOID, pairs.HULL],
    ids=lambda x: type(x).__name__,
)
def test_nearest_points_of_cores(shape):
    """x is the nearest point of a convex set to p if and only if it is in the set, and none is
    farther in the direction p - x."""
    rng = np.random.default_rng(3)
    shapes = pairs.scaled(shape, 0)
    p = rng.normal(size=(pairs.COUNT, 3)) * rng.choice([0.9, 3.0], size=(pairs.COUNT, 1))

    @eqx.filter_jit
    @jax.vmap
    def all_of_it(shape, p):
        x = shape.nearest(p)
        return x, shape.support(p - x), shape.margin

    x, farthest, margin = map(np.asarray, all_of_it(shapes, p))
    d = p - x
    outside = np.linalg.norm(d, axis=1) > 1e-9
    assert outside.sum() > 30
    scale = 1 + np.linalg.norm(p, axis=1)
    assert np.all((np.abs(np.sum(d * (farthest - x), axis=1)) < 1e-13 * scale)[outside])
    directions = pairs.sphere_of_directions(500)
    reach = pairs.extent(shapes, np.broadcast_to(directions, (pairs.COUNT, 500, 3)))
    assert np.all(x @ directions.T < reach - margin[:, None] + 1e-12)


QUICK = each(pairs.PAIRS, quick=lambda name: name in pairs.DERIVED)


@QUICK
def test_derivatives_are_those_by_differences(name):
    """In both modes, by poses and sizes. Kinks and jumps, where the differences to both sides
    differ, are left out; they are few."""
    case = pairs.at_random(name)
    found = pairs.derived(*case.args, tangents=case.tangents, weights=case.weights)
    before, after = pairs.of_many(*case.line(-1e-6)), pairs.of_many(*case.line(1e-6))
    present = found.points.gap < ABSENT
    right = jax.tree.map(lambda x, y: (y - x) / 1e-6, found.points, after)
    left = jax.tree.map(lambda x, y: (y - x) / 1e-6, before, found.points)
    smooth = present & (np.abs(right.gap - left.gap) < 1e-3)
    assert smooth.sum() > 0.9 * present.sum()
    for rate, f, r in zip(found.rates, right, left, strict=True):
        rate, f, r = (x[smooth] for x in (rate, f, r))
        both = np.abs(f - r) < 1e-3
        assert both.mean() > 0.9
        size = 1 + np.abs(rate[both]).max()
        np.testing.assert_allclose(rate[both], ((f + r) / 2)[both], atol=2e-5 * size)

    def inner(x, y):
        x, y = jax.tree.leaves(x), jax.tree.leaves(y)
        return sum(
            np.sum((a * b).reshape(pairs.COUNT, -1), axis=1) for a, b in zip(x, y, strict=True)
        )

    forward = inner(case.weights, found.rates)
    size = np.abs(forward).max()
    np.testing.assert_allclose(
        inner(found.gradient, case.tangents), forward, rtol=1e-9, atol=1e-12 * size
    )


@QUICK
def test_motion_of_b_along_the_normal_opens_the_gap(name):
    args, tangents, *_ = pairs.at_random(name)
    found = pairs.derived(*args)
    normal = found.points.normal
    np.testing.assert_allclose(np.linalg.norm(normal, axis=-1), 1.0, atol=1e-14)
    still = jax.tree.map(np.zeros_like, tangents)
    for k in range(normal.shape[1]):
        along = Pose(normal[:, k], still[3].orientation)
        moved = pairs.derived(*args, tangents=(*still[:3], along))
        expected = np.where(moved.points.gap[:, k] < ABSENT, 1.0, 0.0)
        rate = moved.rates.gap[:, k]
        np.testing.assert_allclose(rate, expected, atol=1e-9)


def degenerate_poses():
    """Coincident, aligned, touching, deep inside, nearly so, and far away."""
    s = 0.5**0.5
    places = [
        (0.0, 0.0, 0.0), (1e-200, 0.0, 0.0), (0.0, 1e-12, 0.0), (0.0, 0.0, 1e-6),
        (0.5, 0.0, 0.0), (0.0, 0.6, 0.0), (0.0, 0.0, 0.4), (0.5, 0.6, 0.4), (0.2, 0.1, 0.3),
        (0.8, 0.0, 0.0), (0.0, 1.5, 0.0), (0.0, 0.0, 0.9), (0.0, 0.0, -0.8), (0.0, 0.0, 1.1),
        (1.0, 1.0, 1.0), (1e3, -1e3, 10.0),
    ]  # fmt: skip
    turns = [
        (1.0, 0.0, 0.0, 0.0), (s, s, 0.0, 0.0), (s, 0.0, s, 0.0), (s, 0.0, 0.0, s),
        (0.0, 1.0, 0.0, 0.0), (1.0, 1e-9, 0.0, 0.0), (1.0, 1e-5, 1e-5, 0.0),
        (np.cos(np.pi / 8), 0.0, 0.0, np.sin(np.pi / 8)), (0.5, 0.5, 0.5, 0.5),
    ]  # fmt: skip
    places, turns = map(np.array, zip(*itertools.product(places, turns), strict=True))
    return Pose(places, turns / np.linalg.norm(turns, axis=1, keepdims=True))


def test_derivatives_over_a_border_are_those_of_one_side():
    """A sphere over the border between a face and an edge of a box, and over the end of a capsule:
    on one side the normal stays, on the other one it turns."""
    for name, place in (("Box-Sphere", (0.5, 0.0, 0.9)), ("Capsule-Sphere", (0.8, 0.0, 0.6))):
        (a, b), along = pairs.PAIRS[name], np.array([name == "Box-Sphere", 0.0, name[0] == "C"])
        center = pairs.placed(np.tile(place, (pairs.COUNT, 1)))
        args = pairs.many(a), pairs.placed(np.zeros((pairs.COUNT, 3))), pairs.many(b), center
        still = jax.tree.map(np.zeros_like, args)
        tangents = (*still[:3], Pose(still[3].position + along, still[3].orientation))
        found = pairs.derived(*args, tangents=tangents)
        np.testing.assert_allclose(found.rates.normal, 0.0, atol=1e-12)


SINGLE = [
    (name, "float32")
    for name in (
        "Capsule-Sphere", "HalfSpace-Cylinder", "HalfSpace-ConvexPoints", "HeightField-Sphere",
        "Capsule-Capsule", "Box-Sphere", "Cylinder-Sphere", "Box-Capsule", "Box-Box",
        "Cylinder-Box",
    )
]  # fmt: skip


@pytest.mark.parametrize(
    "name, dtype",
    slow_unless(
        lambda name, dtype: name in pairs.DERIVED and (dtype == "float64" or name == SINGLE[0][0]),
        [(name, "float64") for name in pairs.PAIRS] + SINGLE,
    ),
)
def test_finite_with_both_derivatives_at_degenerate_poses(name, dtype):
    a, b = (jax.tree.map(lambda x: x.astype(dtype), pairs.many(x)) for x in pairs.PAIRS[name])
    poses = degenerate_poses()
    for k in range(0, len(poses.position), pairs.COUNT):
        pose_b = jax.tree.map(
            lambda x: x.astype(dtype), pairs.one_of(poses, slice(k, k + pairs.COUNT))
        )
        pose_a = Pose(0 * pose_b.position, np.tile(pairs.IDENTITY, (pairs.COUNT, 1)).astype(dtype))
        args = a, pose_a, b, pose_b
        found = pairs.derived(
            *args,
            tangents=jax.tree.map(np.ones_like, args),
            weights=pairs.weights_of(args, np.ones),
        )
        for leaf in jax.tree.leaves(found):
            assert leaf.dtype == dtype
            assert np.all(np.isfinite(leaf))
        small = 1e-14 if dtype == "float64" else 1e-6
        np.testing.assert_allclose(np.linalg.norm(found.points.normal, axis=-1), 1.0, atol=small)
        absent = found.points.gap >= ABSENT
        assert all(np.all(rate[absent] == 0) for rate in found.rates)


@pytest.mark.parametrize(
    "name", slow_unless(lambda x: x in pairs.DERIVED[4:5], [x for x, _ in SINGLE])
)
def test_single_precision(name):
    case = pairs.at_random(name)
    single = jax.tree.map(lambda x: x.astype("float32"), case.args)
    gaps = pairs.derived(*single).points.gap.min(axis=1)
    np.testing.assert_allclose(gaps, case.found.points.gap.min(axis=1), atol=1e-3)


def test_pairs_without_contact_points():
    with pytest.raises(ValueError, match="HalfSpace and a HeightField.*Supported pairs.*HalfSpace"):
        point_count(pairs.GROUND, pairs.TERRAIN)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Sphere(-1.0), "`radius` of Sphere must be positive and finite, but is -1.0"),
        (lambda: Sphere("wide"), "`radius` of Sphere must be a number, but is 'wide'"),
        (lambda: Capsule(radius=np.nan, length=1.0), "`radius` of Capsule must be positive"),
        (lambda: Box(size=[1.0, 2.0]), r"`size` of Box must have shape \(3,\), but has \(2,\)"),
        (lambda: ConvexPoints(np.zeros((0, 3))), "`points` of ConvexPoints must hold a corner"),
        (lambda: ConvexPoints([[0.0, np.nan, 2.0]]), "`points` of ConvexPoints must be finite"),
        (lambda: HeightField([[1.0, 2.0]], [1.0, 1.0]), "nx, ny >= 2, but has"),
        (lambda: HeightField(pairs.WAVES, [1.0, -1.0]), "`spacing` of HeightField must be"),
    ],
)
def test_bad_shapes(make, message):
    with pytest.raises(ValueError, match=message):
        make()
