import math
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import with_dtype
from ..._concrete import numpy_if_concrete, to_jax
from ..._contact import ContactLaw
from ..._inputs import Number, checked, not_negative, positive_or_infinite, within
from ..element import checked_name
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate, OfJoint, anonymous
from .base import AbstractGap, frictionless_law


class CoordinateLimit(AlongCoordinate, AbstractGap):
    """Keeps a scalar coordinate x within limits, by the gaps x - lower and upper - x.

    `JointLimit` does the same for all coordinates of a joint.

    **Fields:** `name`; `names` of the bodies; `coordinate`; `lower`, `upper`
    [m or rad], or `None`; `law`.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    coordinate: AbstractScalarCoordinate
    lower: Float[Array, ""] | None
    upper: Float[Array, ""] | None
    law: ContactLaw

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        lower: Number | None = None,
        upper: Number | None = None,
        restitution: Annotated[Number, within(0, 1)] | None = None,
        stiffness: Annotated[Number, positive_or_infinite] | None = None,
        damping: Annotated[Number, not_negative] | None = None,
    ):
        """**Arguments:** the fields; `restitution`, or `stiffness` and `damping`, of a
        `ContactLaw`.

        **Raises:** `ValueError` without any limit, and for coefficients out of their range."""
        self.name = checked_name("CoordinateLimit", name)
        self.names, self.coordinate = coordinate.bodies, anonymous(coordinate)
        if lower is None and upper is None:
            raise ValueError(f'CoordinateLimit "{name}" needs `lower`, `upper`, or both.')
        dtype = coordinate.dtype
        self.lower = None if lower is None else to_jax(lower, dtype)
        self.upper = None if upper is None else to_jax(upper, dtype)
        self.law = with_dtype(frictionless_law(restitution, stiffness, damping), dtype)

    @property
    def needs_turns(self):
        of = self.coordinate
        if self.lower is None or self.upper is None or not isinstance(of, OfJoint):
            return True
        # Between such limits an angle stays away from where it would jump, if it strikes them hard.
        xp = numpy_if_concrete(of.middle, self.lower, self.upper)
        middle, low, high = (xp.asarray(x) for x in (of.middle, self.lower, self.upper))
        return xp.maximum(middle - low, high - middle) > 0.75 * math.pi

    def overlap(self, gaps):
        bounds = [(float(x), s) for x, s in ((self.lower, 1), (self.upper, -1)) if x is not None]
        i = int(np.argmin(gaps))
        bound, sign = bounds[i]
        side = "below its lower" if sign > 0 else "above its upper"
        return f'coordinate "{self.name}" is {bound + sign * gaps[i]:.4g}, {side} limit {bound:.4g}'

    def gaps(self, poses, t):
        del t
        x = self.coordinate.value(poses)
        below = [] if self.lower is None else [x - self.lower]
        above = [] if self.upper is None else [self.upper - x]
        return jnp.stack([*below, *above])
