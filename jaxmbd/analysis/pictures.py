"""Plots of linear models over speed and frequency. Matplotlib is imported when one is made."""

from collections.abc import Sequence
from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from .._compiler import need_known
from .._inputs import checked, not_negative, positive
from .._mechanism import given_or_new, pyplot
from .._types import Axes, SeveralAxes
from .campbell import Campbell
from .linearise import LinearModel


@checked
def plot_campbell(
    found: Campbell,
    ax: Axes | None = None,
    *,
    orders: ArrayLike | Sequence[float | int] = 1.0,
    per_second: Annotated[float, positive] = 1.0,
) -> Axes:
    """Plot frequencies [Hz] over the speed, with lines of excitation whose frequency is a multiple
    of the speed. Modes that whirl backward are dotted, and the numbers at the ends count the
    modes.

    **Arguments:** `orders`: these multiples. `per_second`: rad/s for a speed of 1. `ax`: matplotlib
    axes, by default new.

    **Returns:** the axes. **Raises:** `ImportError` without matplotlib."""
    ax = given_or_new(ax)
    ends = []
    for i, (line, whirl) in enumerate(zip(found.frequency.T, found.whirl.T, strict=True)):
        known = whirl[np.isfinite(whirl)]
        backward = known.size > 0 and np.median(known) < 0
        (drawn,) = ax.plot(found.speed, line, ":" if backward else "-", color=f"C{i % 10}")
        if known.size:
            ends.append((backward, drawn))
        last = np.nonzero(np.isfinite(line))[0]
        if last.size:
            place = found.speed[last[-1]], line[last[-1]]
            ax.annotate(
                str(i), place, xytext=(3, 0), textcoords="offset points", va="center",
                color=f"C{i % 10}", fontsize="small",
            )  # fmt: skip
    if ends:
        first = dict(reversed(ends))
        named = [
            (first[x], name) for x, name in ((False, "forward"), (True, "backward")) if x in first
        ]
        ax.legend(*zip(*named, strict=True), loc="upper left", fontsize="small")
    top = np.nanmax(found.frequency, initial=0.0)
    for order in np.atleast_1d(np.asarray(orders, float)):
        excited = order * per_second * found.speed / (2 * np.pi)
        ax.plot(found.speed, excited, "--", color="0.6", lw=0.9)
        last = np.nonzero(excited <= top)[0]
        if last.size:
            end = found.speed[last[-1]], excited[last[-1]]
            ax.annotate(f"{order:g}x", end, color="0.4", fontsize="small", va="bottom")
    ax.set(xlabel="speed", ylabel="frequency [Hz]", ylim=(0, 1.1 * top if top > 0 else 1.0))
    ax.grid(alpha=0.3)
    return ax


@checked
def plot_frequency_response(
    model: LinearModel,
    frequency: Annotated[Float[ArrayLike, " k"], not_negative],
    axes: SeveralAxes | None = None,
    *,
    output: int = 0,
    input: int = 0,
) -> np.ndarray:
    """Plot the size and the phase [degrees] of the frequency response of one output to one input
    over the frequency [Hz].

    **Arguments:** `axes`: two matplotlib axes, by default new. `output`, `input`: their places.

    **Returns:** the two axes, an array. **Raises:** `ImportError` without matplotlib."""
    new = pyplot().subplots(2, 1, sharex=True, layout="constrained")[1] if axes is None else axes
    size, phase = panels = np.ravel(np.asarray(new, object))
    need_known(model, "Pictures need known numbers: make them outside of `jax.jit`.")
    f = np.asarray(frequency, float)
    found = model.frequency_response(jnp.asarray(f, model.A.dtype))
    response = np.asarray(found)[:, output, input]
    size.loglog(f, np.abs(response))
    phase.semilogx(f, np.degrees(np.unwrap(np.angle(response))))
    size.set_ylabel("size")
    phase.set(ylabel="phase [degrees]", xlabel="frequency [Hz]")
    for ax in panels:
        ax.grid(alpha=0.3, which="both")
    return panels
