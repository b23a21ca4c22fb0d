"""Scalar coordinates, along which forces, limits and constraints act."""

import abc
from collections.abc import Sequence
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import with_dtype
from .._compiler import array_namespace, to_jax
from .._coordinates import components, cross, dot
from .._inputs import Number, Numbers, at_least, checked, not_zero
from .._types import DType
from .element import AbstractFramed, checked_name, replaced
from .glyphs import Glyph
from .joints import (
    AbstractConstraint,
    AbstractJoint,
    AbstractJointReader,
    Prismatic,
    Revolute,
    name_of_joint,
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
    def factors_of_angles(self) -> Float[Array | np.ndarray, " angles"] | None:
        """The derivatives by the angles, counted or not, if they are constant. Default: `None`,
        unless there are no `counted_angles`."""
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


class OfJoint(AbstractScalarCoordinate, AbstractJointReader):
    """A coordinate of a joint, shifted: `offset` + x. An angle is within half a turn of `middle` at
    the start of a simulation, which counts its turns from there. A function of a pose alone, such
    as `value`, takes it within half a turn of `middle`. Without a `middle` it is the angle of the
    pose, and its turns are not counted.

    Give the joint to the mechanism as well: this only reads its coordinate. In a mechanism it keeps
    the name of the joint, and reads the joint of this name there.

    **Fields:** `joint_name`; `joint`, or `None` where only its name is known; `index` of the
    coordinate; `is_angle`: whether it is an angle [rad], or else a displacement [m]; `offset`,
    `middle` [m or rad].
    """

    joint_name: str = eqx.field(static=True)
    joint: AbstractJoint | None
    index: int | None = eqx.field(static=True)
    is_angle: bool | None = eqx.field(static=True)
    offset: Float[Array, ""] | None
    middle: Float[Array, ""] | None

    @checked
    def __init__(
        self,
        joint: AbstractJoint | str,
        index: Annotated[int, at_least(0)] | None = None,
        *,
        offset: Number | None = 0.0,
        middle: Number | None = 0.0,
    ):
        """**Arguments:** `joint`, or its name; `index` of the coordinate, if the joint has several;
        `offset`: its value where the coordinate of the joint is 0, by default 0, as for `None`;
        `middle`.

        **Raises:** `ValueError` for a joint without such a coordinate."""
        self.joint_name, self.joint = name_of_joint("OfJoint", joint), None
        self.index, self.is_angle = index, None
        if isinstance(joint, AbstractConstraint):
            found = self.reading("OfJoint", joint)
            self.joint, self.index, self.is_angle = found.joint, found.index, found.is_angle
        self.offset = None if offset is None else to_jax(offset, self.dtype)
        self.middle = None if middle is None else to_jax(middle, self.dtype)

    def reading(self, what, joint):
        index, is_angle = _found(what, joint, self.index, self.is_angle)
        return replaced(self.holding(joint), index=index, is_angle=is_angle)

    @property
    def bodies(self):
        return self.known.bodies

    @property
    def frames(self):
        return self.known.frames

    @property
    def dtype(self):
        """The dtype of the frames; JAX's default where only the name of the joint is known."""
        return jnp.result_type(float) if self.joint is None else self.joint.dtype

    def value(self, poses):
        x = self.known.coordinates(*poses)[self.index]
        x = x if self.offset is None else x + self.offset
        return near_angle(x, self.middle) if self.is_angle and self.middle is not None else x

    @property
    def angle_count(self):
        return 1 if self.is_angle and self.middle is not None else 0

    def counted_angles(self, poses):
        return (self.value(poses),) if self.angle_count else ()

    @property
    def factors_of_angles(self):
        return np.ones(1 if self.is_angle else 0, self.dtype)

    def near(self, angles):
        return replaced(self, middle=angles[0]) if self.angle_count else self

    def rate(self, poses, twists):
        """In closed form for hinges and sliders that are closed: second derivatives of their
        coordinates take long to compile."""
        (a, b), (twist_a, twist_b) = poses, twists
        if isinstance(self.joint, Revolute):
            return dot(z_axis(a), twist_b.angular - twist_a.angular)
        if isinstance(self.joint, Prismatic):
            return dot(z_axis(a), twist_b.linear - twist_a.at(b.position - a.position))
        return self.known.rates(a, b, twist_a, twist_b)[self.index]

    def directions(self, poses):
        if isinstance(self.joint, Revolute):
            return about(z_axis(poses[0]))
        if isinstance(self.joint, Prismatic):
            return along(z_axis(poses[0]), poses)
        return AbstractScalarCoordinate.directions(self, poses)


def of_joint(
    what: str, joint: AbstractJoint | str, index: int | None, *, angle: bool | None = None
) -> OfJoint:
    """A coordinate of a joint as the pose gives it, without a count of turns: an angle or a
    displacement, or either for `None`.

    **Raises:** `ValueError`, which begins with `what`, for a joint without such a coordinate."""
    by_name = OfJoint(name_of_joint(what, joint), index, offset=None, middle=None)
    by_name = replaced(by_name, is_angle=angle)
    return (
        by_name if isinstance(joint, str) else with_dtype(by_name.reading(what, joint), joint.dtype)
    )


def _found(
    what: str, joint: AbstractConstraint, index: int | None, angle: bool | None
) -> tuple[int, bool]:
    """Index of the coordinate of a joint, and whether it is an angle. Without an index, the joint
    must have exactly one: one angle if `angle` is `True`, one displacement if `False`, one
    coordinate of any kind if `None`.

    **Raises:** `ValueError`, which begins with `what`, if there is none, or several and no `index`.
    """
    label = f'{type(joint).__name__} "{joint.name}"'
    kinds = []
    if isinstance(joint, AbstractJoint):
        count = joint.count()
        kinds = [i >= count - joint.angles for i in range(count)]
    kind = {None: "a joint coordinate", True: "an angle", False: "a displacement"}[angle]
    fitting = [i for i, own in enumerate(kinds) if angle is None or own == angle]
    if not fitting:
        raise ValueError(f"{what} needs a joint with {kind}, but {label} has none.")
    if index is None and len(fitting) > 1:
        raise ValueError(
            f"{what} needs {kind} of {label}, which has several: give one of the indices {fitting} "
            "of its coordinates."
        )
    index = fitting[0] if index is None else index
    if index not in fitting:
        raise ValueError(
            f"{what} needs {kind} of {label}, whose indices are {fitting}, but got {index}."
        )
    return index, kinds[index]


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


class DriveTwist(AbstractScalarCoordinate):
    """How far the input of a drive is ahead of its output, measured at the output:

        x = y_in / ratio - y_out + error sin(cycles y_in + phase).

    The drive may be a gear, a belt, a harmonic drive, a shaft or a clutch, with `ratio` 1, or a
    screw or a rack, with a `ratio` in rad/m. A spring along x is elastic, limits of x are play with
    impacts, dry friction along x is a clutch or a belt that slips, and `CoordinateConstraint` a
    drive that is rigid. A force F along x acts with F / ratio on the input, and with -F on the
    output. The last term is the kinematic error of the teeth, often two cycles per turn of the
    input in a harmonic drive.

        x = mbd.coordinates.DriveTwist(mbd.OfJoint("rotor"), mbd.OfJoint("arm"), ratio=50.0)
        gear = mbd.forces.PlaySpring("gear", x, stiffness=2e3, play=1e-3, damping=1.0)

    **Fields:** `terms`: the input and the output; `ratio`; `error` [unit of x] or `None`; `cycles`
    [1/unit of the input]; `phase` [rad].
    """

    terms: tuple[AbstractScalarCoordinate, AbstractScalarCoordinate]
    ratio: Float[Array, ""]
    error: Float[Array, ""] | None
    cycles: Float[Array, ""]
    phase: Float[Array, ""]

    @checked
    def __init__(
        self,
        input: AbstractScalarCoordinate,
        output: AbstractScalarCoordinate,
        *,
        ratio: Annotated[Number, not_zero] = 1.0,
        error: Number | None = None,
        cycles: Number = 1.0,
        phase: Number = 0.0,
    ):
        """**Arguments:** `input` and `output`, such as `OfJoint("rotor")`; the other fields.

        **Raises:** `ValueError` for a `ratio` of 0."""
        self.terms, dtype = (input, output), input.dtype
        self.ratio, self.cycles, self.phase = (to_jax(x, dtype) for x in (ratio, cycles, phase))
        self.error = None if error is None else to_jax(error, dtype)

    @property
    def bodies(self):
        return (*self.terms[0].bodies, *self.terms[1].bodies)

    @property
    def frames(self):
        return (*self.terms[0].frames, *self.terms[1].frames)

    @property
    def dtype(self):
        return self.terms[0].dtype

    def value(self, poses):
        (x, y), _ = self._of_terms(lambda term, own: term.value(own), poses)
        twist = x / self.ratio - y
        return twist if self.error is None else twist + self.error * jnp.sin(self._tooth(x))

    def rate(self, poses, twists):
        (x, y), own = self._of_terms(lambda term, *own: term.rate(*own), poses, twists)
        twist = x / self.ratio - y
        if self.error is None:
            return twist
        steep = jnp.cos(self._tooth(self.terms[0].value(own)))
        return twist + self.error * self.cycles * steep * x

    def _tooth(self, x):
        return self.cycles * x + self.phase

    def _of_terms(self, fn, poses, *more):
        """A function of each term and what belongs to its frames; and the poses of the input."""
        k = len(self.terms[0].frames)
        first, second = self.terms
        found = fn(first, *(x[:k] for x in (poses, *more)))
        return (found, fn(second, *(x[k:] for x in (poses, *more)))), poses[:k]

    @property
    def angle_count(self):
        return sum(term.angle_count for term in self.terms)

    def counted_angles(self, poses):
        return sum(self._of_terms(lambda term, own: term.counted_angles(own), poses)[0], ())

    @property
    def factors_of_angles(self):
        x, y = (term.factors_of_angles for term in self.terms)
        if self.error is not None or x is None or y is None:
            return None
        xp = array_namespace(self.ratio, x, y)
        return xp.concatenate([xp.asarray(x) / xp.asarray(self.ratio), -xp.asarray(y)])

    def near(self, angles):
        k = self.terms[0].angle_count
        first, second = self.terms
        return replaced(self, terms=(first.near(angles[:k]), second.near(angles[k:])))


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
