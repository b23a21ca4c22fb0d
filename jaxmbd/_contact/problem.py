"""The cone complementarity problem of one step, and what its solutions satisfy.

With contact impulses lam, of which each contact has a normal one n and groups t of others (of
friction, torsion, rolling), the relative velocities of the contacts after the step are

    z = S lam + b,    0 <= n  perp  z_n >= 0,    each t, out of mu n T, takes most power from z_t,

where S is the Delassus operator of the contacts, with the equality rows eliminated and the
compliance of contacts added, and b what z is without impulses, plus the bias of each contact. The
same in one equation, with the projection P on all sets and any positive rho for each contact,

    lam = P(lam - rho z),

the natural map, whose zeros are the solutions (Alart and Curnier 1991).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._linalg import small
from .delassus import AbstractDelassus
from .friction import AbstractFriction, Cone
from .rows import Impulses

# Slip velocity per impulse in directions that equality rows hold, both in units of the problem.
_CREEP = 1e-6


class Groups(eqx.Module):
    """What a contact has besides its normal impulse.

    **Fields:** `sizes` of the groups; `friction`: the set of each.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    friction: tuple[AbstractFriction, ...]

    @property
    def d(self) -> int:
        """Components of a contact."""
        return 1 + sum(self.sizes)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each group begins."""
        return tuple(1 + sum(self.sizes[:i]) for i in range(len(self.sizes)))

    def split(self, x: Float[Array, " d"]) -> list[Float[Array, " k"]]:
        """The groups of one contact."""
        return [
            x[start : start + size] for start, size in zip(self.starts, self.sizes, strict=True)
        ]

    def project(
        self, y: Float[Array, " d"], mu: Float[Array, " groups"], smoothing: Float[Array, ""] | None
    ) -> Float[Array, " d"]:
        """P of one contact. With smoothing s, n - z' and n + z' are so related that n z' = s^2: the
        central path of the complementarity."""
        n = _positive_part(y[0], smoothing)
        parts = [
            friction.project(t, mu[i] * n, smoothing)
            for i, (friction, t) in enumerate(zip(self.friction, self.split(y), strict=True))
        ]
        return jnp.concatenate([n[None], *parts])


class ContactProblem(eqx.Module):
    """S, b and mu in units in which each contact has a mean diagonal of S of 1: impulses are
    lam / scale, velocities z * scale [sqrt(J)].

    **Fields:**

    - `S`; `b`, shape `(contacts, d)`.
    - `mu`: coefficients of the groups, shape `(contacts, groups)`.
    - `scale`: shape `(contacts,)` [1/sqrt(kg)].
    - `smoothing`: shape `(contacts,)`, or `None`.
    - `held`: what S holds for the friction of each contact besides what it was made from, see
      `held_directions`, shape `(contacts, d - 1, d - 1)`.
    """

    S: AbstractDelassus
    b: Impulses
    mu: Float[Array, "contacts groups"]
    scale: Float[Array, " contacts"]
    smoothing: Float[Array, " contacts"] | None
    held: Float[Array, "contacts k k"]
    groups: Groups

    @classmethod
    def scaled(
        cls,
        S: AbstractDelassus,
        b: Impulses,
        mu: Float[Array, "contacts groups"],
        groups: Groups,
        smoothing: Float[Array, ""] | None,
    ) -> "ContactProblem":
        """From S [1/kg], b [m/s], and the velocity [m/s] by which to smooth, `None` for 0."""
        mean = jnp.trace(S.blocks(), axis1=1, axis2=2) / groups.d
        # A contact that moves nothing (two shapes on the ground) keeps its zeros.
        scale = 1 / jnp.sqrt(jnp.where(mean > 0, mean, 1.0))
        S = S.scaled(jnp.broadcast_to(scale[:, None], b.shape))
        held = jax.vmap(held_directions)(S.blocks()[:, 1:, 1:])
        S = S.plus(jnp.pad(held, ((0, 0), (1, 0), (1, 0))))
        smoothing = None if smoothing is None else smoothing * scale
        return cls(S, b * scale[:, None], mu, scale, smoothing, held, groups)

    def proximal(self, centre: Impulses, rho: Float[Array, ""]) -> "ContactProblem":
        """The problem with rho (lam - centre) added to z."""
        count, d = self.b.shape
        rho_of_all = rho * jnp.broadcast_to(jnp.eye(d, dtype=self.b.dtype), (count, d, d))
        S, b = self.S.plus(rho_of_all), self.b - rho * centre
        return eqx.tree_at(lambda p: (p.S, p.b), self, (S, b))

    def velocities(self, lam: Impulses) -> Impulses:
        """z of impulses, both scaled."""
        return self.S.times(lam) + self.b

    @property
    def to_change(self) -> Impulses:
        """The velocities without impulses that need some: those that approach, and slips."""
        return self.b.at[:, 0].min(0.0)

    def natural(self, lam: Impulses, z: Impulses) -> Impulses:
        """lam - P(lam - z), zero at solutions, from impulses and their velocities."""
        return lam - self.project(lam - z)

    def project(self, y: Impulses) -> Impulses:
        """P of all contacts."""
        return jax.vmap(self.groups.project)(y, self.mu, self.smoothing)

    def pressed(self, lam: Impulses) -> Bool[Array, " contacts"]:
        """Which contacts carry load, and not only rounding."""
        return lam[:, 0] > self.velocities(lam)[:, 0]

    def residual(self, lam: Impulses) -> Float[Array, ""]:
        """Largest entry of the natural map, as a velocity [m/s]: by so much some contact separates,
        penetrates or slips otherwise than the impulses tell."""
        z = self.velocities(lam)
        found = self.natural(lam, z)
        # Without smoothing the normal part is this, also of impulses of which z is below rounding.
        normal = jnp.minimum(lam[:, 0], z[:, 0])
        if self.smoothing is not None:
            normal = jnp.where(self.smoothing > 0, found[:, 0], normal)
        return self.norm(found.at[:, 0].set(normal))

    def norm(self, natural: Impulses) -> Float[Array, ""]:
        """The same from the natural map."""
        return jnp.max(jnp.abs(natural) / self.scale[:, None], initial=0.0)


def held_directions(S: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """A creep for directions of friction in which S vanishes, because equality rows hold them.

    There no friction is needed, but velocities that rounding leaves would call for all that there
    is, against slip that it cannot change, and leave none for other directions. With this added to
    S it stays small. Directions in which S is more than rounding have less than rounding of it."""
    k = S.shape[0]
    if k == 0:
        return S
    eye = jnp.eye(k, dtype=S.dtype)
    share, _ = small.inverse(eye + S / jnp.finfo(S.dtype).eps ** 0.75)
    share = small.product(share, share)
    return _CREEP * small.product(share, share)


class Residuals(NamedTuple):
    """How far impulses are from a solution, the largest of all contacts, each as a velocity [m/s].

    - `penetration`: approach that is left, max(-z_n, 0).
    - `complementarity`: |min(n, z_n)|, n in units of velocity.
    - `cone`: how far friction is outside of its set, in units of velocity.
    - `slip`: friction that is not against the slip, |t - P(t - z_t)|.
    """

    penetration: Float[Array, ""]
    complementarity: Float[Array, ""]
    cone: Float[Array, ""]
    slip: Float[Array, ""]


def residuals(problem: ContactProblem, lam: Impulses) -> Residuals:
    """Of scaled impulses."""
    z = problem.velocities(lam)
    groups, zero = problem.groups, jnp.zeros((), lam.dtype)

    def of_contact(lam, z, mu):
        n = jnp.maximum(lam[0], 0.0)
        cone, slip = zero, zero
        for i, (friction, t, v) in enumerate(
            zip(groups.friction, groups.split(lam), groups.split(z), strict=True)
        ):
            inside = friction.project(t, mu[i] * n, zero)
            taken = friction.project(t - v, mu[i] * n, zero)
            cone = jnp.maximum(cone, jnp.max(jnp.abs(t - inside)))
            slip = jnp.maximum(slip, jnp.max(jnp.abs(t - taken)))
        apart = jnp.abs(jnp.minimum(lam[0], z[0]))
        return Residuals(jnp.maximum(-z[0], 0.0), apart, cone, slip)

    each = jax.vmap(of_contact)(lam, z, problem.mu)
    return Residuals(*(jnp.max(x / problem.scale, initial=0.0) for x in each))


def frictionless() -> Groups:
    """Contacts with a normal impulse only."""
    return Groups((), ())


def coulomb(k: int, friction: AbstractFriction = Cone()) -> Groups:
    """Contacts with friction in k tangents."""
    return Groups((k,), (friction,)) if k else frictionless()


def _positive_part(x, smoothing):
    if smoothing is None:
        return jnp.maximum(x, 0.0)
    square = x * x + 4 * smoothing**2
    root = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    # Without smoothing exactly max(x, 0), with the derivative 1 or 0.
    return jnp.where(smoothing > 0, (x + root) / 2, jnp.maximum(x, 0.0))
