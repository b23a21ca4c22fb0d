from typing import Any

import numpy as np
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._inputs import Number, checked, not_zero
from ..relative import within_half_a_turn
from .base import AbstractJoint
from .coupling import AbstractCoupling


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
        first: AbstractJoint,
        second: AbstractJoint,
        *,
        teeth: Any,
        phase: Number = 0.0,
        coordinates: tuple[int | None, int | None] = (None, None),
    ):
        """**Arguments:**

        - `first`, `second`: the joints, each with an angle, such as `Revolute`.
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
