"""Gaps and relative velocities of contacts, and their derivatives along the motion."""

import abc
import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from .._compiler import (
    contract,
    product,
    rows_at,
    sums_at,
)
from .._equations import equations
from .._inputs import conform
from .._linalg import picks, put_rows
from .._system import AbstractSystem
from .._types import Coordinates, Force, RealScalarLike, Velocity
from .identity import Known, Pairs, known_again
from .law import ContactLaw

Impulses = Float[Array, "contacts d"]

# Up to this many ends of contacts times bodies, J is an array.
_FEW = 256

# Contacts that were left out are missed if they overlap by more than this [m].
OVERFLOW = 1e-9

# Gap [m] given to a contact that does not exist in some pose.
ABSENT = 1e6


class AbstractContactJacobian(eqx.Module):
    """The Jacobian J of the contacts, as operations."""

    @property
    @abc.abstractmethod
    def contacts(self) -> int:
        """The number of contacts."""

    @abc.abstractmethod
    def rows(self, v: Velocity) -> Float[Array, "contacts d"]:
        """Return J v: relative velocities, the normal one first."""

    @abc.abstractmethod
    def reaction(self, lam: Impulses) -> Force:
        """Return J^T lam."""

    @abc.abstractmethod
    def matrix(self) -> Float[Array, "n nv"]:
        """Return J as a matrix, its rows ordered by contact."""

    @abc.abstractmethod
    def one(self, i: Int[Array, ""]) -> "AbstractContactJacobian":
        """Return the rows of contact i."""

    @abc.abstractmethod
    def scaled(self, factors: Impulses) -> "AbstractContactJacobian":
        """Return J with each row multiplied by its factor."""

    @abc.abstractmethod
    def whitened(self, W: Float[Array, "size size bodies"]) -> "AbstractContactJacobian":
        """Return J W^T, where W has a block for each body."""

    @abc.abstractmethod
    def squares(self) -> Float[Array, "contacts d d"]:
        """Return the diagonal blocks of J J^T."""

    @abc.abstractmethod
    def products(self) -> Float[Array, "contacts d contacts d"]:
        """Return J J^T."""

    @abc.abstractmethod
    def gram(self, W: Float[Array, "contacts d d"]) -> Float[Array, "n n"]:
        """Return J^T W J, where W has a block for each contact."""

    def where(self, acts: Bool[Array, " contacts"]) -> "AbstractContactJacobian":
        """Return J with zero rows for contacts that do not act."""
        return self.scaled(jnp.where(acts[:, None], 1.0, 0.0))


class DenseContactJacobian(AbstractContactJacobian):
    """J as an array."""

    J: Float[Array, "contacts d nv"]

    @property
    def contacts(self):
        return self.J.shape[0]

    def rows(self, v):
        return self.J @ v

    def reaction(self, lam):
        return jnp.einsum("cd,cdn->n", lam, self.J)

    def matrix(self):
        return self.J.reshape(-1, self.J.shape[2])

    def one(self, i):
        return DenseContactJacobian(self.J[i][None])

    def scaled(self, factors):
        return DenseContactJacobian(self.J * factors[:, :, None])

    def whitened(self, W):
        J = contract("cdsb,asb->cdab", self.J.reshape(*self.J.shape[:2], *W.shape[1:]), W)
        return DenseContactJacobian(J.reshape(self.J.shape))

    def squares(self):
        return contract("cin,cjn->cij", self.J, self.J)

    def products(self):
        J = self.matrix()
        return product(J, J.T).reshape(2 * self.J.shape[:2])

    def gram(self, W):
        J = self.matrix()
        left = contract("cij,cjn->cin", W, self.J)
        return product(J.T, left.reshape(J.shape))


class BodyContactJacobian(AbstractContactJacobian):
    """J of contacts that each act on a few bodies: blocks for each end, and the columns of the
    bodies in the table of velocities, `(size, bodies)`, in which the ground is the last column."""

    blocks: Float[Array, "ends contacts d size"]
    bodies: Int[Array, "ends contacts"]
    count: int = eqx.field(static=True)

    @property
    def contacts(self):
        return self.blocks.shape[1]

    @property
    def size(self) -> int:
        """Number of velocities of a body."""
        return self.blocks.shape[-1]

    @classmethod
    def of_few(
        cls, blocks: Array, bodies: np.ndarray | Array, count: int
    ) -> AbstractContactJacobian:
        """Return J, as an array if it is so small that products with it take no longer."""
        few = bodies.size * count <= _FEW
        here = picks(bodies, count, blocks.dtype) if few else None
        if here is None:
            return cls(blocks, jnp.asarray(bodies), count)
        J = functools.reduce(
            jnp.add,
            (
                block[..., None] * places[:, None, None]
                for block, places in zip(blocks, here, strict=True)
            ),
        )
        return DenseContactJacobian(J.reshape(*J.shape[:2], blocks.shape[-1] * count))

    def rows(self, v):
        table = jnp.pad(v.reshape(self.size, self.count), ((0, 0), (0, 1))).T
        at = rows_at(table, self.bodies.ravel()).reshape(*self.bodies.shape, self.size)
        # Written out: a sum of many contacts' ends would be a call of a library.
        ends = zip(self.blocks, at, strict=True)
        return functools.reduce(jnp.add, (contract("cdj,cj->cd", *end) for end in ends))

    def reaction(self, lam):
        wrenches = contract("ecdj,cd->ecj", self.blocks, lam)
        table = sums_at(wrenches.reshape(-1, self.size), self.bodies.ravel(), self.count + 1)
        return table[: self.count].T.ravel()

    def matrix(self):
        shape = self.blocks.shape[1:3]
        n = shape[0] * shape[1]
        basis = jnp.eye(n, dtype=self.blocks.dtype).reshape(n, *shape)
        return jax.vmap(self.reaction)(basis)

    def one(self, i):
        return BodyContactJacobian(
            self.blocks[:, i][:, None], self.bodies[:, i][:, None], self.count
        )

    def scaled(self, factors):
        return BodyContactJacobian(self.blocks * factors[None, :, :, None], self.bodies, self.count)

    def whitened(self, W):
        W = jnp.moveaxis(jnp.pad(W, ((0, 0), (0, 0), (0, 1))), -1, 0)[self.bodies]
        blocks = contract("ecds,ecas->ecda", self.blocks, W)
        return BodyContactJacobian(blocks, self.bodies, self.count)

    def squares(self):
        squares = (contract("cij,ckj->cik", end, end) for end in self.blocks)
        found = functools.reduce(jnp.add, squares)
        for e, f in self.pairs_of_ends:
            same = (self.bodies[e] == self.bodies[f]) & (self.bodies[e] < self.count)
            both = contract("cij,ckj->cik", self.blocks[e], self.blocks[f])
            both = jnp.where(same[:, None, None], both, 0.0)
            found = found + both + jnp.swapaxes(both, 1, 2)
        return found

    def products(self):
        # Contacts of the same bodies are coupled.
        count, d = self.blocks.shape[1:3]
        found = jnp.zeros((count, d, count, d), self.blocks.dtype)
        for e, f in self._pairs():
            one, other = self.bodies[e][:, None], self.bodies[f][None]
            same = (one == other) & (one < self.count)
            both = jnp.einsum("cij,klj->cikl", self.blocks[e], self.blocks[f])
            found = found + jnp.where(same[:, None, :, None], both, 0.0)
        return found

    @property
    def pairs_of_ends(self) -> list[tuple[int, int]]:
        """All pairs of different ends."""
        return list(itertools.combinations(range(self.blocks.shape[0]), 2))

    def gram(self, W):
        # In the order of the table of velocities: components first.
        pairs = self._pairs()
        left = jnp.sum(W[None, :, :, :, None] * self.blocks[:, :, None], axis=3)
        products = [
            jnp.sum(self.blocks[e, :, :, :, None] * left[f, :, :, None, :], axis=1)
            for e, f in pairs
        ]
        one = jnp.concatenate([self.bodies[e] for e, _ in pairs])
        other = jnp.concatenate([self.bodies[f] for _, f in pairs])
        K = jnp.zeros((self.count + 1, self.count + 1, self.size, self.size), W.dtype)
        K = K.at[one, other].add(jnp.concatenate(products))[: self.count, : self.count]
        return jnp.transpose(K, (2, 0, 3, 1)).reshape(*2 * (self.size * self.count,))

    def _pairs(self) -> list[tuple[int, ...]]:
        """All pairs of ends."""
        return list(itertools.product(range(self.blocks.shape[0]), repeat=2))


class ContactRows(eqx.Module):
    """Contacts at one (t, q): all of them, or those that are kept.

    - `gap`: g(q, t), shape `(contacts,)` [m].
    - `drift`: relative velocities of the contacts at v = 0, caused by surfaces that move in time,
      shape `(contacts, d)` [m/s]: the normal one, then each group.
    - `J`: the relative velocities are J v + `drift`.
    - `law`: coefficients. Those that differ between contacts have shape `(contacts,)`.
    - `tangents`: number of components of sliding friction, which follow the normal one.
    - `total`: number of all contacts; `kept`: indices of these among them, `None` if all.
    - `of_everything`: gaps of all contacts [m]; `None` if these are all.
    - `pairs`: of contacts without a fixed place the numbers of the pieces a and b and of the point;
      -1 for others and for empty places. `None` if all have fixed places.
    - `dry`: number of contacts at the end that are dry friction. Their gap is `ABSENT` and their
      normal row 0. Instead of a normal impulse they have a given one, the largest friction.
    - `lost`: whether pieces overlap for which there is no place; `reach` [m]: pieces with smaller
      gaps have a place; `None` likewise, and where the places are given.
    """

    gap: Float[Array, " contacts"]
    drift: Float[Array, "contacts d"]
    J: AbstractContactJacobian
    law: ContactLaw
    tangents: int = eqx.field(static=True)
    total: int = eqx.field(static=True)
    kept: Int[Array, " contacts"] | None = None
    of_everything: Float[Array, " total"] | None = None
    pairs: Pairs | None = None
    lost: Bool[Array, ""] | None = None
    reach: Float[Array, ""] | None = None
    dry: int = eqx.field(static=True, default=0)

    @property
    def is_dry(self) -> np.ndarray:
        """Which contacts are dry friction."""
        count = self.gap.shape[0]
        return np.arange(count) >= count - self.dry

    def with_dry(self, gaps: Float[Array, " gaps"]) -> Float[Array, " total"]:
        """Return the gaps of all contacts, dry friction included."""
        return jnp.pad(gaps, (0, self.dry), constant_values=ABSENT) if self.dry else gaps

    def known(self, before: Pairs | None) -> Known | None:
        """Return where these contacts were among the `before`, a contact with a fixed place at its
        own; `None` if all have fixed places."""
        if self.pairs is None or before is None:
            return None
        known = known_again(before, self.pairs)
        fixed = jnp.arange(before.shape[0], dtype=jnp.int32)
        named = (self.pairs[:, 0] < 0) & (before[:, 0] < 0)
        return known._replace(place=jnp.where(named, fixed, known.place))

    def overlaps_unlike(self, known: Known) -> Bool[Array, ""]:
        """Whether pieces overlap that have no fixed place and were not among the `known`. Another
        point of pieces that touch is no sign of a small budget."""
        assert self.pairs is not None
        new = (self.pairs[:, 0] >= 0) & ~known.seen
        return jnp.any(new & (self.gap < -OVERFLOW))

    def carried(
        self, x: Shaped[Array, "contacts *rest"], known: Known | None
    ) -> Shaped[Array, "contacts *rest"]:
        """Return values of the `known` contacts at the places that these contacts have now; 0 for
        new ones."""
        if known is None:
            return x
        place = known.place
        found = rows_at(x, jnp.maximum(place, 0))
        there = (place >= 0).reshape(-1, *(1,) * (x.ndim - 1))
        return jnp.where(there, found, jnp.zeros((), x.dtype))

    def of_kept(self, x: Shaped[Array, "total *rest"]) -> Shaped[Array, "contacts *rest"]:
        """Select the values of the kept contacts from the values of all."""
        return x if self.kept is None else x[self.kept]

    def of_all(self, x: Shaped[Array, "contacts *rest"]) -> Shaped[Array, "total *rest"]:
        """Return values of all contacts from the kept ones, 0 for the others."""
        if self.kept is None:
            return x
        return put_rows(x, self.kept, self.total)

    def velocities(self, v: Velocity) -> Float[Array, "contacts d"]:
        """Return the relative velocities at the velocities v."""
        return self.J.rows(v) + self.drift

    def after(self, displacement: Velocity) -> "ContactRows":
        """Return the contacts with the gaps after a small displacement."""
        gap = self.gap + self.J.rows(displacement)[:, 0]
        return eqx.tree_at(lambda c: c.gap, self, gap)

    def where(self, acts: Bool[Array, " contacts"]) -> "ContactRows":
        """Return the contacts with J = 0 and no drift where they do not act."""
        drift = jnp.where(acts[:, None], self.drift, 0.0)
        return eqx.tree_at(lambda c: (c.J, c.drift), self, (self.J.where(acts), drift))


@eqx.filter_jit
def gaps(system: AbstractSystem, t: RealScalarLike, q: Coordinates) -> Float[Array, " contacts"]:
    """Return g(q, t)."""
    return jnp.asarray(system.gap(q, jnp.asarray(t, q.dtype)), q.dtype)


@eqx.filter_jit
def _slips(system: AbstractSystem, t, q, v):
    """The slip of each contact, and then the rates of dry friction as slips along the first of the
    tangents, of which there must be one."""
    slip = jnp.asarray(system.slip(q, v, t), q.dtype)
    rates = jnp.asarray(system.friction_rates(q, v, t), q.dtype)
    if not rates.shape[0]:
        return slip
    tangents = max(slip.shape[1], 1)
    slip = jnp.pad(slip, ((0, 0), (0, tangents - slip.shape[1])))
    return jnp.concatenate([slip, jnp.pad(rates[:, None], ((0, 0), (0, tangents - 1)))])


def contact_rows(
    system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity
) -> ContactRows:
    """Return the contacts at (t, q). Of `v` only the shape is used."""
    t = jnp.asarray(t, q.dtype)
    known = equations(system).contacts(t, q)
    if known is not None:
        return known
    rest = jnp.zeros_like(v)

    def displaced(dp):
        return gaps(system, t, q + system.qdot(q, dp))

    gap, drift = jax.jvp(lambda t: gaps(system, t, q), (t,), (jnp.ones_like(t),))
    normal = jax.jacfwd(displaced)(rest)
    slip = _slips(system, t, q, rest)
    tangents = jax.jacfwd(lambda v: _slips(system, t, q, v))(rest)
    law, dry = contact_law(system), slip.shape[0] - gap.shape[0]
    law.check_sizes("ContactLaw", gap.shape[0])
    if dry:
        law = law.with_dry(gap.shape[0], dry)
        gap = jnp.concatenate([gap, jnp.full(dry, ABSENT, gap.dtype)])
        drift, normal = (jnp.pad(x, ((0, dry), *(x.ndim - 1) * ((0, 0),))) for x in (drift, normal))
    J = jnp.concatenate([normal[:, None], tangents], axis=1)
    drift = jnp.concatenate([drift[:, None], slip], axis=1)
    J, count = DenseContactJacobian(J), gap.shape[0]
    return ContactRows(gap, drift, J, law, tangents.shape[1], count, dry=dry)


def contact_law(system: AbstractSystem) -> ContactLaw:
    """Return the contact law of a user's system, by default rigid, plastic and frictionless.

    **Raises:** `ValueError` for moments, which need directions that such a system lacks."""
    law = ContactLaw() if system.contact_law is None else system.contact_law
    conform("`contact_law` of the system", law, ContactLaw)
    if law.torsional is not None or law.rolling is not None:
        raise ValueError(
            "`torsional` and `rolling` friction need shapes that touch, in a `Mechanism`; the "
            "`contact_law` of a system with its own `gap` has none."
        )
    return law
