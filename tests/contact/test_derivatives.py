"""Derivatives of motions of many contacts by friction, mass, size and speed at the start, in both
modes, against differences, where the sparse solver takes every step."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._contact import rows

UPRIGHT, FLOOR = np.array([1.0, 0.0, 0.0, 0.0]), ("ground", mbd.HalfSpace())


def pile(friction, mass, size, speed):
    """Eight balls in two layers, one of them of another mass, that fall and strike each other."""
    rng, R = np.random.default_rng(0), 0.1 * size
    speeds = 0.3 * rng.normal(size=(8, 3)) - [0.0, 0.0, 0.5]
    bodies = []
    for i in range(8):
        z, y, x = np.array(np.unravel_index(i, (2, 2, 2)))
        place = size * np.array([0.202 * x, 0.202 * y, 0.1001 + 0.2002 * z])
        inertia = mbd.Inertia.sphere(radius=R, mass=1.0 if i else mass)
        bodies.append(mbd.Body(f"{i}", inertia, position=place, velocity=speed * speeds[i]))
    pieces = [FLOOR, *((body, mbd.Sphere(R)) for body in bodies)]
    near = mbd.contacts_among(pieces, law=mbd.ContactLaw(friction), pair_budget=64)
    return mbd.Mechanism(bodies, contacts=near, contact_budget=24)


def wall(friction, mass, size, speed):
    """Three, two and one boxes, of which the upper one slides. The corners of rigid boxes may share
    the load in several ways; with stiffness they share it in one."""
    edges = jnp.stack([0 * size + 0.4, 0 * size + 0.2, 0.2 * size])
    rng, box, bodies = np.random.default_rng(1), mbd.Box(size=edges), []
    for row, i in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]:
        number, across = len(bodies), 0.003 * rng.normal()
        place = jnp.stack(
            [0.41 * (i + row / 2) + 0 * size, across + 0 * size, (row + 0.5) * 0.2 * size]
        )
        inertia = mbd.Inertia.box(size=edges, mass=mass if number == 5 else 1.0)
        v = speed * np.array([0.5, 0.3, 0.0] if number == 5 else [0.0] * 3)
        bodies.append(mbd.Body(f"{number}", inertia, position=place, velocity=v))
    law = mbd.ContactLaw(friction, stiffness=1e4, damping=300.0)
    near = mbd.contacts_among([FLOOR, *((x, box) for x in bodies)], law=law, pair_budget=48)
    return mbd.Mechanism(bodies, contacts=near, contact_budget=96)


def gripper(friction, mass, size, speed):
    """A palm on a spring carries two fingers on rails, which hold a cube by rigid contacts. While
    they hold it, nothing depends on friction."""
    edge, zero = 0.1 * size, 0 * size
    up = jnp.stack([zero, zero, 0.5 * speed])

    def at(side, z=0.5):
        return jnp.stack([side * (0.02 + edge / 2), zero, zero + z])

    palm = mbd.Body(
        "palm", mbd.Inertia.box(size=[0.3, 0.1, 0.04], mass=1.0), position=at(0, 0.62), velocity=up
    )
    narrow = [0.04, 0.1, 0.16]
    fingers = [
        mbd.Body(f"{side}", mbd.Inertia.box(size=narrow, mass=0.5), position=at(side), velocity=up)
        for side in (-1, 1)
    ]
    cube = mbd.Body(
        "cube", mbd.Inertia.box(size=jnp.stack([edge] * 3), mass=mass),
        position=[0.0, 0.004, 0.503], orientation=[np.cos(0.1), np.sin(0.1), 0.0, 0.0], velocity=up,
    )  # fmt: skip
    joints = [mbd.Prismatic("lift", "ground", palm, point=at(0, 0.62), axis=[0.0, 0.0, 1.0])]
    for side, finger in zip((-1, 1), fingers):
        rail = dict(point=at(side), axis=[1.0, 0.0, 0.0])
        joints.append(mbd.Prismatic(f"rail {side}", palm, finger, **rail))
    ends = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.62]]
    forces = [
        mbd.Spring(
            "grip", *fingers, points=[at(-1), at(1)], stiffness=600.0, damping=5.0, rest_length=0.0
        ),
        mbd.Spring("lift", "ground", palm, points=ends, stiffness=100.0, rest_length=0.9),
    ]
    shapes = mbd.Box(size=narrow), mbd.Box(size=jnp.stack([edge] * 3))
    contacts = [mbd.Contact(x.name, x, cube, *shapes, friction=friction) for x in fingers]
    return mbd.Mechanism([palm, *fingers, cube], joints, forces, contacts=contacts)


def robot(friction, mass, size, speed):
    """A trunk on four legs of two hinges each. Springs with moving rest angles make it trot."""
    length, zero, foot, stiffness, rate = 0.2 * size, 0 * size, 0.03, 100.0, 8 * np.pi
    angles = 0.6, -0.6
    downs = [-length * np.array([np.sin(a), 0.0, np.cos(a)]) for a in angles]
    along = jnp.stack([0.3 * speed, zero, zero])
    centre = jnp.stack([zero, zero, foot + 0.005 - (downs[0] + downs[1])[2]])
    box = mbd.Inertia.box(size=[0.4, 0.2, 0.1], mass=mass)
    trunk = mbd.Body("trunk", box, position=centre, velocity=along)
    bodies, joints, springs, feet = [trunk], [], [], []
    for i, corner in enumerate([(0.18, 0.1), (0.18, -0.1), (-0.18, 0.1), (-0.18, -0.1)]):
        phase = np.pi * (i in (1, 2))
        top, before = centre + np.array([*corner, 0.0]), trunk
        swings = (
            lambda t, phase=phase: -0.15 * stiffness * jnp.sin(rate * t + phase),
            lambda t, phase=phase: (
                0.4 * stiffness * jnp.maximum(0.0, jnp.cos(rate * t + phase)) ** 2
            ),
        )
        for kind, angle, down, swing in zip(("thigh", "shank"), angles, downs, swings):
            turn = [np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0]
            body = mbd.Body(
                f"{kind} {i}", mbd.Inertia(0.5, [0.02, 0.02, 0.002]), position=top + down / 2,
                orientation=turn, velocity=along,
            )  # fmt: skip
            hinge = mbd.Revolute(f"{kind} {i}", before, body, point=top, axis=[0.0, 1.0, 0.0])
            frames = dict(frame_a=hinge.frame_a, frame_b=hinge.frame_b)
            spring = dict(stiffness=stiffness, damping=5.0, actuator=swing)
            springs.append(mbd.TorsionSpring(f"{kind} {i}", before, body, **frames, **spring))
            bodies.append(body)
            joints.append(hinge)
            before, top = body, top + down
        end = mbd.Pose(jnp.stack([zero, zero, -length / 2]), UPRIGHT)
        feet.append((before, mbd.Sphere(foot), end))
    law = mbd.ContactLaw(friction)
    near = mbd.contacts_among([FLOOR, *feet], law=law, pair_budget=12)
    return mbd.Mechanism(bodies, joints, springs, contacts=near)


def outcome(scene, x, dt, steps, tolerance):
    """A number of the end of the motion, the verdict, and of each step which pieces press."""
    mechanism = scene(*x)
    start = mechanism.state()
    solver = mbd.solvers.InteriorPoint(tolerance=tolerance)
    weight = np.random.default_rng(0).normal(size=start.q.size + start.v.size)
    sol = mbd.simulate(
        mechanism, mbd.ContactImpulse(contact_solver=solver), start, dt=dt, num_steps=steps,
        throw=False, start_tolerance=1.0, saveat=diffrax.SaveAt(steps=1),
    )  # fmt: skip
    end = jnp.concatenate([sol.q[-1], sol.v[-1]]) @ weight
    return end, (sol.result, sol.contact_force[:, :, 0] > 0, sol.contact_pairs)


# Function; friction, mass, size and speed; step and number of steps; step of differences; tolerance
# of the solver. In stiff contacts 1e-8 m/s are many newtons.
SCENES = {
    "pile": (pile, [0.4, 1.2, 1.0, 1.0], 2e-3, 40, 1e-4, 1e-8),
    "wall": (wall, [0.4, 1.2, 1.0, 1.0], 2e-3, 40, 1e-4, 1e-11),
    "gripper": (gripper, [0.8, 0.6, 1.0, 1.0], 2.5e-3, 40, 1e-4, 1e-8),
    "robot": (robot, [0.6, 6.0, 1.0, 1.0], 2e-3, 250, 1e-5, 1e-8),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_derivatives_are_those_of_differences(name, monkeypatch):
    """To 1e-6 of each. Differences of fourth order, of values that are known to some 1e-12."""
    monkeypatch.setattr(rows, "_FEW", 0)
    scene, x, dt, steps, e, tolerance = SCENES[name]
    f = functools.partial(outcome, scene, dt=dt, steps=steps, tolerance=tolerance)
    x, along = np.array(x), np.array([0.3, -0.7, 0.2, 1.1])

    @jax.jit
    def found(x):
        found = jax.value_and_grad(f, has_aux=True)(x)
        if name != "pile":  # both modes take long to compile
            return found, None
        return found, jax.jvp(lambda x: f(x)[0], (x,), (along,))[1]

    ((_, (result, presses, pairs)), slope), forward = jax.device_get(found(x))
    assert result == mbd.RESULTS.successful
    if forward is not None:
        np.testing.assert_allclose(forward, slope @ along, rtol=1e-7)

    def end(x):
        return float(found(x)[0][0][0])

    differences = []
    for d in e * np.eye(4):
        near, far = (end(x + s * d) - end(x - s * d) for s in (1, 2))
        differences.append((8 * near - far) / (12 * e))
    if name == "gripper":  # it holds
        assert abs(slope[0]) < 1e-12 and abs(differences[0]) < 1e-8
        slope, differences = slope[1:], differences[1:]
    np.testing.assert_allclose(slope, differences, rtol=1e-6)
    if name == "robot":
        down = np.array(
            [[np.any(p & (k[:, 1] == b)) for b in range(1, 5)] for p, k in zip(presses, pairs)]
        )
        assert np.sum(down[1:] & ~down[:-1]) >= 10, "Too few of its feet came down."
