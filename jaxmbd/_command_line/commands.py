"""The command and its subcommands, and how errors are told."""

import math
import pathlib
import time
import warnings
from typing import Any

import click
import numpy as np

from . import runs
from .fit import fit
from .models import (
    Model,
    Options,
    give_up,
    load,
    method_of,
    model_argument,
    simulation_options,
    verdict,
    with_contacts,
)


@click.command()
@model_argument
@simulation_options(contacts="all")
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    help="File of the motion: .npz with everything, .csv with joint coordinates, .zarr.",
)
def simulate(model: str, options: Options, output: str | None) -> None:
    """Simulate MODEL from its start, and write the motion.

    \b
    Examples:
      jaxmbd simulate robot.xml --t1 10 --output run.npz
      jaxmbd simulate arm.urdf --start shoulder=0.3 --start elbow=-1.2
      jaxmbd simulate arm.urdf --dt 1e-3 --control elbow=2.5 --output motion.csv
    """
    if output is not None:
        runs.check_output(output, ".npz", ".csv", ".zarr")
    found = options.load(model)
    begin = time.perf_counter()
    solution = options.motion(found)
    wrong = verdict(solution)
    click.echo(
        f"simulated {options.t1:g} s in {time.perf_counter() - begin:.1f} s, compilation included; "
        f"largest |Phi| {float(np.max(np.asarray(solution.phi_norm), initial=0.0)):.1e}"
    )
    if output is not None:
        runs.save(output, found, solution)
        click.echo(f"wrote {output}")
    if wrong is not None:
        give_up(f"the simulation failed, and the motion is held from there: {wrong}")


@click.command()
@click.argument("model", metavar="MODEL|RUN", type=click.Path())
@simulation_options(contacts="floor")
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    help="Write the page as .html, and open nothing.",
)
@click.option("--live", is_flag=True, help="Run MODEL live, with sliders for its controls.")
@click.option(
    "--model",
    "motion_of",
    type=click.Path(),
    help="Model of RUN, if it is no longer where it was simulated from.",
)
@click.option("--port", type=int, default=0, help="Port of the page; by default a free one.")
@click.option("--browser/--no-browser", default=True, help="Open the browser.")
def view(
    model: str,
    options: Options,
    output: str | None,
    live: bool,
    motion_of: str | None,
    port: int,
    browser: bool,
) -> None:
    """Show a motion in the browser: one of `jaxmbd simulate`, or MODEL simulated now.

    \b
    Examples:
      jaxmbd view robot.xml
      jaxmbd view arm.urdf --start shoulder=0.3
      jaxmbd view run.npz
      jaxmbd view robot.xml --t1 10 --output robot.html
      jaxmbd view robot.xml --live
    """
    import jaxmbd as mbd

    if output is not None:
        runs.check_output(output, ".html")
    if pathlib.Path(model).suffix.lower() == ".npz":
        if not pathlib.Path(model).is_file():
            raise ValueError(f"There is no file {model!r}.")
        source, names, solution = runs.read(model, motion_of)
        found = load(source, contacts="none" if names == [] else "all")
        if names is not None:
            found = found._replace(loaded=with_contacts(found.loaded, names))
    else:
        found = options.load(model)
        if live:
            _live(found, options, browser)
            return
        solution = options.motion(found)
    title = pathlib.Path(model).name
    page: Any = mbd.view(
        found.mechanism, solution, visuals=found.loaded.visuals, fps=options.rate, title=title
    )
    if output is not None:
        click.echo(f"wrote {page.save(output)}, {len(page.html) / 1e6:.1f} MB")
    else:
        _serve(page.show(port) if browser else page.serve(port))
    wrong = verdict(solution)
    if wrong is not None:
        give_up(f"the simulation failed, and the motion is shown up to there: {wrong}")


def _live(found: Model, options: Options, browser: bool) -> None:
    import jaxmbd as mbd

    stepper = mbd.Stepper(found.mechanism, method_of(options.method, found.mechanism))
    controls = {
        c.name: (c.lower, c.upper) if math.isfinite(c.lower + c.upper) else (-1.0, 1.0)
        for c in found.loaded.controls
    }
    viewer: Any = mbd.view(
        stepper,
        found.state,
        dt=options.step(found),
        controls=controls,
        visuals=found.loaded.visuals,
    )
    viewer.run()
    _serve(viewer.show() if browser else viewer.address)
    viewer.stop()


def _serve(address: str) -> None:
    click.echo(f"{address} - end with Ctrl-C")
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        click.echo()


@click.command()
@model_argument
@click.option(
    "--graph", type=click.Path(dir_okay=False), help="Also draw the graph of bodies and joints."
)
def inspect(model: str, graph: str | None) -> None:
    """Tell bodies, joints, freedoms, redundant rows, mass, centre and controls of MODEL.

    \b
    Examples:
      jaxmbd inspect robot.xml
      jaxmbd inspect cassie.sdf --graph cassie.png
    """
    import jaxmbd as mbd

    found = load(model)
    mechanism = found.mechanism
    click.echo("\n".join(lines(found)))
    click.echo(f"freedoms     {mbd.reports.mobility(mechanism, found.state)}".replace("\n", _TAB))
    dropped = found.loaded.dropped
    click.echo(f"dropped      {len(dropped)}" + "".join(f"{_TAB}{line}" for line in dropped))
    if graph is not None:
        figure: Any = mbd.plots.constraint_graph(mechanism, found.state).figure
        figure.savefig(graph, dpi=150)
        click.echo(f"wrote {graph}")


_TAB = "\n             "


def lines(found: Model) -> list[str]:
    """What is told of a model before its freedoms."""
    mechanism, q = found.mechanism, np.asarray(found.state.q)
    masses = {b.name: float(b.inertia.mass) for b in mechanism.bodies}
    told = [f"model        {found.loaded.source}"]
    bodies = [f"{name}  {mass:.6g} kg" for name, mass in masses.items()]
    told.append(f"bodies       {len(masses)}" + "".join(_TAB + line for line in bodies))
    joints = [f"{j.name}  {type(j).__name__}, {' - '.join(j.bodies)}" for j in mechanism.joints]
    told.append(f"joints       {len(joints)}" + "".join(_TAB + line for line in joints))
    for kind in ("forces", "contacts"):
        elements = getattr(mechanism, kind)
        names = [f"{e.name}  {type(e).__name__}" for e in elements]
        told.append(f"{kind:12} {len(names)}" + "".join(_TAB + line for line in names))
    total = sum(masses.values())
    center = sum(
        masses[b.name] * np.asarray(mechanism.pose(q, b.name).point(b.inertia.center))
        for b in mechanism.bodies
    )
    told.append(f"mass         {total:.6g} kg")
    told.append(f"centre       {', '.join(f'{x:.6g}' for x in np.asarray(center) / total)} m")
    bounds = [f"{c.name}  {c.lower:g} to {c.upper:g}" for c in found.loaded.controls]
    told.append(f"controls     {len(bounds)}" + "".join(_TAB + line for line in bounds))
    keys = sorted(found.loaded.keyframes)
    if keys:
        told.append(f"keyframes    {', '.join(keys)}")
    return told


@click.command()
@model_argument
@simulation_options(contacts="all")
@click.option("--tolerance", type=float, help="End with code 3 if a joint differs by more.")
def compare(model: str, options: Options, tolerance: float | None) -> None:
    """Simulate MODEL here and in MuJoCo with the same step, and tell the difference over time.

    \b
    Examples:
      jaxmbd compare robot.xml --t1 1
      jaxmbd compare arm.urdf --t1 0.5 --dt 1e-4 --tolerance 1e-3
    """
    if pathlib.Path(model).suffix.lower() not in (".xml", ".mjcf", ".urdf"):
        raise ValueError(f"MuJoCo reads MJCF and URDF, so it cannot be compared for {model!r}.")
    found = options.load(model)
    solution = options.motion(found)
    wrong = verdict(solution)
    if wrong is not None:
        give_up(f"the simulation failed: {wrong}")
    times = np.asarray(solution.t) - float(found.state.t)
    own, _ = (np.asarray(x) for x in found.loaded.qpos_qvel(solution))
    other, opening = in_mujoco(found, times, options.step(found))
    off = differences(found, own, other)
    click.echo(f"{'t [s]':>9} {'joints [rad, m]':>16} {'open here':>12} {'open in MuJoCo':>15}")
    here = np.asarray(solution.phi_norm)
    for i in np.unique(np.linspace(0, len(times) - 1, 11).astype(int)):
        click.echo(f"{times[i]:9.3f} {off[i].max():16.3e} {here[i]:12.1e} {opening[i]:15.1e}")
    worst = int(np.argmax(off.max(axis=0)))
    click.echo(
        f"largest difference {off.max():.3e}, of the joint {found.loaded.joints[worst].name}"
    )
    if tolerance is not None and off.max() > tolerance:
        give_up(f"the motions differ by {off.max():.3e}, more than {tolerance:g}.")


def in_mujoco(model: Model, times: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """qpos in MuJoCo at the times, and by how much equality constraints are open there."""
    from jaxmbd.io.compiled import compiled, imported

    mujoco = imported()
    m = compiled(model.loaded.source).m
    m.opt.timestep = dt
    d: Any = mujoco.MjData(m)
    qpos, qvel = model.loaded.qpos_qvel(model.state)
    d.qpos[:], d.qvel[:], d.ctrl[:] = np.asarray(qpos), np.asarray(qvel), model.control
    mujoco.mj_forward(m, d)
    found, opening = [], []
    for t in times:
        while d.time < t - 0.5 * dt:
            mujoco.mj_step(m, d)
        mujoco.mj_fwdPosition(m, d)
        found.append(np.array(d.qpos))
        rows = d.efc_type[: d.nefc] == mujoco.mjtConstraint.mjCNSTR_EQUALITY
        opening.append(float(np.max(np.abs(d.efc_pos[: d.nefc][rows]), initial=0.0)))
    return np.array(found), np.array(opening)


def differences(model: Model, own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Difference of each joint over time: angle [rad] or distance [m], `(times, joints)`."""
    found = []
    for joint in model.loaded.joints:
        i = joint.qpos
        x, y = own[:, i:], other[:, i:]
        if joint.kind in ("hinge", "slide"):
            d = x[:, 0] - y[:, 0]
            wrapped = np.arctan2(np.sin(d), np.cos(d))
            found.append(np.abs(wrapped if joint.kind == "hinge" else d))
            continue
        turn = 3 if joint.kind == "free" else 0
        p = np.abs(np.sum(x[:, turn : turn + 4] * y[:, turn : turn + 4], axis=1))
        angle = 2 * np.arccos(np.clip(p, 0.0, 1.0))
        shift = np.linalg.norm(x[:, :turn] - y[:, :turn], axis=1)
        found.append(np.maximum(angle, shift))
    return np.stack(found, axis=1)


class _Group(click.Group):
    """Commands whose errors are one line, with exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, ImportError, OSError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise click.ClickException(" ".join(lines) or type(error).__name__) from error


@click.group(
    cls=_Group,
    epilog="Exit codes: 0 success, 1 bad model or data, 2 wrong usage, 3 the numerical result is "
    "not to be trusted.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="jaxmbd")
def cli() -> None:
    """Look at models of mechanisms, simulate and view them, and fit their parameters.

    MODEL is a file in MJCF, URDF or SDF, or one that `mbd.save` has written.

    \b
    Examples:
      jaxmbd inspect robot.xml
      jaxmbd view robot.xml
      jaxmbd simulate robot.xml --t1 5 --output run.npz
      jaxmbd view run.npz
    """


def _told(message: Any, *_: Any) -> None:
    click.echo(f"Warning: {message}", err=True)


for command in (inspect, simulate, view, fit, compare):
    cli.add_command(command)


def main() -> None:
    """The entry point of the program."""
    import jax

    import jaxmbd

    jax.config.update("jax_enable_x64", True)
    jaxmbd.compilation_cache()
    warnings.showwarning = _told
    cli.main(prog_name="jaxmbd")
