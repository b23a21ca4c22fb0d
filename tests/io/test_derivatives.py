"""Parameters of a file found from a motion of MuJoCo."""

import numpy as np
import pytest
from inline_models import ARM, mujoco, spec_of

import jaxmbd as mbd
from jaxmbd.identify import Positive, Record

pytestmark = pytest.mark.filterwarnings("ignore:.*has no counterpart")

# The arm without servo, so that it swings.
SWING = ARM[: ARM.index("<actuator>")] + "</mujoco>"


@pytest.mark.slow
def test_three_parameters_are_found_from_a_motion_of_mujoco():
    """The mass of the lower arm, the damping of the shoulder and the spring of the elbow, from the
    angles of both joints."""
    spec = spec_of(SWING, soft=False)
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    m = spec.compile()
    d = mujoco.MjData(m)
    d.qpos[:] = 0.3, -0.2
    times, angles = [0.0], [np.array(d.qpos)]
    for _ in range(10):
        mujoco.mj_step(m, d, nstep=40)
        times.append(d.time)
        angles.append(np.array(d.qpos))
    loaded = mbd.load(spec, contacts=False, limits=False)
    start = loaded.state_from([0.3, -0.2])
    mass = float(m.body("lower").mass[0])
    found = mbd.identify.fit(
        loaded.mechanism,
        {
            "bodies[lower].inertia.mass": mbd.identify.Parameter(1.5 * mass, Positive()),
            "forces[shoulder].damping": mbd.identify.Parameter(0.1, Positive()),
            "forces[elbow].stiffness": mbd.identify.Parameter(5.0, Positive()),
        },
        Record(np.array(times), np.array(angles), start),
        {x: mbd.io.ScalarReading(loaded.coordinate(x)) for x in ("shoulder", "elbow")},
        dt=0.01,
        progress=False,
    )
    truth = {
        "bodies[lower].inertia.mass": mass,
        "forces[shoulder].damping": 0.3,
        "forces[elbow].stiffness": 3.0,
    }
    # The error of RK4 at ten times the step of MuJoCo.
    for path, value in truth.items():
        np.testing.assert_allclose(found.values[path], value, rtol=1e-4)
