"""Impacts: the velocities after them, from those before, and when they act."""

import abc
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._extensible import Extensible
from .._inputs import at_least, checked
from .rows import Impulses


class AbstractImpactLaw(Extensible):
    """How contacts separate after an impact. Each contact has the restitution e of its `ContactLaw`
    and the normal velocity u <= 0 [m/s] with which it strikes. Both are 0 for other contacts."""

    @abc.abstractmethod
    def separation(
        self, restitution: Float[Array, " contacts"], u: Float[Array, " contacts"]
    ) -> Float[Array, " contacts"]:
        """Return the least normal velocities [m/s] after the first contact problem."""

    @abc.abstractmethod
    def expansion(
        self, restitution: Float[Array, " contacts"], compression: Impulses
    ) -> Impulses | None:
        """Return the impulses [N s] of a second phase, from the impulses of the first. Another
        contact problem then stops contacts from approaching again. `None` for a law without a
        second phase."""


class Newton(AbstractImpactLaw):
    """The velocity of separation is e times the velocity of approach,

        0 <= lam_n  perp  u(after) + e u(before) >= 0.

    The law may add energy where several contacts, or friction, act at once.

    Reference: Newton (1687), Principia, scholium to the laws of motion; for several contacts
    Moreau (1988), Unilateral contact and dry friction in finite freedom dynamics.
    """

    def separation(self, restitution, u):
        return -(restitution * u)

    def expansion(self, restitution, compression):
        del restitution, compression
        return None


class Poisson(AbstractImpactLaw):
    """Compression ends all approach. The impulse of expansion is e times as large,

        0 <= lam_n  perp  u(compressed) >= 0,    lam(expansion) = e lam + more,
        0 <= more_n  perp  u(after) >= 0,

    friction included. So the impulses decide which contacts separate.

    Reference: Glocker and Pfeiffer (1995), Multiple impacts with friction in rigid multibody
    systems, Nonlinear Dynamics 7; Anitescu and Potra (1997), Formulating dynamic multi-rigid-body
    contact problems with friction as solvable linear complementarity problems.
    """

    def separation(self, restitution, u):
        del restitution
        return jnp.zeros_like(u)

    def expansion(self, restitution, compression):
        return restitution[:, None] * compression


class AtStepStart(eqx.Module):
    """An impact acts at the start of the step in which its gap would close. Each step solves one
    contact problem for all. First order, and the cheapest choice."""


@checked
class Located(eqx.Module):
    """Impacts act at the instant at which gaps close within a step. Until then the motion is a
    parabola in the coordinates, of second order. So bounces are accurate, and derivatives with
    respect to heights and restitution too. Equality rows hold along the motion, and to rounding at
    the ends of steps, as in RATTLE. This costs a second factorisation a step. Rigid contacts only.

    **Arguments:**

    - `max_per_step`: the largest number of impacts that are located within a step. After these
      impacts and the flow to the next one, the step ends as with `AtStepStart`. The entry
      `"unlocated_steps"` of `Solution.stats` counts such steps.
    - `strict`: whether such a step ends the motion with `RESULTS.impacts_unlocated`. A ball that
      comes to rest has infinitely many impacts, so it needs `False`, the default.

    Reference: Andersen (1983), Rattle: a velocity version of the Shake algorithm for molecular
    dynamics calculations, Journal of Computational Physics 52.
    """

    max_per_step: Annotated[int, at_least(1)] = eqx.field(static=True)
    strict: bool = eqx.field(static=True, default=False)
