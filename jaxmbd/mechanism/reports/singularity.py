"""Distance of a mechanism to a singular pose, and the joints involved."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from ..._concrete import numpy_if_concrete, to_jax
from ..._inputs import checked
from ..._printed import printed
from ..batching import batched
from ..mechanism import Mechanism
from .rows import at_rest, dense_jacobian, rows_by_joint, tolerance_for


@printed
class Singularity(eqx.Module):
    """The result of `singularity`; `print` it.

    **Fields:**

    - `ratio`: the singular value of J that vanishes in singular poses, relative to the largest one,
      shape `(*batch)`. It is differentiable where it is a simple one.
    - `rank`: number of singular values that do not vanish in each pose, `(*batch)`.
    - `general`: the rank in general position, to which the ratio belongs.
    - `parts`: name of each joint -> its part in the rows that become dependent, between 0 and 1,
      `(*batch)`. The parts add up to 1.
    - `moving`: name of each body -> its part in the motion that becomes free, `(*batch)`.
    """

    ratio: Float[Array, "*batch"]
    rank: Int[Array, "*batch"]
    general: Int[Array, ""]
    parts: dict[str, Float[Array, "*batch"]]
    moving: dict[str, Float[Array, "*batch"]]

    def __str__(self) -> str:
        ratio = np.ravel(np.asarray(self.ratio))
        i = int(np.argmin(ratio))
        where = f" in pose {i} of {len(ratio)}" if len(ratio) > 1 else ""

        def listed(table):
            values = {name: np.ravel(np.asarray(x))[i] for name, x in table.items()}
            ranked = sorted(values.items(), key=lambda item: -item[1])
            return ", ".join(f'"{name}" {x:.2f}' for name, x in ranked if x > 0.005)

        return "\n".join(
            [
                f"smallest ratio of singular values {ratio[i]:.3e}{where}; rank "
                f"{np.ravel(np.asarray(self.rank))[i]}, in general {int(self.general)}",
                f"joints that take part: {listed(self.parts)}",
                f"bodies that become free: {listed(self.moving)}",
            ]
        )


@checked
def singularity(
    mechanism: Mechanism,
    q: Float[Array, "*batch nq"],
    t: ArrayLike = 0.0,
    v: Float[Array, "*#batch nv"] | None = None,
    *,
    rank: int | None = None,
    length: float = 1.0,
    tolerance: float | None = None,
) -> Singularity:
    """Measure the distance to a singular pose. There rows that are independent elsewhere become
    dependent, and motions that are blocked elsewhere become free:

        ratio = sigma_r / sigma_1,    r = rank J in general position,

    with the singular values sigma_1 >= sigma_2 >= ... of J. Rows that are redundant everywhere do
    not count. The ratio is 0 in a singular pose and about proportional to the distance near it.
    Below about 1e-3 expect large reactions, and use `Pseudoinverse`.

        report = mbd.reports.singularity(mechanism, sol.q, sol.t)     # along a motion

    **Arguments:**

    - `q`, `t`, `v`: coordinates, times [s] and velocities with any leading axes. `v`, by default
      zero, matters only for rows that are not linear in it.
    - `rank`: r, by default the largest rank among these poses. Give it, from `mobility` elsewhere,
      for a single pose that may be singular itself, and inside `jax.vmap`.
    - `length`: [m], by which small rotations are multiplied to compare them with displacements.
      Choose the size of the mechanism.
    - `tolerance`: as in `mobility`.

    **Returns:** a `Singularity`. `parts` and `moving` are not differentiated. They are meaningless
    where several singular values coincide, as in the singular pose of a mechanism with redundant
    rows or other freedoms; look at neighbouring poses.

    Reference: Gosselin and Angeles (1990), Singularity analysis of closed-loop kinematic chains,
    IEEE Trans. Robotics and Automation 6.
    """
    q = mechanism.checked_q(q)
    v = at_rest(mechanism, q) if v is None else mechanism.checked_v(v)
    names, rows = mechanism.body_stack.names, rows_by_joint(mechanism)
    tolerance = tolerance_for(tolerance, q.dtype)
    t = jnp.asarray(t, q.dtype)
    ratio, ranks, general, left, right = _singular(mechanism, t, q, v, rank, length, tolerance)
    xp = numpy_if_concrete(left, right)
    left, right = xp.asarray(left), xp.asarray(right)
    motion = right.reshape(*right.shape[:-1], -1, len(names))
    return Singularity(
        ratio,
        ranks,
        general,
        {name: to_jax(xp.sum(left[..., own] ** 2, axis=-1)) for name, own in rows.items()},
        {name: to_jax(xp.sum(motion[..., i] ** 2, axis=-1)) for i, name in enumerate(names)},
    )


@eqx.filter_jit
def _singular(mechanism, t, q, v, rank, length, tolerance) -> Any:
    parts = mechanism.indices(mechanism.body_stack.names[0])
    counts = np.array([parts.linear.size, parts.angular.size]) * len(mechanism.body_stack)
    weights = np.repeat([1.0, 1 / length], counts)
    weights = jnp.asarray(weights, q.dtype)
    jacobian = lambda t, q, v: dense_jacobian(mechanism, t, q, v) * weights[None]  # noqa: E731
    J = batched(jacobian, (t, 0), (q, 1), (v, 1))
    if 0 in J.shape[-2:]:
        raise ValueError("A mechanism without joints has no singular poses.")
    # The derivative of the values alone needs no differences of singular values.
    values = jnp.linalg.svd(J, compute_uv=False)
    left, _, right = jnp.linalg.svd(jax.lax.stop_gradient(J), full_matrices=False)
    ranks = jnp.sum(values > tolerance * values[..., :1], axis=-1)
    general = jnp.max(ranks) if rank is None else jnp.asarray(rank, ranks.dtype)
    i = general - 1
    pick = lambda x, axis: jnp.take(x, i, axis=axis)  # noqa: E731
    return pick(values, -1) / values[..., 0], ranks, general, pick(left, -1), pick(right, -2)
