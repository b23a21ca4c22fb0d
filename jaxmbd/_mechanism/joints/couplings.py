"""Equations between the coordinates of two joints: transmissions."""

from collections.abc import Sequence
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._compiler import to_jax
from ..._inputs import Number, checked, not_zero
from ..element import checked_name
from ..pose import Pose, Twist
from ..relative import within_half_a_turn
from .base import AbstractConstraint, AbstractJoint
from .readers import AbstractJointReader, name_of_joint


class JointCoordinate(AbstractJointReader):
    """One coordinate of a joint, as a function of the world poses of its frames.

    - `joint_name`, `joint`: the joint; `None` where only its name is known.
    - `index`: index of the coordinate; `None` for the only one.
    - `angle`: whether it is an angle [rad], within half a turn. Otherwise it is a displacement [m].
      `None` where only the name of the joint is known, and it may be either.
    """

    joint_name: str = eqx.field(static=True)
    joint: AbstractJoint | None
    index: int | None = eqx.field(static=True)
    angle: bool | None = eqx.field(static=True)

    def reading(self, what, joint):
        return joint_coordinate(what, joint, self.index, self.angle)

    def __call__(self, poses: Sequence[Pose]) -> Float[Array, ""]:
        a, b = poses
        return self.known.coordinates(a, b)[self.index]

    def rate(self, poses: Sequence[Pose], twists: Sequence[Twist]) -> Float[Array, ""]:
        """The time derivative of the coordinate [m/s, rad/s]."""
        (a, b), (twist_a, twist_b) = poses, twists
        return self.known.rates(a, b, twist_a, twist_b)[self.index]

    @property
    def dtype(self) -> Any:
        """The dtype of the frames; JAX's default where only the name of the joint is known."""
        return jnp.result_type(float) if self.joint is None else self.joint.dtype


def joint_coordinate(
    what: str, joint: AbstractJoint | str, index: int | None, angle: bool | None = None
) -> JointCoordinate:
    """The coordinate `index` of a joint, or of the joint of this name. If `index` is `None`, the
    joint must have exactly one: one angle if `angle` is `True`, one displacement if `False`, one
    coordinate of any kind if `None`.

    **Raises:** `ValueError`, which begins with `what`, if there is none, or several and no `index`.
    """
    name = name_of_joint(what, joint)
    if isinstance(joint, str):
        return JointCoordinate(name, None, index, angle)
    label = f'{type(joint).__name__} "{name}"'
    count = joint.count() if isinstance(joint, AbstractJoint) else 0
    kinds = [i >= count - joint.angles for i in range(count)]
    kind = {None: "a joint coordinate", True: "an angle", False: "a displacement"}[angle]
    fitting = [i for i in range(count) if angle is None or kinds[i] == angle]
    if not fitting:
        raise ValueError(f"{what} needs a joint with {kind}, but {label} has none.")
    if index is None:
        if len(fitting) > 1:
            raise ValueError(
                f"{what} needs {kind} of {label}, which has several: give one of the indices "
                f"{fitting} of its coordinates."
            )
        index = fitting[0]
    if index not in fitting:
        raise ValueError(
            f"{what} needs {kind} of {label}, whose indices are {fitting}, but got {index}."
        )
    return JointCoordinate(name, None, index, kinds[index]).holding(joint)


class AbstractCoupling(AbstractConstraint):
    """An equation between a coordinate of one joint and a coordinate of another. Give the joints to
    the mechanism as well: the coupling only reads their coordinates, and keeps their names.

    **Fields:**

    - `name`: its name in reports.
    - `first`, `second`: the coupled coordinates.
    """

    name: str = eqx.field(static=True)
    first: JointCoordinate
    second: JointCoordinate

    @checked
    def __init__(
        self,
        name: str,
        first: AbstractJoint | str,
        second: AbstractJoint | str,
        *,
        coordinates: tuple[int | None, int | None] = (None, None),
        angles: tuple[bool | None, bool | None] = (None, None),
    ):
        """`angles`: `True` for a coordinate that must be an angle, `False` for a displacement."""
        what = f'{type(self).__name__} "{name}"'
        self.name = checked_name(type(self).__name__, name)
        self.first = joint_coordinate(what, first, coordinates[0], angles[0])
        self.second = joint_coordinate(what, second, coordinates[1], angles[1])

    @property
    def bodies(self):
        return (*self.first.known.bodies, *self.second.known.bodies)

    @property
    def frames(self):
        return (*self.first.known.frames, *self.second.known.frames)

    @property
    def dtype(self) -> Any:
        """The dtype of the frames and of the other parameters."""
        return self.first.dtype


class Coupler(AbstractCoupling):
    """Couples two joint coordinates of the same kind with a fixed real ratio.

    Two displacements, as of a lever or of pistons joined by a pipe: the row
    x_1 - ratio x_2 - offset (1).

    Two angles, as of belts and friction wheels: the nonholonomic row phi_1' - ratio phi_2' (1).
    An equation between the angles would need the number of turns, which poses do not contain. So
    the row constrains the rates, and the initial state determines the angles. For a ratio of whole
    numbers prefer `Gear`, which constrains the angles themselves.

    **Fields:** `ratio` [1], `offset` [m].
    """

    ratio: Float[Array, ""]
    offset: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        first: AbstractJoint | str,
        second: AbstractJoint | str,
        *,
        ratio: Annotated[Number, not_zero],
        offset: Number = 0.0,
        coordinates: tuple[int | None, int | None] = (None, None),
    ):
        """**Arguments:**

        - `first`, `second`: the joints, or their names.
        - `ratio`: the first coordinate over the second, of any sign, not 0.
        - `offset`: the first displacement where the second is 0 [m]; 0 for angles.
        - `coordinates`: index of the coordinate of each joint, if it has several.

        **Raises:** `ValueError` for an angle and a displacement; use `RackAndPinion` for these.
        """
        AbstractCoupling.__init__(self, name, first, second, coordinates=coordinates)
        if self.first.angle != self.second.angle:
            raise ValueError(
                f'Coupler "{name}" needs two displacements or two angles, but '
                f'"{self.first.joint_name}" and "{self.second.joint_name}" give one of each. Use '
                "`RackAndPinion`."
            )
        if self.first.angle and not (isinstance(offset, float | int) and offset == 0):
            raise ValueError(
                f'Coupler "{name}" acts on the rates of two angles, so it has no `offset`, but got '
                f"{offset}. Use `Gear` with a `phase`, or start from the angles you want."
            )
        self.ratio = to_jax(ratio, self.dtype)
        self.offset = to_jax(offset, self.dtype)

    def equations(self, poses, t):
        del t
        if self.first.angle:
            return jnp.zeros(0, poses[0].position.dtype)
        return (self.first(poses[:2]) - self.ratio * self.second(poses[2:]) - self.offset)[None]

    def velocity_equations(self, poses, twists, t):
        del t
        if not self.first.angle:
            return jnp.zeros(0, poses[0].position.dtype)
        first = self.first.rate(poses[:2], twists[:2])
        return (first - self.ratio * self.second.rate(poses[2:], twists[2:]))[None]


class Gear(AbstractCoupling):
    """Two toothed wheels in mesh. The angles phi_1 and phi_2 of two joints, the bearings of the
    wheels, obey

        N1 phi_1 + N2 phi_2 = phase    (modulo whole turns).

    N1 and N2 are the numbers of teeth. Both are positive for external meshing with joint axes that
    point the same way: the wheels turn in opposite directions. One is negative for a wheel with
    internal teeth, or for axes that point in opposite directions. The wheels of a planetary gear
    have their bearings on its carrier. A bevel gear has axes that cross.

    Row: the difference of the two sides, wrapped to within half a turn, over N1 [rad] (1). The
    numbers of teeth are whole, so a full turn of either wheel changes nothing. The row holds for
    any number of turns, without counting them. The multiplier is the torque on the first wheel.
    Teeth do not slip, but they may mesh at any tooth: N1 N2 / gcd(N1, N2)^2 times gcd(N1, N2)
    positions.

    **Fields:** `teeth`: N1 and N2. `phase` [rad]: 0 if the wheels mesh at phi_1 = phi_2 = 0, as
    they do in the poses in which joints were given in the world.
    """

    teeth: Float[Array, "2"]
    phase: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        first: AbstractJoint | str,
        second: AbstractJoint | str,
        *,
        teeth: Any,
        phase: Number = 0.0,
        coordinates: tuple[int | None, int | None] = (None, None),
    ):
        """**Arguments:**

        - `first`, `second`: the joints, or their names, each with an angle, such as `Revolute`.
        - `teeth`: the whole numbers (N1, N2), of any sign, not 0.
        - `phase`: as above [rad].
        - `coordinates`: index of the coordinate of each joint, if it has several angles.

        **Raises:** `ValueError` for a joint without an angle and for numbers that are not whole.
        """
        AbstractCoupling.__init__(
            self, name, first, second, coordinates=coordinates, angles=(True, True)
        )
        known = not_zero(f'`teeth` of Gear "{name}"', np.asarray(teeth), self.dtype, (2,))
        if not np.all(np.asarray(teeth) == np.round(np.asarray(teeth))):
            raise ValueError(
                f'`teeth` of Gear "{name}" must be whole numbers, but are {teeth}. For another '
                "ratio, as of a belt, use `Coupler`."
            )
        self.teeth = known
        self.phase = to_jax(phase, self.dtype)

    def equations(self, poses, t):
        del t
        n1, n2 = self.teeth
        ahead = n1 * self.first(poses[:2]) + n2 * self.second(poses[2:]) - self.phase
        return (within_half_a_turn(ahead) / n1)[None]


class RackAndPinion(AbstractCoupling):
    """A toothed wheel drives a rack. The displacement x of the joint that guides the rack and the
    angle phi of the bearing of the pinion obey x = radius phi + offset.

    Row: radius ((x - offset) / radius - phi), with the difference of angles wrapped to within half
    a turn [m] (1). It holds for any number of turns, without counting them. The multiplier is the
    force on the rack.

    **Fields:** `radius` [m]: radius of the pitch circle, negative if the rack moves backwards for a
    positive angle. `offset` [m]: x at phi = 0.
    """

    radius: Float[Array, ""]
    offset: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        rack: AbstractJoint | str,
        pinion: AbstractJoint | str,
        *,
        radius: Annotated[Number, not_zero],
        offset: Number = 0.0,
        coordinates: tuple[int | None, int | None] = (None, None),
    ):
        """**Arguments:**

        - `rack`: a joint with a displacement, such as `Prismatic`, or its name.
        - `pinion`: a joint with an angle, such as `Revolute`, or its name.
        - `radius`, `offset`: the fields; `radius` is not 0.
        - `coordinates`: index of the coordinate of each joint, if several fit.

        **Raises:** `ValueError` for joints without such coordinates.
        """
        AbstractCoupling.__init__(
            self, name, rack, pinion, coordinates=coordinates, angles=(False, True)
        )
        self.radius = to_jax(radius, self.dtype)
        self.offset = to_jax(offset, self.dtype)

    def equations(self, poses, t):
        del t
        x, phi = self.first(poses[:2]), self.second(poses[2:])
        behind = within_half_a_turn((x - self.offset) / self.radius - phi)
        return (self.radius * behind)[None]
