"""Angles that turn further than half a turn, in springs, limits, actuators and couplings."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import trajopt
from jaxmbd.trajopt.controls import Held
from jaxmbd.trajopt.motion import advance

Z = [0.0, 0.0, 1.0]
EVERY = diffrax.SaveAt(t0=True, steps=10)


def wheel(name, x, inertia=0.5, spin=0.0):
    """A wheel on a shaft along z, and its bearing."""
    body = mbd.Body(
        name,
        mbd.Inertia(mass=1.0, tensor=[inertia, inertia, inertia]),
        position=[x, 0.0, 0.0],
        angular_velocity=[0.0, 0.0, spin],
    )
    return body, mbd.Revolute(f"{name} bearing", "ground", body, point=[x, 0.0, 0.0], axis=Z)


def angles(mechanism, sol, *names):
    """The angles of bearings, with their turns counted from the rates."""
    paths = [
        mbd.reports.joint_path(mechanism, f"{name} bearing", sol.t, sol.q, sol.v) for name in names
    ]
    return np.concatenate(paths, axis=1)


def two_springs(stiffness, plane=None):
    """Wheels on a `CoordinateSpring` and on a `TorsionSpring`."""
    (a, on_a), (b, on_b) = wheel("a", 0.0, spin=50.0), wheel("b", 2.0, spin=50.0)
    springs = [
        mbd.CoordinateSpring("a", mbd.OfJoint(on_a), stiffness=stiffness),
        mbd.TorsionSpring("b", "ground", b, point=[2.0, 0.0, 0.0], axis=Z, stiffness=stiffness),
    ]
    return mbd.Mechanism([a, b], [on_a, on_b], springs, gravity=[0.0, 0.0, 0.0], plane=plane)


@pytest.fixture(scope="module")
def wound():
    """Two wheels on springs that wind up by 25 rad, and back."""
    mechanism = two_springs(2.0)
    sol = mbd.simulate(
        mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=2.0, dt=2e-3, saveat=EVERY
    )
    return mechanism, sol


def test_springs_of_several_turns(wound):
    """x = v0 / w sin(w t), w = 2 rad/s: four turns to each side."""
    mechanism, sol = wound
    expected = 25.0 * np.sin(2.0 * np.asarray(sol.t))[:, None]
    # Fourth-order steps of up to 0.1 rad: 0.1^5 / 120 in each of 1000 steps at most.
    np.testing.assert_allclose(sol.angles, np.broadcast_to(expected, (101, 2)), atol=1e-5)
    np.testing.assert_allclose(angles(mechanism, sol, "a", "b"), sol.angles, atol=1e-12)


def test_the_energy_of_springs_of_several_turns_is_kept(wound):
    mechanism, sol = wound
    audit = mbd.reports.audit(mechanism, sol)
    np.testing.assert_allclose(audit.kinetic + audit.stored, 2 * 0.5 * 0.5 * 50.0**2, rtol=1e-6)


def test_a_motion_resumes_with_its_turns(wound):
    """At 0.4 s the springs are wound by 18 rad, which the pose alone does not tell."""
    mechanism, sol = wound
    index = 20
    rest = mbd.simulate(
        mechanism, mbd.UdwadiaKalaba(), sol.state(index), t1=2.0, dt=2e-3, saveat=EVERY
    )
    np.testing.assert_allclose(rest.angles, sol.angles[index:], atol=1e-9)


def test_derivatives_through_several_turns():
    """d/dk of x = v0 / w sin(w t) with w^2 = k / I, in both modes, at 4.4 rad of w t."""
    t1, inertia = 2.2, 0.5

    def end(stiffness):
        mechanism = two_springs(stiffness, mbd.Plane(Z))
        sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=t1, dt=4e-3)
        return mechanism.twist(sol.v[-1], "a").angular[2], mechanism.twist(sol.v[-1], "b").angular[
            2
        ]

    @jax.jit
    def both(k):
        return jax.jacrev(end)(k), jax.jacfwd(end)(k)

    k = 2.0
    w = np.sqrt(k / inertia)
    expected = -50.0 * t1 * np.sin(w * t1) * w / (2 * k)
    np.testing.assert_allclose(both(jnp.array(k)), expected, rtol=1e-4)


# --- couplings ------------------------------------------------------------------------------------


def fallen(radius):
    """A load of 3 kg on a rope round a drum, after 1 s. It falls with a = g m / (m + I / r^2) and
    turns the drum four times."""
    drum = mbd.Body("drum", mbd.Inertia(mass=2.0, tensor=[0.02, 0.02, 0.02]))
    bearing = mbd.Revolute("bearing", "ground", drum, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
    load = mbd.Body("load", mbd.Inertia(mass=3.0, tensor=[0.01, 0.01, 0.01]))
    guide = mbd.Prismatic("guide", "ground", load, point=[0.0, 0.0, 0.0], axis=Z)
    rope = mbd.CoordinateConstraint(
        "rope", mbd.OfJoint(guide), mbd.OfJoint(bearing), coefficients=jnp.stack([0.0, radius])
    )
    mechanism = mbd.Mechanism(
        [drum, load], [bearing, guide, rope], plane=mbd.Plane([0.0, 1.0, 0.0])
    )
    start = mechanism.state()
    sol = mbd.simulate(mechanism, mbd.VelocityImpulse(), start, t1=1.0, dt=0.01)
    z = mechanism.pose(sol.q[-1], "load").position[2]
    return z, (sol.phi_norm[-1], mechanism.constraint(sol.q[-1], sol.t[-1]))


def test_a_winch_and_its_derivative_by_the_radius():
    m, g, inertia, r = 3.0, 9.81, 0.02, 0.1

    @jax.jit
    def both(r):
        (z, rows), back = jax.value_and_grad(fallen, has_aux=True)(r)
        return z, rows, back, jax.jacfwd(lambda r: fallen(r)[0])(r)

    z, (phi, at_pose), *slopes = both(jnp.array(r))
    # Each step takes the velocity at its end, so after a time t with steps h the load has fallen by
    # a t (t + h) / 2.
    heavy, half = m + inertia / r**2, 1.01 / 2
    np.testing.assert_allclose(z, -g * m / heavy * half, rtol=1e-9)
    np.testing.assert_allclose(slopes, -2 * g * m * inertia / r**3 / heavy**2 * half, rtol=1e-7)
    assert phi < 1e-10
    np.testing.assert_allclose(at_pose, 0.0, atol=1e-10)


def test_couplings_of_any_ratio_and_of_a_polynomial():
    """Without friction the energy of the wheels is constant: with y = p(x),
    (1 + p'(x)^2) x'^2 = (1 + p'(x0)^2) x'0^2 for equal wheels. The belt turns by sqrt(2) x."""
    ratio, c = np.sqrt(2.0), np.array([0.1, 0.4, 0.05])
    x, spin = 0.0, 8.0
    names = {"x": spin, "y": c[1] * spin, "z": spin, "belt": ratio * spin}
    pairs = [wheel(name, float(i), spin=rate) for i, (name, rate) in enumerate(names.items())]
    bodies, bearings = zip(*pairs, strict=True)
    of = [mbd.OfJoint(bearing) for bearing in bearings]
    joints = [
        *bearings,
        mbd.CoordinateConstraint("cam", of[1], of[0], coefficients=c, zero=-c[0]),
        mbd.CoordinateConstraint("belt", of[3], of[2], coefficients=[0.0, ratio]),
    ]
    mechanism = mbd.Mechanism(bodies, joints, gravity=[0.0, 0.0, 0.0])
    start = mechanism.state()
    sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), start, t1=2.0, dt=2e-3, saveat=EVERY)
    assert sol.phi_norm is not None and np.max(sol.phi_norm) < 1e-9
    x, y, z, belt = angles(mechanism, sol, "x", "y", "z", "belt").T
    assert x[-1] > 3 * np.pi and y[-1] > 3 * np.pi
    np.testing.assert_allclose(y, c[1] * x + c[2] * x**2, atol=1e-9)
    np.testing.assert_allclose(belt, ratio * z, atol=1e-9)
    rate = mbd.reports.joint_rates(mechanism, sol.q, sol.v, "x bearing")[:, 0]
    slope = c[1] + 2 * c[2] * x
    np.testing.assert_allclose((1 + slope**2) * rate**2, (1 + c[1] ** 2) * spin**2, rtol=1e-6)


def test_gears_by_a_coupling_hold_at_a_pose_alone():
    """Ratios of whole numbers: phi_1 + 2/3 phi_2 + 4/3 phi_3 = 0 at any number of turns."""
    turned = np.array([[3.0, -10.0, 2.75], [40.0, 8.0, -34.0], [-9.0, -5.0, 9.25]])
    np.testing.assert_allclose(turned @ [1.0, 2 / 3, 4 / 3], 0.0, atol=1e-12)
    pairs = [wheel(name, float(i)) for i, name in enumerate("abc")]
    bodies, bearings = zip(*pairs, strict=True)
    total = mbd.WeightedSum([mbd.OfJoint(bearing) for bearing in bearings], [1.0, 2 / 3, 4 / 3])
    train = mbd.CoordinateConstraint("train", total)
    mechanism = mbd.Mechanism(bodies, [*bearings, train])

    @jax.jit
    @jax.vmap
    def phi(x):
        half = x / 2
        zero = jnp.zeros_like(x)
        place = jnp.stack([jnp.arange(3.0), zero, zero])
        q = jnp.concatenate([place, jnp.stack([jnp.cos(half), zero, zero, jnp.sin(half)])])
        return mechanism.constraint(q.ravel(), 0.0)[-1]

    np.testing.assert_allclose(phi(jnp.asarray(turned)), 0.0, atol=1e-12)
    np.testing.assert_allclose(phi(jnp.asarray(turned + [0.0, 0.0, 0.1])), 0.4 / 3, rtol=1e-9)


# --- limits, actuators, verdicts ------------------------------------------------------------------


def test_limits_and_servos_beyond_a_turn():
    """Wheels between stops at +-3 pi, that strike them without loss, and a servo that goes to 4 pi:
    x = 4 pi (1 - cos w t), w^2 = k / I."""
    stop, spin, k, inertia = 3 * np.pi, 30.0, 8.0, 0.5
    (a, on_a), (b, on_b), (c, on_c) = (
        wheel("a", 0.0, spin=spin), wheel("b", 1.0, spin=spin), wheel("c", 2.0)
    )  # fmt: skip
    on_b = mbd.Revolute("b bearing", "ground", b, point=[1.0, 0.0, 0.0], axis=Z,
                        limits=(-stop, stop))  # fmt: skip
    servo = mbd.CoordinateActuator("c", mbd.OfJoint(on_c), gain=[k, 0.0, 0.0], bias=[0.0, -k, 0.0])
    limits = [
        mbd.CoordinateLimit("a", mbd.OfJoint(on_a), lower=-stop, upper=stop, restitution=1.0),
        mbd.JointLimit(on_b, restitution=1.0),
    ]
    mechanism = mbd.Mechanism([a, b, c], [on_a, on_b, on_c], [servo], limits,
                              gravity=[0.0, 0.0, 0.0])  # fmt: skip
    sol = mbd.simulate(
        mechanism,
        mbd.ContactImpulse(impacts=mbd.Located(1)),
        mechanism.state(),
        t1=1.5,
        dt=1e-3,
        control=lambda t, q, v: jnp.array([4 * np.pi]),
        saveat=diffrax.SaveAt(t0=True, steps=10),
    )
    t = np.asarray(sol.t)
    x = angles(mechanism, sol, "a", "b", "c").T
    there = np.abs((spin * t + stop) % (4 * stop) - 2 * stop)
    np.testing.assert_allclose(x[0], stop - there, atol=1e-9)
    np.testing.assert_allclose(x[1], stop - there, atol=1e-9)
    wanted = 4 * np.pi * (1 - np.cos(np.sqrt(k / inertia) * t))
    np.testing.assert_allclose(x[2], wanted, atol=0.15)  # w^2 A h t / 2


@pytest.mark.parametrize("stiffness", [0.0, 1.0])
def test_an_angle_that_is_too_fast_to_count_is_told(stiffness):
    """0.2 rad and 2 rad a step, with a spring and with a damper alone, which needs no count."""
    body, bearing = wheel("a", 0.0)
    spring = mbd.CoordinateSpring("a", mbd.OfJoint(bearing), stiffness=stiffness)
    mechanism = mbd.Mechanism([body], [bearing], [spring], gravity=[0.0, 0.0, 0.0])
    state = mechanism.state()

    def result(spin):
        v = state.v.at[5].set(spin)
        start = mbd.State(0.0, state.q, v)
        sol = mbd.simulate(mechanism, mbd.VelocityImpulse(), start, t1=0.1, dt=0.01, throw=False)
        return sol.result

    lost = jax.jit(jax.vmap(result))(jnp.array([20.0, 200.0])) == mbd.RESULTS.turns_not_counted
    assert lost.tolist() == [False, stiffness > 0]


def test_adaptive_steps_count_turns():
    mechanism = two_springs(2.0)
    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        mechanism.state(),
        t1=2.0,
        dt=1e-2,
        stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-9),
        saveat=diffrax.SaveAt(ts=np.linspace(0.0, 2.0, 5)),
    )
    expected = 25.0 * np.sin(2.0 * np.asarray(sol.t))[:, None]
    np.testing.assert_allclose(sol.angles, np.broadcast_to(expected, (5, 2)), atol=1e-5)


# --- functions of a pose --------------------------------------------------------------------------


def spring_turned(turned, spin=0.0):
    """A wheel on a spring of 2 N m/rad at an angle, with the turns in `angles`."""
    body, bearing = wheel("a", 0.0, inertia=0.5)
    spring = mbd.CoordinateSpring("a", mbd.OfJoint(bearing), stiffness=2.0)
    mechanism = mbd.Mechanism([body], [bearing], [spring], gravity=[0.0, 0.0, 0.0])
    half = turned / 2
    q = np.array([0.0, 0.0, 0.0, np.cos(half), 0.0, 0.0, np.sin(half)])
    v = np.array([0.0, 0.0, 0.0, 0.0, 0.0, spin])
    return mechanism, q, v


def test_an_interval_of_a_plan_does_not_lose_a_turn():
    """The next interval of a plan starts from a pose, within half a turn of the start of the plan.
    From 3 rad and 4 rad/s the wheel passes half a turn; so it does from there, but not half a turn
    beyond 3 rad."""
    mechanism, q, v = spring_turned(3.0, spin=4.0)

    def reached(angles):
        state = mbd.State(0.0, q, v, angles=angles)
        problem = trajopt.Problem(
            mechanism,
            state,
            duration=0.2,
            steps=2,
            nu=1,
            running_cost=lambda t, q, v, u: jnp.sum(u**2),
        )
        return jax.jit(lambda q, v: advance(problem, 0.0, q, v, Held(jnp.zeros(1)))[2])(q, v)

    assert not reached(None)
    assert reached(np.array([3.0]))


def test_the_forces_of_a_pose_with_its_turns():
    """-2 N m/rad times 10 rad with its turns, and times 10 rad - 4 pi without."""
    mechanism, q, v = spring_turned(10.0)
    torque = jax.jit(lambda m: m.external_force(0.0, jnp.asarray(q), jnp.asarray(v), None)[5])
    np.testing.assert_allclose(torque(mechanism), -2 * (10 - 4 * np.pi), rtol=1e-12)
    np.testing.assert_allclose(torque(mechanism.near(jnp.array([10.0]))), -20.0, rtol=1e-12)
    closed = mbd.close_joints(mechanism, mbd.State(0.0, q, v, angles=jnp.array([10.0])))
    np.testing.assert_allclose(closed.angles, [10.0])
