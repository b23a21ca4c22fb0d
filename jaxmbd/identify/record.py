"""Measurements of one motion."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._compiler import clip, to_jax
from .._inputs import checked, positive, shown
from .._printed import counted, printed, span
from .._system import AbstractSystem, State
from .._types import Control, Scalar


class MeasuredInput(eqx.Module):
    """A control u(t) that is known at samples, as `control(t, q, v)` for `simulate`. It is linear
    between the samples, and constant before and after them.

    **Fields:** `time`, increasing, shape `(n,)` [s]; `values`, shape `(n, nu)`.
    """

    time: Float[Array, " n"]
    values: Float[Array, "n nu"]

    @checked
    def __init__(self, time: Any, values: Any):
        """**Raises:** `ValueError` for times that do not increase, for other shapes and for NaN."""
        time, values = _numbers("time", time), _numbers("values", values)
        _check_times(time, 1, "an input")
        values = _columns("an input", "values", values, time)
        if not np.all(np.isfinite(values)):
            row = np.argwhere(~np.isfinite(values))[0]
            raise ValueError(
                f"The values of an input must be finite, but entry {row.tolist()} is "
                f"{values[tuple(row)]}: interpolate over the gap before."
            )
        self.time, self.values = to_jax(time), to_jax(values)

    def __call__(self, t, q, v):
        del v
        times, values = self.time.astype(q.dtype), self.values.astype(q.dtype)
        t = jnp.asarray(t, q.dtype)
        if len(times) == 1:
            return values[0]
        i, s = between(times, t)
        return values[i] + s * (values[i + 1] - values[i])


def between(times: Float[Array, " n"], t: Scalar) -> tuple[Int[Array, ""], Scalar]:
    """The sample i before a time, and how far it is on the way to the next one, from 0 to 1."""
    i = jnp.clip(jnp.searchsorted(times, t, side="right") - 1, 0, len(times) - 2)
    # The last time may be repeated, to give records of different length the same shape.
    length = times[i + 1] - times[i]
    return i, clip((t - times[i]) / jnp.where(length > 0, length, 1.0), 0.0, 1.0)


@checked
class Clock(eqx.Module):
    """A clock that is off: a sample with the time t in the record was taken at

        t + offset + drift (t - time[0]),

    by the clock of the control and of the start. `fit` finds `records[name].clock.offset` [s], and
    `.drift`.

    **Fields:** `largest`: by how much times are off at most [s]. Samples so close to the start or
    the end of a simulation may lie outside of it, so fits leave them out.
    """

    largest: Annotated[float, positive] = eqx.field(static=True)
    offset: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)
    drift: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)


@printed
class Record(eqx.Module):
    """The measurements of one motion, and its start.

    **Fields:**

    - `time`: the times of the samples, increasing, shape `(n,)` [s].
    - `measured`: a row for each sample and a column for each number of the sensors, `(n, m)`.
    - `weights` of the entries, `(n, m)`; 0 for missing ones, where `measured` may be NaN.
    - `start`: the state at `time[0]`: a `State`, known or a guess (see `UnknownStart`), or a
      function `system -> State` if it depends on the parameters.
    - `control`: u(t, q, v) of this motion, for example a `MeasuredInput`; `None` for none.
    - `name`: the name in messages and plots.
    - `clock`: the `Clock` of the times, if it is not that of the control and of the start.
    """

    time: np.ndarray
    measured: np.ndarray
    weights: np.ndarray
    start: State | Callable[[AbstractSystem], State]
    control: Any
    name: str = eqx.field(static=True)
    clock: Clock | None

    def __str__(self) -> str:
        n, columns = self.measured.shape
        size = f"{counted(n, 'sample')} of {counted(columns, 'column')}"
        return f'record "{self.name}": {size}, {span(self.time, "s")}'

    @checked
    def __init__(
        self,
        time: Any,
        measured: Any,
        start: State | Callable[[AbstractSystem], State],
        *,
        control: Control | None = None,
        weights: Any = None,
        name: str = "record",
        clock: Clock | None = None,
    ):
        """**Arguments:** as the fields; `weights` also of shape `(n,)` or `(m,)`, default 1.

        **Raises:** `ValueError` for times that are not increasing or not finite, if there is not
        one row for each time, for negative weights, and for measurements that are not finite but
        have a weight.
        """
        what = f'record "{name}"'
        time, measured = _numbers("time", time), _numbers("measured", measured)
        _check_times(time, 2, what)
        measured = _columns(what, "measured", measured, time)
        weights = np.ones_like(measured) if weights is None else _weights(weights, measured, what)
        if not (np.all(np.isfinite(weights)) and np.all(weights >= 0)):
            raise ValueError(f"Weights of {what} must be finite and not negative.")
        missing = ~np.isfinite(measured)
        if np.any(missing & (weights > 0)):
            row, column = np.argwhere(missing & (weights > 0))[0]
            raise ValueError(
                f"{what} holds {measured[row, column]} in row {row}, column {column} (time "
                f"{time[row]:g} s). Leave such samples out by `weights=np.isfinite(measured)`, or "
                "mend the file."
            )
        self.time, self.weights = time, weights
        self.measured = np.where(missing, 0.0, measured)
        self.start, self.control, self.name, self.clock = start, control, name, clock

    @property
    def count(self) -> int:
        """The number of measured numbers."""
        return int(np.count_nonzero(self.weights))

    @checked
    def split(self, at: float) -> tuple["Record", "Record"]:
        """The samples before the time `at` [s], for a fit, and those from then on, for validation.
        Both records start where this one does. The second keeps the earlier samples with weight 0.

        **Raises:** `ValueError` if fewer than two samples come before or after.
        """
        before = self.time < at
        for side, count in (("before", before.sum()), ("after", (~before).sum())):
            if count < 2:
                raise ValueError(
                    f'"{self.name}" has {count} samples {side} {at:g} s, of {self.time[0]:g} to '
                    f"{self.time[-1]:g} s: split it where both parts have two."
                )
        first, rest = (
            Record(
                self.time[rows],
                self.measured[rows],
                self.start,
                control=self.control,
                weights=self.weights[rows] * keep[rows, None],
                name=self.name,
                clock=self.clock,
            )
            for rows, keep in ((before, before), (slice(None), ~before))
        )
        return first, rest


def as_records(records: Record | Sequence[Record]) -> list[Record]:
    """One record or several, as a list."""
    return [records] if isinstance(records, Record) else list(records)


def _numbers(what: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{what}` must be an array of numbers, but is {shown(value)}.") from error


def _columns(what: str, name: str, rows: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The rows as a matrix, one for each time."""
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != len(time):
        raise ValueError(
            f"`{name}` of {what} needs one row for each of its {len(time)} times, but has shape "
            f"{rows.shape}."
        )
    return rows


def _weights(weights: Any, measured: np.ndarray, what: str) -> np.ndarray:
    weights = _numbers("weights", weights)
    rows, columns = measured.shape
    if weights.shape == (rows,) and rows != columns:
        weights = weights[:, None]
    try:
        return np.broadcast_to(weights, measured.shape).copy()
    except ValueError as error:
        raise ValueError(
            f"`weights` of {what} must have shape {(rows, columns)}, {(rows,)} or {(columns,)}, "
            f"but has {weights.shape}."
        ) from error


def _check_times(time: np.ndarray, least: int, what: str) -> None:
    if time.ndim != 1 or len(time) < least:
        raise ValueError(
            f"The times of {what} must be a vector of at least {least}, but have shape "
            f"{time.shape}."
        )
    if not np.all(np.isfinite(time)):
        raise ValueError(f"Time number {np.flatnonzero(~np.isfinite(time))[0]} of {what} is NaN.")
    steps = np.diff(time)
    if np.any(steps <= 0):
        i = int(np.flatnonzero(steps <= 0)[0])
        how = "twice" if steps[i] == 0 else "before"
        raise ValueError(
            f"Times of {what} must increase, but row {i + 1} ({time[i + 1]:g} s) comes {how} "
            f"after row {i} ({time[i]:g} s). Sort the rows and merge or drop repeated ones."
            if how == "before"
            else f"Times of {what} must increase, but {time[i]:g} s stands in rows {i} and "
            f"{i + 1}. Merge or drop repeated rows."
        )
