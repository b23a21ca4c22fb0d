"""The order to which `ilqr` expands the motion."""

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._extensible import Extensible
from .._search import with_value

# Second derivatives in forward mode twice compile in half the time. With more variables than these,
# reverse mode takes less time to run.
_FEW = 6


class AbstractExpansion(Extensible):
    """The curvature of the motion that the quadratic problem includes."""

    @abc.abstractmethod
    def expand(
        self, step: Callable, z: Float[Array, " n"], adjoint: Float[Array, " m"]
    ) -> tuple[Float[Array, " m"], Float[Array, "m n"], Float[Array, "n n"]]:
        """step(z) with its first derivative, and the second derivative of adjoint . step(z) or an
        approximation of it, in z = (xi, u)."""


class SecondOrder(AbstractExpansion):
    """Second derivatives of the motion, weighted by the adjoint (the gradient of the cost with
    respect to the state). This is Newton's method on the whole problem, which converges
    quadratically. If the quadratic problem then has no minimum, the iteration omits them."""

    def expand(self, step, z, adjoint):
        def weighted(z):
            ahead = step(z)
            return adjoint @ ahead, ahead

        _, H, ahead, along = gradient_and_hessian(weighted, z)
        return ahead, along, H


class FirstOrder(AbstractExpansion):
    """Only first derivatives of the motion. Each iteration is cheaper by a factor of two or three,
    and convergence is linear. Use it for motions without second derivatives, like those with
    contact."""

    def expand(self, step, z, adjoint):
        del adjoint
        along, ahead = jax.jacfwd(with_value(step), has_aux=True)(z)
        return ahead, along, jnp.zeros((z.shape[0], z.shape[0]), z.dtype)


def gradient_and_hessian(
    fn: Callable, z: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, "n n"], Any, Any]:
    """`first_and_second` of a scalar."""
    return first_and_second(fn, z, jax.jacfwd if z.shape[0] <= _FEW else jax.grad)


def first_and_second(
    fn: Callable, z: Float[Array, " n"], derivative: Callable = jax.jacfwd
) -> tuple[Any, Any, Any, Any]:
    """The first and second derivatives of what fn returns first, and its second output with the
    first derivatives. `derivative`: the mode of the first one."""
    (second, along), (first, rest) = jax.jacfwd(
        with_value(derivative(fn, has_aux=True)), has_aux=True
    )(z)
    return first, second, rest, along
