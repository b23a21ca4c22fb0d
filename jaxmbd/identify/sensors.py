"""Sensors, which are functions of a moment of the motion."""

import abc
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import cross, quaternion_conjugate, quaternion_rotate
from .._equations import carrying
from .._extensible import Extensible
from .._inputs import checked
from .._mechanism import Mechanism, joint_rates, reactions
from .._methods import LagrangeMultipliers, Motion, point
from .._system import AbstractStates, AbstractSystem
from .._types import Coordinates, RealScalarLike, Rows, Velocity


class Sample(AbstractStates):
    """A moment of a simulated motion, the input of sensors.

    **Fields:** `system`, `control`, `t`, `q`, `v`; `z`: the internal states, `None` without any.
    """

    system: AbstractSystem
    control: Any
    t: RealScalarLike
    q: Coordinates
    v: Velocity
    z: Float[Array, " nz"] | None = None

    @property
    def u(self) -> Any:
        """The control; `None` without one."""
        return None if self.control is None else self.control(self.t, self.q, self.v)

    @property
    def acceleration(self) -> Velocity:
        """v', shape `(nv,)`, of the constrained motion without impacts."""
        return self._motion.acceleration

    @property
    def multipliers(self) -> Rows:
        """lam, shape `(nc,)`, of the constrained motion without impacts."""
        return self._motion.multipliers

    @property
    def _motion(self) -> Motion:
        method = LagrangeMultipliers()
        control = carrying(self.control, self.z)
        here = point(self.system, control, self.t, self.q, self.v)
        return method.motion(here, method.factorise(here))

    @property
    def mechanism(self) -> Mechanism:
        """The system. **Raises:** `ValueError` if it is not a `Mechanism`."""
        if not isinstance(self.system, Mechanism):
            raise ValueError(
                f"This sensor reads from a `Mechanism`, but the system is a "
                f"{type(self.system).__name__}: write a function of the sample, such as "
                "`lambda sample: sample.q`."
            )
        return self.system


class AbstractSensor(Extensible):
    """A sensor. Any function of a `Sample` that returns a scalar or a vector is a sensor too."""

    @abc.abstractmethod
    def __call__(self, sample: Sample) -> Float[Array, "..."]:
        """The reading, a scalar or a vector."""


@checked
class JointPosition(AbstractSensor):
    """The coordinates of a joint of a `Mechanism` [rad, m], as measured by encoders. Angles are
    within half a turn."""

    joint: str = eqx.field(static=True)

    def __call__(self, sample):
        return sample.mechanism.joint_coordinates(sample.q, self.joint)


@checked
class JointRate(AbstractSensor):
    """The rates of a joint of a `Mechanism` [rad/s, m/s], as measured by tachometers."""

    joint: str = eqx.field(static=True)

    def __call__(self, sample):
        return joint_rates(sample.mechanism, sample, self.joint)


@checked
class BodyPoint(AbstractSensor):
    """The world position of a point of a body [m], as measured by a camera. `point`: the point in
    the frame of the body, shape `(3,)`."""

    body: str = eqx.field(static=True)
    point: Float[Array, "3"] = eqx.field(converter=jnp.asarray, default=(0.0, 0.0, 0.0))

    def __call__(self, sample):
        pose = sample.mechanism.pose(sample.q, self.body)
        return pose.position + quaternion_rotate(
            pose.orientation, self.point.astype(sample.q.dtype)
        )


@checked
class Gyroscope(AbstractSensor):
    """The angular velocity of a body in its own axes [rad/s], shape `(3,)`."""

    body: str = eqx.field(static=True)

    def __call__(self, sample):
        p = sample.mechanism.pose(sample.q, self.body).orientation
        omega = sample.mechanism.twist(sample.v, self.body).angular
        return quaternion_rotate(quaternion_conjugate(p), omega)


@checked
class Accelerometer(AbstractSensor):
    """The specific force at a point of a body, in the axes of the body [m/s^2]:

        R^T (a + alpha x r + omega x (omega x r) - g),    r = R point,

    where a is the acceleration of the origin of the frame of the body. At rest the reading is -g in
    these axes. `point`: the point in the frame of the body, shape `(3,)` [m]."""

    body: str = eqx.field(static=True)
    point: Float[Array, "3"] = eqx.field(converter=jnp.asarray, default=(0.0, 0.0, 0.0))

    def __call__(self, sample):
        mechanism, dtype = sample.mechanism, sample.q.dtype
        p = mechanism.pose(sample.q, self.body).orientation
        omega = mechanism.twist(sample.v, self.body).angular
        rate = mechanism.twist(sample.acceleration, self.body)
        r = quaternion_rotate(p, self.point.astype(dtype))
        a = rate.linear + cross(rate.angular, r) + cross(omega, cross(omega, r))
        return quaternion_rotate(quaternion_conjugate(p), a - mechanism.gravity.astype(dtype))


@checked
class JointForce(AbstractSensor):
    """The force and torque that a joint exerts on its body b, in world axes about the joint: six
    numbers [N, N m]. With redundant rows only some of them are unique."""

    joint: str = eqx.field(static=True)

    def __call__(self, sample):
        wrench = reactions(sample.mechanism, sample, self.joint)
        return jnp.concatenate([wrench.force, wrench.torque])


# Any function of a sample, and what `fit` takes: several by name, or one.
Sensor: TypeAlias = Callable[[Sample], Array]
SensorsGiven: TypeAlias = Mapping[str, Sensor] | Sensor


class Sensors(AbstractSensor):
    """Several sensors, whose readings are concatenated."""

    members: tuple[Sensor, ...]

    def __call__(self, sample):
        return jnp.concatenate([jnp.ravel(sensor(sample)) for sensor in self.members])
