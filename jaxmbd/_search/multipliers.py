"""The method of multipliers: conditions as terms of the cost."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

# A round that leaves more than this share of the violation is followed by a larger penalty.
_ENOUGH, _GROWTH = 0.1, 10.0


class Multipliers(eqx.Module):
    r"""The weights of equations c = 0 and inequalities d <= 0 in the augmented Lagrangian

    $$
    J + \lambda^T c + \tfrac{\rho}{2} |c|^2
      + \tfrac{1}{2\rho} \sum \big(\max(0, \mu + \rho d)^2 - \mu^2\big).
    $$

    In words: a penalty pulls the solution towards the conditions. The remaining violation tells how
    hard to pull in the next round: lam <- lam + rho c, mu <- max(0, mu + rho d). So a moderate
    penalty rho suffices. In the end lam and mu are the Lagrange multipliers of the conditions.

    **Fields:** `equality`: lam; `inequality`: mu; `penalty`: rho.

    Reference: Nocedal and Wright (2006), Numerical Optimization, section 17.3 and (17.36).
    """

    equality: Float[Array, "..."]
    inequality: Float[Array, "..."]
    penalty: Float[Array, "*batch"]

    @classmethod
    def zeros(cls, c: Array, d: Array, penalty: Array) -> "Multipliers":
        """The weights of the first round."""
        return cls(jnp.zeros_like(c), jnp.zeros_like(d), jnp.asarray(penalty, c.dtype))

    def of_equations(self, c: Float[Array, " n"]) -> Float[Array, ""]:
        """The term of c = 0."""
        return self.equality @ c + self.penalty / 2 * (c @ c)

    def of_inequalities(self, mu: Array, d: Array) -> Float[Array, ""]:
        """The term of those inequalities d <= 0 that have the multipliers mu."""
        pull = jnp.maximum(0.0, mu + self.penalty * d)
        return jnp.sum(pull**2 - mu**2) / (2 * self.penalty)

    def residuals(self, c: Array) -> Array:
        """Residuals r such that |r|^2 / 2 is the term of c = 0 up to a constant."""
        root = jnp.sqrt(self.penalty)
        return root * c + self.equality / root

    def next_round(self, c: Array, d: Array, violation_before: Array) -> "Multipliers":
        """The weights of the next round, from the conditions at the end of this round and the
        largest violation at the end of the previous one."""
        little = largest_violation(c, d) > _ENOUGH * violation_before
        return Multipliers(
            self.equality + self.penalty * c,
            jnp.maximum(0.0, self.inequality + self.penalty * d),
            self.penalty * jnp.where(little, _GROWTH, 1.0),
        )


def largest_violation(c: Array, d: Array) -> Float[Array, ""]:
    """The largest violation of the conditions c = 0 and d <= 0."""
    return jnp.maximum(jnp.max(jnp.abs(c), initial=0.0), jnp.max(d, initial=0.0))
