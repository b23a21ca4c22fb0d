"""Motions that are given as functions of time."""

from collections.abc import Callable
from typing import ClassVar, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..._inputs import checked
from ..._types import Convertible, DType, RealScalarLike, Scalar
from ..body import Body
from ..frames import Frames
from ..pose import Pose
from ..relative import misaligned, offset
from .base import AbstractJoint


def prescribed(
    motion: Callable[[Scalar], Convertible], t: RealScalarLike, dtype: DType
) -> Float[Array, ""]:
    return jnp.asarray(motion(jnp.asarray(t, dtype)), dtype)


def motion_shape(what: str, motion: Callable, dtype: DType) -> PyTree:
    """The shapes that a function of the time returns, without computing anything.

    **Raises:** `ValueError`, which begins with `what`, if it is not a function."""
    if not callable(motion):
        raise ValueError(f"{what} must be a function of the time, but is {motion!r}.")
    return eqx.filter_eval_shape(motion, jax.ShapeDtypeStruct((), dtype))


class PrescribedPose(AbstractJoint):
    """The pose of b relative to a is a given function of the time.

    Rows: the position of b in the frame `a.compose(motion(t))` (3), twice the vector part of the
    relative quaternion (3). No freedom. Between the ground and a body, it moves the body.

    **Fields:** `motion`: a function of t that returns a `Pose`, at least twice differentiable.
    """

    motion: Callable[[Scalar], Pose]

    rows: ClassVar[int] = 6
    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        motion: Callable[[Scalar], Pose],
        **frames: Unpack[Frames],
    ):
        """**Arguments:** as `AbstractJoint`.

        - `motion`: a function of the time [s] that returns the `Pose` of frame b in frame a:
          position, shape `(3,)` [m], and orientation, shape `(4,)`, of any length but 0. The arrays
          of an `eqx.Module` are parameters with derivatives.
        """
        self._connect(name, a, b, frames)
        self.limits = None
        what = f'`motion` of PrescribedPose "{name}"'
        pose = motion_shape(what, motion, self.dtype)
        shapes = [getattr(x, "shape", None) for x in pose] if isinstance(pose, Pose) else None
        if shapes != [(3,), (4,)]:
            raise ValueError(
                f"{what} must give a `Pose` with shapes (3,) and (4,), but gives {pose}."
            )
        self.motion = motion

    def constraint(self, a, b, t):
        dtype = a.position.dtype
        position, p = (jnp.asarray(x, dtype) for x in self.motion(jnp.asarray(t, dtype)))
        target = a.compose(Pose(position, p / jnp.sqrt(jnp.sum(p * p))))
        return jnp.concatenate([offset(target, b), misaligned(target, b)])
