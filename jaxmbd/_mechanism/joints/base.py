"""Equations between frames on bodies: the bases of joints, and `Constraint` by a function."""

import abc
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import check_ordered
from ..._compiler import to_jax
from ..._inputs import Numbers, checked, number
from ..._types import DType, RealScalarLike
from ..body import Body
from ..element import AbstractConnector, AbstractElement, check_rows, checked_name, rows_of
from ..frames import Frames, names_and_frames
from ..glyphs import Glyph
from ..pose import Frame, Pose, Twist


class AbstractConstraint(AbstractElement):
    """Equations between frames on any number of bodies, the base of all joints of a `Mechanism`.
    For two bodies `AbstractJoint` is the simpler base. `Constraint` takes a function instead.
    """

    glyphs = (Glyph.BALL,)

    @abc.abstractmethod
    def equations(self, poses: tuple[Pose, ...], t: RealScalarLike) -> Float[Array, " rows"]:
        """A pure function: Phi at the world poses of the frames [m, or 1 for angles]."""

    def velocity_equations(
        self, poses: tuple[Pose, ...], twists: tuple[Twist, ...], t: RealScalarLike
    ) -> Float[Array, " rows"]:
        """A pure function: the nonholonomic Psi at the world poses and twists of the frames
        [m/s, rad/s]. Default: no rows."""
        del twists, t
        return jnp.zeros(0, poses[0].position.dtype)

    def count(self) -> int:
        """Number of joint coordinates. Default: 0."""
        return 0


class AbstractJoint(AbstractConnector, AbstractConstraint):
    """Equations Phi(A, B, t) = 0 between the world poses A and B of frames on the bodies a and b.
    The z axis of the frames is the axis of the joint. Fields and constructor are those of
    `AbstractConnector`, and

    - `limits`: lower and upper limit of each joint coordinate, or `None`. `limit_violation` reads
      them. The joint does not enforce them.

    For a new kind of joint, write a subclass with `constraint`, the number of its `rows`, and
    whether it is `directed`. If it has `coordinates`, give the number of `angles` among them; if it
    has `nonholonomic` equations, give the number of `velocity_rows`. Write the equations for one
    joint over components (`dot`, `cross`, sums of products, not `@`). Then all joints of the kind
    are evaluated together at the speed of hand-written code.
    """

    limits: Float[Array, "coordinates 2"] | None

    rows: eqx.AbstractClassVar[int]
    velocity_rows: ClassVar[int] = 0
    angles: ClassVar[int] = 0

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        limits: Annotated[Numbers, number] | None = None,
        **frames: Unpack[Frames],
    ):
        """**Arguments:** `frames`, those of `Frames`, which place the frames: in the world, or
        relative to the bodies.

        - `limits`: a pair (lower, upper), or a pair for each joint coordinate [m, rad]. Use an
          infinite value for no limit.

        **Raises:** `ValueError` if an argument is missing, given twice, or not a unit vector, and
        for limits that do not fit.
        """
        self._connect(name, a, b, frames)
        self.limits = limit_pairs(limits, self.dtype)

    def __check_init__(self):
        if self.limits is None:
            return
        what = f'`limits` of {type(self).__name__} "{self.name}"'
        count = self.count()
        if self.limits.shape != (count, 2):
            raise ValueError(
                f"{what} must be a pair (lower, upper) for each of its {count} joint coordinates, "
                f"but have shape {self.limits.shape}."
            )
        check_ordered(what, self.limits)

    @abc.abstractmethod
    def constraint(self, a: Pose, b: Pose, t: RealScalarLike) -> Float[Array, " rows"]:
        """A pure function: Phi at the world poses of both frames [m, or 1 for angles]."""

    def nonholonomic(
        self, a: Pose, b: Pose, twist_a: Twist, twist_b: Twist, t: RealScalarLike
    ) -> Float[Array, " rows"]:
        """A pure function: Psi at the world poses and twists of both frames [m/s, rad/s].
        Default: no rows."""
        del b, twist_a, twist_b, t
        return jnp.zeros(0, a.position.dtype)

    def coordinates(self, a: Pose, b: Pose) -> Float[Array, " coordinates"]:
        """The joint coordinates: displacements [m], then angles [rad] within half a turn.
        Default: none."""
        del b
        return jnp.zeros(0, a.position.dtype)

    def rates(
        self, a: Pose, b: Pose, twist_a: Twist, twist_b: Twist
    ) -> Float[Array, " coordinates"]:
        """Time derivatives of the joint coordinates [m/s, rad/s] at the world poses and twists of
        the two frames."""
        moving = (a.rate(twist_a), b.rate(twist_b))
        return jax.jvp(self.coordinates, (a, b), moving)[1]

    def count(self):
        return jax.eval_shape(self.coordinates, self.frame_a, self.frame_b).shape[0]

    def limit_violation(
        self, coordinates: Float[Array, "*batch coordinates"]
    ) -> Float[Array, "*batch coordinates"]:
        """How far each joint coordinate, with its turns counted, is beyond its limits [m, rad]:
        positive above the upper limit, negative below the lower one, 0 between them."""
        if self.limits is None:
            return jnp.zeros_like(coordinates)
        lower, upper = jnp.broadcast_to(
            jnp.moveaxis(self.limits, -1, 0).reshape(2, *[1] * (coordinates.ndim - 1), -1),
            (2, *coordinates.shape),
        )
        return coordinates - jnp.clip(coordinates, lower, upper)

    def equations(self, poses, t):
        a, b = poses
        return self.constraint(a, b, t)

    def velocity_equations(self, poses, twists, t):
        (a, b), (twist_a, twist_b) = poses, twists
        return self.nonholonomic(a, b, twist_a, twist_b, t)


def limit_pairs(limits: Numbers | None, dtype: DType) -> Float[Array, "coordinates 2"] | None:
    """The argument `limits` of a joint as an array."""
    return None if limits is None else to_jax(limits, dtype, axes=2)


class Constraint(AbstractConstraint):
    """Equations between any number of bodies, given by functions of yours:

        Phi = fn(poses, t) = 0,    Psi = velocity_fn(poses, twists, t) = 0.

    For instance, to keep the origins of two bodies at the same height:

        def level(poses, t):
            a, b = poses
            return a.position[2] - b.position[2]

        mbd.Constraint("level", ["left", "right"], level)

    Write the functions for one sample, and best over components (`mbd.rotations.cross`, sums of
    products, not `@`). If a function is an `eqx.Module`, its arrays are parameters with
    derivatives. Functions are compared by identity: constraints with the same function are
    evaluated together, and a function defined inside a loop is compiled in each pass.

    **Fields:**

    - `name`: its name in reports.
    - `names`: names of the bodies.
    - `local`: pose of each frame relative to its body.
    - `fn`, `velocity_fn`: the functions, or `None`.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    local: tuple[Pose, ...]
    fn: Callable | None
    velocity_fn: Callable | None

    @checked
    def __init__(
        self,
        name: str,
        bodies: Sequence[Body | str],
        fn: Callable | None,
        *,
        velocity_fn: Callable | None = None,
        frames: Sequence[Frame | None] | None = None,
    ):
        """**Arguments:**

        - `bodies`: bodies, their names, or "ground". A body may occur several times, with different
          frames.
        - `fn`: takes the tuple of world poses of the frames, and the time. It returns the holonomic
          rows, a number or a vector, zero where they hold. `None` if all rows are nonholonomic.
        - `velocity_fn`: takes the tuples of world poses and of twists of the frames, and the time.
          It returns the nonholonomic rows.
        - `frames`: pose of each frame relative to its body. `None` instead of one or of all stands
          for the frame of the body itself.

        **Raises:** `ValueError` for no bodies or only the ground, a wrong number of frames, or
        functions that do not return rows.
        """
        self.name = checked_name("Constraint", name)
        what = f'Constraint "{name}"'
        self.names, self.local = names_and_frames(what, bodies, frames)
        self.fn, self.velocity_fn = fn, velocity_fn
        if fn is None and velocity_fn is None:
            raise ValueError(f"{what} needs `fn`, `velocity_fn`, or both.")
        dtype = jnp.result_type(*(frame.position.dtype for frame in self.local))
        still = to_jax(np.zeros(3), dtype)
        twists = tuple(Twist(still, still) for _ in self.local)
        time = jax.ShapeDtypeStruct((), dtype)
        if fn is not None:
            check_rows(f"`fn` of {what}", fn, self.local, time)
        if velocity_fn is not None:
            check_rows(f"`velocity_fn` of {what}", velocity_fn, self.local, twists, time)

    @property
    def bodies(self):
        return self.names

    @property
    def frames(self):
        return self.local

    def equations(self, poses, t):
        return rows_of(self.fn, poses, t)

    def velocity_equations(self, poses, twists, t):
        return rows_of(self.velocity_fn, poses, twists, t)
