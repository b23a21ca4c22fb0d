"""Cost of a step of bodies in contact with friction, compared with MuJoCo and Brax.

All simulators run in one process, on one core, in float64, with 100 steps (`--steps`) of 2 ms
(`--dt`). Compare ratios, not microseconds. For each scene the table has microseconds per step and
body, seconds to compile, the deepest overlap of two shapes in metres (at every tenth step, computed
by jaxmbd for all simulators), the residual of the contact problems in m/s (jaxmbd only), and the
time of a gradient relative to the forward time with its compilation and memory. Simulators that are
not installed are reported and left out.

    taskset -c 0 python benchmarks/contacts.py
    taskset -c 0 python benchmarks/contacts.py --piles 64 --stacks --bounces 0 --no-robot

Scenes, with a friction coefficient of 0.5:

- piles of spheres of 0.1 m and 1 kg, in layers that fall 1 cm onto the ground and onto each other;
- stacks of cubes of 0.2 m and 1 kg; the top one slides at 0.3 m/s;
- a batch of spheres that fall on the ground and bounce once, with restitutions from 0.5 to 0.9, and
  the error of their heights against the closed form. MuJoCo has springs and dampers instead of
  restitution; they are such that a contact lasts about ten steps;
- a robot with a trunk and four legs of two hinges each, with springs and dampers, which falls 2 cm
  onto its spherical feet and moves forwards at 0.5 m/s.

The simulators solve different problems. jaxmbd (`InteriorPoint`) solves Coulomb's law between rigid
bodies to rounding. MuJoCo solves a convex relaxation with soft contacts, to its tolerance or with
one iteration. The number of contact points is the same for all: `contact_budget` here,
`max_contact_points` there.
"""

import argparse
import os
import platform
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from measuring import NO_FUSION, Simulation, best_of, compare, measure
from tqdm import tqdm

import jaxmbd as mbd

GRAVITY, FRICTION = 9.81, 0.5
FLOOR = mbd.HalfSpace()
FEW = 4  # more bodies look for near pairs
EVERY = 10  # steps from one saved state to the next


class Scene(NamedTuple):
    """A scene for all simulators. `mjcf`: the bodies in MuJoCo's format. `freely`: the linear
    velocities of the free bodies, in the order of that text. `points`: the largest number of
    contact points."""

    name: str
    mechanism: mbd.Mechanism
    mjcf: str
    freely: np.ndarray
    points: int


# --- scenes -------------------------------------------------------------------------------------


def pile(count: int, radius: float = 0.1) -> Scene:
    """A pile of layers with up to eight spheres along each side."""
    side = min(8, round(count ** (1 / 3)))
    rng = np.random.default_rng(0)
    places, bodies, text = [], [], ""
    for i in range(count):
        layer, place = divmod(i, side**2)
        lateral = 2.1 * radius * np.array(divmod(place, side)) + 0.1 * radius * rng.uniform(size=2)
        places.append([*lateral, 0.01 + radius + 2.1 * radius * layer])
    speeds = 0.1 * rng.normal(size=(count, 3))
    for i, (place, speed) in enumerate(zip(places, speeds, strict=True)):
        inertia = mbd.Inertia.sphere(radius=radius, mass=1.0)
        bodies.append(mbd.Body(f"{i}", inertia, position=place, velocity=speed))
        geom = f'<geom type="sphere" size="{radius}" mass="1"/>'
        text += f'<body pos="{numbers(place)}"><freejoint/>{geom}</body>'
    return among(f"pile of {count} spheres", bodies, mbd.Sphere(radius), text, speeds, 3 * count)


def stack(count: int, half: float = 0.1, speed: float = 0.3) -> Scene:
    bodies, text, speeds = [], "", np.zeros((count, 3))
    speeds[-1, 0] = speed
    inertia = mbd.Inertia.box(size=[2 * half] * 3, mass=1.0)
    for i in range(count):
        place = [0.0, 0.0, half * (2 * i + 1)]
        bodies.append(mbd.Body(f"{i}", inertia, position=place, velocity=speeds[i]))
        geom = f'<geom type="box" size="{half} {half} {half}" mass="1"/>'
        text += f'<body pos="{numbers(place)}"><freejoint/>{geom}</body>'
    shape = mbd.Box(size=[2 * half] * 3)
    name = f"stack of {count} boxes"
    return among(name, bodies, shape, text, speeds, 4 * count + 4, 8 * count + 8)


def among(
    name: str,
    bodies: list[mbd.Body],
    shape: mbd.shapes.AbstractShape,
    text: str,
    speeds: np.ndarray,
    points: int,
    budget: int | None = None,
) -> Scene:
    """A scene in which every body may touch every other body and the ground. jaxmbd has room for
    `budget` points, by default as many as others."""
    pieces = [("ground", FLOOR), *((body, shape) for body in bodies)]
    near = 8 * len(bodies) if len(bodies) > FEW else None
    contacts = mbd.contacts_among(pieces, law=mbd.ContactLaw(FRICTION), pair_budget=near)
    mechanism = mbd.Mechanism(bodies, contacts=contacts, contact_budget=budget or points)
    return Scene(name, mechanism, text, speeds, points)


def robot() -> Scene:
    """The robot, in maximal coordinates for jaxmbd and in joint coordinates for MuJoCo."""
    length, radius, size = 0.2, 0.03, np.array([0.4, 0.2, 0.1])
    angles, hinge = (0.6, -0.6), dict(stiffness=40.0, damping=0.3)
    masses, inertia = (0.5, 0.2), lambda m: [m * length**2 / 12] * 2 + [1e-4]
    turns = [np.array([np.cos(a / 2), 0, np.sin(a / 2), 0]) for a in angles]
    downs = [-length * np.array([np.sin(a), 0, np.cos(a)]) for a in angles]
    speed = np.array([0.5, 0, 0])
    centre = np.array([0, 0, radius + 0.02 - sum(downs)[2]])
    trunk = mbd.Body("trunk", mbd.Inertia.box(size=size, mass=6.0), position=centre, velocity=speed)
    bodies, joints, springs, contacts = [trunk], [], [], []
    legs = ""
    for i, corner in enumerate([(0.18, 0.1), (0.18, -0.1), (-0.18, 0.1), (-0.18, -0.1)]):
        top, before = centre + np.array([*corner, 0.0]), trunk
        leg, end, parent, parent_turn = "", "", centre, np.array([1.0, 0, 0, 0])
        for k, kind in enumerate(("thigh", "shank")):
            body = mbd.Body(
                f"{kind} {i}",
                mbd.Inertia(masses[k], inertia(masses[k])),
                position=top + downs[k] / 2,
                orientation=turns[k],
                velocity=speed,
            )
            frame = dict(point=top, axis=[0.0, 1.0, 0.0])
            joints.append(mbd.Revolute(f"{kind} {i}", before, body, **frame))
            spring = mbd.TorsionSpring(
                f"{kind} {i}",
                before,
                body,
                frame_a=joints[-1].frame_a,
                frame_b=joints[-1].frame_b,
                **hinge,
            )
            springs.append(spring)
            bodies.append(body)
            back = mbd.rotations.quaternion_conjugate(jnp.asarray(parent_turn))
            at = mbd.rotations.quaternion_rotate(back, jnp.asarray(top + downs[k] / 2 - parent))
            turn = mbd.rotations.quaternion_product(back, jnp.asarray(turns[k]))
            leg += (
                f'<body pos="{numbers(at)}" quat="{numbers(turn)}"><joint type="hinge" '
                f'axis="0 1 0" pos="0 0 {length / 2}" stiffness="{hinge["stiffness"]}" '
                f'damping="{hinge["damping"]}"/><inertial pos="0 0 0" mass="{masses[k]}" '
                f'diaginertia="{numbers(inertia(masses[k]))}"/>'
            )
            end += "</body>"
            before, parent, parent_turn, top = body, top + downs[k] / 2, turns[k], top + downs[k]
        foot = mbd.Pose(jnp.array([0, 0, -length / 2]), jnp.array([1.0, 0, 0, 0]))
        shape = mbd.Sphere(radius)
        contacts.append(
            mbd.Contact(
                f"foot {i}", "ground", before, FLOOR, shape, frame_b=foot, friction=FRICTION
            )
        )
        geom = f'<geom type="sphere" size="{radius}" pos="0 0 {-length / 2}" conaffinity="0"/>'
        legs += leg + geom + end
    text = (
        f'<body pos="{numbers(centre)}"><freejoint/><geom type="box" size="{numbers(size / 2)}" '
        f'mass="6" contype="0" conaffinity="0"/>{legs}</body>'
    )
    mechanism = mbd.Mechanism(bodies, joints, springs, contacts)
    return Scene("robot of nine bodies", mechanism, text, speed[None], 4)


def numbers(values: Any) -> str:
    return " ".join(str(float(x)) for x in values)


def overlap(mechanism: mbd.Mechanism, q: jax.Array) -> float:
    """The deepest overlap at any of these coordinates [m]."""
    gaps = jax.jit(jax.vmap(lambda q: mechanism.gap(q, 0.0)))(q)
    return float(jnp.maximum(0.0, -jnp.min(gaps)))


def scene_figures(scene: Scene) -> Callable[[Any], dict[str, Any]]:
    def figures(rest):
        q, *verdict = rest
        found: dict[str, Any] = {"overlap m": overlap(scene.mechanism, q)}
        if verdict:
            residual, successful = verdict
            found["residual m/s"] = float(residual)
            if not successful:
                found["result"] = "not successful"
        return found

    return figures


# --- jaxmbd -------------------------------------------------------------------------------------


def own(scene: Scene, method: mbd.ContactImpulse, dt: float, steps: int) -> Simulation:
    mechanism, start = scene.mechanism, scene.mechanism.state()

    def end(x):
        moved = eqx.tree_at(lambda m: m.gravity, mechanism, mechanism.gravity * x[0])
        state = mbd.State(0.0, start.q, start.v * x[1])
        saveat = diffrax.SaveAt(steps=EVERY)
        sol = mbd.simulate(moved, method, state, dt=dt, num_steps=steps, saveat=saveat, throw=False)
        verdict = sol.contact_residual[-1], sol.result == mbd.RESULTS.successful
        return jnp.sum(sol.q[-1] ** 2), (sol.q, *verdict)

    return end


# --- others -------------------------------------------------------------------------------------


def mjcf(scene: Scene, dt: float, option: str = "") -> str:
    return (
        f'<mujoco><option timestep="{dt}" gravity="0 0 {-GRAVITY}" {option}/>'
        f'<size memory="1G"/><default><geom friction="{FRICTION} 0.005 0.0001"/></default><custom>'
        f'<numeric name="max_contact_points" data="{scene.points}"/>'
        f'<numeric name="max_geom_pairs" data="{scene.points}"/></custom>'
        f'<worldbody><geom type="plane" size="20 20 1"/>{scene.mjcf}</worldbody></mujoco>'
    )


def start_velocities(model: Any, scene: Scene) -> np.ndarray:
    """The initial velocities, nonzero for MuJoCo's free joints."""
    v = np.zeros(model.nv)
    for address, speed in zip(model.jnt_dofadr[model.jnt_type == 0], scene.freely, strict=True):
        v[address : address + 3] = speed
    return v


def body_coordinates(position: jax.Array, orientation: jax.Array) -> jax.Array:
    """The coordinates of jaxmbd, from arrays with one row for each body."""
    return jnp.concatenate([position, orientation], axis=1).T.ravel()


def every_tenth(step: Callable, coordinates: Callable, start: Any, steps: int) -> tuple[Any, Any]:
    """The final state, and the coordinates of all bodies at every tenth step."""

    def some(state, _):
        state, _ = jax.lax.scan(lambda state, _: (step(state), None), state, None, length=EVERY)
        return state, coordinates(state)

    return jax.lax.scan(some, start, None, length=steps // EVERY)


def mujoco_in_c(scene: Scene, dt: float, steps: int) -> dict[str, Any]:
    import mujoco

    model = mujoco.MjModel.from_xml_string(mjcf(scene, dt))
    data = mujoco.MjData(model)
    v = start_velocities(model, scene)

    def run(saved=None):
        mujoco.mj_resetData(model, data)
        data.qvel[:] = v
        for _ in range(steps // EVERY):
            mujoco.mj_step(model, data, nstep=EVERY)
            if saved is not None:
                saved.append(np.concatenate([data.xpos[1:], data.xquat[1:]], axis=1).T.ravel())
        return 0

    saved: list[np.ndarray] = []
    run(saved)
    deepest = overlap(scene.mechanism, jnp.asarray(np.stack(saved)))
    return {"steps_per_s": steps / best_of(run), "overlap m": deepest}


def mjx(scene: Scene, dt: float, steps: int, option: str = "") -> Simulation:
    import mujoco
    from mujoco import mjx

    model = mujoco.MjModel.from_xml_string(mjcf(scene, dt, option))
    system = mjx.put_model(model)
    data = mjx.make_data(system)
    v = jnp.asarray(start_velocities(model, scene))

    def end(x):
        pulled = system.replace(opt=system.opt.replace(gravity=system.opt.gravity * x[0]))
        data_end, q = every_tenth(
            lambda data: mjx.step(pulled, data),
            lambda data: body_coordinates(data.xpos[1:], data.xquat[1:]),
            data.replace(qvel=v * x[1]),
            steps,
        )
        return jnp.sum(data_end.qpos**2), (q,)

    return end


def brax(scene: Scene, dt: float, steps: int, which: str) -> Simulation:
    import importlib

    from brax.io import mjcf as reader

    pipeline = importlib.import_module(f"brax.{which}.pipeline")
    system = reader.loads(mjcf(scene, dt))
    v = start_velocities(system.mj_model, scene)

    def end(x):
        pulled = system.replace(gravity=system.gravity * x[0])
        return brax_rollout(pipeline, pulled, system.init_q, jnp.asarray(v) * x[1], steps)

    return end


def brax_rollout(pipeline: Any, system: Any, q: Any, v: Any, steps: int) -> tuple[Any, Any]:
    state = pipeline.init(system, jnp.asarray(q, float), v)
    to_double = lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x  # noqa: E731
    action = jnp.zeros(system.act_size())

    def step(state):
        after = pipeline.step(system, state, action)
        return jax.tree.map(lambda a, b: a.astype(b.dtype), after, state)

    state, q = every_tenth(
        step,
        lambda state: body_coordinates(state.x.pos, state.x.rot),
        jax.tree.map(to_double, state),
        steps,
    )
    return jnp.sum(q[-1] ** 2), (q,)


# --- the batch that bounces ---------------------------------------------------------------------


RADIUS = 0.1


def dropped(restitution: Any) -> Scene:
    """A scene with one sphere that falls on the floor."""
    inertia = mbd.Inertia.sphere(radius=RADIUS, mass=1.0)
    ball = mbd.Body("ball", inertia, position=[0, 0, RADIUS], velocity=[1.0, 0, 0])
    law = mbd.ContactLaw(FRICTION, restitution=restitution)
    floor = mbd.Contact("floor", "ground", ball, FLOOR, mbd.Sphere(RADIUS), law=law)
    geom = f'<geom type="sphere" size="{RADIUS}" mass="1"/>'
    text = f'<body pos="0 0 {RADIUS}"><freejoint/>{geom}</body>'
    speed = np.array([[1.0, 0, 0]])
    return Scene("ball", mbd.Mechanism([ball], contacts=[floor]), text, speed, 1)


def drops(count: int, t: float) -> tuple[jax.Array, jax.Array]:
    """Heights of fall [m] and restitutions with which each ball bounces once until t."""
    rng = np.random.default_rng(0)
    landing = jnp.asarray(t * rng.uniform(0.55, 0.75, size=count))
    return GRAVITY * landing**2 / 2, jnp.asarray(rng.uniform(0.5, 0.9, size=count))


def height_after(heights: jax.Array, restitutions: jax.Array, t: float) -> jax.Array:
    """The height after one bounce in closed form [m]."""
    landing = jnp.sqrt(2 * heights / GRAVITY)
    rest = t - landing
    return restitutions * GRAVITY * landing * rest - GRAVITY * rest**2 / 2


def bounce_figures(heights: jax.Array, restitutions: jax.Array, t: float):
    exact = height_after(heights, restitutions, t)

    def figures(rest):
        z, q, *residual = rest
        gaps = q.reshape(*q.shape[:2], 7, -1)[:, :, 2] - RADIUS
        found = {"overlap m": float(jnp.maximum(0.0, -jnp.min(gaps)))}
        if residual:
            found["residual m/s"] = float(jnp.max(residual[0]))
        return {**found, "error of height m": float(jnp.max(jnp.abs(z - RADIUS - exact)))}

    return figures


def own_bounces(heights, restitutions, method, dt: float, steps: int) -> Simulation:
    def end(x):
        def one(height, e):
            mechanism = dropped(e).mechanism
            start = mechanism.state()
            mechanism = eqx.tree_at(lambda m: m.gravity, mechanism, mechanism.gravity * x[0])
            state = mbd.State(0.0, start.q.at[2].add(height), start.v * x[1])
            saveat = diffrax.SaveAt(steps=EVERY)
            sol = mbd.simulate(
                mechanism, method, state, dt=dt, num_steps=steps, saveat=saveat, throw=False
            )
            return sol.q[-1, 2], sol.q, sol.contact_residual[-1]

        rest = jax.vmap(one)(heights, restitutions)
        return jnp.sum(rest[0] ** 2), rest

    return end


def mjx_bounces(heights, restitutions, dt: float, steps: int, option: str) -> Simulation:
    import mujoco
    from mujoco import mjx

    scene = dropped(0.5)
    model = mujoco.MjModel.from_xml_string(mjcf(scene, dt, option))
    system = mjx.put_model(model)
    data = mjx.make_data(system)
    v = jnp.asarray(start_velocities(model, scene))
    # A spring and a damper per kilogram, so that the contact lasts half a period of ten steps and
    # returns the share e of the speed.
    omega = jnp.pi / (10 * dt)
    share = -jnp.log(restitutions) / jnp.sqrt(jnp.pi**2 + jnp.log(restitutions) ** 2)
    negative = -jnp.stack([jnp.full_like(share, omega**2), 2 * share * omega], axis=1)

    def end(x):
        def one(height, solref):
            pulled = system.replace(
                geom_solref=jnp.broadcast_to(solref, system.geom_solref.shape),
                opt=system.opt.replace(gravity=system.opt.gravity * x[0]),
            )
            start = data.replace(qpos=data.qpos.at[2].add(height), qvel=v * x[1])
            after, q = every_tenth(
                lambda data: mjx.step(pulled, data),
                lambda data: body_coordinates(data.xpos[1:], data.xquat[1:]),
                start,
                steps,
            )
            return after.qpos[2], q

        rest = jax.vmap(one)(heights, negative)
        return jnp.sum(rest[0] ** 2), rest

    return end


def brax_bounces(heights, restitutions, dt: float, steps: int) -> Simulation:
    """With Brax's positional pipeline, the only one with restitution in the rigid limit."""
    from brax.io import mjcf as reader
    from brax.positional import pipeline

    scene = dropped(0.5)
    system = reader.loads(mjcf(scene, dt))
    v = jnp.asarray(start_velocities(system.mj_model, scene))

    def end(x):
        def one(height, e):
            pulled = system.replace(
                gravity=system.gravity * x[0], elasticity=jnp.full_like(system.elasticity, e)
            )
            q = jnp.asarray(system.init_q, float).at[2].add(height)
            _, (q,) = brax_rollout(pipeline, pulled, q, v * x[1], steps)
            return q[-1, 2], q

        rest = jax.vmap(one)(heights, restitutions)
        return jnp.sum(rest[0] ** 2), rest

    return end


# --- the runs -----------------------------------------------------------------------------------

ONE_ITERATION = 'iterations="1" ls_iterations="5"'


def run_scene(scene: Scene, dt: float, steps: int, gradient: bool) -> None:
    figures = scene_figures(scene)

    def measured(simulation, compiler=None):
        return measure(simulation, steps, figures, gradient=gradient, options=compiler)

    sweeps = mbd.ContactImpulse(contact_solver=mbd.solvers.ProjectedGaussSeidel(50))
    peers: dict[str, Callable] = {
        "jaxmbd, 50 sweeps": lambda: measured(own(scene, sweeps, dt, steps)),
        "MuJoCo C": lambda: mujoco_in_c(scene, dt, steps),
        "MJX": lambda: measured(mjx(scene, dt, steps)),
        "MJX, no fusion": lambda: measured(mjx(scene, dt, steps), NO_FUSION),
        "MJX, 1 iteration": lambda: measured(mjx(scene, dt, steps, ONE_ITERATION)),
        "Brax generalized": lambda: measured(brax(scene, dt, steps, "generalized")),
        "Brax positional": lambda: measured(brax(scene, dt, steps, "positional")),
    }
    row = measured(own(scene, mbd.ContactImpulse(), dt, steps))
    compare(scene.name, len(scene.mechanism.bodies), row, peers)


def run_bounces(count: int, dt: float, steps: int, gradient: bool) -> None:
    t = dt * steps
    heights, restitutions = drops(count, t)
    figures = bounce_figures(heights, restitutions, t)
    these = heights, restitutions

    def measured(simulation):
        return measure(simulation, steps, figures, gradient=gradient)

    peers: dict[str, Callable] = {
        "jaxmbd, 0 impacts": lambda: measured(own_bounces(*these, mbd.ContactImpulse(), dt, steps)),
        "MJX": lambda: measured(mjx_bounces(*these, dt, steps, "")),
        "MJX, 1 iteration": lambda: measured(mjx_bounces(*these, dt, steps, ONE_ITERATION)),
        "Brax positional": lambda: measured(brax_bounces(*these, dt, steps)),
    }
    row = measured(own_bounces(*these, mbd.ContactImpulse(impacts=mbd.Located(2)), dt, steps))
    compare(f"batch of {count} bounces, impacts located", count, row, peers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--piles", type=int, nargs="*", default=[8, 64], metavar="SPHERES")
    parser.add_argument("--stacks", type=int, nargs="*", default=[5, 10], metavar="BOXES")
    parser.add_argument("--bounces", type=int, default=1024, help="size of the batch, 0 for none")
    parser.add_argument("--robot", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--dt", type=float, default=2e-3, help="step [s]")
    parser.add_argument("--steps", type=int, default=100, help="a multiple of ten")
    parser.add_argument("--gradient-up-to", type=int, default=10, metavar="BODIES")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{platform.processor() or platform.machine()}, jax {jax.__version__}, float64")
    scenes = [robot] * options.robot
    scenes += [lambda n=n: stack(n) for n in options.stacks]
    scenes += [lambda n=n: pile(n) for n in options.piles]
    for make in tqdm(scenes, desc="scenes"):
        scene = make()
        gradient = len(scene.mechanism.bodies) <= options.gradient_up_to
        run_scene(scene, options.dt, options.steps, gradient)
    if options.bounces:
        run_bounces(options.bounces, options.dt, options.steps, True)


if __name__ == "__main__":
    main()
