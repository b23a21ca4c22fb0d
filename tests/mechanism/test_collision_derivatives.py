"""Derivatives of contact points against differences. They are finite everywhere, also where shapes
coincide."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from collision_pairs import (
    BOXES,
    CLOSED,
    GENERAL,
    IDENTITY,
    ON_GROUND,
    ON_TERRAIN,
    check_derivatives,
    collide_all,
    line_rates,
    pairs,
    samples,
)

from jaxmbd.mechanism.collisions import ABSENT, collide
from jaxmbd.mechanism.pose import Pose

# --- by differences -------------------------------------------------------------------------------


# Each kind of shape once; two `ConvexPoints` are in test_faces.py.
SEARCHED = [GENERAL[k] for k in (0, 2, 3)]


# The other kinds of pairs that are compiled fast are below, at degenerate poses, with both modes.
@pairs(
    ON_GROUND[3:6:2],
    ON_TERRAIN[:1],
    CLOSED[2:5],
    slow=ON_GROUND[:3] + ON_GROUND[4:7:2] + ON_TERRAIN[1:] + CLOSED[:2] + CLOSED[5:]
    + BOXES + SEARCHED,
)  # fmt: skip
def test_derivatives_are_those_by_differences(a, b):
    n = 40
    a, b, pose_a, pose_b = samples(a, b, n)
    rng = np.random.default_rng(7)
    direction = jax.tree.map(lambda x: jnp.array(0.3 * rng.normal(size=x.shape)), (a, b))
    steps = jnp.array(rng.normal(size=(2, n, 6)))
    check_derivatives(a, pose_a, b, pose_b, (direction, *steps))


@pairs(CLOSED[:2], ON_TERRAIN[:1], slow=ON_GROUND + ON_TERRAIN[1:] + CLOSED[2:] + BOXES + SEARCHED)
def test_motion_of_b_along_the_normal_opens_the_gap(a, b):
    n = 40
    a, b, pose_a, pose_b = samples(a, b, n)
    still = jax.tree.map(jnp.zeros_like, (a, b)), jnp.zeros((n, 6))
    points = collide_all(a, pose_a, b, pose_b)
    np.testing.assert_allclose(np.linalg.norm(points.normal, axis=-1), 1.0, atol=1e-14)
    for k in range(points.gap.shape[1]):
        along = jnp.pad(points.normal[:, k], ((0, 0), (0, 3)))
        rate = line_rates(a, pose_a, b, pose_b, (*still, along))[1].gap[:, k]
        expected = np.where(points.gap[:, k] < ABSENT, 1.0, 0.0)
        np.testing.assert_allclose(rate, expected, atol=1e-9)


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


@pairs(
    CLOSED[:-1],
    ON_TERRAIN[:1],
    ON_GROUND[3:6],
    slow=ON_GROUND[:3] + ON_GROUND[6:] + ON_TERRAIN[1:] + CLOSED[-1:] + BOXES
    + [GENERAL[k] for k in (0, 1, 3)],
)  # fmt: skip
def test_finite_with_both_derivatives_at_degenerate_poses(a, b):
    check_finite(a, b, "float64")


# The values of the others in single precision are compared in test_collisions.py.
@pairs(slow=ON_GROUND + ON_TERRAIN + CLOSED + BOXES + GENERAL[:1])
def test_finite_in_single_precision(a, b):
    check_finite(a, b, "float32")


def check_finite(a, b, dtype):
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
