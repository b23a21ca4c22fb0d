"""How exactly must the bars of a four-bar linkage be made? Thousands of linkages tell.

Each sample is a crank-rocker whose lengths are drawn from their tolerances, as a shop would make
them, and which is simulated for a turn of its crank. Of interest is the point of the coupler that
carries the tool: how far it is off its nominal path at worst, and the largest force in the hinge of
the rocker. Mean, deviation, histogram, worst case and correlation with each length are kept while
the samples go by, and no motion is. Linkages that cannot be assembled or turned fail; they are left
out and listed.

Two truths to compare with: the path of each linkage from the meeting of two circles, and the
deviation that errors of first order predict, from derivatives of that path.

With `--store` the results of all samples go to disk as well; a study that was interrupted goes on
when it is started again.

    python examples/monte_carlo.py --output monte_carlo.png
    python examples/monte_carlo.py --samples 100000 --store study.zarr
    python examples/monte_carlo.py --tolerance 60        # in mm: many of these do not turn
"""

import argparse
import pathlib

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from four_bar import DENSITY, LENGTHS, SPEED, pins
from jaxtyping import Array

import jaxmbd as mbd

NAMES = ["base", "crank", "coupler", "rocker"]
TOOL = np.array([0.45, 0.3])  # in the frame of the coupler, which is at the crank pin [m]
STEPS, EVERY = 120, 3  # of a turn; which of them are looked at
ANGLES = np.linspace(0, 2 * np.pi, STEPS // EVERY + 1)[1:]  # of the crank
MM = 1e3


def tool(crank_pin, rocker_pin):
    """Where the tool is [m]."""
    x, y = (rocker_pin - crank_pin) / jnp.linalg.norm(rocker_pin - crank_pin)
    return crank_pin + TOOL[0] * jnp.stack([x, y]) + TOOL[1] * jnp.stack([-y, x])


def tool_path(lengths):
    """At all angles, from geometry alone [m]."""
    return jax.vmap(lambda angle: tool(*pins(angle, lengths)))(jnp.asarray(ANGLES))


class Linkage(mbd.AbstractSystem):
    """Three uniform bars, described by the ends of all: two fixed hinges with two moving ones
    between them. So the multipliers of the rows that fix a hinge are the force in it."""

    lengths: Array

    def mass_matrix(self, q):
        # Of a bar with ends a and b that move linearly along it: m / 6 (2 a'^2 + 2 a' b' + 2 b'^2).
        M = jnp.zeros((4, 4))
        for i in range(3):
            m = DENSITY * self.lengths[i + 1]
            M = M.at[i : i + 2, i : i + 2].add(m / 6 * jnp.array([[2.0, 1.0], [1.0, 2.0]]))
        return jnp.kron(M, jnp.eye(2))

    def force(self, t, q, v, u):
        return self.mass_matrix(q) @ jnp.tile(jnp.array([0.0, -9.81]), 4)

    def constraint(self, q, t):
        p, angle = q.reshape(4, 2), SPEED * t
        bars = jnp.sum(jnp.diff(p, axis=0) ** 2, axis=1) - self.lengths[1:] ** 2
        dx, dy = p[1] - p[0]
        drive = dy * jnp.cos(angle) - dx * jnp.sin(angle)
        pivot = p[3] - self.lengths[0] * jnp.array([1.0, 0.0])
        return jnp.concatenate([pivot, p[0], bars, drive[None]])


class Study(eqx.Module):
    """One linkage of random lengths; `tolerance`: their standard deviation [m]."""

    tolerance: Array

    def __call__(self, index, key):
        error = self.tolerance * jax.random.normal(key, (4,))
        lengths = jnp.asarray(LENGTHS) + error
        hinges, velocities = jax.jvp(lambda angle: pins(angle, lengths), (0.0,), (SPEED,))
        origin, pivot = jnp.zeros(2), lengths[0] * jnp.array([1.0, 0.0])
        q = jnp.concatenate([origin, *hinges, pivot])
        v = jnp.concatenate([origin, *velocities, origin])
        turn = 2 * np.pi / SPEED
        sol = mbd.simulate(
            Linkage(lengths),
            mbd.UdwadiaKalaba(mbd.Cholesky()),
            mbd.State(0.0, q, v),
            t1=turn,
            dt=turn / STEPS,
            saveat=diffrax.SaveAt(steps=EVERY),
            throw=False,
        )
        path = jax.vmap(tool)(sol.q[:, 2:4], sol.q[:, 4:6])
        off = jnp.linalg.norm(path - tool_path(jnp.asarray(LENGTHS)), axis=1)
        return {
            "lengths": error,
            "path": path,
            "off": jnp.max(off),
            "force": jnp.max(jnp.linalg.norm(sol.multipliers[:, :2], axis=1)),
            "beside_geometry": jnp.max(jnp.abs(path - tool_path(lengths))),
            "result": sol.result,
        }


def statistics(tolerance):
    """What is kept of all samples."""
    off = lambda y: y["off"]  # noqa: E731
    return {
        "path": mbd.rollout.Moments(lambda y: y["path"]),
        "off": mbd.rollout.Histogram(jnp.linspace(0.0, 8.0 * tolerance, 41), off),
        "forces": mbd.rollout.Moments(lambda y: y["force"]),
        "worst": mbd.rollout.Extremes(lambda y: (y["off"], y["beside_geometry"])),
        "together": mbd.rollout.Covariance(lambda y: (y["lengths"], y["path"][:, 1], y["force"])),
    }


def first_order(tolerance):
    """Standard deviations of the path, shape `(angles, 2)`, as errors of first order add up."""
    J = jax.jacfwd(tool_path)(jnp.asarray(LENGTHS))
    return tolerance * np.linalg.norm(J, axis=2)


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/monte_carlo.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--tolerance", type=float, default=0.5, metavar="MM")
    parser.add_argument("--store", type=pathlib.Path, metavar="FOLDER", help="for all results")
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    tolerance, key = arguments.tolerance / MM, jax.random.key(2026)
    study = Study(jnp.asarray(tolerance))
    rollouts = mbd.rollout.run(
        study,
        arguments.samples,
        key=key,
        reductions=statistics(tolerance),
        store=arguments.store and mbd.rollout.Zarr(arguments.store),
    )
    print(rollouts)

    found = rollouts.statistics
    if found["path"] is None:
        return
    off, beside = found["worst"].max
    print(f"\nbeside the path from geometry: {MM * beside:.1e} mm at most")
    deviation = found["path"].deviation
    print(f"deviation of the path: {MM * deviation.min():.3f} to {MM * deviation.max():.3f} mm; "
          f"by first order {MM * first_order(tolerance).min():.3f} to "
          f"{MM * first_order(tolerance).max():.3f} mm")  # fmt: skip
    force, spread = found["forces"].mean, found["forces"].deviation
    print(f"largest force in the hinge of the rocker: {force:.2f} +- {spread:.2f} N")

    # The key of a sample depends on its index alone: any of them can be had once more.
    index = found["worst"].argmax[0]
    worst = eqx.filter_jit(study)(index, jax.random.fold_in(key, index))
    errors = ", ".join(f"{n} {MM * x:+.2f}" for n, x in zip(NAMES, worst["lengths"], strict=True))
    print(f"worst is sample {index}, {MM * off:.2f} mm off; errors in mm: {errors}")

    draw(found, worst, tolerance).savefig(arguments.output, dpi=120)
    print(f"picture: {arguments.output}")


def draw(found, worst, tolerance):
    figure = plt.figure(figsize=(12, 3.8), layout="constrained")
    path, histogram, shares = figure.subplots(1, 3)
    nominal = np.asarray(tool_path(jnp.asarray(LENGTHS)))
    closed = lambda x: np.vstack([x, x[:1]])  # noqa: E731
    exaggerated = max(1.0, 0.1 / float(worst["off"]))
    path.plot(*closed(nominal).T, "k-", lw=0.9, label="nominal")
    others = closed(nominal + exaggerated * (np.asarray(worst["path"]) - nominal))
    path.plot(*others.T, "-", color="tab:red", lw=0.9, label="worst")
    path.errorbar(
        *nominal.T,
        *(exaggerated * found["path"].deviation[:, ::-1].T),
        fmt=".",
        color="tab:blue",
        elinewidth=0.8,
        label="standard deviation",
    )
    title = f"Path of the tool, errors {exaggerated:.0f} times as large"
    path.set(title=title, xlabel="x [m]", ylabel="y [m]")
    path.set_aspect("equal", adjustable="datalim")
    path.legend(fontsize=8)

    counts = found["off"]
    histogram.stairs(counts.counts, MM * counts.edges, fill=True)
    histogram.set(title="Off the path at worst", xlabel="[mm]", ylabel="linkages")

    # Of independent causes, squares of correlations are shares of the variance.
    correlation = found["together"].correlation[:4, 4:-1]
    shares.stackplot(np.degrees(ANGLES), correlation**2, labels=NAMES)
    shares.set(
        title="Where the error of height is from",
        xlabel="crank angle [degrees]",
        ylabel="share of the variance",
    )
    shares.set_xticks(range(0, 361, 90))
    shares.legend(fontsize=8, loc="lower right")
    for axis in (path, histogram, shares):
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()
