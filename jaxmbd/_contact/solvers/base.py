"""The interface of contact solvers."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..._extensible import Extensible
from ..problem import ContactProblem
from ..rows import Impulses

# Rounding error of z = S lam + b, in units of the machine precision times the sum of the sizes of
# its terms.
_ROUNDING = 16


class Solved(NamedTuple):
    """Scaled impulses, their residual [m/s], whether it is within the tolerance, the number of
    iterations, and the impulses that are `expected` of the next step: the guess for it."""

    impulses: Impulses
    residual: Float[Array, ""]
    accepted: Bool[Array, ""]
    iterations: Int[Array, ""]
    expected: Impulses


class AbstractContactSolver(Extensible):
    """Solves a `ContactProblem`. Solvers are not differentiated: `implicit.py` has one derivative
    rule for all of them, at the solution.

    **Fields:** `tolerance` of the residual [m/s], to which the rounding error is added.
    """

    tolerance: eqx.AbstractVar[float]

    @abc.abstractmethod
    def solve(self, problem: ContactProblem, guess: Impulses) -> Solved:
        """Solve the problem from a guess (warm start), both scaled."""

    def solved(self, problem: ContactProblem, lam: Impulses, iterations: Int[Array, ""]) -> Solved:
        """Return the impulses with their verdict."""
        residual = problem.residual(lam)
        return Solved(lam, residual, residual <= self.bound(problem, lam), iterations, lam)

    def bound(self, problem: ContactProblem, lam: Impulses) -> Float[Array, ""]:
        """Return the largest residual [m/s] that is accepted."""
        return self.tolerance + rounding(problem, lam)


def rounding(problem: ContactProblem, lam: Impulses) -> Float[Array, ""]:
    """Return the residual [m/s] that rounding alone may cause."""
    eps = jnp.finfo(lam.dtype).eps
    terms = problem.S.magnitude(lam) + jnp.abs(problem.b)
    terms = _ROUNDING * eps * terms
    # A contact that is clearly open has exactly no impulse, however large its bias.
    open_ = problem.velocities(lam)[:, 0] - lam[:, 0] > terms[:, 0]
    found = problem.norm(jnp.where(open_[:, None], 0.0, terms))
    # Contacts that contradict each other make impulses grow without limit. Such impulses would
    # excuse any residual.
    return jnp.minimum(found, eps**0.5 * problem.norm(problem.to_change))
