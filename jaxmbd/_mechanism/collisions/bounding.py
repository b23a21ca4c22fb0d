"""Balls around shapes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..._coordinates import SameArray
from ..shapes import (
    AbstractShape,
    Box,
    Capsule,
    ConvexPoints,
    Cylinder,
    Disc,
    Ellipsoid,
    HalfSpace,
    HeightField,
    Sphere,
)


def is_unbounded(shape: AbstractShape) -> bool:
    """Whether no ball holds the shape."""
    return isinstance(shape, HalfSpace | HeightField)


def bounding_ball(
    shape: AbstractShape,
) -> tuple[Float[SameArray, "*#batch 3"], Float[SameArray, "*batch"]]:
    """Centre, in the frame of the shape, and radius of a ball that holds the shape [m]. Dimensions
    may have leading axes, and numbers in NumPy stay there. The centre may be one for all.

    **Raises:** `ValueError` for a shape without one."""
    # Arrays of JAX stay there: what follows from known ones may be traced.
    in_numpy = all(isinstance(x, np.ndarray) for x in jax.tree.leaves(shape))
    xp: Any = np if in_numpy else jnp
    center: Any = np.zeros(3)
    match shape:
        case Sphere() | Disc():
            radius = shape.radius
        case Capsule():
            radius = shape.half_length + shape.radius
        case Cylinder():
            radius = xp.sqrt(shape.half_length**2 + shape.radius**2)
        case Box():
            radius = xp.sqrt(xp.sum(shape.half_sizes**2, axis=-1))
        case Ellipsoid():
            radius = xp.max(shape.semiaxes, axis=-1)
        case ConvexPoints():
            x = shape.points
            center = (xp.max(x, axis=-2) + xp.min(x, axis=-2)) / 2
            radius = xp.sqrt(xp.max(xp.sum((x - center[..., None, :]) ** 2, axis=-1), axis=-1))
        case _:
            raise ValueError(f"No ball holds a {type(shape).__name__}.")
    return center, radius
