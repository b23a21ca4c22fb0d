"""Any two convex shapes, by support functions and nearest points."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..._compiler import inverse, materialise, tree_where
from ..._contact import ABSENT
from ..._coordinates import components, cross, dot
from ..pose import Pose
from ..shapes import AbstractConvexShape, gjk
from .base import (
    ContactPoints,
    mixed,
    one_hot_of_largest,
    perpendicular,
    stacked,
    unit,
    x_direction,
)
from .manifold import manifold

# The number of directions tried, the number of the best ones that are improved, and the cosine of
# the least angle between these.
_DIRECTIONS = 256
_STARTS = 6
_COSINE = 0.94
# The rounds of GJK for each of these, and the iterations in a round.
_ROUNDS = 5
_ITERATIONS = 8
_NEWTON_STEPS = 8


class _Pair(NamedTuple):
    """The cores of two shapes, and the pose of b in the frame of a.

    If several points are equally far, all components must be of the same one. `materialise` keeps
    XLA from choosing again for each component, with other roundings of n."""

    a: AbstractConvexShape
    b: AbstractConvexShape
    pose: Pose

    def on_a(self, n):
        """The farthest point of a in the direction n."""
        return materialise(self.a.support(n))

    def on_b(self, n):
        """The farthest point of b in the direction -n."""
        return self.pose.point(materialise(self.b.support(self.pose.local_direction(-n))))

    def apart(self, n):
        """The signed distance of the planes normal to the unit vector n that touch the cores."""
        return dot(n, self.on_b(n) - self.on_a(n))

    def nearest_on_b(self, p):
        return self.pose.point(self.b.nearest(self.pose.local_point(p)))


class _Unknowns(NamedTuple):
    """A point y outside of a, and the gap. Of y only the nearest point of a and the direction from
    there to y matter."""

    y: Float[Array, "3"]
    gap: Float[Array, ""]


class _Features(NamedTuple):
    """The nearest points of both shapes, the normal, and the residual of the equations."""

    on_a: Float[Array, "3"]
    on_b: Float[Array, "3"]
    normal: Float[Array, "3"]
    residual: Float[Array, "3"]


def convex_convex(
    a: AbstractConvexShape, pose_a: Pose, b: AbstractConvexShape, pose_b: Pose
) -> ContactPoints:
    """The deepest point, and the points of `manifold` unless a shape is curved everywhere.
    The deepest point is midway between the nearest points. If the shapes overlap, it is midway
    between the points that the least separating translation brings together.

    The gap is the largest signed distance n . (x_b - x_a) over all directions n, with x_a the
    farthest point of a along n, and x_b that of b against n. It is the distance of two parallel
    planes between the shapes, or minus the least overlap. Of many directions the best are improved
    by GJK, and the best of these by Newton's method on the nearest points P of both shapes, with
    any c > 0:

        x_a = P_a(x_a + c n),  x_b = P_b(x_b - c n),  x_b - x_a = gap n,  |n| = 1.

    The derivative of P differs between faces, edges, vertices and curved surfaces. So the equations
    are regular wherever the solution is unique, also at gap = 0. Between parallel faces and edges
    it is not unique, and the steps have least norm. All iterations are fixed in number, and none is
    differentiated: derivatives are those of one more step, by the implicit function theorem. The
    derivative of the gap is correct even if the points are not unique, since to first order the gap
    does not depend on them.

    If shapes overlap by about half of their size or more, the overlap is nearly least in many
    directions. In about one such pose of 500, the direction found is not the one of least overlap.
    The cores of both shapes together must fill space.
    """
    pair = _Pair(a, b, pose_a.relative(pose_b))
    frozen = lax.stop_gradient(pair)
    start, c = _start(frozen)
    x = lax.stop_gradient(_sharpened(frozen, start, c))
    n = _features(frozen, x, c).normal
    moved = _newton(frozen, x, n, c, _features(pair, x, c).residual)
    touching = _features(pair, moved, c)

    gap = dot(n, touching.on_b - touching.on_a)
    gap = frozen.apart(n) + (gap - lax.stop_gradient(gap)) - a.margin - b.margin
    normal = touching.normal
    middle = (touching.on_a + touching.on_b + (a.margin - b.margin) * normal) / 2
    face_a, face_b = a.face(normal), b.face(pair.pose.local_direction(-normal))
    if min(face_a.corners.shape[0], face_b.corners.shape[0]) == 1:
        return stacked((gap, pose_a.point(middle), pose_a.direction(normal)))
    face_b = face_b._replace(corners=jax.vmap(pair.pose.point)(face_b.corners))
    points = manifold(face_a, face_b, normal, gap, middle)
    point, direction = map(jax.vmap, (pose_a.point, pose_a.direction))
    world = ContactPoints(points.gap, point(points.position), direction(points.normal))
    return world.where(points.gap < ABSENT)


def _features(pair: _Pair, x: _Unknowns, c) -> _Features:
    on_a = pair.a.nearest(x.y)
    _, n = unit(x.y - on_a, x_direction(x.y))
    on_b = pair.nearest_on_b(on_a + (x.gap - c) * n)
    return _Features(on_a, on_b, n, on_b - on_a - x.gap * n)


def _newton(pair: _Pair, x: _Unknowns, n, c, residual) -> _Unknowns:
    """x after one Newton step for `residual` = 0, with the derivative of the residual of `pair`. y
    moves normal to n only, since the features do not depend on its position along n."""
    t = perpendicular(n)
    o = jnp.zeros_like(n)
    tangents = _Unknowns(jnp.stack([t, cross(n, t), o]), jnp.stack([o[0], o[0], o[0] + 1]))
    columns = jax.vmap(lambda d: jax.jvp(lambda x: _features(pair, x, c).residual, (x,), (d,))[1])(
        tangents
    )
    step = _least_norm(lax.stop_gradient(columns), -residual)
    return _Unknowns(x.y + mixed(step, lax.stop_gradient(tangents.y)), x.gap + step[2])


def _least_norm(columns: Float[Array, "3 3"], r: Float[Array, "3"]) -> Float[Array, "3"]:
    """The least-norm weights with which the sum of the columns is r, or nearest to it. They solve
    damped normal equations, twice, to reduce the error of the damping."""
    A = jnp.sum(columns[:, None] * columns[None], axis=2)
    damping = jnp.finfo(r.dtype).eps ** 0.75 * (A[0, 0] + A[1, 1] + A[2, 2])
    A_inv, _ = inverse(A + damping * jnp.eye(3, dtype=r.dtype))
    x = jnp.zeros_like(r)
    for _ in range(2):
        left = r - mixed(x, columns)
        x = x + jnp.sum(A_inv * jnp.sum(columns * left[None], axis=1)[None], axis=1)
    return x


def _sharpened(pair: _Pair, start: _Unknowns, c) -> _Unknowns:
    """The unknowns of least residual among some steps of Newton's method, or the start if it
    separates more. The equations also have solutions in directions that are not the best."""

    def scored(x):
        touching = _features(pair, x, c)
        r = touching.residual
        # Return y along the normal to the distance c from a, so that it never comes nearer.
        x = _Unknowns(touching.on_a + c * touching.normal, x.gap)
        return x, touching.normal, r, dot(r, r)

    def step(_, state):
        (x, n, r, _), best = state
        new = scored(_newton(pair, x, n, c, r))
        return new, tree_where(new[3] < best[3], new, best)

    first = scored(start)
    _, best = lax.fori_loop(0, _NEWTON_STEPS, step, (first, first))
    worse = pair.apart(best[1]) < pair.apart(first[1]) - 1e-5 * c
    return tree_where(worse, first[0], best[0])


def _start(pair: _Pair) -> tuple[_Unknowns, Float[Array, ""]]:
    """The unknowns at the best direction found, and the length c, a fraction of the size.

    To improve a direction n, the shapes are moved apart along n until they no longer overlap. The
    direction between their nearest points then separates them no less than n does. This is repeated
    as long as the shapes overlap. Then they are no longer moved, and GJK continues.
    """
    axes = jnp.eye(3, dtype=pair.pose.position.dtype)
    widths = [-pair.apart(e) - pair.apart(-e) for e in components(axes)]
    size = jnp.sum(jnp.stack(widths))
    c = size / 8
    n = _candidates(pair, axes)
    apart = jax.vmap(pair.apart)(n)

    chosen = []
    for _ in range(_STARTS):
        best = one_hot_of_largest(apart)
        chosen.append((mixed(best, n), jnp.max(apart)))
        near = jnp.sum(n * chosen[-1][0][None], axis=1) > _COSINE
        apart = jnp.where(near, -jnp.inf, apart)

    def improved(n, apart):
        def step(_, state):
            n, apart, _ = state
            beyond = jnp.maximum(0.005 * size - apart, 0.0) * n

            def support(d):
                on_a = pair.on_a(d)
                return on_a - pair.on_b(d) - beyond, on_a

            simplex = gjk(support, n, _ITERATIONS)
            _, new = unit(-simplex.nearest, n)
            new_apart = pair.apart(new)
            on_a = mixed(simplex.weights, simplex.sources)
            return *tree_where(new_apart >= apart, (new, new_apart), (n, apart)), on_a

        return lax.fori_loop(0, _ROUNDS, step, (n, apart, jnp.zeros_like(n)))

    n, apart, on_a = jax.vmap(improved)(*(jnp.stack(x) for x in zip(*chosen, strict=True)))
    best = one_hot_of_largest(apart)
    return _Unknowns(mixed(best, on_a) + c * mixed(best, n), jnp.max(apart)), c


def _candidates(pair: _Pair, axes: Float[Array, "3 3"]) -> Float[Array, "n 3"]:
    """Directions all over the sphere, along the axes of both frames, and from a to b."""
    z = 1 - (2 * np.arange(_DIRECTIONS) + 1) / _DIRECTIONS
    r, turn = np.sqrt(1 - z * z), np.pi * (1 + 5**0.5) * np.arange(_DIRECTIONS)
    spiral = jnp.asarray(np.stack([r * np.cos(turn), r * np.sin(turn), z], axis=1), axes.dtype)
    axes_b = jnp.stack([pair.pose.direction(e) for e in components(axes)])
    _, toward_b = unit(pair.pose.position, x_direction(pair.pose.position))
    return jnp.concatenate([spiral, axes, -axes, axes_b, -axes_b, toward_b[None]])
