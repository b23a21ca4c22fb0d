"""What joints and forces have in common: a name, and a frame on each of their bodies."""

import abc
import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from .._extensible import Extensible
from .body import GROUND, Body
from .pose import Frame, Pose


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
