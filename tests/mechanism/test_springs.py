"""Torsion springs, springs in parallel, and bushings at large turns, against closed forms."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from force_cases import AXIS, BOX, TIME, UNIT, Z, line, quiet, random_body, random_pose
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd.mechanism import energy
from jaxmbd.mechanism.relative import twist


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


def test_spring_that_is_only_an_actuator_and_a_damper():
    """Without a rest length, the force of 3 u - c l' along the line pushes the ends apart: by
    vectors."""
    rng = np.random.default_rng(3)
    bodies = [random_body(name, rng) for name in "ab"]
    ends = rng.normal(size=(2, 3))
    options = dict(points=ends, damping=0.7, actuator=mbd.FromControl(0, gear=3.0))
    cylinder = mbd.Spring("cylinder", *bodies, **options)
    mechanism = mbd.Mechanism(bodies, (), [cylinder], gravity=np.zeros(3))
    state, u = mechanism.state(), jnp.array([5.0])
    found = mechanism.external_force(0.0, state.q, state.v, u)
    line = ends[1] - ends[0]
    line = line / np.linalg.norm(line)
    origins, speeds = [], []
    for body, end in zip(bodies, ends, strict=True):
        origins.append(np.asarray(body.pose.position))
        turn = np.cross(body.twist.angular, end - origins[-1])
        speeds.append(np.asarray(body.twist.linear) + turn)
    push = 3.0 * 5.0 - 0.7 * line @ (speeds[1] - speeds[0])
    for name, sign, end, origin in zip("ab", (-1, 1), ends, origins, strict=True):
        force = sign * push * line
        own = mechanism.indices(name)
        np.testing.assert_allclose(found[own.linear], force, rtol=1e-12)
        np.testing.assert_allclose(found[own.angular], np.cross(end - origin, force), atol=1e-12)


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
        S = np.asarray(mbd.rotations.skew(jnp.asarray(phi)))
        term, left = np.eye(3), np.eye(3)
        for k in range(2, 40):
            term = term @ S / k
            left = left + term
        c = float(_curvature(jnp.asarray(angle**2)))
        np.testing.assert_allclose((np.eye(3) - S / 2 + c * S @ S) @ left, np.eye(3), atol=1e-14)
    s, step = jnp.asarray(0.5), 1e-4
    difference = (_curvature(s + step) - _curvature(s - step)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.grad(_curvature))(s), difference, rtol=1e-8)
    np.testing.assert_allclose(jax.jit(jax.grad(_curvature))(jnp.zeros(())), 1 / 720, rtol=1e-14)
