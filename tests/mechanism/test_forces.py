"""Forces on bodies against closed forms, power balances and the laws written out in NumPy."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd.mechanism import energy
from jaxmbd.mechanism.forces import AbstractForceElement
from jaxmbd.mechanism.relative import twist

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
X, Z = [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]
AXIS = [0.6, 0.0, 0.8]
UNIT = jnp.array([1.0, 0.0, 0.0, 0.0])
TIME = jnp.asarray(0.7)
CONTROL = jnp.array([9.0, -0.4, 1.5, 0.3])


def random_body(name, rng):
    p = rng.normal(size=4)
    return mbd.Body(
        name,
        BOX.moved([0.1, -0.2, 0.05]),
        position=rng.normal(size=3),
        orientation=p / np.linalg.norm(p),
        velocity=rng.normal(size=3),
        angular_velocity=rng.normal(size=3),
    )


def random_pose(rng, dtype=float):
    p = rng.normal(size=4)
    return mbd.Pose(jnp.asarray(rng.normal(size=3), dtype), jnp.asarray(p / np.linalg.norm(p)))


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
        back = mbd.cross(arms[0], to_b) + mbd.cross(arms[1], to_c) - drag
        return (to_b + to_c, back), (-to_b, drag), (-to_c, jnp.zeros_like(drag))


def quartic(x):
    return 7.0 * x**4 + x**3


def progressive(x, rate):
    return 2.0 * rate * jnp.abs(rate) + 0.3 * x * x * rate


ENDS = np.random.default_rng(2).normal(size=(3, 2, 3))

# Parameters of one element of every kind, between the bodies a, b, c of `internal` and `external`.
PARAMETERS = {
    "spring": dict(stiffness=30.0, damping=2.0, rest_length=0.4, points=ENDS[0]),
    "rich spring": dict(stiffness=3.0, damping=0.1, rest_length=1.0),
    "torsion": dict(stiffness=5.0, damping=0.3, rest_angle=0.2, axis=np.array(AXIS)),
    "rich torsion": dict(stiffness=1.0, damping=0.2, rest_angle=-0.3),
    "bushing": dict(
        stiffness=np.array([10.0, 20.0, 30.0, 1.0, 2.0, 4.0]),
        damping=np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        preload=np.array([1.0, -2.0, 3.0, 0.1, 0.2, -0.3]),
    ),
    "full bushing": dict(stiffness=definite(0), damping=definite(1), preload=np.ones(6)),
    "turning friction": dict(viscous=0.3, dry=1.7, speed=0.1),
    "sliding friction": dict(viscous=0.2, dry=0.7, speed=0.2, points=ENDS[1], axis=np.array(AXIS)),
    "motor": dict(gear=3.0),
    "actuator": dict(gear=-2.0),
    "tether": dict(pull=0.8),
    "drag": dict(linear=0.3, quadratic=0.2, angular=0.1, wind=np.array([0.5, -1.0, 2.0])),
    "push": dict(force_world=np.array([1.0, 2.0, 3.0]), force_body=np.array([-1.0, 0.5, 4.0]),
                 point=ENDS[2, 0]),
    "thrust": dict(gear=np.array([0.5, 0.1, -2.0])),
    "twist": dict(torque_world=np.array([0.3, 0.2, 0.1]), torque_body=np.array([1.0, -0.5, 0.4])),
}  # fmt: skip
PARAMETERS = jax.tree.map(jnp.asarray, PARAMETERS)
EXTERNAL = ("drag", "push", "thrust", "twist")


@pytest.fixture(scope="module")
def bodies():
    rng = np.random.default_rng(0)
    return [random_body(name, rng) for name in "abc"]


def internal(bodies, p):
    rng = np.random.default_rng(1)
    a, b, c = bodies
    points = iter(rng.normal(size=(5, 2, 3)))
    hinge = lambda: dict(point=rng.normal(size=3), axis=AXIS)  # noqa: E731
    frames = lambda: dict(frame_a=random_pose(rng), frame_b=random_pose(rng))  # noqa: E731
    return [
        mbd.Spring("spring", a, b, **p["spring"]),
        mbd.Spring("rich spring", c, b, points=next(points), **p["rich spring"],
                   potential=quartic, law=progressive, actuator=mbd.FromControl(3, gear=2.0)),
        mbd.TorsionSpring("torsion", b, c, point=rng.normal(size=3), **p["torsion"]),
        mbd.TorsionSpring("rich torsion", a, c, **hinge(), **p["rich torsion"],
                          potential=quartic, law=progressive, actuator=jnp.sin),
        mbd.Bushing("bushing", "a", "c", **frames(), **p["bushing"]),
        mbd.Bushing("full bushing", "b", "a", **frames(), **p["full bushing"]),
        mbd.TurningFriction("turning friction", c, a, **hinge(), **p["turning friction"]),
        mbd.SlidingFriction("sliding friction", a, b, **p["sliding friction"]),
        mbd.Motor("motor", a, b, **hinge(), index=1, **p["motor"]),
        mbd.LinearActuator("actuator", b, c, points=next(points), axis=AXIS, index=2,
                           **p["actuator"]),
        mbd.Force("tether", [a, "b", c], Tether(p["tether"]["pull"])),
    ]  # fmt: skip


def external(bodies, p):
    a, b, c = bodies
    return [
        mbd.Drag("drag", a, **p["drag"]),
        mbd.PointForce("push", b, **p["push"]),
        mbd.PointForce("thrust", c, force_body=mbd.FromControl(0, **p["thrust"])),
        mbd.Torque("twist", "a", **p["twist"]),
    ]


def everything(bodies, p=PARAMETERS):
    forces = internal(bodies, p) + external(bodies, p)
    assert {force.name for force in forces} == set(PARAMETERS)
    return mbd.Mechanism(bodies, (), forces, gravity=[0, 0, 0])


def quiet(bodies):
    return mbd.Mechanism(bodies, gravity=[0, 0, 0])


def world(body):
    """Pose as SciPy knows it."""
    p = np.asarray(body.pose.orientation)
    return np.asarray(body.pose.position), Rotation.from_quat(p, scalar_first=True)


def rate(function, mechanism):
    """d/dt function(q) along q' = N v."""
    state = mechanism.state()
    return jax.jvp(function, (state.q,), (mechanism.qdot(state.q, state.v),))[1]


@pytest.fixture(scope="module")
def table(bodies):
    """Power of each element, and the power of their generalised force."""

    @jax.jit
    def all_powers():
        mechanism = everything(bodies)
        state = mechanism.state()

        def force(forces):
            some = mbd.Mechanism(bodies, (), forces, gravity=[0, 0, 0])
            return some.force(TIME, state.q, state.v, CONTROL)

        rest = force([])
        found = energy.powers(mechanism, state.q, state.v, TIME, CONTROL)
        inside = force(internal(bodies, PARAMETERS)) - rest
        outside = force(external(bodies, PARAMETERS)) - rest
        return {"powers": found, "internal": inside, "external": outside}

    return all_powers()


# --- power and energy ---------------------------------------------------------------------------


def test_power_of_elements_is_that_of_their_generalised_force(bodies, table):
    powers = [entry.power for entry in table["powers"].values()]
    v = np.concatenate([np.concatenate(body.twist)[:, None] for body in bodies], axis=1).ravel()
    total = (table["internal"] + table["external"]) @ v
    np.testing.assert_allclose(sum(powers), total, rtol=1e-12)


def line(mechanism, element):
    """Length between the ends of an element and its rate."""

    def length(q):
        a, b = mechanism.frames(element, q)
        return jnp.linalg.norm(b.position - a.position)

    return length(mechanism.state().q), rate(length, mechanism)


def frame_motion(mechanism, name):
    """Positions, rotations, velocities and angular velocities of the frames of an element."""
    element, state = mechanism.force_element(name), mechanism.state()
    poses = mechanism.frames(element, state.q)
    twists = mechanism.frame_twists(element, state.q, state.v)
    r = [np.asarray(pose.position) for pose in poses]
    R = [Rotation.from_quat(np.asarray(p.orientation), scalar_first=True) for p in poses]
    v, omega = zip(*(map(np.asarray, twist) for twist in twists), strict=True)
    return r, R, v, omega


def subclasses(kind):
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


# Of every kind of force that has a potential energy: nothing that gives or takes besides.
CONSERVATIVE = {
    mbd.Spring: lambda a, b, frames: mbd.Spring(
        "f", a, b, stiffness=30.0, rest_length=0.4, potential=quartic, **frames
    ),
    mbd.TorsionSpring: lambda a, b, frames: mbd.TorsionSpring(
        "f", a, b, stiffness=5.0, rest_angle=0.2, potential=quartic, **frames
    ),
    mbd.Bushing: lambda a, b, frames: mbd.Bushing(
        "f", a, b, stiffness=definite(0), preload=np.arange(6.0), **frames
    ),
}


def potentials():
    return {
        kind
        for kind in subclasses(AbstractForceElement)
        if kind.energy is not AbstractForceElement.energy and kind.__module__.startswith("jaxmbd.")
    }


@pytest.mark.parametrize(
    "kind",
    [*sorted(potentials(), key=lambda k: k.__name__), None],
    ids=lambda k: k.__name__ if k else "weight",
)
def test_forces_with_a_potential_are_its_gradient(bodies, kind):
    """dV/dt + f . v = 0 for two free bodies, at any poses and any velocities."""
    rng = np.random.default_rng(4)
    a, b, _ = bodies
    frames = dict(frame_a=random_pose(rng), frame_b=random_pose(rng))
    forces = [CONSERVATIVE[kind](a, b, frames)] if kind else []
    mechanism = mbd.Mechanism([a, b], (), forces, gravity=np.zeros(3) if kind else [0.3, 1, -9.0])

    @jax.jit
    @jax.vmap
    def powers(q, v):
        def potential(q):
            still = jnp.zeros_like(v)
            return energy.total_energy(mechanism, q, still)

        _, rate = jax.jvp(potential, (q,), (mechanism.qdot(q, v),))
        bias = mechanism.inertial_force(q, v) - mechanism.inertial_force(q, jnp.zeros_like(v))
        return rate, (mechanism.force(0.0, q, v, None) - bias) @ v

    n = 50
    p = rng.normal(size=(n, 4, 2))
    p /= np.linalg.norm(p, axis=1, keepdims=True)
    q = np.concatenate([rng.normal(size=(n, 3, 2)), p], axis=1).reshape(n, -1)
    rate, power = powers(q, rng.normal(size=(n, 12)))
    assert np.min(np.abs(power)) > 0
    scale = np.max(np.abs(power))
    np.testing.assert_allclose(power, -rate, rtol=1e-10, atol=1e-12 * scale)


def test_twist_of_a_torsion_spring():
    """Against its definition: the turn left after the shortest one from axis to axis."""
    rng = np.random.default_rng(6)
    for _ in range(5):
        pose_a, pose_b = random_pose(rng), random_pose(rng)
        A, B = (Rotation.from_quat(np.asarray(p.orientation), scalar_first=True)
                for p in (pose_a, pose_b))  # fmt: skip
        R = A.inv() * B
        e, tilted = np.array(Z), R.apply(Z)
        across = np.cross(e, tilted)
        angle = np.arctan2(np.linalg.norm(across), e @ tilted)
        swing = Rotation.from_rotvec(angle * across / np.linalg.norm(across))
        expected = (swing.inv() * R).as_rotvec()
        np.testing.assert_allclose(expected[:2], 0.0, atol=1e-14)
        found = twist(pose_a, pose_b)
        np.testing.assert_allclose(np.sin(found - expected[2]), 0.0, atol=1e-13)
        np.testing.assert_allclose(np.cos(found - expected[2]), 1.0, rtol=1e-13)


def test_torsion_spring_between_axes_that_tilt_makes_no_energy():
    """A heavy body on a ball joint, its axis a radian and more from that of the spring. A torque
    about one axis alone would give it up to 100 J."""
    spin, center = np.array([3.0, -4.0, 6.0]), np.array([0.1, 0.0, -0.4])
    box = mbd.Inertia.box(size=[0.2, 0.3, 0.8], mass=4.0)
    motion = dict(velocity=np.cross(spin, center), angular_velocity=spin)
    body = mbd.Body("body", box, position=center, **motion)
    tilted = mbd.Pose(jnp.asarray(-center), jnp.array([np.cos(0.25), np.sin(0.25), 0.0, 0.0]))
    frames = dict(frame_a=mbd.Pose.identity(jnp.float64), frame_b=tilted)
    spring = mbd.TorsionSpring("spring", "ground", body, stiffness=200.0, rest_angle=0.4, **frames)
    ball = mbd.Spherical("ball", "ground", body, point=[0, 0, 0])
    mechanism = mbd.Mechanism([body], [ball], [spring])
    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        mechanism.state(),
        t1=3.0,
        dt=1e-3,
        saveat=diffrax.SaveAt(t0=True, steps=10),
    )

    @jax.jit
    @jax.vmap
    def seen(t, q, v):
        a, b = mechanism.frames(spring, q)
        axis = jnp.array([0.0, 0.0, 1.0])
        total = mechanism.mechanical_energy(t, q, v)
        return total, spring.energy((a, b), t), a.direction(axis) @ b.direction(axis)

    total, stored, cosine = seen(sol.t, sol.q, sol.v)
    assert np.max(stored) > 20.0 and np.min(cosine) < 0.0
    np.testing.assert_allclose(total, total[0], atol=2e-4)  # the error of RK4


def test_energy_and_losses_of_springs(bodies, table):
    """The power is what the energy loses and the damper takes, less what the actuator gives."""
    mechanism = everything(bodies)
    stored = energy.stored_energies(mechanism, mechanism.state().q)
    length, speed = line(mechanism, mechanism.force_element("spring"))
    np.testing.assert_allclose(stored["spring"], 15.0 * (length - 0.4) ** 2, rtol=1e-12)
    np.testing.assert_allclose(table["powers"]["spring"].lost, 2.0 * speed**2, rtol=1e-10)

    length, speed = line(mechanism, mechanism.force_element("rich spring"))
    x = length - 1.0
    np.testing.assert_allclose(stored["rich spring"], 1.5 * x**2 + 7 * x**4 + x**3, rtol=1e-12)
    lost = (0.1 * speed + progressive(x, speed) - 2.0 * CONTROL[3]) * speed
    np.testing.assert_allclose(table["powers"]["rich spring"].lost, lost, rtol=1e-10)
    # Springs that have no energy to lose.
    for name in ("push", "motor", "turning friction"):
        assert stored[name] == 0


@pytest.mark.parametrize("name", ["bushing", "full bushing"])
def test_energy_and_losses_of_bushings(bodies, table, name):
    """For large rotations, with the rotation vector as SciPy has it, and its rate by differences
    along the motion."""
    mechanism = everything(bodies)
    (ra, rb), (Ra, Rb), (va, vb), (wa, wb) = frame_motion(mechanism, name)

    def deflection(h):
        Ah, Bh = Rotation.from_rotvec(h * wa) * Ra, Rotation.from_rotvec(h * wb) * Rb
        d = Ah.inv().apply(rb + h * vb - ra - h * va)
        return np.concatenate([d, (Ah.inv() * Bh).as_rotvec()])

    p = jax.tree.map(np.asarray, PARAMETERS[name])
    K, C = (np.diag(A) if A.ndim == 1 else A for A in (p["stiffness"], p["damping"]))
    x, h = deflection(0.0), 1e-4
    assert 1.0 < np.linalg.norm(x[3:]) < 3.0
    steps = [deflection(k * h) for k in (-2, -1, 1, 2)]
    speed = (8 * (steps[2] - steps[1]) - (steps[3] - steps[0])) / (12 * h)
    element = mechanism.force_element(name)
    stored = element.energy(mechanism.frames(element, mechanism.state().q), TIME)
    np.testing.assert_allclose(stored, x @ K @ x / 2 - p["preload"] @ x, rtol=1e-12)
    entry = table["powers"][name]
    np.testing.assert_allclose(entry.power, speed @ (p["preload"] - K @ x - C @ speed), rtol=1e-9)
    np.testing.assert_allclose(entry.lost, speed @ C @ speed, rtol=1e-9)


def test_losses_of_friction(bodies, table):
    mechanism = everything(bodies)
    (ra, rb), (Ra, _), (va, vb), (wa, wb) = frame_motion(mechanism, "turning friction")
    w = Ra.apply(Z) @ (wb - wa)
    found = table["powers"]["turning friction"].lost
    np.testing.assert_allclose(found, 0.3 * w**2 + 1.7 * w**2 / np.hypot(w, 0.1), rtol=1e-12)

    # The velocity of b as seen from a, which turns.
    (ra, rb), (Ra, _), (va, vb), (wa, wb) = frame_motion(mechanism, "sliding friction")
    w = Ra.apply(Z) @ (vb - va - np.cross(wa, rb - ra))
    found = table["powers"]["sliding friction"].lost
    np.testing.assert_allclose(found, 0.2 * w**2 + 0.7 * w**2 / np.hypot(w, 0.2), rtol=1e-12)


def test_power_of_actuators(bodies, table):
    mechanism = everything(bodies)
    _, (Ra, _), _, (wa, wb) = frame_motion(mechanism, "motor")
    expected = 3.0 * -0.4 * Ra.apply(Z) @ (wb - wa)
    np.testing.assert_allclose(table["powers"]["motor"].power, expected, rtol=1e-12)
    (ra, rb), (Ra, _), (va, vb), (wa, wb) = frame_motion(mechanism, "actuator")
    expected = -2.0 * 1.5 * Ra.apply(Z) @ (vb - va - np.cross(wa, rb - ra))
    np.testing.assert_allclose(table["powers"]["actuator"].power, expected, rtol=1e-12)


def test_drag_and_loads(bodies, table):
    """Wrenches about the origins of the bodies, from laws and levers."""
    p = jax.tree.map(np.array, PARAMETERS)
    expected = np.zeros((3, 6))
    a, b, c = bodies

    w = np.asarray(a.twist.at(a.pose.direction(a.inertia.center))) - p["drag"]["wind"]
    F = -(0.3 + 0.2 * np.linalg.norm(w)) * w
    arm = np.asarray(a.pose.direction(a.inertia.center))
    expected[0] = np.concatenate([F, np.cross(arm, F) - 0.1 * np.asarray(a.twist.angular)])
    Ra, Rb, Rc = (world(body)[1] for body in bodies)
    expected[0, 3:] += p["twist"]["torque_world"] + Ra.apply(p["twist"]["torque_body"])

    F = p["push"]["force_world"] + Rb.apply(p["push"]["force_body"])
    arm = p["push"]["point"] - np.asarray(b.pose.position)
    expected[1] = np.concatenate([F, np.cross(arm, F)])
    expected[2, :3] = Rc.apply(p["thrust"]["gear"] * 9.0)

    found = table["external"]
    np.testing.assert_allclose(found.reshape(6, 3).T, expected, rtol=1e-11, atol=1e-12)


def test_internal_forces_change_no_momentum(bodies, table):
    F, T = np.asarray(table["internal"]).reshape(2, 3, 3)
    r = np.stack([body.pose.position for body in bodies], axis=1)
    size = np.abs(F).max()
    np.testing.assert_allclose(F.sum(axis=1), 0, atol=1e-13 * size)
    np.testing.assert_allclose((T + np.cross(r, F, axis=0)).sum(axis=1), 0, atol=1e-13 * size)


def test_springs_in_parallel():
    """Of one kind, evaluated together, between different bodies and on the ground: each has the
    power that its own length and rate say."""
    rng = np.random.default_rng(0)
    a, b = (random_body(name, rng) for name in "ab")
    ends = rng.normal(size=(3, 2, 3))
    data = [(30.0, 2.0, 0.4), (50.0, 0.0, 1.0), (0.0, 3.0, 0.1)]
    springs = [
        mbd.Spring(f"spring {i}", *pair, points=points, stiffness=k, damping=c, rest_length=rest)
        for i, (pair, points, (k, c, rest)) in enumerate(
            zip([(a, b), ("ground", a), (b, a)], ends, data, strict=True)
        )
    ]
    mechanism = mbd.Mechanism([a, b], (), springs, gravity=[0, 0, 0])
    state = mechanism.state()
    force = jax.jit(lambda q, v: mechanism.force(TIME, q, v, None))(state.q, state.v)
    expected = 0.0
    for spring, (k, c, rest) in zip(mechanism.forces, data, strict=True):
        length, speed = line(mechanism, spring)
        expected -= k * (length - rest) * speed + c * speed**2
    power = (force - quiet([a, b]).force(TIME, state.q, state.v, None)) @ state.v
    np.testing.assert_allclose(power, expected, rtol=1e-12)


def test_torsion_spring_about_a_hinge_that_moves():
    """b turns about a hinge on the moving a: torque times joint rate, and nothing else."""
    rng = np.random.default_rng(1)
    a = random_body("a", rng)
    point, speed = rng.normal(size=3), 1.7
    b = mbd.Body(
        "b",
        BOX,
        position=point,
        velocity=a.twist.at(point - a.pose.position),
        angular_velocity=a.twist.angular + speed * jnp.asarray(AXIS),
        orientation=[0, 1, 0, 0],
    )
    options = dict(point=point, axis=AXIS, stiffness=5.0, damping=0.3)
    # A rest angle within and one beyond half a turn, which is the same.
    springs = [
        mbd.TorsionSpring("t", a, b, rest_angle=0.2, **options),
        mbd.TorsionSpring("u", a, b, rest_angle=0.2 - 2 * np.pi, **options),
    ]
    mechanism = mbd.Mechanism([a, b], (), springs)
    state = mechanism.state()
    for entry in energy.powers(mechanism, state.q, state.v).values():
        np.testing.assert_allclose(entry.power, (5.0 * 0.2 - 0.3 * speed) * speed, rtol=1e-12)
        np.testing.assert_allclose(entry.lost, 0.3 * speed**2, rtol=1e-10)
    stored = energy.stored_energies(mechanism, state.q)
    np.testing.assert_allclose(list(stored.values()), 2.5 * 0.2**2, rtol=1e-12)


def test_energies_of_bodies(bodies):
    g = jnp.array([0.3, -9.0, 2.0])
    mechanism = mbd.Mechanism(bodies, (), internal(bodies, PARAMETERS)[:1], gravity=g)
    state = mechanism.state()
    kinetic = energy.kinetic_energies(mechanism, state.q, state.v)
    potential = energy.gravitational_energies(mechanism, state.q)
    for body in bodies:
        expected = body.kinetic_energy(body.pose, body.twist)
        np.testing.assert_allclose(kinetic[body.name], expected, rtol=1e-12)
        height = -g @ body.pose.point(body.inertia.center)
        np.testing.assert_allclose(potential[body.name], 1.3 * height, rtol=1e-12)
    stored = energy.stored_energies(mechanism, state.q)
    total = energy.total_energy(mechanism, state.q, state.v)
    parts = (*kinetic.values(), *potential.values(), *stored.values())
    np.testing.assert_allclose(total, sum(parts), rtol=1e-12)


# --- derivatives --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def derivatives(bodies):
    """Of the generalised force of all elements, weighted, with respect to all parameters: reverse,
    forward, and by differences."""
    weights = jnp.asarray(np.random.default_rng(4).normal(size=18))
    state = quiet(bodies).state()

    def value(parameters):
        force = everything(bodies, parameters).force(TIME, state.q, state.v, CONTROL)
        return weights @ force

    flat, unravel = jax.flatten_util.ravel_pytree(PARAMETERS)
    one = lambda p: value(unravel(p))  # noqa: E731
    reverse = jax.jit(jax.grad(one))(flat)
    forward = jax.jit(lambda p, d: jax.jvp(one, (p,), (d,))[1])
    directions = np.eye(len(flat))
    # All unit directions in one batch; most laws are linear in their parameters.
    forwards = jax.jit(jax.vmap(forward, in_axes=(None, 0)))(flat, directions)
    h = 1e-4
    batch = jax.jit(jax.vmap(one))
    shifted = [batch(np.asarray(flat) + s * h * directions) for s in (-1, 1)]
    differences = (shifted[1] - shifted[0]) / (2 * h)
    return [unravel(jnp.asarray(x)) for x in (reverse, forwards, differences)]


@pytest.mark.parametrize("name", PARAMETERS)
def test_derivatives(derivatives, name):
    reverse, forward, difference = (tree[name] for tree in derivatives)
    for key in PARAMETERS[name]:
        assert np.any(np.abs(difference[key]) > 1e-4)
        # Second differences of the friction in its speed are of the order h^2 / speed^2.
        np.testing.assert_allclose(reverse[key], difference[key], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(forward[key], reverse[key], rtol=1e-11, atol=1e-12)


# --- degenerate points --------------------------------------------------------------------------


@pytest.mark.slow
def test_derivatives_where_laws_have_no_direction():
    """Coincident ends, no deflection, no rate: derivatives by pose and velocity are the linear
    stiffness and damping, wherever the law is smooth there, and finite."""
    K, C = definite(2), definite(3)
    frames = dict(frame_a=mbd.Pose(jnp.zeros(3), UNIT), frame_b=mbd.Pose(jnp.zeros(3), UNIT))
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
    n, zero = len(cases), jnp.zeros(6)

    def force(dp, v):
        all_of_them = lambda x: jnp.tile(x[:, None], (1, n)).ravel()  # noqa: E731
        q = mechanism.coordinates.retract(mechanism.state().q, all_of_them(dp))
        return mechanism.force(TIME, q, all_of_them(v), None).reshape(6, n)

    weights = np.random.default_rng(5).normal(size=(6, n))
    at_rest, forward = jax.jit(jax.jacfwd(lambda *x: (force(*x),) * 2, (0, 1), has_aux=True))(
        zero, zero
    )[::-1]
    reverse = jax.jit(jax.grad(lambda *x: jnp.sum(weights * force(*x)), (0, 1)))(zero, zero)
    np.testing.assert_allclose(at_rest, 0, atol=1e-15)
    for found, backwards, place in zip(forward, reverse, (1, 2), strict=True):
        expected = np.stack([-case[place] for case in cases], axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_allclose(backwards, np.tensordot(weights, expected), atol=1e-12)


def test_bushing_turned_far():
    """With equal stiffness about all axes its torque is that times the angle, about the axis of the
    rotation; the action on the ground at the same point is the opposite."""
    angle, axis = 2.8, np.array([2.0, -1.0, 2.0]) / 3
    p = np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * axis])
    body = mbd.Body("b", BOX, orientation=p, position=[0.1, 0.2, 0.3])
    frames = dict(frame_a=mbd.Pose(jnp.zeros(3), UNIT), frame_b=mbd.Pose(jnp.zeros(3), UNIT))
    bushing = mbd.Bushing("k", "ground", "b", stiffness=[5.0] * 3 + [2.0] * 3, **frames)
    still = mbd.Twist(jnp.zeros(3), jnp.zeros(3))
    on_a, on_b = bushing.wrenches((frames["frame_a"], body.pose), (still, still), TIME, None)
    force = -5.0 * np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(on_b.torque, -2.0 * angle * axis, rtol=1e-12)
    np.testing.assert_allclose(on_b.force, force, rtol=1e-12)
    np.testing.assert_allclose(on_a.force, -force, rtol=1e-12)
    # The force of b at 0.1, 0.2, 0.3 is parallel to the arm here.
    np.testing.assert_allclose(on_a.torque, 2.0 * angle * axis, rtol=1e-12)


def test_curvature_of_rotations():
    """The factor in the rate of the rotation vector: its series joins the closed form, and G
    inverts the matrix of exponential coordinates, whose own series converges everywhere."""
    from jaxmbd.mechanism.forces.bushing import _curvature

    for angle in (0.1, 0.999, 1.001, 3.0):
        phi = angle * np.array([1.0, 2.0, -2.0]) / 3
        S = np.asarray(mbd.skew(jnp.asarray(phi)))
        term, left = np.eye(3), np.eye(3)
        for k in range(2, 40):
            term = term @ S / k
            left = left + term
        c = float(_curvature(jnp.asarray(angle**2)))
        np.testing.assert_allclose((np.eye(3) - S / 2 + c * S @ S) @ left, np.eye(3), atol=1e-14)
    s, step = jnp.asarray(0.5), 1e-4
    difference = (_curvature(s + step) - _curvature(s - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(_curvature)(s), difference, rtol=1e-8)
    np.testing.assert_allclose(jax.grad(_curvature)(jnp.zeros(())), 1 / 720, rtol=1e-14)


# --- motions in closed form -----------------------------------------------------------------------


@pytest.mark.slow
def test_motions():
    """Bodies in one run: a damped oscillation, falls with linear and quadratic drag, and sliders
    that dry friction stops."""
    m, g, t1 = 1.3, 9.81, 1.0
    k, c, length, z0 = 40.0, 0.8, 0.5, 0.1
    hang = -(length + m * g / k)
    c1, c2 = 2.0, 3.0
    dry, slow, v0 = 2.6, 0.01, 1.5
    bodies = [
        mbd.Body("mass", BOX, position=[0, 0, hang + z0]),
        mbd.Body("linear", BOX, position=[1, 0, 0]),
        mbd.Body("quadratic", BOX, position=[2, 0, 0]),
        mbd.Body("slider", BOX, position=[3, 0, 0], velocity=[v0, 0, 0]),
        mbd.Body("creeper", BOX, position=[4, 0, 0], velocity=[v0, 0, 0]),
    ]
    forces = [
        mbd.Spring("spring", "ground", "mass", stiffness=k, damping=c, rest_length=length,
                   frame_a=mbd.Pose(jnp.zeros(3), UNIT), frame_b=mbd.Pose(jnp.zeros(3), UNIT)),
        mbd.Drag("light", bodies[1], linear=c1),
        mbd.Drag("heavy", bodies[2], quadratic=c2),
        mbd.SlidingFriction("rub", "ground", bodies[3], point=[3, 0, 0], axis=X, dry=dry,
                            speed=slow),
        mbd.SlidingFriction("creep", "ground", bodies[4], point=[4, 0, 0], axis=X, dry=dry,
                            speed=10 * slow),
    ]  # fmt: skip
    mechanism = mbd.Mechanism(bodies, (), forces)
    sol = mbd.simulate(
        mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=t1, dt=1e-3, scheme=mbd.RK4()
    )
    end = {body.name: mechanism.pose(sol.q[-1], body.name).position for body in bodies}
    speed = {body.name: mechanism.twist(sol.v[-1], body.name).linear for body in bodies}

    # m z'' = -k z - c z' about the position of rest
    delta, omega = c / (2 * m), np.sqrt(k / m - (c / (2 * m)) ** 2)
    z = z0 * np.exp(-delta) * (np.cos(omega) + delta / omega * np.sin(omega))
    np.testing.assert_allclose(end["mass"], [0, 0, hang + z], atol=1e-10)

    final = m * g / c1
    np.testing.assert_allclose(speed["linear"][2], -final * (1 - np.exp(-t1 * c1 / m)), rtol=1e-10)
    final = np.sqrt(m * g / c2)
    np.testing.assert_allclose(speed["quadratic"][2], -final * np.tanh(g * t1 / final), rtol=1e-10)

    # m v' = -dry v / sqrt(v^2 + s^2) has the integral H(v) + dry t / m = H(v0).
    def H(v, s=10 * slow):
        return np.hypot(v, s) - s * np.arcsinh(s / v)

    np.testing.assert_allclose(H(float(speed["creeper"][0])) + dry * t1 / m, H(v0), rtol=1e-9)
    # Coulomb's law stops it after m v0 / dry = 0.75 s and m v0^2 / (2 dry), up to the creep.
    assert abs(speed["slider"][0]) < 1e-6 * v0
    np.testing.assert_allclose(end["slider"][0] - 3, m * v0**2 / (2 * dry), rtol=1.5 * slow / v0)


# --- signals ------------------------------------------------------------------------------------


class Ramp(mbd.AbstractSignal):
    slope: jax.Array

    def __call__(self, t, u):
        return self.slope * t * u[1]


def load_of(element, u=CONTROL, t=TIME, turned=(0.0, 1.0, 0.0, 0.0)):
    pose = mbd.Pose(jnp.zeros(3), jnp.asarray(turned))
    (wrench,) = element.wrenches((pose,), (mbd.Twist(jnp.zeros(3), jnp.zeros(3)),), t, u)
    return wrench.force


@pytest.mark.parametrize(
    "force, value",
    [
        ([1.0, 2.0, 3.0], [1, 2, 3]),
        (lambda t: jnp.stack([t, 2 * t, 0 * t]), [0.7, 1.4, 0]),
        (mbd.FromControl(2, gear=[1.0, 0.0, 2.0]), [1.5, 0, 3]),
        (mbd.FromControl((3, 0, 1), gear=2.0), [0.6, 18, -0.8]),
        (Ramp(jnp.ones(3)), [-0.28] * 3),
    ],
    ids=["constant", "time", "entry", "entries", "own"],
)
def test_signals(force, value):
    """In world axes, and in those of a body turned by half a turn about x."""
    load = mbd.PointForce("f", "b", force_world=force)
    np.testing.assert_allclose(load_of(load), value, rtol=1e-12)
    load = mbd.PointForce("f", "b", force_body=force)
    np.testing.assert_allclose(load_of(load), np.array(value) * [1, -1, -1], rtol=1e-12)


def test_a_scalar_control_is_one_entry():
    load = mbd.PointForce("f", "b", force_world=mbd.FromControl(0, gear=[1.0, 0.0, 0.0]))
    np.testing.assert_allclose(load_of(load, u=jnp.asarray(4.0)), [4, 0, 0])


def test_mechanisms_with_functions_are_arrays_all_through(bodies):
    """So that they may be arguments of any JAX transformation."""
    mechanism = everything(bodies)
    assert all(eqx.is_inexact_array(x) for x in jax.tree.leaves(mechanism))
    assert everything(bodies).force_element("tether").function.pull == 0.8


def test_float32():
    """Bodies in single precision have forces in single precision, whatever time and control are."""
    body = mbd.Body("b", mbd.Inertia.sphere(radius=np.float32(0.1), mass=1.0))
    forces = [
        mbd.Spring("s", "ground", body, points=[X, Z], stiffness=1.0, rest_length=0.1,
                   law=lambda x, rate: x**2, potential=lambda x: x**4, actuator=jnp.sin),
        mbd.PointForce("p", body, force_world=mbd.FromControl((0, 1, 2)), force_body=X),
        mbd.Bushing("k", "ground", body, point=X, stiffness=np.ones(6)),
        mbd.SlidingFriction("g", "ground", body, point=X, axis=Z, dry=1.0),
        mbd.Drag("d", body, quadratic=1.0, wind=lambda t: jnp.stack([t, t, t])),
    ]  # fmt: skip
    mechanism = mbd.Mechanism([body], (), forces)
    state = mechanism.state()
    found = jax.eval_shape(lambda u: mechanism.force(TIME, state.q, state.v, u), CONTROL)
    assert found.dtype == state.q.dtype == jnp.float32


# --- errors -------------------------------------------------------------------------------------


AT = dict(point=[0, 0, 0])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda b: mbd.Spring("s", "ground", b, points=[X, Z], stiffness=-1.0, rest_length=0.1),
         '`stiffness` of Spring "s" must be finite and not negative, but is -1.0'),
        (lambda b: mbd.Spring("s", "ground", b, points=[X, Z], stiffness=np.nan, rest_length=0.1),
         '`stiffness` of Spring "s" must be finite'),
        (lambda b: mbd.Spring("s", "ground", b, points=[X, Z], damping=-1.0, rest_length=0.1),
         '`damping` of Spring "s" must be finite and not negative'),
        (lambda b: mbd.Spring("s", "ground", b, points=[X, Z], rest_length=-0.1),
         '`rest_length` of Spring "s" must be finite and not negative'),
        (lambda b: mbd.TorsionSpring("t", "ground", b, **AT, axis=Z, stiffness=[1.0, 2.0]),
         r'`stiffness` of TorsionSpring "t" must have shape \(\), but has \(2,\)'),
        (lambda b: mbd.Bushing("k", "ground", b, **AT, stiffness=[1.0] * 5),
         r'`stiffness` of Bushing "k" must have shape \(6,\)'),
        (lambda b: mbd.Bushing("k", "ground", b, **AT, stiffness=-np.eye(6)),
         "must be a symmetric, positive semidefinite matrix"),
        (lambda b: mbd.Bushing("k", "ground", b, **AT, stiffness=np.tri(6)),
         "must be a symmetric, positive semidefinite matrix"),
        (lambda b: mbd.TurningFriction("f", "ground", b, **AT, axis=Z, dry=-1.0),
         '`dry` of TurningFriction "f" must be finite and not negative'),
        (lambda b: mbd.SlidingFriction("f", "ground", b, **AT, axis=Z, dry=1.0, speed=0.0),
         '`speed` of SlidingFriction "f" must be positive'),
        (lambda b: mbd.Drag("d", b, quadratic=-1.0), '`quadratic` of Drag "d"'),
        (lambda b: mbd.Motor("m", "ground", b, **AT, axis=Z, index=-1),
         '`index` of Motor "m" must be a whole number, at least 0'),
        (lambda b: mbd.Motor("m", "ground", b, **AT, axis=Z, gear=np.inf), '`gear` of Motor "m"'),
        (lambda b: mbd.FromControl((0, -1)), "`index` of FromControl"),
        (lambda b: mbd.FromControl(()), "`index` of FromControl"),
        (lambda b: mbd.PointForce("p", b), 'PointForce "p" needs `force_world` or `force_body`'),
        (lambda b: mbd.PointForce("p", b, force_world=[1.0, 2.0]),
         r'`force_world` of PointForce "p" must have shape \(3,\), but has \(2,\)'),
        (lambda b: mbd.PointForce("p", "b", force_world=X, point=X), "give the `Body` instead of"),
        (lambda b: mbd.PointForce("p", "ground", force_world=X), "must act on a body"),
        (lambda b: mbd.Torque("t", b), 'Torque "t" needs `torque_world` or `torque_body`'),
        (lambda b: mbd.Force("f", [], Tether(jnp.ones(()))), 'Force "f" needs a body that can'),
        (lambda b: mbd.Force("f", [b, "ground"], abs, frames=[b.pose]), "has 1 `frames`"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(mbd.Body("b", BOX))


@pytest.mark.parametrize(
    "make, u, message",
    [
        # JAX would read the last entry instead.
        (lambda b: mbd.Motor("m", "ground", b, **AT, axis=Z, index=2), np.ones(2),
         r'Motor "m" reads entry 2 of the control.*at least 3 entries.*shape \(2,\)'),
        (lambda b: mbd.Motor("m", "ground", b, **AT, axis=Z, index=1), 1.0, 'Motor "m" reads'),
        (lambda b: mbd.Motor("m", "ground", b, **AT, axis=Z), np.ones((2, 2)), 'Motor "m" reads'),
        (lambda b: mbd.Motor("m", "ground", b, **AT, axis=Z), None, 'Motor "m" needs a control'),
        (lambda b: mbd.LinearActuator("l", "ground", b, **AT, axis=Z, index=3), np.ones(3),
         'LinearActuator "l" reads entry 3'),
        (lambda b: mbd.Torque("t", b, torque_body=mbd.FromControl((0, 1, 5))), np.ones(3),
         '`torque_body` of Torque "t" reads entry 5'),
        (lambda b: mbd.Torque("t", b, torque_body=mbd.FromControl(0)), np.ones(3),
         r'`torque_body` of Torque "t" must have shape \(3,\), but its value has \(\)'),
        (lambda b: mbd.Spring("s", "ground", b, points=[X, Z], rest_length=1.0,
                              actuator=mbd.FromControl(4)), np.ones(3),
         '`actuator` of Spring "s" reads entry 4'),
        (lambda b: mbd.PointForce("p", b, force_world=lambda t: t), None,
         r'`force_world` of PointForce "p" must have shape \(3,\), but its value has'),
        (lambda b: mbd.Force("f", [b], lambda poses, twists, t, u: poses[0].position), None,
         'The function of Force "f" must return a force and a torque'),
        (lambda b: mbd.Force("f", [b, "ground"], lambda poses, twists, t, u: [(poses[0].position,
                                                                               jnp.zeros(3))]),
         None, 'The function of Force "f" must return a force and a torque'),
    ],
)  # fmt: skip
def test_bad_input_found_while_tracing(make, u, message):
    body = mbd.Body("b", BOX)
    mechanism = mbd.Mechanism([body], (), [make(body)])
    state = mechanism.state()
    u = None if u is None else jnp.asarray(u)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda u: mechanism.force(TIME, state.q, state.v, u), u)


def test_unknown_body_of_a_force():
    with pytest.raises(ValueError, match='Drag "d" connects the body "x"'):
        mbd.Mechanism([mbd.Body("b", BOX)], (), [mbd.Drag("d", "x", linear=1.0)])


def test_friction_of_a_joint():
    body = mbd.Body("b", BOX)
    joint = mbd.Revolute("hinge", "ground", body, **AT, axis=AXIS)
    friction = mbd.TurningFriction.of(joint, dry=2.0)
    assert (friction.name, friction.bodies) == ("hinge", ("ground", "b"))
    assert eqx.tree_equal(friction.frames, (joint.frame_a, joint.frame_b))
    assert mbd.SlidingFriction.of(joint, "other", viscous=2.0).name == "other"
