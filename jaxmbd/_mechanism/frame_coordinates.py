"""Scalar coordinates of frames: lengths along lines, displacements, angles."""

import abc
import itertools
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import with_dtype
from .._compiler import to_jax
from .._coordinates import dot
from .._inputs import Number, Numbers, checked
from .body import Body
from .element import replaced
from .frames import names_and_frames
from .glyphs import Glyph
from .pose import Frame, Pose, Wrench
from .relative import angle, near_angle, twist, twist_axis, z_axis
from .scalar_coordinates import AbstractScalarCoordinate, about, along


class AbstractOfFrames(AbstractScalarCoordinate):
    """A scalar coordinate of frames on bodies. For a new one, write a subclass with `value`. It is
    differentiated for the rate and the directions; `rate` and `directions` in closed form make
    programs smaller.

    **Fields:** `names` of the bodies, `local` poses of the frames on them.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    local: tuple[Pose, ...]

    # The number of frames, `None` for any.
    count: ClassVar[int | None] = None

    @checked
    def __init__(self, bodies: Sequence[Body | str], frames: Sequence[Frame | None] | None = None):
        """**Arguments:** `bodies`, or their names; `frames` on them, with `None` for one or for all
        for the frame of the body itself.

        **Raises:** `ValueError` for a wrong number of bodies or frames."""
        kind = type(self).__name__
        self.names, local = names_and_frames(kind, bodies, frames)
        self.local = with_dtype(local, local[0].position.dtype)
        if self.count not in (None, len(self.names)):
            raise ValueError(f"{kind} needs {self.count} bodies, but got {list(self.names)}.")

    @property
    def bodies(self):
        return self.names

    @property
    def frames(self):
        return self.local


class PathLength(AbstractOfFrames):
    """The length of a rope along straight lines from frame to frame: sum_i |r_(i+1) - r_i| w_i.
    With two frames it is their distance.

    **Fields:** `names` of the bodies, `local` poses of the frames on them, `weights` of the parts,
    0 for a part that does not count, or `None` where all count fully.
    """

    spring_glyph = Glyph.COIL

    weights: Float[Array, " parts"] | None

    @checked
    def __init__(
        self,
        bodies: Sequence[Body | str],
        frames: Sequence[Frame | None],
        *,
        weights: Numbers | None = None,
    ):
        """**Raises:** `ValueError` for fewer than two frames and a wrong number of weights."""
        AbstractOfFrames.__init__(self, bodies, frames)
        parts = len(self.local) - 1
        self.weights = None if weights is None else to_jax(weights, self.dtype, axes=1)
        shape = (parts,) if self.weights is None else self.weights.shape
        if parts < 1 or shape != (parts,):
            raise ValueError(
                f"PathLength needs two frames or more and a weight for each of its {parts} parts, "
                f"but `weights` has shape {shape}."
            )

    def value(self, poses):
        return _sum(self._weighted([length for length, _ in self._parts(poses)]))

    def rate(self, poses, twists):
        lines = [line for _, line in self._parts(poses)]
        steps = itertools.pairwise(twists)
        rates = [dot(n, b.linear - a.linear) for n, (a, b) in zip(lines, steps, strict=True)]
        return _sum(self._weighted(rates))

    def directions(self, poses):
        lines = self._weighted([line for _, line in self._parts(poses)])
        between = [before - after for before, after in itertools.pairwise(lines)]
        return tuple(map(Wrench.of_force, (-lines[0], *between, lines[-1])))

    def pull(self, poses):
        if len(poses) > 2 or self.weights is not None:
            return None
        d = poses[1].position - poses[0].position
        return -d, d

    def _weighted(self, parts: list[Array]) -> list[Array]:
        if self.weights is None:
            return parts
        return [self.weights[i] * part for i, part in enumerate(parts)]

    def _parts(self, poses: Sequence[Pose]) -> list[tuple[Array, Array]]:
        """The length of each part, with the derivative 0 at 0, and its direction, there 0."""
        found = []
        for here, there in itertools.pairwise(poses):
            d = there.position - here.position
            square = dot(d, d)
            apart = square > 0
            length = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)
            found.append((length, jnp.where(apart, d / jnp.where(apart, length, 1.0), 0.0)))
        return found


def _sum(parts: list[Array]) -> Float[Array, ""]:
    return sum(parts[1:], parts[0])


class Displacement(AbstractOfFrames):
    """The displacement of the origin of b from that of a along the axis of a [m]. `bodies` and
    `frames` are those of a and b. The axis is the z axis."""

    count: ClassVar[int | None] = 2

    def value(self, poses):
        a, b = poses
        return dot(z_axis(a), b.position - a.position)

    def rate(self, poses, twists):
        (a, b), (twist_a, twist_b) = poses, twists
        return dot(z_axis(a), twist_b.linear - twist_a.at(b.position - a.position))

    def directions(self, poses):
        return along(z_axis(poses[0]), poses)


class AbstractAngle(AbstractOfFrames):
    """An angle [rad] by which b is turned relative to a, within half a turn of `middle` at the
    start of a simulation, which counts its turns from there. At a pose alone it is within half a
    turn of `middle`.

    **Fields:** `names`, `local`, `middle`.
    """

    middle: Float[Array, ""]

    count: ClassVar[int | None] = 2

    @checked
    def __init__(
        self,
        bodies: Sequence[Body | str],
        frames: Sequence[Frame | None] | None = None,
        *,
        middle: Number = 0.0,
    ):
        """**Arguments:** `bodies` a and b; `frames` on them, `None` for the frame of a body;
        `middle`.

        **Raises:** `ValueError` unless there are two bodies."""
        AbstractOfFrames.__init__(self, bodies, frames)
        self.middle = to_jax(middle, self.dtype)

    @abc.abstractmethod
    def of_pose(self, a: Pose, b: Pose) -> Float[Array, ""]:
        """The angle, up to whole turns."""

    @abc.abstractmethod
    def axis(self, a: Pose, b: Pose) -> Float[Array, "3"]:
        """g in world axes, with the rate g . (omega_b - omega_a)."""

    def value(self, poses):
        return near_angle(self.of_pose(*poses), self.middle)

    def rate(self, poses, twists):
        return dot(self.axis(*poses), twists[1].angular - twists[0].angular)

    def directions(self, poses):
        return about(self.axis(*poses))

    @property
    def angle_count(self):
        return 1

    def counted_angles(self, poses):
        return (self.value(poses),)

    @property
    def factors_of_angles(self):
        return to_jax(np.ones(1), self.dtype)

    def near(self, angles):
        (middle,) = angles
        return replaced(self, middle=middle)


class Angle(AbstractAngle):
    """The angle about the axis of a, from the x axis of a to that of b. The axes are taken as
    parallel, as a joint keeps them: the rate is e_a . (omega_b - omega_a)."""

    actuator_glyph = Glyph.TURN

    def of_pose(self, a, b):
        return angle(a, b)

    def axis(self, a, b):
        del b
        return z_axis(a)


class TwistAngle(AbstractAngle):
    """The twist, for axes that may tilt: the rotation about the axis e_a that remains of the
    rotation from a to b after the shortest rotation from e_a to e_b. Its rate is
    g . (omega_b - omega_a) with g = (e_a + e_b) / (1 + e_a . e_b). Opposite axes have no twist.
    Where the axes are parallel, it is the `Angle`."""

    spring_glyph = Glyph.SPIRAL

    def of_pose(self, a, b):
        return twist(a, b)

    def axis(self, a, b):
        return twist_axis(a, b)
