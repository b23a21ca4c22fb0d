from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._coordinates import dot
from ..._inputs import Number, Vector, checked, not_negative
from ..body import Body
from ..pose import Frame
from ..relative import twist, twist_axis, within_half_a_turn
from .abstract_spring import AbstractSpring
from .base import Wrench


class TorsionSpring(AbstractSpring):
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

    rest_angle: Float[Array, ""]

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
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        axis: Vector | None = None,
        axes: Sequence[Vector] | None = None,
        orientation: Any = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
    ):
        """**Arguments:** the fields; the others as in `AbstractJoint`. `actuator` may be a number,
        a function of the time, or an `AbstractSignal` such as `FromControl`.

        **Raises:** `ValueError` for a stiffness or damping that is negative or not finite, as
        `Spring` does.
        """
        self._connect(name, (a, b), (point, points), (axis, axes, orientation), (frame_a, frame_b))
        self._set_spring(stiffness, damping, potential, law, actuator)
        self.rest_angle = jnp.asarray(rest_angle, self.dtype)

    def wrench(self, a, b, twist_a, twist_b, t, u):
        x = within_half_a_turn(twist(a, b) - self.rest_angle)
        axis = twist_axis(a, b)
        rate = dot(axis, twist_b.angular - twist_a.angular)
        against = self.stiffness * x + self.damping * rate + self.further_force(x, rate, t, u)
        return Wrench.of_torque(-against * axis)

    def energy(self, poses, t):
        del t
        return self.stored(within_half_a_turn(twist(*poses) - self.rest_angle))
