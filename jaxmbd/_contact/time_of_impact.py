"""The time at which a gap closes within a step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._equations import AbstractEquations
from .._linalg import ConstraintOperator
from .._loop import stop_gradient
from .._types import Coordinates, RealScalarLike, Rows, Velocity
from .rows import ContactRows, gaps

# Newton steps from the time at which a parabola of the gap would close, and how many of them are
# differentiated. With equality rows each of them is joined by a step back to the rows.
_STEPS, _STEPS_WITH_ROWS = (6, 2), (8, 8)


class Back(NamedTuple):
    """A displacement and its cause: the impulses of the rows times the time."""

    displacement: Velocity
    impulses: Rows


class Path(NamedTuple):
    """The motion within a step: constant accelerations a from (t, q, v), and a displacement of
    least kinetic energy at q back to the holonomic rows. `operator` is `None` without rows."""

    of: AbstractEquations
    t: RealScalarLike
    q: Coordinates
    v: Velocity
    a: Velocity
    operator: ConstraintOperator | None

    def velocity(self, s: RealScalarLike) -> Velocity:
        """Return the velocities after the time s."""
        return self.v + s * self.a

    def displacement(self, s: RealScalarLike) -> Velocity:
        """Return the displacement until the time s, without the way back to the rows."""
        return s * (self.v + 0.5 * s * self.a)

    def coordinates(self, s: RealScalarLike, back: Velocity) -> Coordinates:
        """Return the coordinates after the time s and the displacement `back`."""
        return self.of.system.retract(self.q, self.displacement(s) + back)

    def gaps(self, s: RealScalarLike, back: Velocity) -> Float[Array, " all"]:
        """Return the gaps after the time s."""
        return gaps(self.of.system, self.t + s, self.coordinates(s, back))

    def to_rows(self, s: RealScalarLike, back: Back) -> Back:
        """Take one Newton step back to the rows, with J evaluated at q."""
        if self.operator is None:
            return back
        phi = self.of.positions(self.t + s, self.coordinates(s, back.displacement))
        missing = back.impulses.shape[0] - phi.shape[0]
        wanted = jnp.concatenate([-phi, jnp.zeros(missing, phi.dtype)])
        impulses = back.impulses + self.operator.correct(wanted, self.v)[1]
        # From the total impulses, since directions of earlier ones have derivatives too.
        return Back(self.operator.free(self.operator.reaction(impulses)), impulses)


class Touch(NamedTuple):
    """Which contacts touch, which of these open (`flying`), and which strike."""

    touching: Bool[Array, " contacts"]
    flying: Bool[Array, " contacts"]
    striking: Bool[Array, " contacts"]


def touch(gap: Array, rate: Array, bend: Array) -> Touch:
    """Classify contacts by their gaps, the rates of these, and their accelerations without contact
    impulses. A rise or fall by less than the gap that counts as touching is rounding. So are
    velocities that a contact solver may leave."""
    # In single precision this is a few roundings of 1 m.
    closed = 1e-9 if gap.dtype == jnp.float64 else 1e-6  # [m]
    still = jnp.finfo(gap.dtype).eps ** 0.5  # [m/s]
    touching = gap <= closed
    moving = rate**2 / 2 > closed * -bend
    return Touch(touching, touching & moving & (rate > 0), touching & moving & (rate < -still))


class Flown(NamedTuple):
    """The motion along a path until the first impact: whether there is one; the time until it, or
    the whole time; and the displacements to the equality rows there, `back`, and at the start,
    `before`."""

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
    """Follow a path of duration h to the first impact of the `awaited` contacts. A parabola of each
    gap tells which contact is the first, and roughly when. Newton's method on its gap along the
    path then finds the time. Its last steps are differentiated: from the root they give first and
    second derivatives. Contacts that are `striking` do so now, but the time at which their gaps
    vanish still has derivatives."""
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
    """Return the first time > 0 at which gap + rate s + bend s^2 / 2 falls through 0; infinite if
    never."""
    square = rate**2 - 2 * bend * gap
    root = jnp.sqrt(jnp.maximum(square, 0.0))
    # Two forms of the same root, each without cancellation.
    down = root - rate
    from_above = 2 * gap / jnp.where(down > 0, down, 1.0)
    after_peak = (rate + root) / jnp.where(bend < 0, -bend, 1.0)
    s = jnp.where(rate > 0, after_peak, from_above)
    falls = jnp.where(rate > 0, bend < 0, (square >= 0) & (down > 0) & (gap > 0))
    return jnp.where(falls, s, jnp.inf)
