"""Contacts of a mechanism as rows: where shapes touch, which points are kept, and their J.

Contacts are ordered by kind: those between shapes first, then slots for those between pieces that
are near each other, then gaps, then dry friction. Within a kind they are ordered by contact, with
all points of one contact together.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._compiler import compiled_quickly, product, rows_at
from .._contact import ABSENT, BodyContactJacobian, ContactLaw, ContactRows, Pairs
from .._coordinates import components
from .._linalg import picks, smallest_first, take_rows
from .._types import Coordinates, RealScalarLike, Scalar, Velocity
from .collisions import ContactPoints
from .contacts import AbstractContact, AbstractGap, DryFriction, NearContacts
from .linearise import frame_poses, frame_twists, linearised, linearised_rate, no_rows
from .near_rows import NearRows, Slots
from .stack import Stack
from .tables import BodyTables


class Layout(NamedTuple):
    """Which components contacts have after the normal one, and which coefficients (static). In a
    plane there is one tangent, and bodies roll about the normal of the plane only."""

    tangents: bool
    torsional: bool
    rolling: bool
    kinetic: bool
    stiffness: bool
    planar: bool
    dry: bool

    @property
    def sliding(self) -> int:
        """Number of components of sliding friction. Dry friction has the first of them."""
        return (1 if self.planar else 2) if self.tangents else int(self.dry)

    @property
    def d(self) -> int:
        return 1 + self.sliding + self.torsional + (1 if self.planar else 2) * self.rolling


class ContactSet(NamedTuple):
    """Contacts between bodies, kind by kind. Of the points between shapes, the `budget` ones with
    the smallest gaps are solved for; `None` for all. Where there are `NearContacts`, the budget is
    of each of these, and of other contacts all points are solved for. `own_pairs`: those in slots;
    `None` for the ones that are near at each q."""

    tables: BodyTables
    kinds: tuple[Stack[AbstractContact], ...]
    budget: int | None
    own_pairs: Pairs | None = None

    @property
    def layout(self) -> Layout:
        """The layout of all contacts. What one has, all have, if only with coefficients 0."""
        laws = [c[0].law for c in self.kinds if not isinstance(c[0], DryFriction)]
        names = ("friction", "torsional", "rolling", "kinetic", "stiffness")
        has = {name: any(getattr(law, name) is not None for law in laws) for name in names}
        planar = self.tables.flat is not None
        return Layout(
            has["friction"],
            has["torsional"] and not planar,
            has["rolling"],
            has["kinetic"],
            has["stiffness"],
            planar,
            bool(self.dry),
        )

    def axes(self, normal: Float[Array, "points 3"]) -> Float[Array, "points axes 3"]:
        """Rows: the normals of contacts and their tangents, one tangent in a plane."""
        if self.tables.flat is None:
            return basis(normal)
        x, y, z = components(normal, axis=-1)
        a, b, c = self.tables.flat.plane.normal
        tangent = jnp.stack([b * z - c * y, c * x - a * z, a * y - b * x], axis=-1)
        size = jnp.sum(tangent * tangent, axis=-1, keepdims=True)
        # A normal along that of the plane has no tangent in it.
        tangent = tangent * jax.lax.rsqrt(jnp.where(size > 0, size, 1.0))
        return jnp.stack([normal, tangent], axis=-2)

    @property
    def between_shapes(self) -> tuple[Stack, ...]:
        """Contacts between shapes, kind by kind."""
        others = AbstractGap | NearContacts | DryFriction
        return tuple(c for c in self.kinds if not isinstance(c[0], others))

    @property
    def near(self) -> tuple[NearRows, ...]:
        """The contacts between pieces of which only near ones are looked at."""
        kinds = [c for c in self.kinds if isinstance(c.together, NearContacts)]
        elements: list[Any] = [c[i] for c in kinds for i in range(len(c))]
        return tuple(NearRows(self.tables, element, self.budget) for element in elements)

    @property
    def gaps(self) -> tuple[Stack, ...]:
        """Contacts whose gaps are functions of poses, kind by kind."""
        return tuple(c for c in self.kinds if isinstance(c[0], AbstractGap))

    @property
    def dry(self) -> tuple[Stack, ...]:
        """Dry friction, kind by kind."""
        return tuple(c for c in self.kinds if isinstance(c[0], DryFriction))

    @property
    def dry_count(self) -> int:
        """The number of dry frictions, the last contacts."""
        return sum(map(len, self.dry))

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the contact of each point, slot, gap and dry friction."""
        counts = [(name, _count(c)) for c in self.between_shapes for name in c.names]
        counts += [(near.contacts.name, near.room) for near in self.near]
        counts += [(name, _count(c)) for c in self.gaps for name in c.names]
        counts += [(name, 1) for c in self.dry for name in c.names]
        return tuple(name for name, count in counts for _ in range(count))

    def overlaps(self, q: Coordinates, gap: np.ndarray, tolerance: float) -> list[str]:
        """Words for each rigid contact that overlaps at q by more than the tolerance, with the gaps
        of all."""
        counts = [_count(c) * len(c) for c in self.between_shapes]
        counts += [near.room for near in self.near]
        counts += [_count(c) * len(c) for c in self.gaps]
        pieces = np.split(gap, np.cumsum(counts)[:-1])
        said = []
        for contacts in (*self.between_shapes, *self.near, *self.gaps):
            own = pieces.pop(0)
            if isinstance(contacts, NearRows):
                said += _overlaps_of_near(contacts, q, own, tolerance)
                continue
            of_each = own.reshape(len(contacts), -1)
            for i in np.flatnonzero(np.min(of_each, axis=1, initial=np.inf) < -tolerance):
                contact = contacts[int(i)]
                if is_rigid(contact):
                    said.append(contact.overlap(of_each[i]))
        return said

    @property
    def bodies_of_points(self) -> np.ndarray:
        """Columns of the bodies a and b of each point between shapes, shape `(2, points)`."""
        ends = [
            np.repeat(np.stack(self.tables.ends(contacts)), contacts[0].count, axis=1)
            for contacts in self.between_shapes
        ]
        return np.concatenate([np.zeros((2, 0), int), *ends], axis=1)

    def points(self, q: Coordinates, pairs: Pairs | None = None) -> ContactPoints:
        """All contact points between shapes, with those in slots of the near pairs at q, or of
        these `pairs`, which have a row for each contact."""
        found = [self._points_and_slip(q)[0]]
        if not self.near:
            return found[0]
        slots = self._slots(q, self.own_pairs if pairs is None else pairs)
        return _joined([*found, *(x.points for x in slots)])

    def _slots(self, q: Coordinates, pairs: Pairs | None) -> list[Slots]:
        """The slots, of the near pairs at q, or of these `pairs`."""
        if pairs is None:
            return [near.slots(q) for near in self.near]
        found, start = [], self.bodies_of_points.shape[1]
        for near in self.near:
            found.append(near.slots_of(q, pairs[start : start + near.room]))
            start += near.room
        return found

    def pairs(self, q: Coordinates) -> Pairs | None:
        """For each contact the numbers of the pieces a and b and of the point, if it is in a slot;
        -1 for others, and for empty slots. `None` without slots."""
        return self._in_slots([x.pairs for x in self._slots(q, self.own_pairs)])

    def _in_slots(self, of_each: list[Pairs]) -> Pairs | None:
        if not of_each:
            return None
        before, after = self.bodies_of_points.shape[1], self.dry_count
        after += sum(_count(c) * len(c) for c in self.gaps)
        named = [jnp.full((n, 3), -1, jnp.int32) for n in (before, after)]
        return jnp.concatenate([named[0], *of_each, named[1]])

    def pieces_of(self, pairs: Pairs) -> tuple[Int[Array, "contacts 2"], int]:
        """The numbers of the pieces a and b of each contact in a slot, counted through all
        `NearContacts`, and how many pieces there are, which is also the number for none."""
        pieces = [len(near.contacts.body_names) for near in self.near]
        total, room = sum(pieces), [near.room for near in self.near]
        before = np.repeat(np.cumsum([0, *pieces])[:-1], room)
        start = self.bodies_of_points.shape[1]
        rest = pairs.shape[0] - start - len(before)
        first = jnp.asarray(np.pad(before, (start, rest)), jnp.int32)
        return jnp.where(pairs[:, :2] < 0, total, pairs[:, :2] + first[:, None]), total

    def bodies_of_pairs(self, pairs: Pairs) -> Int[Array, "2 contacts"]:
        """Columns of the bodies a and b of all points between shapes, with these pairs in slots."""
        named, found = jnp.asarray(self.bodies_of_points), []
        start = named.shape[1]
        for near in self.near:
            found.append(near.bodies(pairs[start : start + near.room]))
            start += near.room
        return _beside(named, found)

    def _points_and_slip(self, q: Coordinates) -> tuple[ContactPoints, Array | None]:
        """All contact points between shapes, and there the relative velocities and spins of
        surfaces that run along their shapes, in the world; `None` if none runs."""
        none = jnp.zeros((0, 3), q.dtype)
        found, slips = [ContactPoints(none[:, 0], none, none)], []
        for contacts in self.between_shapes:

            def of_contact(contact, qs):
                poses = frame_poses(contact, qs)
                points = contact.points(poses)
                return points, contact.surface_slip(poses, points.position)

            points, slip = self.tables.map(contacts, of_contact, q)
            found.append(jax.tree.map(_contact_first, points))
            slips.append(None if slip is None else _contact_first(slip))
        points = ContactPoints(*(jnp.concatenate(x) for x in zip(*found, strict=True)))
        if all(slip is None for slip in slips):
            return points, None
        sizes = [(p.gap.shape[0], 6) for p in found[1:]]
        filled = [
            jnp.zeros(n, q.dtype) if x is None else x for x, n in zip(slips, sizes, strict=True)
        ]
        return points, jnp.concatenate(filled)

    def gap(self, t: RealScalarLike, q: Coordinates) -> Float[Array, " all"]:
        """Gaps of all contacts but dry friction, those between shapes first."""
        found = [self.points(q).gap]
        for contacts in self.gaps:

            def of_contact(contact, qs):
                return contact.gaps(frame_poses(contact, qs), t)

            found.append(_contact_first(self.tables.map(contacts, of_contact, q)))
        return jnp.concatenate(found)

    def rows(self, t: RealScalarLike, q: Coordinates) -> ContactRows:
        """Rows of all gaps and of the points between shapes, or of the nearest `budget` points."""
        has, dtype = self.layout, q.dtype
        points, slip = self._points_and_slip(q)
        bodies, count = self.bodies_of_points, self.tables.body_count
        near = self.near
        slots = self._slots(q, self.own_pairs)
        # An end that is on the ground in all contacts moves nothing.
        moving = [end for end in (0, 1) if np.any(bodies[end] < count)] or [1]
        law = [_law(c, c[0].count, has, dtype) for c in self.between_shapes]
        if slots:
            bodies = _beside(jnp.asarray(bodies), [x.bodies for x in slots])
            points, moving = _joined([points, *(x.points for x in slots)]), [0, 1]
            law += [_law_of_all(x.contacts.law, x.room, has, dtype) for x in near]
            if slip is not None:
                empty = jnp.zeros((points.gap.shape[0] - slip.shape[0], 6), dtype)
                slip = jnp.concatenate([slip, empty])

        reaches = [x.reach for x in slots if x.reach is not None]
        kept, everything = None, [jax.lax.stop_gradient(points.gap)]
        total = bodies.shape[1]
        if self.budget is not None and self.budget < total and not slots:
            nearest = kept = smallest_first(everything[0], self.budget)
            points = ContactPoints(*(take_rows(x, nearest) for x in points))
            slip = None if slip is None else take_rows(slip, nearest)
            bodies = jnp.asarray(bodies)[:, nearest]
            law = [jax.tree.map(lambda *x: take_rows(jnp.concatenate(x), nearest), *law)]
        bodies = bodies[np.array(moving)]
        signs = [(-1, 1)[end] for end in moving]
        parts = [self._blocks(q, points, bodies, signs, has)]
        drift = [jnp.zeros((points.gap.shape[0], has.d), dtype)]
        if slip is not None:
            drift = [self._of_surfaces(points, slip, has)]
        gap, ends = [points.gap], [bodies]

        for contacts in (*self.gaps, *self.dry):
            find = self._dry_rows if isinstance(contacts[0], DryFriction) else self._gap_rows
            rows, rates, J = find(contacts, t, q, has)
            k = rows.shape[0] // len(contacts)
            gap.append(rows)
            everything.append(jax.lax.stop_gradient(rows))
            drift.append(rates)
            parts.append(J)
            ends.append(np.repeat(np.stack(self.tables.ends(contacts)), k, axis=1))
            law.append(_law(contacts, k, has, dtype))
            if kept is not None:
                kept = jnp.concatenate([kept, total + jnp.arange(rows.shape[0])])
            total += rows.shape[0]
        most = max(x.shape[0] for x in parts)
        # Contacts of fewer bodies are padded by blocks of zeros on the ground.
        parts = [jnp.pad(x, ((0, most - x.shape[0]), *3 * ((0, 0),))) for x in parts]
        ends = [jnp.pad(x, ((0, most - x.shape[0]), (0, 0)), constant_values=count) for x in ends]
        np_or_jnp = np if all(isinstance(x, np.ndarray) for x in ends) else jnp
        bodies = np_or_jnp.concatenate(ends, axis=1)
        J = BodyContactJacobian.of_few(jnp.concatenate(parts, axis=1), bodies, count)
        law = jax.tree.map(lambda *x: jnp.concatenate(x), *law) if law else ContactLaw()
        return ContactRows(
            jnp.concatenate(gap),
            jnp.concatenate(drift),
            J,
            law,
            has.sliding,
            total,
            kept,
            None if kept is None else jnp.concatenate(everything),
            self._in_slots([x.pairs for x in slots]),
            functools.reduce(jnp.logical_or, [x.lost for x in slots]) if slots else None,
            functools.reduce(jnp.minimum, reaches) if reaches else None,
            self.dry_count,
        )

    def _of_surfaces(self, points: ContactPoints, slip: Array, has: Layout) -> Array:
        """The velocities of rows due to surfaces that run, without a part along the normal."""
        axes = self.axes(points.normal)
        along = jnp.sum(axes * slip[:, None, :3], axis=-1)[:, 1 : 1 + has.sliding]
        spin = jnp.sum(points.normal * slip[:, 3:], axis=-1)[:, None]
        normal, rest = jnp.zeros_like(spin), has.d - 1 - has.sliding - has.torsional
        parts = [normal, along, spin[:, : int(has.torsional)], jnp.tile(normal, (1, rest))]
        return jnp.concatenate(parts, axis=1)

    def _blocks(
        self,
        q: Coordinates,
        points: ContactPoints,
        bodies: np.ndarray | Array,
        signs: list[int],
        has: Layout,
    ) -> Float[Array, "ends contacts d size"]:
        """J of points between shapes: velocity and rotation of b relative to a, along the normal
        and the tangents, for the ends on these `bodies`. The end on a has the sign -1."""
        axes = self.axes(points.normal)
        table = self.tables.poses_with_ground(q)[:3]
        here = picks(bodies, table.shape[1], q.dtype)
        if here is None and self.near:
            centers = rows_at(table.T, jnp.asarray(bodies).ravel()).reshape(*bodies.shape, 3)
        elif here is None:
            centers = jnp.moveaxis(table[:, bodies], 0, -1)
        else:
            centers = product(here.reshape(-1, table.shape[1]), table.T).reshape(*bodies.shape, 3)
        directions = axes if has.tangents else axes[:, :1]
        zero = jnp.zeros_like(axes)
        rolls = axes[:, 1:]
        if self.tables.flat is not None:
            rolls = jnp.asarray(self.tables.flat.plane.axes[2], axes.dtype)
            rolls = jnp.broadcast_to(rolls, axes[:, 1:].shape)
        turns = [axes[:, :1]] * has.torsional + [rolls] * has.rolling

        def of_end(center, sign):
            arms = jnp.broadcast_to((points.position - center)[:, None], directions.shape)
            moments = jnp.cross(arms, directions)
            rows = [jnp.concatenate([directions, moments], axis=-1)]
            if not has.tangents and has.dry:
                rows += [jnp.zeros((points.gap.shape[0], has.sliding, 6), axes.dtype)]
            rows += [jnp.concatenate([zero[:, : x.shape[1]], x], axis=-1) for x in turns]
            return sign * self.tables.restricted(jnp.concatenate(rows, axis=1), 2)

        return jnp.stack([of_end(*end) for end in zip(centers, signs, strict=True)])

    def _gap_rows(
        self, contacts: Stack, t: RealScalarLike, q: Coordinates, has: Layout
    ) -> tuple[Array, Array, Array]:
        """Gaps of one kind, their rates at rest, and the blocks of J."""
        t = jnp.asarray(t, q.dtype)
        moving = self.tables.moving(contacts)

        def of_contact(contact, qs):
            still = [jnp.zeros(6, q.dtype) for _ in qs]
            rows = linearised(contact, contact.gaps, no_rows, qs, still, t, moving)
            J = [self.tables.restricted(block, 1) for block in rows.J]
            return rows.phi, rows.velocity, jnp.stack(J, axis=1)

        value, rate, J = map(_contact_first, self.tables.map(contacts, of_contact, q))
        J = jnp.moveaxis(J, 0, 1)[:, :, None]
        rest = ((0, 0), (0, has.d - 1))
        return value, jnp.pad(rate[:, None], rest), jnp.pad(J, ((0, 0), *rest, (0, 0)))

    def _dry_rows(
        self, contacts: Stack, t: RealScalarLike, q: Coordinates, has: Layout
    ) -> tuple[Array, Array, Array]:
        """Gaps of dry friction, which do not exist, and the blocks of J: its rate is a slip."""
        del t

        def of_contact(contact, qs):
            still = [jnp.zeros(6, q.dtype) for _ in qs]
            R, _ = linearised_rate(contact.coordinate.rate, contact, qs, still)
            return jnp.stack([self.tables.restricted(block, 0) for block in R])

        J = jnp.moveaxis(self.tables.map(contacts, of_contact, q), -1, 1)[:, :, None]
        J = jnp.pad(J, ((0, 0), (0, 0), (1, has.d - 2), (0, 0)))
        gaps = jnp.full(len(contacts), ABSENT, q.dtype)
        return gaps, jnp.zeros((len(contacts), has.d), q.dtype), J

    def friction_rates(self, q: Coordinates, v: Velocity) -> Float[Array, " dry"]:
        """The rate along each dry friction."""
        return self._of_dry(lambda contact, rate: rate, q, v)

    def friction_bounds(
        self,
        t: RealScalarLike,
        q: Coordinates,
        v: Velocity,
        u: PyTree,
        load: Callable[[DryFriction], Scalar],
    ) -> Float[Array, " dry"]:
        """The largest force of each dry friction. `load`: that of one by its load."""
        loads = []
        for contacts in self.dry:
            each = [contacts[i] for i in range(len(contacts))]
            loads += [list(map(load, each)) if each[0].by_load else []]

        def largest(contact, rate, *N):
            g = contact.largest(rate, *N)
            return g if contact.pressure is None else g * contact.share(t, u)

        return self._of_dry(largest, q, v, loads)

    def _of_dry(self, fn, q, v, loads=None) -> Array:
        found = [jnp.zeros(0, q.dtype)]
        for i, contacts in enumerate(self.dry):

            def of_contact(contact, qs, vs, *N):
                poses, twists = frame_poses(contact, qs), frame_twists(contact, qs, vs)
                return fn(contact, contact.coordinate.rate(poses, twists), *N)

            own = (jnp.stack(loads[i]),) if loads is not None and loads[i] else ()
            found.append(self.tables.map(contacts, of_contact, q, v, own=own))
        return jnp.concatenate(found)


def basis(normal: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3 3"]:
    """Rows: the normal and two tangents, right-handed; x and y for a normal along z. No direction
    is singular, but the tangents jump where n_z changes its sign.

    Reference: Duff et al. (2017), Building an orthonormal basis, revisited."""
    x, y, z = components(normal, axis=-1)
    s = jnp.where(z < 0, -1.0, 1.0).astype(normal.dtype)
    a = -1 / (s + z)
    b = x * y * a
    first = jnp.stack([1 + s * x * x * a, s * b, -s * x], axis=-1)
    second = jnp.stack([b, s + y * y * a, -y], axis=-1)
    return jnp.stack([normal, first, second], axis=-2)


def _law(contacts: Stack[AbstractContact], k: int, has: Layout, dtype) -> ContactLaw:
    """Coefficients of each point of one kind."""

    def of_contact(contact):
        dense = contact.law.dense
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (k,)).astype(dtype), dense)

    return _only(jax.tree.map(_contact_first, contacts.map(of_contact)), has)


def _law_of_all(law: ContactLaw, k: int, has: Layout, dtype) -> ContactLaw:
    """Coefficients of k points that have one law."""
    filled = jax.tree.map(lambda x: jnp.broadcast_to(jnp.ravel(x), (k,)).astype(dtype), law.dense)
    return _only(filled, has)


def _only(law: ContactLaw, has: Layout) -> ContactLaw:
    return law.only(
        torsional=has.torsional,
        rolling=has.rolling,
        kinetic=has.kinetic,
        stiffness=has.stiffness,
    )


def _contact_first(x: Array) -> Array:
    """Merge the first axis (points) and the last (contacts) into one, ordered by contact."""
    x = jnp.moveaxis(x, -1, 0)
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _count(contacts: Stack) -> int:
    """Number of gaps of one contact of a kind."""
    one = contacts[0]
    if isinstance(one, DryFriction):
        return 1
    if isinstance(one, AbstractGap):
        return jax.eval_shape(lambda: one.gaps(one.frames, 0.0)).shape[0]
    return one.count


def is_rigid(contact: AbstractContact) -> bool:
    """Whether the stiffness of the contact is not known to be finite."""
    stiffness = contact.law.stiffness
    return stiffness is None or not np.all(np.isfinite(stiffness))


def _beside(named: Array, of_slots: Sequence[Array]) -> Array:
    """Columns of bodies of contacts with a fixed place, and in slots."""
    return jnp.concatenate([named, *(x.astype(named.dtype) for x in of_slots)], axis=1)


def _joined(points: Sequence[ContactPoints]) -> ContactPoints:
    return ContactPoints(*(jnp.concatenate(x) for x in zip(*points, strict=True)))


def _overlaps_of_near(
    near: NearRows, q: Coordinates, gap: np.ndarray, tolerance: float
) -> list[str]:
    if not is_rigid(near.contacts):
        return []
    pairs = np.asarray(_pairs_now(near, q))
    # Of each pair its deepest point.
    deepest: dict[tuple[int, int], float] = {}
    for i in np.flatnonzero(gap < -tolerance):
        a, b, _ = pairs[i].tolist()
        deepest[a, b] = min(deepest.get((a, b), 0.0), float(gap[i]))
    return [near.contacts.overlap_of(*pair, value) for pair, value in deepest.items()]


@compiled_quickly
def _pairs_now(near, q):
    return near.slots(q).pairs
