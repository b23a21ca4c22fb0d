"""Contact points against support functions searched over directions, and against derivatives by
differences."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import ConvexHull

from jaxmbd import quaternion_exp, quaternion_product
from jaxmbd.mechanism.collisions import ABSENT, collide, point_count
from jaxmbd.mechanism.collisions.manifold import manifold
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

IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])
TETRAHEDRON = np.array([[0.6, 0.5, 0.5], [0.5, -0.6, -0.5], [-0.5, 0.5, -0.7], [-0.5, -0.5, 0.4]])
WAVES = 0.1 * np.sin(np.arange(9.0))[:, None] * np.cos(np.arange(8.0))[None]

SPHERE, BALL = Sphere(0.4), Sphere(0.7)
CAPSULE, ROD = Capsule(0.3, 0.6), Capsule(0.2, 0.9)
BOX, BRICK = Box([0.5, 0.6, 0.4]), Box([0.3, 0.9, 0.5])
CYLINDER, DISC = Cylinder(0.5, 0.4), Disc(0.5)
ELLIPSOID = Ellipsoid([0.4, 0.6, 0.8])
HULL = ConvexPoints(TETRAHEDRON)
GROUND, TERRAIN = HalfSpace(), HeightField(WAVES, [0.5, 0.6])

ON_GROUND = [(GROUND, b) for b in (SPHERE, CAPSULE, BOX, CYLINDER, DISC, ELLIPSOID, HULL)]
ON_TERRAIN = [(TERRAIN, b) for b in (SPHERE, CAPSULE, BOX, HULL)]
CLOSED = [
    (SPHERE, BALL),
    (CAPSULE, SPHERE),
    (CAPSULE, ROD),
    (BOX, SPHERE),
    (CYLINDER, SPHERE),
    (BOX, CAPSULE),
]
BOXES = [(BOX, BRICK)]
GENERAL = [
    (CYLINDER, BOX),
    (ELLIPSOID, SPHERE),
    (ELLIPSOID, CYLINDER),
    (HULL, CAPSULE),
    (HULL, CYLINDER),
    (HULL, ConvexPoints(-TETRAHEDRON)),
]
MANIFOLDS = [
    *(GENERAL[k] for k in (0, 4, 5, 3)),
    (CYLINDER, CAPSULE),
    (CYLINDER, Cylinder(0.3, 0.7)),
    (HULL, BOX),
]
PAIRS = [*ON_GROUND, *ON_TERRAIN, *CLOSED, *BOXES]

# Boxes prefer the faces of a a little.
TOLERANCE = 1e-3


def pairs(*kinds, slow=()):
    """All of some lists of pairs, those of `slow` with the slow tests."""
    marked = [pytest.param(a, b, marks=pytest.mark.slow) for a, b in slow]
    return pytest.mark.parametrize(
        "a, b", [pair for kind in kinds for pair in kind] + marked, ids=lambda x: type(x).__name__
    )


def turned(rng, n):
    p = rng.normal(size=(n, 4))
    return p / np.linalg.norm(p, axis=1, keepdims=True)


def random_poses(seed, n, far=1.0):
    """Poses a and b, with distances of the origins from 0 to 2 `far`."""
    rng = np.random.default_rng(seed)
    start, d = rng.normal(size=(n, 3)), rng.normal(size=(n, 3))
    d *= (rng.uniform(0, 2 * far, n) / np.linalg.norm(d, axis=1))[:, None]
    return Pose(jnp.array(start), jnp.array(turned(rng, n))), Pose(
        jnp.array(start + d), jnp.array(turned(rng, n))
    )


def scaled(shape, seed, n):
    """n shapes of the kind, with all numbers changed by random factors."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x[None] * jnp.array(rng.uniform(0.7, 1.4, (n, *x.shape))), shape)


@eqx.filter_jit
def collide_all(a, pose_a, b, pose_b):
    return jax.vmap(collide)(a, pose_a, b, pose_b)


# Of one pair, and of many with the same first shape.
collide_one = eqx.filter_jit(collide)
collide_with = eqx.filter_jit(jax.vmap(collide, in_axes=(None, 0, 0, 0)))


collide_one = eqx.filter_jit(collide)


def matrices(p):
    w, x, y, z = np.asarray(p).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), 2, 0)


def extent(shape, n):
    """Of one shape, how far it reaches in the directions n, a unit vector in each row."""
    shape = jax.tree.map(np.asarray, shape)
    across = np.hypot(n[..., 0], n[..., 1])
    match shape:
        case Sphere():
            return shape.radius + 0 * across
        case Capsule():
            return shape.radius + shape.half_length * np.abs(n[..., 2])
        case Box():
            return np.abs(n) @ shape.half_sizes
        case Cylinder():
            return shape.radius * across + shape.half_length * np.abs(n[..., 2])
        case Disc():
            return shape.radius * across
        case Ellipsoid():
            return np.linalg.norm(n * shape.semi_axes, axis=-1)
        case ConvexPoints():
            return np.max(n @ shape.points.T, axis=-1)


def sphere_of_directions(n):
    z = 1 - (2 * np.arange(n) + 1) / n
    angle = np.pi * (1 + 5**0.5) * np.arange(n)
    r = np.sqrt(1 - z * z)
    return np.stack([r * np.cos(angle), r * np.sin(angle), z], axis=1)


def separation(a, pose_a, b, pose_b, starts=12, rounds=100):
    """The largest separation over all directions of two convex shapes: their distance, or the
    negative of the least translation that separates them. Searched among 3000 directions, then
    near the best of them, wider where that helps and else closer."""
    Ra, Rb = matrices(pose_a.orientation[None])[0], matrices(pose_b.orientation[None])[0]
    d = np.asarray(pose_b.position - pose_a.position)

    def along(n):
        return n @ d - extent(a, n @ Ra) - extent(b, -n @ Rb)

    n = sphere_of_directions(3000)
    best = n[np.argsort(-along(n))[:starts]]
    rng, width = np.random.default_rng(0), np.full(starts, 0.1)
    for _ in range(rounds):
        near = best[:, None] + width[:, None, None] * rng.normal(size=(starts, 60, 3))
        near /= np.linalg.norm(near, axis=-1, keepdims=True)
        near = np.concatenate([best[:, None], near], axis=1)
        chosen = np.argmax(along(near), axis=1)
        best = near[np.arange(starts), chosen]
        width *= np.where(chosen > 0, 1.2, 0.5)
    return along(best).max()


def one_of(tree, k):
    return jax.tree.map(lambda x: x[k], tree)


# --- values ---------------------------------------------------------------------------------------


@pairs(CLOSED, slow=GENERAL)
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


@pairs(CLOSED[:-1], slow=GENERAL)
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
    tilted = jax.vmap(lambda pose: pose.compose(Pose(jnp.zeros(3), tilt)))(pose_a)
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


def samples(a, b, n=40):
    return scaled(a, 0, n), scaled(b, 1, n), *random_poses(2, n, 0.8)


@pairs(CLOSED[:2], slow=ON_GROUND + ON_TERRAIN + CLOSED[2:] + BOXES + GENERAL[-1:])
def test_swapped_shapes_give_opposite_normals(a, b):
    a, b, pose_a, pose_b = samples(a, b)
    one, other = collide_all(a, pose_a, b, pose_b), collide_all(b, pose_b, a, pose_a)
    if type(a) is not type(b):  # else the points of a and b have other roles
        # The same equations in two programs, which XLA rounds in its own ways.
        for x, y in zip(one, (other.gap, other.position, -other.normal), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(one.gap.min(axis=1), other.gap.min(axis=1), atol=TOLERANCE)


@pairs(CLOSED, slow=ON_GROUND + ON_TERRAIN + BOXES + GENERAL)
def test_a_common_motion_moves_the_points_along(a, b):
    a, b, pose_a, pose_b = samples(a, b)
    frame = Pose(jnp.array([0.4, -1.0, 2.0]), jnp.array(turned(np.random.default_rng(5), 1)[0]))
    R = matrices(frame.orientation[None])[0]
    here = collide_all(a, pose_a, b, pose_b)
    there = collide_all(a, jax.vmap(frame.compose)(pose_a), b, jax.vmap(frame.compose)(pose_b))
    present = np.asarray(here.gap) < ABSENT
    np.testing.assert_allclose(there.gap[present], here.gap[present], atol=1e-9)
    position = np.asarray(frame.position) + np.asarray(here.position) @ R.T
    np.testing.assert_allclose(there.position[present], position[present], atol=1e-7)
    np.testing.assert_allclose(
        there.normal[present], (np.asarray(here.normal) @ R.T)[present], atol=1e-7
    )


def moved(pose, step):
    return Pose(
        pose.position + step[:3], quaternion_product(quaternion_exp(step[3:]), pose.orientation)
    )


def along_a_line(a, pose_a, b, pose_b, direction, s):
    """Contact points after a change of both poses and all numbers of the shapes."""
    for_shapes, step_a, step_b = direction
    a, b = jax.tree.map(lambda x, d: x + s * d, (a, b), for_shapes)
    return collide(a, moved(pose_a, s * step_a), b, moved(pose_b, s * step_b))


@eqx.filter_jit
def line_derivatives(*args):
    def one(*args):
        fn = lambda s: along_a_line(*args, s)  # noqa: E731
        h = 1e-6
        derivative = jax.jvp(fn, (0.0,), (1.0,))
        return *derivative, fn(-h), fn(h)

    before, derivative, left, right = jax.vmap(one)(*args)
    forward = jax.tree.map(lambda x, y: (y - x) / 1e-6, before, right)
    backward = jax.tree.map(lambda x, y: (y - x) / 1e-6, left, before)
    return before, derivative, forward, backward


@pairs(
    ON_GROUND[3:6],
    ON_TERRAIN[:1],
    CLOSED[:-1],
    slow=ON_GROUND[:3] + ON_GROUND[6:] + ON_TERRAIN[1:] + CLOSED[-1:] + BOXES + GENERAL,
)
def test_derivatives_are_those_by_differences(a, b):
    n = 40
    a, b, pose_a, pose_b = samples(a, b, n)
    rng = np.random.default_rng(7)
    direction = jax.tree.map(lambda x: jnp.array(0.3 * rng.normal(size=x.shape)), (a, b))
    steps = jnp.array(rng.normal(size=(2, n, 6)))
    check_derivatives(a, pose_a, b, pose_b, (direction, *steps))


def check_derivatives(*args):
    before, derivative, forward, backward = map(
        lambda points: jax.tree.map(np.asarray, points), line_derivatives(*args)
    )
    present = before.gap < ABSENT
    # Kinks and jumps, where the differences to both sides differ, are left out; they are few.
    smooth = present & (np.abs(forward.gap - backward.gap) < 1e-3)
    assert smooth.sum() > 0.9 * present.sum()
    for name in ("gap", "position", "normal"):
        d, f, r = (getattr(x, name)[smooth] for x in (derivative, forward, backward))
        both = np.abs(f - r) < 1e-3
        assert both.mean() > 0.9
        np.testing.assert_allclose(
            d[both], ((f + r) / 2)[both], atol=2e-5 * (1 + np.abs(d[both]).max())
        )


@pairs(CLOSED[:2], ON_TERRAIN[:1], slow=ON_GROUND + ON_TERRAIN[1:] + CLOSED[2:] + BOXES + GENERAL)
def test_motion_of_b_along_the_normal_opens_the_gap(a, b):
    n = 40
    a, b, pose_a, pose_b = samples(a, b, n)

    @eqx.filter_jit
    @jax.vmap
    def rates(a, pose_a, b, pose_b):
        def gap(x):
            return collide(a, pose_a, b, Pose(x, pose_b.orientation)).gap

        points = collide(a, pose_a, b, pose_b)
        J = jax.jacfwd(gap)(pose_b.position)
        return jnp.sum(J * points.normal, axis=1), points

    rate, points = rates(a, pose_a, b, pose_b)
    np.testing.assert_allclose(np.linalg.norm(points.normal, axis=-1), 1.0, atol=1e-14)
    np.testing.assert_allclose(rate, np.where(points.gap < ABSENT, 1.0, 0.0), atol=1e-9)


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


# --- curved shapes on edges, faces and vertices ---------------------------------------------------


def about_x(angle):
    return jnp.array([np.cos(angle / 2), np.sin(angle / 2), 0.0, 0.0])


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


# --- boxes on boxes -------------------------------------------------------------------------------


def area(points):
    """Of the convex polygon of points in the xy plane, in any order."""
    center = points.mean(axis=0)
    order = np.argsort(np.arctan2(*(points - center).T))
    x, y = points[order].T
    return abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) / 2


def about_z(angle):
    return jnp.array([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])


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
            local = np.asarray(jax.vmap(base.local_point)(position))[present]
            np.testing.assert_allclose(local[:, 2], height / 2, atol=1e-12)
            np.testing.assert_allclose(area(local[:, :2]), expected, atol=3e-5)
            up = jax.vmap(base.local_direction)(normal)
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


# --- faces on faces -------------------------------------------------------------------------------

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
        local = np.asarray(jax.vmap(base.local_point)(position))[present]
        np.testing.assert_allclose(local[:, 2], above + height / 2, atol=1e-12)
        is_outline(local[:, :2], expected)


@pytest.mark.parametrize("case", STANDING, ids=case_name)
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
@pytest.mark.parametrize("case", STANDING, ids=case_name)
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
    turns = jax.vmap(quaternion_exp)(jnp.array(rng.uniform(-0.07, 0.07, (n, 3)) * [1, 1, 20]))
    if isinstance(upper, Capsule):
        side = lying(0.0, 0.0, 0.0).orientation
        turns = jax.vmap(lambda p: quaternion_product(p, side))(turns)
    places = rng.uniform(-1, 1, (n, 3)) * [0.4, 0.4, 0.05] + [0.0, 0.0, above + below]
    shapes = jax.tree.map(lambda x: jnp.stack(n * [x]), (lower, upper))
    origin = Pose(jnp.zeros((n, 3)), jnp.tile(jnp.array(IDENTITY), (n, 1)))
    return shapes[0], origin, shapes[1], Pose(jnp.array(places), turns)


@pytest.mark.slow
@pytest.mark.parametrize("case", FLAT, ids=case_name)
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


# --- capsules and cylinders at rest ---------------------------------------------------------------


def lying(x, y, z, angle=0.0):
    """Axis in the xy plane, at an angle from the x axis."""
    quarter = jnp.array([0.5**0.5, 0.0, 0.5**0.5, 0.0])
    return Pose(jnp.array([x, y, z]), quaternion_product(about_z(angle), quarter))


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


# --- finite everywhere ----------------------------------------------------------------------------


def degenerate_poses(dtype):
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
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    origin = Pose(np.zeros_like(places), np.tile(IDENTITY, (len(turns), 1)))
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), (origin, Pose(places, turns)))


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pairs(
    CLOSED[:-1],
    ON_TERRAIN[:1],
    ON_GROUND[3:6],
    slow=ON_GROUND[:3] + ON_GROUND[6:] + ON_TERRAIN[1:] + CLOSED[-1:] + BOXES + GENERAL,
)
def test_finite_with_both_derivatives_at_degenerate_poses(a, b, dtype):
    a, b = jax.tree.map(lambda x: x.astype(dtype), (a, b))

    @eqx.filter_jit
    def all_of_it(a, pose_a, b, pose_b):
        def one(pose_a, pose_b):
            args = (a, pose_a, b, pose_b)
            points, forward = jax.jvp(collide, args, jax.tree.map(jnp.ones_like, args))
            reverse = jax.vjp(collide, *args)[1](jax.tree.map(jnp.ones_like, points))
            return points, forward, reverse

        return jax.vmap(one)(pose_a, pose_b)

    pose_a, pose_b = degenerate_poses(dtype)
    points, forward, reverse = all_of_it(a, pose_a, b, pose_b)
    for leaf in jax.tree.leaves((points, forward, reverse)):
        assert leaf.dtype == dtype
        assert np.all(np.isfinite(leaf))
    small = 1e-14 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(np.linalg.norm(points.normal, axis=-1), 1.0, atol=small)
    absent = np.asarray(points.gap) >= ABSENT
    for rate in forward:
        assert np.all(np.asarray(rate)[absent] == 0)


@pairs(CLOSED[:2], slow=ON_GROUND + ON_TERRAIN + CLOSED[2:] + BOXES + GENERAL)
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
