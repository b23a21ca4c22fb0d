"""Where a gap closes within a step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._system import AbstractSystem
from .._types import Coordinates, RealScalarLike, Velocity
from .rows import ContactRows, gaps

# Gaps [m] of closed contacts.
CLOSED = 1e-9

# Newton steps from the time at which a parabola of the gap would close.
_STEPS = 6


class Path(NamedTuple):
    """The motion within a step: constant accelerations a from (t, q, v)."""

    system: AbstractSystem
    t: RealScalarLike
    q: Coordinates
    v: Velocity
    a: Velocity

    def velocity(self, s: RealScalarLike) -> Velocity:
        """After the time s."""
        return self.v + s * self.a

    def displacement(self, s: RealScalarLike) -> Velocity:
        """Until the time s."""
        return s * (self.v + 0.5 * s * self.a)

    def gaps(self, s: RealScalarLike) -> Float[Array, " all"]:
        """After the time s."""
        q = self.system.retract(self.q, self.displacement(s))
        return gaps(self.system, self.t + s, q)


class Impact(NamedTuple):
    """The first impact: whether there is one, and the time until it, or the whole time."""

    hit: Bool[Array, ""]
    after: Float[Array, ""]


def flies(rate: Array, bend: Array) -> Bool[Array, " contacts"]:
    """Which touching contacts open, with these rates and accelerations of their gaps: less of a
    rise than what counts as touching is rounding."""
    return (rate > 0) & (rate**2 / 2 > CLOSED * -bend)


def first_impact(
    path: Path, contacts: ContactRows, closed: Bool[Array, " contacts"], h: RealScalarLike
) -> Impact:
    """On a path of duration h, of the contacts that are not `closed` throughout. A parabola of each
    gap tells which one is the first, and about when; Newton's method on its gap along the path
    tells the time, of which the last two steps are differentiated: from the root they give its
    first and second derivatives."""
    rate = contacts.velocities(path.v)[:, 0]
    bend = contacts.J.rows(path.a)[:, 0]
    gap = jnp.maximum(contacts.gap, 0.0)
    when = jnp.where(closed, jnp.inf, jax.lax.stop_gradient(_closing_time(gap, rate, bend)))
    first = jnp.argmin(when)
    number = first if contacts.kept is None else contacts.kept[first]

    def improved(s, path):
        value, slope = jax.jvp(lambda s: path.gaps(s)[number], (s,), (jnp.ones_like(s),))
        closing = slope < 0
        return jnp.where(closing, s - value / jnp.where(closing, slope, 1.0), s)

    fixed = jax.lax.stop_gradient(path._replace(system=None))._replace(system=path.system)
    h = jnp.asarray(h, rate.dtype)
    s = jnp.minimum(when[first], h)
    for _ in range(_STEPS):
        s = jnp.clip(improved(s, fixed), 0.0, 2 * h)
    s = jax.lax.stop_gradient(s)
    for _ in range(2):
        s = improved(s, path)
    hit = (when[first] <= 2 * h) & (s < h) & (s >= 0)
    return Impact(hit, jnp.where(hit, s, h))


def _closing_time(gap: Array, rate: Array, bend: Array) -> Array:
    """The first time > 0 at which gap + rate s + bend s^2 / 2 falls through 0; infinite if
    never."""
    square = rate**2 - 2 * bend * gap
    root = jnp.sqrt(jnp.maximum(square, 0.0))
    # Two forms of one root, each without cancellation.
    down = root - rate
    from_above = 2 * gap / jnp.where(down > 0, down, 1.0)
    after_peak = (rate + root) / jnp.where(bend < 0, -bend, 1.0)
    s = jnp.where(rate > 0, after_peak, from_above)
    falls = jnp.where(rate > 0, bend < 0, (square >= 0) & (down > 0) & (gap > 0))
    return jnp.where(falls, s, jnp.inf)
