"""The verdict on energy that is off, for every family of methods."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd

Y, PLANE = [0.0, 1.0, 0.0], mbd.Plane([0.0, -1.0, 0.0])
GOOD, OFF = mbd.RESULTS.successful, mbd.RESULTS.energy_balance


def _bar(name, position, **options):
    inertia = mbd.Inertia.box(size=[0.5, 0.05, 0.04], mass=1.0)
    return mbd.Body(name, inertia, position=position, **options)


def _arm():
    """A bar: driven by a motor, held by a spring and a damper, and pushed by a force in time."""
    a = _bar("a", [0.25, 0, 0])
    pin = dict(point=[0, 0, 0], axis=Y)
    forces = [
        mbd.Motor("motor", "ground", a, **pin, gear=2.0, rotor_inertia=0.01),
        mbd.TorsionSpring("spring", "ground", a, **pin, stiffness=4.0, damping=0.1),
        mbd.PointForce("push", a, point=[0.5, 0, 0], force_body=lambda t: jnp.array([0, 0, 8 * t])),
    ]
    return mbd.Mechanism([a], [mbd.Revolute("hinge", "ground", a, **pin)], forces, plane=PLANE)


def _driven():
    """A bar that swings from a hinge whose pin is carried along a line in time."""
    slide, bar = _bar("slide", [0.0, 0, 0]), _bar("bar", [0.25, 0, 0])
    joints = [
        mbd.Prismatic("guide", "ground", slide, point=[0, 0, 0], axis=[1.0, 0, 0]),
        mbd.Revolute("hinge", slide, bar, point=[0, 0, 0], axis=Y),
    ]
    drive = mbd.PrescribedMotion("drive", joints[0], lambda t: 0.3 * (1 - jnp.cos(5 * t)))
    return mbd.Mechanism([slide, bar], [*joints, drive], plane=PLANE)


@eqx.filter_jit
def _run(mechanism, method, tolerance, control=None, **options):
    settings = dict(t0=0.0, t1=1.0, dt=5e-3) | options
    sol = mbd.simulate(
        mechanism,
        method,
        mechanism.state(),
        control=control,
        energy_tolerance=tolerance,
        saveat=diffrax.SaveAt(t0=True, t1=True),
        throw=False,
        **settings,
    )
    energy = jax.jit(jax.vmap(mechanism.mechanical_energy))(sol.t, sol.q, sol.v)
    return sol.result, energy[1] - energy[0]


@pytest.mark.slow
@pytest.mark.parametrize("make", [_arm, _driven], ids=["forces", "drive"])
def test_what_is_supplied_is_no_failure(make):
    def control(t, q, v):
        return jnp.array([jnp.cos(3 * t)])

    run = functools.partial(_run, make(), mbd.UdwadiaKalaba())
    result, gained = run(jnp.array(1e-3), control)
    assert result == GOOD
    assert abs(gained) > 0.1
    # Off by the error of the scheme and of the trapezoidal rule: not to be kept to rounding.
    result, _ = run(jnp.array(1e-9), control)
    assert result == OFF


def _whirl(method, tolerance, dt=2e-3):
    """A thin rod on a ball joint that whirls fast, without gravity."""
    inertia = mbd.Inertia.cylinder(radius=0.005, length=0.5, mass=0.1)
    rod = mbd.Body(
        "rod",
        inertia,
        position=[0, 0, -0.25],
        angular_velocity=[9.0, 3, 50],
        velocity=[-0.75, 2.25, 0],
    )
    ball = mbd.Spherical("ball", "ground", rod, point=[0, 0, 0])
    mechanism = mbd.Mechanism([rod], [ball], gravity=[0, 0, 0])
    return _run(mechanism, method, tolerance, dt=dt)


def test_what_is_lost_or_gained_is_a_failure():
    loses = mbd.VelocityImpulse(stabilisation=mbd.NoStabilisation())
    result, gained = _whirl(loses, jnp.array(1e3))
    assert result == GOOD and gained < -0.02
    result, held = _whirl(loses, jnp.array(0.01))
    assert result == OFF and -0.01 <= held <= 0  # at the last state within


class Belt(mbd.AbstractSystem):
    """A block that falls on a belt, which takes it along."""

    speed: jax.Array
    contact_law = mbd.ContactLaw(friction=0.5)

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -10.0])

    def gap(self, q, t):
        return q[1:]

    def slip(self, q, v, t):
        return v[:1, None] - self.speed


def test_contacts_take_energy_and_belts_give_it():
    @eqx.filter_jit
    def run(tolerance):
        state = mbd.State(0.0, jnp.array([0.0, 0.05]), jnp.zeros(2))
        return mbd.simulate(
            Belt(jnp.array(2.0)),
            mbd.ContactImpulse(),
            state,
            t0=0.0,
            t1=0.8,
            dt=1e-3,
            energy_tolerance=tolerance,
            throw=False,
        )

    # The belt's work is 4 J, of which half is lost in sliding.
    sol = run(jnp.array(0.03))
    assert sol.result == GOOD
    assert abs(sol.v[-1, 0] - 2.0) < 1e-6


def test_the_account_needs_fixed_steps():
    mechanism = _driven()
    with pytest.raises(ValueError, match="`energy_tolerance` needs fixed steps"):
        mbd.simulate(
            mechanism,
            mbd.UdwadiaKalaba(),
            mechanism.state(),
            t1=1.0,
            dt=1e-2,
            energy_tolerance=1.0,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-3),
        )
