from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._concrete import is_concrete, to_jax
from ..._coordinates import dot
from ..._inputs import Number, Vector, checked, not_negative
from ..body import Body
from ..pose import Frame
from .abstract_spring import AbstractSpring
from .base import Wrench


class Spring(AbstractSpring):
    """Spring, damper and actuator along the line from the origin of a to that of b. The tension is

        stiffness x + damping x' + dV/dx(x) + law(x, x') - actuator(t, u),
        x = |r_b - r_a| - rest_length.

    Where both points meet, the line has no direction. Only a linear spring of rest length 0 remains
    there, whose force is 0. Energy: stiffness x^2 / 2 + V(x).

    **Fields:** `stiffness` [N/m], `damping` [N s/m], `rest_length` [m]. Optional:

    - `potential`: V, a function of x that returns the energy [J] of a nonlinear spring;
    - `law`: any other tension [N], a function of (x, x'). Its work does not count as stored energy;
    - `actuator`: the force that pushes both ends apart [N], an `AbstractSignal`.
    """

    rest_length: Float[Array, ""]

    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        stiffness: Annotated[Number, not_negative] = 0.0,
        damping: Annotated[Number, not_negative] = 0.0,
        rest_length: Annotated[Number, not_negative] | None = None,
        potential: Callable[..., Any] | None = None,
        law: Callable[..., Any] | None = None,
        actuator: Any = None,
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
    ):
        """**Arguments:** the fields; the others as in `AbstractJoint`, usually `points` (the two
        ends). `actuator` may be a number, a function of the time, or an `AbstractSignal` such as
        `FromControl`. A damper or an actuator alone needs no `rest_length`; the field is then 0.

        **Raises:** `ValueError` for a stiffness, damping or rest length that is negative or not
        finite, and for a missing `rest_length` if the force depends on it. A negative stiffness or
        damping is usually a wrong sign. If you mean it, use `potential` or `law`.
        """
        self._connect(name, (a, b), (point, points), (None, None, None), (frame_a, frame_b))
        self._set_spring(stiffness, damping, potential, law, actuator)
        if rest_length is None:
            elastic = not is_concrete(stiffness) or np.any(np.asarray(stiffness))
            measured = {"stiffness": elastic, "potential": potential, "law": law}
            if needs := [f"`{what}`" for what, given in measured.items() if given]:
                raise ValueError(
                    f'Argument `rest_length` of Spring "{name}" must be given with '
                    f"{' and '.join(needs)}: x is the length beyond it."
                )
        self.rest_length = to_jax(0.0 if rest_length is None else rest_length, self.dtype)

    def wrench(self, a, b, twist_a, twist_b, t, u):
        d = b.position - a.position
        length, apart = _length(d)
        direction = jnp.where(apart, d / jnp.where(apart, length, 1.0), 0.0)
        rate = dot(direction, twist_b.linear - twist_a.linear)
        more = self.further_force(length - self.rest_length, rate, t, u)
        tension = self.damping * rate - self.stiffness * self.rest_length + more
        # stiffness l times the direction is written as stiffness d, which is smooth at l = 0.
        return Wrench(-tension * direction - self.stiffness * d, jnp.zeros_like(d))

    def energy(self, poses, t):
        a, b = poses
        length, _ = _length(b.position - a.position)
        return self.stored(length - self.rest_length)


def _length(d: Float[Array, "3"]) -> tuple[Array, Array]:
    """|d|, with the derivative 0 at d = 0, and whether d is not 0."""
    l2 = dot(d, d)
    apart = l2 > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, l2, 1.0)), 0.0), apart
