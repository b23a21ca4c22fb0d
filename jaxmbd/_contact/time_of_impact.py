"""The time at which a gap closes within a step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import save_for_reverse, stop_gradient
from .._equations import AbstractEquations
from .._linalg import ConstraintOperator
from .._types import Coordinates, RealScalarLike, Rows, Velocity
from .rows import ContactRows, gaps

# Newton steps from the time at which a parabola of the gap would close, and steps after them that
# are differentiated. With equality rows each of them is joined by a step back to the rows.
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
    closed, still = _smallest(gap.dtype)
    touching = gap <= closed
    moving = rate**2 / 2 > closed * -bend
    return Touch(touching, touching & moving & (rate > 0), touching & moving & (rate < -still))


def _smallest(dtype) -> tuple[float, float]:
    """The gap [m] up to which contacts touch, and the speed [m/s] that counts as rest."""
    # In single precision the gap is a few roundings of 1 m.
    return 1e-9 if dtype == jnp.float64 else 1e-6, float(jnp.finfo(dtype).eps) ** 0.5


class Together(NamedTuple):
    """The contacts that strike at the first impact, and the times by which they do so later than
    the first one. These are 0, but have derivatives."""

    struck: Bool[Array, " contacts"]
    later: Float[Array, " contacts"]


class Flown(NamedTuple):
    """The motion along a path until the first impact: whether there is one; the time until it, or
    the whole time; the displacements to the equality rows there, `back`, and at the start,
    `before`; and the contacts that strike `together`."""

    hit: Bool[Array, ""]
    after: Float[Array, ""]
    back: Back
    before: Back
    together: Together


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
    path then finds the time. Contacts that are `striking` do so now, but the time at which their
    gaps vanish still has derivatives."""
    h = jnp.asarray(h, path.v.dtype)
    rate = contacts.velocities(path.v)[:, 0]
    bend = contacts.J.rows(path.a)[:, 0]
    gap = jnp.maximum(contacts.gap, 0.0)
    when = jax.lax.stop_gradient(_closing_time(gap, rate, bend))
    when = jnp.where(awaited, jnp.where(striking, 0.0, when), jnp.inf)
    first = jnp.argmin(when)
    number = first if contacts.kept is None else contacts.kept[first]
    before = path.to_rows(h * 0, Back(jnp.zeros_like(path.v), jnp.zeros(rows, h.dtype)))

    fixed, end, soon = stop_gradient(path), stop_gradient(h), when[first] <= 2 * h

    def sought(_, found):
        s, back, _ = found
        back = fixed.to_rows(s, back)
        along = lambda s: contacts.with_dry(fixed.gaps(s, back.displacement))  # noqa: E731
        gap, rate = jax.jvp(along, (s,), (jnp.ones_like(s),))
        s = jnp.where(soon, s + _newton(gap[number], rate[number]), s)
        return jnp.clip(s, 0.0, end), back, rate

    searched, differentiated = _STEPS if path.operator is None else _STEPS_WITH_ROWS
    none = jnp.zeros(contacts.total, h.dtype)
    start = (jnp.minimum(when[first], end), stop_gradient(before), none)
    found = jax.lax.fori_loop(0, searched, sought, start)
    s, back, rate = stop_gradient(save_for_reverse(found))
    hit = soon & (s < h)

    # With the slope of the root, two steps of the chord method have its first and second
    # derivatives.
    def derived(_, found):
        s, back, _ = found
        back = path.to_rows(s, back)
        gap = contacts.with_dry(path.gaps(s, back.displacement))
        step = jnp.where(hit, _newton(gap[number], rate[number]), 0.0)
        return s + step, back, gap + step * rate

    start = (jnp.where(hit, s, h), back, none)
    s, back, gap = jax.lax.fori_loop(0, differentiated, derived, start)
    s = s + jax.lax.stop_gradient(jnp.maximum(s, 0.0) - s)
    gap, rate = contacts.of_kept(gap), contacts.of_kept(rate)
    closed, still = _smallest(h.dtype)
    struck = hit & awaited & (gap <= closed) & (rate < -still)
    later = jnp.where(struck, gap - jax.lax.stop_gradient(gap), 0.0) / jnp.where(struck, -rate, 1.0)
    return Flown(hit, s, back, before, Together(struck, later))


def _newton(gap: Array, slope: Array) -> Array:
    """Return the step to the root; 0 if the gap does not close."""
    closing = slope < 0
    return jnp.where(closing, -gap / jnp.where(closing, slope, 1.0), 0.0)


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
