from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import numpy_if_concrete, to_jax
from ..._coordinates import dot
from ..._inputs import Number, Vector, checked, not_negative
from ..body import Body
from ..element import replaced
from ..pose import Frame
from ..relative import near_angle, twist, twist_axis
from .abstract_spring import AbstractSpring
from .base import Wrench


class TorsionSpring(AbstractSpring):
    """Spring, damper and actuator about the axes e_a and e_b of its frames. The torque T g acts on
    b, and the opposite on a, with

        T = -stiffness x - damping x' - dV/dx(x) - law(x, x') + actuator(t, u),
        x = phi - rest_angle,    x' = g . (omega_b - omega_a),    g = (e_a + e_b) / (1 + e_a . e_b).

    If a joint keeps the axes parallel, g is the axis of a, and phi is the angle of `Revolute`.
    Otherwise phi is the twist: the rotation about e_a that remains of the rotation from a to b
    after the shortest rotation from e_a to e_b. So the energy, stiffness x^2 / 2 + V(x), is
    conserved for all rotations. Opposite axes have no twist. Near them the torque is unbounded.

    A simulation starts with x within half a turn, and counts the turns from there, so springs may
    be wound further. At a pose alone x is within half a turn.

    **Fields:** `stiffness` [N m/rad], `damping` [N m s/rad], `rest_angle` [rad]; `middle`: x is
    within half a turn of it [rad]. Optional:

    - `potential`: V, a function of x that returns the energy [J] of a nonlinear spring;
    - `law`: any other torque against x [N m], a function of (x, x'). Its work does not count as
      stored energy;
    - `actuator`: the torque that turns b forwards and a back [N m], an `AbstractSignal`.
    """

    rest_angle: Float[Array, ""]
    middle: Float[Array, ""]

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
        self.rest_angle = to_jax(rest_angle, self.dtype)
        self.middle = jnp.zeros((), self.dtype)

    def wrench(self, a, b, twist_a, twist_b, t, u):
        (x,) = self.counted_angles((a, b))
        axis = twist_axis(a, b)
        rate = dot(axis, twist_b.angular - twist_a.angular)
        against = self.stiffness * x + self.damping * rate + self.further_force(x, rate, t, u)
        return Wrench.of_torque(-against * axis)

    def energy(self, poses, t):
        del t
        (x,) = self.counted_angles(poses)
        return self.stored(x)

    @property
    def angle_count(self):
        return 1

    def counted_angles(self, poses):
        return (near_angle(twist(*poses) - self.rest_angle, self.middle),)

    def near(self, angles):
        (middle,) = angles
        return replaced(self, middle=middle)

    @property
    def needs_turns(self):
        if self.potential is not None or self.law is not None:
            return True
        return numpy_if_concrete(self.stiffness).asarray(self.stiffness) != 0
