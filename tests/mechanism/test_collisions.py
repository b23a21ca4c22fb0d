"""Contact points of pairs of shapes at random poses.

Gaps are compared with a search over all directions, and with the exact depth below a plane. Pairs
that are swapped or moved together must give the same points. Bad shapes and pairs are refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collision_pairs import (
    BOX,
    BOXES,
    BRICK,
    CAPSULE,
    CLOSED,
    CYLINDER,
    ELLIPSOID,
    GENERAL,
    GROUND,
    HULL,
    MANIFOLDS,
    ON_GROUND,
    ON_TERRAIN,
    PAIRS,
    SPHERE,
    TERRAIN,
    TOLERANCE,
    WAVES,
    collide_all,
    collide_with,
    extent,
    matrices,
    one_of,
    pairs,
    random_poses,
    samples,
    scaled,
    separation,
    sphere_of_directions,
    turned,
)

from jaxmbd.mechanism.collisions import ABSENT, point_count
from jaxmbd.mechanism.pose import Pose
from jaxmbd.mechanism.shapes import (
    Box,
    Capsule,
    ConvexPoints,
    Cylinder,
    Disc,
    Ellipsoid,
    HalfSpace,
    HeightField,
    Sphere,
)

# --- values ---------------------------------------------------------------------------------------


# Each kind of shape with another one and with itself.
SEARCHED = [GENERAL[k] for k in (0, 1, 2, 5)]


@pairs(CLOSED, slow=SEARCHED)
def test_least_gap_is_the_distance_or_the_overlap(a, b):
    n = 40
    a, b, (pose_a, pose_b) = scaled(a, 0, n), scaled(b, 1, n), random_poses(2, n)
    gaps = np.asarray(collide_all(a, pose_a, b, pose_b).gap).min(axis=1)
    assert (gaps < -0.05).sum() >= 5 and (gaps > 0.05).sum() >= 5
    for k in range(n):
        args = one_of((a, pose_a, b, pose_b), k)
        truth = separation(*args)
        # The search can stop short on a ridge.
        assert -3e-5 < gaps[k] - truth < 1e-4


@pairs(CLOSED[:-1], slow=SEARCHED)
def test_points_are_on_both_surfaces(a, b):
    """Half the gap from the point to both sides is the farthest point of each shape along the
    normal, and a point of it: then no other points are nearer."""
    n, directions = 40, sphere_of_directions(500)
    a, b, (pose_a, pose_b) = scaled(a, 0, n), scaled(b, 1, n), random_poses(2, n)
    points = jax.tree.map(np.asarray, collide_all(a, pose_a, b, pose_b))
    deepest = np.argmin(points.gap, axis=1)
    for k, (gap, position, normal) in enumerate(zip(*points, strict=True)):
        gap, position, normal = (x[deepest[k]] for x in (gap, position, normal))
        for shape, pose, way in ((a, pose_a, 1), (b, pose_b, -1)):
            R = matrices(pose.orientation)[k]
            x = (position - way * gap / 2 * normal - np.asarray(pose.position[k])) @ R
            shape, outward = one_of(shape, k), way * normal @ R
            np.testing.assert_allclose(x @ outward, extent(shape, outward), atol=1e-12)
            assert np.all(directions @ x < extent(shape, directions) + 1e-12)


def test_boxes_overlap_exactly_and_are_never_nearer_than_said():
    n = 60
    a, b, (pose_a, pose_b) = scaled(BOX, 0, n), scaled(BRICK, 1, n), random_poses(2, n)
    points = collide_all(a, pose_a, b, pose_b)
    gaps = np.asarray(points.gap).min(axis=1)
    truth = np.array([separation(*one_of((a, pose_a, b, pose_b), k)) for k in range(n)])
    overlap = truth < 0
    assert 10 < overlap.sum() < n - 10
    # 1e-3 of the half sizes is what the choice of the axis may cost.
    np.testing.assert_allclose(gaps[overlap], truth[overlap], atol=6e-4)
    assert np.all(gaps[~overlap] > 0) and np.all(gaps[~overlap] < truth[~overlap] + 1e-5)


@pairs(ON_GROUND)
def test_least_gap_above_the_ground(a, b):
    n = 20
    b, (pose_a, pose_b) = scaled(b, 1, n), random_poses(2, n)
    gaps = np.min(collide_with(a, pose_a, b, pose_b).gap, axis=1)
    normals = matrices(pose_a.orientation)[:, :, 2]
    down = np.einsum("kji,kj->ki", matrices(pose_b.orientation), -normals)
    depth = np.array([extent(one_of(b, k), down[k]) for k in range(n)])
    d = np.asarray(pose_b.position - pose_a.position)
    np.testing.assert_allclose(gaps, np.sum(d * normals, axis=1) - depth, atol=1e-13)


@pairs(ON_TERRAIN)
def test_terrain_that_is_a_plane_is_ground(a, b):
    slope_x, slope_y = 0.3, -0.2
    x, y = 0.5 * (np.arange(9.0) - 4), 0.6 * (np.arange(8.0) - 3.5)
    n = 20
    b, (pose_a, pose_b) = scaled(b, 1, n), random_poses(2, n)
    plane = HeightField(slope_x * x[:, None] + slope_y * y[None], a.spacing)
    normal = np.array([-slope_x, -slope_y, 1.0]) / np.sqrt(1 + slope_x**2 + slope_y**2)
    half = np.cross([0.0, 0.0, 1.0], normal) / np.sqrt(2 + 2 * normal[2])
    tilt = jnp.array([np.sqrt((1 + normal[2]) / 2), *half])
    tilted = jax.jit(jax.vmap(lambda pose: pose.compose(Pose(jnp.zeros(3), tilt))))(pose_a)
    found = collide_with(plane, pose_a, b, pose_b)
    expected = collide_with(GROUND, tilted, b, pose_b)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)


@pytest.mark.parametrize("x, y", [(0.1, 0.2), (0.7, -1.9), (-1.99, 2.0), (5.0, 0.1)])
def test_terrain_is_its_triangles(x, y):
    """The surface is linear in each triangle: the plane through the corners of the one at x, y."""
    i = int(np.clip(np.floor(x / 0.5 + 4), 0, 7))
    j = int(np.clip(np.floor(y / 0.6 + 3.5), 0, 6))
    u, v = x / 0.5 + 4 - i, y / 0.6 + 3.5 - j
    nodes = [(i, j), (i + 1, j + 1), (i + 1, j) if u > v else (i, j + 1)]
    rows = [[1, 0.5 * (k - 4), 0.6 * (m - 3.5)] for k, m in nodes]
    plane = np.linalg.solve(rows, [WAVES[node] for node in nodes])
    expected = [plane @ [1, x, y], plane[1], plane[2]]
    np.testing.assert_allclose(TERRAIN.surface(jnp.array(x), jnp.array(y)), expected, atol=1e-14)


# --- points and normals ---------------------------------------------------------------------------


@pairs(CLOSED[:2], slow=ON_GROUND + ON_TERRAIN + CLOSED[2:] + BOXES + GENERAL[-1:])
def test_swapped_shapes_give_opposite_normals(a, b):
    a, b, pose_a, pose_b = samples(a, b)
    one, other = collide_all(a, pose_a, b, pose_b), collide_all(b, pose_b, a, pose_a)
    if type(a) is not type(b):  # else the points of a and b have other roles
        # The same equations in two programs, which XLA rounds in its own ways.
        for x, y in zip(one, (other.gap, other.position, -other.normal), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(one.gap.min(axis=1), other.gap.min(axis=1), atol=TOLERANCE)


@pairs(CLOSED, slow=ON_GROUND + ON_TERRAIN + BOXES + SEARCHED)
def test_a_common_motion_moves_the_points_along(a, b):
    a, b, pose_a, pose_b = samples(a, b)
    frame = Pose(jnp.array([0.4, -1.0, 2.0]), jnp.array(turned(np.random.default_rng(5), 1)[0]))
    R = matrices(frame.orientation[None])[0]
    here = collide_all(a, pose_a, b, pose_b)
    there = collide_all(
        a, jax.jit(jax.vmap(frame.compose))(pose_a), b, jax.jit(jax.vmap(frame.compose))(pose_b)
    )
    present = np.asarray(here.gap) < ABSENT
    np.testing.assert_allclose(there.gap[present], here.gap[present], atol=1e-9)
    position = np.asarray(frame.position) + np.asarray(here.position) @ R.T
    np.testing.assert_allclose(there.position[present], position[present], atol=1e-7)
    np.testing.assert_allclose(
        there.normal[present], (np.asarray(here.normal) @ R.T)[present], atol=1e-7
    )


@pytest.mark.parametrize(
    "shape", [SPHERE, CAPSULE, BOX, CYLINDER, ELLIPSOID, HULL], ids=lambda x: type(x).__name__
)
def test_nearest_points_of_cores(shape):
    """x is the nearest point of a convex set to p if and only if it is in the set, and none is
    farther in the direction p - x."""
    n = 60
    rng = np.random.default_rng(3)
    shapes = scaled(shape, 0, n)
    p = jnp.array(rng.normal(size=(n, 3)) * rng.choice([0.9, 3.0], size=(n, 1)))

    @eqx.filter_jit
    @jax.vmap
    def all_of_it(shape, p):
        x = shape.nearest(p)
        return x, shape.support(p - x), jax.jacfwd(shape.nearest)(p), shape.margin

    x, farthest, slope, margin = map(np.asarray, all_of_it(shapes, p))
    d = p - x
    outside = np.linalg.norm(d, axis=1) > 1e-9
    assert outside.sum() > 40
    scale = np.linalg.norm(p, axis=1)[outside]
    assert np.all(np.abs(np.sum(d * (farthest - x), axis=1)[outside]) < 1e-13 * (1 + scale))
    directions = sphere_of_directions(500)
    for k in np.flatnonzero(outside):
        reach = extent(one_of(shapes, k), directions) - margin[k]
        assert np.all(directions @ x[k] < reach + 1e-12)
    # The derivative of a projection is symmetric, and x does not depend on the distance.
    np.testing.assert_allclose(slope, np.swapaxes(slope, 1, 2), atol=1e-11)
    np.testing.assert_allclose(
        np.einsum("kij,kj->ki", slope, d)[outside], 0.0, atol=1e-10 * (1 + scale.max())
    )


@pytest.mark.slow
def test_deep_overlaps_are_the_least_ones():
    n = 60
    other = Cylinder(0.3, 0.7)
    a, b, (pose_a, pose_b) = scaled(CYLINDER, 0, n), scaled(other, 1, n), random_poses(2, n, 0.3)
    gaps = np.asarray(collide_all(a, pose_a, b, pose_b).gap).min(axis=1)
    truth = np.array([separation(*one_of((a, pose_a, b, pose_b), k)) for k in range(n)])
    assert (truth < -0.3).sum() > 50
    assert np.all(gaps < truth + 1e-4)
    assert np.mean(gaps > truth - 1e-4) > 0.95


# The derivatives of the others in single precision are tested in test_collision_derivatives.py.
@pairs(CLOSED[:2], slow=ON_GROUND + ON_TERRAIN + CLOSED[2:] + BOXES + GENERAL[2:4])
def test_single_precision(a, b):
    a, b, pose_a, pose_b = samples(a, b)
    single = jax.tree.map(lambda x: x.astype("float32"), (a, pose_a, b, pose_b))
    expected, found = collide_all(a, pose_a, b, pose_b), collide_all(*single)
    np.testing.assert_allclose(found.gap.min(axis=1), expected.gap.min(axis=1), atol=1e-3)


# --- the choice of the function, and bad input ----------------------------------------------------


@pairs(PAIRS, GENERAL[:1], slow=GENERAL[1:3] + MANIFOLDS[1:])
def test_point_count(a, b):
    counts = {Sphere: 1, Capsule: 2, Box: 8, Cylinder: 8, Disc: 4, Ellipsoid: 1, ConvexPoints: 4}
    grounded = type(a) in (HalfSpace, HeightField)
    kinds = {type(a), type(b)}
    if grounded:
        expected = counts[type(b)]
    elif kinds & {Sphere, Ellipsoid}:
        expected = 1
    else:
        expected = 8 if Capsule not in kinds else 2 if kinds <= {Box, Capsule} else 3
    assert point_count(a, b) == point_count(b, a) == expected


@pytest.mark.parametrize("a, b", [(GROUND, GROUND), (TERRAIN, TERRAIN), (GROUND, TERRAIN)])
def test_pairs_without_contact_points(a, b):
    names = f"{type(a).__name__} and a {type(b).__name__}"
    with pytest.raises(ValueError, match=f"{names}.*Supported pairs.*HalfSpace-Sphere"):
        point_count(a, b)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Sphere(-1.0), "`radius` of Sphere must be positive and finite, but is -1.0"),
        (lambda: Sphere([1.0, 2.0]), r"`radius` of Sphere must have shape \(\), but has \(2,\)"),
        (lambda: Sphere("wide"), "`radius` of Sphere must be a number, but is 'wide'"),
        (lambda: Capsule(0.1, 0.0), "`half_length` of Capsule must be positive"),
        (lambda: Capsule(np.nan, 1.0), "`radius` of Capsule must be positive"),
        (lambda: Box([1.0, 2.0]), r"`half_sizes` of Box must have shape \(3,\), but has \(2,\)"),
        (lambda: Box([1.0, 0.0, 1.0]), "`half_sizes` of Box must be positive"),
        (lambda: Cylinder(-0.1, 1.0), "`radius` of Cylinder must be positive"),
        (lambda: Disc(0.0), "`radius` of Disc must be positive"),
        (lambda: Ellipsoid([1.0, np.inf, 1.0]), "`semi_axes` of Ellipsoid must be positive"),
        (lambda: ConvexPoints(np.zeros((0, 3))), r"`points` of ConvexPoints must hold a corner"),
        (
            lambda: ConvexPoints([0.0, 1.0, 2.0]),
            r"`points` of ConvexPoints must have shape \(n, 3\), but has",
        ),
        (lambda: ConvexPoints([[0.0, np.nan, 2.0]]), "`points` of ConvexPoints must be finite"),
        (lambda: HeightField([[1.0, 2.0]], [1.0, 1.0]), "nx, ny >= 2, but has"),
        (lambda: HeightField(WAVES, [1.0, -1.0]), "`spacing` of HeightField must be positive"),
    ],
)
def test_bad_shapes(make, message):
    with pytest.raises(ValueError, match=message):
        make()
