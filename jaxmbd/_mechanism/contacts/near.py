"""Contacts between many pieces, of which only near ones are looked at."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import with_dtype
from ..._compiler import is_known, stacked, to_jax
from ..._contact import ContactLaw
from ..._inputs import Number, at_least, checked, positive
from ..body import GROUND
from ..collisions import Balls, bounding_ball, is_unbounded, point_count
from ..element import checked_name
from ..frames import dtype_of
from ..pose import Pose
from ..shapes import AbstractShape
from .contact import AbstractContact, Piece, body_name

# A piece with a ball of more than this many times the median radius is compared with all others.
_LARGE = 4.0


class PairKind(NamedTuple):
    """Pairs of pieces of two kinds of shapes (static): the kinds, the number of contact points of
    a pair, and for how many pairs there is room."""

    a: int
    b: int
    points: int
    room: int


class Resting(NamedTuple):
    """Pairs of an unbounded piece a and a bounded one, all of which are looked at (static)."""

    kinds: PairKind
    a: np.ndarray
    b: np.ndarray


class PairPlan(NamedTuple):
    """What is known before the motion: the numbers of the bounded pieces, as `balls`, with their
    pairs by kind; and the pairs of unbounded ones."""

    bounded: np.ndarray
    balls: Balls
    near: tuple[PairKind, ...]
    resting: tuple[Resting, ...]
    row: np.ndarray

    @property
    def points(self) -> int:
        """Number of places for contact points."""
        kinds = (*self.near, *(x.kinds for x in self.resting))
        return sum(kind.points * kind.room for kind in kinds)


class NearContacts(AbstractContact):
    """Contacts between all pieces on different bodies, of which only pairs that are near each other
    are looked at, in each step anew. `contacts_among(..., pair_budget=...)` makes it.

    Each bounded piece has a ball around it. Pairs of balls with gaps below `reach` are found by a
    grid, and the contact points of their shapes are evaluated. The half-spaces and height fields
    among the pieces are paired with all others. Pairs of shapes with gaps below `reach` are solved
    for, the nearest first, up to the `contact_budget` of the `Mechanism`. All points of a pair are
    solved for, or none.

    A contact has no fixed place in `Solution.contact_force`: its row of `Solution.contact_pairs`
    has the numbers of the pieces a and b, and of the point.

    **Fields:**

    - `name`; `law`, one for all pairs.
    - `body_names`: name of the body of each piece. `without`: pairs of bodies that do not touch.
    - `kinds`: number of the kind of each piece; `shapes`: of each kind, their dimensions with the
      pieces as leading axis; `poses`: of the pieces relative to their bodies, with a leading axis.
    - `pair_budget`: for how many near pairs of any two kinds of shapes there is room.
    - `reach` [m]: larger than the way by which two pieces approach each other in a step; `None` for
      a quarter of the radius of the smallest ball.
    - `large`: numbers of pieces that are compared with all others, since they would make the cells
      of the grid large.
    """

    name: str = eqx.field(static=True)
    body_names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[int, ...] = eqx.field(static=True)
    without: tuple[tuple[str, str], ...] = eqx.field(static=True)
    pair_budget: int = eqx.field(static=True)
    large: tuple[int, ...] = eqx.field(static=True)
    shapes: tuple[AbstractShape, ...]
    poses: Pose
    law: ContactLaw
    reach: Float[Array, ""] | None

    @checked
    def __init__(
        self,
        name: str,
        pieces: Sequence[Piece],
        *,
        pair_budget: Annotated[int, at_least(1)],
        without: Sequence[tuple[str, str]] = (),
        law: ContactLaw | None = None,
        reach: Annotated[Number, positive] | None = None,
    ):
        """**Arguments:** as of `contacts_among`, and a `name`.

        **Raises:** `ValueError` for no pieces, for pairs of kinds of shapes that `collide` does not
        support, and for a law with a coefficient for each contact."""
        self.name = checked_name("NearContacts", name)
        what = f'NearContacts "{name}"'
        if len(pieces) < 2:
            raise ValueError(f"{what} needs two pieces or more, but has {len(pieces)}.")
        given = [pose for _, _, *own in pieces for pose in own]
        dtype = dtype_of((body for body, *_ in pieces), given)
        self.body_names = tuple(map(body_name, pieces))
        self.without = tuple((a, b) for a, b in without)
        self.pair_budget = pair_budget
        shapes = with_dtype([shape for _, shape, *_ in pieces], dtype)
        of_kind: dict[Any, list[AbstractShape]] = {}
        numbers = []
        for shape in shapes:
            leaves, structure = jax.tree.flatten(shape)
            key = structure, tuple(x.shape for x in leaves)
            of_kind.setdefault(key, []).append(shape)
            numbers.append(list(of_kind).index(key))
        self.kinds = tuple(numbers)
        self.shapes = tuple(
            jax.tree.map(lambda *x: _leading(x), *members) for members in of_kind.values()
        )
        own = Pose.identity(dtype)
        poses = [next(iter(pose), own) for _, _, *pose in pieces]
        self.poses = Pose(*(_leading(x) for x in zip(*poses, strict=True)))
        law = ContactLaw() if law is None else law
        law.check_sizes(what, 1)
        self.law = with_dtype(law, dtype)
        self.reach = None if reach is None else to_jax(reach, dtype)
        self.large = _large(self)
        if self.plan.points == 0:
            raise ValueError(f"{what} has no two pieces on different bodies that may touch.")

    @property
    def bodies(self):
        return self.body_names

    @property
    def frames(self):
        if is_known(self.poses):
            x, p = map(np.asarray, self.poses)
        else:
            x, p = self.poses
        return tuple(Pose(*pose) for pose in zip(x, p, strict=True))

    @property
    def shapes_of_frames(self) -> tuple[AbstractShape, ...]:
        """The shape of each piece."""
        shapes, row = self.shapes, self.plan.row.tolist()
        if is_known(shapes):
            shapes = jax.tree.map(np.asarray, shapes)
        return tuple(_one_of(shapes[k], i) for k, i in zip(self.kinds, row, strict=True))

    @property
    def plan(self) -> PairPlan:
        """What is known before the motion."""
        kinds = tuple(
            jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shape)
            for shape in self.shapes
        )
        leaves, structure = jax.tree.flatten(kinds)
        arrays = tuple((x.shape, x.dtype) for x in leaves)
        return _plan(
            self.body_names,
            self.kinds,
            self.without,
            self.pair_budget,
            self.large,
            structure,
            arrays,
        )

    def overlap_of(self, a: int, b: int, gap: float) -> str:
        """Words for two pieces that overlap, with their gap."""
        bodies = " and ".join(f'"{self.body_names[i]}"' for i in (a, b))
        return f'NearContacts "{self.name}" of {bodies} has the gap {gap:.4g}'


def _one_of(shapes: AbstractShape, i: int) -> AbstractShape:
    return jax.tree.map(lambda x: x[i], shapes)


def _leading(column: Sequence[Any]) -> Array:
    """Arrays side by side along a new leading axis."""
    if is_known(tuple(column)):
        return to_jax(np.stack([np.asarray(x) for x in column]), column[0].dtype)
    return jnp.moveaxis(stacked(column), -1, 0)


def _large(contacts: NearContacts) -> tuple[int, ...]:
    """Numbers of pieces that are far larger than most; none if sizes are traced."""
    if not is_known(contacts.shapes):
        return ()
    size = np.zeros(len(contacts.kinds))
    for k, shape in enumerate(contacts.shapes):
        if not is_unbounded(shape):
            known = jax.tree.map(np.asarray, shape)
            size[np.equal(contacts.kinds, k)] = np.asarray(bounding_ball(known)[1])
    middle = np.median(size[size > 0]) if np.any(size > 0) else 0.0
    found = np.flatnonzero(size > _LARGE * middle)
    return tuple(int(i) for i in found) if 2 * found.size < size.size else ()


@functools.lru_cache(maxsize=64)
def _plan(names, kinds, without, budget, large, structure, arrays) -> PairPlan:
    shapes = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*x) for x in arrays])
    number = {name: i for i, name in enumerate(dict.fromkeys((GROUND, *names)))}
    body, kind = np.array([number[name] for name in names]), np.array(kinds)
    row = np.zeros(len(kind), int)
    for k in range(len(shapes)):
        row[kind == k] = np.arange(np.sum(kind == k))
    apart = {(number[a], number[b]) for a, b in without if a in number and b in number}
    apart = {(min(pair), max(pair)) for pair in apart if pair[0] != pair[1]}
    unbounded = np.array([is_unbounded(shape) for shape in shapes])
    of_body = np.stack(
        [np.bincount(body[kind == k], minlength=len(number)) for k in range(len(shapes))]
    )

    def allowed(k, m):
        """Number of pairs of these kinds."""
        x, y = of_body[k], of_body[m]
        if k == m:
            size = (x.sum() ** 2 - np.sum(x * x)) // 2
            return int(size - sum(x[a] * x[b] for a, b in apart))
        size = x.sum() * y.sum() - np.sum(x * y)
        return int(size - sum(x[a] * y[b] + x[b] * y[a] for a, b in apart))

    near, resting, group = [], [], np.zeros((len(shapes), len(shapes)), int)
    barred = {pair for a, b in apart for pair in ((a, b), (b, a))}
    for k in range(len(shapes)):
        for m in range(k, len(shapes)):
            if allowed(k, m) == 0:
                continue
            a, b = (m, k) if unbounded[m] else (k, m)
            points = point_count(shapes[a], shapes[b])
            if unbounded[a]:
                i, j = (
                    x.ravel()
                    for x in np.meshgrid(
                        *map(np.flatnonzero, (kind == a, kind == b)), indexing="ij"
                    )
                )
                keep = body[i] != body[j]
                keep &= np.array(
                    [(x, y) not in barred for x, y in zip(body[i], body[j], strict=True)]
                )
                i, j = i[keep], j[keep]
                resting.append(Resting(PairKind(a, b, points, len(i)), i, j))
            else:
                group[k, m] = group[m, k] = len(near)
                near.append(PairKind(a, b, points, min(budget, allowed(k, m))))
    bounded = np.flatnonzero(~unbounded[kind])
    # The ground and pieces of the first kinds come first.
    order = np.lexsort((bounded, body[bounded] != 0, kind[bounded]))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    balls = Balls(
        body[bounded],
        _at_either(apart, len(number)),
        kind[bounded],
        group,
        tuple(x.room for x in near),
        rank,
        tuple(int(i) for i in np.searchsorted(bounded, large)),
    )
    return PairPlan(bounded, balls, tuple(near), tuple(resting), row)


def _at_either(pairs: set[tuple[int, int]], count: int) -> np.ndarray:
    """For each of `count` bodies some of its partners, -1 for none: a pair stands at the body that
    has fewer. So the table is narrow also if the ground, say, touches no body at all."""
    degree = Counter(x for pair in pairs for x in pair)
    own: list[list[int]] = [[] for _ in range(count)]
    for a, b in sorted(pairs):
        x, other = (a, b) if (degree[a], len(own[a])) < (degree[b], len(own[b])) else (b, a)
        own[x].append(other)
    table = np.full((count, max(map(len, own), default=0)), -1)
    for i, others in enumerate(own):
        table[i, : len(others)] = others
    return table
