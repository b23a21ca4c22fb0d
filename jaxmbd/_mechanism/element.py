"""Elements of a mechanism: a name, and frames on bodies, two for a connector."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from .._extensible import Extensible
from .._inputs import checked
from .._types import DType
from .body import Body
from .frames import Frames, placed
from .glyphs import Glyph
from .pose import Pose


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

    def completed(self) -> "AbstractFramed":
        """The same with what follows from joints of which only the names were known before.
        Default: itself."""
        return self


_Connector = TypeVar("_Connector", bound="AbstractConnector")
_Module = TypeVar("_Module", bound=eqx.Module)


class AbstractElement(AbstractFramed):
    """An element that acts between any number of bodies.

    **Fields:** `name`: used in reports. `glyphs`: what shows it in pictures, a tuple of `Glyph`.
    """

    name: eqx.AbstractVar[str]
    glyphs: ClassVar[tuple[Glyph, ...]] = ()

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


def replaced(element: _Module, **fields: Any) -> _Module:
    """The same element, or another module, with new values of these fields. Its constructor does
    not run."""
    twin = object.__new__(type(element))
    vars(twin).update({**vars(element), **fields})
    return twin


def unnamed(connector: _Connector) -> _Connector:
    """The connector without names, so that one program serves all of its kind."""
    return replaced(connector, name="", body_a="", body_b="")


def checked_name(kind: str, name: Any) -> str:
    """Return the name of an element of the class `kind`.

    **Raises:** `ValueError` unless it is a non-empty string."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{kind} needs a name, but `name` is {name!r}.")
    return name


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
    def dtype(self) -> DType:
        """The dtype of the frames, and so of the other parameters."""
        return self.frame_a.position.dtype

    @checked
    def __init__(self, name: str, a: Body | str, b: Body | str, **frames: Unpack[Frames]):
        """**Arguments:** the fields, with `frames` as in `Frames`.

        **Raises:** `ValueError` if something is missing, given twice, or not a unit vector.
        """
        self._connect(name, a, b, frames)

    def _connect(self, name: str, a: Body | str, b: Body | str, frames: Frames) -> None:
        """Set the fields, for constructors with further arguments."""
        self.name = checked_name(type(self).__name__, name)
        what = f'{type(self).__name__} "{name}"'
        names, poses = placed(what, a, b, frames, directed=self.directed)
        self.body_a, self.body_b = names
        self.frame_a, self.frame_b = poses


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
