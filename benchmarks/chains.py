"""Cost of a step of chains of N hinged links and of a four-bar, beside other simulators.

One core, float64, one step of the first order (`VelocityImpulse`: an impulse a step) of 2 ms for
chains and 1 ms for the four-bar, all in one process and run; compare ratios, not microseconds. For
each: microseconds a step and body, seconds to compile, the largest violation of the joints,
gradient over forward time, and a batch. Simulators that are not installed are left out, and said
to be.

    taskset -c 0 python benchmarks/chains.py
    taskset -c 0 python benchmarks/chains.py --links 5 20 80 320 1000 --batch 256

The chain: links of 0.3 m and 1 kg hang from the ground on hinges about x and y in turn, with
0.2 N m s of damping each, and start at 0.1 rad and 0.2 rad/s in each joint. The four-bar: ground
1.0 m, crank 0.3, coupler 0.9 and rocker 0.7 of 1 kg/m, from a crank angle of 60 degrees.
"""

import argparse
import os
import platform
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from tqdm import tqdm  # noqa: E402

import jaxmbd as mbd  # noqa: E402

LENGTH, MASS, DAMPING, ANGLE, RATE = 0.3, 1.0, 0.2, 0.1, 0.2
INERTIA = (MASS * LENGTH**2 / 12, MASS * LENGTH**2 / 12, 0.001)


def axis_of(i: int) -> np.ndarray:
    return np.eye(3)[i % 2]


# --- jaxmbd -------------------------------------------------------------------------------------


def chain(n: int) -> mbd.Mechanism:
    bodies, joints, dampers = [], [], []
    end, velocity, omega = np.zeros(3), np.zeros(3), np.zeros(3)
    turn, before = jnp.array([1.0, 0, 0, 0]), "ground"
    for i in range(n):
        axis = np.asarray(mbd.quaternion_rotate(turn, jnp.asarray(axis_of(i))))
        turn = mbd.quaternion_product(turn, mbd.quaternion_exp(jnp.asarray(ANGLE * axis_of(i))))
        omega = omega + RATE * axis
        half = np.asarray(mbd.quaternion_rotate(turn, jnp.array([0, 0, -LENGTH / 2])))
        body = mbd.Body(
            f"link {i}",
            mbd.Inertia(MASS, INERTIA),
            position=end + half,
            orientation=turn,
            velocity=velocity + np.cross(omega, half),
            angular_velocity=omega,
        )
        frame = dict(point=end, axis=axis)
        bodies.append(body)
        joints.append(mbd.Revolute(f"hinge {i}", before, body, **frame))
        dampers.append(
            mbd.TorsionSpring(f"damper {i}", before, body, stiffness=0.0, damping=DAMPING, **frame)
        )
        end, velocity, before = end + 2 * half, velocity + np.cross(omega, 2 * half), body
    return mbd.Mechanism(bodies, joints, dampers)


def four_bar_points() -> list[np.ndarray]:
    """A, B, C, D in the plane of x and z."""
    a, d = np.zeros(3), np.array([1.0, 0, 0])
    b = 0.3 * np.array([np.cos(np.pi / 3), 0, np.sin(np.pi / 3)])
    across = d - b
    r = np.linalg.norm(across)
    x = (0.9**2 - 0.7**2 + r**2) / (2 * r)
    e = across / r
    c = b + x * e + np.sqrt(0.9**2 - x**2) * np.array([-e[2], 0, e[0]])
    return [a, b, c, d]


def four_bar() -> mbd.Mechanism:
    points = four_bar_points()
    bodies = []
    for name, p, q in zip(("crank", "coupler", "rocker"), points, points[1:], strict=False):
        length = np.linalg.norm(q - p)
        inertia = mbd.Inertia(length, [length**3 / 12] * 3)
        bodies.append(mbd.Body(name, inertia, position=(p + q) / 2))
    crank, coupler, rocker = bodies
    ends = [("ground", crank), (crank, coupler), (coupler, rocker), (rocker, "ground")]
    joints = [
        mbd.Revolute(name, *pair, point=point, axis=[0.0, 1.0, 0.0])
        for name, pair, point in zip("ABCD", ends, points, strict=True)
    ]
    return mbd.Mechanism(bodies, joints)


def best_of(fn, repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(fn())
        times.append(time.perf_counter() - start)
    return min(times)


def own(mechanism: mbd.Mechanism, dt: float, steps: int, batch: int, gradient: bool) -> dict:
    start = mechanism.state()

    def end(parameters):
        moved = eqx.tree_at(lambda m: m.gravity, mechanism, mechanism.gravity * parameters[0])
        state = mbd.State(0.0, start.q, start.v * parameters[1])
        sol = mbd.simulate(moved, mbd.VelocityImpulse(), state, dt=dt, num_steps=steps, throw=False)
        return jnp.sum(sol.q[-1] ** 2), sol.phi_norm[-1]

    def measured(fn, argument):
        began = time.perf_counter()
        compiled = jax.jit(fn).lower(argument).compile()
        compiling = time.perf_counter() - began
        out = compiled(argument)
        return out, best_of(lambda: compiled(argument)), compiling

    ones = jnp.ones(2)
    (_, phi), seconds, compiling = measured(end, ones)
    row = dict(steps_per_s=steps / seconds, compile_s=compiling, violation=float(phi))
    if gradient:
        _, slow, compiling = measured(lambda x: jax.grad(lambda x: end(x)[0])(x), ones)
        row |= dict(gradient_over_forward=slow / seconds, compile_gradient_s=compiling)
    if batch:
        many = jnp.stack([jnp.linspace(0.9, 1.0, batch), jnp.linspace(0.5, 1.0, batch)], axis=1)
        _, together, _ = measured(jax.vmap(end), many)
        row |= dict(batch_steps_per_s=batch * steps / together)
    return row


# --- others -------------------------------------------------------------------------------------


def mjcf_chain(n: int, dt: float) -> str:
    begin, finish = "", ""
    for i in range(n):
        x, y, z = axis_of(i)
        begin += (
            f'<body pos="0 0 {-LENGTH if i else 0}"><joint type="hinge" axis="{x} {y} {z}" '
            f'damping="{DAMPING}"/><inertial pos="0 0 {-LENGTH / 2}" mass="{MASS}" '
            f'diaginertia="{INERTIA[0]} {INERTIA[1]} {INERTIA[2]}"/>'
            f'<geom type="capsule" size="0.02" fromto="0 0 0 0 0 {-LENGTH}" contype="0" '
            'conaffinity="0"/>'
        )
        finish += "</body>"
    option = f'<option timestep="{dt}" gravity="0 0 -9.81"/>'
    return f"<mujoco>{option}<worldbody>{begin}{finish}</worldbody></mujoco>"


def mujoco(n: int, dt: float, steps: int) -> dict:
    import mujoco

    model = mujoco.MjModel.from_xml_string(mjcf_chain(n, dt))
    data = mujoco.MjData(model)

    def run():
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = ANGLE, RATE
        mujoco.mj_step(model, data, nstep=steps)
        return 0

    return dict(steps_per_s=steps / best_of(run))


def mjx(n: int, dt: float, steps: int) -> dict:
    import mujoco
    from mujoco import mjx

    model = mjx.put_model(mujoco.MjModel.from_xml_string(mjcf_chain(n, dt)))
    data = mjx.make_data(model).replace(qpos=jnp.full(n, ANGLE), qvel=jnp.full(n, RATE))
    step = lambda d, _: (mjx.step(model, d), None)  # noqa: E731
    began = time.perf_counter()
    run = jax.jit(lambda d: jax.lax.scan(step, d, None, length=steps)[0].qpos)
    compiled = run.lower(data).compile()
    compiling = time.perf_counter() - began
    compiled(data)
    return dict(steps_per_s=steps / best_of(lambda: compiled(data)), compile_s=compiling)


def brax(n: int, dt: float, steps: int) -> dict:
    from brax.generalized import pipeline
    from brax.io import mjcf

    system = mjcf.loads(mjcf_chain(n, dt))
    to_double = lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x  # noqa: E731
    state = pipeline.init(system, jnp.full(n, ANGLE), jnp.full(n, RATE))
    state = jax.tree.map(to_double, state)
    action = jnp.zeros(system.act_size())

    def step(state, _):
        after = pipeline.step(system, state, action)
        return jax.tree.map(lambda a, b: a.astype(b.dtype), after, state), None

    began = time.perf_counter()
    run = jax.jit(lambda s: jax.lax.scan(step, s, None, length=steps)[0].q)
    compiled = run.lower(state).compile()
    compiling = time.perf_counter() - began
    compiled(state)
    return dict(steps_per_s=steps / best_of(lambda: compiled(state)), compile_s=compiling)


PEERS = {"MuJoCo C": (mujoco, 1000), "MuJoCo MJX": (mjx, 20), "Brax generalized": (brax, 20)}


def report(name: str, n: int, row: dict[str, Any], own_speed: float) -> None:
    parts = [
        f"{1e6 / row['steps_per_s']:9.2f} us/step",
        f"{1e6 / row['steps_per_s'] / n:7.3f} /body",
    ]
    parts += [f"{key} {value:.3g}" for key, value in row.items() if key != "steps_per_s"]
    if row["steps_per_s"] != own_speed:
        parts.append(f"jaxmbd is {own_speed / row['steps_per_s']:.2f} times as fast")
    tqdm.write(f"  {name:17s} " + ", ".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--links", type=int, nargs="+", default=[5, 20, 80, 320])
    parser.add_argument("--batch", type=int, default=0, help="size of a batch of chains of five")
    parser.add_argument("--gradient-up-to", type=int, default=5, metavar="N")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{platform.processor() or platform.machine()}, jax {jax.__version__}, float64")
    missing = set()
    for n in tqdm(options.links, desc="chains"):
        steps = max(100, 20000 // (n + 5))
        row = own(
            chain(n), 2e-3, steps, options.batch if n == 5 else 0, n <= options.gradient_up_to
        )
        tqdm.write(f"chain of {n}")
        report("jaxmbd", n, row, row["steps_per_s"])
        for name, (run, largest) in PEERS.items():
            if n > largest or name in missing:
                continue
            try:
                report(name, n, run(n, 2e-3, max(20, steps // 4)), row["steps_per_s"])
            except ImportError as error:
                missing.add(name)
                tqdm.write(f"  {name:17s} left out: {error}")
    row = own(four_bar(), 1e-3, 2000, 0, True)
    tqdm.write("four-bar")
    report("jaxmbd", 3, row, row["steps_per_s"])


if __name__ == "__main__":
    main()
