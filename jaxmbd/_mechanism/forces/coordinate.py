"""Laws of forces along scalar coordinates: springs with dampers, friction and rotors; actuators."""

import abc
from collections.abc import Callable
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from ..._checks import check_ordered
from ..._compiler import array_namespace, clip, to_jax
from ..._inputs import (
    Number,
    Numbers,
    Shape,
    Vector,
    at_least,
    checked,
    not_negative,
    number,
    positive,
)
from ..._types import RealScalarLike
from ..pose import Wrench
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate
from .base import AbstractForceElement
from .signal import (
    AbstractSignal,
    SignalLike,
    as_signal,
    as_tree,
    bounded,
    clipped,
    control_entry,
    read,
)


class AbstractCoordinateForce(AlongCoordinate, AbstractForceElement):
    """A force or torque along a scalar coordinate, by a law of the coordinate and its rate.

    For a new law, write a subclass with `force`. If it stores energy, write `stored` too. If it has
    states of its own, name them in `internal_names`, and write `internal_rate`.

    **Fields:** `name`; `coordinate`.
    """

    @abc.abstractmethod
    def force(
        self, x: Float[Array, ""], rate: Float[Array, ""], t: RealScalarLike, u: PyTree
    ) -> Float[Array, ""]:
        """The force or torque along the coordinate x [N or N m], at x [m or rad], its rate
        [m/s or rad/s], the time and the control (`None` without one), and with internal states also
        for z, the last argument. A pure function."""

    def internal_rate(
        self,
        x: Float[Array, ""],
        rate: Float[Array, ""],
        t: RealScalarLike,
        u: PyTree,
        z: Float[Array, " nz"],
    ) -> Float[Array, " nz"]:
        """z' of the internal states."""
        raise TypeError(
            f"`{type(self).__name__}` has `internal_names`, but no method "
            "`internal_rate(x, rate, t, u, z)` that returns their rates."
        )

    def stored(self, x: Float[Array, ""]) -> Float[Array, ""]:
        """The potential energy at x [J]. Default: 0."""
        return jnp.zeros_like(x)

    @property
    def measures(self) -> bool:
        """Whether the force depends on x, or on its rate only. Default: on x."""
        return True

    def wrenches(self, poses, twists, t, u, *z):
        return self._along(poses, self.along(poses, twists, t, u, *z))

    def along(self, poses, twists, t, u, *z) -> Float[Array, ""]:
        """The force or torque along the coordinate [N or N m], where the frames are and how they
        move."""
        return self.force(*self._moving(poses, twists), t, u, *z)

    def internal(self, poses, twists, t, u, z):
        return self.internal_rate(*self._moving(poses, twists), t, u, z)

    def _moving(self, poses, twists) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The coordinate, 0 if it does not matter, and its rate."""
        rate = self.coordinate.rate(poses, twists)
        return self.coordinate.value(poses) if self.measures else jnp.zeros_like(rate), rate

    def _along(self, poses, force: Float[Array, ""]) -> tuple[Wrench, ...]:
        return tuple(wrench.times(force) for wrench in self.coordinate.directions(poses))

    def rate(self, poses, twists):
        return self.coordinate.rate(poses, twists)

    def energy(self, poses, t):
        del t
        return self.stored(self.coordinate.value(poses))

    @property
    def angle_count(self):
        return self.coordinate.angle_count if self.measures else 0

    def counted_angles(self, poses):
        return self.coordinate.counted_angles(poses) if self.measures else ()

    def near(self, angles):
        return AlongCoordinate.near(self, angles) if self.measures else self


class CoordinateSpring(AbstractCoordinateForce):
    """Spring, damper, dry friction, actuator and rotor along a scalar coordinate x, with the force
    or torque

        -stiffness s - damping x' - dry x' / sqrt(x'^2 + speed^2)
        - dV/ds(s) - law(s, x') + actuator(t, u) - armature x''.

    s is x - rest, or the distance of x from an interval `rest`, with its sign. Energy:
    stiffness s^2 / 2 + V(s).

    Dry friction is Coulomb's law with its jump at rest smoothed: 71 % of `dry` at `speed`, 99.5 %
    at ten times that rate. So the element creeps instead of sticking, like a stiff damper with the
    force dry x' / speed. Choose `speed` well below the rates of interest. With an explicit scheme
    of step h, dry h / speed must not exceed the mass. `dry` is a given force or torque. It does not
    depend on the load of a joint.

    The force of a linear spring along a length, as that of `Spring`, is smooth where the length is
    0 and has no direction. Any other force is 0 there.

    **Fields:** `name`; `coordinate`; and, each `None` where there is none,

    - `stiffness` [N/m or N m/rad]; `rest` [m or rad]: a number, or the lower and upper end of the
      interval without force;
    - `damping` [N s/m or N m s/rad]; `dry` [N or N m] and `speed` [m/s or rad/s];
    - `potential`: V, a function of s that returns the energy [J] of a nonlinear spring;
    - `law`: any other resistance [N or N m], a function of (s, x'). Its work does not count as
      stored energy;
    - `actuator`: the force or torque that drives x forwards, an `AbstractSignal`;
    - `armature` [kg or kg m^2], which is part of M.
    """

    stiffness: Float[Array, ""] | None
    rest: Float[Array, ""] | Float[Array, "2"] | None
    damping: Float[Array, ""] | None
    dry: Float[Array, ""] | None
    speed: Float[Array, ""]
    potential: Callable[[Array], ArrayLike] | None
    law: Callable[[Array, Array], ArrayLike] | None
    actuator: AbstractSignal | None
    armature: Float[Array, ""] | None

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        stiffness: Annotated[Number, not_negative] | None = None,
        rest: Numbers | None = None,
        damping: Annotated[Number, not_negative] | None = None,
        dry: Annotated[Number, not_negative] | None = None,
        speed: Annotated[Number, positive] = 1e-2,
        potential: Callable[[Array], ArrayLike] | None = None,
        law: Callable[[Array, Array], ArrayLike] | None = None,
        actuator: SignalLike | None = None,
        armature: Annotated[Number, not_negative] | None = None,
    ):
        """**Arguments:** the fields. Without `rest`, x = 0 is without force. `actuator` may be a
        number, a function of the time, or an `AbstractSignal` such as `FromControl`.

        **Raises:** `ValueError` for a coefficient that is negative or not finite, and for an
        interval whose ends are swapped. A negative
        stiffness or damping is usually a wrong sign. If you mean it, use `potential` or `law`."""
        AlongCoordinate.__init__(self, name, coordinate)
        dtype = coordinate.dtype
        self.stiffness, self.rest, self.damping, self.dry, self.armature = (
            None if x is None else to_jax(x, dtype)
            for x in (stiffness, rest, damping, dry, armature)
        )
        if self.rest is not None and self.rest.shape not in ((), (2,)):
            raise ValueError(
                f'`rest` of CoordinateSpring "{name}" must be a number, or a lower and an upper '
                f"one, but has shape {self.rest.shape}."
            )
        if self.rest is not None and self.rest.ndim:
            check_ordered(f'Ends of `rest` of CoordinateSpring "{name}"', self.rest)
        self.speed = to_jax(speed, dtype)
        self.potential = None if potential is None else as_tree(potential)
        self.law = None if law is None else as_tree(law)
        what = self._of_actuator
        self.actuator = None if actuator is None else as_signal(what, actuator, dtype)

    @property
    def glyphs(self):
        return (self.coordinate.spring_glyph,)

    @property
    def _of_actuator(self) -> str:
        return f'`actuator` of CoordinateSpring "{self.name}"'

    def force(self, x, rate, t, u):
        s = self._stretch(x)
        elastic = 0.0 if self.stiffness is None else self.stiffness * s
        return self._other(s, rate, t, u) - elastic

    def wrenches(self, poses, twists, t, u, *z):
        del z
        k, rest, pull = self.stiffness, self.rest, self.coordinate.pull(poses)
        if k is None or pull is None or (rest is not None and rest.ndim):
            return AbstractCoordinateForce.wrenches(self, poses, twists, t, u)
        # k x times the direction is written as k d, which is smooth at x = 0.
        x, rate = self.coordinate.value(poses), self.coordinate.rate(poses, twists)
        force = self._other(self._stretch(x), rate, t, u)
        directed = self._along(poses, force if rest is None else force + k * rest)
        return tuple(
            Wrench(wrench.force - k * d, wrench.torque)
            for wrench, d in zip(directed, pull, strict=True)
        )

    def _other(self, s, rate, t, u) -> Float[Array, ""]:
        """The force without stiffness."""
        c = 0.0 if self.damping is None else self.damping
        if self.dry is not None:
            c = c + self.dry / jnp.sqrt(rate * rate + self.speed * self.speed)
        force = -c * rate
        if self.potential is not None:
            potential = self.potential
            force = force - jax.grad(lambda s: jnp.asarray(potential(s), s.dtype))(s)
        if self.law is not None:
            force = force - jnp.asarray(self.law(s, rate), s.dtype)
        if self.actuator is not None:
            force = force + read(self._of_actuator, self.actuator, t, u, s.dtype)
        return force

    def _stretch(self, x) -> Float[Array, ""]:
        if self.rest is None:
            return x
        # At the ends of the slack the stiffness is 0.
        return x - (self.rest if self.rest.ndim == 0 else clip(x, self.rest[0], self.rest[1]))

    def stored(self, x):
        s, energy = self._stretch(x), jnp.zeros_like(x)
        if self.stiffness is not None:
            energy = self.stiffness * s * s / 2
        if self.potential is not None:
            energy = energy + jnp.asarray(self.potential(s), s.dtype)
        return energy

    @property
    def inertance(self):
        return self.armature

    @property
    def measures(self):
        return any(x is not None for x in (self.stiffness, self.potential, self.law))

    @property
    def needs_turns(self) -> Bool[ArrayLike, "..."]:
        if self.potential is not None or self.law is not None:
            return True
        if self.stiffness is None:
            return False
        return array_namespace(self.stiffness).asarray(self.stiffness) != 0


class CoordinateActuator(AbstractCoordinateForce):
    """An actuator along a scalar coordinate x, for instance a motor or a servo drive. Its force or
    torque is

        gear F - gear^2 rotor_inertia x'',
        F = (g_0 + g_1 l + g_2 l') u + b_0 + b_1 l + b_2 l',    l = gear x,

    with F clipped to `limits`. u is an entry of the control. With a `lag`, an internal state, the
    `activation` a, follows this entry and stands in its place: a' = (u - a) / lag. With
    `integrates` it is the integral of this entry, a' = u, such as the target of a servo that gets
    a speed. `activation_limits` hold it. Without `gain`, g_0 = 1 as for a motor. A position servo
    has g_0 = k, b_1 = -k and b_2 = -damping; a velocity servo has g_0 = k and b_2 = -k.

    A motor with the torque u drives a gearbox of ratio `gear`, and its rotor turns `gear` times as
    fast as the joint. The inertia of the rotor is part of M. Its gyroscopic torque is neglected.

    **Fields:** `name`; `coordinate`; `gear` [N or N m per unit of u];
    `gain`: g, and `bias`: b, shape `(3,)`, or `None`; `limits`: lower and upper limit of F, or
    `None`; `rotor_inertia`: inertia of the rotor before the gearbox [kg m^2], or `None`; `index` of
    the entry of the control, counted from 0; `lag` [s], or `None`; `integrates`;
    `activation_limits`: lower and upper limit of the activation, or `None`; `activation` at the
    start.
    """

    gear: Float[Array, ""]
    gain: Float[Array, "3"] | None
    bias: Float[Array, "3"] | None
    limits: Float[Array, "2"] | None
    rotor_inertia: Float[Array, ""] | None
    index: int = eqx.field(static=True)
    lag: Float[Array, ""] | None
    integrates: bool = eqx.field(static=True)
    activation_limits: Float[Array, "2"] | None
    activation: Float[Array, ""]
    internal_names: tuple[str, ...] = eqx.field(static=True)

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        index: Annotated[int, at_least(0)] = 0,
        gear: Number = 1.0,
        gain: Vector | None = None,
        bias: Vector | None = None,
        limits: Annotated[Numbers, Shape([2]), number] | None = None,
        rotor_inertia: Annotated[Number, not_negative] | None = None,
        lag: Annotated[Number, positive] | None = None,
        integrates: bool = False,
        activation_limits: Annotated[Numbers, Shape([2]), number] | None = None,
        activation: Number = 0.0,
    ):
        """**Arguments:** the fields.

        **Raises:** `ValueError` for a `gear` that is not finite, a negative `rotor_inertia`, a
        `lag` that is not positive or of what `integrates`, a lower limit above the upper one,
        `activation_limits` without an activation, and an `index` that is not an index. At
        evaluation, for a control without such an entry."""
        AlongCoordinate.__init__(self, name, coordinate)
        dtype = coordinate.dtype
        self.gear = to_jax(gear, dtype)
        self.gain, self.bias, self.limits, self.rotor_inertia = (
            None if x is None else to_jax(x, dtype) for x in (gain, bias, limits, rotor_inertia)
        )
        self.index, self.integrates = index, integrates
        self.lag, self.activation_limits = (
            None if x is None else to_jax(x, dtype) for x in (lag, activation_limits)
        )
        for what, ends in (("limits", self.limits), ("activation_limits", self.activation_limits)):
            if ends is not None:
                check_ordered(f'`{what}` of CoordinateActuator "{name}"', ends)
        self.activation = to_jax(activation, dtype)
        # Static, since names are asked for where numbers are left out.
        self.internal_names = () if lag is None and not integrates else ("activation",)
        if integrates and lag is not None:
            raise ValueError(
                f'CoordinateActuator "{name}" that `integrates` its control has no `lag`.'
            )
        if activation_limits is not None and not self.internal_names:
            raise ValueError(
                f'`activation_limits` of CoordinateActuator "{name}" need an activation: give a '
                "`lag`, or `integrates`."
            )

    @property
    def initial_internal(self):
        return self.activation[None]

    def internal_rate(self, x, rate, t, u, z):
        rate = self._entry(u) if self.lag is None else (self._entry(u) - z[0]) / self.lag
        ends = self.activation_limits
        return (rate if ends is None else bounded(rate, z[0], ends[0], ends[1]))[None]

    @property
    def glyphs(self):
        return (self.coordinate.actuator_glyph,)

    def _entry(self, u) -> Float[Array, ""]:
        entry = control_entry(f'CoordinateActuator "{self.name}"', u, self.index)
        return jnp.asarray(entry, self.gear.dtype)

    def effort(self, x, rate, u, z=None) -> Float[Array, ""]:
        """F, before the gear."""
        force = z[0] if self.internal_names and z is not None else self._entry(u)
        length, speed = self.gear * x, self.gear * rate
        if self.gain is not None:
            force = (self.gain[0] + self.gain[1] * length + self.gain[2] * speed) * force
        if self.bias is not None:
            force = force + (self.bias[0] + self.bias[1] * length + self.bias[2] * speed)
        return clipped(force, self.limits)

    def force(self, x, rate, t, u, z=None):
        return self.gear * self.effort(x, rate, u, z)

    @property
    def inertance(self):
        return reflected(self.gear, self.rotor_inertia)

    @property
    def measures(self):
        return self.gain is not None or self.bias is not None

    @property
    def needs_turns(self):
        given = [x for x in (self.gain, self.bias) if x is not None]
        if not given:
            return False
        xp = array_namespace(self.gear, given)
        by_length = xp.stack([xp.asarray(x)[1] for x in given])
        return (xp.asarray(self.gear) != 0) & xp.any(by_length != 0, axis=0)


def reflected(
    gear: Float[Array, ""], rotor_inertia: Float[Array, ""] | None
) -> Float[Array, ""] | None:
    """The inertia of a rotor before a gear, as its output has it."""
    return None if rotor_inertia is None else gear * gear * rotor_inertia
