"""Force elements: their bases, and `Force` by a function."""

import abc
from collections.abc import Callable, Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..._coordinates import dot
from ..._inputs import checked
from ..._types import RealScalarLike
from ..body import Body
from ..element import AbstractConnector, AbstractElement, checked_name
from ..frames import names_and_frames
from ..glyphs import Glyph
from ..pose import Frame, Pose, Twist, Wrench
from .signal import as_tree


class AbstractForceElement(AbstractElement):
    """Forces and torques on frames of any number of bodies, the base of all forces of a
    `Mechanism`. For action and reaction between two bodies, `AbstractForce` is the simpler base.

    An element may have states of its own, z' = internal(poses, twists, t, u, z), such as the
    current of a motor: name them in `internal_names`, and write `internal` and `initial_internal`.
    """

    glyphs = (Glyph.PULL,)
    internal_names: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def wrenches(
        self, poses: tuple[Pose, ...], twists: tuple[Twist, ...], t: RealScalarLike, u: PyTree
    ) -> tuple[Wrench, ...]:
        """A `Wrench` for each frame, at the world poses and twists of all frames, the time and the
        control (`None` without one), and with internal states also for z, the last argument. A
        pure function."""

    @property
    def initial_internal(self) -> Float[Array, " nz"]:
        """The internal states at the start of a motion whose state does not say. Default: 0."""
        return jnp.zeros(len(self.internal_names), self.frames[0].position.dtype)

    def internal(
        self,
        poses: tuple[Pose, ...],
        twists: tuple[Twist, ...],
        t: RealScalarLike,
        u: PyTree,
        z: Float[Array, " nz"],
    ) -> Float[Array, " nz"]:
        """z' of the internal states."""
        raise TypeError(
            f"`{type(self).__name__}` has `internal_names`, but no method that returns their rates."
        )

    @property
    def inertance(self) -> Float[Array, ""] | None:
        """The inertia w >= 0 [kg or kg m^2] that resists changes of `rate`. Its kinetic energy is
        w rate^2 / 2. With rate = R v, it adds w R^T R to M. Default: `None`, no inertia."""
        return None

    def rate(self, poses: tuple[Pose, ...], twists: tuple[Twist, ...]) -> Float[Array, ""]:
        """The velocity [m/s or rad/s] that `inertance` belongs to, linear in the twists."""
        del twists
        return jnp.zeros_like(poses[0].position[0])

    def power(
        self,
        poses: tuple[Pose, ...],
        twists: tuple[Twist, ...],
        t: RealScalarLike,
        u: PyTree = None,
        *z: Float[Array, " nz"],
    ) -> Float[Array, ""]:
        """The power sum_i F_i . v_i + T_i . omega_i of the element on the bodies [W]."""
        wrenches = self.wrenches(poses, twists, t, u, *z)
        parts = [
            dot(w.force, twist.linear) + dot(w.torque, twist.angular)
            for w, twist in zip(wrenches, twists, strict=True)
        ]
        return sum(parts, jnp.zeros_like(poses[0].position[0]))

    def energy(self, poses: tuple[Pose, ...], t: RealScalarLike) -> Float[Array, ""]:
        """The potential energy that the element stores [J]. Default: 0, so that all its power is
        supplied or dissipated."""
        del t
        return jnp.zeros_like(poses[0].position[0])


class AbstractForce(AbstractConnector, AbstractForceElement):
    """A force between two bodies. Give its frames as for joints; a is often "ground".

    For a new kind, write a subclass with `wrench` and with `directed`, whether it has an axis. If
    it stores energy, write `energy` too.
    """

    @abc.abstractmethod
    def wrench(
        self, a: Pose, b: Pose, twist_a: Twist, twist_b: Twist, t: RealScalarLike, u: PyTree
    ) -> Wrench:
        """The wrench on frame b, at the world poses and twists of both frames, the time and the
        control (`None` without one), and with internal states also for z, the last argument. A pure
        function. The opposite wrench acts on body a, at the same point."""

    def wrenches(self, poses, twists, t, u, *z):
        (a, b), (twist_a, twist_b) = poses, twists
        on_b = self.wrench(a, b, twist_a, twist_b, t, u, *z)
        arm = b.position - a.position
        return Wrench(-on_b.force, -on_b.torque_about(arm)), on_b


class Force(AbstractForceElement):
    """Forces and torques on any number of bodies, given by a function of yours:

        def wrenches(poses, twists, t, u):
            (satellite, station), (v_satellite, v_station) = poses, twists
            pull = k * (station.position - satellite.position)
            return (pull, jnp.zeros(3)), (-pull, jnp.zeros(3))

        mbd.Force("tether", ["satellite", "station"], wrenches)

    The function takes the tuple of world poses (`Pose`) of the frames, the tuple of twists
    (`Twist`), the time and the control (`None` without one). It returns for each frame a force [N]
    and a torque [N m] about its origin, in world axes. It must be pure. If it is an `eqx.Module`,
    its arrays are parameters of the mechanism, and functions that differ only in their arrays are
    evaluated together.

    Nothing checks that action equals reaction. The base `AbstractForce` guarantees it.

    **Fields:** `name`; `names` of the bodies; `function`; `places`: the frames relative to the
    bodies.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    function: Callable
    places: tuple[Pose, ...]

    @checked
    def __init__(
        self,
        name: str,
        bodies: Sequence[Body | str],
        function: Callable,
        *,
        frames: Sequence[Frame | None] | None = None,
    ):
        """**Arguments:**

        - `name`, `bodies` (or their names; "ground" is the world), `function`.
        - `frames`: pose of each frame relative to its body. `None` instead of one or of all stands
          for the frame of the body itself.

        **Raises:** `ValueError` for no bodies or only the ground, and for a wrong number of frames.
        At evaluation, for a function that does not return a force and a torque for each body.
        """
        self.name = checked_name("Force", name)
        what = f'Force "{name}"'
        self.names, self.places = names_and_frames(what, bodies, frames)
        if not callable(function):
            raise ValueError(f"`function` of {what} must be callable: {function!r}.")
        self.function = as_tree(function)

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.names

    @property
    def frames(self) -> tuple[Pose, ...]:
        return self.places

    def wrenches(self, poses, twists, t, u):
        dtype = poses[0].position.dtype
        returned = self.function(poses, twists, t, u)
        try:
            wrenches = [Wrench(*wrench) for wrench in returned]
        except TypeError as error:
            raise self._error(f"returned {returned}") from error
        wrenches = [Wrench(*(jnp.asarray(x, dtype) for x in wrench)) for wrench in wrenches]
        shapes = [(w.force.shape, w.torque.shape) for w in wrenches]
        if shapes != [((3,), (3,))] * len(self.names):
            raise self._error(f"returned the shapes {shapes}")
        return tuple(wrenches)

    def _error(self, what: str) -> ValueError:
        return ValueError(
            f'The function of Force "{self.name}" must return a force and a torque, shape (3,) '
            f"each, for each of the bodies {list(self.names)}, but {what}."
        )
