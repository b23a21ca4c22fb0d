"""`jaxmbd inspect`."""

from typing import Any

import click
import numpy as np

from .models import load, model_argument


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
        ax = mbd.plots.constraint_graph(mechanism, found.state)
        ax.figure.savefig(graph, dpi=150)
        click.echo(f"wrote {graph}")


_TAB = "\n             "


def lines(found: Any) -> list[str]:
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
