"""The order to which `ilqr` expands the motion."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Second derivatives in forward mode twice compile in half the time. With more variables than these,
# reverse mode takes less time to run.
_FEW = 6


class AbstractExpansion(eqx.Module):
    """The curvature of the motion that the quadratic problem includes."""

    @abc.abstractmethod
    def curvature(
        self, step: Callable, z: Float[Array, " n"], adjoint: Float[Array, " m"]
    ) -> Float[Array, "n n"]:
        """The second derivative of adjoint . step(z) in z = (xi, u), or an approximation of it."""


class SecondOrder(AbstractExpansion):
    """Second derivatives of the motion, weighted by the adjoint (the gradient of the cost with
    respect to the state). This is Newton's method on the whole problem, which converges
    quadratically. If the quadratic problem then has no minimum, the iteration omits them."""

    def curvature(self, step, z, adjoint):
        return gradient_and_hessian(lambda z: adjoint @ step(z), z)[1]


class FirstOrder(AbstractExpansion):
    """Only first derivatives of the motion. Each iteration is cheaper by a factor of two or three,
    and convergence is linear. Use it for motions without second derivatives, like those with
    contact."""

    def curvature(self, step, z, adjoint):
        del step, adjoint
        return jnp.zeros((z.shape[0], z.shape[0]), z.dtype)


def gradient_and_hessian(
    fn: Callable, z: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """The first and second derivatives of a scalar function."""
    first = (jax.jacfwd if z.shape[0] <= _FEW else jax.grad)(fn)

    def both(z):
        g = first(z)
        return g, g

    H, g = jax.jacfwd(both, has_aux=True)(z)
    return g, H
