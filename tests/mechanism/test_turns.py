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
RIGID = mbd.UdwadiaKalaba(mbd.Cholesky())  # compiles fast
FREE = dict(gravity=[0.0, 0.0, 0.0], plane=mbd.Plane(Z))


def wheel(name, x=0.0, spin=0.0, **limits):
    """A wheel on a shaft along z, and its bearing."""
    at = [x, 0.0, 0.0]
    inertia = mbd.Inertia(mass=1.0, tensor=[INERTIA] * 3)
    body = mbd.Body(name, inertia, position=at, angular_velocity=[0.0, 0.0, spin])
    return body, mbd.Revolute(f"{name} bearing", "ground", body, point=at, axis=Z, **limits)


def sprung(kinds=("coordinate", "torsion"), stiffness=1.0, **moving):
    """A wheel on springs of both kinds or of one, and the rows of its bearing."""
    body, bearing = wheel("a", **moving)
    springs = {
        "coordinate": mbd.CoordinateSpring("a", mbd.OfJoint(bearing), stiffness=stiffness),
        "torsion": mbd.TorsionSpring("b", "ground", body, point=[0.0, 0.0, 0.0], axis=Z,
                                     stiffness=stiffness),
    }  # fmt: skip
    return mbd.Mechanism([body], [bearing], [springs[kind] for kind in kinds], **FREE)


# --- motions in closed form -----------------------------------------------------------------------

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
    mechanism = sprung(["coordinate"], 2.0, spin=SPIN)
    times = np.linspace(0.0, 2.0, 5)
    options = dict(
        scheme=diffrax.Heun(), saveat=diffrax.SaveAt(ts=jax.device_put(times)), throw=False,
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
    )  # fmt: skip

    @jax.jit
    def angles(state):
        return mbd.simulate(mechanism, RIGID, state, t0=0.0, t1=2.0, dt=1e-2, **options).angles

    expected = 25.0 * np.sin(2.0 * times)[:, None]
    np.testing.assert_allclose(angles(mechanism.state()), expected, atol=1e-3)


# --- elements at angles of several turns ----------------------------------------------------------


@pytest.fixture(scope="module")
def counted():
    """Elements of every kind on wheels that turn from 0 to x, at the pose there: as it is, and with
    the turns that were counted from `begin` x on: none, or all."""
    names = ["a", "b", "c", "d"]
    pairs = [
        wheel(name, float(i), limits=(-3 * np.pi, 3 * np.pi - 1.0)) for i, name in enumerate(names)
    ]
    bodies, bearings = zip(*pairs, strict=True)
    a, b, c, d = (mbd.OfJoint(bearing) for bearing in bearings)
    train = mbd.WeightedSum([a, b, c], [1.0, 2 / 3, 4 / 3])
    joints = [  # the bearings are only read
        mbd.CoordinateConstraint("train", train),
        mbd.CoordinateConstraint("cam", b, a, coefficients=[0.1, 0.4, 0.05]),
        mbd.CoordinateConstraint("belt", d, c, coefficients=[0.0, np.sqrt(2.0)]),
    ]
    at = dict(point=[2.0, 0.0, 0.0], axis=Z)
    forces = [
        mbd.CoordinateSpring("spring", a, stiffness=2.0),
        mbd.TorsionSpring("torsion", "ground", bodies[2], stiffness=3.0, **at),
        mbd.CoordinateActuator("servo", d, gain=[8.0, 0.0, 0.0], bias=[0.0, -8.0, 0.0]),
    ]
    contacts = [
        mbd.CoordinateLimit("stop", b, lower=-3 * np.pi, upper=4 * np.pi),
        mbd.JointLimit(bearings[3]),
    ]
    of = mbd.Mechanism(bodies, joints, forces, contacts, gravity=[0.0, 0.0, 0.0])
    u, v = np.array([4 * np.pi]), np.zeros(24)

    def pose(x):
        zero = jnp.zeros_like(x)
        place = jnp.stack([jnp.arange(4.0), zero, zero])
        return jnp.concatenate([place, jnp.stack([jnp.cos(x / 2), zero, zero, jnp.sin(x / 2)])])

    @jax.jit
    @jax.vmap
    def values(x, begin):
        def counting(angles, s):
            return of.near(angles).turning(pose(s * x).ravel(), v).angle, None

        first = of.turning(pose(begin * x).ravel(), v).angle
        angles, _ = jax.lax.scan(counting, first, jnp.linspace(begin, 1.0, 60))
        q = pose(x).ravel()
        there = of.near(angles)
        found = dict(zip(("train", "cam", "belt"), there.constraint(q, 0.0), strict=True))
        found["torque"] = there.external_force(0.0, q, v, u).reshape(6, 4)[5]
        return found | {"gap": there.gap(q, 0.0)}

    # So that a + 2/3 b + 4/3 c = 0.
    x = np.array([[3.0, -10.0, 2.75, 7.0], [40.0, 8.0, -34.0, 30.0], [-9.0, -5.0, 9.25, -20.0]])
    x = np.concatenate([x, x + [0.0, 0.0, 0.1, 0.0]])
    found = jax.device_get(values(np.tile(x, (2, 1)), np.repeat([1.0, 0.0], len(x))))
    return x.T, [
        {name: y[part] for name, y in found.items()} for part in np.arange(12).reshape(2, 6)
    ]


def test_gears_by_a_coupling_hold_at_a_pose_alone(counted):
    """Ratios of whole numbers hold at any number of turns."""
    _, found = counted
    for values in found:
        np.testing.assert_allclose(values["train"], [0, 0, 0, *[0.4 / 3] * 3], atol=1e-12)


def test_couplings_of_any_ratio_and_of_a_polynomial(counted):
    (a, b, c, d), (at_pose, found) = counted
    np.testing.assert_allclose(found["cam"], b - 0.1 - 0.4 * a - 0.05 * a**2, atol=1e-12)
    np.testing.assert_allclose(found["belt"], d - np.sqrt(2.0) * c, atol=1e-12)
    assert np.any(np.abs(at_pose["belt"] - found["belt"]) > 0.1)


def test_derivative_of_a_coupling_by_its_ratio():
    """Minus the angle with its turns, of which the pose knows nothing."""
    (a, on_a), (b, on_b) = wheel("a"), wheel("b", 2.0)

    def row(ratio, angles):
        coefficients = jnp.stack([jnp.zeros_like(ratio), ratio])
        belt = mbd.CoordinateConstraint(
            "belt", mbd.OfJoint(on_b), mbd.OfJoint(on_a), coefficients=coefficients
        )
        of = mbd.Mechanism([a, b], [on_a, on_b, belt], **FREE)
        turned = of.state().q.at[4:].set(angles)
        near = jnp.stack([angles[1], angles[0]])
        return of.near(near).constraint(turned, 0.0)[-1]

    both = jax.jit(lambda *x: (jax.grad(row)(*x), jax.jacfwd(row)(*x)))
    np.testing.assert_allclose(both(0.1, np.array([20.0, 2.0])), -20.0, rtol=1e-12)


def test_springs_servos_and_limits_beyond_a_turn(counted):
    (a, b, c, d), (_, found) = counted
    torque = [-2.0 * a, 0 * a, -3.0 * c, 8.0 * (4 * np.pi - d)]
    np.testing.assert_allclose(found["torque"], np.transpose(torque), atol=1e-11)
    gaps = [b + 3 * np.pi, 4 * np.pi - b, d + 3 * np.pi, 3 * np.pi - 1.0 - d]
    np.testing.assert_allclose(found["gap"], np.transpose(gaps), atol=1e-12)


def test_dampers_alone_need_no_count():
    body, bearing = wheel("a")
    springs = [
        mbd.CoordinateSpring(f"{k}", mbd.OfJoint(bearing), stiffness=k, damping=1.0)
        for k in (0.0, 1.0)
    ]
    mechanism = mbd.Mechanism([body], [bearing], springs, **FREE).specialised()
    found = jax.jit(lambda s: mechanism.turning(s.q, s.v))(mechanism.state())
    assert np.asarray(found.needed).tolist() == [False, True]


def test_a_closed_pose_keeps_its_turns():
    state = mbd.State(0.0, np.array([0.0, 0.0, 10.0]), np.zeros(3), angles=np.array([10.0]))
    np.testing.assert_allclose(mbd.close_joints(sprung(["coordinate"]), state).angles, [10.0])
