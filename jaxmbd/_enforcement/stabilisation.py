"""Position feedback of velocity-level methods, J v(n+1) + Phi_t = -feedback."""

import abc
from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._checks import one_each
from .._extensible import Extensible
from .._inputs import checked, positive
from .._types import RealScalarLike


class AbstractStabilisation(Extensible):
    """The rate at which a violation of the position is removed."""

    @abc.abstractmethod
    def feedback(self, phi: Float[Array, " nh"], h: RealScalarLike) -> Float[Array, " nh"]:
        """The feedback velocity of the rows [unit of Phi / s]."""


class NoStabilisation(AbstractStabilisation):
    """No feedback: only the velocity constraint holds, and Phi drifts by O(h^2) per step."""

    def feedback(self, phi, h):
        del h
        return jnp.zeros_like(phi)


class DeadBeat(AbstractStabilisation):
    """The feedback Phi/h removes the whole violation within one step. Velocities contain the noise
    Phi/h."""

    def feedback(self, phi, h):
        return phi / h


class Relaxation(AbstractStabilisation):
    """First-order Baumgarte feedback, Phi' = -Phi / tau. Each step multiplies Phi by 1 - h/tau:
    stable for tau > h/2, dead-beat at tau = h.

    **Arguments:** `tau`: time constant [s], scalar or one value for each holonomic row.

    Reference: Castro (2025), Notes on constrained multibody dynamics, equations (25), (26).
    """

    tau: Float[Array, "..."]

    @checked
    def __init__(self, tau: Annotated[ArrayLike, positive]):
        self.tau = jnp.asarray(tau)

    def feedback(self, phi, h):
        del h
        return phi / one_each(self.tau, phi.shape[0], "tau")
