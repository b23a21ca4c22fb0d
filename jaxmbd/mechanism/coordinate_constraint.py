"""An equation between scalar coordinates."""

import math
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._concrete import is_concrete, numpy_if_concrete, picked, to_jax
from .._coordinates import components
from .._inputs import Number, Numbers, checked
from .element import checked_name, replaced
from .joints import AbstractConstraint
from .scalar_coordinates import AbstractScalarCoordinate, anonymous

# The smaller of two angles is found within half a turn over this number, or counted.
_MOST = 50
# Ratios this close to those of whole numbers are those.
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

    **Fields:** `name`; `names` of the bodies; `coordinate`: x; `of`: y, or `None`; `coefficients`:
    c; `zero`, `zero_of`: x_0 and y_0 [m or rad]; `teeth`: whole numbers in the ratio of the factors
    of the angles, 0 if there are none.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
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
        self.names = (*coordinate.bodies, *(() if of is None else of.bodies))
        self.coordinate = anonymous(coordinate)
        self.of = None if of is None else anonymous(of)
        dtype = coordinate.dtype
        self.coefficients = to_jax(coefficients, dtype, axes=1)
        self.zero, self.zero_of = to_jax(zero, dtype), to_jax(zero_of, dtype)
        self.teeth = to_jax(_whole_numbers(self._factors(), self.angle_count), dtype)

    @property
    def bodies(self):
        return self.names

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

    def _factors(self) -> Float[Array, " angles"] | None:
        """The derivatives of Phi by the angles, `None` if they are not constant."""
        x = self.coordinate.factors_of_angles
        if self.of is None:
            return x
        y = self.of.factors_of_angles
        if x is None or y is None or (y.shape[0] and self.coefficients.shape[0] > 2):
            return None
        slope = picked(self.coefficients, 1) if self.coefficients.shape[0] > 1 else 0.0
        xp = numpy_if_concrete(x, y, slope)
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


def _whole_numbers(factors: Float[Array, " angles"] | None, count: int) -> np.ndarray:
    """Whole numbers in the ratio of the sizes of these factors, 0 where they are not found or not
    known."""
    if factors is None or not is_concrete(factors):
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
