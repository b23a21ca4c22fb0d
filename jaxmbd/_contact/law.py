"""Parameters of contacts."""

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import held, refuted, to_jax
from .._inputs import checked, not_negative, positive, positive_or_infinite, within


class ContactLaw(eqx.Module):
    """The law of contacts. Each coefficient is one number, or an array with one for each contact.

    **Fields:**

    - `friction`: mu >= 0, the static coefficient if there is a kinetic one too; `None` for 0.
    - `kinetic`: coefficient while sliding, 0 <= kinetic <= friction; `None` if it is the same. At
      the slip speed s the coefficient is kinetic + (friction - kinetic) exp(-(s / `speed`)^2)
      (Stribeck). It is evaluated at the start of each step.
    - `speed` [m/s].
    - `restitution`: e in [0, 1], the ratio of the normal velocities after and before an impact.
    - `torsional`, `rolling`: [m], the moments about and across the normal that a unit of normal
      force allows, or `None`. Between shapes only.
    - `stiffness` [N/m] of a compliant contact, infinite by default; `damping` [N s/m], dissipation
      while compressed, 0 for rigid contacts. A compliant contact takes no `restitution`: stiffness
      and damping determine how it rebounds.
    """

    friction: Float[Array, "..."] | None
    kinetic: Float[Array, "..."] | None
    speed: Float[Array, "..."]
    restitution: Float[Array, "..."]
    torsional: Float[Array, "..."] | None
    rolling: Float[Array, "..."] | None
    stiffness: Float[Array, "..."] | None
    damping: Float[Array, "..."]

    @checked
    def __init__(
        self,
        friction: Annotated[Any, not_negative] = None,
        *,
        kinetic: Annotated[Any, not_negative] = None,
        speed: Annotated[Any, positive] = 1e-2,
        restitution: Annotated[Any, within(0, 1)] = 0.0,
        torsional: Annotated[Any, not_negative] = None,
        rolling: Annotated[Any, not_negative] = None,
        stiffness: Annotated[Any, positive_or_infinite] = None,
        damping: Annotated[Any, not_negative] = 0.0,
    ):
        """**Raises:** `ValueError` for values out of range, if they are known when tracing."""
        self.friction, self.kinetic, self.speed = map(_array, (friction, kinetic, speed))
        self.torsional, self.rolling = map(_array, (torsional, rolling))
        self.restitution, self.stiffness = map(_array, (restitution, stiffness))
        self.damping = _array(damping)
        if self.kinetic is not None and (
            self.friction is None or refuted(lambda k, f: k <= f, self.kinetic, self.friction)
        ):
            raise ValueError(
                f"`kinetic` of a contact must be at most `friction`, but they are {kinetic} and "
                f"{friction}."
            )
        K = np.inf if self.stiffness is None else self.stiffness
        if refuted(lambda K, e: np.isinf(K) | ~(e > 0), K, self.restitution):
            raise ValueError(
                f"A compliant contact has no `restitution`, but it is {restitution}: choose "
                "`stiffness` and `damping` for it instead."
            )
        if refuted(lambda K, d: np.isfinite(K) | ~(d > 0), K, self.damping):
            raise ValueError(
                f"`damping` of a contact, {damping}, needs a finite `stiffness`: a rigid contact "
                "dissipates by `restitution`."
            )

    def check_sizes(self, what: str, count: int) -> None:
        """**Raises:** `ValueError`, in which the contacts are called `what`, unless each
        coefficient is one number or has one for each of `count` contacts."""
        for name, x in vars(self).items():
            if x is not None and x.shape not in ((), (count,)):
                raise ValueError(
                    f"Argument `{name}` of {what} must be a number or have one value for each of "
                    f"its {count} contact points, but has shape {x.shape}."
                )

    @property
    def dense(self) -> "ContactLaw":
        """The law without `None`: what is missing has the value that changes nothing."""
        zero, inf = jnp.zeros_like(self.restitution), jnp.full_like(self.restitution, jnp.inf)
        friction = zero if self.friction is None else self.friction
        filled = [
            friction,
            friction if self.kinetic is None else self.kinetic,
            zero if self.torsional is None else self.torsional,
            zero if self.rolling is None else self.rolling,
            inf if self.stiffness is None else self.stiffness,
        ]
        return eqx.tree_at(
            lambda law: (law.friction, law.kinetic, law.torsional, law.rolling, law.stiffness),
            self,
            tuple(filled),
            is_leaf=lambda x: x is None,
        )

    def with_dry(self, count: int, dry: int) -> "ContactLaw":
        """Return the law of `count` contacts, followed by that of dry friction: the coefficient 1,
        since its normal impulse is the largest friction."""
        own = self.dense.only(torsional=False, rolling=False)
        other = ContactLaw(jnp.ones((), self.restitution.dtype)).dense
        other = other.only(torsional=False, rolling=False)

        def joined(x, y):
            return jnp.concatenate(
                [jnp.broadcast_to(x, (count,)), jnp.broadcast_to(y.astype(x.dtype), (dry,))]
            )

        return jax.tree.map(joined, own, other)

    def only(self, **given: bool) -> "ContactLaw":
        """Return the law without the coefficients whose argument is false."""
        dropped = [name for name, is_given in given.items() if not is_given]
        if not dropped:
            return self
        return eqx.tree_at(
            lambda law: [getattr(law, name) for name in dropped], self, [None] * len(dropped)
        )

    def coefficient(self, slip: Float[Array, " contacts"]) -> Float[Array, " contacts"]:
        """Return the coefficient of sliding friction at these slip speeds [m/s]."""
        if self.friction is None:
            return jnp.zeros_like(slip)
        if self.kinetic is None:
            return jnp.broadcast_to(self.friction, slip.shape)
        share = jnp.exp(-((slip / self.speed) ** 2))
        return self.kinetic + (self.friction - self.kinetic) * share


def _array(x: Any) -> Any:
    if x is None:
        return None
    x = held(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else to_jax(x, float)
