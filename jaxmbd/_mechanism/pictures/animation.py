"""Animations of motions."""

import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from ..._inputs import Numbers, at_least, checked, positive
from ..._simulate import Solution
from ..._types import Axes
from ..appearance import contact_arrows, coordinates_between, one_motion
from ..mechanism import Mechanism
from .drawing import Picture, make_view, pyplot


@checked
def animate(
    mechanism: Mechanism,
    sol: Solution,
    path: str | pathlib.Path | None = None,
    fps: Annotated[int, at_least(1)] = 30,
    *,
    speed: Annotated[float, positive] = 1.0,
    ax: Axes | None = None,
    plane: str | Sequence[Numbers] | None = None,
    labels: bool = False,
    frames: bool = False,
    contacts: bool = True,
    force_scale: float | None = None,
    progress: bool = True,
) -> Any:
    """Show a motion by pictures as of `draw`, 1/fps seconds apart. Between saved times coordinates
    are interpolated linearly. Dots show where shapes press on each other, and arrows show the
    forces. These are means since the previous picture, so that no impact is lost.

    **Arguments:**

    - `sol`: one solution, with saved times close enough for that, `SaveAt(ts=...)`.
    - `path`: file to write, `.gif` (by Pillow) or `.mp4` (by the program ffmpeg).
    - `fps`: pictures per second. `speed`: seconds of the motion per second, below 1 for slow
      motion.
    - `ax`, `plane`, `labels`, `frames`: as in `draw`.
    - `contacts`: show contact points and forces, if the solution has any. `force_scale`: length of
      the arrows [m/N]. By default the longest one of the motion is a quarter of the picture. After
      hard impacts the others may then be hardly visible.
    - `progress`: show a bar while the file is written, if tqdm is installed.

    **Returns:** the matplotlib `FuncAnimation`. Keep it while it is shown. With `path` it has been
    written.

    **Raises:** `ImportError` without matplotlib; `ValueError` for batches, for solutions without
    states, for other file types, for `.mp4` without ffmpeg, and for a scale that is not positive.
    """
    pyplot()
    from matplotlib import animation

    if path is not None and not (folder := pathlib.Path(path).parent).is_dir():
        raise ValueError(
            f"Argument `path` must lie in a folder that is there, but {str(folder)!r} is none."
        )
    motion = one_motion(sol)
    t, step = np.asarray(motion.t), speed / fps
    times = t[0] + step * np.arange(int(np.floor((t[-1] - t[0]) / step + 1e-9)) + 1)
    q = coordinates_between(mechanism, t, np.asarray(motion.q), times)
    forces = contact_arrows(mechanism, motion, times, q, force_scale) if contacts else None
    view = make_view(mechanism, plane)
    picture = Picture(mechanism, q, view, ax, labels=labels, frames=frames, forces=forces)
    clock = picture.ax.set_title(f"t = {times[0]:.2f} s", fontsize=10, loc="left")

    def show(i):
        clock.set_text(f"t = {times[i]:.2f} s")
        return [*picture.show(i), clock]

    shown = animation.FuncAnimation(
        picture.ax.figure, show, frames=len(times), interval=1000 / fps, blit=False
    )
    if path is not None:
        _save(shown, pathlib.Path(path), fps, len(times), progress)
    return shown


def _save(motion, path: pathlib.Path, fps: int, count: int, progress: bool) -> None:
    from matplotlib import animation

    writers = {".gif": animation.PillowWriter, ".mp4": animation.FFMpegWriter}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise ValueError(f"Argument `path` must end in .gif or .mp4, but is {str(path)!r}.")
    if not writer.isAvailable():
        raise ValueError(
            f"{path.suffix} needs the program ffmpeg, which is not there. Install it, or write "
            ".gif."
        )
    bar = _bar(count) if progress else None

    def report(i, n):
        del i, n
        if bar is not None:
            bar.update()

    motion.save(path, writer=writer(fps=fps), progress_callback=report)
    if bar is not None:
        bar.close()


def _bar(count: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=count, desc="pictures", leave=False)
