"""Where a gap closes within a step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._equations import AbstractEquations
from .._linalg import ConstraintOperator
from .._loop import stop_gradient
from .._types import Coordinates, RealScalarLike, Rows, Velocity
from .rows import ContactRows, gaps

# Steps of Newton's method from the time at which a parabola of the gap would close, and those of
# them that are differentiated; with rows of equality a step back to them joins each.
_STEPS, _STEPS_WITH_ROWS = (6, 2), (8, 8)


class Back(NamedTuple):
    """A displacement, and what would make it, impulses of the rows times the time."""

    displacement: Velocity
    impulses: Rows


class Path(NamedTuple):
    """The motion within a step: constant accelerations a from (t, q, v), and a displacement that
    takes it back to the holonomic rows, of least kinetic energy at q; no `operator` if there are
    none."""

    of: AbstractEquations
    t: RealScalarLike
    q: Coordinates
    v: Velocity
    a: Velocity
    operator: ConstraintOperator | None

    def velocity(self, s: RealScalarLike) -> Velocity:
        """After the time s."""
        return self.v + s * self.a

    def displacement(self, s: RealScalarLike) -> Velocity:
        """Until the time s."""
        return s * (self.v + 0.5 * s * self.a)

    def coordinates(self, s: RealScalarLike, back: Velocity) -> Coordinates:
        """After the time s, with the displacement back."""
        return self.of.system.retract(self.q, self.displacement(s) + back)

    def gaps(self, s: RealScalarLike, back: Velocity) -> Float[Array, " all"]:
        """After the time s."""
        return gaps(self.of.system, self.t + s, self.coordinates(s, back))

    def to_rows(self, s: RealScalarLike, back: Back) -> Back:
        """A step of Newton's method, with J as it is at q."""
        if self.operator is None:
            return back
        phi = self.of.positions(self.t + s, self.coordinates(s, back.displacement))
        missing = back.impulses.shape[0] - phi.shape[0]
        wanted = jnp.concatenate([-phi, jnp.zeros(missing, phi.dtype)])
        impulses = back.impulses + self.operator.correct(wanted, self.v)[1]
        # From all impulses, since the directions in which the first ones act have derivatives too.
        return Back(self.operator.free(self.operator.reaction(impulses)), impulses)


class Touch(NamedTuple):
    """Which contacts touch, and of these which ones open, and which ones strike."""

    touching: Bool[Array, " contacts"]
    flying: Bool[Array, " contacts"]
    striking: Bool[Array, " contacts"]


def touch(gap: Array, rate: Array, bend: Array) -> Touch:
    """From gaps, their rates and their accelerations without contact impulses. A rise of less than
    what counts as touching is rounding, a fall from no higher too, and so are velocities that a
    contact solver may leave."""
    # In single precision a few roundings of 1 m.
    closed = 1e-9 if gap.dtype == jnp.float64 else 1e-6  # [m]
    still = jnp.finfo(gap.dtype).eps ** 0.5  # [m/s]
    touching = gap <= closed
    moving = rate**2 / 2 > closed * -bend
    return Touch(touching, touching & moving & (rate > 0), touching & moving & (rate < -still))


class Flown(NamedTuple):
    """Along a path until the first impact: whether there is one, the time until it, or the whole
    time, the way `back` to the rows of equality there, and the way back `before`, at the start."""

    hit: Bool[Array, ""]
    after: Float[Array, ""]
    back: Back
    before: Back


def to_first_impact(
    path: Path,
    rows: int,
    contacts: ContactRows,
    awaited: Bool[Array, " contacts"],
    striking: Bool[Array, " contacts"],
    h: RealScalarLike,
) -> Flown:
    """On a path of duration h, of the contacts that are `awaited`. A parabola of each gap tells
    which one is the first, and about when; Newton's method on its gap along the path tells the
    time, of which the last steps are differentiated: from the root they give its first and second
    derivatives. Contacts that are `striking` do so now, but the time at which their gaps vanish
    still has its derivatives."""
    h = jnp.asarray(h, path.v.dtype)
    rate = contacts.velocities(path.v)[:, 0]
    bend = contacts.J.rows(path.a)[:, 0]
    gap = jnp.maximum(contacts.gap, 0.0)
    when = jax.lax.stop_gradient(_closing_time(gap, rate, bend))
    when = jnp.where(awaited, jnp.where(striking, 0.0, when), jnp.inf)
    first = jnp.argmin(when)
    number = first if contacts.kept is None else contacts.kept[first]
    before = path.to_rows(h * 0, Back(jnp.zeros_like(path.v), jnp.zeros(rows, h.dtype)))

    def improved(path, found, hit):
        s, back = found
        back = path.to_rows(s, back)
        value, slope = jax.jvp(
            lambda s: path.gaps(s, back.displacement)[number], (s,), (jnp.ones_like(s),)
        )
        closing = hit & (slope < 0)
        return jnp.where(closing, s - value / jnp.where(closing, slope, 1.0), s), back

    fixed, end, soon = stop_gradient(path), stop_gradient(h), when[first] <= 2 * h

    def sought(_, found):
        s, back = improved(fixed, found, soon)
        return jnp.clip(s, 0.0, end), back

    searched, differentiated = _STEPS if path.operator is None else _STEPS_WITH_ROWS
    start = (jnp.minimum(when[first], end), stop_gradient(before))
    s, back = stop_gradient(jax.lax.fori_loop(0, searched, sought, start))
    hit = soon & (s < h)
    s, back = jax.lax.fori_loop(
        0, differentiated, lambda _, x: improved(path, x, hit), (jnp.where(hit, s, h), back)
    )
    s = s + jax.lax.stop_gradient(jnp.maximum(s, 0.0) - s)
    return Flown(hit, s, back, before)


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
