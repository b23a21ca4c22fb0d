"""Pairs of shapes at random poses, their contact points from one program for each pair."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd._mechanism.collisions import ContactPoints, collide, point_count
from jaxmbd._mechanism.pose import Pose
from jaxmbd._mechanism.shapes import (
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

# Of poses in a batch: programs know no other number.
COUNT = 48

UP, IDENTITY = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0, 0.0])
TETRAHEDRON = np.array([[0.6, 0.5, 0.5], [0.5, -0.6, -0.5], [-0.5, 0.5, -0.7], [-0.5, -0.5, 0.4]])
WAVES = 0.1 * np.sin(np.arange(9.0))[:, None] * np.cos(np.arange(8.0))[None]

SPHERE, CAPSULE, ROD = Sphere(0.4), Capsule(radius=0.3, length=1.2), Capsule(radius=0.2, length=1.8)
BOX, BRICK, CYLINDER = (
    Box(size=[1.0, 1.2, 0.8]),
    Box(size=[0.6, 1.8, 1.0]),
    Cylinder(radius=0.5, length=0.8),
)
ELLIPSOID, HULL = Ellipsoid(semiaxes=[0.4, 0.6, 0.8]), ConvexPoints(TETRAHEDRON)
GROUND, TERRAIN = HalfSpace(), HeightField(WAVES, [0.5, 0.6])


def named(pairs):
    return {f"{type(a).__name__}-{type(b).__name__}": (a, b) for a, b in pairs}


ON_GROUND = named((GROUND, b) for b in (SPHERE, CAPSULE, BOX, CYLINDER, Disc(0.5), ELLIPSOID, HULL))
ON_TERRAIN = named((TERRAIN, b) for b in (SPHERE, CAPSULE, BOX, HULL))
CLOSED = named(
    [
        (SPHERE, Sphere(0.7)),
        (CAPSULE, SPHERE),
        (CAPSULE, ROD),
        (BOX, SPHERE),
        (CYLINDER, SPHERE),
        (BOX, CAPSULE),
    ]
)
BOXES = named([(BOX, BRICK)])
# Searched for: each kind of shape with another one and with itself.
SEARCHED = named(
    [
        (CYLINDER, BOX),
        (CYLINDER, Cylinder(radius=0.3, length=1.4)),
        (ELLIPSOID, SPHERE),
        (ELLIPSOID, CYLINDER),
        (HULL, CAPSULE),
        (HULL, ConvexPoints(-TETRAHEDRON)),
    ]
)
PAIRS = ON_GROUND | ON_TERRAIN | CLOSED | BOXES | SEARCHED

# Of these pairs the default tests look at the derivatives, and have values from the same program.
DERIVED = (
    "HalfSpace-Sphere", "HalfSpace-Cylinder", "HalfSpace-Ellipsoid", "HeightField-Sphere",
    "Capsule-Sphere", "Capsule-Capsule", "Box-Sphere", "Cylinder-Sphere",
)  # fmt: skip


class Found(NamedTuple):
    """Contact points, their rates along `tangents`, and the gradient of their sum with weights."""

    points: Any
    rates: Any
    gradient: Any


@eqx.filter_jit
@jax.vmap
def _values(args):
    return collide(*args)


@eqx.filter_jit
@jax.vmap
def _derived(args, tangents, weights):
    points, along = jax.linearize(collide, *args)
    (gradient,) = jax.linear_transpose(lambda x: along(*x), args)(weights)
    return Found(points, along(*tangents), gradient)


def derived(*args, tangents=None, weights=None):
    """Of `COUNT` shapes a, their poses, shapes b, and theirs."""
    if tangents is None:
        tangents = jax.tree.map(np.zeros_like, args)
    if weights is None:
        weights = weights_of(args, np.zeros)
    return jax.tree.map(np.asarray, _derived(args, tangents, weights))


def weights_of(args, make):
    n, dtype = point_count(one_of(args[0], 0), one_of(args[2], 0)), args[1].position.dtype
    return ContactPoints(*(make(x).astype(dtype) for x in ((COUNT, n), *2 * ((COUNT, n, 3),))))


def collided(a, pose_a, b, pose_b):
    """Contact points of two shapes at up to `COUNT` poses."""
    n = len(pose_b.position)
    poses = [
        jax.tree.map(lambda x: np.resize(x, (COUNT, *x.shape[1:])), x) for x in (pose_a, pose_b)
    ]
    return one_of(of_many(many(a), poses[0], many(b), poses[1]), slice(n))


def many(shape):
    """The same one for each pose."""
    return jax.tree.map(lambda x: np.broadcast_to(x, (COUNT, *np.shape(x))), shape)


def of_many(*args):
    """Contact points of `COUNT` pairs of shapes."""
    if f"{type(args[0]).__name__}-{type(args[2]).__name__}" in DERIVED:
        return derived(*args).points
    return jax.tree.map(np.asarray, _values(args))


def product(p, q):
    """Of quaternions in rows."""
    w = p[:, :1] * q[:, :1] - np.sum(p[:, 1:] * q[:, 1:], axis=1, keepdims=True)
    return np.concatenate(
        [w, p[:, :1] * q[:, 1:] + q[:, :1] * p[:, 1:] + np.cross(p[:, 1:], q[:, 1:])], axis=1
    )


def turn(x):
    """The quaternions of rotation vectors in rows."""
    return Rotation.from_rotvec(np.atleast_2d(x)).as_quat(scalar_first=True)


def matrices(p):
    return Rotation.from_quat(p, scalar_first=True).as_matrix()


def turned(rng, n):
    p = rng.normal(size=(n, 4))
    return p / np.linalg.norm(p, axis=1, keepdims=True)


def rotated(p, x):
    """One vector, or several in rows, by one quaternion for all or for each."""
    return np.einsum("kij,kj->ki", np.broadcast_to(matrices(p), (len(x), 3, 3)), np.atleast_2d(x))


def moved_along(pose, base):
    """Poses given in the frame of one pose."""
    p = np.broadcast_to(base.orientation, (len(pose.position), 4))
    return Pose(base.position + rotated(p, pose.position), product(p, pose.orientation))


def placed(positions, turns=IDENTITY):
    """Poses; one orientation for all, or one for each."""
    positions = np.atleast_2d(np.asarray(positions, float))
    return Pose(positions, np.array(np.broadcast_to(turns, (len(positions), 4))))


def lying(positions, angles=0.0):
    """With the axis in the xy plane, at an angle from the x axis."""
    positions = np.atleast_2d(positions)
    about_z = np.zeros((len(positions), 3))
    about_z[:, 2] = angles
    quarter = np.tile([[0.5**0.5, 0.0, 0.5**0.5, 0.0]], (len(positions), 1))
    return placed(positions, product(turn(about_z), quarter))


# Two frames in which a test is the same.
FRAMES = placed([np.zeros(3), np.ones(3)], [IDENTITY, *turned(np.random.default_rng(0), 1)])


def one_of(tree, k):
    return jax.tree.map(lambda x: np.asarray(x)[k], tree)


class Random(NamedTuple):
    """Shapes of the two kinds, with all their numbers changed by random factors, and poses with
    distances of the origins from 0 to 2: arguments of `collide`, a direction in which they change,
    and what is found."""

    args: tuple
    tangents: tuple
    weights: tuple
    found: Found

    def line(self, s):
        """The arguments after a small motion; the norm of quaternions is 1 to first order."""
        return jax.tree.map(lambda x, d: x + s * d, self.args, self.tangents)


def scaled(shape, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: np.asarray(x) * rng.uniform(0.7, 1.4, (COUNT, *x.shape)), shape)


@functools.cache
def at_random(name):
    a, b = PAIRS[name]
    rng = np.random.default_rng(2)
    start, d = rng.normal(size=(2, COUNT, 3))
    d *= (rng.uniform(0, 2, COUNT) / np.linalg.norm(d, axis=1))[:, None]
    a, b = scaled(a, 0), scaled(b, 1)
    poses = Pose(start, turned(rng, COUNT)), Pose(start + d, turned(rng, COUNT))
    args = a, poses[0], b, poses[1]
    d_a, d_b = jax.tree.map(lambda x: 0.3 * rng.normal(size=x.shape), (a, b))
    t_a, t_b = (
        Pose(rng.normal(size=(COUNT, 3)), product(np.pad(w, ((0, 0), (1, 0))) / 2, p.orientation))
        for p, w in zip(poses, rng.normal(size=(2, COUNT, 3)), strict=True)
    )
    weights = weights_of(args, lambda shape: rng.normal(size=shape))
    return Random(args, (d_a, t_a, d_b, t_b), weights, Found(of_many(*args), None, None))


def extent(shape, n):
    """How far shapes reach in the directions n, unit vectors in rows, some for each shape."""
    shape = jax.tree.map(np.asarray, shape)
    across, along = np.hypot(n[..., 0], n[..., 1]), np.abs(n[..., 2])
    match shape:
        case Sphere():
            return shape.radius[:, None] + 0 * across
        case Capsule():
            return shape.radius[:, None] + shape.half_length[:, None] * along
        case Box():
            return (np.abs(n) @ shape.half_sizes[:, :, None])[..., 0]
        case Cylinder():
            return shape.radius[:, None] * across + shape.half_length[:, None] * along
        case Disc():
            return shape.radius[:, None] * across
        case Ellipsoid():
            return np.linalg.norm(n * shape.semiaxes[:, None], axis=-1)
        case ConvexPoints():
            return np.max(n @ np.swapaxes(shape.points, 1, 2), axis=-1)


def sphere_of_directions(n):
    z = 1 - (2 * np.arange(n) + 1) / n
    angle = np.pi * (1 + 5**0.5) * np.arange(n)
    r = np.sqrt(1 - z * z)
    return np.stack([r * np.cos(angle), r * np.sin(angle), z], axis=1)


def local(points, pose):
    """Of points in rows, a row of each pose."""
    R = np.broadcast_to(matrices(pose.orientation), (len(points), 3, 3))
    return np.einsum("kji,kj->ki", R, points - pose.position)
