"""Dry friction along a coordinate that sticks."""

import functools
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..._compiler import array_namespace, refuted, to_jax
from ..._contact import ContactLaw
from ..._coordinates import length
from ..._inputs import Number, checked, not_negative, positive
from ..._types import RealScalarLike
from ..forces import AbstractSignal, SignalLike, as_signal, read
from ..pose import Wrench
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate, OfJoint
from .contact import AbstractContact


class DryFriction(AlongCoordinate, AbstractContact):
    """Dry friction along a scalar coordinate x, a set-valued law: the force or torque F along x has

        F = -g sign(x')  while x' is not 0,    |F| <= g  while it is 0,
        g = kinetic + (static - kinetic) exp(-(x' / speed)^2),
        kinetic = dry + coefficient radius N,    static = dry_static + static_coefficient radius N.

    So x sticks until more than `static` acts, and does not creep: x' is 0 to rounding. N is the
    load of what presses the surfaces:

    - of a joint |R| + 2 |M| / span, of its reaction: the force R, and the torque M about the origin
      of the joint's frame on b, which a bearing of the length `span` carries by two forces;
    - of a coupling such as a `Gear` the size of its multiplier, and of a force along a coordinate,
      such as a `PlaySpring`, its size. Friction on the input of a drive with
      coefficient = (1 / efficiency - 1) / ratio and radius = 1 has this efficiency when the input
      drives, and 2 - 1 / efficiency when the output does: below 1/2 the drive locks itself. With
      backward_coefficient = (1 - efficiency) / ratio it has this other efficiency then.

    The `backward_coefficient` counts where x' has the sign of the coupling's multiplier, or of the
    force along a coordinate: on the input of a drive of positive ratio, where the output drives.
    Near rest, below `speed`, the `static_coefficient` counts in both directions.

    The load of a joint or a coupling is found together with the friction, which changes it.

    It is one of the `contacts` of a `Mechanism`, solved for with them by `ContactImpulse`:

        bearing = mbd.contacts.DryFriction(
            "bearing", mbd.OfJoint(hinge), dry=0.02, coefficient=0.1, radius=0.01
        )
        mbd.Mechanism([...], [hinge], contacts=[bearing])

    With a `pressure` all of g is multiplied by this signal, for a clutch or a brake:

        x = mbd.coordinates.DriveTwist(mbd.OfJoint("engine"), mbd.OfJoint("wheel"))
        mbd.contacts.DryFriction("clutch", x, dry=200.0, pressure=mbd.FromControl(0))

    Its row in `Solution.contact_force` holds g, and then F. g is taken at the rate x' at the start
    of each step.

    For a law that other methods integrate, see `CoordinateSpring`, whose `dry` friction is smoothed
    and creeps, and `LuGreFriction`.

    **Fields:** `name`; `coordinate`; `dry`, `static` [N or N m]: kinetic and static friction
    without load; `coefficient`, `static_coefficient` of friction by the load, or `None`;
    `backward_coefficient`, or `None` for `coefficient`; `radius` [m] at which it acts, for an
    angle; `span` [m], or `None` for infinite; `speed` [m/s or rad/s] (Stribeck); `pressed_by`: the
    name of the joint, coupling or force whose load it is, `None` for the joint of the coordinate;
    `pressure`: an `AbstractSignal`, where it is negative it counts as 0, or `None` for 1.

    Reference: Glocker (2001), Set-Valued Force Laws, for friction in joints.
    """

    dry: Float[Array, ""]
    static: Float[Array, ""]
    speed: Float[Array, ""]
    coefficient: Float[Array, ""] | None
    static_coefficient: Float[Array, ""] | None
    backward_coefficient: Float[Array, ""] | None
    radius: Float[Array, ""]
    span: Float[Array, ""] | None
    pressed_by: str | None = eqx.field(static=True)
    pressure: AbstractSignal | None
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
        backward_coefficient: Annotated[Number, not_negative] | None = None,
        radius: Annotated[Number, positive] | None = None,
        span: Annotated[Number, positive] | None = None,
        pressed_by: str | None = None,
        pressure: SignalLike | None = None,
    ):
        """**Arguments:** the fields. `static` is by default `dry`, and `static_coefficient` the
        larger one of the two others. `radius` is 1 where something is named that presses.
        `pressure` may be a number, a function of the time, or an `AbstractSignal` such as
        `FromControl(0)`.

        **Raises:** `ValueError` for a coefficient out of its range, static friction below the
        kinetic one, a `backward_coefficient` of the load of a joint, a `coefficient` without
        `pressed_by` along a coordinate that is not `OfJoint`, and one of an angle without
        `radius`."""
        AlongCoordinate.__init__(self, name, coordinate)
        what, dtype = f'DryFriction "{name}"', coordinate.dtype
        static = dry if static is None else static
        kinetic = [x for x in (coefficient, backward_coefficient) if x is not None]
        if static_coefficient is None and kinetic:
            static_coefficient = functools.reduce(array_namespace(*kinetic).maximum, kinetic)
        self.dry, self.static, self.speed = (to_jax(x, dtype) for x in (dry, static, speed))
        self._check_order(what, "static", static, "dry", dry)
        given = static_coefficient, radius, span, pressed_by
        if coefficient is None and given != (None,) * 4:
            raise ValueError(f"{what} by the load of a joint needs its `coefficient`.")
        if coefficient is not None:
            for kind, value in ("", coefficient), ("backward_", backward_coefficient):
                if value is not None:
                    low = f"{kind}coefficient"
                    self._check_order(what, "static_coefficient", static_coefficient, low, value)
            if backward_coefficient is not None and (pressed_by is None or span is not None):
                raise ValueError(
                    f"{what} has a `backward_coefficient`, so that it must be `pressed_by` a "
                    "coupling or a force along a coordinate."
                )
            if pressed_by is None:
                self._check_joint(what, coordinate, radius)
        values = coefficient, static_coefficient, backward_coefficient, span
        self.coefficient, self.static_coefficient, self.backward_coefficient, self.span = (
            None if x is None else to_jax(x, dtype) for x in values
        )
        self.radius = to_jax(1.0 if radius is None else radius, dtype)
        self.pressed_by = pressed_by
        self.pressure = None if pressure is None else as_signal(self._of_pressure, pressure, dtype)
        # The largest friction is the normal impulse.
        self.law = ContactLaw(jnp.ones((), dtype), restitution=jnp.zeros((), dtype))

    @staticmethod
    def _check_order(what, high, static, low, kinetic):
        if refuted(lambda low, high: low <= high, kinetic, static):
            raise ValueError(
                f"`{high}` of {what} must not be below `{low}`, but they are {float(static):.6g} "
                f"and {float(kinetic):.6g}."
            )

    @staticmethod
    def _check_joint(what, coordinate, radius):
        if not isinstance(coordinate, OfJoint):
            kind = type(coordinate).__name__
            raise ValueError(
                f"{what} by the load needs the coordinate of a joint, `mbd.OfJoint(joint)`, or "
                f"what it is `pressed_by`, but is along a {kind}."
            )
        if radius is None and coordinate.is_angle is not False:
            raise ValueError(
                f"{what} by the load, about an axis, needs the `radius` at which it acts. Along an "
                "axis of a joint that is given by its name, give `radius=1.0`."
            )

    @property
    def by_load(self) -> bool:
        """Whether the friction depends on a load."""
        return self.coefficient is not None

    @property
    def directed(self) -> bool:
        """Whether the sign of the load counts."""
        return self.backward_coefficient is not None

    @property
    def presser(self) -> str:
        """The name of the joint, coupling or force whose load counts."""
        if self.pressed_by is not None:
            return self.pressed_by
        assert isinstance(self.coordinate, OfJoint)
        return self.coordinate.joint_name

    @property
    def _of_pressure(self) -> str:
        return f'`pressure` of DryFriction "{self.name}"'

    def share(self, t: RealScalarLike, u: PyTree) -> Float[Array, ""]:
        """The factor of g by the `pressure` at the time t for the control u."""
        assert self.pressure is not None
        return jnp.maximum(read(self._of_pressure, self.pressure, t, u, self.dry.dtype), 0.0)

    def load(self, reaction: Wrench) -> Float[Array, ""]:
        """N [N], from the reaction about the origin of the joint's frame."""
        N = length(reaction.force)
        return N if self.span is None else N + 2 * length(reaction.torque) / self.span

    def largest(
        self, rate: Float[Array, ""], load: Float[Array, ""] | None = None
    ) -> Float[Array, ""]:
        """g [N or N m], at the rate x' and the load N, with its sign if that counts, for a pressure
        of 1."""
        kinetic, static = self.dry, self.static
        if load is not None:
            assert self.coefficient is not None and self.static_coefficient is not None
            coefficient = self.coefficient
            if self.backward_coefficient is not None:
                drives = load * rate > 0
                coefficient = jnp.where(drives, self.backward_coefficient, coefficient)
                load = jnp.abs(load)
            kinetic = kinetic + coefficient * self.radius * load
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
