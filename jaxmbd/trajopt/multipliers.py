"""Conditions on the motion as terms of the cost: the method of multipliers."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .motion import Path, conditions, cost
from .problem import Problem


class Multipliers(eqx.Module):
    r"""Weights of the conditions c = `final` and d = `path` in the augmented Lagrangian

    $$
    J + \lambda^T c + \tfrac{\rho}{2} |c|^2
      + \tfrac{1}{2\rho} \sum \big(\max(0, \mu + \rho d)^2 - \mu^2\big).
    $$

    In words: a penalty pulls the motion towards the conditions. What it misses by tells how hard
    to pull in the next round: lam <- lam + rho c, mu <- max(0, mu + rho d). So the conditions are
    met at a moderate penalty rho, and in the end lam and mu are their Lagrange multipliers.

    Reference: Nocedal and Wright (2006), Numerical Optimization, section 17.3 and (17.36).
    """

    final: Float[Array, "*batch final"]
    path: Float[Array, "*batch points path"]
    penalty: Float[Array, "*batch"]

    def of_final(self, c: Float[Array, " final"]) -> Float[Array, ""]:
        """The term of `final`."""
        return self.final @ c + self.penalty / 2 * (c @ c)

    def of_path(self, mu: Array, d: Array) -> Float[Array, ""]:
        """The term of `path` with these of the multipliers."""
        pulled = jnp.maximum(0.0, mu + self.penalty * d)
        return jnp.sum(pulled**2 - mu**2) / (2 * self.penalty)

    def updated(self, c: Array, d: Array, growth: Array) -> "Multipliers":
        """For the next round."""
        return Multipliers(
            self.final + self.penalty * c,
            jnp.maximum(0.0, self.path + self.penalty * d),
            self.penalty * growth,
        )


def first_multipliers(problem: Problem, path: Path, penalty) -> Multipliers:
    """Zeros."""
    c, d = conditions(problem, path)
    return Multipliers(jnp.zeros_like(c), jnp.zeros_like(d), jnp.asarray(penalty, c.dtype))


def augmented_cost(problem: Problem, multipliers: Multipliers, path: Path) -> Float[Array, ""]:
    """The augmented Lagrangian of a motion."""
    c, d = conditions(problem, path)
    terms = multipliers.of_final(c) + multipliers.of_path(multipliers.path, d)
    return cost(problem, path) + terms


def violation(problem: Problem, path: Path) -> Float[Array, ""]:
    """By how much the worst of the conditions is violated."""
    c, d = conditions(problem, path)
    return jnp.maximum(jnp.max(jnp.abs(c), initial=0.0), jnp.max(d, initial=0.0))
