import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._inputs import checked
from ..pose import Pose
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
from .balls_and_ground import (
    capsule_capsule,
    capsule_sphere,
    cylinder_sphere,
    half_space_shape,
    height_field_shape,
    sphere_sphere,
)
from .base import ContactPoints
from .boxes import box_box, box_capsule, box_sphere
from .convex import convex_convex

_FUNCTIONS: dict[tuple[type, type], Callable[..., ContactPoints]] = {
    **{
        (HalfSpace, kind): half_space_shape
        for kind in (Sphere, Capsule, Box, Cylinder, Disc, Ellipsoid, ConvexPoints)
    },
    **{(HeightField, kind): height_field_shape for kind in (Sphere, Capsule, Box, ConvexPoints)},
    (Sphere, Sphere): sphere_sphere,
    (Capsule, Sphere): capsule_sphere,
    (Capsule, Capsule): capsule_capsule,
    (Box, Sphere): box_sphere,
    (Cylinder, Sphere): cylinder_sphere,
    (Box, Capsule): box_capsule,
    (Box, Box): box_box,
    **{
        (kind, other): convex_convex
        for kind, others in (
            (Cylinder, (Capsule, Box, Cylinder)),
            (Ellipsoid, (Sphere, Capsule, Box, Cylinder, Ellipsoid)),
            (ConvexPoints, (Sphere, Capsule, Box, Cylinder, Ellipsoid, ConvexPoints)),
        )
        for other in others
    },
}


@checked
def collide(a: AbstractShape, pose_a: Pose, b: AbstractShape, pose_b: Pose) -> ContactPoints:
    """The contact points of two shapes at given poses of their frames.

    Their number, `point_count`, depends only on the kinds of a and b. The points are finite at
    every pose, and differentiable with respect to the poses and the dimensions of the shapes. Each
    pair of types, in either order, has a function, whose docstring says which points it returns.

    **Raises:** `ValueError` for a pair of kinds that is not supported.
    """
    function = _FUNCTIONS.get((type(a), type(b)))
    if function is not None:
        return function(a, pose_a, b, pose_b)
    function = _FUNCTIONS.get((type(b), type(a)))
    if function is not None:
        return function(b, pose_b, a, pose_a).swapped()
    raise ValueError(
        f"No contact points of a {type(a).__name__} and a {type(b).__name__}. Supported pairs, in "
        "either order: " + ", ".join(f"{x.__name__}-{y.__name__}" for x, y in _FUNCTIONS) + "."
    )


def point_count(a: AbstractShape, b: AbstractShape) -> int:
    """The number of points that `collide` returns for these shapes.

    **Raises:** `ValueError` for a pair of kinds that is not supported.
    """
    leaves, structure = jax.tree.flatten((a, b))
    return _point_count(structure, tuple((x.shape, x.dtype) for x in leaves))


@functools.lru_cache(maxsize=1024)
def _point_count(structure: Any, arrays: tuple[tuple[tuple[int, ...], Any], ...]) -> int:
    # Traced only once for each pair of kinds, since n bodies may have n^2 / 2 contacts.
    a, b = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*array) for array in arrays])
    dtype = arrays[0][1] if arrays else jnp.result_type(float)
    pose = Pose(jax.ShapeDtypeStruct((3,), dtype), jax.ShapeDtypeStruct((4,), dtype))  # pyright: ignore[reportArgumentType]
    return eqx.filter_eval_shape(collide, a, pose, b, pose).gap.shape[0]


def takes_long(a: type[AbstractShape], b: type[AbstractShape]) -> bool:
    """Whether contact points of shapes of these types take so long that a loop over the pairs that
    there are is faster than a batch of as many as there is room for."""
    function = _FUNCTIONS.get((a, b), _FUNCTIONS.get((b, a)))
    return function in (box_box, box_capsule, convex_convex)
