"""Plots of a fit. Matplotlib is imported when one is made."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from .._inputs import Number, checked, inside
from .._mechanism import pyplot
from .._types import Axes, SeveralAxes
from .estimate import Estimate
from .model_check import ModelCheck
from .prediction import Prediction


@checked
def plot_fit(prediction: Prediction | Estimate, axes: SeveralAxes | None = None) -> np.ndarray:
    """Plot measurements (dots) and simulations (lines) over the time [s], for an `Estimate` or for
    a `Prediction` of other records. Each column has its own axes.

    **Arguments:** `axes`: matplotlib axes, one for each column; default new ones.

    **Returns:** the axes, an array.

    **Raises:** `ImportError` without matplotlib; `ValueError` for another number of axes.
    """
    shown = _prediction(prediction)
    axes = _rows(shown, axes)
    for j, ax in enumerate(axes):
        for k, (record, readings) in enumerate(zip(shown.records, shown.readings, strict=True)):
            used = record.weights[:, j] > 0
            name = record.name if len(shown.records) > 1 else "measured"
            ax.plot(
                record.time[used], record.measured[used, j], ".", color=f"C{k}", ms=3, label=name
            )
            ax.plot(record.time, readings[:, j], "k", lw=0.8)
    axes[0].plot([], [], "k", lw=0.8, label="computed")
    legend_above(axes[0])
    return axes


def legend_above(ax: Axes) -> None:
    """The legend of axes, above them, where it hides no data."""
    entries = len(ax.get_legend_handles_labels()[0])
    place: Any = dict(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    ax.legend(ncols=min(entries, 6), fontsize="small", frameon=False, **place)


@checked
def plot_residuals(
    prediction: Prediction | Estimate, axes: SeveralAxes | None = None
) -> np.ndarray:
    """Plot residuals (computed minus measured) over the time [s], with a band of two root mean
    squares. Each column has its own axes. Arguments, returns and errors as for `plot_fit`."""
    shown = _prediction(prediction)
    axes = _rows(shown, axes)
    for j, (label, ax) in enumerate(zip(shown.labels, axes, strict=True)):
        for k, (record, errors) in enumerate(zip(shown.records, shown.errors, strict=True)):
            ax.plot(record.time, errors[:, j], ".-", color=f"C{k}", ms=2, lw=0.4)
        rms = shown.rms[label]
        ax.axhspan(-2 * rms, 2 * rms, color="0.5", alpha=0.15, lw=0)
    axes[0].set_title("computed - measured")
    return axes


@checked
def plot_intervals(
    estimate: Estimate,
    reference: Mapping[str, Number] | None = None,
    level: Annotated[float, inside(0, 1)] = 0.95,
) -> np.ndarray:
    """Plot confidence intervals relative to the estimates, and the correlations of the estimates.

    **Arguments:** `reference`: name -> value to mark, for example true or published values.

    **Returns:** the two axes. **Raises:** `ImportError` without matplotlib.
    """
    names, entries = estimate.names, estimate.entries
    _, (left, right) = pyplot().subplots(
        1, 2, figsize=(11, 1.5 + 0.35 * len(names)), layout="constrained"
    )
    scale = np.where(entries == 0, 1.0, np.abs(entries))
    places = np.arange(len(names))[::-1]
    for inflated, width, colour in ((True, 2, "0.7"), (False, 5, "C0")):
        low, high = estimate.interval(level, inflated=inflated).T
        known = np.isfinite(low)
        low, high = (low - entries) / scale, (high - entries) / scale
        left.hlines(places[known], low[known], high[known], lw=width, color=colour)
    left.plot(np.zeros(len(names)), places, "k|", ms=10)
    for name, value in (reference or {}).items():
        if name in names:
            i = names.index(name)
            left.plot((float(value) - entries[i]) / scale[i], places[i], "r*")
    left.set_yticks(
        places,
        [
            name if np.isfinite(sigma) else f"{name} (not determined)"
            for name, sigma in zip(names, estimate.sigma, strict=True)
        ],
    )
    left.set_xlabel(f"{100 * level:g} % interval, relative to the estimate")
    left.grid(alpha=0.3)
    image = right.imshow(estimate.correlation, vmin=-1, vmax=1, cmap="RdBu_r")
    right.set_xticks(range(len(names)), names, rotation=90)
    right.set_yticks(range(len(names)), names)
    right.set_title("correlation")
    right.figure.colorbar(image, ax=right)
    return np.array([left, right])


def _prediction(shown: Prediction | Estimate) -> Prediction:
    return shown.prediction if isinstance(shown, Estimate) else shown


def _rows(shown: Prediction, axes: SeveralAxes | None) -> np.ndarray:
    count = len(shown.labels)
    if axes is None:
        _, axes = pyplot().subplots(
            count, 1, figsize=(10, 1 + 1.8 * count), sharex=True, layout="constrained"
        )
    panels = np.ravel(np.asarray(axes, object))
    if len(panels) != count:
        raise ValueError(f"There are {count} columns to plot, but `axes` has {len(panels)}.")
    for label, ax in zip(shown.labels, panels, strict=True):
        ax.set_ylabel(label)
        ax.grid(alpha=0.3)
    panels[-1].set_xlabel("time [s]")
    return panels


@checked
def plot_slices(check: ModelCheck, axes: SeveralAxes | None = None) -> np.ndarray:
    """Plot the root mean square of the weighted residuals along each parameter, with a circle at
    each local minimum.

    **Arguments:** `axes`: matplotlib axes, one for each parameter; default new ones.

    **Returns:** the axes, an array.

    **Raises:** `ImportError` without matplotlib; `ValueError` for another number of axes.
    """
    names = tuple(check.slices)
    if axes is None:
        rows = -(-len(names) // 4)
        size = dict(figsize=(12, 1 + 2.2 * rows), sharey=True, layout="constrained")
        _, axes = pyplot().subplots(rows, min(len(names), 4), squeeze=False, **size)
        panels = np.ravel(np.asarray(axes, object))
        for unused in panels[len(names) :]:
            unused.remove()
        panels = panels[: len(names)]
    else:
        panels = np.ravel(np.asarray(axes, object))
    if len(panels) != len(names):
        raise ValueError(f"There are {len(names)} parameters, but `axes` has {len(panels)}.")
    for (name, along), ax in zip(check.slices.items(), panels, strict=True):
        ax.plot(along.value, along.rms, ".-", lw=0.8)
        low = along.minima
        ax.plot(along.value[low], along.rms[low], "o", mfc="none")
        ax.set_xlabel(name)
        ax.set_ylabel("rms")
        ax.set_yscale("log")
    return panels
