"""Elements of a mechanism: a name, and frames on bodies, two for a connector."""

import abc
import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from .._compiler import is_concrete, numpy_if_concrete
from .._extensible import Extensible
from .._inputs import Vector, checked, finite
from .body import GROUND, Body
from .pose import Frame, Pose, normalised, unit_quaternion


class AbstractFramed(Extensible):
    """Something with frames on any number of bodies."""

    @property
    @abc.abstractmethod
    def bodies(self) -> tuple[str, ...]:
        """Names of the bodies, one for each frame; "ground" is the world."""

    @property
    @abc.abstractmethod
    def frames(self) -> tuple[Pose, ...]:
        """Poses of the frames relative to their bodies."""


_Framed = TypeVar("_Framed", bound=AbstractFramed)


class AbstractElement(AbstractFramed):
    """An element that acts between any number of bodies.

    **Fields:** `name`: used in reports.
    """

    name: eqx.AbstractVar[str]

    @property
    def angle_count(self) -> int:
        """Number of `counted_angles`. Default: 0."""
        return 0

    def counted_angles(self, poses: Sequence[Pose]) -> tuple[Float[Array, ""], ...]:
        """The angles [rad] that a pose gives up to whole turns, where the turns matter to the
        element. A simulation counts them: it evaluates the element `near` the angles at the start
        of each step. A pure function. Default: none."""
        del poses
        return ()

    def near(self, angles: Sequence[Float[Array, ""]]) -> AbstractFramed:
        """The element whose `counted_angles` are within half a turn of these. Default: itself."""
        del angles
        return self

    @property
    def needs_turns(self) -> Bool[ArrayLike, "..."]:
        """Whether the element acts differently after a whole turn of its `counted_angles`. For
        concrete numbers a value of NumPy or Python: then turns that are not needed are not
        counted."""
        return True


def replaced(element: _Framed, **fields: Any) -> _Framed:
    """The same element with new values of these fields. Its constructor does not run."""
    twin = copy.copy(element)
    for name, value in fields.items():
        object.__setattr__(twin, name, value)
    return twin


def checked_name(kind: str, name: Any) -> str:
    """Return the name of an element of the class `kind`.

    **Raises:** `ValueError` unless it is a non-empty string."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{kind} needs a name, but `name` is {name!r}.")
    return name


def names_and_frames(
    what: str, bodies: Sequence[Body | str], frames: Sequence[Frame | None] | None
) -> tuple[tuple[str, ...], tuple[Pose, ...]]:
    """Names of the bodies, and frames on them, of an element between any number of bodies. `None`,
    for all frames or for one, is the frame of the body itself.

    **Raises:** `ValueError`, which calls the element `what`, for no bodies or only the ground, and
    for a wrong number of frames."""
    if isinstance(bodies, str | Body):
        raise ValueError(f"{what} needs a sequence of bodies, but `bodies` is {bodies!r}.")
    for body in bodies:
        if not isinstance(body, Body) and not (isinstance(body, str) and body):
            raise ValueError(
                f'{what} needs bodies, given as `Body` or by name, or "{GROUND}", but got {body!r}.'
            )
    names = tuple(body.name if isinstance(body, Body) else body for body in bodies)
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


def dtype_of(bodies: Iterable[Body | str], frames: Iterable[Pose | None] = ()) -> Any:
    """Dtype of the given bodies and frames, or JAX's default."""
    known = [body.pose.position.dtype for body in bodies if isinstance(body, Body)]
    known += [frame.position.dtype for frame in frames if frame is not None]
    return jnp.result_type(*known) if known else jnp.result_type(float)


def check_rows(what: str, fn: Any, *arguments: Any) -> None:
    """**Raises:** `ValueError` unless `fn`, a function of the user, returns an array of rows."""
    if not callable(fn):
        raise ValueError(f"{what} must be a function, but is {fn!r}.")
    rows = eqx.filter_eval_shape(fn, *arguments)
    if not isinstance(rows, jax.ShapeDtypeStruct) or not jnp.issubdtype(rows.dtype, jnp.floating):
        raise ValueError(
            f"{what} must return one floating-point array of rows, but returns {rows}. Use "
            "`jnp.stack` or `jnp.concatenate`."
        )


def rows_of(fn: Callable[..., Any] | None, poses: tuple[Pose, ...], *rest: Any) -> Array:
    """Rows returned by a function of the user; none if it is `None`."""
    dtype = poses[0].position.dtype
    return jnp.zeros(0, dtype) if fn is None else jnp.ravel(jnp.asarray(fn(poses, *rest), dtype))


class AbstractConnector(AbstractElement):
    """A named connection of a frame on body a with a frame on body b. The z axis of the frames is
    the axis of the connection.

    **Fields:**

    - `name`: used in reports.
    - `body_a`, `body_b`: names of the bodies.
    - `frame_a`, `frame_b`: poses of the frames relative to their bodies.
    """

    name: str = eqx.field(static=True)
    body_a: str = eqx.field(static=True)
    body_b: str = eqx.field(static=True)
    frame_a: Pose
    frame_b: Pose

    # Whether the connection has an axis, which must then be given.
    directed: eqx.AbstractClassVar[bool]

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.body_a, self.body_b

    @property
    def frames(self) -> tuple[Pose, ...]:
        return self.frame_a, self.frame_b

    @property
    def dtype(self) -> Any:
        """The dtype of the frames, and so of the other parameters."""
        return self.frame_a.position.dtype

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        axis: Vector | None = None,
        axes: Sequence[Vector] | None = None,
        orientation: Any = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
    ):
        """Give the frames in one of two ways:

        - Both at once, in world axes, with the bodies where they are now (`Body.pose`): the common
          `point` [m], or the two `points` of a and b; and the unit `axis`, the two `axes` of a and
          b, or the whole `orientation` (unit quaternion or rotation matrix, whose third axis is
          `axis`). Then `a` and `b` are bodies or "ground".
        - One by one, relative to the bodies: `frame_a` and `frame_b`. Then names are enough.

        **Raises:** `ValueError` if something is missing, given twice, or not a unit vector.
        """
        self._connect(name, (a, b), (point, points), (axis, axes, orientation), (frame_a, frame_b))

    def _connect(
        self,
        name: str,
        bodies: tuple[Body | str, Body | str],
        places: tuple[Any, Any],
        directions: tuple[Any, Any, Any],
        frames: tuple[Pose | None, Pose | None],
    ) -> None:
        """Set the fields, for constructors with further arguments. The last three arguments are
        (`point`, `points`), (`axis`, `axes`, `orientation`) and (`frame_a`, `frame_b`)."""
        (a, b), (point, points), (axis, axes, orientation) = bodies, places, directions
        frame_a, frame_b = frames
        kind = type(self).__name__
        self.name = checked_name(kind, name)
        self.body_a, self.body_b = _name_of(a, name), _name_of(b, name)
        if self.body_a == self.body_b:
            raise ValueError(
                f'{kind} "{name}" must connect two bodies, but both are "{self.body_a}".'
            )
        given = [frame_a is not None or frame_b is not None, point is not None, points is not None]
        if sum(given) != 1 or (frame_a is None) != (frame_b is None):
            raise ValueError(
                f'{kind} "{name}" needs one of `point` and `points` (with `axis` or '
                "`orientation`), in the world, or both `frame_a` and `frame_b`, relative to the "
                "bodies."
            )
        count = sum(x is not None for x in directions)
        if count > 1:
            raise ValueError(f'{kind} "{name}" needs one of `axis`, `axes` and `orientation`.')
        if frame_a is not None and frame_b is not None:
            if count:
                raise ValueError(
                    f'{kind} "{name}" has frames, whose z axis is its axis: `axis`, `axes` and '
                    "`orientation` say it twice."
                )
            self.frame_a, self.frame_b = frame_a, frame_b
            return
        if self.directed and not count:
            raise ValueError(f'{kind} "{name}" has an axis: give `axis` or `orientation`.')
        dtype = dtype_of((a, b))
        at_a, at_b = (point, point) if points is None else pair_of(name, "points", points)
        along_a, along_b = (axis, axis) if axes is None else pair_of(name, "axes", axes)
        world_a = Pose(_point(name, at_a, dtype), _orientation(name, along_a, orientation, dtype))
        world_b = Pose(_point(name, at_b, dtype), _orientation(name, along_b, orientation, dtype))
        self.frame_a = _pose_of(a, name, world_a).relative(world_a)
        self.frame_b = _pose_of(b, name, world_b).relative(world_b)


def unit_vector(what: str, value: Any, dtype: Any) -> Float[Array, "3"]:
    """Return a unit vector. **Raises:** `ValueError`, beginning with `what`, unless |value| = 1, if
    known."""
    value = finite(what, value, dtype, (3,))
    if is_concrete(value) and not abs(np.linalg.norm(np.asarray(value)) - 1) < 1e-5:
        raise ValueError(
            f"{what} must be a unit vector, but {np.asarray(value).tolist()} has length "
            f"{np.linalg.norm(np.asarray(value)):.6g}. Divide by it."
        )
    return normalised(value)


def orientation_along(axis: Float[Array, "3"]) -> Float[Array, "4"]:
    """Return the shortest rotation of the z axis into the unit vector `axis`. If `axis` points
    downwards, it is half a turn about x and then the shortest rotation from -z."""
    xp = numpy_if_concrete(axis)
    x, y, z = xp.asarray(axis)
    down = z < 0
    s = 1 + abs(z)  # 2 cos^2 of half the angle, at least 1
    o = xp.zeros_like(s)
    # (s, -y, x, 0) turns z into the axis. Below, (s, y, -x, 0) (0, 1, 0, 0) = (-y, s, 0, x) does.
    p = xp.where(down, xp.stack([-y, s, o, x]), xp.stack([s, -y, x, o]))
    return jnp.asarray(p / xp.sqrt(2 * s), axis.dtype)


def _name_of(body: Body | str, connector: str) -> str:
    if isinstance(body, Body):
        return body.name
    if isinstance(body, str) and body:
        return body
    raise ValueError(
        f'"{connector}" must connect bodies, given as `Body` or by name, or "{GROUND}", but got '
        f"{body!r}."
    )


def _pose_of(body: Body | str, connector: str, like: Pose) -> Pose:
    if isinstance(body, Body):
        return body.pose
    if body != GROUND:
        raise ValueError(
            f'"{connector}" is given in the world, so where "{body}" is must be known: give the '
            "`Body` instead of its name, or `frame_a` and `frame_b`."
        )
    return Pose.identity(like.position.dtype)


def pair_of(name: str, argument: str, pair: Any) -> tuple[Any, Any]:
    """Return the two members of `pair`. **Raises:** `ValueError` unless there are two."""
    if len(pair) != 2:
        raise ValueError(
            f'`{argument}` of "{name}" must be two, one of a and one of b, but are {len(pair)}.'
        )
    return pair[0], pair[1]


def _point(name: str, point: Any, dtype: Any) -> Float[Array, "3"]:
    return finite(f'`point` of "{name}"', point, dtype, (3,))


def _orientation(name: str, axis: Any, orientation: Any, dtype: Any) -> Float[Array, "4"]:
    if orientation is not None:
        return unit_quaternion(f'`orientation` of "{name}"', orientation, dtype)
    axis = (0.0, 0.0, 1.0) if axis is None else axis
    return orientation_along(unit_vector(f'`axis` of "{name}"', axis, dtype))


class Groups:
    """Connected groups of bodies, grown joint by joint (union-find)."""

    def __init__(self):
        self._above: dict[str, str] = {}

    def join(self, a: str, b: str) -> bool:
        """Connect two bodies. Return whether they were apart, so that this closes no loop."""
        a, b = self._root(a), self._root(b)
        if a != b:
            self._above[b] = a
        return a != b

    def _root(self, name: str) -> str:
        while name in self._above:
            name = self._above[name]
        return name
