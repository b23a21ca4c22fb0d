"""Coordinates and forces at the times of pictures."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ..._compiler import to_jax
from ..._simulate import Solution
from ..joints import AbstractConstraint
from ..mechanism import Mechanism
from ..reports import contact_forces, no_force, over_intervals, pairs_of
from .frames import concrete


def one_motion(sol: Solution) -> Any:
    """Return the solution. **Raises:** `ValueError` unless it is one motion, with states."""
    sol.points()
    if concrete(sol.t).ndim != 1:
        raise ValueError(
            f"Pictures show one motion, but this is a batch with times of shape {sol.t.shape}. "
            "Take one: `jax.tree.map(lambda x: x[i], sol)`."
        )
    return sol


def interpolated(t: np.ndarray, values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Linear interpolation along the first axis, held before and after."""
    columns = [np.interp(times, t, column) for column in values.reshape(len(t), -1).T]
    return np.reshape(columns, (-1, len(times))).T.reshape(len(times), *values.shape[1:])


def coordinates_between(
    mechanism: Mechanism, t: np.ndarray, q: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Coordinates at the times: positions, angles and quaternions interpolated, the latter
    normalised."""
    if mechanism.plane is not None:
        return interpolated(t, q, times)
    table = q.reshape(len(t), 7, -1).copy()
    p = table[:, 3:]
    sign = np.sign(np.sum(p[1:] * p[:-1], axis=1))
    p[1:] *= np.cumprod(np.where(sign < 0, -1, 1), axis=0)[:, None]
    found = interpolated(t, table, times)
    found[:, 3:] /= np.linalg.norm(found[:, 3:], axis=1, keepdims=True)
    return found.reshape(len(times), -1).astype(q.dtype)


def has_coordinates(joint: AbstractConstraint) -> bool:
    """Whether the joint has coordinates to plot."""
    return joint.count() > 0


def joint_curves(
    mechanism: Mechanism, name: str, values: np.ndarray
) -> Iterator[tuple[str, str, np.ndarray]]:
    """The kind, with its unit, the label and the values of each coordinate of a joint, from values
    `(times, coordinates)`."""
    joint: Any = mechanism.joint(name)
    displacements = values.shape[1] - joint.angles
    for i, column in enumerate(values.T):
        turns = i >= displacements
        alone = (joint.angles if turns else displacements) == 1
        kind = "angle [rad]" if turns else "displacement [m]"
        yield kind, name if alone else f"{name} {i + 1}", column


class PointForces(NamedTuple):
    """World positions [m] of contact points and forces [N] there, `(pictures, points, 3)`; which
    are idle, `(pictures, points)`; and the length of arrows [m/N], or `None` to choose it."""

    at: np.ndarray
    force: np.ndarray
    idle: np.ndarray
    scale: float | None


def contact_arrows(
    mechanism: Mechanism,
    sol: Solution,
    times: np.ndarray,
    q: np.ndarray,
    scale: float | None = None,
) -> PointForces | None:
    """Mean forces of contacts since the previous picture, at coordinates `(pictures, nq)`; `None`
    without contacts."""
    if sol.contact_force is None or not sol.contact_force.shape[1]:
        return None
    world = np.asarray(contact_forces(mechanism, over_intervals(sol)))
    t, pairs = np.asarray(sol.t), pairs_of(mechanism, sol)
    if pairs is None:
        return point_forces(mechanism, q, _means(t, world, times), scale)
    # Contacts change their places, so there are no means of them: the forces at a saved time.
    last = np.clip(np.searchsorted(t, times - 1e-9 * np.ptp(t)), 0, len(t) - 1)
    return point_forces(mechanism, q, world[last], scale, np.asarray(pairs)[last])


def point_forces(
    mechanism: Mechanism,
    q: np.ndarray,
    world: np.ndarray,
    scale: float | None,
    pairs: np.ndarray | None = None,
) -> PointForces:
    """Forces on b, or on a if b is the ground, from coordinates `(pictures, nq)` and world forces
    on b, `(pictures, points, 3)`, and the pairs of contacts without fixed places.

    **Raises:** `ValueError` for a scale that is not positive."""
    if scale is not None and not scale > 0:
        raise ValueError(f"Argument `force_scale` must be positive, but is {scale}.")
    at, b = (np.asarray(x) for x in _places(mechanism, to_jax(q), pairs))
    ground = b == len(mechanism.body_stack)
    force = np.where(ground, -1.0, 1.0)[..., None] * np.asarray(world, float)
    size = np.linalg.norm(force, axis=2)
    idle = size <= no_force(q.dtype) * np.max(size, initial=0.0)
    return PointForces(at.astype(float), force, idle, scale)


@eqx.filter_jit
def _places(mechanism, q, pairs):
    """Positions of contact points, and the columns of the bodies b."""
    contacts = mechanism.contact_set
    if pairs is None:
        return mechanism.contact_points(q).position, contacts.bodies_of_points[1]
    b = jax.vmap(contacts.bodies_of_pairs)(pairs)[:, 1]
    return jax.vmap(contacts.points)(q, pairs).position, b


def _means(t: np.ndarray, force: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Means since the previous picture, of forces `(saved times, points, 3)` that are themselves
    means since the previous saved time."""
    if len(t) < 2 or len(times) < 2:
        return np.broadcast_to(force[:1], (len(times), *force.shape[1:]))
    lasted = force[1:] * np.diff(t)[:, None, None]
    impulse = np.concatenate([np.zeros_like(force[:1]), np.cumsum(lasted, axis=0)])
    spans = np.diff(times)[:, None, None]
    means = np.diff(interpolated(t, impulse, times), axis=0) / spans
    # The first picture has none before it, and shows the mean of the next.
    return np.concatenate([means[:1], means])
