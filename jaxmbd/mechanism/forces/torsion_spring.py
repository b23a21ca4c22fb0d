from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._coordinates import dot
from ..._inputs import Number, checked, not_negative
from ..body import Body
from ..connector import AbstractConnector
from ..relative import twist, twist_axis, within_half_a_turn
from .base import AbstractForce, Wrench
from .signal import AbstractSignal, as_signal, as_tree
from .spring import further_force, stored


class TorsionSpring(AbstractForce):
    """Spring, damper and actuator about the axes e_a and e_b of its frames: on b acts the torque
    T g, and on a the opposite,

        T = -stiffness x - damping x' - dV/dx(x) - law(x, x') + actuator(t, u),
        x = phi - rest_angle,    x' = g . (omega_b - omega_a),    g = (e_a + e_b) / (1 + e_a . e_b).

    Where a joint keeps the axes parallel, g is the axis of a and phi the angle of `Revolute`. Else
    phi is the twist: the turn about e_a that is left of the rotation from a to b after the shortest
    turn from e_a to e_b. So energy, stiffness x^2 / 2 + V(x), is kept for rotations of any kind.
    Axes that come to be opposite have no twist, and the torque has no bound near there.

    A pose does not tell the turns made: x is taken within half a turn, and there the torque of a
    spring jumps to the opposite side. A spring wound further needs its turns as a coordinate.

    **Fields:** `stiffness` [N m/rad], `damping` [N m s/rad], `rest_angle` [rad]; and, or `None`,

    - `potential`: V, function x -> energy [J] of a nonlinear spring;
    - `law`: any other torque against x [N m], function (x, x'); what it stores is not counted as
      energy;
    - `actuator`: torque that turns b forwards and a back [N m], an `AbstractSignal`.
    """

    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    rest_angle: Float[Array, ""]
    potential: Callable[..., Any] | None
    law: Callable[..., Any] | None
    actuator: AbstractSignal | None

    directed: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        stiffness: Annotated[Number, not_negative] = 0.0,
        damping: Annotated[Number, not_negative] = 0.0,
        rest_angle: Number = 0.0,
        potential: Callable[..., Any] | None = None,
        law: Callable[..., Any] | None = None,
        actuator: Any = None,
        **frames: Any,
    ):
        """**Arguments:** the fields; the others as in `AbstractJoint`. `actuator` may be a number,
        a function of the time, or an `AbstractSignal` such as `FromControl`.

        **Raises:** `ValueError` for a stiffness or damping that is negative or not finite, as
        `Spring` does.
        """
        AbstractConnector.__init__(self, name, a, b, **frames)
        of = f'of TorsionSpring "{name}"'
        self.stiffness = jnp.asarray(stiffness, self.dtype)
        self.damping = jnp.asarray(damping, self.dtype)
        self.rest_angle = jnp.asarray(rest_angle, self.dtype)
        self.potential = None if potential is None else as_tree(potential)
        self.law = None if law is None else as_tree(law)
        self.actuator = (
            None if actuator is None else as_signal(f"`actuator` {of}", actuator, self.dtype)
        )

    def wrench(self, a, b, twist_a, twist_b, t, u):
        x = within_half_a_turn(twist(a, b) - self.rest_angle)
        axis = twist_axis(a, b)
        rate = dot(axis, twist_b.angular - twist_a.angular)
        against = self.stiffness * x + self.damping * rate + further_force(self, x, rate, t, u)
        return Wrench.of_torque(-against * axis)

    def energy(self, poses, t):
        del t
        return stored(self, within_half_a_turn(twist(*poses) - self.rest_angle))
