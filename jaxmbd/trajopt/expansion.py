"""To which order `ilqr` expands the motion."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractExpansion(eqx.Module):
    """How much of the bending of the motion the quadratic problem sees."""

    @abc.abstractmethod
    def curvature(
        self, step: Callable, z: Float[Array, " n"], adjoint: Float[Array, " m"]
    ) -> Float[Array, "n n"]:
        """The second derivative of adjoint . step(z) in z = (xi, u), or what takes its place."""


class SecondOrder(AbstractExpansion):
    """With second derivatives of the motion, weighted by the adjoint (the gradient of the cost with
    respect to the state): Newton's method on the whole problem, which converges quadratically.
    Where this gives no minimum, the iteration does without them."""

    def curvature(self, step, z, adjoint):
        return jax.hessian(lambda z: adjoint @ step(z))(z)


class FirstOrder(AbstractExpansion):
    """With first derivatives of the motion alone: each iteration is cheaper, by a factor of two or
    three, and convergence is linear. For motions that have no second derivatives, like those with
    contact."""

    def curvature(self, step, z, adjoint):
        del step, adjoint
        return jnp.zeros((z.shape[0], z.shape[0]), z.dtype)
