"""Joints of several axes in a row."""

import itertools
from collections.abc import Sequence
from typing import Annotated, ClassVar, Unpack

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._compiler import as_one_program, refuted
from ..._coordinates import (
    components,
    cross,
    dot,
    quaternion_conjugate,
    quaternion_from_matrix,
    quaternion_log,
    quaternion_product,
    quaternion_rotate,
)
from ..._inputs import Numbers, Shape, Vector, checked, finite, number
from ..._types import DType
from ..body import Body
from ..collisions import perpendicular
from ..frames import Ends, Frames, dtype_of, pair_of, unit_vector
from ..glyphs import Glyph
from ..pose import Frame
from ..relative import misaligned, polar_angle, x_axis, y_axis
from .base import AbstractJoint, limit_pairs
from .pairs import AbstractPair


class Universal(AbstractPair):
    """Hooke's joint: the origins coincide, and the two arms of the cross, the x axis of a and the
    y axis of b, stay at right angles.

    Rows: the position of b in frame a (3), x_a . y_b (1). Freedoms and coordinates: the angle of
    the cross about x_a, then the angle of b about y_b.
    """

    rows: ClassVar[int] = 4
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z", "arms")
    angles: ClassVar[int] = 2
    directed: ClassVar[bool] = False
    glyphs = (Glyph.CROSS,)

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        axes: Sequence[Vector] | None = None,
        orientation: Numbers | None = None,
        limits: Annotated[Numbers, number] | None = None,
        **ends: Unpack[Ends],
    ):
        """**Arguments:** as `AbstractJoint`, except

        - `axes`: the two arms of the cross in the world, at right angles. The cross turns in a
          about the first, and b turns on the cross about the second;
        - or `orientation`, whose x and y axes are the two arms.

        **Raises:** `ValueError` for a joint in the world without either, and for axes that are not
        at right angles.
        """
        framed = ends.get("frame_a") is not None
        if axes is None and orientation is None and not framed:
            raise ValueError(
                f'Universal "{name}" turns about two axes: give `axes`, the arms of the cross on a '
                "and on b, or an `orientation` whose x and y axes they are."
            )
        if axes is not None:
            if orientation is not None or framed:
                raise ValueError(
                    f'Universal "{name}" needs one of `axes`, `orientation` and frames: together '
                    "they say it twice."
                )
            orientation = _arms(name, axes, dtype_of((a, b)))
        self._connect(name, a, b, Frames(**ends, orientation=orientation))
        self.limits = limit_pairs(limits, self.dtype)

    def coordinates(self, a, b):
        _, cos_first, sin_first = a.local_direction(y_axis(b))
        cos_second, _, sin_second = b.local_direction(x_axis(a))
        return jnp.stack([polar_angle(cos_first, sin_first), polar_angle(cos_second, sin_second)])


def _arms(name: str, axes: Sequence[Vector], dtype: DType) -> Float[Array, "4"]:
    """The orientation whose x and y axes are `axes`."""
    what = f'`axes` of Universal "{name}"'
    x, y = (unit_vector(what, axis, dtype) for axis in pair_of(what, axes))
    if refuted(lambda x, y: abs(x @ y) < 1e-5, x, y):
        angle = np.degrees(np.arccos(np.clip(np.asarray(x) @ np.asarray(y), -1, 1)))
        raise ValueError(
            f"{what} must be at right angles, as the arms of the cross are, but are at "
            f"{angle:.6g} degrees."
        )
    return _orientation(x, y)


@as_one_program
def _orientation(x: Array, y: Array) -> Float[Array, "4"]:
    y = y - dot(x, y) * x
    y = y / jnp.sqrt(dot(y, y))
    return quaternion_from_matrix(jnp.stack([x, y, cross(x, y)], axis=1))


class ConstantVelocity(AbstractPair):
    """Homokinetic joint (Rzeppa, tripod): the origins coincide, and both shafts turn equally fast
    at any bend between them. With a `Universal` joint they do not.

    The rotation of b relative to a is about an axis normal to both shafts, as if they were mirror
    images in the plane that bisects their angle. So the relative quaternion p has no component
    along the shafts. At a constant bend beta, this axis turns at the rate -omega_a in frame a and
    -omega_b in frame b. It has the same components in both, so omega_a = omega_b.

    Rows: the position of b in frame a (3), 2 p_z (1). Freedoms and coordinates: the bend about the
    x and y axes, as a rotation vector. The joint is singular at a bend of half a turn.
    """

    rows: ClassVar[int] = 4
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z", "turn_z")
    angles: ClassVar[int] = 2
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        p = quaternion_product(quaternion_conjugate(a.orientation), b.orientation)
        return quaternion_log(p)[:2]


# Axes of consecutive turns must be this far from parallel: the sine of their angle.
_APART = 1e-3


class Serial(AbstractJoint):
    """Several joints in series without bodies between them: b slides along up to three directions
    fixed in a, and then turns about up to three axes. Each axis is carried along by the turns
    before it.

    With all coordinates 0 the frames coincide. The pose of b in a is then

        Trans(sum_i x_i s_i) Turn(c_1, e_1, phi_1) Turn(c_2, e_2, phi_2) Turn(c_3, e_3, phi_3),

    where Turn(c, e, phi) turns by phi about the axis e through the point c. A hip of three hinges,
    a planar robot on two slides and a hinge, and axes that do not meet are all of this kind. For
    one axis, and for two axes that meet at right angles, prefer `Revolute`, `Prismatic` and
    `Universal`.

    Rows: the position of b minus the one that the angles say, normal to the slides (3 - slides),
    and the rotations that the axes do not allow (3 - turns). Freedoms and coordinates: the
    displacements, then the angles.

    With three turns the second angle is on the branch that contains 0. At its ends, where the axes
    e_1 and e_3 are parallel, the first and third angles are not unique, as for all Euler angles.
    The joint moves through such poses, but forces along the angles are meaningless there, and so
    are the rows if the axes do not meet.

    **Fields:**

    - `slides`: s_i, shape `(slides, 3)`, and `axes`: e_i, `(turns, 3)`, unit vectors.
    - `anchors`: c_i, shape `(turns, 3)` [m], or `None` if all axes meet at the origin.
    """

    slides: Float[Array, "slides 3"]
    axes: Float[Array, "turns 3"]
    anchors: Float[Array, "turns 3"] | None

    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        slides: Annotated[Numbers, Shape(["slides", 3])] = np.zeros((0, 3)),
        axes: Annotated[Numbers, Shape(["turns", 3])] = np.zeros((0, 3)),
        anchors: Annotated[Numbers, Shape(["turns", 3])] | None = None,
        frame_a: Frame,
        frame_b: Frame,
        limits: Annotated[Numbers, number] | None = None,
    ):
        """**Arguments:** `slides`, `axes` and `anchors` in frame a; by default all axes meet at the
        origin. The others as in `AbstractJoint`.

        **Raises:** `ValueError` for more than three slides or turns, for dependent slides, and for
        consecutive axes that are parallel.
        """
        self._connect(name, a, b, Frames(frame_a=frame_a, frame_b=frame_b))
        what = f'Serial "{name}"'
        slides, axes = (_unit_rows(what, x) for x in (slides, axes))
        if len(slides) > 3 or len(axes) > 3 or len(slides) + len(axes) == 0:
            raise ValueError(
                f"{what} needs one to three `slides`, one to three `axes`, or both, but has "
                f"{len(slides)} and {len(axes)}."
            )
        if len(slides) and np.linalg.matrix_rank(slides, tol=_APART) < len(slides):
            raise ValueError(f"{what} has dependent `slides`: {slides.tolist()}.")
        for first, second in itertools.pairwise(axes):
            if np.linalg.norm(np.cross(first, second)) < _APART:
                raise ValueError(
                    f"{what} has two consecutive parallel `axes`, {first.tolist()} and "
                    f"{second.tolist()}: their angles cannot be told apart."
                )
        self.anchors = None
        if anchors is not None:
            self.anchors = finite(f"`anchors` of {what}", anchors, self.dtype, axes.shape)
        self.slides = finite(f"`slides` of {what}", slides, self.dtype, None)
        self.axes = finite(f"`axes` of {what}", axes, self.dtype, None)
        self.limits = limit_pairs(limits, self.dtype)

    @property
    def rows(self) -> int:
        return 6 - self.slides.shape[0] - self.axes.shape[0]

    @property
    def angles(self) -> int:
        return self.axes.shape[0]

    def constraint(self, a, b, t):
        del t
        relative = a.relative(b)
        phi = self._angles(relative.orientation)
        across, _ = _across_and_along(components(self.slides), self.dtype)
        rest = relative.position - self._shift(phi)
        found = [dot(n, rest)[None] for n in across]
        return jnp.concatenate([*found, self._turned_aside(a, b, relative.orientation)])

    def coordinates(self, a, b):
        relative = a.relative(b)
        phi = self._angles(relative.orientation)
        _, along = _across_and_along(components(self.slides), self.dtype)
        rest = relative.position - self._shift(phi)
        return jnp.stack([*(dot(s, rest) for s in along), *phi])

    def rates(self, a, b, twist_a, twist_b):
        # In closed form where all axes meet: derivatives of the angles take long to compile.
        if self.anchors is not None:
            return AbstractJoint.rates(self, a, b, twist_a, twist_b)
        relative = a.relative(b)
        carried, p = [], None
        for axis, angle in zip(
            components(self.axes), self._angles(relative.orientation), strict=True
        ):
            carried.append(axis if p is None else quaternion_rotate(p, axis))
            turn = _turn(axis, angle)
            p = turn if p is None else quaternion_product(p, turn)
        omega = a.local_direction(twist_b.angular - twist_a.angular)
        velocity = a.local_direction(twist_b.linear - twist_a.at(b.position - a.position))
        _, along = _across_and_along(components(self.slides), self.dtype)
        _, about = _across_and_along(carried, self.dtype)
        return jnp.stack([*(dot(s, velocity) for s in along), *(dot(e, omega) for e in about)])

    def _shift(self, phi: list[Array]) -> Float[Array, "3"]:
        """The displacement by turns about axes that do not pass through the origin."""
        position = jnp.zeros(3, self.dtype)
        if self.anchors is None:
            return position
        for axis, anchor, angle in reversed(
            list(zip(components(self.axes), components(self.anchors), phi, strict=True))
        ):
            position = anchor + _turned(axis, angle, position - anchor)
        return position

    def _turned_aside(self, a, b, p: Float[Array, "4"]) -> Array:
        """The rotations from a to b that the axes do not allow, 0 where the joint is closed."""
        axes = components(self.axes)
        if len(axes) == 0:
            return misaligned(a, b)
        if len(axes) == 1:
            (e,) = axes
            turned, first = quaternion_rotate(p, e), perpendicular(e)
            return jnp.stack([dot(first, turned), dot(cross(e, first), turned)])
        if len(axes) == 2:
            e, f = axes
            return (dot(e, quaternion_rotate(p, f)) - dot(e, f))[None]
        return jnp.zeros(0, self.dtype)

    def _angles(self, p: Float[Array, "4"]) -> list[Array]:
        """The angles of the rotation p = Turn(e_1, phi_1) Turn(e_2, phi_2) Turn(e_3, phi_3)."""
        axes = components(self.axes)
        if len(axes) == 0:
            return []
        if len(axes) == 1:
            (e,) = axes
            across = perpendicular(e)
            return [_angle_about(e, across, quaternion_rotate(p, across))]
        if len(axes) == 2:
            e, f = axes
            first = _angle_about(e, f, quaternion_rotate(p, f))
            return [first, -_angle_about(f, e, quaternion_rotate(quaternion_conjugate(p), e))]
        e, f, g = axes
        last = quaternion_rotate(p, g)
        # e . last = e . Turn(f, phi_2) g = along + size cos(phi_2 - phase).
        along = dot(e, f) * dot(f, g)
        cosine, sine = dot(e, g) - along, dot(e, cross(f, g))
        size, phase = jnp.sqrt(cosine * cosine + sine * sine), polar_angle(cosine, sine)
        c = jnp.clip((dot(e, last) - along) / size, -1.0, 1.0)
        rest = 1 - c * c
        s = jnp.where(rest > 0, jnp.sqrt(jnp.where(rest > 0, rest, 1.0)), 0.0)
        second = phase + polar_angle(c, jnp.where(phase > 0, -s, s))
        first = _angle_about(e, _turned(f, second, g), last)
        # Read again without the square root, which is inaccurate near the ends of the branch.
        second = _angle_about(f, g, _turned(e, -first, last))
        back = quaternion_product(
            quaternion_conjugate(_turn(f, second)),
            quaternion_product(quaternion_conjugate(_turn(e, first)), p),
        )
        across = perpendicular(g)
        return [first, second, _angle_about(g, across, quaternion_rotate(back, across))]


def _across_and_along(vectors: list[Array], dtype: DType) -> tuple[list[Array], list[Array]]:
    """Unit vectors normal to up to three vectors, and the dual vectors: a sum of the vectors has
    the coefficients that its scalar products with the dual vectors give."""
    if len(vectors) == 0:
        return [jnp.asarray(e, dtype) for e in np.eye(3)], []
    if len(vectors) == 1:
        (s,) = vectors
        first = perpendicular(s)
        return [first, cross(s, first)], [s]
    if len(vectors) == 2:
        r, s = vectors
        n = cross(r, s)
        n2 = dot(n, n)
        return [n / jnp.sqrt(n2)], [cross(s, n) / n2, cross(n, r) / n2]
    r, s, t = vectors
    volume = dot(r, cross(s, t))
    # Where the axes are in a plane the coefficients are not unique.
    volume = jnp.where(volume == 0, jnp.finfo(volume.dtype).eps, volume)
    return [], [cross(s, t) / volume, cross(t, r) / volume, cross(r, s) / volume]


def _turn(axis: Float[Array, "3"], angle: Float[Array, ""]) -> Float[Array, "4"]:
    return jnp.concatenate([jnp.cos(angle / 2)[None], jnp.sin(angle / 2) * axis])


def _turned(axis, angle, r) -> Float[Array, "3"]:
    """r turned by the angle about the axis (Rodrigues)."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return c * r + s * cross(axis, r) + (1 - c) * dot(axis, r) * axis


def _angle_about(axis, start, end) -> Float[Array, ""]:
    """The angle about the axis from the vector `start` to `end`, seen along the axis."""
    along = dot(axis, start) * dot(axis, end)
    return polar_angle(dot(start, end) - along, dot(axis, cross(start, end)))


def _unit_rows(what: str, rows: Numbers) -> np.ndarray:
    rows = np.asarray(rows, float)
    lengths = np.linalg.norm(rows, axis=1)
    if np.any(lengths < 1e-12):
        raise ValueError(f"{what} needs directions other than 0, but has {rows.tolist()}.")
    return rows / lengths[:, None]
