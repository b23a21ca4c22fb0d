"""Where elements act: names of bodies, and frames on them. Only this file knows points, axes and
orientations."""

from collections.abc import Iterable, Sequence
from typing import TypedDict, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import array_namespace, refuted
from .._coordinates import algebra
from .._inputs import Numbers, Vector, finite
from .._types import DType
from .body import GROUND, Body
from .pose import Frame, Pose, normalised, unit_quaternion

_T = TypeVar("_T")


class Ends(TypedDict, total=False):
    """The arguments that place two points, one on body a and one on body b, for connections without
    an axis: those of `Frames` without a direction."""

    point: Vector | None
    """The common point in the world [m], with the bodies where they are now."""
    points: Sequence[Vector] | None
    """Or the two points of a and b in the world [m]."""
    frame_a: Frame | None
    """Or the frames themselves, relative to the bodies: the one on a,"""
    frame_b: Frame | None
    """and the one on b."""


class Frames(Ends, total=False):
    """The arguments that place two frames, one on body a and one on body b. The z axis of a frame
    is the axis of the connection. There are two ways:

    - Both at once, in world axes, with the bodies where they are now (`Body.pose`): the common
      `point` [m], or the two `points` of a and b; and the unit `axis`, the two `axes` of a and b,
      or the whole `orientation`. Then a and b are bodies or "ground".
    - One by one, relative to the bodies: `frame_a` and `frame_b`. Then names are enough.

    A constructor takes them as `**frames: Unpack[Frames]`.
    """

    axis: Vector | None
    """The common axis in the world, a unit vector."""
    axes: Sequence[Vector] | None
    """Or the two axes of a and b."""
    orientation: Numbers | None
    """Or the orientation of both frames: a unit quaternion or a rotation matrix, whose third axis
    is the axis."""


def placed(
    what: str, a: Body | str, b: Body | str, frames: Frames, *, directed: bool
) -> tuple[tuple[str, str], tuple[Pose, Pose]]:
    """Names of the bodies a and b, and the frames on them, of an element between two bodies. If it
    is `directed`, it has an axis.

    **Raises:** `ValueError`, which calls the element `what`, if something is missing, given twice,
    or not a unit vector."""
    names = name_of(a, what), name_of(b, what)
    if names[0] == names[1]:
        raise ValueError(f'{what} must connect two bodies, but both are "{names[0]}".')
    point, points = frames.get("point"), frames.get("points")
    axis, axes, orientation = (frames.get(x) for x in ("axis", "axes", "orientation"))
    frame_a, frame_b = frames.get("frame_a"), frames.get("frame_b")
    given = [frame_a is not None or frame_b is not None, point is not None, points is not None]
    if sum(given) != 1 or (frame_a is None) != (frame_b is None):
        raise ValueError(
            f"{what} needs one of `point` and `points` (with `axis` or `orientation`), in the "
            "world, or both `frame_a` and `frame_b`, relative to the bodies."
        )
    count = sum(x is not None for x in (axis, axes, orientation))
    if count > 1:
        raise ValueError(f"{what} needs one of `axis`, `axes` and `orientation`.")
    if frame_a is not None and frame_b is not None:
        if count:
            raise ValueError(
                f"{what} has frames, whose z axis is its axis: `axis`, `axes` and `orientation` "
                "say it twice."
            )
        return names, (frame_a, frame_b)
    if directed and not count:
        raise ValueError(f"{what} has an axis: give `axis` or `orientation`.")
    dtype = dtype_of((a, b))
    at = (point, point) if points is None else pair_of(f"`points` of {what}", points)
    along = (axis, axis) if axes is None else pair_of(f"`axes` of {what}", axes)
    world_a, world_b = (
        Pose(
            finite(f"`point` of {what}", here, dtype, (3,)),
            _orientation(what, direction, orientation, dtype),
        )
        for here, direction in zip(at, along, strict=True)
    )
    poses = _pose_of(a, what, world_a), _pose_of(b, what, world_b)
    return names, (poses[0].relative(world_a), poses[1].relative(world_b))


def names_and_frames(
    what: str, bodies: Sequence[Body | str], frames: Sequence[Frame | None] | None
) -> tuple[tuple[str, ...], tuple[Pose, ...]]:
    """Names of the bodies, and frames on them, of an element between any number of bodies. `None`,
    for all frames or for one, is the frame of the body itself.

    **Raises:** `ValueError`, which calls the element `what`, for no bodies or only the ground, and
    for a wrong number of frames."""
    if isinstance(bodies, str | Body):
        raise ValueError(f"{what} needs a sequence of bodies, but `bodies` is {bodies!r}.")
    names = tuple(name_of(body, what) for body in bodies)
    if set(names) <= {GROUND}:
        raise ValueError(f"{what} needs a body that can move, but `bodies` is {bodies!r}.")
    frames = [None] * len(names) if frames is None else list(frames)
    if len(frames) != len(names):
        raise ValueError(
            f"{what} needs one frame for each of its {len(names)} bodies, but has {len(frames)} "
            "`frames`. Use `None` for the frame of a body itself."
        )
    dtype = dtype_of(bodies, frames)
    return names, tuple(Pose.identity(dtype) if frame is None else frame for frame in frames)


def dtype_of(bodies: Iterable[Body | str], frames: Iterable[Pose | None] = ()) -> np.dtype:
    """Dtype of the given bodies and frames, or JAX's default."""
    known = [body.pose.position.dtype for body in bodies if isinstance(body, Body)]
    known += [frame.position.dtype for frame in frames if frame is not None]
    return jnp.result_type(*known) if known else jnp.result_type(float)


def unit_vector(what: str, value: Numbers, dtype: DType) -> Float[Array, "3"]:
    """Return a unit vector. **Raises:** `ValueError`, beginning with `what`, unless |value| = 1, if
    known."""
    value = finite(what, value, dtype, (3,))
    if refuted(lambda x: abs(np.linalg.norm(x) - 1) < 1e-5, value):
        raise ValueError(
            f"{what} must be a unit vector, but {np.asarray(value).tolist()} has length "
            f"{np.linalg.norm(np.asarray(value)):.6g}. Divide by it."
        )
    return normalised(value)


def orientation_along(axis: Float[Array, "3"]) -> Float[Array, "4"]:
    """Return the shortest rotation of the z axis into the unit vector `axis`. If `axis` points
    downwards, it is half a turn about x and then the shortest rotation from -z."""
    along = algebra.quaternion_along(array_namespace(axis).asarray(axis))
    return jnp.asarray(along, axis.dtype)


def name_of(body: Body | str, what: str) -> str:
    """The name of a body. **Raises:** `ValueError`, which calls the element `what`, if it is no
    body."""
    if isinstance(body, Body):
        return body.name
    if isinstance(body, str) and body:
        return body
    raise ValueError(
        f'{what} needs bodies, given as `Body` or by name, or "{GROUND}", but got {body!r}.'
    )


def _pose_of(body: Body | str, what: str, like: Pose) -> Pose:
    if isinstance(body, Body):
        return body.pose
    if body != GROUND:
        raise ValueError(
            f'{what} is given in the world, so where "{body}" is must be known: give the `Body` '
            "instead of its name, or `frame_a` and `frame_b`."
        )
    return Pose.identity(like.position.dtype)


def pair_of(what: str, pair: Sequence[_T]) -> tuple[_T, _T]:
    """Return the two members of `pair`. **Raises:** `ValueError`, beginning with `what`, unless
    there are two."""
    if len(pair) != 2:
        raise ValueError(f"{what} must be two, one of a and one of b, but are {len(pair)}.")
    return pair[0], pair[1]


def _orientation(
    what: str, axis: Vector | None, orientation: Numbers | None, dtype: DType
) -> Float[Array, "4"]:
    if orientation is not None:
        return unit_quaternion(f"`orientation` of {what}", orientation, dtype)
    axis = (0.0, 0.0, 1.0) if axis is None else axis
    return orientation_along(unit_vector(f"`axis` of {what}", axis, dtype))
