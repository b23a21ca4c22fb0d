from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._coordinates import dot
from ..._inputs import Number, checked, not_negative
from ..body import Body
from ..pose import Frame
from .base import Wrench
from .load import AbstractLoad
from .signal import AbstractSignal, as_signal, read


class Drag(AbstractLoad):
    """Resistance of a medium with the velocity `wind`. The force and the torque on a body are

        F = -(linear + quadratic |w|) w,    w = v - wind,
        T = -angular omega.

    F acts at the point with the velocity v, by default the centre of mass.

    **Fields:** `linear` [N s/m], `quadratic` [N s^2/m^2] (density times drag coefficient times area
    over 2), `angular` [N m s/rad], `wind` [m/s]; `at_center`: whether the point is the centre of
    mass because none was given.
    """

    linear: Float[Array, ""]
    quadratic: Float[Array, ""]
    angular: Float[Array, ""]
    wind: AbstractSignal
    at_center: bool = eqx.field(static=True)

    @checked
    def __init__(
        self,
        name: str,
        body: Body | str,
        *,
        linear: Annotated[Number, not_negative] = 0.0,
        quadratic: Annotated[Number, not_negative] = 0.0,
        angular: Annotated[Number, not_negative] = 0.0,
        wind: Any = (0.0, 0.0, 0.0),
        point: Any = None,
        frame: Frame | None = None,
    ):
        """**Arguments:** the fields; the body and the point as in `AbstractLoad`. Without `point`
        and `frame`, the point is the centre of mass of a `Body`. `wind` may be a vector in world
        axes, a function of the time, or an `AbstractSignal`.

        **Raises:** `ValueError` for a negative coefficient.
        """
        self.at_center = False
        if isinstance(body, Body) and point is None and frame is None:
            self.at_center = True
            point = body.pose.point(body.inertia.center)
        AbstractLoad.__init__(self, name, body, point=point, frame=frame)
        of = f'of Drag "{name}"'
        self.linear = to_jax(linear, self.dtype)
        self.quadratic = to_jax(quadratic, self.dtype)
        self.angular = to_jax(angular, self.dtype)
        self.wind = as_signal(f"`wind` {of}", wind, self.dtype, (3,))

    def load(self, pose, twist, t, u):
        del pose
        what = f'`wind` of Drag "{self.name}"'
        w = twist.linear - read(what, self.wind, t, u, twist.linear.dtype, (3,))
        w2 = dot(w, w)
        moving = w2 > 0  # |w| w has the derivative 0 at rest
        speed = jnp.where(moving, jnp.sqrt(jnp.where(moving, w2, 1.0)), 0.0)
        return Wrench(-(self.linear + self.quadratic * speed) * w, -self.angular * twist.angular)
