"""Time and residual of each part of a motion with contacts, beside MuJoCo's C code.

The same scene falls, collides and comes to rest, for 750 steps of 2 ms on one core in float64. Both
simulators go through it in chunks of 25 steps. Times are CPU time of the best of three runs of each
chunk: the mean, and that of the worst chunk, in microseconds per step. `contacts` is the mean
number of points that carry load in jaxmbd; `residual` is the largest of the contact problems of all
steps, followed by the number of steps in which it is above 1e-8 m/s. A run of jaxmbd that fails
ends there, and its first line says why. What a call of a compiled program takes before its first
step (`calls`), which a whole simulation pays once, is measured by a call without steps and left
out, as MuJoCo's copy of its state is.

jaxmbd (`ContactImpulse`) solves Coulomb's law between rigid bodies. MuJoCo solves a convex
relaxation with soft contacts, here with elliptic cones and its Newton method.

    taskset -c 1 python benchmarks/piles.py
    taskset -c 1 python benchmarks/piles.py --spheres 64 --stacks --walls --no-robot --no-box

Scenes (see `contacts.py` for the first three): piles of spheres, stacks of boxes, the robot on four
feet, a box at rest, and walls of rows of boxes, each one box shorter than the row beneath it.
"""

import argparse
import itertools
import platform
import time
from typing import Any, NamedTuple

import contacts
import jax
import numpy as np
from contacts import Scene
from tqdm import tqdm

import jaxmbd as mbd

TOLERANCE = 1e-8  # of residuals [m/s]
PARTS = (0.0, 0.2, 0.5, 1.0, 1.5)  # between these times [s]


def wall(rows: int, size=(0.4, 0.2, 0.2), joint: float = 0.01) -> Scene:
    """Boxes on gaps between boxes, with vertical joints between those of a row."""
    inertia = mbd.Inertia.box(size=size, mass=1.0)
    geom = f'<geom type="box" size="{contacts.numbers(np.array(size) / 2)}" mass="1"/>'
    bodies, text = [], ""
    for row in range(rows):
        for i in range(rows - row):
            place = [(size[0] + joint) * (i + row / 2), 0.0, size[2] * (row + 0.5)]
            bodies.append(mbd.Body(f"{len(bodies)}", inertia, position=place))
            text += f'<body pos="{contacts.numbers(place)}"><freejoint/>{geom}</body>'
    still, count = np.zeros((len(bodies), 3)), len(bodies)
    name = f"wall of {count} boxes"
    return contacts.among(name, bodies, mbd.Box(size=size), text, still, 8 * count, 16 * count)


class Run(NamedTuple):
    """Microseconds of each chunk, and of each step the number of contacts and, for jaxmbd, the
    residual; seconds to compile; microseconds of a call without steps; what went wrong."""

    times: np.ndarray
    contacts: np.ndarray
    residuals: np.ndarray | None = None
    compiling: float = 0.0
    calling: float = 0.0
    failure: str = ""


def own_run(scene: Scene, dt: float, steps: int, chunk: int, repeats: int) -> Run:
    stepper = mbd.Stepper(scene.mechanism, mbd.ContactImpulse())

    def one(state, _):
        # The residual of a state is the largest so far.
        state = state.replace(contacts=state.contacts._replace(residual=0.0 * state.t))
        state = stepper.step(state, dt)
        touching = (state.contacts.force[:, 0] > 0).sum()
        return state, (touching, state.contacts.residual, state.result)

    state = stepper.init(scene.mechanism.state())
    begin = time.perf_counter()
    run = jax.jit(lambda s: jax.lax.scan(one, s, None, length=chunk)).lower(state).compile()
    seconds = time.perf_counter() - begin
    jax.block_until_ready(run(state))
    nothing = jax.jit(lambda s: jax.lax.scan(one, s, None, length=0)).lower(state).compile()
    calling = quickest(lambda: nothing(state), 10 * repeats)[0]
    times, found, failure = [], [], ""
    for k in tqdm(range(steps // chunk), desc=scene.name, leave=False):
        best, (after, (*figures, results)) = quickest(lambda state=state: run(state), repeats)
        if after.result != mbd.RESULTS.successful:
            good = int(np.argmax(np.asarray(results != mbd.RESULTS.successful)))
            failure = f"fails in step {k * chunk + good}: {mbd.RESULTS[after.result].split('.')[0]}"
            tqdm.write(f"  residual of that step {float(figures[1][good]):.1e} m/s")
            break
        state = after
        times.append((best - calling) / chunk * 1e6)
        found.append(figures)
    touching, residuals = (np.concatenate(x) for x in zip(*found, strict=True))
    return Run(np.array(times), touching, residuals, seconds, calling * 1e6, failure)


def mujoco_run(scene: Scene, dt: float, steps: int, chunk: int, repeats: int) -> Run:
    import mujoco

    model = mujoco.MjModel.from_xml_string(contacts.mjcf(scene, dt, 'cone="elliptic"'))
    state, after = mujoco.MjData(model), mujoco.MjData(model)
    state.qvel[:] = contacts.start_velocities(model, scene)

    def run():
        mujoco.mj_copyData(after, model, state)
        begin = time.process_time()
        mujoco.mj_step(model, after, nstep=chunk)
        return time.process_time() - begin

    times, touching = [], []
    for _ in range(steps // chunk):
        times.append(min(run() for _ in range(repeats)) / chunk * 1e6)
        state, after = after, state
        touching += [state.ncon] * chunk
    return Run(np.array(times), np.array(touching))


def quickest(run, repeats: int) -> tuple[float, Any]:
    """Its least CPU time [s], and what it returns."""
    best, out = np.inf, None
    for _ in range(repeats):
        begin = time.process_time()
        out = jax.block_until_ready(run())
        best = min(best, time.process_time() - begin)
    return best, out


def report(scene: Scene, own: Run, other: Run | None, dt: float, chunk: int) -> None:
    title = f"{scene.name}, compiled in {own.compiling:.0f} s, calls {own.calling:.0f} us"
    tqdm.write(title + (f", {own.failure}" if own.failure else ""))
    tqdm.write(
        f"  {'time [s]':12} {'own mean':>9} {'worst':>8} | {'MuJoCo mean':>11} {'worst':>8} |"
        f" {'ratio':>6} | contacts  residual  above {TOLERANCE:.0e}"
    )
    assert own.residuals is not None
    end = len(own.residuals)
    edges = [min(end, round(t / dt / chunk) * chunk) for t in PARTS]
    for a, b in [*itertools.pairwise(edges), (0, end)]:
        if a == b:
            continue
        chunks, these = slice(a // chunk, b // chunk), slice(a, b)
        t, residual = own.times[chunks], own.residuals[these]
        if other is None:
            beside = f"{'-':>11} {'-':>8} | {'-':>6}"
        else:
            m = other.times[chunks]
            beside = f"{m.mean():11.1f} {m.max():8.1f} | {t.mean() / m.mean():6.2f}"
        tqdm.write(
            f"  {a * dt:.2f} to {b * dt:.2f} {t.mean():9.1f} {t.max():8.1f} | {beside} |"
            f" {own.contacts[these].mean():8.1f}  {residual.max():.1e}"
            f" {(residual > TOLERANCE).sum():5d} of {b - a}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spheres", type=int, nargs="*", default=[8, 64, 216, 1000])
    parser.add_argument("--stacks", type=int, nargs="*", default=[10, 20], metavar="BOXES")
    parser.add_argument("--walls", type=int, nargs="*", default=[10], metavar="ROWS")
    parser.add_argument("--robot", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--box", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--dt", type=float, default=2e-3, help="step [s]")
    parser.add_argument("--steps", type=int, default=750)
    parser.add_argument("--chunk", type=int, default=25, help="steps between readings of the clock")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{platform.processor() or platform.machine()}, jax {jax.__version__}, float64")
    scenes = [lambda: contacts.stack(1, speed=0.0)._replace(name="box at rest")] * options.box
    scenes += [contacts.robot] * options.robot
    scenes += [lambda n=n: contacts.stack(n) for n in options.stacks]
    scenes += [lambda n=n: wall(n) for n in options.walls]
    scenes += [lambda n=n: contacts.pile(n) for n in options.spheres]
    for make in scenes:
        scene = make()
        sizes = options.dt, options.steps, options.chunk, options.repeats
        try:
            other = mujoco_run(scene, *sizes)
        except ImportError:
            other = None
        report(scene, own_run(scene, *sizes), other, options.dt, options.chunk)


if __name__ == "__main__":
    main()
