from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._coordinates import dot
from ..._inputs import Number, Vector, checked, not_negative
from ..body import Body
from ..pose import Frame
from .abstract_spring import AbstractSpring
from .base import Wrench


class Spring(AbstractSpring):
    """Spring, damper and actuator along the line from the origin of a to that of b: the tension

        stiffness x + damping x' + dV/dx(x) + law(x, x') - actuator(t, u),
        x = |r_b - r_a| - rest_length.

    Where both points meet the line has no direction: what is left there is the linear spring
    without a rest length. Energy: stiffness x^2 / 2 + V(x).

    **Fields:** `stiffness` [N/m], `damping` [N s/m], `rest_length` [m]; and, or `None`,

    - `potential`: V, function x -> energy [J] of a nonlinear spring;
    - `law`: any other tension [N], function (x, x'); what it stores is not counted as energy;
    - `actuator`: force that pushes both ends apart [N], an `AbstractSignal`.
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
        rest_length: Annotated[Number, not_negative],
        potential: Callable[..., Any] | None = None,
        law: Callable[..., Any] | None = None,
        actuator: Any = None,
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
    ):
        """**Arguments:** the fields; the others as in `AbstractJoint`, usually `points`, the two
        ends. `actuator` may be a number, a function of the time, or an `AbstractSignal` such as
        `FromControl`.

        **Raises:** `ValueError` for a stiffness, damping or rest length that is negative or not
        finite: a spring that pushes ever harder away from rest, or a damper that drives, is an
        error of sign more often than meant, and can be given as `potential` or `law`.
        """
        self._connect(name, (a, b), (point, points), (None, None, None), (frame_a, frame_b))
        self._set_spring(stiffness, damping, potential, law, actuator)
        self.rest_length = jnp.asarray(rest_length, self.dtype)

    def wrench(self, a, b, twist_a, twist_b, t, u):
        d = b.position - a.position
        length, apart = _length(d)
        direction = jnp.where(apart, d / jnp.where(apart, length, 1.0), 0.0)
        rate = dot(direction, twist_b.linear - twist_a.linear)
        more = self.further_force(length - self.rest_length, rate, t, u)
        tension = self.damping * rate - self.stiffness * self.rest_length + more
        # stiffness l times the direction is stiffness d, which has its derivative at l = 0 too.
        return Wrench(-tension * direction - self.stiffness * d, jnp.zeros_like(d))

    def energy(self, poses, t):
        a, b = poses
        length, _ = _length(b.position - a.position)
        return self.stored(length - self.rest_length)


def _length(d: Float[Array, "3"]) -> tuple[Array, Array]:
    """|d|, with the derivative 0 at d = 0, and whether it is there."""
    l2 = dot(d, d)
    apart = l2 > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, l2, 1.0)), 0.0), apart
