"""Forces on bodies against power balances, gradients of potentials, and the laws in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import FRAME, random_pose
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd._mechanism import energy
from jaxmbd._mechanism.forces import AbstractForceElement
from jaxmbd._mechanism.forces.bushing import _curvature
from jaxmbd._mechanism.relative import twist

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
Z = [0.0, 0.0, 1.0]
AXIS = [0.6, 0.0, 0.8]
TIME = np.asarray(0.7)
CONTROL = np.array([9.0, -0.4, 1.5, 0.3])


def random_body(name, rng):
    inertia = BOX.moved([0.1, -0.2, 0.05])
    v, omega = rng.normal(size=(2, 3))
    pose = random_pose(rng)._asdict()
    return mbd.Body(name, inertia, velocity=v, angular_velocity=omega, **pose)


def definite(seed):
    A = np.random.default_rng(seed).normal(size=(6, 6))
    return A @ A.T


class Tether(eqx.Module):
    """A user's force: b and c are drawn to a, with a force that depends on time and control."""

    pull: jax.Array

    def __call__(self, poses, twists, t, u):
        to_b, to_c = (self.pull * u[2] * t * (p.position - poses[0].position) for p in poses[1:])
        drag = -self.pull * twists[1].angular
        arms = [p.position - poses[0].position for p in poses[1:]]
        back = mbd.rotations.cross(arms[0], to_b) + mbd.rotations.cross(arms[1], to_c) - drag
        return (to_b + to_c, back), (-to_b, drag), (-to_c, jnp.zeros_like(drag))


def quartic(x):
    return 7.0 * x**4 + x**3


def progressive(x, rate):
    return 2.0 * rate * jnp.abs(rate) + 0.3 * x * x * rate


PARAMETERS = {
    "bushing": dict(
        stiffness=np.array([10.0, 20.0, 30.0, 1.0, 2.0, 4.0]),
        damping=np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        preload=np.array([1.0, -2.0, 3.0, 0.1, 0.2, -0.3]),
    ),
    "full bushing": dict(stiffness=definite(0), damping=definite(1), preload=np.ones(6)),
    "drag": dict(linear=0.3, quadratic=0.2, angular=0.1, wind=np.array([0.5, -1.0, 2.0])),
    "push": dict(force_world=np.array([1.0, 2.0, 3.0]), force_body=np.array([-1.0, 0.5, 4.0]),
                 point=np.array([-1.2, 0.4, 0.7])),
    "twist": dict(torque_world=np.array([0.3, 0.2, 0.1]), torque_body=np.array([1.0, -0.5, 0.4])),
}  # fmt: skip


def everything(bodies):
    """One element of every kind: between the first three bodies, and on the next two from
    outside."""
    rng, p = np.random.default_rng(1), PARAMETERS
    a, b, c, d, e = bodies
    hinge = lambda: dict(point=rng.normal(size=3), axis=AXIS)  # noqa: E731
    slide = lambda: dict(points=rng.normal(size=(2, 3)), axis=AXIS)  # noqa: E731
    frames = lambda: dict(frame_a=random_pose(rng), frame_b=random_pose(rng))  # noqa: E731
    forces = [
        mbd.Spring("spring", c, b, points=rng.normal(size=(2, 3)), stiffness=3.0, damping=0.1,
                   rest_length=1.0, potential=quartic, law=progressive,
                   actuator=mbd.FromControl(3, gear=2.0)),
        mbd.TorsionSpring("torsion", a, c, **hinge(), stiffness=1.0, damping=0.2, rest_angle=-0.3,
                          potential=quartic, law=progressive, actuator=jnp.sin),
        mbd.Bushing("bushing", "a", "c", **frames(), **p["bushing"]),
        mbd.Bushing("full bushing", "b", "a", **frames(), **p["full bushing"]),
        mbd.TurningFriction("turning friction", c, a, **hinge(), viscous=0.3, dry=1.7, speed=0.1),
        mbd.SlidingFriction("sliding friction", a, b, **slide(), viscous=0.2, dry=0.7, speed=0.2),
        mbd.Motor("motor", a, b, **hinge(), index=1, gear=3.0),
        mbd.LinearActuator("actuator", b, c, **slide(), index=2, gear=-2.0),
        mbd.Force("tether", [a, "b", c], Tether(np.asarray(0.8))),
        mbd.Drag("drag", d, **p["drag"]),
        mbd.PointForce("push", e, **p["push"]),
        mbd.Torque("twist", "d", **p["twist"]),
    ]  # fmt: skip
    return mbd.Mechanism(bodies, (), forces, gravity=[0.3, -9.0, 2.0])


def world(body):
    """Pose as SciPy knows it."""
    position, p = map(np.asarray, body.pose)
    return position, Rotation.from_quat(p, scalar_first=True)


@pytest.fixture(scope="module")
def bodies():
    rng = np.random.default_rng(0)
    return [random_body(name, rng) for name in "abcde"]


@pytest.fixture(scope="module")
def table(bodies):
    """Of each element its power, energies and frames; of each body the force and torque of all."""
    of = everything(bodies)
    state = of.state()

    @jax.jit
    def values(q, v):
        state = mbd.State(TIME, q, v)
        powers = energy.powers(of, state, CONTROL)
        return {
            "power": {name: entry.power for name, entry in powers.items()},
            "lost": {name: entry.lost for name, entry in powers.items()},
            "stored": energy.stored_energies(of, state),
            "force": of.external_force(TIME, q, v, CONTROL).reshape(6, 5),
        }

    found = jax.device_get(values(state.q, state.v))
    frames = {
        f.name: [frame_of(bodies, *end) for end in zip(f.bodies, f.frames)] for f in of.forces
    }
    return found | {"frames": frames}


def frame_of(bodies, name, frame):
    """Position, rotation, velocity and angular velocity of a frame on a body."""
    body = {body.name: body for body in bodies}[name]
    (r, R), (v, w) = world(body), map(np.array, body.twist)
    arm = R.apply(np.array(frame.position))
    turned = R * Rotation.from_quat(np.array(frame.orientation), scalar_first=True)
    return r + arm, turned, v + np.cross(w, arm), w


def test_power_of_elements_is_that_of_their_generalised_force(bodies, table):
    v = np.stack([np.concatenate(body.twist) for body in bodies], axis=1)
    np.testing.assert_allclose(sum(table["power"].values()), np.sum(table["force"] * v), rtol=1e-11)


def frame_motion(table, name):
    """Positions, rotations, velocities and angular velocities of the frames of an element."""
    return zip(*table["frames"][name], strict=True)


def line(table, name):
    """Length between the ends of an element and its rate."""
    (ra, rb), _, (va, vb), _ = frame_motion(table, name)
    length = np.linalg.norm(rb - ra)
    return length, (rb - ra) @ (vb - va) / length


def subclasses(kind):
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


# Of every kind of force that has a potential energy: nothing that gives or takes besides.
CONSERVATIVE = {
    "spring": lambda n, a, b, frames: mbd.Spring(
        n, a, b, stiffness=30.0, rest_length=0.4, potential=quartic, **frames
    ),
    "torsion": lambda n, a, b, frames: mbd.TorsionSpring(
        n, a, b, stiffness=5.0, rest_angle=0.2, potential=quartic, **frames
    ),
    "bushing": lambda n, a, b, frames: mbd.Bushing(
        n, a, b, stiffness=definite(0), preload=np.arange(6.0), **frames
    ),
    "interval": lambda n, a, b, frames: mbd.forces.CoordinateSpring(
        n, mbd.coordinates.PathLength([a, b], [*frames.values()]), stiffness=30.0, rest=[0.05, 0.1]
    ),
    "slide": lambda n, a, b, frames: mbd.forces.CoordinateSpring(
        n,
        mbd.coordinates.Displacement([a, b], [*frames.values()]),
        stiffness=20.0,
        potential=quartic,
    ),
    "rope": lambda n, a, b, frames: mbd.forces.CoordinateSpring(
        n,
        mbd.coordinates.PathLength(
            [a, "ground", b], [frames["frame_a"], None, None], weights=[1.0, 2.0]
        ),
        stiffness=10.0,
        rest=1.0,
    ),
    "sum": lambda n, a, b, frames: mbd.forces.CoordinateSpring(
        n,
        mbd.coordinates.WeightedSum(
            [
                mbd.coordinates.TwistAngle([a, b], [*frames.values()]),
                mbd.coordinates.Displacement([b, a]),
            ],
            [0.3, -1.0],
        ),
        potential=quartic,
    ),
    "teeth": lambda n, a, b, frames: mbd.forces.PlaySpring(
        n,
        mbd.coordinates.DriveTwist(
            mbd.coordinates.TwistAngle([a, b], [*frames.values()]),
            mbd.coordinates.Displacement([b, a]),
            ratio=-3.0,
            error=0.2,
            cycles=2.0,
        ),
        stiffness=20.0,
        play=0.1,
        hardening=3.0,
        smoothing=0.05,
    ),
}


def test_forces_with_a_potential_are_its_gradient():
    """dV/dt + f . v = 0 for two free bodies each, at any poses and any velocities; and the weight
    of others."""
    own = lambda kind: "energy" in vars(kind) or "stored" in vars(kind)  # noqa: E731
    laws = (mbd.forces.PlaySpring, mbd.forces.CoordinateSpring, mbd.forces.AbstractCoordinateForce)
    assert {mbd.Bushing, *laws} == {
        kind
        for kind in subclasses(AbstractForceElement)
        if own(kind) and kind is not AbstractForceElement and kind.__module__.startswith("jaxmbd.")
    }
    rng = np.random.default_rng(4)
    bodies, forces, n = [], [], 2 * len(CONSERVATIVE)
    for kind, make in CONSERVATIVE.items():
        ends = [random_body(f"{x} of {kind}", rng) for x in "ab"]
        frames = dict(frame_a=random_pose(rng), frame_b=random_pose(rng))
        forces.append(make(kind, *ends, frames))
        bodies += ends
    of = mbd.Mechanism(bodies, (), forces, gravity=[0.3, 1, -9.0])

    @jax.jit
    @jax.vmap
    def powers(q, v):
        def potentials(q):
            state = mbd.State(0.0, q, v)
            weight = sum(energy.gravitational_energies(of, state).values())
            return jnp.stack([*energy.stored_energies(of, state).values(), weight])

        _, rates = jax.jvp(potentials, (q,), (of.qdot(q, v),))
        still = jnp.zeros_like(v)
        weight = of.inertial_force(q, still) @ v
        given = of.external_force(0.0, q, v, None).reshape(6, n) * v.reshape(6, n)
        return rates, jnp.append(jnp.sum(given.reshape(6, n // 2, 2), axis=(0, 2)), weight)

    p = rng.normal(size=(50, 4, n))
    p /= np.linalg.norm(p, axis=1, keepdims=True)
    q = np.concatenate([rng.normal(size=(50, 3, n)), p], axis=1).reshape(50, -1)
    rate, power = map(np.asarray, powers(q, rng.normal(size=(50, 6 * n))))
    assert np.min(np.abs(power)) > 0
    np.testing.assert_allclose(power / np.max(np.abs(power), 0), -rate / np.max(np.abs(power), 0),
                               rtol=1e-10, atol=1e-12)  # fmt: skip


def test_energy_and_losses_of_springs(table):
    """The power is what the energy loses and the damper takes, less what the actuator gives."""
    stored, lost = table["stored"], table["lost"]
    length, speed = line(table, "spring")
    x, u = length - 1.0, CONTROL[3]
    np.testing.assert_allclose(stored["spring"], 1.5 * x**2 + 7 * x**4 + x**3, rtol=1e-12)
    law = 2.0 * speed * np.abs(speed) + 0.3 * x * x * speed
    expected = (0.1 * speed + law - 2.0 * u) * speed
    np.testing.assert_allclose(lost["spring"], expected, rtol=1e-10)
    # Elements that have no energy to lose.
    for name in ("push", "motor", "turning friction"):
        assert stored[name] == 0


@pytest.mark.parametrize("name", ["bushing", "full bushing"])
def test_energy_and_losses_of_bushings(table, name):
    """For large rotations, with the rotation vector as SciPy has it, and its rate by differences
    along the motion."""
    (ra, rb), (Ra, Rb), (va, vb), (wa, wb) = frame_motion(table, name)

    def deflection(h):
        Ah, Bh = Rotation.from_rotvec(h * wa) * Ra, Rotation.from_rotvec(h * wb) * Rb
        d = Ah.inv().apply(rb + h * vb - ra - h * va)
        return np.concatenate([d, (Ah.inv() * Bh).as_rotvec()])

    p = PARAMETERS[name]
    K, C = (np.diag(A) if A.ndim == 1 else A for A in (p["stiffness"], p["damping"]))
    x, h = deflection(0.0), 1e-4
    assert 1.0 < np.linalg.norm(x[3:]) < 3.0
    steps = [deflection(k * h) for k in (-2, -1, 1, 2)]
    speed = (8 * (steps[2] - steps[1]) - (steps[3] - steps[0])) / (12 * h)
    np.testing.assert_allclose(table["stored"][name], x @ K @ x / 2 - p["preload"] @ x, rtol=1e-12)
    power = speed @ (p["preload"] - K @ x - C @ speed)
    np.testing.assert_allclose(table["power"][name], power, rtol=1e-9)
    np.testing.assert_allclose(table["lost"][name], speed @ C @ speed, rtol=1e-9)


def test_losses_of_friction_and_power_of_actuators(table):
    """Rates about or along the axis of a. The velocity of b is seen from a, which turns."""

    def rate(name, slides):
        (ra, rb), (Ra, _), (va, vb), (wa, wb) = frame_motion(table, name)
        return Ra.apply(Z) @ (vb - va - np.cross(wa, rb - ra) if slides else wb - wa)

    w = rate("turning friction", False)
    expected = 0.3 * w**2 + 1.7 * w**2 / np.hypot(w, 0.1)
    np.testing.assert_allclose(table["lost"]["turning friction"], expected, rtol=1e-12)
    w = rate("sliding friction", True)
    expected = 0.2 * w**2 + 0.7 * w**2 / np.hypot(w, 0.2)
    np.testing.assert_allclose(table["lost"]["sliding friction"], expected, rtol=1e-12)
    power = table["power"]
    np.testing.assert_allclose(power["motor"], 3.0 * -0.4 * rate("motor", False), rtol=1e-12)
    np.testing.assert_allclose(power["actuator"], -2.0 * 1.5 * rate("actuator", True), rtol=1e-12)


def test_drag_and_loads(bodies, table):
    """Wrenches about the origins of the bodies, from laws and levers."""
    *_, d, e = bodies
    drag, push, turning = (PARAMETERS[name] for name in ("drag", "push", "twist"))
    (_, Rd), (origin, Re) = world(d), world(e)
    arm, omega = Rd.apply(np.array(d.inertia.center)), np.asarray(d.twist.angular)
    w = np.asarray(d.twist.linear) + np.cross(omega, arm) - drag["wind"]
    F = -(0.3 + 0.2 * np.linalg.norm(w)) * w
    T = np.cross(arm, F) - 0.1 * omega + turning["torque_world"] + Rd.apply(turning["torque_body"])
    pushed = push["force_world"] + Re.apply(push["force_body"])
    lever = np.cross(push["point"] - origin, pushed)
    expected = [np.concatenate([F, T]), np.concatenate([pushed, lever])]
    np.testing.assert_allclose(table["force"][:, 3:].T, expected, rtol=1e-11, atol=1e-12)


def test_internal_forces_change_no_momentum(bodies, table):
    F, T = table["force"][:, :3].reshape(2, 3, 3)
    r = np.stack([body.pose.position for body in bodies[:3]], axis=1)
    size = np.abs(F).max()
    np.testing.assert_allclose(F.sum(axis=1), 0, atol=1e-13 * size)
    np.testing.assert_allclose((T + np.cross(r, F, axis=0)).sum(axis=1), 0, atol=1e-13 * size)


def test_derivatives_where_laws_have_no_direction():
    """Coincident ends, no deflection, no rate: derivatives by pose and velocity are the linear
    stiffness and damping, wherever the law is smooth there, and finite."""
    K, C = definite(2), definite(3)
    frames = dict(frame_a=FRAME, frame_b=FRAME)
    z = np.outer(Z, Z)
    o = np.zeros((3, 3))
    cases = [
        (mbd.Spring("s", "ground", "s", stiffness=3.0, rest_length=0.0, **frames),
         np.block([[3 * np.eye(3), o], [o, o]]), np.zeros((6, 6))),
        (mbd.Bushing("k", "ground", "k", stiffness=K, damping=C, **frames), K, C),
        (mbd.TorsionSpring("t", "ground", "t", stiffness=2.0, damping=0.5, **frames),
         np.block([[o, o], [o, 2.0 * z]]), np.block([[o, o], [o, 0.5 * z]])),
        (mbd.TurningFriction("f", "ground", "f", viscous=0.5, dry=2.0, speed=0.1, **frames),
         np.zeros((6, 6)), np.block([[o, o], [o, 20.5 * z]])),
        (mbd.SlidingFriction("g", "ground", "g", viscous=0.5, dry=2.0, speed=0.1, **frames),
         np.zeros((6, 6)), np.block([[20.5 * z, o], [o, o]])),
        (mbd.Drag("d", "d", linear=0.4, quadratic=3.0, angular=0.1),
         np.zeros((6, 6)), np.diag([0.4, 0.4, 0.4, 0.1, 0.1, 0.1])),
        # A rest length without a direction: no force, and derivatives of the damper's neither.
        (mbd.Spring("r", "ground", "r", stiffness=3.0, damping=1.0, rest_length=0.5, **frames),
         np.block([[3 * np.eye(3), o], [o, o]]), np.zeros((6, 6))),
    ]  # fmt: skip

    # Each on a body of its own; all bodies are displaced and move in the same way.
    bodies = [mbd.Body(element.name, BOX) for element, _, _ in cases]
    elements = [element for element, _, _ in cases]
    mechanism = mbd.Mechanism(bodies, (), elements, gravity=[0, 0, 0])
    n, zero = len(cases), np.zeros(6)

    def force(dp, v):
        all_of_them = lambda x: jnp.tile(x[:, None], (1, n)).ravel()  # noqa: E731
        q = mechanism.coordinates.retract(mechanism.state().q, all_of_them(dp))
        return mechanism.force(TIME, q, all_of_them(v), None).reshape(6, n)

    @jax.jit
    def derivatives(*x):
        return jax.jacrev(lambda *x: (force(*x),) * 2, (0, 1), has_aux=True)(*x)

    found, at_rest = derivatives(zero, zero)
    np.testing.assert_allclose(at_rest, 0, atol=1e-15)
    for J, place in zip(found, (1, 2), strict=True):
        expected = np.stack([-case[place] for case in cases], axis=1)
        np.testing.assert_allclose(J, expected, atol=1e-12)


def test_mechanisms_with_functions_are_arrays_all_through(bodies):
    """So that they may be arguments of any JAX transformation."""
    mechanism = everything(bodies)
    assert all(eqx.is_inexact_array(x) for x in jax.tree.leaves(mechanism))
    assert float(mechanism.force_element("tether").function.pull) == 0.8


def test_twist_of_a_torsion_spring():
    """Against its definition: the turn left after the shortest one from axis to axis."""
    rng = np.random.default_rng(6)
    pairs = [[random_pose(rng), random_pose(rng)] for _ in range(5)]
    found = jax.jit(lambda pairs: [twist(*pair) for pair in pairs])(pairs)
    for pair, angle in zip(pairs, np.asarray(found), strict=True):
        A, B = (Rotation.from_quat(p.orientation, scalar_first=True) for p in pair)
        R = A.inv() * B
        e, tilted = np.array(Z), R.apply(Z)
        across = np.cross(e, tilted)
        swing = np.arctan2(np.linalg.norm(across), e @ tilted) * across / np.linalg.norm(across)
        expected = (Rotation.from_rotvec(-swing) * R).as_rotvec()
        np.testing.assert_allclose(expected[:2], 0.0, atol=1e-14)
        np.testing.assert_allclose(np.exp(1j * (angle - expected[2])), 1.0, atol=1e-13)


def test_torsion_spring_about_a_hinge_that_moves():
    """b turns about a hinge on the moving a: torque times joint rate, and nothing else."""
    rng = np.random.default_rng(1)
    a = random_body("a", rng)
    point, speed = rng.normal(size=3), 1.7
    (v, w), r = map(np.asarray, a.twist), point - np.asarray(a.pose.position)
    b = mbd.Body("b", BOX, position=point, velocity=v + np.cross(w, r),
                 angular_velocity=w + speed * np.array(AXIS), orientation=[0, 1, 0, 0])  # fmt: skip
    options = dict(point=point, axis=AXIS, stiffness=5.0, damping=0.3)
    # A rest angle within and one beyond half a turn, which is the same.
    springs = [
        mbd.TorsionSpring("t", a, b, rest_angle=0.2, **options),
        mbd.TorsionSpring("u", a, b, rest_angle=0.2 - 2 * np.pi, **options),
    ]
    mechanism = mbd.Mechanism([a, b], (), springs)
    state = mechanism.state()

    @jax.jit
    def values(state):
        powers = energy.powers(mechanism, state).values()
        stored = energy.stored_energies(mechanism, state).values()
        return [(entry.power, entry.lost, x) for entry, x in zip(powers, stored, strict=True)]

    power = (5.0 * 0.2 - 0.3 * speed) * speed
    expected = [power, 0.3 * speed**2, 2.5 * 0.2**2]
    np.testing.assert_allclose(values(state), [expected] * 2, rtol=1e-10)


def test_curvature_of_rotations():
    """The factor in the rate of the rotation vector x, (1 - x / 2 cot(x / 2)) / x^2, by x^2: its
    series joins the closed form."""
    at, step = np.array([0.1, 0.999, 1.001, 3.0, 0.5]) ** 2, 1e-3
    exact = lambda s: (1 - np.sqrt(s) / 2 / np.tan(np.sqrt(s) / 2)) / s  # noqa: E731
    both = jax.jit(jax.vmap(jax.value_and_grad(_curvature)))
    found, slope = jax.device_get(both(np.append(at, 0.0)))
    np.testing.assert_allclose(found, [*exact(at), 1 / 12], rtol=1e-12)
    difference = (exact(at + step) - exact(at - step)) / (2 * step)
    np.testing.assert_allclose(slope, [*difference, 1 / 720], rtol=1e-6)
