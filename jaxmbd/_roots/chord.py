"""Newton's method with few evaluations of the Jacobian, for the stages of implicit schemes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optimistix as optx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from .._compiler import apply, general_inverse
from .._types import RealScalarLike

# If corrections shrink by less than this factor, a new Jacobian is worth its evaluation.
_SLOW = 0.5
# Corrections that no longer shrink and are below this multiple of the goal are rounding.
_ROUNDING = 100.0


class _State(NamedTuple):
    """The end of the corrections with the last Jacobian: the `size` of the last correction, and an
    estimate of the remaining `error`. `started`: whether there was a Jacobian. `repeated`: whether
    there were two or more."""

    started: Bool[Array, ""]
    repeated: Bool[Array, ""]
    size: Float[Array, ""]
    error: Float[Array, ""]


class Chord(optx.AbstractRootFinder):
    r"""Corrections with the same Jacobian as long as each is at most half as large as the one
    before. Then the Jacobian is evaluated again (Shamanskii's method). The Jacobian of a
    constrained motion takes as long as a hundred evaluations of the motion, and within a step it
    hardly changes.

    The size of a correction d of y is max |d| / (atol + rtol max |y|), the largest over the leaves
    of y. The search ends when the estimated error is below `goal`. Rounding of a stiff force may be
    larger than the goal, so the search also ends when corrections of a size below 1 no longer
    shrink.

    Reference: Kelley (1995), Iterative methods for linear and nonlinear equations, section 5.4.
    """

    rtol: RealScalarLike
    atol: RealScalarLike
    goal: float
    norm: Callable[[PyTree], Any] = optx.max_norm

    def init(self, fn, y, args, options, f_struct, aux_struct, tags) -> _State:
        # The Jacobian is not evaluated here, although diffrax's Runge-Kutta methods would use it
        # for all their stages: they would compile it in three places.
        del fn, args, options, f_struct, aux_struct, tags
        no, infinite = jnp.array(False), jnp.full((), jnp.inf, ravel_pytree(y)[0].dtype)
        return _State(no, no, infinite, infinite)

    def step(self, fn, y, args, options, state: _State, tags):
        """All corrections with the Jacobian at y."""
        del options, tags
        flat, restore = ravel_pytree(y)

        def residual(x):
            return ravel_pytree(fn(restore(x), args)[0])[0]

        inverse, _ = general_inverse(jax.jacfwd(residual)(flat))

        def going(carry):
            *_, error, rate = carry
            return (error > self.goal) & (rate <= _SLOW)

        def corrected(carry):
            x, before, _, _ = carry
            d = apply(inverse, residual(x))
            x = x - d
            size = self._size(restore(d), restore(x))
            # The first correction has no rate.
            first = jnp.isinf(before)
            rate = jnp.where(first, 0.0, size / before)
            error = jnp.where(first, size, size * rate / (1 - jnp.minimum(rate, _SLOW)))
            return x, size, error, rate

        infinite = jnp.full_like(state.size, jnp.inf)
        start = (flat, infinite, infinite, jnp.zeros_like(infinite))
        x, size, error, _ = jax.lax.while_loop(going, corrected, start)
        return restore(x), _State(jnp.array(True), state.started, size, error), None

    def terminate(self, fn, y, args, options, state: _State, tags):
        del fn, y, args, options, tags
        # With the first Jacobian the tolerance for rounding is smaller, since this Jacobian may be
        # the reason that corrections no longer shrink.
        rounding = jnp.where(state.repeated, 1.0, _ROUNDING * self.goal)
        solved = (state.error <= self.goal) | (state.size <= rounding)
        lost = jnp.isnan(state.size)
        result = optx.RESULTS.where(
            lost, optx.RESULTS.nonlinear_divergence, optx.RESULTS.successful
        )
        return solved | lost, result

    def postprocess(self, fn, y, aux, args, options, state, tags, result):
        del fn, args, options, state, tags, result
        return y, aux, {}

    def _size(self, d: PyTree, y: PyTree) -> Float[Array, ""]:
        def of_leaf(d, y):
            return self.norm(d) / (self.atol + self.rtol * self.norm(y))

        return jnp.max(jnp.stack(jax.tree.leaves(jax.tree.map(of_leaf, d, y))))
