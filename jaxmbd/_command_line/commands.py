"""`jaxmbd view`."""

import math
import pathlib
import time
from typing import Any

import click

from . import runs
from .models import (
    contacts_option,
    give_up,
    load,
    method_of,
    motion,
    shown,
    simulation_options,
    verdict,
)


@click.command()
@click.argument("model", metavar="MODEL|RUN", type=click.Path())
@simulation_options
@contacts_option("floor")
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
    model,
    t1,
    dt,
    method,
    keyframe,
    start,
    control,
    rate,
    progress,
    contacts,
    output,
    live,
    motion_of,
    port,
    browser,
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
        source, kept, solution = runs.read(model, motion_of)
        found = load(source, contacts=kept)
    else:
        found = load(model, keyframe, control, contacts, start)
        if live:
            _live(found, dt, method, browser)
            return
        solution = motion(found, t1, dt, method, rate, shown(progress))
    title = pathlib.Path(model).name
    page: Any = mbd.view(
        found.mechanism, solution, visuals=found.loaded.visuals, fps=rate, title=title
    )
    if output is not None:
        click.echo(f"wrote {page.save(output)}, {len(page.html) / 1e6:.1f} MB")
    else:
        _serve(page.show(port) if browser else page.serve(port))
    wrong = verdict(solution)
    if wrong is not None:
        give_up(f"the simulation failed, and the motion is shown up to there: {wrong}")


def _live(found: Any, dt: float | None, method: str | None, browser: bool) -> None:
    import jaxmbd as mbd

    stepper = mbd.Stepper(found.mechanism, method_of(method, found.mechanism))
    controls = {
        c.name: (c.lower, c.upper) if math.isfinite(c.lower + c.upper) else (-1.0, 1.0)
        for c in found.loaded.controls
    }
    viewer: Any = mbd.view(
        stepper,
        found.state,
        dt=found.loaded.dt if dt is None else dt,
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
