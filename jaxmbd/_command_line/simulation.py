"""`jaxmbd simulate`."""

import time

import click
import numpy as np

from . import runs
from .models import (
    contacts_option,
    give_up,
    load,
    model_argument,
    motion,
    shown,
    simulation_options,
    verdict,
)


@click.command()
@model_argument
@simulation_options
@contacts_option("all")
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    help="File of the motion: .npz with everything, .csv with joint coordinates, .zarr.",
)
def simulate(
    model, t1, dt, method, keyframe, start, control, rate, progress, contacts, output
) -> None:
    """Simulate MODEL from its start, and write the motion.

    \b
    Examples:
      jaxmbd simulate robot.xml --t1 10 --output run.npz
      jaxmbd simulate arm.urdf --start shoulder=0.3 --start elbow=-1.2
      jaxmbd simulate arm.urdf --dt 1e-3 --control elbow=2.5 --output motion.csv
    """
    if output is not None:
        runs.check_output(output, ".npz", ".csv", ".zarr")
    found = load(model, keyframe, control, contacts, start)
    begin = time.perf_counter()
    solution = motion(found, t1, dt, method, rate, shown(progress))
    wrong = verdict(solution)
    click.echo(
        f"simulated {t1:g} s in {time.perf_counter() - begin:.1f} s, compilation included; "
        f"largest |Phi| {float(np.max(np.asarray(solution.phi_norm), initial=0.0)):.1e}"
    )
    if output is not None:
        runs.save(output, found, solution)
        click.echo(f"wrote {output}")
    if wrong is not None:
        give_up(f"the simulation failed, and the motion is held from there: {wrong}")
