"""Contact points of the pieces of a `NearContacts` that are near each other."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._compiler import loops_cost_nothing, rows_at, save_for_reverse, stop_gradient
from .collisions import (
    ABSENT,
    ContactPoints,
    bounding_ball,
    collide,
    near_pairs,
    nearest,
    takes_long,
)
from .contacts import NearContacts, PairKind
from .coordinates import Configuration
from .linearise import poses_on
from .pose import PoseWithAxes
from .tables import BodyTables

# Pairs are looked at in groups of this size, or larger ones, of which there are so many.
_GROUP, _GROUPS = 64, 16

# Default reach, as a share of the radius of the smallest ball.
_REACH = 0.25


class Slots(NamedTuple):
    """Contact points that are solved for, at places that are not fixed.

    - `points`, of which those that do not exist are `ABSENT`.
    - `pairs`: the numbers of the pieces a and b and of the point of each; -1 for none.
    - `bodies`: columns of the bodies of a and b, the ground for none.
    - `lost`: whether pieces overlap for which no room was left. `reach`: gap up to which all pairs
      are in slots if none is lost; `None` for given pairs.
    """

    points: ContactPoints
    pairs: Int[Array, "slots 3"]
    bodies: Int[Array, "2 slots"]
    lost: Bool[Array, ""]
    reach: Float[Array, ""] | None = None


class NearRows(NamedTuple):
    """The contact points of one `NearContacts`, up to `budget` of them; `None` for all."""

    tables: BodyTables
    contacts: NearContacts
    budget: int | None

    @property
    def room(self) -> int:
        """Number of slots."""
        most = self.contacts.plan.points
        return most if self.budget is None else min(self.budget, most)

    @property
    def columns(self) -> np.ndarray:
        """Column of the body of each piece."""
        column = {name: i for i, name in enumerate((*self.tables.names, "ground"))}
        return np.array([column[name] for name in self.contacts.body_names])

    def slots(self, q: Configuration) -> Slots:
        """The contact points of near pairs."""
        of, plan = self.contacts, self.contacts.plan
        placed = self._placed(q)
        center, radius = self._balls(placed)
        reach = of.reach
        if reach is None:
            reach = _REACH * jnp.min(radius, initial=jnp.inf) if radius.size else ABSENT / 4
        reach = jnp.asarray(stop_gradient(reach), q.dtype)
        # Integers, which the reverse pass need not find again.
        near = save_for_reverse(near_pairs(plan.balls, center, radius, reach))

        found, ends, exist, start = [], [], [], 0
        bounded = jnp.asarray(plan.bounded, jnp.int32)
        for g, kinds in enumerate(plan.near):
            one, other = (x[start : start + kinds.room] for x in (near.first, near.second))
            start += kinds.room
            pieces = bounded[one], bounded[other]
            found.append(self._points(placed, kinds, *pieces, near.exist[g]))
            ends.append(pieces)
            exist.append(near.exist[g])
        for kinds, a, b in plan.resting:
            pieces = jnp.asarray(a, jnp.int32), jnp.asarray(b, jnp.int32)
            found.append(self._points(placed, kinds, *pieces))
            ends.append(pieces)
            exist.append(kinds.room)
        kinds = (*plan.near, *(x.kinds for x in plan.resting))
        chosen = save_for_reverse(nearest([x.gap for x in found], exist, reach, self.room))

        flat = [
            jnp.concatenate([x.gap[..., None], x.position, x.normal], -1).reshape(-1, 7)
            for x in found
        ]
        absent = jnp.asarray([[ABSENT, 0, 0, 0, 0, 0, 1]], q.dtype)
        numbers = [
            jnp.stack(
                [
                    *(jnp.repeat(x, kind.points) for x in pieces),
                    jnp.tile(jnp.arange(kind.points, dtype=jnp.int32), kind.room),
                ],
                axis=1,
            )
            for pieces, kind in zip(ends, kinds, strict=True)
        ]
        none = jnp.full((1, 3), -1, jnp.int32)
        x = rows_at(jnp.concatenate([*flat, absent]), chosen.place)
        pairs = rows_at(jnp.concatenate([*numbers, none]), chosen.place)
        points = ContactPoints(x[:, 0], x[:, 1:4], x[:, 4:])
        return Slots(points, pairs, self.bodies(pairs), near.lost | chosen.lost, reach)

    def slots_of(self, q: Configuration, pairs: Int[Array, "slots 3"]) -> Slots:
        """The contact points of these pairs, in any pose."""
        return Slots(self.at(q, pairs), pairs, self.bodies(pairs), jnp.array(False))

    def bodies(self, pairs: Int[Array, "slots 3"]) -> Int[Array, "2 slots"]:
        """Columns of the bodies of the pieces a and b."""
        columns = jnp.asarray(np.append(self.columns, self.tables.body_count), jnp.int32)
        ends = jnp.where(pairs[:, :2] < 0, len(self.columns), pairs[:, :2])
        return jnp.stack([rows_at(columns, ends[:, k]) for k in (0, 1)])

    def at(self, q: Configuration, pairs: Int[Array, "slots 3"]) -> ContactPoints:
        """The contact points of these pairs, in any pose."""
        plan, placed = self.contacts.plan, self._placed(q)
        kind = jnp.asarray(self.contacts.kinds, jnp.int32)
        a, b, point = jnp.maximum(pairs, 0).T
        exists = pairs[:, 0] >= 0
        n = pairs.shape[0]
        up = jnp.broadcast_to(jnp.asarray([0.0, 0.0, 1.0], q.dtype), (n, 3))
        found = ContactPoints(jnp.full(n, ABSENT, q.dtype), jnp.zeros((n, 3), q.dtype), up)
        for kinds in (*plan.near, *(x.kinds for x in plan.resting)):
            own = exists & (kind[a] == kinds.a) & (kind[b] == kinds.b)
            first, other = (
                jnp.where(own, x, self.contacts.kinds.index(k))
                for x, k in ((a, kinds.a), (b, kinds.b))
            )
            points = self._points(placed, kinds, first, other)
            number = jnp.minimum(point, kinds.points - 1)
            here = jnp.arange(kinds.points, dtype=jnp.int32)[None] == number[:, None]
            gap, position, normal = (
                jnp.sum(jnp.where(here.reshape(*here.shape, *(1,) * (x.ndim - 2)), x, 0), axis=1)
                for x in points
            )
            found = ContactPoints(
                jnp.where(own, gap, found.gap),
                jnp.where(own[:, None], position, found.position),
                jnp.where(own[:, None], normal, found.normal),
            )
        return found

    def _placed(self, q: Configuration) -> PoseWithAxes:
        """World poses of all pieces, with a leading axis."""
        bodies = self.tables.kinematics_with_ground(q)
        columns = jnp.asarray(self.columns, jnp.int32)
        of_pieces = jax.tree.map(lambda x: rows_at(jnp.moveaxis(x, -1, 0), columns), bodies)
        return jax.vmap(lambda body, frame: poses_on([body], [frame])[0])(
            of_pieces, self.contacts.poses
        )

    def _balls(self, placed: PoseWithAxes) -> tuple[Float[Array, "n 3"], Float[Array, " n"]]:
        """Centres and radii of the balls around the bounded pieces."""
        of, bounded = self.contacts, self.contacts.plan.bounded
        dtype = placed.position.dtype
        kind = np.array(of.kinds)[bounded]
        balls = [bounding_ball(of.shapes[k]) for k in np.unique(kind)]
        if not balls:
            return jnp.zeros((0, 3), dtype), jnp.zeros(0, dtype)
        sizes = [jnp.asarray(size, dtype) for _, size in balls]
        centers = [
            jnp.broadcast_to(jnp.asarray(x, dtype), (*size.shape, 3))
            for (x, _), size in zip(balls, sizes, strict=True)
        ]
        # Kind by kind, then in the order of the pieces.
        order = jnp.asarray(np.argsort(np.argsort(kind, kind="stable")), jnp.int32)
        local = rows_at(jnp.concatenate(centers), order)
        x, *axes = (
            rows_at(x, jnp.asarray(bounded, jnp.int32)) for x in (placed.position, *placed.axes)
        )
        for k, axis in enumerate(axes):
            x = x + local[:, k : k + 1] * axis
        return x, rows_at(jnp.concatenate(sizes), order)

    def _points(
        self,
        placed: PoseWithAxes,
        kinds: PairKind,
        a: Int[Array, " pairs"],
        b: Int[Array, " pairs"],
        exist: Int[Array, ""] | None = None,
    ) -> ContactPoints:
        """The contact points of pairs of pieces of two kinds, with the pairs as leading axis; of
        pairs after the first that `exist` they are absent."""
        row = jnp.asarray(self.contacts.plan.row, jnp.int32)

        def end(piece, k):
            shape = jax.tree.map(lambda x: rows_at(x, row[piece]), self.contacts.shapes[k])
            return shape, jax.tree.map(lambda x: rows_at(x, piece), placed)

        def one(first, other):
            return collide(*first, *other)

        def batch(a, b, there):
            points = jax.vmap(one)(end(a, kinds.a), end(b, kinds.b))
            if there is None:
                return points
            there = jnp.broadcast_to(there[:, None], (len(a), kinds.points))
            return jax.vmap(ContactPoints.where)(points, there)

        if exist is None:
            return batch(a, b, None)
        exists = jnp.arange(kinds.room, dtype=jnp.int32) < exist
        kind_a, kind_b = (type(self.contacts.shapes[k]) for k in (kinds.a, kinds.b))
        long, groups = takes_long(kind_a, kind_b), min(kinds.room // _GROUP, _GROUPS)
        if not loops_cost_nothing() or not (long or groups > 1):
            return batch(a, b, exists)
        # By a loop, which leaves out what does not exist: pair by pair, or many at once.
        size = 1 if long else -(-kinds.room // groups)
        operands = a, b, exists
        if long:
            fn = lambda first, other, there: one(first, other)  # noqa: E731
            operands = end(a, kinds.a), end(b, kinds.b), exists
        else:
            fn = batch
            rest = (0, groups * size - kinds.room)
            operands = [jnp.pad(x, rest).reshape(groups, size) for x in operands]
        nothing = jax.eval_shape(fn, *jax.tree.map(lambda x: x[0], tuple(operands)))
        absent = ContactPoints(*(jnp.zeros(x.shape, x.dtype) for x in nothing))
        absent = absent._replace(gap=jnp.full_like(absent.gap, ABSENT))

        def if_any(operands):
            there = operands[2] if long else operands[2][0]
            return jax.lax.cond(there, fn, lambda *_: absent, *operands)

        found = jax.lax.map(if_any, tuple(operands))
        if long:
            return found
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: kinds.room], found)
