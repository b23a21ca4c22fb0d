"""Angles that turn further than half a turn, in springs, limits, actuators and couplings."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

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


def two_springs(stiffness):
    """Wheels on a `CoordinateSpring` and on a `TorsionSpring`."""
    (a, on_a), (b, on_b) = wheel("a", spin=50.0), wheel("b", 2.0, spin=50.0)
    springs = [
        mbd.CoordinateSpring("a", mbd.OfJoint(on_a), stiffness=stiffness),
        mbd.TorsionSpring("b", "ground", b, point=[2.0, 0.0, 0.0], axis=Z, stiffness=stiffness),
    ]
    return mbd.Mechanism([a, b], [on_a, on_b], springs, **FREE)


def one_spring(stiffness=2.0, **moving):
    body, bearing = wheel("a", **moving)
    spring = mbd.CoordinateSpring("a", mbd.OfJoint(bearing), stiffness=stiffness)
    return mbd.Mechanism([body], [bearing], [spring], **FREE)


# --- motions in closed form -----------------------------------------------------------------------

K, DT, STEPS = 2.0, 4e-3, 550


@jax.jit
def wound(k, state):
    """Two wheels on springs that wind up by 25 rad and back, and the derivatives of their rates at
    the end by the stiffness."""
    state = mbd.State(*state[:3], angles=state[3])

    def rates(k):
        sol = mbd.simulate(
            two_springs(k), RIGID, state, dt=DT, num_steps=STEPS,
            saveat=diffrax.SaveAt(steps=50), throw=False,
        )  # fmt: skip
        return sol.v[-1, 4:], sol

    slope, sol = jax.jacrev(rates, has_aux=True)(k)
    return sol, slope


def start():
    state = two_springs(K).state()
    return np.zeros(()), *map(np.asarray, (state.q, state.v)), np.zeros(2)


def test_springs_of_several_turns_and_derivatives():
    """x = v0 / w sin(w t), w^2 = k / I: four turns to each side; and d/dk."""
    sol, slopes = wound(jnp.array(K), start())
    w, t1 = np.sqrt(K / INERTIA), DT * STEPS
    expected = 50.0 / w * np.sin(w * np.asarray(sol.t))[:, None]
    # Fourth-order steps of 0.2 rad.
    np.testing.assert_allclose(sol.angles, np.tile(expected, (1, 2)), atol=1e-4)
    np.testing.assert_allclose(sol.angles, sol.q[:, 4:], atol=1e-12)
    slope = -50.0 * t1 * np.sin(w * t1) * w / (2 * K)
    np.testing.assert_allclose(slopes, np.full(2, slope), rtol=1e-4)
    audit = mbd.reports.audit(two_springs(K), sol)
    energy = 2 * 0.5 * INERTIA * 50.0**2
    np.testing.assert_allclose(audit.kinetic + audit.stored, energy, rtol=1e-6)


def test_a_motion_resumes_with_its_turns():
    """The springs are wound by 18 rad, which the pose alone does not tell."""
    sol, *_ = wound(jnp.array(K), start())
    t, q, v, angles = (np.asarray(x) for x in (sol.t, sol.q, sol.v, sol.angles))
    rest, *_ = wound(jnp.array(K), (t[2], q[2], v[2], angles[2]))
    assert np.min(angles[2]) > 20.0
    np.testing.assert_allclose(rest.angles[:-3], angles[3:], atol=1e-9)


def test_adaptive_steps_count_turns():
    mechanism = one_spring(spin=50.0)
    sol = mbd.simulate(
        mechanism, RIGID, mechanism.state(), t1=2.0, dt=1e-2, scheme=diffrax.Bosh3(),
        stepsize_controller=diffrax.PIDController(rtol=1e-7, atol=1e-7),
        saveat=diffrax.SaveAt(ts=np.linspace(0.0, 2.0, 5)),
    )  # fmt: skip
    expected = 25.0 * np.sin(2.0 * np.asarray(sol.t))[:, None]
    np.testing.assert_allclose(sol.angles, expected, atol=1e-3)


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
    joints = [
        *bearings,
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
    rows = {name: of.rows(name) for name in ("train", "cam", "belt")}
    u, v = jnp.array([4 * np.pi]), of.state().v

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
        phi = there.constraint(q, 0.0)
        found = {name: phi[at] for name, at in rows.items()}
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
        np.testing.assert_allclose(values["train"][:, 0], [0, 0, 0, *[0.4 / 3] * 3], atol=1e-12)


def test_couplings_of_any_ratio_and_of_a_polynomial(counted):
    (a, b, c, d), (at_pose, found) = counted
    np.testing.assert_allclose(found["cam"][:, 0], b - 0.1 - 0.4 * a - 0.05 * a**2, atol=1e-12)
    np.testing.assert_allclose(found["belt"][:, 0], d - np.sqrt(2.0) * c, atol=1e-12)
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


def test_an_angle_that_is_too_fast_to_count_is_told():
    """0.2 rad and 2 rad a step."""
    mechanism = one_spring()

    def result(spin):
        start = mbd.State(0.0, mechanism.state().q, jnp.zeros(3).at[2].set(spin))
        options = dict(dt=0.01, num_steps=2, throw=False)
        return mbd.simulate(mechanism, mbd.VelocityImpulse(mbd.Cholesky()), start, **options).result

    lost = jax.jit(jax.vmap(result))(np.array([20.0, 200.0])) == mbd.RESULTS.turns_not_counted
    assert np.asarray(lost).tolist() == [False, True]


@pytest.mark.parametrize("stiffness", [0.0, 1.0])
def test_dampers_alone_need_no_count(stiffness):
    body, bearing = wheel("a")
    spring = mbd.CoordinateSpring("a", mbd.OfJoint(bearing), stiffness=stiffness, damping=1.0)
    mechanism = mbd.Mechanism([body], [bearing], [spring], **FREE).specialised()
    needed = jax.jit(lambda s: mechanism.turning(s.q, s.v).needed)(mechanism.state())
    assert np.asarray(needed).tolist() == [stiffness > 0]


def test_a_closed_pose_keeps_its_turns():
    state = mbd.State(0.0, np.array([0.0, 0.0, 10.0]), np.zeros(3), angles=jnp.array([10.0]))
    np.testing.assert_allclose(mbd.close_joints(one_spring(), state).angles, [10.0])
