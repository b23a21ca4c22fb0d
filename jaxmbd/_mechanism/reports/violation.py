"""The violation of each joint, and what reports say by joint."""

from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..._equations import equations
from ..._inputs import checked
from ..._linalg import dense
from ..._printed import printed
from ..._system import AbstractStates
from ..._types import Coordinates, Jacobian, RealScalarLike, Velocity
from ..batching import batched, with_last_axis
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
def violation(mechanism: Mechanism, state: AbstractStates) -> Violation:
    """The largest violation of each joint,

        |Phi(q, t)|  and  |Phi'| = |Phi_q N v + Phi_t|, |Psi(q, v, t)|.

    **Arguments:** `state`: a `State` or a `Solution`, with any leading axes.

    **Returns:** a `Violation`, whose numbers have the leading axes; differentiable.
    """
    names = rows_by_joint(mechanism)
    position, velocity = _largest(mechanism, *points_of(mechanism, state))
    return Violation(
        dict(zip(names, position, strict=True)), dict(zip(names, velocity, strict=True))
    )


@eqx.filter_jit
def _largest(mechanism, t, q, v) -> tuple[list[Array], list[Array]]:
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


def multipliers_of(
    mechanism: Mechanism, state: AbstractStates, given: ArrayLike | None = None
) -> Float[Array, "*batch nc"]:
    """Those given, or those of the solution. **Raises:** `ValueError` without any, and for
    multipliers of other rows."""
    given = getattr(state, "multipliers", None) if given is None else given
    if given is None:
        raise ValueError("A `State` has no multipliers: give `multipliers`, or a `Solution`.")
    rows = "one for each row of the joints"
    return with_last_axis("`multipliers`", given, mechanism.row_count, rows)


def rows_by_joint(mechanism: Mechanism) -> dict[str, np.ndarray]:
    """Indices of the rows of each joint, in the order in which the joints were given."""
    return {joint.name: mechanism.rows(joint.name) for joint in mechanism.joints}


def tolerance_for(tolerance: float | None, dtype: jnp.dtype) -> float:
    """Ratio to the largest singular value below which a singular value counts as zero."""
    if tolerance is not None:
        return tolerance
    return 1e-9 if dtype == jnp.float64 else 1e-4


def points_of(mechanism: Mechanism, state: AbstractStates) -> tuple[Array, Array, Array]:
    """t, q and v. **Raises:** `ValueError` without states, and for those of another mechanism."""
    t, q, v = state.points()
    return t, mechanism.checked_q(q), mechanism.checked_v(v)


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
