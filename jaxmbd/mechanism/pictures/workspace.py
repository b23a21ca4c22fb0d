"""The points that a point of a body reaches."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._inputs import Vector, checked
from ..mechanism import Mechanism
from .require import pyplot
from .symbols import BODIES


@checked
def plot_workspace(
    mechanism: Mechanism,
    q: Float[Array, "*batch nq"],
    body: str,
    point: Vector = (0.0, 0.0, 0.0),
    ax: Any = None,
) -> Any:
    """Plot where a point of a body gets in many poses, in the plane of world axes in which these
    places extend the most: its workspace.

        found = mbd.analysis.kinematics(mechanism, state, ["hip", "knee"], angles, throw=False)
        mbd.plots.workspace(mechanism, found.q[found.ok], "foot")

    **Arguments:** `q`: coordinates of the poses, with any leading axes. `body`, `point`: the body,
    and the point in its frame [m]. `ax`: matplotlib axes, by default new.

    **Returns:** the axes.

    **Raises:** `ImportError` without matplotlib; `ValueError` for an unknown body and for no poses.
    """
    q = mechanism.checked_q(q).reshape(-1, mechanism.coordinates.nq)
    if not len(q):
        raise ValueError("`q` of workspace holds no poses.")
    places = np.asarray(mechanism.pose(q, body).point(jnp.asarray(point, q.dtype)))
    if ax is None:
        _, ax = pyplot().subplots(figsize=(5.2, 5.0), layout="constrained")
    # The two axes of the largest extent, in their order.
    i, j = sorted(np.argsort(-np.ptp(places, axis=0), kind="stable")[:2])
    ax.plot(places[:, i], places[:, j], ".", color=BODIES[0], markersize=3)
    ax.set_xlabel(f"{'xyz'[i]} [m]")
    ax.set_ylabel(f"{'xyz'[j]} [m]")
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(f'Workspace of "{body}"', fontsize=10, loc="left")
    ax.grid(alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax
