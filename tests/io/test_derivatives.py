"""Derivatives by the numbers of a file, and parameters found from motions of MuJoCo."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from inline_models import ARM, mujoco, spec_of

import jaxmbd as mbd
from jaxmbd.identify import Positive, Record

pytestmark = pytest.mark.filterwarnings("ignore:.*has no counterpart")

# The arm without servo, so that it swings.
SWING = ARM[: ARM.index("<actuator>")] + "</mujoco>"


@pytest.mark.slow
def test_gradients_by_mass_length_and_spring():
    """Of the height of the hand after 0.2 s, against differences."""
    loaded = mbd.load(spec_of(SWING, soft=False), contacts=False, limits=False)
    arm = loaded.mechanism

    def height(mass, length, stiffness):
        inertia = arm.body("lower").inertia.with_mass(mass)
        spring = eqx.tree_at(lambda s: s.stiffness, arm.force_element("elbow"), stiffness)
        elbow = arm.joint("elbow")
        place = elbow.frame_a.position * jnp.stack([length, jnp.ones(()), jnp.ones(())])
        elbow = eqx.tree_at(lambda j: j.frame_a.position, elbow, place)
        lower = mbd.Body("lower", inertia)
        changed = mbd.Mechanism(
            [arm.body("upper"), lower],
            [arm.joint("shoulder"), elbow],
            [arm.force_element("shoulder"), spring],
            gravity=arm.gravity,
        )
        start = loaded.state_from(jnp.array([0.3, -0.2]), mechanism=changed)
        sol = mbd.simulate(changed, mbd.UdwadiaKalaba(), start, num_steps=10, dt=0.02, t0=0.0)
        return changed.pose(sol.q[-1], "lower").point(jnp.array([0.3, 0.0, 0.0]))[2]

    at = jnp.array([0.9, 1.1, 3.0])
    both = jax.jit(jax.jacfwd(lambda x: 2 * (height(*x),), has_aux=True))
    gradient, step = both(at)[0], 1e-5
    heights = [[both(at + s * e)[1] for s in (step, -step)] for e in jnp.eye(3)]
    differences = np.subtract(*np.transpose(heights)) / (2 * step)
    assert np.abs(gradient).min() > 1e-3
    np.testing.assert_allclose(gradient, differences, rtol=1e-6)


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
        {
            "shoulder": mbd.io.ScalarReading(loaded.coordinate("shoulder")),
            "elbow": mbd.io.ScalarReading(loaded.coordinate("elbow")),
        },
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
