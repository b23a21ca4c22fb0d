"""Derivatives of contact points against differences. They are finite everywhere, also where shapes
coincide."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collision_pairs import (
    BOXES,
    CLOSED,
    GENERAL,
    IDENTITY,
    ON_GROUND,
    ON_TERRAIN,
    check_derivatives,
    pairs,
    samples,
)

from jaxmbd.mechanism.collisions import ABSENT, collide
from jaxmbd.mechanism.pose import Pose

# --- by differences -------------------------------------------------------------------------------


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


@pairs(CLOSED[:2], ON_TERRAIN[:1], slow=ON_GROUND + ON_TERRAIN[1:] + CLOSED[2:] + BOXES + GENERAL)
def test_motion_of_b_along_the_normal_opens_the_gap(a, b):
    n = 40
    a, b, pose_a, pose_b = samples(a, b, n)

    @eqx.filter_jit
    @jax.vmap
    def rates(a, pose_a, b, pose_b):
        def gap(x):
            points = collide(a, pose_a, b, Pose(x, pose_b.orientation))
            return points.gap, points

        J, points = jax.jacfwd(gap, has_aux=True)(pose_b.position)
        return jnp.sum(J * points.normal, axis=1), points

    rate, points = rates(a, pose_a, b, pose_b)
    np.testing.assert_allclose(np.linalg.norm(points.normal, axis=-1), 1.0, atol=1e-14)
    np.testing.assert_allclose(rate, np.where(points.gap < ABSENT, 1.0, 0.0), atol=1e-9)


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
