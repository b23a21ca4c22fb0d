"""Optimisers of optax and optimistix behind one face: begin, step, and whether it is enough."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import optimistix as optx
from jaxtyping import Array, Bool, Float, PyTree


class AbstractSearch(eqx.Module):
    """One optimiser. Its functions are `fn(y, args) -> (value, aux)`."""

    @abc.abstractmethod
    def begin(self, fn: Callable, y: PyTree, args: PyTree) -> Any:
        """The state at the start."""

    @abc.abstractmethod
    def step(
        self, fn: Callable, y: PyTree, args: PyTree, state: Any, project: Callable
    ) -> tuple[PyTree, Any, Any, Bool[Array, ""]]:
        """(y, state, aux, whether it has converged)."""


class Minimiser(AbstractSearch):
    """A minimiser of optimistix, which judges by its own tolerances."""

    solver: optx.AbstractMinimiser

    def begin(self, fn, y, args):
        value, aux = eqx.filter_eval_shape(fn, y, args)
        return self.solver.init(fn, y, args, {}, value, aux, frozenset())

    def step(self, fn, y, args, state, project):
        y, state, aux = self.solver.step(fn, y, args, {}, state, frozenset())
        done, _ = self.solver.terminate(fn, y, args, {}, state, frozenset())
        return project(y), state, aux, done


class GradientTransformation(AbstractSearch):
    """An optimiser of optax. It has converged when a step along the gradient would change y by
    less than `tolerance`, bounds included."""

    optimiser: optax.GradientTransformation = eqx.field(static=True)
    tolerance: Float[Array, ""]

    def begin(self, fn, y, args):
        return self.optimiser.init(y)

    def step(self, fn, y, args, state, project):
        def value_of(y):
            return fn(y, args)[0]

        (value, aux), gradient = jax.value_and_grad(fn, has_aux=True)(y, args)
        steepest = project(jax.tree.map(lambda a, b: a - b, y, gradient))
        change = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b), initial=0.0), steepest, y)
        done = jax.tree.reduce(jnp.maximum, change) <= self.tolerance
        # Those with a line search of their own ask for more.
        optimiser = optax.with_extra_args_support(self.optimiser)
        updates, state = optimiser.update(
            gradient, state, y, value=value, grad=gradient, value_fn=value_of
        )
        return project(optax.apply_updates(y, updates)), state, aux, done


def as_search(optimiser: Any, tolerance: Array) -> AbstractSearch:
    """**Raises:** `ValueError` for what is no optimiser."""
    if isinstance(optimiser, optx.AbstractMinimiser):
        return Minimiser(optimiser)
    if isinstance(optimiser, optax.GradientTransformation):
        return GradientTransformation(optimiser, tolerance)
    raise ValueError(
        "Argument `optimiser` must be one of optax, such as `optax.adam(1e-2)`, or a minimiser of "
        f"optimistix, such as `optimistix.BFGS(rtol=1e-8, atol=1e-8)`, but is {optimiser!r}."
    )
