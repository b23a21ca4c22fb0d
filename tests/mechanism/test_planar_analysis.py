"""Sensors of planar mechanisms are those of the same mechanisms in space."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planar_cases import NORMAL, PLANE, linkage

from jaxmbd import identify

POINT = [0.1, 0.2, 0.3]
SENSORS = [
    identify.JointPosition("rod"),
    identify.JointRate("guide"),
    identify.BodyPoint("rod", POINT),
    identify.Gyroscope("rod"),
    identify.Accelerometer("rod", POINT),
    identify.JointForce("pin"),
    identify.JointForce("guide"),
]


def torque(t, q, v):
    del t, q, v
    return jnp.array([0.7])


@pytest.mark.slow
def test_sensors():
    """In a moving state. The frame of the rod lies outside of its centre of mass. Of forces and
    torques at joints only those of the plane: bearings carry the others."""

    def readings(plane):
        mechanism = linkage(plane)
        state = mechanism.state()

        @jax.jit
        def read(q, v):
            sample = identify.Sample(mechanism, torque, 0.0, q, v)
            return [jnp.atleast_1d(sensor(sample)) for sensor in SENSORS]

        return [np.asarray(x) for x in read(state.q, state.v)]

    across = np.eye(3) - np.outer(NORMAL, NORMAL)
    for sensor, flat, space in zip(SENSORS, readings(PLANE), readings(None), strict=True):
        if isinstance(sensor, identify.JointForce):
            flat, space = (np.append(across @ x[:3], NORMAL @ x[3:]) for x in (flat, space))
        assert np.max(np.abs(space)) > 1e-3 or sensor is SENSORS[0]
        np.testing.assert_allclose(flat, space, atol=1e-11 * max(np.max(np.abs(space)), 1.0))
