"""How often the contact solver fails, for bodies that are thrown on a floor.

Each landing has its own pose, velocity, spin and friction coefficient (0.1 to 1), and 480 steps of
2.5 ms: the body falls, tumbles, slides and comes to rest. Two boxes, thrown with a gap between
them, land on each other. Their mass ratio is between 0.01 and 100. A gripper closes two fingers on
a cube. Whether they hold it depends on its mass, pose and friction.

For each scene the table has the number of landings and of steps; the number of unsolved steps (the
first one ends a motion), also per million steps; the number of motions that ended with another
verdict; the largest residual [m/s] of the contact problems at every tenth step of good motions; and
microseconds per step.

    python benchmarks/landings.py
    python benchmarks/landings.py --count 10000 --friction pyramid --float32 --scenes cube rod
    python benchmarks/landings.py --batch 256 --friction cone --scenes rod   # vmap, or one by one
"""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import diffrax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from measuring import best_of
from tqdm import tqdm

import jaxmbd as mbd

# Set before the first array, since shapes and inertias are created when this file is imported.
jax.config.update("jax_enable_x64", "--float32" not in sys.argv)

STEPS, DT, EVERY = 480, 2.5e-3, 10
FLOOR = mbd.HalfSpace()
Start = tuple[mbd.Mechanism, mbd.State]


def rotation(key):
    p = jr.normal(key, (4,))
    return p / jnp.linalg.norm(p)


def thrown(mechanism: mbd.Mechanism, key) -> mbd.State:
    """A state in which every body has a random rotation, velocity (2 m/s) and spin (5 rad/s)."""
    bodies = len(mechanism.bodies)
    keys = jr.split(key, 3)
    turns = jax.vmap(rotation)(jr.split(keys[0], bodies)).T
    state = mechanism.state()
    q = state.q.reshape(7, bodies).at[3:].set(turns).ravel()
    v = jnp.concatenate([2 * jr.normal(keys[1], (3, bodies)), 5 * jr.normal(keys[2], (3, bodies))])
    return mbd.State(0.0, q, v.ravel())


def single(shape, inertia: mbd.Inertia) -> Callable[..., Start]:
    def scene(key):
        key, key_mu = jr.split(key)
        body = mbd.Body("body", inertia, position=[0.0, 0.0, 0.4])
        mu = jr.uniform(key_mu, minval=0.1, maxval=1.0)
        contact = mbd.Contact("floor", "ground", body, FLOOR, shape, friction=mu)
        mechanism = mbd.Mechanism([body], contacts=[contact], gravity=[0.0, 0.0, -9.81])
        return mechanism, thrown(mechanism, key)

    return scene


def box(half) -> Callable[..., Start]:
    return single(
        mbd.Box(size=2 * np.array(half)), mbd.Inertia.box(size=[2 * x for x in half], mass=1.0)
    )


def cylinder(key) -> Start:
    inertia = mbd.Inertia.cylinder(radius=0.1, length=0.24, mass=1.0)
    return single(mbd.Cylinder(radius=0.1, length=0.24), inertia)(key)


def hull(key) -> Start:
    """Eight random corners, with the inertia of a sphere."""
    key, corners = jr.split(key)
    points = 0.1 * jr.normal(corners, (8, 3))
    inertia = mbd.Inertia.sphere(radius=0.15, mass=1.0)
    return single(mbd.shapes.ConvexPoints(points - jnp.mean(points, axis=0)), inertia)(key)


def two(key) -> Start:
    key, key_mu, key_ratio = jr.split(key, 3)
    mu = jr.uniform(key_mu, minval=0.1, maxval=1.0)
    ratio = 10 ** jr.uniform(key_ratio, minval=-2.0, maxval=2.0)
    shape = mbd.Box(size=[0.2, 0.2, 0.2])
    low = mbd.Body("low", mbd.Inertia.box(size=[0.2, 0.2, 0.2], mass=1.0), position=[0.0, 0.0, 0.3])
    high = mbd.Body(
        "high", mbd.Inertia.box(size=[0.2, 0.2, 0.2], mass=ratio), position=[0.0, 0.0, 0.7]
    )
    contacts = [
        mbd.Contact("low", "ground", low, FLOOR, shape, friction=mu),
        mbd.Contact("high", "ground", high, FLOOR, shape, friction=mu),
        mbd.Contact("both", low, high, shape, shape, friction=mu),
    ]
    mechanism = mbd.Mechanism([low, high], contacts=contacts, gravity=[0.0, 0.0, -9.81])
    return mechanism, thrown(mechanism, key)


def gripper(key) -> Start:
    """Two fingers on sliders, pressed together by springs, and a cube between them."""
    key_turn, key_mu, key_mass, key_shift = jr.split(key, 4)
    mu = jr.uniform(key_mu, minval=0.1, maxval=1.0)
    mass = 10 ** jr.uniform(key_mass, minval=-1.0, maxval=1.0)
    finger = mbd.Box(size=[0.04, 0.1, 0.16])
    cube = mbd.Box(size=[0.1, 0.1, 0.1])
    inertia = mbd.Inertia.box(size=[0.04, 0.1, 0.16], mass=0.5)
    ends = {"left": [-0.15, 0.0, 0.5], "right": [0.15, 0.0, 0.5]}
    left, right = (mbd.Body(name, inertia, position=end) for name, end in ends.items())
    shift = 0.01 * jr.normal(key_shift, (3,))
    held = mbd.Body(
        "held",
        mbd.Inertia.box(size=[0.1, 0.1, 0.1], mass=mass),
        position=jnp.array([0.0, 0.0, 0.5]) + shift,
    )
    joints = [
        mbd.Prismatic(f"{b.name} rail", "ground", b, point=ends[b.name], axis=[1.0, 0.0, 0.0])
        for b in (left, right)
    ]
    forces = [
        mbd.Spring(
            "grip",
            left,
            right,
            points=list(ends.values()),
            stiffness=300.0,
            damping=5.0,
            rest_length=0.0,
        ),
    ]
    contacts = [
        mbd.Contact("left", left, held, finger, cube, friction=mu),
        mbd.Contact("right", right, held, finger, cube, friction=mu),
        mbd.Contact("floor", "ground", held, FLOOR, cube, friction=mu),
    ]
    mechanism = mbd.Mechanism(
        [left, right, held],
        joints=joints,
        forces=forces,
        contacts=contacts,
        gravity=[0.0, 0.0, -9.81],
    )
    state = mechanism.state()
    return mechanism, mbd.State(
        0.0, state.q.reshape(7, 3).at[3:, 2].set(rotation(key_turn)).ravel(), state.v
    )


SCENES: dict[str, Callable[..., Start]] = {
    "cube": box([0.1, 0.1, 0.1]),
    "brick": box([0.2, 0.1, 0.03]),
    "rod": box([0.3, 0.02, 0.02]),
    "cylinder": cylinder,
    "hull": hull,
    "two boxes": two,
    "gripper": gripper,
}
FRICTION = {"cone": mbd.contacts.Cone(), "pyramid": mbd.contacts.Pyramid(4)}


def outcome(scene: Callable[..., Start], friction, key):
    """Whether all contact problems of a landing were solved, whether it failed for another reason,
    its number of steps, and the largest saved residual."""
    mechanism, state = scene(key)
    sol = mbd.simulate(
        mechanism,
        mbd.ContactImpulse(friction=friction),
        state,
        dt=DT,
        num_steps=STEPS,
        saveat=diffrax.SaveAt(steps=EVERY),
        throw=False,
    )
    solved = sol.result != mbd.RESULTS.contact_unsolved
    good = sol.result == mbd.RESULTS.successful
    residual = jnp.where(good, jnp.nanmax(sol.contact_residual), 0.0)
    return solved, solved & ~good, sol.stats["num_steps"], residual


def count(name: str, friction: str, chunks: int, chunk: int, seed: int) -> None:
    landing = functools.partial(outcome, SCENES[name], FRICTION[friction])
    run = jax.jit(functools.partial(jax.lax.map, landing))
    keys = jr.split(jr.key(seed), (chunks, chunk))
    run(keys[0])
    began, outcomes = time.perf_counter(), []
    for key in tqdm(keys, desc=f"{name}, {friction}", unit=f" x {chunk}", leave=False):
        outcomes.append([np.asarray(x) for x in run(key)])
    seconds = time.perf_counter() - began
    solved, other, steps, residual = map(np.concatenate, zip(*outcomes, strict=True))
    unsolved = np.sum(~solved)
    tqdm.write(
        f"{name:10s} {friction:8s} {solved.size:7d} landings {steps.sum():10d} steps"
        f" {unsolved:6d} unsolved {1e6 * unsolved / steps.sum():8.2f} of a million"
        f" {np.sum(other):5d} other verdicts   residual {residual.max():.1e} m/s"
        f" {1e6 * seconds / steps.sum():6.1f} us/step"
    )


def batch(name: str, friction: str, size: int, seed: int) -> None:
    """Time of the same landings in one `vmap`, and one after another."""
    landing = functools.partial(outcome, SCENES[name], FRICTION[friction])
    keys = jr.split(jr.key(seed), size)
    line = f"{name:10s} {friction:8s} {size:7d} landings"
    for way, run in (("vmap", jax.vmap(landing)), ("map", functools.partial(jax.lax.map, landing))):
        run = jax.jit(run)
        run(keys)
        seconds, steps = best_of(lambda run=run: run(keys)), np.sum(run(keys)[2])
        line += f"   {way} {1e6 * seconds / steps:6.2f} us/step"
    tqdm.write(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="landings of each scene")
    parser.add_argument("--chunk", type=int, default=250, help="landings between signs of life")
    parser.add_argument("--batch", type=int, default=0, help="time so many, and count nothing")
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES))
    parser.add_argument("--friction", nargs="+", choices=FRICTION, default=list(FRICTION))
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name in args.scenes:
        for friction in args.friction:
            if args.batch:
                batch(name, friction, args.batch, args.seed)
                continue
            count(name, friction, -(-args.count // args.chunk), args.chunk, args.seed)


if __name__ == "__main__":
    main()
