"""Sensors, which are functions of a moment of the motion."""

import abc
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, cast

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import to_jax
from .._coordinates import cross, quaternion_conjugate, quaternion_rotate
from .._extensible import Extensible
from .._inputs import at_least, checked
from .._mechanism import AbstractJoint, joint_rates, reactions, unit_quaternion
from .sample import Sample


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

    where a is the acceleration of the origin of the frame of the body (`Sample.acceleration`: with
    contacts the mean over a step). At rest the reading is -g in these axes. `point`: the point in
    the frame of the body, shape `(3,)` [m]."""

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


class IMU(AbstractSensor):
    """The specific force [m/s^2] and the angular velocity [rad/s] at a point of a body, in the axes
    of the sensor: six numbers, those of an `Accelerometer` and then those of a `Gyroscope`.

    **Fields:** `point`: the point in the frame of the body, shape `(3,)` [m]; `orientation`: of the
    axes of the sensor in the frame of the body, a unit quaternion (w, x, y, z). Where only some of
    the six numbers were measured, give the others the weight 0.
    """

    body: str = eqx.field(static=True)
    point: Float[Array, "3"]
    orientation: Float[Array, "4"]

    @checked
    def __init__(
        self,
        body: str,
        point: Float[Array, "3"] = (0.0, 0.0, 0.0),  # type: ignore[assignment]
        orientation: Any = (1.0, 0.0, 0.0, 0.0),
    ):
        """**Arguments:** as the fields; `orientation` also as a rotation matrix.

        **Raises:** `ValueError` for an orientation that is none."""
        self.body, self.point = body, to_jax(point, float)
        self.orientation = unit_quaternion("`orientation` of IMU", orientation, float)

    def __call__(self, sample):
        to_sensor = quaternion_conjugate(self.orientation.astype(sample.q.dtype))
        parts = Accelerometer(self.body, self.point)(sample), Gyroscope(self.body)(sample)
        return jnp.concatenate([quaternion_rotate(to_sensor, part) for part in parts])


@checked
class Encoder(AbstractSensor):
    """The angle of a joint of a `Mechanism` [rad], as a disc with marks shows it to one reading
    head. Within half a turn; `Unwrapped` counts its turns.

    **Fields:**

    - `counts` in a turn, to which `measure` rounds; `None` for any number.
    - `eccentricity`: how far the centre of the marks is from the axis, in radii of the marks. Its
      two components are those along the direction from the axis to the reading head and across it,
      at the angle 0, shape `(2,)`. A small eccentricity e adds e[0] sin(angle) + e[1] cos(angle).
    """

    joint: str = eqx.field(static=True)
    counts: Annotated[int, at_least(1)] | None = eqx.field(static=True, default=None)
    eccentricity: Float[Array, "2"] = eqx.field(converter=jnp.asarray, default=(0.0, 0.0))

    def __call__(self, sample):
        angle = sample.mechanism.joint_coordinates(sample.q, self.joint)
        joint = cast(AbstractJoint, sample.mechanism.joint(self.joint))
        if not angle.shape == (joint.angles,) == (1,):
            raise ValueError(f'An encoder reads one angle, which "{self.joint}" does not have.')
        along, across = self.eccentricity.astype(angle.dtype)
        c, s = jnp.cos(angle), jnp.sin(angle)
        # The direction from the centre of the marks to the head, turned back by the angle, is the
        # mark under the head.
        reading = angle + jnp.arctan2(along * s + across * c, 1 - along * c + across * s)
        if self.counts is None or not sample.rounded:
            return reading
        step = 2 * jnp.pi / self.counts
        return step * jnp.round(reading / step)


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
