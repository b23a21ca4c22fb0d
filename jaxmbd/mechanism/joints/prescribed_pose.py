from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp

from ..._inputs import Vector, checked
from ..body import Body
from ..pose import Frame, Pose
from ..relative import misaligned, offset
from .base import AbstractJoint
from .prescribed_motion import motion_shape


class PrescribedPose(AbstractJoint):
    """The pose of b relative to a is a given function of the time.

    Rows: the position of b in the frame `a.compose(motion(t))` (3), twice the vector part of the
    relative quaternion (3). No freedom. Between the ground and a body, it moves the body.

    **Fields:** `motion`: a function of t that returns a `Pose`, at least twice differentiable.
    """

    motion: Callable[[Any], Pose]

    rows: ClassVar[int] = 6
    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        motion: Callable[[Any], Pose],
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        axis: Vector | None = None,
        axes: Sequence[Vector] | None = None,
        orientation: Any = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
    ):
        """**Arguments:** as `AbstractJoint`.

        - `motion`: a function of the time [s] that returns the `Pose` of frame b in frame a:
          position, shape `(3,)` [m], and orientation, shape `(4,)`, of any length but 0. The arrays
          of an `eqx.Module` are parameters with derivatives.
        """
        self._connect(name, (a, b), (point, points), (axis, axes, orientation), (frame_a, frame_b))
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
