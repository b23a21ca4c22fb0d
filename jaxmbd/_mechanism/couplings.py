"""Equations between scalar coordinates: transmissions and drives."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from .._compiler import array_namespace, is_known, picked, to_jax
from .._coordinates import components
from .._inputs import Number, Numbers, checked, not_zero, positive
from .element import checked_name, replaced
from .joints import AbstractConstraint, AbstractJoint, motion_shape, prescribed
from .relative import within_half_a_turn
from .scalar_coordinates import AbstractScalarCoordinate, OfJoint, of_joint

# The smaller of two angles is found within half a turn over this number, or counted.
_MOST = 50
# Ratios this close to ratios of whole numbers count as these.
_EXACT = 1e-9


class CoordinateConstraint(AbstractConstraint):
    """Holds a scalar coordinate at a value, at a function of time, or at a polynomial of another
    coordinate:

        x - x_0 = motion(t)    or    x - x_0 = c_0 + c_1 (y - y_0) + c_2 (y - y_0)^2 + ...

    For instance finger joints that a tendon couples, a mimic joint, or a winch. `Gear`,
    `RackAndPinion`, `Coupler` and `PrescribedMotion` return such constraints of joints.

    Simulations count the turns of angles, from within half a turn of the `middle` of `OfJoint`. So
    a coupling holds for any number of turns.

    Row: the difference of the two sides [m or rad] (1). If it is linear, and whole turns of its
    angles change it by whole multiples of one `period`, it is taken modulo this period. This is so
    for one angle, as of a winch, and for several whose factors are in ratios of whole numbers, as
    of gears. Such a row needs no count, so it holds at a pose alone too. The multiplier is the
    force [N] or torque [N m] along x.

    If it `slips`, and x is an angle, the row is nonholonomic (1): x' - c_1 y'. The initial state
    then determines the angles, and no turns are counted.

    **Fields:** `name`; `coordinate`: x; `of`: y, or `None`; `motion`: a function of the time, or
    `None`; `coefficients`: c; `zero`, `zero_of`: x_0 and y_0 [m or rad], `None` for 0; `repeats`:
    2 pi over the period, or `None` where the period follows from `teeth`, whole numbers in the
    ratio of the factors of the angles, 0 if there are none; `slips`.
    """

    name: str = eqx.field(static=True)
    coordinate: AbstractScalarCoordinate
    of: AbstractScalarCoordinate | None
    motion: Callable[[Any], ArrayLike] | None
    coefficients: Float[Array, " k"]
    zero: Float[Array, ""] | None
    zero_of: Float[Array, ""] | None
    repeats: Float[Array, ""] | None
    teeth: Float[Array, " angles"] | None
    slips: bool = eqx.field(static=True)

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        of: AbstractScalarCoordinate | None = None,
        *,
        motion: Callable[[Any], ArrayLike] | None = None,
        coefficients: Numbers = 0.0,
        zero: Number | None = 0.0,
        zero_of: Number | None = 0.0,
        repeats: Annotated[Number, positive] | None = None,
        slips: bool = False,
    ):
        """**Arguments:** the fields. `repeats` is found from the factors of the angles by default.

        **Raises:** `ValueError` for both `of` and `motion`, and a `motion` that gives no number."""
        self.name = checked_name("CoordinateConstraint", name)
        self.coordinate, self.of, self.motion, self.slips = coordinate, of, motion, slips
        dtype = coordinate.dtype
        if motion is not None:
            what = f'`motion` of CoordinateConstraint "{name}"'
            if of is not None:
                raise ValueError(f"{what} needs no second coordinate `of`: give one of them.")
            check_motion_of_number(what, motion, dtype)
        self.coefficients = to_jax(coefficients, dtype, axes=1)
        self.zero, self.zero_of, self.repeats = (
            None if x is None else to_jax(x, dtype) for x in (zero, zero_of, repeats)
        )
        self.teeth = self._teeth()

    def completed(self):
        return replaced(self, teeth=self._teeth())

    def _teeth(self) -> Float[Array, " angles"] | None:
        if self.repeats is not None:
            return None
        return to_jax(_whole_numbers(self._factors()), self.coordinate.dtype)

    @property
    def bodies(self):
        return (*self.coordinate.bodies, *(() if self.of is None else self.of.bodies))

    @property
    def frames(self):
        return (*self.coordinate.frames, *(() if self.of is None else self.of.frames))

    @property
    def by_rates(self) -> bool:
        """Whether the row is nonholonomic."""
        x = self.coordinate
        return self.slips and isinstance(x, OfJoint) and bool(x.is_angle)

    def equations(self, poses, t):
        k = len(self.coordinate.frames)
        if self.by_rates:
            return jnp.zeros(0, poses[0].position.dtype)
        x = _less(self.coordinate.value(poses[:k]), self.zero)
        if self.motion is not None:
            return self._within(x - prescribed(self.motion, t, x.dtype))
        *rest, wanted = components(self.coefficients)
        if self.of is not None:
            y = _less(self.of.value(poses[k:]), self.zero_of)
            for c in reversed(rest):  # Horner's scheme
                wanted = wanted * y + c
        return self._within(x - wanted)

    def velocity_equations(self, poses, twists, t):
        del t
        if not self.by_rates or self.of is None:
            return jnp.zeros(0, poses[0].position.dtype)
        k = len(self.coordinate.frames)
        rate = self.coordinate.rate(poses[:k], twists[:k])
        return (rate - self.coefficients[1] * self.of.rate(poses[k:], twists[k:]))[None]

    def _within(self, ahead):
        """The row: `ahead` modulo the period."""
        if self.repeats is not None:
            return _repeating(ahead, self.repeats)[None]
        size = self._factors()
        if size is None or size.shape[0] == 0:
            return ahead[None]
        if size.shape == (1,) and isinstance(size, np.ndarray) and size[0]:
            return _repeating(ahead, 1 / abs(float(size[0])))[None]
        period, holds = self._found_period(size)
        turns = jnp.round(ahead / jnp.where(holds, period, 1.0))
        if size.shape == (1,):
            return (ahead - period * turns)[None]  # 0 off where the factor is 0
        return (ahead - jnp.where(holds, period * turns, 0.0))[None]

    def _found_period(self, size: Any) -> tuple[Float[Array, ""], Bool[Array, ""]]:
        """The smallest change of Phi by whole turns of the angles, of which it has these factors,
        and whether there is one: the factors may have changed since `teeth` were found."""
        size = jnp.asarray(size)
        if size.shape[0] == 1:  # the only one, whatever it is
            (own,) = components(jnp.abs(size))
            return 2 * math.pi * own, own > 0
        count = jnp.zeros_like(size) if self.teeth is None else self.teeth
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
        if self.angle_count == 0 or self.by_rates or self.repeats is not None:
            return False
        size = self._factors()
        return True if size is None else ~self._found_period(size)[1]


def _less(x: Float[Array, ""], zero: Float[Array, ""] | None) -> Float[Array, ""]:
    return x if zero is None else x - zero


def _repeating(x: Float[Array, ""], n: ArrayLike) -> Float[Array, ""]:
    """x modulo 2 pi / n."""
    return within_half_a_turn(x * n) / n


def _whole_numbers(factors: Float[Array | np.ndarray, " angles"] | None) -> np.ndarray:
    """Whole numbers in the ratio of the sizes of these factors, 0 where they are not found or not
    known."""
    if factors is None or not is_known(factors):
        return np.zeros(0 if factors is None else factors.shape)
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


@checked
def Gear(
    name: str,
    first: AbstractJoint | str,
    second: AbstractJoint | str,
    *,
    teeth: Any,
    phase: Number = 0.0,
    coordinates: tuple[int | None, int | None] = (None, None),
) -> CoordinateConstraint:
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

    **Arguments:**

    - `first`, `second`: the joints, or their names, each with an angle, such as `Revolute`.
    - `teeth`: the whole numbers (N1, N2), of any sign, not 0.
    - `phase` [rad]: 0 if the wheels mesh at phi_1 = phi_2 = 0, as they do in the poses in which
      joints were given in the world.
    - `coordinates`: index of the coordinate of each joint, if it has several angles.

    **Raises:** `ValueError` for a joint without an angle and for numbers that are not whole.
    """
    what = f'Gear "{name}"'
    name = checked_name("Gear", name)
    x, y = (
        of_joint(what, joint, index, angle=True)
        for joint, index in zip((first, second), coordinates, strict=True)
    )
    not_zero(f"`teeth` of {what}", np.asarray(teeth), x.dtype, (2,))
    if not np.all(np.asarray(teeth) == np.round(np.asarray(teeth))):
        raise ValueError(
            f"`teeth` of {what} must be whole numbers, but are {teeth}. For another ratio, as of a "
            "belt, use `Coupler`."
        )
    n1, n2 = np.asarray(teeth, float).tolist()
    line = _line(phase / n1, -n2 / n1, x.dtype)
    return CoordinateConstraint(
        name, x, y, coefficients=line, zero=None, zero_of=None, repeats=abs(n1)
    )


@checked
def RackAndPinion(
    name: str,
    rack: AbstractJoint | str,
    pinion: AbstractJoint | str,
    *,
    radius: Annotated[Number, not_zero],
    offset: Number = 0.0,
    coordinates: tuple[int | None, int | None] = (None, None),
) -> CoordinateConstraint:
    """A toothed wheel drives a rack. The displacement x of the joint that guides the rack and the
    angle phi of the bearing of the pinion obey x = radius phi + offset.

    Row: x - offset - radius phi, with the angle within half a turn of the one that fits [m] (1). It
    holds for any number of turns, without counting them. The multiplier is the force on the rack.

    **Arguments:**

    - `rack`: a joint with a displacement, such as `Prismatic`, or its name.
    - `pinion`: a joint with an angle, such as `Revolute`, or its name.
    - `radius` [m]: radius of the pitch circle, not 0, negative if the rack moves backwards for a
      positive angle. `offset` [m]: x at phi = 0.
    - `coordinates`: index of the coordinate of each joint, if several fit.

    **Raises:** `ValueError` for joints without such coordinates.
    """
    what, name = f'RackAndPinion "{name}"', checked_name("RackAndPinion", name)
    x = of_joint(what, rack, coordinates[0], angle=False)
    phi = of_joint(what, pinion, coordinates[1], angle=True)
    return CoordinateConstraint(
        name, x, phi, coefficients=_line(offset, radius, x.dtype), zero=None, zero_of=None
    )


@checked
def Coupler(
    name: str,
    first: AbstractJoint | str,
    second: AbstractJoint | str,
    *,
    ratio: Annotated[Number, not_zero],
    offset: Number = 0.0,
    coordinates: tuple[int | None, int | None] = (None, None),
) -> CoordinateConstraint:
    """Couples two joint coordinates of the same kind with a fixed real ratio.

    Two displacements, as of a lever or of pistons joined by a pipe: the row
    x_1 - ratio x_2 - offset (1).

    Two angles, as of belts and friction wheels: the nonholonomic row phi_1' - ratio phi_2' (1).
    An equation between the angles would need the number of turns, which poses do not contain. So
    the row constrains the rates, and the initial state determines the angles. For a ratio of whole
    numbers prefer `Gear`, which constrains the angles themselves.

    **Arguments:**

    - `first`, `second`: the joints, or their names.
    - `ratio`: the first coordinate over the second, of any sign, not 0.
    - `offset`: the first displacement where the second is 0 [m]; 0 for angles.
    - `coordinates`: index of the coordinate of each joint, if it has several.

    **Raises:** `ValueError` for an angle and a displacement; use `RackAndPinion` for these.
    """
    what, name = f'Coupler "{name}"', checked_name("Coupler", name)
    x, y = (
        of_joint(what, joint, index)
        for joint, index in zip((first, second), coordinates, strict=True)
    )
    if None not in (x.is_angle, y.is_angle) and x.is_angle != y.is_angle:
        raise ValueError(
            f'{what} needs two displacements or two angles, but "{x.joint_name}" and '
            f'"{y.joint_name}" give one of each. Use `RackAndPinion`.'
        )
    if x.is_angle and not (isinstance(offset, float | int) and offset == 0):
        raise ValueError(
            f"{what} acts on the rates of two angles, so it has no `offset`, but got {offset}. Use "
            "`Gear` with a `phase`, or start from the angles you want."
        )
    return CoordinateConstraint(
        name, x, y, coefficients=_line(offset, ratio, x.dtype), slips=True, zero=None, zero_of=None
    )


def _line(offset: Number, slope: Number, dtype: Any) -> Float[Array, "2"]:
    """The coefficients c_0 and c_1."""
    xp = array_namespace(offset, slope)
    return to_jax(xp.stack([xp.asarray(offset, dtype), xp.asarray(slope, dtype)]), dtype)


@checked
def PrescribedMotion(
    name: str,
    joint: AbstractJoint | str,
    motion: Callable[[Any], ArrayLike],
    *,
    coordinate: int | None = None,
) -> CoordinateConstraint:
    """Drives a coordinate of a joint: x = motion(t). Give the joint to the mechanism as well.

    Row: x - motion(t), for an angle wrapped to within half a turn, so that it may turn without
    limit (1). The multiplier is the force [N] or torque [N m] of the drive on b.

        drive = mbd.PrescribedMotion("drive", hinge, Ramp(jnp.asarray(2.0)))

    Here `hinge` is a `Revolute`, and `Ramp` is an `eqx.Module` whose `__call__(self, t)` returns
    `self.speed * t`. The speed is then a parameter with a derivative. Functions are compared by
    identity: a function defined inside a loop is compiled in each pass.

    **Arguments:**

    - `joint`: the joint whose coordinate is driven, or its name.
    - `motion`: a function of the time [s] that returns the coordinate [m, rad], shape `()`, at
      least twice differentiable by JAX.
    - `coordinate`: index of the coordinate, if the joint has several.

    **Raises:** `ValueError` for a joint without coordinates, or a motion that is not a number.
    """
    what, name = f'PrescribedMotion "{name}"', checked_name("PrescribedMotion", name)
    x = of_joint(what, joint, coordinate)
    check_motion_of_number(f"`motion` of {what}", motion, x.dtype)
    return CoordinateConstraint(name, x, motion=motion, zero=None, zero_of=None)


def check_motion_of_number(what: str, motion: Any, dtype: Any) -> None:
    """**Raises:** `ValueError`, which begins with `what`, unless it is a function of the time that
    gives a number."""
    value = motion_shape(what, motion, dtype)
    if getattr(value, "shape", None) != ():
        raise ValueError(f"{what} must give a number, shape (), but gives {value}.")
