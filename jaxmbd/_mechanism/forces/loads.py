"""Forces on one body."""

import abc
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..._compiler import to_jax
from ..._coordinates import dot
from ..._inputs import Number, Numbers, checked, finite, not_negative
from ..._types import DType, RealScalarLike
from ..body import GROUND, Body
from ..element import checked_name
from ..frames import dtype_of, name_of
from ..pose import Frame, Pose, Twist
from .base import AbstractForceElement, Wrench
from .signal import AbstractSignal, SignalLike, as_signal, read


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
        self,
        name: str,
        body: Body | str,
        *,
        point: Numbers | None = None,
        frame: Frame | None = None,
    ):
        """**Arguments:** the `body`, and the place on it in one of three ways:

        - `point` [m], in world axes, at the present pose of the body, which must be a `Body`;
        - `frame`, relative to the body, which also turns the axes. `body` may then be a name;
        - neither: the frame of the body itself.

        **Raises:** `ValueError` for an invalid name or body, or for both `point` and `frame`.
        """
        kind = type(self).__name__
        self.name = checked_name(kind, name)
        named = name_of(body, f'{kind} "{name}"')
        if named == GROUND:
            raise ValueError(f'{kind} "{name}" must act on a body, but got the ground.')
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
    def dtype(self) -> DType:
        """The dtype of the frame and of the other parameters."""
        return self.frame.position.dtype

    @abc.abstractmethod
    def load(self, pose: Pose, twist: Twist, t: RealScalarLike, u: PyTree) -> Wrench:
        """The wrench on the frame, at its world pose and twist, the time and the control (`None`
        without one). A pure function."""

    def wrenches(self, poses, twists, t, u):
        return (self.load(poses[0], twists[0], t, u),)


def vector_signal(
    load: AbstractLoad, argument: str, value: SignalLike | None
) -> AbstractSignal | None:
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
    t: RealScalarLike,
    u: PyTree,
) -> Float[Array, "3"]:
    """World components of the sum of a vector in world axes and one in the axes of the frame."""
    total = jnp.zeros_like(pose.position)
    for axes, signal in (("world", world), ("body", body)):
        if signal is not None:
            what = f'`{argument}_{axes}` of {type(load).__name__} "{load.name}"'
            value = read(what, signal, t, u, total.dtype, (3,))
            total = total + (value if axes == "world" else pose.direction(value))
    return total


class PointForce(AbstractLoad):
    """Force at a point of a body: F = force_world + R force_body, with the orientation R of the
    frame.

    **Fields:** `force_world`, `force_body` [N]: components in world axes and in the axes of the
    frame, or `None`. The axes of the frame are the body's unless `frame` is given.
    """

    force_world: AbstractSignal | None
    force_body: AbstractSignal | None

    @checked
    def __init__(
        self,
        name: str,
        body: Body | str,
        *,
        force_world: SignalLike | None = None,
        force_body: SignalLike | None = None,
        point: Numbers | None = None,
        frame: Frame | None = None,
    ):
        """**Arguments:** the body and the point as in `AbstractLoad`. One or both of the forces,
        each a vector, a function of the time, or an `AbstractSignal` such as `FromControl`.

        **Raises:** `ValueError` if no force is given, for wrong shapes, and for entries that the
        control does not have.
        """
        AbstractLoad.__init__(self, name, body, point=point, frame=frame)
        if force_world is None and force_body is None:
            raise ValueError(f'PointForce "{name}" needs `force_world` or `force_body`.')
        self.force_world = vector_signal(self, "force_world", force_world)
        self.force_body = vector_signal(self, "force_body", force_body)

    def load(self, pose, twist, t, u):
        del twist
        force = in_world(self, "force", self.force_world, self.force_body, pose, t, u)
        return Wrench(force, jnp.zeros_like(force))


class Torque(AbstractLoad):
    """Torque on a body: T = torque_world + R torque_body, with the orientation R of the frame.

    **Fields:** `torque_world`, `torque_body` [N m]: components in world axes and in the axes of the
    frame, or `None`. The axes of the frame are the body's unless `frame` is given.
    """

    torque_world: AbstractSignal | None
    torque_body: AbstractSignal | None

    @checked
    def __init__(
        self,
        name: str,
        body: Body | str,
        *,
        torque_world: SignalLike | None = None,
        torque_body: SignalLike | None = None,
        frame: Frame | None = None,
    ):
        """**Arguments:** the body. One or both of the torques, each a vector, a function of the
        time, or an `AbstractSignal` such as `FromControl`.

        **Raises:** `ValueError` if no torque is given, for wrong shapes, and for entries that the
        control does not have.
        """
        AbstractLoad.__init__(self, name, body, frame=frame)
        if torque_world is None and torque_body is None:
            raise ValueError(f'Torque "{name}" needs `torque_world` or `torque_body`.')
        self.torque_world = vector_signal(self, "torque_world", torque_world)
        self.torque_body = vector_signal(self, "torque_body", torque_body)

    def load(self, pose, twist, t, u):
        del twist
        torque = in_world(self, "torque", self.torque_world, self.torque_body, pose, t, u)
        return Wrench.of_torque(torque)


class Drag(AbstractLoad):
    """Resistance of a medium with the velocity `wind`. The force and the torque on a body are

        F = -(linear + quadratic |w|) w,    w = v - wind,
        T = -angular omega.

    F acts at the point with the velocity v, by default the centre of mass.

    **Fields:** `linear` [N s/m], `quadratic` [N s^2/m^2] (density times drag coefficient times area
    over 2), `angular` [N m s/rad], `wind` [m/s]; `at_center`: whether the point is the centre of
    mass because none was given.
    """

    linear: Float[Array, ""]
    quadratic: Float[Array, ""]
    angular: Float[Array, ""]
    wind: AbstractSignal
    at_center: bool = eqx.field(static=True)

    @checked
    def __init__(
        self,
        name: str,
        body: Body | str,
        *,
        linear: Annotated[Number, not_negative] = 0.0,
        quadratic: Annotated[Number, not_negative] = 0.0,
        angular: Annotated[Number, not_negative] = 0.0,
        wind: SignalLike = (0.0, 0.0, 0.0),
        point: Numbers | None = None,
        frame: Frame | None = None,
    ):
        """**Arguments:** the fields; the body and the point as in `AbstractLoad`. Without `point`
        and `frame`, the point is the centre of mass of a `Body`. `wind` may be a vector in world
        axes, a function of the time, or an `AbstractSignal`.

        **Raises:** `ValueError` for a negative coefficient.
        """
        self.at_center = False
        if isinstance(body, Body) and point is None and frame is None:
            self.at_center = True
            point = body.pose.point(body.inertia.center)
        AbstractLoad.__init__(self, name, body, point=point, frame=frame)
        of = f'of Drag "{name}"'
        self.linear = to_jax(linear, self.dtype)
        self.quadratic = to_jax(quadratic, self.dtype)
        self.angular = to_jax(angular, self.dtype)
        self.wind = as_signal(f"`wind` {of}", wind, self.dtype, (3,))

    def load(self, pose, twist, t, u):
        del pose
        what = f'`wind` of Drag "{self.name}"'
        w = twist.linear - read(what, self.wind, t, u, twist.linear.dtype, (3,))
        w2 = dot(w, w)
        moving = w2 > 0  # |w| w has the derivative 0 at rest
        speed = jnp.where(moving, jnp.sqrt(jnp.where(moving, w2, 1.0)), 0.0)
        return Wrench(-(self.linear + self.quadratic * speed) * w, -self.angular * twist.angular)
