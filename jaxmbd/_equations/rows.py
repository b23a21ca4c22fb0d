"""The constraint rows at one (t, q, v)."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Rows


class ConstraintRows(NamedTuple):
    """All rows at one (t, q, v), holonomic ones first.

    - `phi`: Phi, shape `(nh,)`; nonholonomic rows have no position level.
    - `velocity`: (Phi', Psi) = (J v + Phi_t, Psi), shape `(nc,)`.
    - `J`: (Phi_q N, dPsi/dv), shape `(nc, nv)`; `BlockRows` of a structured system.
    - `gamma`: right side of J v' = gamma, shape `(nc,)`: minus the time derivative of `velocity` at
      constant v. It includes all terms of J' v, Phi_qt, Phi_tt and N'.
    """

    phi: Float[Array, " nh"]
    velocity: Rows
    J: Any
    gamma: Rows

    def position(self, holonomic: Float[Array, " nh"]) -> Rows:
        """Extend values of the holonomic rows by zeros for the nonholonomic ones."""
        missing = self.velocity.shape[0] - self.phi.shape[0]
        return jnp.concatenate([holonomic, jnp.zeros(missing, holonomic.dtype)])
