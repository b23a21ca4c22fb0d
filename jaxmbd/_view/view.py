"""`view`: mechanisms and motions in the browser."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from .._inputs import checked, positive
from .._mechanism import GROUND, Mechanism
from .._pages import AbstractPage, Content
from .._printed import printed
from .._step import Stepper
from .live import Live
from .page import (
    header_of,
    page,
    quiet_server,
    run_header,
    scene_messages,
    stop_quietly,
    viser,
)
from .run import runs_of
from .scene import WORLD, Extent, add_ground, build, overlay_color


@checked
def view(
    mechanism: Mechanism | Stepper,
    motion: Any = None,
    *,
    visuals: Iterable[Any] = (),
    fps: Annotated[float, positive] = 60.0,
    speed: Annotated[float, positive] = 1.0,
    forces: bool = True,
    trails: Iterable[str] = (),
    title: str | None = None,
    dt: Annotated[float | None, positive] = None,
    controls: Mapping[str, Sequence[float]] | None = None,
    control: Callable[..., Any] | None = None,
    parameters: Mapping[str, Sequence[float]] | None = None,
) -> "Page | Live":
    """Show a mechanism in the browser: a motion to play, or a `Stepper` that runs live.

        solution = mbd.simulate(arm, method, start, 5.0, 1e-3, saveat=diffrax.SaveAt(steps=10))
        page = mbd.view(arm, solution)
        page.show()                      # in the browser
        page.save("motion.html")         # one file, which needs no network
        page                             # as the last line of a notebook cell
        mbd.view(arm, {"measured": first, "fitted": (fitted_arm, second)})
        mbd.view(mbd.Stepper(arm, method), controls={"motor": (-5.0, 5.0)})

    Bodies are shown by their `visuals`, else by their contact shapes, else by bars between their
    joints. Joints, springs and supports have symbols, and arrows show the forces of contacts and
    joints. The page plays, scrubs and changes the speed, follows a body, and tells names and
    numbers of what is clicked. A plot beside it shows joint coordinates, forces and energies with
    the same cursor. Between saved times positions are interpolated.

    **Arguments:**

    - `mechanism`: the `Mechanism`, or a `Stepper` of one.
    - `motion`: a `Solution` with several saved times; a `State`, or `None` for the pose in which
      the bodies were given; or name -> one of these, or -> a pair of another mechanism and its
      solution, which are overlaid. For a `Stepper`: the `State` at the start.
    - `visuals`: shapes to show in place of contact shapes, such as `loaded.visuals`.
    - `fps`: pictures per second of the motion. `speed`: seconds of the motion per second.
    - `forces`: show the forces of joints and contacts, and plot them.
    - `trails`: names of the bodies whose centres of mass leave a trail.
    - `title`: of the page.
    - `dt`, `controls`, `control`, `parameters`: for a `Stepper`, as in `Live`.

    **Returns:** a `Page`; for a `Stepper` a `Live`.

    **Raises:** `ImportError` without viser, which is in `pip install jaxmbd[view]`; `ValueError`
    for batches, for solutions without states or with one saved time, and for unknown names.
    """
    viser()
    visuals = tuple(visuals)
    given = dict(dt=dt, controls=controls, control=control, parameters=parameters)
    live: dict[str, Any] = {name: x for name, x in given.items() if x is not None}
    if isinstance(mechanism, Stepper):
        return Live(mechanism, motion, visuals=visuals, speed=speed, **live)
    if live:
        raise ValueError(
            f"Arguments {list(live)} are for a `Stepper`, but a mechanism was given. To view a "
            "motion, simulate it first."
        )
    trails = [mechanism.body(name).name for name in trails]
    times, runs = runs_of(mechanism, motion, fps, forces)
    extent = Extent([(run.mechanism, run.q) for run in runs])
    extent.include(runs[0].mechanism, runs[0].q, visuals)
    content, server = Content(), quiet_server()
    try:
        server.scene.set_up_direction(extent.up)
        extent.aim(server)
        server.gui.configure_theme(show_logo=False, show_share_button=False)
        figures = []
        for i, run in enumerate(runs):
            known = {*run.mechanism.body_stack.names, GROUND}
            shown = visuals if i == 0 or all(x.body in known for x in visuals) else ()
            color = None if i == 0 else overlay_color(i)
            root = f"{WORLD}/{i}"
            figures.append(build(server.scene, root, run.mechanism, run.q, shown, extent, color))
        add_ground(server.scene, extent, figures[0].floor)
        messages = scene_messages(server, content)
    finally:
        stop_quietly(server)
    headers, count = [], 0
    for run, figure in zip(runs, figures, strict=True):
        headers.append(run_header(content, run, figure, extent, count))
        count += len(run.curves)
    colors = [overlay_color(i) for i in range(len(runs))]
    centers = [[float(x) for x in b.inertia.center] for b in mechanism.bodies]
    rest = dict(speed=speed, trails=trails, colors=colors, centers=centers)
    header = header_of(messages, times, headers, extent, **rest)
    return Page(page(content, header, title or "jaxmbd"), times, [run.name for run in runs])


@printed
class Page(AbstractPage):
    """A page with a mechanism and its motions, from `view`.

    **Fields:** `html`: the page as text. `times` of its pictures [s]. `runs`: names of the motions.
    """

    def __init__(self, text: str, times: np.ndarray, runs: list[str]):
        self.html, self.times, self.runs = text, times, runs

    def __str__(self) -> str:
        span = f"{self.times[0]:.6g} to {self.times[-1]:.6g} s"
        return f"Page of {self.runs}, {span}, {len(self.html) / 1e6:.2f} MB: `save`, or `show`."
