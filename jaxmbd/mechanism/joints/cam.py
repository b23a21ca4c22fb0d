from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._inputs import Vector, checked, number
from ..body import Body
from ..pose import Frame
from ..relative import offset, polar_angle
from .base import AbstractJoint, limit_pairs


class Cam(AbstractJoint):
    """A follower on a disc cam. The origin of b stays on a surface about the axis of a. The section
    of the surface is radius = profile(phi) in polar coordinates, with phi from the x axis of a.

    Another joint guides the follower, so its position along the axis is free here. For a follower
    with a roller, give the profile that the centre of the roller follows. The contact can pull: the
    follower never leaves the cam.

    Row: rho - profile(phi), with (rho, phi) the polar coordinates of b normal to the axis (1).
    Freedoms: 5. Coordinates: the displacement along the axis, the angle phi.

    **Fields:** `profile`: a function, such as a `PeriodicSpline`.
    """

    profile: Callable[[Any], Any]

    rows: ClassVar[int] = 1
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        profile: Callable[[Float[Array, ""]], Any],
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        axis: Vector | None = None,
        axes: Sequence[Vector] | None = None,
        orientation: Any = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
        limits: Annotated[Any, number] = None,
    ):
        """**Arguments:** as `AbstractJoint`. An `orientation` or frames say where phi = 0 is.

        - `profile`: a function of the angle phi [rad], from -pi to pi, that returns the radius > 0
          [m], shape `()`; periodic and at least twice differentiable. The arrays of a
          `PeriodicSpline` or another `eqx.Module` are parameters with derivatives.
        """
        self._connect(name, (a, b), (point, points), (axis, axes, orientation), (frame_a, frame_b))
        self.limits = limit_pairs(limits, self.dtype)
        what = f'`profile` of Cam "{name}"'
        if not callable(profile):
            raise ValueError(f"{what} must be a function of the angle, but is {profile!r}.")
        radius = eqx.filter_eval_shape(profile, jax.ShapeDtypeStruct((), self.dtype))
        if getattr(radius, "shape", None) != ():
            raise ValueError(f"{what} must give a number, shape (), but gives {radius}.")
        self.profile = profile

    def constraint(self, a, b, t):
        del t
        x, y, _ = offset(a, b)
        # The angle is undefined on the axis. All derivatives of rho and phi are set to 0 there.
        r2 = x * x + y * y
        apart = r2 > 0
        rho = jnp.where(apart, jnp.sqrt(jnp.where(apart, r2, 1.0)), 0.0)
        radius = self.profile(polar_angle(x, y))
        return (rho - jnp.asarray(radius, rho.dtype))[None]

    def coordinates(self, a, b):
        x, y, z = offset(a, b)
        return jnp.stack([z, polar_angle(x, y)])
