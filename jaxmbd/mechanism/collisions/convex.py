"""Any two convex shapes, by their support functions and nearest points."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..._coordinates import components, cross, dot
from ..._fusion import once
from ..._linalg.small import inverse
from ..pose import Pose
from ..shapes import AbstractConvexShape
from ..shapes.gjk import gjk
from .base import ContactPoints, stacked
from .vectors import mixed, one_hot_of_largest, perpendicular, unit, x_direction

_DIRECTIONS = 96
_STARTS = 4
_ROUNDS = 3
_ITERATIONS = 12
_NEWTON_STEPS = 8


def _spiral(n):
    z = 1 - (2 * np.arange(n) + 1) / n
    r, angle = np.sqrt(1 - z * z), np.pi * (1 + 5**0.5) * np.arange(n)
    return np.stack([r * np.cos(angle), r * np.sin(angle), z], axis=1)


class _Pair(NamedTuple):
    """The cores of two shapes in the frame of a."""

    a: AbstractConvexShape
    b: AbstractConvexShape
    pose: Pose

    def on_a(self, n):
        """The farthest point of a in the direction n."""
        return self.a.support(n)

    def on_b(self, n):
        """The farthest point of b in the direction -n. Of several the one chosen must be the same
        for all of its components, which XLA may compute each on its own, with other roundings."""
        return self.pose.point(once(self.b.support(self.pose.local_direction(-n))))

    def apart(self, n):
        """How far the planes across n that touch the shapes are apart."""
        return dot(n, self.on_b(n) - self.on_a(n))

    def nearest_on_b(self, z):
        return self.pose.point(self.b.nearest(self.pose.local_point(z)))


class _Touch(NamedTuple):
    """A point outside of a and the gap."""

    y: Float[Array, "3"]
    gap: Float[Array, ""]


def convex_convex(
    a: AbstractConvexShape, pose_a: Pose, b: AbstractConvexShape, pose_b: Pose
) -> ContactPoints:
    """One point"""
    pair = _Pair(a, b, pose_a.relative(pose_b))
    frozen = lax.stop_gradient(pair)
    n, on_a, size = _direction(frozen)
    reach = size / 8
    touch, n = _sharpened(frozen, on_a, n, reach)
    touch, n = lax.stop_gradient((touch, n))

    J, t = _slopes(frozen, touch, n, reach)
    step = -_solved(lax.stop_gradient(J), _residual(pair, touch, reach)[0])
    moving = _Touch(touch.y + step[0] * t[0] + step[1] * t[1], touch.gap + step[2])
    _, x_a, x_b, normal = _residual(pair, moving, reach)
    gap = dot(n, x_b - x_a)
    gap = gap + lax.stop_gradient(frozen.apart(n) - gap) - a.margin - b.margin
    position = (x_a + x_b + (a.margin - b.margin) * normal) / 2
    return stacked((gap, pose_a.point(position), pose_a.direction(normal)))


def _residual(pair, touch, reach):
    x_a = pair.a.nearest(touch.y)
    _, n = unit(touch.y - x_a, x_direction(touch.y))
    x_b = pair.nearest_on_b(x_a + (touch.gap - reach) * n)
    return x_b - x_a - touch.gap * n, x_a, x_b, n


def _slopes(pair, touch, n, reach):
    t = perpendicular(n)
    t = jnp.stack([t, cross(n, t)])
    o = jnp.zeros_like(n[0])
    tangents = _Touch(
        jnp.concatenate([t, jnp.zeros_like(t[:1])]), jnp.stack([o, o, o + 1])
    )
    J = jax.vmap(
        lambda d: jax.jvp(lambda x: _residual(pair, x, reach)[0], (touch,), (d,))[1]
    )(tangents)
    return J.T, t


def _solved(J, r):
    """Least-norm solution of J x = r"""
    A = jnp.sum(J[:, :, None] * J[:, None, :], axis=0)
    small = 1e-12 if J.dtype == jnp.float64 else 1e-6
    damped = A + (small * (A[0, 0] + A[1, 1] + A[2, 2])) * jnp.eye(3, dtype=J.dtype)
    inv = lax.stop_gradient(inverse(damped)[0])
    x = jnp.zeros_like(r)
    for _ in range(2):
        left = r - jnp.sum(J * x[None], axis=1)
        x = x + jnp.sum(inv * jnp.sum(J * left[:, None], axis=0)[None], axis=1)
    return x


def _direction(pair: _Pair):
    axes = jnp.eye(3, dtype=pair.pose.position.dtype)
    size = -sum(pair.apart(e) + pair.apart(-e) for e in components(axes))
    spiral = jnp.asarray(_spiral(_DIRECTIONS), axes.dtype)
    axes_b = jnp.stack([pair.pose.direction(e) for e in components(axes)])
    _, centers = unit(pair.pose.position, x_direction(pair.pose.position))
    n = jnp.concatenate([spiral, axes, -axes, axes_b, -axes_b, centers[None]])
    apart = jax.vmap(pair.apart)(n)
    starts = []
    for _ in range(_STARTS):
        start = mixed(one_hot_of_largest(apart), n)
        starts.append(start)
        apart = jnp.where(jnp.sum(n * start[None], axis=1) > 0.87, -jnp.inf, apart)

    def improved(n):
        def step(_, state):
            n, _, best = state
            beyond = jnp.maximum(0.02 * size - best, 0.0) * n

            def support(d):
                on_a = pair.on_a(d)
                return on_a - pair.on_b(d) - beyond, on_a

            simplex = gjk(support, n, _ITERATIONS)
            on_a = mixed(simplex.weights, simplex.sources)
            _, new = unit(-simplex.nearest, n)
            apart = pair.apart(new)
            better = apart >= best
            return jnp.where(better, new, n), on_a, jnp.where(better, apart, best)

        return lax.fori_loop(0, _ROUNDS, step, (n, jnp.zeros_like(n), pair.apart(n)))

    n, on_a, apart = jax.vmap(improved)(jnp.stack(starts))
    best = one_hot_of_largest(apart)
    return mixed(best, n), mixed(best, on_a), size


def _sharpened(pair: _Pair, on_a, n, reach):
    def settled(touch):
        r, x_a, _, n = _residual(pair, touch, reach)
        return _Touch(x_a + reach * n, touch.gap), n, dot(r, r)

    def step(_, state):
        now, best = state
        touch, n, _ = now
        r = _residual(pair, touch, reach)[0]
        J, t = _slopes(pair, touch, n, reach)
        x = -_solved(J, r)
        new = settled(_Touch(touch.y + x[0] * t[0] + x[1] * t[1], touch.gap + x[2]))
        better = new[2] < best[2]
        return new, jax.tree.map(lambda x, y: jnp.where(better, x, y), new, best)

    start = settled(_Touch(on_a + reach * n, pair.apart(n)))
    _, best = lax.fori_loop(0, _NEWTON_STEPS, step, (start, start))
    size = 8 * reach
    worse = pair.apart(best[1]) < pair.apart(start[1]) - 1e-6 * size
    touch, n, _ = jax.tree.map(lambda x, y: jnp.where(worse, x, y), start, best)
    return touch, n
