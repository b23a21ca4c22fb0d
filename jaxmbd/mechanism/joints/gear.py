from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._inputs import Number, checked, not_zero
from ..relative import within_half_a_turn
from .base import AbstractJoint
from .coupling import AbstractCoupling


class Gear(AbstractCoupling):
    """Two toothed wheels in mesh: the angles phi_1 and phi_2 of two joints, each of a wheel in its
    bearing, obey

        N1 phi_1 + N2 phi_2 = phase,    in whole turns or not.

    N1 and N2 are the numbers of teeth: both positive for external meshing, where the wheels turn
    against each other if the axes of the joints point the same way; one negative for a wheel with
    internal teeth, or where the axes point opposite ways. The wheels of a planetary gear have their
    bearings on its carrier; a bevel gear has axes that cross.

    Row: the difference of the two sides, taken within half a turn, over N1 [rad] (1). As the
    numbers of teeth are whole, a turn more of either wheel changes nothing: true for any number of
    turns, without counting them. The multiplier is the torque on the first wheel. Teeth do not
    slip, but they may mesh at any tooth: N1 N2 / gcd(N1, N2)^2 times gcd(N1, N2) positions.

    **Fields:** `teeth`: N1 and N2. `phase` [rad]: 0 if the wheels mesh at phi_1 = phi_2 = 0, as
    they do where joints given in the world were built.
    """

    teeth: Float[Array, "2"]
    phase: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        first: AbstractJoint,
        second: AbstractJoint,
        *,
        teeth: Any,
        phase: Number = 0.0,
        coordinates: tuple[int | None, int | None] = (None, None),
    ):
        """**Arguments:**

        - `first`, `second`: the joints, each with an angle, as `Revolute`.
        - `teeth`: the whole numbers (N1, N2), of any sign, not 0.
        - `phase`: as above [rad].
        - `coordinates`: which of the coordinates of each joint, if it has several angles.

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
        self.phase = jnp.asarray(phase, self.dtype)

    def equations(self, poses, t):
        del t
        n1, n2 = self.teeth
        ahead = n1 * self.first(poses[:2]) + n2 * self.second(poses[2:]) - self.phase
        return (within_half_a_turn(ahead) / n1)[None]
