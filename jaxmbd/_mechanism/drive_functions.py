"""Drives of a system, which prescribe numbers of its pose, as functions of q."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import with_dtype
from .._inputs import shown
from .._system import AbstractSystem
from .._types import Coordinates
from .couplings import CoordinateConstraint
from .element import replaced
from .joints import named
from .mechanism import Mechanism
from .scalar_coordinates import AbstractScalarCoordinate, OfJoint
from .stack import stacks


class _OfJoint(eqx.Module):
    """A coordinate of a mechanism as a function of q."""

    mechanism: Mechanism
    coordinate: AbstractScalarCoordinate

    def __call__(self, q: Coordinates) -> Float[Array, ""]:
        return self.coordinate.value(self.mechanism.frames(self.coordinate, q))


def drive_functions(
    caller: str, system: AbstractSystem, q: Coordinates, drive: Any
) -> tuple[tuple[Callable[[Any], Any], ...], tuple[bool, ...]]:
    """The drives as functions of q, and which of them are angles.

    **Arguments:** `drive`: one or a sequence of names of joints, coordinates, and functions of q;
    `None` for none.

    **Raises:** `ValueError`."""
    several = isinstance(drive, Sequence) and not isinstance(drive, str)
    given = () if drive is None else tuple(drive) if several else (drive,)
    drives, angles = [], []
    for one in given:
        if isinstance(one, str | AbstractScalarCoordinate):
            if not isinstance(system, Mechanism):
                raise ValueError(
                    f"`drive` of {caller}, {shown(one)}, needs a Mechanism: give a function of q."
                )
            coordinate: Any = OfJoint(system.joint(one)) if isinstance(one, str) else one  # pyright: ignore[reportArgumentType]
            coordinate = with_dtype(system.resolved(coordinate), q.dtype)
            drives.append(_OfJoint(system, coordinate))
            angles.append(isinstance(coordinate, OfJoint) and coordinate.is_angle is True)
        elif callable(one):
            if getattr(eqx.filter_eval_shape(one, q), "shape", None) != ():
                raise ValueError(f"`drive` of {caller} must return one number, of shape ().")
            drives.append(one)
            angles.append(False)
        else:
            raise ValueError(
                f"`drive` of {caller} must be the name of a joint, a coordinate, or a function of "
                f"q, but is {shown(one)}."
            )
    return tuple(drives), tuple(angles)


class Driven(NamedTuple):
    """A system with a row x(q) = 0 for each drive, which holds it where x is 0.

    **Fields:** `system`; `own`, `drives`: the places of its rows and of those of the drives;
    `angles`: which of the drives are angles, as known up to whole turns.
    """

    system: AbstractSystem
    own: np.ndarray
    drives: np.ndarray
    angles: np.ndarray


class WithDrives(AbstractSystem):
    """A system with a row for each drive, which is a function of q."""

    system: AbstractSystem
    drives: tuple[Callable[[Any], Any], ...]

    def mass_matrix(self, q):
        return self.system.mass_matrix(q)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)

    def constraint(self, q, t):
        own = jnp.ravel(jnp.asarray(self.system.constraint(q, t), q.dtype))
        return jnp.stack([*own, *(jnp.asarray(drive(q), q.dtype) for drive in self.drives)])

    @property
    def coordinates(self):
        return self.system.coordinates

    def qdot(self, q, v):
        return self.system.qdot(q, v)

    def retract(self, q, dp):
        return self.system.retract(q, dp)


def with_drives(
    caller: str, system: AbstractSystem, q: Coordinates, drives: Sequence[Any]
) -> Driven:
    """The system with a row for each drive. **Raises:** `ValueError`, as `drive_functions`."""
    functions, angles = drive_functions(caller, system, q, drives)
    if isinstance(system, Mechanism) and all(isinstance(x, _OfJoint) for x in functions):
        names = [f"drive {i} of {caller}" for i in range(len(functions))]
        rows = [
            CoordinateConstraint(name, x.coordinate)
            for name, x in zip(names, functions, strict=True)
        ]
        kinds = stacks(list(map(named, rows)), None, rows)
        whole = replaced(system, own_joints=(*system.own_joints, *kinds))
        places = np.concatenate([whole.rows(name) for name in names])
        own = np.setdiff1d(np.arange(whole.row_count), places)
        return Driven(whole, own, places, np.array(angles))
    t = jax.ShapeDtypeStruct((), q.dtype)
    count = jax.eval_shape(system.constraint, q, t).size
    places = count + np.arange(len(functions))
    return Driven(WithDrives(system, functions), np.arange(count), places, np.array(angles))
