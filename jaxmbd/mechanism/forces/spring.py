from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._coordinates import dot
from ..._inputs import Number, checked, not_negative
from ..body import Body
from ..connector import AbstractConnector
from .base import AbstractForce, Wrench
from .signal import AbstractSignal, as_signal, as_tree, read


class Spring(AbstractForce):
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

    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    rest_length: Float[Array, ""]
    potential: Callable[..., Any] | None
    law: Callable[..., Any] | None
    actuator: AbstractSignal | None

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
        **frames: Any,
    ):
        """**Arguments:** the fields; the others as in `AbstractJoint`, usually `points`, the two
        ends. `actuator` may be a number, a function of the time, or an `AbstractSignal` such as
        `FromControl`.

        **Raises:** `ValueError` for a stiffness, damping or rest length that is negative or not
        finite: a spring that pushes ever harder away from rest, or a damper that drives, is an
        error of sign more often than meant, and can be given as `potential` or `law`.
        """
        AbstractConnector.__init__(self, name, a, b, **frames)
        of = f'of Spring "{name}"'
        self.stiffness = jnp.asarray(stiffness, self.dtype)
        self.damping = jnp.asarray(damping, self.dtype)
        self.rest_length = jnp.asarray(rest_length, self.dtype)
        self.potential = None if potential is None else as_tree(potential)
        self.law = None if law is None else as_tree(law)
        self.actuator = (
            None if actuator is None else as_signal(f"`actuator` {of}", actuator, self.dtype)
        )

    def wrench(self, a, b, twist_a, twist_b, t, u):
        d = b.position - a.position
        length, apart = _length(d)
        direction = jnp.where(apart, d / jnp.where(apart, length, 1.0), 0.0)
        rate = dot(direction, twist_b.linear - twist_a.linear)
        more = further_force(self, length - self.rest_length, rate, t, u)
        tension = self.damping * rate - self.stiffness * self.rest_length + more
        # stiffness l times the direction is stiffness d, which has its derivative at l = 0 too.
        return Wrench(-tension * direction - self.stiffness * d, jnp.zeros_like(d))

    def energy(self, poses, t):
        a, b = poses
        length, _ = _length(b.position - a.position)
        return stored(self, length - self.rest_length)


def further_force(spring: Any, x: Array, rate: Array, t: Any, u: Any) -> Float[Array, ""]:
    """dV/dx + law - actuator of a `Spring` or a `TorsionSpring`."""
    force = jnp.zeros_like(x)
    if spring.potential is not None:
        potential = spring.potential
        force = force + jax.grad(lambda x: jnp.asarray(potential(x), x.dtype))(x)
    if spring.law is not None:
        force = force + jnp.asarray(spring.law(x, rate), x.dtype)
    if spring.actuator is not None:
        what = f'`actuator` of {type(spring).__name__} "{spring.name}"'
        force = force - read(what, spring.actuator, t, u, x.dtype)
    return force


def stored(spring: Any, x: Array) -> Float[Array, ""]:
    """stiffness x^2 / 2 + V(x) of a `Spring` or a `TorsionSpring`."""
    linear = spring.stiffness * x * x / 2
    if spring.potential is None:
        return linear
    return linear + jnp.asarray(spring.potential(x), x.dtype)


def _length(d: Float[Array, "3"]) -> tuple[Array, Array]:
    """|d|, with the derivative 0 at d = 0, and whether it is there."""
    l2 = dot(d, d)
    apart = l2 > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, l2, 1.0)), 0.0), apart
