"""Internal states within a step: they travel with the control to the forces."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._types import Control, Coordinates, RealScalarLike, Velocity


class Carrying(eqx.Module):
    """A control together with the internal states z that the forces read. Methods evaluate forces
    at (t, q, v) for a control, so none of them needs to know of z to hold it."""

    control: Control | None
    z: Float[Array, " nz"]

    def __call__(self, t: RealScalarLike, q: Coordinates, v: Velocity) -> Any:
        return None if self.control is None else self.control(t, q, v)


def carrying(control: Control | None, z: Float[Array, " nz"] | None) -> Control | None:
    """The control with these internal states in place of any others; unchanged for `None`."""
    if z is None:
        return control
    return Carrying(control.control if isinstance(control, Carrying) else control, z)


def inputs(
    control: Control | None, t: RealScalarLike, q: Coordinates, v: Velocity
) -> tuple[Any, ...]:
    """The last arguments of `force`: u, and z if the control carries internal states."""
    u = None if control is None else control(t, q, v)
    return (u, control.z) if isinstance(control, Carrying) else (u,)
