"""Forces at contact points in all pictures."""

from typing import NamedTuple

import equinox as eqx
import numpy as np

from ..._concrete import to_jax
from ..body import GROUND
from ..mechanism import Mechanism
from ..reports import no_force


class PointForces(NamedTuple):
    """World positions [m] of contact points and forces [N] there, `(pictures, points, 3)`; which
    are idle, `(pictures, points)`; and the length of arrows [m/N], or `None` to choose it."""

    at: np.ndarray
    force: np.ndarray
    idle: np.ndarray
    scale: float | None


def point_forces(
    mechanism: Mechanism, q: np.ndarray, world: np.ndarray, scale: float | None
) -> PointForces:
    """Forces on b, or on a if b is the ground, from coordinates `(pictures, nq)` and world forces
    on b, `(pictures, points, 3)`.

    **Raises:** `ValueError` for a scale that is not positive."""
    if scale is not None and not scale > 0:
        raise ValueError(f"Argument `force_scale` must be positive, but is {scale}.")
    at = np.asarray(_positions(mechanism, to_jax(q)), float)
    names = mechanism.contact_names[: at.shape[1]]
    sign = np.array([-1.0 if mechanism.contact(n).bodies[-1] == GROUND else 1.0 for n in names])
    force = sign[:, None] * np.asarray(world, float)
    size = np.linalg.norm(force, axis=2)
    idle = size <= no_force(q.dtype) * np.max(size, initial=0.0)
    return PointForces(at, force, idle, scale)


@eqx.filter_jit
def _positions(mechanism, q):
    return mechanism.contact_points(q).position


def mean_forces(t: np.ndarray, force: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Means since the previous picture, of forces `(saved times, points, 3)` that are themselves
    means since the previous saved time."""
    if len(t) < 2 or len(times) < 2:
        return np.broadcast_to(force[:1], (len(times), *force.shape[1:]))
    lasted = force[1:] * np.diff(t)[:, None, None]
    impulse = np.concatenate([np.zeros_like(force[:1]), np.cumsum(lasted, axis=0)])
    columns = impulse.reshape(len(t), -1).T
    at = np.array([np.interp(times, t, column) for column in columns]).reshape(-1, len(times)).T
    means = np.diff(at, axis=0) / np.diff(times)[:, None]
    # The first picture has none before it, and shows the mean of the next.
    return np.concatenate([means[:1], means]).reshape(len(times), *force.shape[1:])
