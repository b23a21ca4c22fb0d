"""Rows of one element and their derivatives along the motions of its bodies.

Each column of a Jacobian is one directional derivative by a single number, the others being
constants: XLA shares what all have in common, and no zero is multiplied.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import dot
from .._types import RealScalarLike

# A body's coordinates (position, quaternion) and its velocities.
_Bodies = Sequence[Float[Array, "7"]]
_Velocities = Sequence[Float[Array, "6"]]


class Linearised(NamedTuple):
    """Rows of one element: `value` (Phi or Psi), `velocity` (Phi' or Psi), its time derivative
    `drift` at constant velocities, and for each end the columns `J`, shape `(6, rows)`."""

    value: Float[Array, " rows"]
    velocity: Float[Array, " rows"]
    drift: Float[Array, " rows"]
    J: list[Float[Array, "6 rows"]]


def holonomic(
    phi: Callable, qs: _Bodies, vs: _Velocities, t: RealScalarLike, moving: Sequence[bool]
) -> Linearised:
    """Of Phi(qs, t). Ends that are not `moving`, all on the ground, have no columns."""

    def along(s):
        return phi([_path(q, v, s) for q, v in zip(qs, vs, strict=True)], t + s)

    def displaced(end, i, s):
        return phi(_replaced(qs, end, _displaced(qs[end], i, s)), t)

    zero = jnp.zeros_like(t)
    (value, velocity), (_, drift) = _with_rate(lambda s: _with_rate(along, s), zero)
    return Linearised(value, velocity, drift, _columns(displaced, moving, zero, value))


def nonholonomic(
    psi: Callable, qs: _Bodies, vs: _Velocities, t: RealScalarLike, moving: Sequence[bool]
) -> Linearised:
    """Of Psi(qs, vs, t)."""

    def along(s):
        return psi([_path(q, v, s) for q, v in zip(qs, vs, strict=True)], vs, t + s)

    def displaced(end, i, s):
        return psi(qs, _replaced(vs, end, vs[end].at[i].add(s)), t)

    zero = jnp.zeros_like(t)
    value, drift = _with_rate(along, zero)
    return Linearised(value, value, drift, _columns(displaced, moving, zero, value))


def _columns(displaced: Callable, moving: Sequence[bool], zero: Array, like: Array) -> list[Array]:
    """Derivatives of `displaced(end, i, s)` by s."""

    def rate(end, i):
        return _with_rate(lambda s: displaced(end, i, s), zero)[1]

    none = jnp.zeros((6, like.shape[0]), like.dtype)
    return [
        jnp.stack([rate(end, i) for i in range(6)]) if moves else none
        for end, moves in enumerate(moving)
    ]


def _with_rate(fn, s):
    return jax.jvp(fn, (s,), (jnp.ones_like(s),))


def _replaced(items, i, item):
    return [*items[:i], item, *items[i + 1 :]]


def _tilted(p: Float[Array, "4"], i: int) -> Float[Array, "4"]:
    """Quaternion product of the unit vector number i with p."""
    w, x, y, z = p
    return jnp.stack([(-x, w, -z, y), (-y, z, w, -x), (-z, -y, x, w)][i])


def _displaced(q: Float[Array, "7"], i: int, s: Array) -> Float[Array, "7"]:
    """q after a shift along (i < 3) or a small tilt about a world axis, to first order in s."""
    if i < 3:
        return q.at[i].add(s)
    return jnp.concatenate([q[:3], q[3:] + (0.5 * s) * _tilted(q[3:], i - 3)])


def _path(q: Float[Array, "7"], v: Float[Array, "6"], s: Array) -> Float[Array, "7"]:
    """q after the time s at constant velocities, to second order: p' = omega p / 2, so
    p'' = -|omega|^2 p / 4."""
    p, half = q[3:], 0.5 * v[3:]
    rate = sum(half[i] * _tilted(p, i) for i in range(3))
    turned = p + s * (rate - (0.5 * s) * dot(half, half) * p)
    return jnp.concatenate([q[:3] + s * v[:3], turned])
