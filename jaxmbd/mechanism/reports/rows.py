"""Rows of J by joint."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._equations import equations
from ..._linalg import dense
from ..._types import Coordinates, Jacobian, RealScalarLike, Velocity
from ..mechanism import Mechanism


@eqx.filter_jit
def dense_jacobian(
    mechanism: Mechanism, t: RealScalarLike, q: Coordinates, v: Velocity
) -> Jacobian:
    """J of all rows at (t, q, v), as one array."""
    return dense(equations(mechanism).rows(t, q, v).J)


def rows_by_joint(mechanism: Mechanism) -> dict[str, np.ndarray]:
    """Indices of the rows of each joint, in the order in which the joints were given."""
    return {joint.name: mechanism.rows(joint.name) for joint in mechanism.joints}


def tolerance_for(tolerance: float | None, dtype: Any) -> float:
    """Ratio to the largest singular value below which a singular value counts as zero."""
    if tolerance is not None:
        return tolerance
    return 1e-9 if dtype == jnp.float64 else 1e-4


def at_rest(mechanism: Mechanism, q: Float[Array, "*batch nq"]) -> Float[Array, "*batch nv"]:
    """Velocities v = 0."""
    return to_jax(np.zeros((*q.shape[:-1], mechanism.coordinates.nv), q.dtype))


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
