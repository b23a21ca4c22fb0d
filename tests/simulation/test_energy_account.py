"""The verdict on energy that is off, for every family of methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Ball, DrivenPendulum, assert_verdicts, parameter

import jaxmbd as mbd
from jaxmbd._methods import point

Y, PLANE = [0.0, 1.0, 0.0], mbd.Plane([0.0, -1.0, 0.0])
GOOD, OFF = mbd.RESULTS.successful, mbd.RESULTS.energy_balance


def _bar(name, position, **options):
    inertia = mbd.Inertia.box(size=[0.5, 0.05, 0.04], mass=1.0)
    return mbd.Body(name, inertia, position=position, **options)


def _driven():
    """A bar on a hinge whose pin is carried along a line in time, driven by a motor, held by a
    spring and a damper, and pushed by a force in time."""
    slide = _bar("slide", [0.0, 0, 0], velocity=[1.5, 0, 0])
    turn = dict(velocity=[1.5, 0, -0.75], angular_velocity=[0.0, 3, 0])
    bar = _bar("bar", [0.25, 0, 0], **turn)
    pin = dict(point=[0, 0, 0], axis=Y)
    joints = [
        mbd.Prismatic("guide", "ground", slide, point=[0, 0, 0], axis=[1.0, 0, 0]),
        mbd.Revolute("hinge", slide, bar, **pin),
    ]
    drive = mbd.PrescribedMotion("drive", joints[0], lambda t: 0.3 * jnp.sin(5 * t))
    forces = [
        mbd.Motor("motor", slide, bar, **pin, gear=2.0, rotor_inertia=0.01),
        mbd.TorsionSpring("spring", slide, bar, **pin, stiffness=4.0, damping=0.1),
        mbd.PointForce(
            "push", bar, point=[0.5, 0, 0], force_body=lambda t: jnp.array([0.0, 0.0, 1 + 8 * t])
        ),
    ]
    return mbd.Mechanism([slide, bar], [*joints, drive], forces, plane=PLANE)


def test_power_of_mechanisms():
    """The rate of the energy along the motion is the power of what is supplied: by a motor, forces
    in time, dampers, and rows that move."""
    mechanism, method = _driven(), mbd.UdwadiaKalaba()

    def control(t, q, v):
        return jnp.array([jnp.cos(3 * t)])

    @jax.jit
    def rates(t, q, v):
        state = mbd.methods.StepperState(t, q, v)
        problem = mbd.Stepper(mechanism, method).problem(state, control)
        here = point(problem.equations, control, t, q, v)
        motion = method.motion(here, method.factorise(here))
        along = jnp.ones_like(t), mechanism.qdot(q, v), motion.acceleration
        _, rate = jax.jvp(mechanism.mechanical_energy, (t, q, v), along)
        power = mechanism.supplied_power(t, q, v, control(t, q, v))
        return rate, power, method.driving_power(problem, state)

    state = mechanism.state()
    rate, *powers = map(float, rates(np.asarray(0.0), state.q, state.v))
    np.testing.assert_allclose(sum(powers), rate, rtol=1e-10)
    assert min(abs(rate), *map(abs, powers)) > 0.1


class Belt(Ball):
    """A block that falls on a belt, which takes it along."""

    speed: jax.Array = parameter(2.0)

    def slip(self, q, v, t):
        return super().slip(q, v, t) - self.speed


def test_contacts_take_energy_and_belts_give_it():
    state = mbd.State(0.0, np.array([0.0, 0.05]), np.zeros(2))
    options = dict(t1=0.8, dt=1e-3, energy_tolerance=0.03, throw=False)
    belt = Belt(*map(np.asarray, (1.0, 0.5, 0.0)))
    sol = mbd.simulate(belt, mbd.ContactImpulse(), state, **options)
    # The belt's work is 4 J, of which half is lost in sliding.
    assert_verdicts(sol.result, GOOD)
    assert abs(float(np.asarray(sol.v)[-1, 0]) - 2.0) < 1e-6


class Swing(DrivenPendulum):
    """A pendulum that a force in time pushes, on a pivot that moves, with a drag on its rail."""

    def force(self, t, q, v, u):
        return super().force(t, q, v, jnp.stack([3 * t + u, jnp.zeros_like(t)]))

    def nonideal_force(self, q, v, t):
        return -0.3 * v

    def mechanical_energy(self, t, q, v):
        return 0.6 * v @ v + 1.2 * 9.81 * q[1]

    def supplied_power(self, t, q, v, u):
        return (3 * t + u) * v[0]


@pytest.mark.parametrize(
    "method, fine, coarse",
    [
        (mbd.UdwadiaKalaba(), 2e-3, 1e-6),
        (mbd.VelocityImpulse(), 0.2, 1e-3),
        (mbd.ImplicitPenalty(1e4, 1e2), 0.4, None),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_is_supplied_is_no_failure(method, fine, coarse):
    """By forces, a control, a drag and the pivot, of which the work is over 1 J each: to the error
    of the scheme and of the trapezoidal rule."""

    @jax.jit
    @jax.vmap
    def run(tolerance):
        state = mbd.State(0.0, np.array([0.9, 0.1]), np.array([0.6, 0.0]))
        control = lambda t, q, v: jnp.cos(3 * t)  # noqa: E731
        options = dict(control=control, energy_tolerance=tolerance, throw=False)
        return mbd.simulate(Swing(), method, state, t1=1.0, dt=5e-3, **options).result

    result = run(np.array([fine, fine if coarse is None else coarse]))
    assert_verdicts(result, [GOOD, GOOD if coarse is None else OFF])
