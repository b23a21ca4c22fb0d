"""Forces on one body."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._inputs import checked, finite
from ..body import GROUND, Body
from ..element import checked_name, dtype_of
from ..pose import Frame, Pose, Twist
from .base import AbstractForceElement, Wrench
from .signal import AbstractSignal, as_signal, read


class AbstractLoad(AbstractForceElement):
    """An external force on a frame of one body. Its reaction is not part of the mechanism.

    For a new kind, write a subclass with `load`.

    **Fields:** `name`; `names`: the name of the body; `frame`: pose of the frame relative to it.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    frame: Pose

    @checked
    def __init__(
        self, name: str, body: Body | str, *, point: Any = None, frame: Frame | None = None
    ):
        """**Arguments:** the `body`, and the place on it in one of three ways:

        - `point` [m], in world axes, at the present pose of the body, which must be a `Body`;
        - `frame`, relative to the body, which also turns the axes. `body` may then be a name;
        - neither: the frame of the body itself.

        **Raises:** `ValueError` for an invalid name or body, or for both `point` and `frame`.
        """
        kind = type(self).__name__
        self.name = checked_name(kind, name)
        named = body.name if isinstance(body, Body) else body
        if not isinstance(named, str) or not named or named == GROUND:
            raise ValueError(
                f'{kind} "{name}" must act on a body, given as `Body` or by name, but got {body!r}.'
            )
        if point is not None and frame is not None:
            raise ValueError(f'{kind} "{name}" needs `point` or `frame`, not both.')
        if point is not None and not isinstance(body, Body):
            raise ValueError(
                f'`point` of {kind} "{name}" is given in the world, so where "{body}" is must be '
                "known: give the `Body` instead of its name, or `frame`."
            )
        self.names = (named,)
        if frame is not None:
            self.frame = frame
            return
        dtype = dtype_of([body])
        self.frame = Pose.identity(dtype)
        if isinstance(body, Body) and point is not None:
            place = finite(f'`point` of {kind} "{name}"', point, dtype, (3,))
            self.frame = self.frame._replace(position=body.pose.local_point(place))

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.names

    @property
    def frames(self) -> tuple[Pose, ...]:
        return (self.frame,)

    @property
    def dtype(self) -> Any:
        """The dtype of the frame and of the other parameters."""
        return self.frame.position.dtype

    @abc.abstractmethod
    def load(self, pose: Pose, twist: Twist, t: Any, u: Any) -> Wrench:
        """The wrench on the frame, at its world pose and twist, the time and the control (`None`
        without one). A pure function."""

    def wrenches(self, poses, twists, t, u):
        return (self.load(poses[0], twists[0], t, u),)


def vector_signal(load: AbstractLoad, argument: str, value: Any) -> AbstractSignal | None:
    """A vector as a signal, or `None` for `None`."""
    if value is None:
        return None
    what = f'`{argument}` of {type(load).__name__} "{load.name}"'
    return as_signal(what, value, load.dtype, (3,))


def in_world(
    load: AbstractLoad,
    argument: str,
    world: AbstractSignal | None,
    body: AbstractSignal | None,
    pose: Pose,
    t: Any,
    u: Any,
) -> Float[Array, "3"]:
    """World components of the sum of a vector in world axes and one in the axes of the frame."""
    total = jnp.zeros_like(pose.position)
    for axes, signal in (("world", world), ("body", body)):
        if signal is not None:
            what = f'`{argument}_{axes}` of {type(load).__name__} "{load.name}"'
            value = read(what, signal, t, u, total.dtype, (3,))
            total = total + (value if axes == "world" else pose.direction(value))
    return total
