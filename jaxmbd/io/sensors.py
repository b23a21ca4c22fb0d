"""Sensors of a compiled model, as sensors of `mbd.identify`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._compiler import to_jax
from .._mechanism import GROUND, Pose
from ..identify import AbstractSensor, Accelerometer, BodyPoint, Gyroscope
from .loaded import FrameReading, InFrame, ScalarReading, reading_of
from .source import Coordinates, Source

_OF_FRAMES = {
    "framequat": "quaternion",
    "framelinvel": "velocity",
    "frameangvel": "angular",
    "velocimeter": "velocimeter",
}


def sensors(source: Source, along: Coordinates) -> dict[str, Callable[..., Any]]:
    """The sensors with a counterpart."""
    m, found = source.m, {}
    for i in range(m.nsensor):
        kind = source.mujoco.mjtSensor(m.sensor_type[i]).name.removeprefix("mjSENS_").lower()
        sensor = _sensor(source, along, i, kind)
        if sensor is None:
            source.drop("sensor", i, f'the kind "{kind}"')
        else:
            found[source.name("sensor", i)] = sensor
    return found


def _sensor(source: Source, along: Coordinates, i: int, kind: str) -> AbstractSensor | None:
    m, target = source.m, int(source.m.sensor_objid[i])
    rate = kind.endswith("vel")
    if kind in ("jointpos", "jointvel"):
        return reading_of(along.member(target), rate)
    if kind in ("tendonpos", "tendonvel"):
        coordinate = along.tendon(target)
        return None if coordinate is None else ScalarReading(coordinate, rate)
    if kind not in ("accelerometer", "gyro", "framepos", *_OF_FRAMES) or m.sensor_refid[i] >= 0:
        return None
    on = _frame(source, i, target)
    if on is None or on[0] == GROUND:
        return None
    body, frame = on
    point, orientation = to_jax(frame.position), to_jax(frame.orientation)
    if kind == "accelerometer":
        return InFrame(Accelerometer(body, point), orientation)
    if kind == "gyro":
        return InFrame(Gyroscope(body), orientation)
    if kind == "framepos":
        return BodyPoint(body, point)
    return FrameReading(body, Pose(point, orientation), _OF_FRAMES[kind])


def _frame(source: Source, i: int, target: int) -> tuple[str, Pose] | None:
    """The body and the frame that a sensor is fixed to."""
    m = source.m
    kind = source.mujoco.mjtObj(m.sensor_objtype[i]).name.removeprefix("mjOBJ_").lower()
    if kind == "site":
        b, position, orientation = m.site_bodyid[target], m.site_pos[target], m.site_quat[target]
    elif kind == "geom":
        b, position, orientation = m.geom_bodyid[target], m.geom_pos[target], m.geom_quat[target]
    elif kind == "xbody":
        b, position, orientation = target, np.zeros(3), np.eye(4)[0]
    elif kind == "body":
        b, position, orientation = target, m.body_ipos[target], m.body_iquat[target]
    else:
        return None
    return source.body(int(b)), source.on(int(b), position, orientation)
