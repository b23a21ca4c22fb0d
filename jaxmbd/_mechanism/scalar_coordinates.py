"""Scalar coordinates, along which forces and limits act, and equations between them."""

import abc
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import array_namespace, is_known, picked, to_jax
from .._coordinates import components, cross, dot
from .._inputs import Number, Numbers, at_least, checked
from .._types import DType
from .element import AbstractFramed, checked_name, replaced
from .glyphs import Glyph
from .joints import (
    AbstractConstraint,
    AbstractJoint,
    JointCoordinate,
    Prismatic,
    Revolute,
    joint_coordinate,
)
from .pose import Pose, Twist, Wrench, directions
from .relative import near_angle, z_axis


class AbstractScalarCoordinate(AbstractFramed):
    """A scalar function of the world poses of frames on bodies, such as the angle of a joint or the
    length of a rope. `CoordinateSpring`, `CoordinateActuator`, `CoordinateLimit` and
    `CoordinateConstraint` act along it. In pictures `spring_glyph` and `actuator_glyph` show the
    first two."""

    spring_glyph: ClassVar[Glyph] = Glyph.PULL
    actuator_glyph: ClassVar[Glyph] = Glyph.PULL

    @abc.abstractmethod
    def value(self, poses: Sequence[Pose]) -> Float[Array, ""]:
        """The coordinate [m or rad]. A pure function."""

    def rate(self, poses: Sequence[Pose], twists: Sequence[Twist]) -> Float[Array, ""]:
        """Its time derivative [m/s or rad/s]."""
        poses = tuple(poses)
        moving = tuple(pose.rate(twist) for pose, twist in zip(poses, twists, strict=True))
        return jax.jvp(self.value, (poses,), (moving,))[1]

    @property
    def angle_count(self) -> int:
        """Number of `counted_angles`. Default: 0."""
        return 0

    def counted_angles(self, poses: Sequence[Pose]) -> tuple[Float[Array, ""], ...]:
        """The angles [rad] in the coordinate that poses give up to whole turns. Simulations count
        their turns. Default: none."""
        del poses
        return ()

    @property
    def factors_of_angles(self) -> Float[Array, " angles"] | None:
        """The derivatives by the `counted_angles`, if they are constant. Default: `None`, unless
        there are no angles."""
        return None if self.angle_count else jnp.zeros(0, self.dtype)

    def near(self, angles: Sequence[Float[Array, ""]]) -> "AbstractScalarCoordinate":
        """The coordinate whose `counted_angles` are within half a turn of these. Default: the
        coordinate."""
        del angles
        return self

    @property
    def dtype(self) -> DType:
        """The type of its numbers."""
        return self.frames[0].position.dtype

    def directions(self, poses: Sequence[Pose]) -> tuple[Wrench, ...]:
        """The derivatives of the rate by the twists: the force and the torque on each frame that do
        the work of a unit force along the coordinate."""
        return directions(self.rate, poses)

    def pull(self, poses: Sequence[Pose]) -> tuple[Float[Array, "3"], ...] | None:
        """The coordinate times its directions, for a length, whose directions are forces: smooth
        where the length is 0 and has no direction. Default: `None`, for any other coordinate."""
        del poses
        return None


class OfJoint(AbstractScalarCoordinate):
    """A coordinate of a joint, shifted: `offset` + x. An angle is within half a turn of `middle` at
    the start of a simulation, which counts its turns from there. A function of a pose alone, such
    as `value`, takes it within half a turn of `middle`.

    Give the joint to the mechanism as well: this only reads its coordinate. In a mechanism it keeps
    the name of the joint, and reads the joint of this name there.

    **Fields:** `coordinate`, `offset`, `middle` [m or rad].
    """

    coordinate: JointCoordinate
    offset: Float[Array, ""]
    middle: Float[Array, ""]

    @checked
    def __init__(
        self,
        joint: AbstractJoint | str,
        index: Annotated[int, at_least(0)] | None = None,
        *,
        offset: Number = 0.0,
        middle: Number = 0.0,
    ):
        """**Arguments:** `joint`, or its name; `index` of the coordinate, if the joint has several;
        `offset`: its value where the coordinate of the joint is 0.

        **Raises:** `ValueError` for a joint without such a coordinate."""
        self.coordinate = joint_coordinate("OfJoint", joint, index)
        self.offset = to_jax(offset, self.coordinate.dtype)
        self.middle = to_jax(middle, self.coordinate.dtype)

    @property
    def bodies(self):
        return self.coordinate.known.bodies

    @property
    def frames(self):
        return self.coordinate.known.frames

    @property
    def dtype(self):
        return self.coordinate.dtype

    def value(self, poses):
        x = self.coordinate(poses) + self.offset
        if self.coordinate.angle:
            return near_angle(x, self.middle)
        return x

    @property
    def angle_count(self):
        return 1 if self.coordinate.angle else 0

    def counted_angles(self, poses):
        return (self.value(poses),) if self.coordinate.angle else ()

    @property
    def factors_of_angles(self):
        return to_jax(np.ones(self.angle_count), self.dtype)

    def near(self, angles):
        if not self.coordinate.angle:
            return self
        (middle,) = angles
        return replaced(self, middle=middle)

    def rate(self, poses, twists):
        """In closed form for hinges and sliders that are closed: second derivatives of their
        coordinates take long to compile."""
        (a, b), (twist_a, twist_b) = poses, twists
        if isinstance(self.coordinate.joint, Revolute):
            return dot(z_axis(a), twist_b.angular - twist_a.angular)
        if isinstance(self.coordinate.joint, Prismatic):
            return dot(z_axis(a), twist_b.linear - twist_a.at(b.position - a.position))
        return self.coordinate.rate(poses, twists)

    def directions(self, poses):
        if isinstance(self.coordinate.joint, Revolute):
            return about(z_axis(poses[0]))
        if isinstance(self.coordinate.joint, Prismatic):
            return along(z_axis(poses[0]), poses)
        return AbstractScalarCoordinate.directions(self, poses)


def about(axis: Float[Array, "3"]) -> tuple[Wrench, Wrench]:
    """A unit torque on b about an axis, and the opposite on a."""
    return Wrench.of_torque(-axis), Wrench.of_torque(axis)


def along(axis: Float[Array, "3"], poses: Sequence[Pose]) -> tuple[Wrench, Wrench]:
    """A unit force on b along an axis, and the opposite on a at the same point."""
    a, b = poses
    moment = cross(axis, b.position - a.position)
    return Wrench(-axis, moment), Wrench.of_force(axis)


class WeightedSum(AbstractScalarCoordinate):
    """A sum of coordinates with factors, such as a tendon over pulleys on several joints.

    **Fields:** `terms`, `factors`.
    """

    terms: tuple[AbstractScalarCoordinate, ...]
    factors: Float[Array, " terms"]

    @checked
    def __init__(self, terms: Sequence[AbstractScalarCoordinate], factors: Numbers):
        """**Raises:** `ValueError` unless there is one factor for each of at least one term."""
        self.terms = tuple(terms)
        self.factors = to_jax(factors, float, axes=1)
        if not terms or self.factors.shape != (len(terms),):
            raise ValueError(
                f"WeightedSum needs one of the `factors` for each of its {len(terms)} terms, but "
                f"they have shape {self.factors.shape}."
            )

    @property
    def bodies(self):
        return tuple(name for term in self.terms for name in term.bodies)

    @property
    def frames(self):
        return tuple(frame for term in self.terms for frame in term.frames)

    @property
    def dtype(self):
        return self.terms[0].dtype

    def value(self, poses):
        total = jnp.zeros_like(poses[0].position[0])
        for i, (term, own) in enumerate(self._of_terms(poses)):
            total = total + self.factors[i] * term.value(own)
        return total

    def _of_terms(self, poses):
        """Each term with its poses."""
        ends = np.cumsum([len(term.frames) for term in self.terms]).tolist()
        return [
            (term, poses[i:k]) for term, i, k in zip(self.terms, [0, *ends[:-1]], ends, strict=True)
        ]

    @property
    def angle_count(self):
        return sum(term.angle_count for term in self.terms)

    def counted_angles(self, poses):
        return tuple(x for term, own in self._of_terms(poses) for x in term.counted_angles(own))

    @property
    def factors_of_angles(self):
        parts = [term.factors_of_angles for term in self.terms]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        xp = array_namespace(self.factors, known)
        factors = np.asarray(self.factors) if xp is np else components(self.factors)
        return xp.concatenate([f * xp.asarray(x) for f, x in zip(factors, known, strict=True)])

    def near(self, angles):
        ends = np.cumsum([term.angle_count for term in self.terms]).tolist()
        parts = zip(self.terms, [0, *ends[:-1]], ends, strict=True)
        return replaced(self, terms=tuple(term.near(angles[i:k]) for term, i, k in parts))


class AlongCoordinate(AbstractFramed):
    """A named element that acts along a scalar coordinate.

    **Fields:** `name`, `coordinate`."""

    name: str = eqx.field(static=True)
    coordinate: AbstractScalarCoordinate

    @checked
    def __init__(self, name: str, coordinate: AbstractScalarCoordinate):
        """**Arguments:** `name`, `coordinate`."""
        self.name = checked_name(type(self).__name__, name)
        self.coordinate = coordinate

    @property
    def bodies(self):
        return self.coordinate.bodies

    @property
    def frames(self):
        return self.coordinate.frames

    @property
    def angle_count(self):
        return self.coordinate.angle_count

    def counted_angles(self, poses):
        return self.coordinate.counted_angles(poses)

    def near(self, angles):
        return replaced(self, coordinate=self.coordinate.near(angles))


# The smaller of two angles is found within half a turn over this number, or counted.
_MOST = 50
# Ratios this close to ratios of whole numbers count as these.
_EXACT = 1e-9


class CoordinateConstraint(AbstractConstraint):
    """Holds a scalar coordinate at a value, or at a polynomial of another coordinate:

        x - x_0 = c_0 + c_1 (y - y_0) + c_2 (y - y_0)^2 + ...

    For instance finger joints that a tendon couples, a mimic joint, or a winch.

    Simulations count the turns of angles, from within half a turn of the `middle` of `OfJoint`. So
    a coupling holds for any number of turns.

    Row: the difference of the two sides [m or rad] (1). If it is linear, and whole turns of its
    angles change it by whole multiples of one `period`, it is taken modulo this period. This is so
    for one angle, as of a winch, and for several whose factors are in ratios of whole numbers, as
    of gears. Such a row needs no count, so it holds at a pose alone too.

    **Fields:** `name`; `coordinate`: x; `of`: y, or `None`; `coefficients`: c; `zero`, `zero_of`:
    x_0 and y_0 [m or rad]; `teeth`: whole numbers in the ratio of the factors of the angles, 0 if
    there are none.
    """

    name: str = eqx.field(static=True)
    coordinate: AbstractScalarCoordinate
    of: AbstractScalarCoordinate | None
    coefficients: Float[Array, " k"]
    zero: Float[Array, ""]
    zero_of: Float[Array, ""]
    teeth: Float[Array, " angles"]

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        of: AbstractScalarCoordinate | None = None,
        *,
        coefficients: Numbers = 0.0,
        zero: Number = 0.0,
        zero_of: Number = 0.0,
    ):
        """**Arguments:** the fields."""
        self.name = checked_name("CoordinateConstraint", name)
        self.coordinate, self.of = coordinate, of
        dtype = coordinate.dtype
        self.coefficients = to_jax(coefficients, dtype, axes=1)
        self.zero, self.zero_of = to_jax(zero, dtype), to_jax(zero_of, dtype)
        self.teeth = to_jax(_whole_numbers(self._factors(), self.angle_count), dtype)

    def completed(self):
        teeth = _whole_numbers(self._factors(), self.angle_count)
        return replaced(self, teeth=to_jax(teeth, self.coordinate.dtype))

    @property
    def bodies(self):
        return (*self.coordinate.bodies, *(() if self.of is None else self.of.bodies))

    @property
    def frames(self):
        return (*self.coordinate.frames, *(() if self.of is None else self.of.frames))

    def equations(self, poses, t):
        del t
        k = len(self.coordinate.frames)
        x = self.coordinate.value(poses[:k]) - self.zero
        if self.of is None:
            return self._within(x - self.coefficients[0])
        wanted = jnp.zeros_like(x)
        y = self.of.value(poses[k:]) - self.zero_of
        for i in reversed(range(self.coefficients.shape[0])):  # Horner's scheme
            wanted = wanted * y + self.coefficients[i]
        return self._within(x - wanted)

    def _within(self, ahead):
        """The row: `ahead` modulo the period."""
        if self._factors() is None or self.angle_count == 0:
            return ahead[None]
        period, holds = self._period()
        safe = jnp.where(holds, period, 1.0)
        return (ahead - jnp.where(holds, period * jnp.round(ahead / safe), 0.0))[None]

    def _period(self) -> tuple[Float[Array, ""], Bool[Array, ""]]:
        """The smallest change of Phi by whole turns of the angles, and whether there is one: the
        factors may have changed since `teeth` were found."""
        size, count = self._factors(), self.teeth
        assert size is not None
        if count.shape[0] == 1:  # the only one, whatever it is
            (own,) = components(jnp.abs(size))
            return 2 * math.pi * own, own > 0
        total = jnp.sum(count)
        base = jnp.sum(jnp.abs(size)) / jnp.where(total > 0, total, 1.0)
        close = max(_EXACT, _rounding(size))
        exact = jnp.all(jnp.abs(jnp.abs(size) - count * base) <= close * jnp.abs(size))
        return 2 * math.pi * base, exact & (total > 0)

    def _factors(self) -> Float[Array | np.ndarray, " angles"] | None:
        """The derivatives of Phi by the angles, `None` if they are not constant."""
        x = self.coordinate.factors_of_angles
        if self.of is None:
            return x
        y = self.of.factors_of_angles
        if x is None or y is None or (y.shape[0] and self.coefficients.shape[0] > 2):
            return None
        slope = picked(self.coefficients, 1) if self.coefficients.shape[0] > 1 else 0.0
        xp = array_namespace(x, y, slope)
        return xp.concatenate([x, -xp.asarray(slope) * xp.asarray(y)])

    @property
    def angle_count(self):
        return self.coordinate.angle_count + (0 if self.of is None else self.of.angle_count)

    def counted_angles(self, poses):
        k = len(self.coordinate.frames)
        own = self.coordinate.counted_angles(poses[:k])
        return own if self.of is None else (*own, *self.of.counted_angles(poses[k:]))

    def near(self, angles):
        k = self.coordinate.angle_count
        of = None if self.of is None else self.of.near(angles[k:])
        return replaced(self, coordinate=self.coordinate.near(angles[:k]), of=of)

    @property
    def needs_turns(self):
        if self.angle_count == 0:
            return False
        return True if self._factors() is None else ~self._period()[1]


def _whole_numbers(factors: Float[Array | np.ndarray, " angles"] | None, count: int) -> np.ndarray:
    """Whole numbers in the ratio of the sizes of these factors, 0 where they are not found or not
    known."""
    if factors is None or not is_known(factors):
        return np.zeros(count)
    sizes = np.abs(np.asarray(factors, float))
    if sizes.size == 0 or not np.all(np.isfinite(sizes)) or np.min(sizes) == 0:
        return np.zeros(sizes.size)
    ratios = sizes / np.min(sizes)
    near = [Fraction(ratio).limit_denominator(_MOST) for ratio in ratios.tolist()]
    common = math.lcm(*(ratio.denominator for ratio in near))
    whole = np.array([float(ratio * common) for ratio in near])
    exact = np.abs(whole / common - ratios) <= max(_EXACT, _rounding(factors)) * ratios
    return whole if common <= _MOST and np.all(exact) else np.zeros(sizes.size)


def _rounding(factors: Any) -> float:
    return 8 * float(jnp.finfo(factors.dtype).eps)
