"""An equation between scalar coordinates."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._inputs import Number, Numbers, checked
from .element import checked_name
from .joints import AbstractConstraint
from .scalar_coordinates import AbstractScalarCoordinate, anonymous


class CoordinateConstraint(AbstractConstraint):
    """Holds a scalar coordinate at a value, or at a polynomial of another coordinate:

        x - x_0 = c_0 + c_1 (y - y_0) + c_2 (y - y_0)^2 + ...

    For instance finger joints that a tendon couples, or a mimic joint.

    Angles are those of `OfJoint`, within half a turn of its `middle`. For angles that turn further
    use `Gear` or `Coupler`.

    **Fields:** `name`; `names` of the bodies; `coordinate`: x; `of`: y, or `None`; `coefficients`:
    c; `zero`, `zero_of`: x_0 and y_0 [m or rad].
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    coordinate: AbstractScalarCoordinate
    of: AbstractScalarCoordinate | None
    coefficients: Float[Array, " k"]
    zero: Float[Array, ""]
    zero_of: Float[Array, ""]

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
        self.coefficients = jnp.atleast_1d(jnp.asarray(coefficients, dtype))
        self.zero, self.zero_of = jnp.asarray(zero, dtype), jnp.asarray(zero_of, dtype)

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
        wanted = jnp.zeros_like(x)
        if self.of is None:
            return (x - self.coefficients[0])[None]
        y = self.of.value(poses[k:]) - self.zero_of
        for i in reversed(range(self.coefficients.shape[0])):  # Horner's scheme
            wanted = wanted * y + self.coefficients[i]
        return (x - wanted)[None]
