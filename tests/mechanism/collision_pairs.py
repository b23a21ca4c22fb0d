"""Pairs of shapes at random poses, and the distance of two convex shapes by a search over all
directions."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.mechanism.collisions import ABSENT, collide
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
from jaxmbd.rotations import quaternion_exp, quaternion_product

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


def samples(a, b, n=40):
    return scaled(a, 0, n), scaled(b, 1, n), *random_poses(2, n, 0.8)


def moved(pose, step):
    return Pose(
        pose.position + step[:3], quaternion_product(quaternion_exp(step[3:]), pose.orientation)
    )


def along_a_line(a, pose_a, b, pose_b, direction, s):
    """Shapes and poses after a change of both poses and of all numbers of the shapes."""
    for_shapes, step_a, step_b = direction
    a, b = jax.tree.map(lambda x, d: x + s * d, (a, b), for_shapes)
    return a, moved(pose_a, s * step_a), b, moved(pose_b, s * step_b)


@eqx.filter_jit
def line_rates(*args):
    """Contact points, and their rates along lines."""
    return jax.vmap(
        lambda *args: jax.jvp(lambda s: collide(*along_a_line(*args, s)), (0.0,), (1.0,))
    )(*args)


line_ends = eqx.filter_jit(
    lambda *args: [jax.vmap(functools.partial(along_a_line, s=s))(*args) for s in (1e-6, -1e-6)]
)


def check_derivatives(*args):
    before, derivative = jax.tree.map(np.asarray, line_rates(*args))
    right, left = (collide_all(*ends) for ends in line_ends(*args))
    forward = jax.tree.map(lambda x, y: (np.asarray(y) - x) / 1e-6, before, right)
    backward = jax.tree.map(lambda x, y: (y - np.asarray(x)) / 1e-6, left, before)
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


def about_x(angle):
    return jnp.array([np.cos(angle / 2), np.sin(angle / 2), 0.0, 0.0])


def about_z(angle):
    return jnp.array([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])


def lying(x, y, z, angle=0.0):
    """Axis in the xy plane, at an angle from the x axis."""
    quarter = jnp.array([0.5**0.5, 0.0, 0.5**0.5, 0.0])
    return Pose(jnp.array([x, y, z]), quaternion_product(about_z(angle), quarter))
