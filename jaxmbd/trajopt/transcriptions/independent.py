"""The choice of independent rows if some follow from the others.

A solver of nonlinear programs needs independent gradients at the solution. So redundant rows are
left out, which changes nothing as long as they follow from the others. At the end, the violation of
a plan also includes the rows that were left out.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._assemble import assemble
from ..._equations import equations
from ..._linalg import dense
from ..._results import RESULTS
from ..._search import redundancy
from ..._system import AbstractSystem
from ..gauss_newton import nearest_root, value_and_slope


def independent(J: np.ndarray, first: int = 0) -> np.ndarray:
    """Indices of a largest set of independent rows of J, by the Gram-Schmidt method with pivoting.
    The first `first` rows are chosen before all others."""
    size = np.linalg.norm(J, axis=1)
    rest = J / np.where(size > 0, size, 1.0)[:, None]
    chosen: list[int] = []
    for group in (range(first), range(first, len(J))):
        while left := [i for i in group if i not in chosen]:
            best = max(left, key=lambda i: np.linalg.norm(rest[i]))
            length = np.linalg.norm(rest[best])
            if length <= redundancy(J.dtype):
                break
            chosen.append(best)
            direction = rest[best] / length
            rest = rest - np.outer(rest @ direction, direction)
    return np.array(sorted(chosen), int)


def independent_rows(system: AbstractSystem, t, q, v) -> tuple[np.ndarray, np.ndarray]:
    """Independent rows of Phi, and of (Phi, Psi) with those first. The rows are chosen where the
    rank is largest, among the states q, v (leading axis) and consistent states near the first one.
    So a start at a dead centre does not decide."""
    holonomic = jax.eval_shape(lambda: equations(system).positions(t[0], q[0])).shape[0]
    push = 0.05 * np.random.default_rng(0).normal(size=(3, v.shape[1]))
    J = np.asarray(_sampled(system, t, q, v, jnp.asarray(push, q.dtype)))
    rank, quality = -1, -1.0
    rows = np.zeros(0, int)
    for sample in J:
        candidate = independent(sample, first=holonomic)
        size = np.linalg.norm(sample[candidate], axis=1, keepdims=True)
        weakest = np.linalg.svd(sample[candidate] / size, compute_uv=False).min(initial=1.0)
        if (len(candidate), weakest) > (rank, quality):
            rank, quality, rows = len(candidate), weakest, candidate
    return rows[rows < holonomic], rows


@eqx.filter_jit
def _sampled(system, t, q, v, push):
    """J at the states, and at consistent states near the first one."""

    def near(dp):
        state = assemble(system, system.retract(q[0], dp), t=t[0], v=v[0], throw=False)
        return state.q, state.report.result == RESULTS.successful

    beside, found = jax.vmap(near)(push)
    count = push.shape[0]
    samples = jnp.concatenate([q, jnp.where(found[:, None], beside, q[:1])])
    times = jnp.concatenate([t, jnp.broadcast_to(t[:1], (count,))])
    speeds = jnp.concatenate([v, jnp.broadcast_to(v[:1], (count, v.shape[1]))])
    return jax.vmap(lambda *x: dense(equations(system).rows(*x).J))(times, samples, speeds)


def implied(
    rows: Callable, size: int, first: int, data: Any = None, displacement: float = 0.05
) -> np.ndarray:
    """Indices of rows that imply the others where all rows hold. They are independent, and the
    first `first` rows are chosen before others. A row is also kept if its gradient depends on the
    chosen ones there, but they do not imply it nearby. An example is y = 1, which touches a circle.

    - `rows`: the values as a function of a displacement of shape `(size,)` and of `data`.
    """
    solution = nearest_root(rows, np.zeros(size), data)
    J = np.asarray(value_and_slope(rows, solution, data)[1])
    chosen = independent(J, first)
    # The others must also hold at points near the solution where the chosen rows hold.
    along = np.linalg.svd(J[chosen])[2][len(chosen) :]
    push = np.random.default_rng(0).normal(size=len(along)) @ along
    beside = nearest_root(rows, solution + displacement * push, data, chosen)
    left = np.abs(np.asarray(value_and_slope(rows, beside, data)[0]))
    return np.union1d(chosen, np.flatnonzero(left > 1e-3 * displacement**2))
