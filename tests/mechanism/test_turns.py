"""Angles that turn further than half a turn, in springs, limits, actuators and couplings."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._results import code

Z = [0.0, 0.0, 1.0]
INERTIA = 0.5
AXIS = dict(point=[0.0, 0.0, 0.0], axis=Z)
RIGID = mbd.UdwadiaKalaba(mbd.Cholesky())  # compiles fast
FREE = dict(gravity=[0.0, 0.0, 0.0], plane=mbd.Plane(Z))


def wheel(name, spin=0.0, **limits):
    """A wheel on a shaft along z, and its bearing."""
    inertia = mbd.Inertia(mass=1.0, tensor=[INERTIA] * 3)
    body = mbd.Body(name, inertia, angular_velocity=[0.0, 0.0, spin])
    return body, mbd.Revolute(f"{name} bearing", "ground", body, **AXIS, **limits)


def sprung(stiffness=1.0, spin=0.0):
    """A wheel on springs of both kinds, and the rows of its bearing."""
    body, bearing = wheel("a", spin)
    springs = [
        mbd.forces.CoordinateSpring("a", mbd.OfJoint(bearing), stiffness=stiffness),
        mbd.TorsionSpring("b", "ground", body, **AXIS, stiffness=stiffness),
    ]
    return mbd.Mechanism([body], [bearing], springs, **FREE)


K, DT, STEPS, SPIN = 1.0, 4e-3, 550, 50.0


@jax.jit
def wound(k, state, dt):
    """The wheel winds its springs up by 25 rad and back; and the derivative of its rate at the end
    by the stiffness."""
    state = mbd.State(*state[:3], angles=state[3])

    def rate(k):
        sol = mbd.simulate(
            sprung(stiffness=k), RIGID, state, dt=dt, num_steps=STEPS,
            saveat=diffrax.SaveAt(steps=50), throw=False,
        )  # fmt: skip
        names = ("t", "q", "v", "angles", "multipliers", "result")
        return sol.v[-1, 2], {name: getattr(sol, name) for name in names}

    slope, sol = jax.grad(rate, has_aux=True)(k)
    rest = dict(phi_norm=None, phidot_norm=None, ys=None, stats={})
    return mbd.Solution(**sol, **rest), slope


def start():
    return np.zeros(()), np.zeros(3), np.array([0.0, 0.0, SPIN]), np.zeros(2)


def test_springs_of_several_turns_and_derivatives():
    """x = v0 / w sin(w t), w^2 = 2 k / I: four turns to each side; and d/dk."""
    sol, found = jax.device_get(wound(K, start(), DT))
    w, t1 = np.sqrt(2 * K / INERTIA), DT * STEPS
    expected = SPIN / w * np.sin(w * sol.t)[:, None]
    # Fourth-order steps of 0.2 rad.
    np.testing.assert_allclose(sol.angles, np.tile(expected, (1, 2)), atol=1e-4)
    np.testing.assert_allclose(sol.angles, np.tile(sol.q[:, 2:], (1, 2)), atol=1e-12)
    slope = -SPIN * t1 * np.sin(w * t1) * w / (2 * K)
    np.testing.assert_allclose(found, slope, rtol=1e-4)
    audit = jax.device_get(mbd.reports.audit(sprung(), sol))
    np.testing.assert_allclose(audit.kinetic + audit.stored, 0.5 * INERTIA * SPIN**2, rtol=1e-6)


def test_a_motion_resumes_with_its_turns():
    """The springs are wound by 18 rad, which the pose alone does not tell."""
    sol, _ = jax.device_get(wound(K, start(), DT))
    rest, _ = jax.device_get(wound(K, [x[2] for x in (sol.t, sol.q, sol.v, sol.angles)], DT))
    assert np.min(sol.angles[2]) > 20.0
    np.testing.assert_allclose(rest.angles[:-3], sol.angles[3:], atol=1e-9)


@pytest.mark.parametrize("dt, lost", [(0.02, False), (0.04, True)])
def test_an_angle_that_is_too_fast_to_count_is_told(dt, lost):
    """1 rad and 2 rad a step."""
    sol, _ = wound(K, start(), dt)
    assert (int(code(sol.result)) == int(code(mbd.RESULTS.turns_not_counted))) == lost


def test_adaptive_steps_count_turns():
    mechanism = sprung(spin=SPIN)
    times = np.linspace(0.0, 2.0, 5)
    options = dict(
        scheme=diffrax.Heun(), saveat=diffrax.SaveAt(ts=jax.device_put(times)), throw=False,
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
    )  # fmt: skip

    @jax.jit
    def angles(state):
        return mbd.simulate(mechanism, RIGID, state, t0=0.0, t1=2.0, dt=1e-2, **options).angles

    expected = 25.0 * np.sin(2.0 * times)[:, None] * np.ones(2)
    np.testing.assert_allclose(angles(mechanism.state()), expected, atol=1e-3)


def test_elements_at_angles_of_several_turns():
    """Couplings, springs, actuators and limits on wheels that turned from 0 to x in 60 steps."""
    pairs = [wheel(name, limits=(-3 * np.pi, 3 * np.pi - 1.0)) for name in "abcd"]
    bodies, bearings = zip(*pairs, strict=True)
    a, b, c, d = (mbd.OfJoint(bearing) for bearing in bearings)
    joints = [  # the bearings are only read
        mbd.joints.CoordinateConstraint(
            "train", mbd.coordinates.WeightedSum([a, b, c], [1.0, 2 / 3, 4 / 3])
        ),
        mbd.joints.CoordinateConstraint("cam", b, a, coefficients=[0.1, 0.4, 0.05]),
        mbd.joints.CoordinateConstraint("belt", d, c, coefficients=[0.0, np.sqrt(2.0)]),
    ]
    forces = [
        mbd.forces.CoordinateSpring("spring", a, stiffness=2.0),
        mbd.TorsionSpring("torsion", "ground", bodies[2], **AXIS, stiffness=3.0),
        mbd.forces.CoordinateActuator("servo", d, gain=[8.0, 0.0, 0.0], bias=[0.0, -8.0, 0.0]),
    ]
    stop = mbd.contacts.CoordinateLimit("stop", b, lower=-3 * np.pi, upper=4 * np.pi)
    of = mbd.Mechanism(bodies, joints, forces, [stop, mbd.JointLimit(bearings[3])], **FREE)

    @jax.jit
    @jax.vmap
    def values(x):
        def counting(angles, s):
            return of.near(angles).turning(s * q, v).angle, None

        q, v = jnp.concatenate([jnp.zeros(8), x]), jnp.zeros(12)
        angles, _ = jax.lax.scan(counting, of.turning(0 * q, v).angle, jnp.linspace(0, 1, 60))
        there = of.near(angles)
        torque = there.external_force(0.0, q, v, np.array([4 * np.pi]))[8:]
        return there.constraint(q, 0.0), torque, there.gap(q, 0.0)

    x = np.array([[3.0, -10.0, 2.75, 7.0], [40.0, 8.0, -34.0, 30.0], [-9.0, -5.0, 9.25, -20.0]])
    rows, torque, gaps = jax.device_get(values(x))
    a, b, c, d = x.T
    coupled = [a + (2 * b + 4 * c) / 3, b - 0.1 - 0.4 * a - 0.05 * a**2, d - np.sqrt(2.0) * c]
    np.testing.assert_allclose(rows.T, coupled, atol=1e-12)
    turned = [-2.0 * a, 0 * a, -3.0 * c, 8.0 * (4 * np.pi - d)]
    np.testing.assert_allclose(torque.T, turned, atol=1e-11)
    left = [b + 3 * np.pi, 4 * np.pi - b, d + 3 * np.pi, 3 * np.pi - 1.0 - d]
    np.testing.assert_allclose(gaps.T, left, atol=1e-12)


def test_a_closed_pose_keeps_its_turns():
    state = mbd.State(0.0, np.array([0.0, 0.0, 10.0]), np.zeros(3), angles=np.full(2, 10.0))
    np.testing.assert_allclose(mbd.close_joints(sprung(), state).angles, 10.0)
