"""The violation of each joint, and what reports say by joint."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..._compiler import to_jax
from ..._equations import equations
from ..._inputs import checked
from ..._linalg import dense
from ..._printed import printed
from ..._types import Coordinates, Jacobian, RealScalarLike, Velocity
from ..batching import batched
from ..mechanism import Mechanism


@printed
class Violation(NamedTuple):
    """The result of `violation`; `print` it.

    - `position`: name of each joint -> its largest |Phi| [m, or 1 for angles], shape `(*batch)`.
    - `velocity`: name of each joint -> its largest |Phi'| and |Psi| [m/s, rad/s], `(*batch)`.
    """

    position: dict[str, Float[Array, "*batch"]]
    velocity: dict[str, Float[Array, "*batch"]]

    def __str__(self) -> str:
        width = max([len(name) for name in self.position] + [len("joint")])
        lines = [f"{'joint':{width}}  |Phi|     |Phi'|, |Psi|"]
        for name, value in self.position.items():
            rate = np.max(np.asarray(self.velocity[name]))
            lines.append(f"{name:{width}}  {np.max(np.asarray(value)):.1e}   {rate:.1e}")
        return "\n".join(lines)


@checked
def violation(
    mechanism: Mechanism,
    q: Float[Array, "*batch nq"],
    t: ArrayLike = 0.0,
    v: Float[Array, "*#batch nv"] | None = None,
) -> Violation:
    """The largest violation of each joint,

        |Phi(q, t)|  and  |Phi'| = |Phi_q N v + Phi_t|, |Psi(q, v, t)|.

    **Arguments:** `q`, `t`, `v`: coordinates, times [s] and velocities with any leading axes, such
    as `sol.q, sol.t, sol.v` of a solution. `v` is zero by default.

    **Returns:** a `Violation`, whose numbers have the leading axes; differentiable.
    """
    q = mechanism.checked_q(q)
    v = at_rest(mechanism, q) if v is None else mechanism.checked_v(v)
    names = rows_by_joint(mechanism)
    position, velocity = _largest(mechanism, jnp.asarray(t, q.dtype), q, v)
    return Violation(
        dict(zip(names, position, strict=True)), dict(zip(names, velocity, strict=True))
    )


@eqx.filter_jit
def _largest(mechanism, t, q, v) -> Any:
    """Of the rows of each joint, in their order."""

    def one(t, q, v):
        return equations(mechanism).violation(t, q, v)

    phi, velocity = batched(one, (t, 0), (q, 1), (v, 1))
    rows = rows_by_joint(mechanism).values()
    nh = phi.shape[-1]

    def largest(values, own):
        return jnp.max(jnp.abs(values[..., own]), axis=-1, initial=0.0)

    return [largest(phi, own[own < nh]) for own in rows], [largest(velocity, own) for own in rows]


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
