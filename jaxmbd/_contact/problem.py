"""The cone complementarity problem of one step.

Each contact has a normal impulse n and groups t of further impulses (friction, torsion, rolling).
Together they are lam. The relative velocities of the contacts after the step are

    z = S lam + b,    0 <= n  perp  z_n >= 0,    each t in mu n T takes most power from z_t,

where S is the Delassus operator of the contacts, with equality rows eliminated and the compliance
of contacts added, and b is z without impulses plus the bias of each contact. With the projection P
on all sets and any positive rho for each contact, one equation says the same,

    lam = P(lam - rho z).

The zeros of the natural map lam - P(lam - rho z) are the solutions (Alart and Curnier 1991).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import inverse, product
from .delassus import AbstractDelassus
from .friction import AbstractFriction
from .rows import Impulses

# Slip velocity per impulse in directions that equality rows fix, both in units of the problem.
_CREEP = 1e-6


class Groups(eqx.Module):
    """The impulses of a contact besides the normal one.

    **Fields:** `sizes` of the groups; `friction`: the set of each group.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    friction: tuple[AbstractFriction, ...]

    @property
    def d(self) -> int:
        """The number of impulses of a contact."""
        return 1 + sum(self.sizes)

    @property
    def starts(self) -> tuple[int, ...]:
        """The index at which each group begins."""
        return tuple(1 + sum(self.sizes[:i]) for i in range(len(self.sizes)))

    def split(self, x: Float[Array, " d"]) -> list[Float[Array, " k"]]:
        """Return the groups of one contact."""
        return [
            x[start : start + size] for start, size in zip(self.starts, self.sizes, strict=True)
        ]

    def project(
        self, y: Float[Array, " d"], mu: Float[Array, " groups"], smoothing: Float[Array, ""] | None
    ) -> Float[Array, " d"]:
        """Apply P to one contact. With smoothing s the argument is n - z' with n z' = s^2, the
        central path of the complementarity condition."""
        n = _positive_part(y[0], smoothing)
        parts = [
            friction.project(t, mu[i] * n, smoothing)
            for i, (friction, t) in enumerate(zip(self.friction, self.split(y), strict=True))
        ]
        return jnp.concatenate([n[None], *parts])


class ContactProblem(eqx.Module):
    """S, b and mu in units in which the diagonal of S has the mean 1 for each contact. Impulses are
    lam / scale, velocities z * scale [sqrt(J)].

    **Fields:**

    - `S`; `b`, shape `(contacts, d)`.
    - `mu`: coefficients of the groups, shape `(contacts, groups)`.
    - `scale`: shape `(contacts,)` [1/sqrt(kg)].
    - `smoothing`: shape `(contacts,)`, or `None`.
    - `held`: compliance added to S in friction directions that equality rows fix, see
      `held_directions`, shape `(contacts, d - 1, d - 1)`.
    - `passing`: the part of b that the next step does not have if the contacts of this one hold;
      `None` where no step follows.
    """

    S: AbstractDelassus
    b: Impulses
    mu: Float[Array, "contacts groups"]
    scale: Float[Array, " contacts"]
    smoothing: Float[Array, " contacts"] | None
    held: Float[Array, "contacts k k"]
    groups: Groups
    passing: Impulses | None = None

    @classmethod
    def scaled(
        cls,
        S: AbstractDelassus,
        b: Impulses,
        mu: Float[Array, "contacts groups"],
        groups: Groups,
        smoothing: Float[Array, ""] | None,
        passing: Impulses | None = None,
    ) -> "ContactProblem":
        """Build it from S [1/kg], b and `passing` [m/s], and the velocity [m/s] by which to smooth,
        or `None`."""
        mean = jnp.trace(S.blocks(), axis1=1, axis2=2) / groups.d
        # A contact that can move nothing (two shapes on the ground) has S = 0.
        scale = 1 / jnp.sqrt(jnp.where(mean > 0, mean, 1.0))
        S = S.scaled(jnp.broadcast_to(scale[:, None], b.shape))
        held = jax.vmap(held_directions)(S.blocks()[:, 1:, 1:])
        S = S.plus(jnp.pad(held, ((0, 0), (1, 0), (1, 0))))
        smoothing = None if smoothing is None else smoothing * scale
        passing = None if passing is None else passing * scale[:, None]
        return cls(S, b * scale[:, None], mu, scale, smoothing, held, groups, passing)

    def velocities(self, lam: Impulses) -> Impulses:
        """Return z of the impulses, both scaled."""
        return self.S.times(lam) + self.b

    @property
    def to_change(self) -> Impulses:
        """The velocities without impulses, as far as they require impulses: approach and slip."""
        return self.b.at[:, 0].min(0.0)

    def natural(self, lam: Impulses, z: Impulses) -> Impulses:
        """Return lam - P(lam - z) from impulses and their velocities; zero at solutions."""
        found = lam - jax.vmap(self.groups.project)(lam - z, self.mu, self.smoothing)
        # Without smoothing the normal part is this minimum, which is exact also where z is below
        # the rounding of the impulses.
        normal = jnp.minimum(lam[:, 0], z[:, 0])
        if self.smoothing is not None:
            normal = jnp.where(self.smoothing > 0, found[:, 0], normal)
        return found.at[:, 0].set(normal)

    def pressed(self, lam: Impulses) -> Bool[Array, " contacts"]:
        """Return which contacts carry load beyond rounding."""
        return lam[:, 0] > self.velocities(lam)[:, 0]

    def residual(self, lam: Impulses) -> Float[Array, ""]:
        """Return the largest entry of the natural map, as a velocity [m/s]. This is how far
        some contact separates, penetrates or slips, contrary to its impulses."""
        return self.norm(self.natural(lam, self.velocities(lam)))

    def norm(self, natural: Impulses) -> Float[Array, ""]:
        """Return `residual` from the natural map."""
        return jnp.max(jnp.abs(natural) / self.scale[:, None], initial=0.0)


def held_directions(S: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """A compliance for friction directions in which S vanishes, because equality rows fix them.

    These directions need no friction. But rounding errors of the velocities would call for all the
    friction available, against slip that it cannot change, and leave none for other directions. The
    compliance keeps this friction small. Where S exceeds rounding, it is below rounding."""
    k = S.shape[0]
    if k == 0:
        return S
    eye = jnp.eye(k, dtype=S.dtype)
    share, _ = inverse(eye + S / jnp.finfo(S.dtype).eps ** 0.75)
    share = product(share, share)
    return _CREEP * product(share, share)


def _positive_part(x, smoothing):
    # A contact without load that does not move is open, in its derivative too: half of each side,
    # as `jnp.maximum` has it, would be the derivative on neither.
    positive = jnp.where(x <= 0, 0.0, x)
    if smoothing is None:
        return positive
    square = x * x + 4 * smoothing**2
    root = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    return jnp.where(smoothing > 0, (x + root) / 2, positive)
