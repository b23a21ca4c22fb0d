"""Lower pairs, and others that hold a point to a point, line or plane."""

import math
from typing import Annotated, ClassVar, Unpack

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._compiler import to_jax
from ..._coordinates import dot
from ..._inputs import Number, Numbers, checked, not_zero, number, positive
from ..body import Body
from ..frames import Ends, Frames
from ..glyphs import Glyph
from ..relative import (
    angle,
    gimbal_angles,
    misaligned,
    offset,
    tilt,
    within_half_a_turn,
    x_axis,
    y_axis,
)
from .base import AbstractJoint, limit_pairs


class AbstractPair(AbstractJoint):
    """A joint whose rows are some of nine components of the pose of b relative to a:

    - `x`, `y`, `z`: the position of the origin of b in frame a [m];
    - `tilt_x`, `tilt_y`: the components of the axis of b normal to a's;
    - `arms`: the scalar product of the x axis of a and the y axis of b;
    - `turn_x`, `turn_y`, `turn_z`: twice the vector part of the relative quaternion.

    A subclass lists its rows in `holds`. Pairs of all kinds are evaluated together, with
    derivatives in closed form: see `pair_rows.py`.
    """

    holds: ClassVar[tuple[str, ...]]

    def constraint(self, a, b, t):
        del t
        every = {
            **dict(zip(("x", "y", "z"), offset(a, b), strict=True)),
            **dict(zip(("tilt_x", "tilt_y"), tilt(a, b), strict=True)),
            "arms": dot(x_axis(a), y_axis(b)),
            **dict(zip(("turn_x", "turn_y", "turn_z"), misaligned(a, b), strict=True)),
        }
        return jnp.stack([every[name] for name in self.holds])


class Fixed(AbstractPair):
    """The frames coincide: both bodies move as one.

    Rows: the position of b in frame a (3), twice the vector part of the relative quaternion (3).
    No freedom.
    """

    rows: ClassVar[int] = 6
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z", "turn_x", "turn_y", "turn_z")
    directed: ClassVar[bool] = False
    glyphs = (Glyph.BLOCK,)


class Revolute(AbstractPair):
    """Hinge: the origins coincide, and the axes are parallel.

    Rows: the position of b in frame a (3), the components of the axis of b normal to a's (2).
    Freedom and coordinate: the angle of b relative to a about the axis.
    """

    rows: ClassVar[int] = 5
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z", "tilt_x", "tilt_y")
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True
    glyphs = (Glyph.PIN,)

    def coordinates(self, a, b):
        return angle(a, b)[None]


class Prismatic(AbstractPair):
    """Slider: the frames stay aligned, and the origin of b stays on the axis of a.

    Rows: the position of b normal to the axis (2), twice the vector part of the relative quaternion
    (3). Freedom and coordinate: the displacement along the axis.
    """

    rows: ClassVar[int] = 5
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "turn_x", "turn_y", "turn_z")
    directed: ClassVar[bool] = True
    glyphs = (Glyph.RAIL, Glyph.SLIDER)

    def coordinates(self, a, b):
        return offset(a, b)[2:]


class Cylindrical(AbstractPair):
    """Sleeve: the axes coincide.

    Rows: the position of b normal to the axis (2), the components of the axis of b normal to that
    of a (2). Freedoms and coordinates: the displacement along and the angle about the axis.
    """

    rows: ClassVar[int] = 4
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "tilt_x", "tilt_y")
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True
    glyphs = (Glyph.RAIL, Glyph.SLEEVE)

    def coordinates(self, a, b):
        return jnp.stack([offset(a, b)[2], angle(a, b)])


class Screw(AbstractJoint):
    """The axes coincide, and b advances by `pitch` along the axis of a for each turn about it.

    Rows: the position of b normal to the axis (2), the components of the axis of b normal to that
    of a (2), and pitch / 2 pi (phi - 2 pi z / pitch), with the difference of angles wrapped to
    within half a turn (1). This holds for any number of turns, without counting them. Freedom and
    coordinate: the displacement z.
    """

    pitch: Float[Array, ""]

    rows: ClassVar[int] = 5
    directed: ClassVar[bool] = True
    glyphs = (Glyph.RAIL, Glyph.SLEEVE, Glyph.THREAD)

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        pitch: Annotated[Number, not_zero],
        limits: Annotated[Numbers, number] | None = None,
        **frames: Unpack[Frames],
    ):
        """**Arguments:** as `AbstractJoint`.

        - `pitch`: advance per turn [m], negative for a left-handed screw, not 0.
        """
        self._connect(name, a, b, frames)
        self.limits = limit_pairs(limits, self.dtype)
        self.pitch = to_jax(pitch, self.dtype)

    def constraint(self, a, b, t):
        del t
        d = offset(a, b)
        lead = self.pitch / (2 * math.pi)
        behind = within_half_a_turn(angle(a, b) - d[2] / lead)
        return jnp.concatenate([d[:2], tilt(a, b), (lead * behind)[None]])

    def coordinates(self, a, b):
        return offset(a, b)[2:]


class Planar(AbstractPair):
    """Two planes normal to the axis slide on each other.

    Rows: the position of b along the axis of a (1), the components of the axis of b normal to that
    of a (2). Freedoms and coordinates: displacements along x and y of a, angle about the axis.
    """

    rows: ClassVar[int] = 3
    holds: ClassVar[tuple[str, ...]] = ("z", "tilt_x", "tilt_y")
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True
    glyphs = (Glyph.SHEET, Glyph.PAD)

    def coordinates(self, a, b):
        return jnp.append(offset(a, b)[:2], angle(a, b))


class Spherical(AbstractPair):
    """Ball joint: the origins coincide.

    Rows: the position of b in frame a (3). Freedoms: 3 rotations. Coordinates: the gimbal angles
    alpha, beta, gamma about the x, then y, then z axis of b, R = Rx(alpha) Ry(beta) Rz(gamma) from
    b to a. The first two are the angles of a `Universal` joint.

    The angles are singular at beta = +- pi / 2, where alpha and gamma turn about the same axis. The
    joint moves through such poses as through any other, but rates and turns of alpha and gamma are
    meaningless there. Choose the `orientation` or the frames to stay away from these poses.
    """

    rows: ClassVar[int] = 3
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z")
    angles: ClassVar[int] = 3
    directed: ClassVar[bool] = False

    def coordinates(self, a, b):
        return gimbal_angles(a, b)


class PointOnLine(AbstractPair):
    """The origin of b stays on the axis of a.

    Rows: the position of b normal to the axis (2). Freedoms: 3 rotations and the displacement along
    the axis, which is the coordinate.
    """

    rows: ClassVar[int] = 2
    holds: ClassVar[tuple[str, ...]] = ("x", "y")
    directed: ClassVar[bool] = True
    glyphs = (Glyph.RAIL, Glyph.BEAD)

    def coordinates(self, a, b):
        return offset(a, b)[2:]


class PointOnPlane(AbstractPair):
    """The origin of b stays in the plane through the origin of a, normal to the axis of a.

    Row: the position of b along the axis (1). Freedoms: 3 rotations and the displacements along x
    and y of a, which are the coordinates.
    """

    rows: ClassVar[int] = 1
    holds: ClassVar[tuple[str, ...]] = ("z",)
    directed: ClassVar[bool] = True
    glyphs = (Glyph.SHEET, Glyph.BEAD)

    def coordinates(self, a, b):
        return offset(a, b)[:2]


class Distance(AbstractJoint):
    """Massless rod: the distance between the origins is `length`.

    Row: (d . d - length^2) / (2 length), with d from a to b, to first order |d| - length (1).
    Freedoms: 5.
    """

    length: Float[Array, ""]

    rows: ClassVar[int] = 1
    directed: ClassVar[bool] = False
    glyphs = (Glyph.ROD,)

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        length: Annotated[Number, positive],
        **ends: Unpack[Ends],
    ):
        """**Arguments:** as `AbstractJoint`, usually `points` (the two ends) or frames.

        - `length`: > 0 [m].
        """
        self._connect(name, a, b, Frames(**ends))
        self.limits = None
        self.length = to_jax(length, self.dtype)

    def constraint(self, a, b, t):
        del t
        d = offset(a, b)
        return ((dot(d, d) - self.length**2) / (2 * self.length))[None]
