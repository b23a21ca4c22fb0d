"""The central path of contacts with friction, along which an interior-point method goes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._compiler import contract
from ..delassus import Blocks
from ..problem import ContactProblem, Groups
from ..rows import Impulses
from . import second_order as cone

_TO_BOUNDARY = 0.99

# Normal velocities are clipped at this multiple of the largest that impulses have to change.
_FAR = 10.0

# One point of each cone, for all kinds of cones, whose numbers and sizes differ.
Points = list[Float[Array, "contacts ..."]]


class _Cone(NamedTuple):
    """Rows A of one kind in each contact. They form one cone, or one cone each (`facets`)."""

    A: np.ndarray
    facets: bool

    def of(self, x: Impulses) -> Float[Array, "contacts cones k"]:
        """Return A x."""
        s = contract("sd,cd->cs", jnp.asarray(self.A, x.dtype), x)
        return s[:, :, None] if self.facets else s[:, None, :]

    def back(self, w: Float[Array, "contacts cones k"]) -> Impulses:
        """Return A^T w."""
        w = w.reshape(w.shape[0], -1)
        return contract("cs,sd->cd", w, jnp.asarray(self.A, w.dtype))

    def curvature(self, W: Float[Array, "contacts cones k k"]) -> Blocks:
        """Return A^T W W A."""
        A = jnp.asarray(self.A, W.dtype)
        A = A[:, None, :] if self.facets else A[None]
        WA = contract("cnij,njd->cnid", W, A)
        WA = WA.reshape(W.shape[0], -1, self.A.shape[1])
        return contract("cni,cnj->cij", WA, WA)


def _cones(groups: Groups) -> list[_Cone]:
    if not groups.sizes:
        return [_Cone(np.eye(1), False)]
    found = []
    for friction, start, size in zip(groups.friction, groups.starts, groups.sizes, strict=True):
        facets = friction.facets(size)
        rows = np.eye(1 + size) if facets is None else facets
        A = np.zeros((len(rows), groups.d))
        A[:, 0], A[:, start : start + size] = rows[:, 0], rows[:, 1:]
        found.append(_Cone(A, facets is not None))
    return found


class Here(NamedTuple):
    """What directions from one point need: the scaling W and v of all cones, A x, the mean of
    w.A x, and by how much the first two equations fail."""

    scalings: list[tuple[Float[Array, "contacts ..."], Float[Array, "contacts ..."]]]
    s: Points
    mean: Float[Array, ""]
    missing: Impulses


class Direction(NamedTuple):
    """The right side of the third equations, v o (W A dx + W^-1 dw) = `product`; the change of w,
    and how far both lead without leaving a cone."""

    product: Points
    dw: Points
    reach: Float[Array, ""]


class CentralPath(NamedTuple):
    """The equations

        z_n + shift = sum A_n^T w,    z_t = sum A_t^T w,    A x in K,  w in K,  w.A x = 0,

    of lam = stretch x, with the cones K of all contacts. With a shift, the power that friction
    takes from the slip per unit normal force, they are Coulomb's law itself and not its convex
    relaxation, in which sliding contacts lift off (De Saxce and Feng 1998). A x is kept exact. The
    first two equations hold in the limit.

    x_n = lam_n and x_t = lam_t / mu, so that all cones have the same shape. `far`: what is added to
    z, so that contacts far from closing do not spoil the scale; `size` of the velocities that
    impulses have to change."""

    groups: Groups
    stretch: Impulses
    far: Impulses
    size: Float[Array, ""]

    @classmethod
    def of(cls, problem: ContactProblem) -> "CentralPath":
        """Return the path of a problem."""
        groups, count, dtype = problem.groups, problem.b.shape[0], problem.b.dtype
        # A contact without friction has a cone too, so narrow that it takes part in nothing.
        narrow = jnp.finfo(dtype).eps
        wide = [
            jnp.broadcast_to(jnp.maximum(problem.mu[:, i : i + 1], narrow), (count, size))
            for i, size in enumerate(groups.sizes)
        ]
        size = jnp.max(jnp.abs(problem.to_change)) + jnp.finfo(dtype).tiny ** 0.5
        far = jnp.minimum(_FAR * size - problem.b[:, 0], 0.0)
        far = jnp.zeros_like(problem.b).at[:, 0].set(far)
        return cls(groups, jnp.concatenate([jnp.ones((count, 1), dtype), *wide], 1), far, size)

    @property
    def cones(self) -> list[_Cone]:
        """The cones of all contacts, by kinds."""
        return _cones(self.groups)

    def start(self) -> tuple[Impulses, Points]:
        """Return impulses and w in the middle of their cones."""
        lam = jnp.zeros_like(self.stretch).at[:, 0].set(self.size)
        return lam, [self.size * cone.unit(A.of(lam)) for A in self.cones]

    def equations(
        self, lam: Impulses, z: Impulses, w: Points
    ) -> tuple[Blocks, Blocks, Impulses, Here, Points]:
        """Return C, P and r of the predictor's direction, (C + P S) dlam = r; what else it needs;
        and the right side of its third equations."""
        x, z = lam / self.stretch, self.stretch * (z + self.far)
        shift, slope = jax.vmap(jax.value_and_grad(self._power))(z)
        s = [A.of(x) for A in self.cones]
        number = sum(a.shape[0] * a.shape[1] for a in s)
        mean = jnp.asarray(sum(jnp.sum(a * c) for a, c in zip(s, w, strict=True))) / number
        # Near zero slip its direction and the slope are noise, which this factor suppresses.
        slipping = shift / jnp.sqrt(shift**2 + 1e-2 * mean)
        force = sum(A.back(y) for A, y in zip(self.cones, w, strict=True))
        scalings = [cone.scaling(a, c) for a, c in zip(s, w, strict=True)]
        here = Here(scalings, s, mean, z.at[:, 0].add(shift) - force)
        curvatures = [A.curvature(W) for A, (W, _) in zip(self.cones, scalings, strict=True)]
        # The equations are own dx + (1 + e_n slope^T) S dx = ...: lost power counts as velocity.
        eye = jnp.eye(lam.shape[1], dtype=lam.dtype)
        along = eye[None, 0, :, None] * (slope * slipping[:, None])[:, None, :]
        C = sum(curvatures) / self.stretch[:, None]
        P = (eye[None] + along) * self.stretch[:, None]
        product = [-cone.product(v, v) for _, v in scalings]
        return C, P, self._right(here, product), here, product

    def direction(
        self, here: Here, w: Points, d: Impulses, product: Points
    ) -> tuple[Impulses, Direction]:
        """Return r of the corrector, should d have been the predictor; and the rest of the
        direction d."""
        ds = [A.of(d / self.stretch) for A in self.cones]
        t = self._quotients(here, product)
        dw, corrected = [], []
        for (W, _), y, e in zip(here.scalings, t, ds, strict=True):
            dw.append(cone.apply(W, y - cone.apply(W, e)))
        ends = [
            cone.longest_step(jnp.stack(point), jnp.stack(change))
            for point, change in zip(
                zip(here.s, w, strict=True), zip(ds, dw, strict=True), strict=True
            )
        ]
        reach = jnp.min(jnp.stack([jnp.min(end) for end in ends]))
        centre = (1 - jnp.minimum(reach, 1.0)) ** 3 * here.mean
        for (W, v), y, e in zip(here.scalings, t, ds, strict=True):
            We = cone.apply(W, e)
            other = cone.product(v, v) + cone.product(We, y - We)
            corrected.append(centre * cone.unit(v) - other)
        return self._right(here, corrected), Direction(corrected, dw, reach)

    def moved(
        self, lam: Impulses, w: Points, d: Impulses, to: Direction
    ) -> tuple[Impulses, Points, Bool[Array, ""]]:
        """Return the next point, and whether there is one."""
        length = jnp.minimum(_TO_BOUNDARY * to.reach, 1.0)
        good = jnp.isfinite(length) & jnp.all(jnp.isfinite(d))
        good = good & jnp.all(jnp.stack([jnp.all(jnp.isfinite(e)) for e in to.dw]))
        lam = jnp.where(good, lam + length * d, lam)
        w = [jnp.where(good, c + length * e, c) for c, e in zip(w, to.dw, strict=True)]
        return lam, w, good

    def _quotients(self, here: Here, product: Points) -> Points:
        return [cone.quotient(v, y) for (_, v), y in zip(here.scalings, product, strict=True)]

    def _right(self, here: Here, product: Points) -> Impulses:
        """Return r for a right side of the third equations."""
        t = self._quotients(here, product)
        Wt = [cone.apply(W, y) for (W, _), y in zip(here.scalings, t, strict=True)]
        return sum(A.back(y) for A, y in zip(self.cones, Wt, strict=True)) - here.missing

    def _power(self, z: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the power that friction takes per unit normal force. For a polygon it has no
        derivative: its corner may change in each step, and steps would be erratic."""
        lost = jnp.zeros((), z.dtype)
        for friction, t in zip(self.groups.friction, self.groups.split(z), strict=True):
            smooth = friction.facets(t.shape[0]) is None
            lost = lost + friction.support(t if smooth else jax.lax.stop_gradient(t))
        return lost
