"""Sensors that files of models know, beside those of `mbd.identify`."""

import equinox as eqx
from jaxtyping import Array, Float

from .._coordinates import cross, quaternion_conjugate, quaternion_rotate
from ..identify import AbstractSensor
from ..mechanism import AbstractScalarCoordinate, Pose, joint_rates, within_half_a_turn


class ScalarReading(AbstractSensor):
    """A scalar coordinate, such as the length of a tendon, or its rate. It has frames of its own,
    which a fit of the mechanism does not change; of a joint, read `Loaded.reading`.

    **Fields:** `coordinate`, `rate`: whether its rate is read."""

    coordinate: AbstractScalarCoordinate
    rate: bool = eqx.field(static=True, default=False)

    def __call__(self, sample):
        along = self.coordinate
        poses = sample.mechanism.frames(along, sample.q)
        if not self.rate:
            return along.value(poses)
        return along.rate(poses, sample.mechanism.frame_twists(along, sample.q, sample.v))


class JointReading(AbstractSensor):
    """The position of a hinge or slide with the zero of the file, or its rate. It reads the joint
    of the mechanism, so it stays right where a fit changes the frames of the joint.

    **Fields:** `joint`: its name in the mechanism; `number` of the coordinate; `zero`: the reading
    where the coordinate is 0; `middle`: angles are within half a turn of it, `None` for a
    displacement; `rate`: whether the rate is read."""

    joint: str = eqx.field(static=True)
    number: int = eqx.field(static=True)
    zero: float
    middle: float | None
    rate: bool = eqx.field(static=True, default=False)

    def __call__(self, sample):
        if self.rate:
            return joint_rates(sample.mechanism, sample.q, sample.v, self.joint)[self.number]
        x = sample.mechanism.joint_coordinates(sample.q, self.joint)[self.number] + self.zero
        if self.middle is None:
            return x
        return self.middle + within_half_a_turn(x - self.middle)


class InFrame(AbstractSensor):
    """The reading of a sensor of a body, in the axes of a frame on it.

    **Fields:** `sensor`, `orientation` of the frame on the body."""

    sensor: AbstractSensor
    orientation: Float[Array, "4"]

    def __call__(self, sample):
        return quaternion_rotate(quaternion_conjugate(self.orientation), self.sensor(sample))


class FrameReading(AbstractSensor):
    """The orientation or the velocity of a frame on a body.

    **Fields:** `body`; `frame`; `kind`: "quaternion", "velocity" or "angular" in world axes, or
    "velocimeter", the velocity in the axes of the frame."""

    body: str = eqx.field(static=True)
    frame: Pose
    kind: str = eqx.field(static=True)

    def __call__(self, sample):
        body = sample.mechanism.pose(sample.q, self.body)
        twist = sample.mechanism.twist(sample.v, self.body)
        if self.kind == "quaternion":
            return body.compose(self.frame).orientation
        if self.kind == "angular":
            return twist.angular
        velocity = twist.linear + cross(twist.angular, body.direction(self.frame.position))
        if self.kind == "velocity":
            return velocity
        return body.compose(self.frame).local_direction(velocity)
