"""Dry friction along a coordinate that sticks."""

from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._compiler import refuted, to_jax
from ..._contact import ContactLaw
from ..._coordinates import length
from ..._inputs import Number, checked, not_negative, positive
from ..pose import Wrench
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate, OfJoint
from .contact import AbstractContact


class DryFriction(AlongCoordinate, AbstractContact):
    """Dry friction along a scalar coordinate x, a set-valued law: the force or torque F along x has

        F = -g sign(x')  while x' is not 0,    |F| <= g  while it is 0,
        g = kinetic + (static - kinetic) exp(-(x' / speed)^2),
        kinetic = dry + coefficient radius N,    static = dry_static + static_coefficient radius N.

    So x sticks until more than `static` acts, and does not creep: x' is 0 to rounding. N is the
    load of a joint, |R| + 2 |M| / span, of its reaction: the force R, and the torque M about the
    origin of the joint's frame on b, which a bearing of the length `span` carries by two forces.
    It is found together with the friction, which changes it.

    It is one of the `contacts` of a `Mechanism`, solved for with them by `ContactImpulse`:

        bearing = mbd.contacts.DryFriction(
            "bearing", mbd.OfJoint(hinge), dry=0.02, coefficient=0.1, radius=0.01
        )
        mbd.Mechanism([...], [hinge], contacts=[bearing])

    Its row in `Solution.contact_force` holds g, and then F. g is taken at the rate x' at the start
    of each step.

    For a law that other methods integrate, see `CoordinateSpring`, whose `dry` friction is smoothed
    and creeps, and `LuGreFriction`.

    **Fields:** `name`; `coordinate`; `dry`, `static` [N or N m]: kinetic and static friction
    without load; `coefficient`, `static_coefficient` of friction by the load, or `None`; `radius`
    [m] at which it acts, for an angle; `span` [m], or `None` for infinite; `speed` [m/s or rad/s]
    (Stribeck).

    Reference: Glocker (2001), Set-Valued Force Laws, for friction in joints.
    """

    dry: Float[Array, ""]
    static: Float[Array, ""]
    speed: Float[Array, ""]
    coefficient: Float[Array, ""] | None
    static_coefficient: Float[Array, ""] | None
    radius: Float[Array, ""]
    span: Float[Array, ""] | None
    law: ContactLaw

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        dry: Annotated[Number, not_negative] = 0.0,
        static: Annotated[Number, not_negative] | None = None,
        speed: Annotated[Number, positive] = 1e-2,
        coefficient: Annotated[Number, not_negative] | None = None,
        static_coefficient: Annotated[Number, not_negative] | None = None,
        radius: Annotated[Number, positive] | None = None,
        span: Annotated[Number, positive] | None = None,
    ):
        """**Arguments:** the fields. `static` is by default `dry`, and `static_coefficient` the
        `coefficient`.

        **Raises:** `ValueError` for a coefficient out of its range, static friction below the
        kinetic one, a `coefficient` along a coordinate that is not `OfJoint`, and one of an angle
        without `radius`."""
        AlongCoordinate.__init__(self, name, coordinate)
        what, dtype = f'DryFriction "{name}"', coordinate.dtype
        static = dry if static is None else static
        static_coefficient = coefficient if static_coefficient is None else static_coefficient
        self.dry, self.static, self.speed = (to_jax(x, dtype) for x in (dry, static, speed))
        self._check_order(what, "static", static, "dry", dry)
        if coefficient is None and (static_coefficient, radius, span) != (None, None, None):
            raise ValueError(f"{what} by the load of a joint needs its `coefficient`.")
        if coefficient is not None:
            self._check_order(
                what, "static_coefficient", static_coefficient, "coefficient", coefficient
            )
            if not isinstance(coordinate, OfJoint):
                kind = type(coordinate).__name__
                raise ValueError(
                    f"{what} by the load needs the coordinate of a joint, `mbd.OfJoint(joint)`, "
                    f"but is along a {kind}."
                )
            if radius is None and coordinate.is_angle is not False:
                raise ValueError(
                    f"{what} by the load, about an axis, needs the `radius` at which it acts. "
                    "Along an axis of a joint that is given by its name, give `radius=1.0`."
                )
        self.coefficient, self.static_coefficient, self.span = (
            None if x is None else to_jax(x, dtype) for x in (coefficient, static_coefficient, span)
        )
        self.radius = to_jax(1.0 if radius is None else radius, dtype)
        # The largest friction is the normal impulse.
        self.law = ContactLaw(jnp.ones((), dtype), restitution=jnp.zeros((), dtype))

    @staticmethod
    def _check_order(what, high, static, low, kinetic):
        if refuted(lambda low, high: low <= high, kinetic, static):
            raise ValueError(
                f"`{high}` of {what} must not be below `{low}`, but they are {float(static):.6g} "
                f"and {float(kinetic):.6g}."
            )

    @property
    def by_load(self) -> bool:
        """Whether the friction depends on the load of the joint."""
        return self.coefficient is not None

    def load(self, reaction: Wrench) -> Float[Array, ""]:
        """N [N], from the reaction about the origin of the joint's frame."""
        N = length(reaction.force)
        return N if self.span is None else N + 2 * length(reaction.torque) / self.span

    def largest(
        self, rate: Float[Array, ""], load: Float[Array, ""] | None = None
    ) -> Float[Array, ""]:
        """g [N or N m], at the rate x' and the load N of the joint."""
        kinetic, static = self.dry, self.static
        if load is not None:
            assert self.coefficient is not None and self.static_coefficient is not None
            kinetic = kinetic + self.coefficient * self.radius * load
            static = static + self.static_coefficient * self.radius * load
        return kinetic + (static - kinetic) * jnp.exp(-jnp.square(rate / self.speed))

    # Only the rate of the coordinate matters.

    @property
    def angle_count(self):
        return 0

    def counted_angles(self, poses):
        del poses
        return ()

    def near(self, angles):
        del angles
        return self
