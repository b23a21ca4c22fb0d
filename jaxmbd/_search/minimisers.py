"""Minimisers that need only gradients, and conditions as terms of what they minimise."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._results import RESULTS


def with_value(fn: Callable) -> Callable:
    """fn with its value as auxiliary output too, which its derivative then returns."""

    def both(x):
        value = fn(x)
        return value, value

    return both


# A minimiser of optimistix, or an optimiser of optax.
Optimiser: TypeAlias = optx.AbstractMinimiser | optax.GradientTransformation
# A solver of optimistix that takes one step at a time.
Solver: TypeAlias = optx.AbstractMinimiser | optx.AbstractLeastSquaresSolver


class Iterate(NamedTuple):
    """The state of a search: the unknowns, the state of the minimiser, the auxiliary output of the
    function before the last step, whether the search is over, and whether it was `sound`: all steps
    were finite, and the solver reports no failure."""

    y: PyTree
    state: PyTree
    aux: PyTree
    done: Bool[Array, ""]
    sound: Bool[Array, ""]

    @property
    def result(self) -> RESULTS:
        """The verdict on the search, whose flags are known."""
        if not self.sound:
            return RESULTS.stuck
        return RESULTS.successful if self.done else RESULTS.max_iterations_reached


def first_iterate(
    solver: Solver, fn: Callable, y: PyTree, args: PyTree, aux: PyTree = None
) -> Iterate:
    """The iterate at the start, for a function `fn(y, args) -> (value or residuals, aux)`. Without
    a first `aux` it is zero."""
    value, shapes = eqx.filter_eval_shape(fn, y, args)
    if aux is None:
        aux = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    state = solver.init(fn, y, args, {}, value, shapes, frozenset())
    # With Python numbers in the state, the second iteration would be compiled again.
    state = jax.tree.map(lambda x: jnp.asarray(x, x.dtype) if eqx.is_array(x) else x, state)
    return Iterate(y, state, aux, jnp.array(False), jnp.array(True))


def next_iterate(
    solver: Solver,
    fn: Callable,
    args: PyTree,
    here: Iterate,
    project: Callable[[PyTree], PyTree] = lambda y: y,
) -> Iterate:
    """The iterate after one step and its projection onto the bounds. Nothing changes if the search
    is over. A step that is not finite is not taken and ends the search."""
    rules = jax.numpy_dtype_promotion.value

    def asked(y, args):  # by the rules of the caller, as before, or it would be traced once more
        with jax.numpy_dtype_promotion(rules):
            return fn(y, args)

    # Optax counts with integers of two sizes.
    with jax.numpy_dtype_promotion("standard"):
        y, state, aux = solver.step(asked, here.y, args, {}, here.state, frozenset())
        done, verdict = solver.terminate(fn, y, args, {}, state, frozenset())
    y = project(y)
    each = jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), y)
    finite = here.done | jax.tree.reduce(jnp.logical_and, each, jnp.array(True))
    stays = here.done | ~finite
    select = lambda a, b: jnp.where(stays, a, b) if eqx.is_array(a) else b  # noqa: E731
    y, state, aux = jax.tree.map(select, here[:3], (y, state, aux))
    sound = here.done | (finite & (~done | (verdict == optx.RESULTS.successful)))
    return Iterate(y, state, aux, done | stays, here.sound & sound)


def as_minimiser(
    optimiser: Optimiser, tolerance: Array, project: Callable = lambda y: y, patience: int = 1
) -> optx.AbstractMinimiser:
    """Return a minimiser of optimistix as it is, and wrap an optimiser of optax. The wrapped one
    stops once, in `patience` iterations in a row, a step of minus the gradient, projected onto the
    bounds, would change no unknown by more than `tolerance`.

    **Raises:** `ValueError` for anything else."""
    if isinstance(optimiser, optx.AbstractMinimiser):
        return optimiser
    if isinstance(optimiser, optax.GradientTransformation):
        optimiser = _with_rest(optimiser, tolerance, project, patience)
        return _Optax(optimiser, rtol=0.0, atol=0.0)  # pyright: ignore[reportCallIssue]
    raise ValueError(
        "Argument `optimiser` must be one of optax, such as `optax.adam(1e-2)`, or a minimiser of "
        f"optimistix, such as `optimistix.BFGS(rtol=1e-8, atol=1e-8)`, but is {optimiser!r}."
    )


class _Optax(optx.OptaxMinimiser):
    """An optimiser of optax with its own stopping rule, as steps of `optax.adam` stay large."""

    def terminate(self, fn, y, args, options, state, tags):
        return state.opt_state.at_rest, optx.RESULTS.successful


class _Rest(NamedTuple):
    """The state of an optimiser, and for how many steps the gradient has been small."""

    inner: PyTree
    still: Int[Array, ""]
    at_rest: Bool[Array, ""]


def _with_rest(optimiser, tolerance, project, patience) -> optax.GradientTransformation:
    """The optimiser, with two additions: entries of the gradient that push against a bound are set
    to zero, and steps in a row at which the other entries are small are counted."""
    optimiser = optax.with_extra_args_support(optimiser)

    def init(params):
        return _Rest(optimiser.init(params), jnp.array(0), jnp.array(False))

    def update(updates, state, params=None, **extra):
        gradient, y = updates, params
        along = project(jax.tree.map(jnp.subtract, y, gradient))
        change = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b), initial=0.0), along, y)
        gradient = jax.tree.map(lambda g, a, b: jnp.where(a == b, 0.0, g), gradient, along, y)
        small = jax.tree.reduce(jnp.maximum, change) <= tolerance
        still = jnp.where(small, state.still + 1, 0)
        extra = {**extra, "grad": gradient}
        updates, inner = optimiser.update(gradient, state.inner, y, **extra)
        return updates, _Rest(inner, still, still >= patience)

    return optax.GradientTransformationExtraArgs(init, update)


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

    **Fields:** `equality`: lam; `inequality`: mu; `penalty`: rho; `violation`: the largest one at
    the end of the previous round, infinite in the first one.

    Reference: Nocedal and Wright (2006), Numerical Optimization, section 17.3 and (17.36).
    """

    equality: Float[Array, "..."]
    inequality: Float[Array, "..."]
    penalty: Float[Array, "*batch"]
    violation: Float[Array, "*batch"]

    @classmethod
    def zeros(cls, c: Array, d: Array, penalty: Array) -> "Multipliers":
        """The weights of the first round."""
        penalty = jnp.asarray(penalty, c.dtype)
        return cls(jnp.zeros_like(c), jnp.zeros_like(d), penalty, jnp.full_like(penalty, jnp.inf))

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

    def next_round(self, c: Array, d: Array) -> "Multipliers":
        """The weights of the next round, from the conditions at the end of this one."""
        violation = largest_violation(c, d)
        little = violation > _ENOUGH * self.violation
        return Multipliers(
            self.equality + self.penalty * c,
            jnp.maximum(0.0, self.inequality + self.penalty * d),
            self.penalty * jnp.where(little, _GROWTH, 1.0),
            violation,
        )


def largest_violation(c: Array, d: Array) -> Float[Array, ""]:
    """The largest violation of the conditions c = 0 and d <= 0."""
    return jnp.maximum(jnp.max(jnp.abs(c), initial=0.0), jnp.max(d, initial=0.0))
