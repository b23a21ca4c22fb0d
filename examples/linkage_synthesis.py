"""Design a four-bar linkage whose coupler point follows a given curve.

The linkage is written in redundant coordinates, the angles of crank, coupler and rocker, with the
two rows that close the loop. For each angle of the crank `assemble` closes the loop; its derivative
with respect to the lengths is the implicit one. Levenberg and Marquardt's method finds the lengths
from many random starts at once, compiled once.

Two tasks with known answers: lengths that made a curve are found again from the curve alone (or
its cognate, the other linkage that draws the curve at the same pace, by Roberts), and a
linkage for a straight line is found that is at least as straight as Hoecken's.

References: Norton (2011), Design of machinery, chapters 3 and 5; Roberts (1875), On three-bar
motion in plane space, Proceedings of the London Mathematical Society 7.

    python examples/linkage_synthesis.py --output linkage_synthesis.png
"""

import argparse
import pathlib
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import optimistix as optx
import tqdm
from jaxtyping import Array
from matplotlib.animation import FuncAnimation

import jaxmbd as mbd

# What a residual is worth where the linkage cannot be closed, relative to the size of the curve.
OPEN = 1.0


class Design(eqx.Module):
    """A four-bar linkage in the plane, in metres and radians.

    The crank turns about `pivot`; from there the base leads to the hinge of the rocker, at the
    angle `tilt`. The coupler point lies at (along, across) from the crank's tip, along the coupler
    and to its left. `log_lengths`: logarithms of (base, crank, coupler, rocker)."""

    log_lengths: Array
    point: Array
    pivot: Array
    tilt: Array

    @property
    def lengths(self) -> Array:
        return jnp.exp(self.log_lengths)


class FourBar(mbd.AbstractSystem):
    """q = (crank, coupler, rocker): angles from the base."""

    design: Design

    def mass_matrix(self, q):
        return jnp.eye(3, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)

    def constraint(self, q, t):
        base, crank, coupler, rocker = self.design.lengths
        way = crank * unit(q[0]) + coupler * unit(q[1]) - rocker * unit(q[2])
        return way - base * jnp.array([1.0, 0.0], q.dtype)


def unit(angle):
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def closed(design: Design, crank, branch):
    """Angles of coupler and rocker by triangles, on one of the two branches, as a guess that
    `assemble` makes exact, and by how much the triangle does not close."""
    base, a, b, c = (jax.lax.stop_gradient(x) for x in design.lengths)
    tip = a * unit(crank)
    diagonal = jnp.array([1.0, 0.0]) * base - tip
    d = jnp.sqrt(diagonal @ diagonal)
    cosine = (b**2 + d**2 - c**2) / (2 * b * d)
    turn = branch * jnp.arccos(jnp.clip(cosine, -0.999999, 0.999999))
    coupler = jnp.arctan2(diagonal[1], diagonal[0]) + turn
    end = tip + b * unit(coupler)
    rocker = jnp.arctan2(end[1], end[0] - base)
    return jnp.stack([crank, coupler, rocker]), jnp.abs(cosine) <= 1


def coupler_point(design: Design, crank, branch):
    """Where the coupler point is [m], and whether the loop closes there."""
    guess, closes = closed(design, crank, branch)
    state = mbd.assemble(FourBar(design), guess, fixed=[0], max_iterations=8, throw=False)
    a = design.lengths[1]
    along, across = design.point
    local = (a * unit(crank)) + along * unit(state.q[1]) + across * unit(state.q[1] + jnp.pi / 2)
    c, s = jnp.cos(design.tilt), jnp.sin(design.tilt)
    turned = jnp.stack([c * local[0] - s * local[1], s * local[0] + c * local[1]])
    return design.pivot + turned, closes


def curve(design: Design, angles, branch):
    """The coupler curve at angles of the crank, shape `(n, 2)`, and where it is closed."""
    return jax.vmap(coupler_point, (None, 0, None))(design, angles, branch)


class Task(NamedTuple):
    """Points to pass, shape `(n, 2)`, at angles of the crank from its first one, `(n,)`."""

    points: Array
    angles: Array


class Unknowns(NamedTuple):
    """A design, and the angle of the crank at the first point."""

    design: Design
    first: Array


def residuals(unknowns: Unknowns, args):
    task, branch = args
    found, closes = curve(unknowns.design, unknowns.first + task.angles, branch)
    size = jnp.std(task.points)
    miss = jnp.where(closes[:, None], (found - task.points) / size, OPEN)
    # Where the loop does not close, by how much: the way out for the search.
    base, a, b, c = unknowns.design.lengths
    angle = unknowns.first + task.angles
    d2 = base**2 + a**2 - 2 * base * a * jnp.cos(angle)
    d = jnp.sqrt(d2)
    gap = jnp.maximum(d - (b + c), 0) + jnp.maximum(jnp.abs(b - c) - d, 0)
    return jnp.concatenate([miss.ravel(), gap / size])


def random_start(key, task: Task) -> Unknowns:
    """Lengths about the size of the curve, and a place near it."""
    size, middle = jnp.std(task.points), jnp.mean(task.points, axis=0)
    keys = jr.split(key, 5)
    spread = jnp.array([3.0, 1.0, 3.0, 3.0]) * size
    lengths = spread * jnp.exp(0.5 * jr.normal(keys[0], (4,)))
    design = Design(
        jnp.log(lengths),
        2 * size * jr.normal(keys[1], (2,)),
        middle + 2 * size * jr.normal(keys[2], (2,)),
        jr.uniform(keys[3], minval=-jnp.pi, maxval=jnp.pi),
    )
    return Unknowns(design, jr.uniform(keys[4], minval=-jnp.pi, maxval=jnp.pi))


@eqx.filter_jit
def search(start: Unknowns, task: Task, branch, tolerance):
    """One search: the unknowns, and the root of the mean square of the residuals."""
    solver = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
    found = optx.least_squares(
        residuals, solver, start, (task, branch), max_steps=200, throw=False
    ).value
    r = residuals(found, (task, branch))
    return found, jnp.sqrt(jnp.mean(r**2))


def design_for(task: Task, starts: int = 64, seed: int = 0, progress: bool = True):
    """The best linkage of many searches, on both branches in turn: (unknowns, branch, error, errors
    of all)."""
    results = []
    with tqdm.tqdm(jr.split(jr.key(seed), starts), "search", disable=not progress) as keys:
        for number, key in enumerate(keys):
            branch = jnp.array(1.0 if number % 2 == 0 else -1.0)
            found, error = search(random_start(key, task), task, branch, jnp.array(1e-10))
            results.append((found, branch, float(error) if jnp.isfinite(error) else np.inf))
            best = min(results, key=lambda result: result[2])
            keys.set_postfix_str(f"residual {best[2]:.1e}")
    return *best, np.array([error for _, _, error in results])


def known_design() -> tuple[Design, float]:
    """A crank-rocker, and its branch."""
    numbers = np.log([1.0, 0.35, 0.9, 0.75]), [0.5, 0.4], [0.2, -0.1], 0.25
    return Design(*(jnp.asarray(np.array(x), float) for x in numbers)), 1.0


def known_task(points: int = 24) -> Task:
    design, branch = known_design()
    angles = jnp.linspace(0, 2 * jnp.pi, points, endpoint=False)
    return Task(curve(design, 0.4 + angles, branch)[0], angles)


def cognate(design: Design) -> Array:
    """Lengths of the other linkage that draws the curve of `design` with the crank at the same
    speed. With vectors A, B, C of crank, coupler and rocker and G of the base, A + B = G + C, and
    the coupler point at P = A + z B, also P = z G + (1 - z) A + z C: a crank (1 - z) A about z G,
    to whose tip a rocker -(1 - z) B about G is joined by a coupler -(1 - z) C."""
    base, crank, coupler, rocker = design.lengths
    along, across = design.point / coupler
    scale = jnp.sqrt((1 - along) ** 2 + across**2)
    return scale * jnp.stack([base, crank, rocker, coupler])


def hoecken() -> Design:
    """Hoecken's linkage, 2 : 1 : 2.5 : 2.5, whose point beyond the coupler runs nearly straight
    during half a turn."""
    lengths = jnp.log(jnp.array([2.0, 1.0, 2.5, 2.5]))
    zero = jnp.array(0.0)
    return Design(lengths, jnp.array([5.0, 0.0]), jnp.zeros(2), zero)


def straight_task(points: int = 19) -> tuple[Task, float, float]:
    """The straight line through Hoecken's curve at the same angles of the crank, during half a
    turn; and how far that curve is from it: root of the mean square, and at most [m]."""
    angles = jnp.pi * jnp.linspace(0, 1, points)
    drawn = curve(hoecken(), jnp.pi / 2 + angles, 1.0)[0]
    line = drawn.at[:, 1].set(jnp.mean(drawn[:, 1]))
    return Task(line, angles), *deviation(drawn, line)


def deviation(points, line) -> tuple[float, float]:
    """Distance of points on a curve from those on a level line, across it."""
    across = points[:, 1] - line[:, 1]
    return float(jnp.sqrt(jnp.mean(across**2))), float(jnp.max(jnp.abs(across)))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/linkage_synthesis.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=64, help="random starts of each search")
    parser.add_argument("--output", type=pathlib.Path, default=output)
    parser.add_argument("--animation", type=pathlib.Path, metavar="GIF")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    task, (truth, _) = known_task(), known_design()
    found, branch, error, errors = design_for(task, arguments.starts)
    print("a curve of a known linkage: base, crank, coupler, rocker [m]")
    print(f"  drawn by    {np.asarray(truth.lengths).round(6)}")
    print(f"  its cognate {np.asarray(cognate(truth)).round(6)}")
    print(f"  found       {np.asarray(found.design.lengths).round(6)}")
    exact = int(np.sum(errors < 1e-6))
    print(f"  residual {float(error):.1e}; {exact} of {arguments.starts} starts end there")

    line, rms, most = straight_task()
    straight, side, _, _ = design_for(line, arguments.starts, seed=1)
    drawn = curve(straight.design, straight.first + line.angles, side)[0]
    stroke = float(jnp.ptp(line.points[:, 0]))
    own_rms, own_most = deviation(drawn, line.points)
    print(f"a straight line of {stroke:.3f} m in half a turn: distance from it")
    print(f"  Hoecken's linkage {rms:.2e} m rms, {most:.2e} m at most ({most / stroke:.2%})")
    print(f"  found             {own_rms:.2e} m rms, {own_most:.2e} m at most")
    print(f"  its lengths       {np.asarray(straight.design.lengths).round(4)}")

    pairs = [(task, found, branch), (line, straight, side)]
    draw(pairs).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")
    if arguments.animation:
        animation(*pairs[0]).save(arguments.animation, fps=20)


def joints(design: Design, crank, branch) -> tuple[np.ndarray, np.ndarray]:
    """Hinges from the pivot to the rocker's, shape `(4, 2)`, and the coupler point."""
    q, _ = closed(design, crank, branch)
    base, a, b, _ = design.lengths
    tip = a * unit(q[0])
    points = jnp.stack([jnp.zeros(2), tip, tip + b * unit(q[1]), base * jnp.array([1.0, 0.0])])
    c, s = jnp.cos(design.tilt), jnp.sin(design.tilt)
    turn = jnp.array([[c, s], [-s, c]])
    return np.asarray(points @ turn + design.pivot), np.asarray(
        coupler_point(design, crank, branch)[0]
    )


def draw(pairs):
    figure, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
    titles = ("Found again from its curve", "A straight line in half a turn")
    for axis, title, (task, found, branch) in zip(axes, titles, pairs):
        whole = found.first + jnp.linspace(0, 2 * jnp.pi, 200)
        drawn, closes = curve(found.design, whole, branch)
        axis.plot(*np.where(np.asarray(closes), drawn.T, np.nan), color="C0", lw=1)
        axis.plot(*task.points.T, "o", color="C3", ms=4, label="to pass")
        hinges, point = joints(found.design, found.first, branch)
        axis.plot(*hinges.T, "o-", color="0.3")
        axis.fill(*np.stack([hinges[1], hinges[2], point]).T, color="0.8")
        axis.set(title=title, xlabel="x [m]", ylabel="y [m]", aspect="equal")
        axis.legend()
    return figure


def animation(task, found, branch):
    figure, axis = plt.subplots(figsize=(5, 5), layout="constrained")
    axis.plot(*task.points.T, "o", color="C3", ms=3)
    (bars,) = axis.plot([], [], "o-", color="0.3")
    (arm,) = axis.plot([], [], "-", color="C0")
    frames = [
        joints(found.design, found.first + angle, branch)
        for angle in np.linspace(0, 2 * np.pi, 60, endpoint=False)
    ]
    seen = np.concatenate([np.concatenate([hinges, point[None]]) for hinges, point in frames])
    axis.set(xlim=(seen[:, 0].min(), seen[:, 0].max()), ylim=(seen[:, 1].min(), seen[:, 1].max()))
    axis.set_aspect("equal")

    def show(frame):
        hinges, point = frames[frame]
        bars.set_data(*hinges.T)
        arm.set_data(*np.stack([hinges[1], point, hinges[2]]).T)
        return bars, arm

    return FuncAnimation(figure, show, len(frames))


if __name__ == "__main__":
    main()
