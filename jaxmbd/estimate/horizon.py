"""Moving horizon estimation: the most probable motion given the last readings."""

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._checks import with_dtype
from .._compiler import tree_where
from .._inputs import at_least, checked
from .._printed import counted, printed
from .._results import RESULTS, first_failure
from .._step import as_control
from .._types import Scalar
from ..identify import Record
from .belief import Belief, Innovation
from .filter import Filter, check_derivatives, record_for
from .relinearised import Readings, once_more
from .run import FilterRun, filter_run
from .steps import Prediction, given, predicted_over, reading_sizes

# Means that change by no more of their standard deviations stay.
_STAYED = 0.1


@printed
class Window(eqx.Module):
    """The last readings, and the beliefs at their times; from `MovingHorizon`.

    **Fields:** `beliefs`, the smoothed ones, along a leading axis; `belief`, the newest, which is a
    `State`. Before the window has filled, the first ones are copies of the start. `arrival`: what
    was believed at the first time before its reading; `second`: the same at the second time.
    `change`: the largest change of a mean in the last iteration, in standard deviations.
    """

    beliefs: Belief
    arrival: Belief
    second: Belief
    readings: Readings
    change: Scalar

    @property
    def belief(self) -> Belief:
        """The belief after the newest reading."""
        newest = (slice(None),) * (self.beliefs.t.ndim - 1) + (-1,)
        return jax.tree.map(lambda x: x[newest], self.beliefs)

    @property
    def result(self) -> RESULTS:
        """The first failure."""
        return self.belief.result

    def __str__(self) -> str:
        count = int(np.sum(np.asarray(self.readings.begun)))
        return f"window of {counted(count, 'time')}\n{self.belief}"


class MovingHorizon(eqx.Module):
    """A moving horizon estimator: after each reading, the most probable motion over the last
    `samples` readings is sought, from the belief at their beginning (`arrival`). That belief is of
    a filter whose derivatives are taken at the smoothed means. So what a bad guess falsifies is
    mended as long as it is in the window. Of a linear system it is Kalman's filter.

        horizon = estimate.MovingHorizon(filter, samples=20)
        window = horizon.start(filter.start(state, position=0.5, velocity=0.1))
        window, innovation = horizon.step(window, reading, u)     # in a control loop
        window.belief                                             # a `State`
        run = horizon.run(filter.start(state), record)            # over a record

    A step costs `samples` times `iterations` steps of the filter.

    **Arguments:**

    - `filter`: model, sensors and noises, with the rule `Extended()`.
    - `samples`: the number of times in the window.
    - `iterations`: of Gauss and Newton's method after each reading, from the motion of the window
      before.

    **Raises:** `ValueError` for a filter with another rule or a `gate`.

    References: Rao, Rawlings and Mayne (2003), Constrained state estimation for nonlinear discrete-
    time systems, IEEE Trans. Automatic Control 48; iterations as in Bell (1994), The iterated
    Kalman smoother as a Gauss-Newton method, SIAM Journal on Optimization 4.
    """

    filter: Filter
    samples: int = eqx.field(static=True)
    iterations: int = eqx.field(static=True)

    @checked
    def __init__(
        self,
        filter: Filter,
        samples: Annotated[int, at_least(2)] = 10,
        *,
        iterations: Annotated[int, at_least(1)] = 2,
    ):
        check_derivatives(filter)
        if filter.gate is not None:
            raise ValueError(
                "A window judges its readings again and again, so a `gate` would let some in and "
                "out: make the filter of MovingHorizon without it."
            )
        self.filter, self.samples, self.iterations = filter, samples, iterations

    @checked
    def start(self, belief: Belief, u: PyTree = None) -> Window:
        """A window that begins at a belief.

        **Arguments:** `u`: if the controls of the steps are numbers, any such control, for its
        shape."""
        dtype = belief.q.dtype
        n, size = self.samples, sum(reading_sizes(self.filter, belief, as_control(u, dtype)))

        def rows(x):
            return jnp.broadcast_to(x, (n, *jnp.shape(x)))

        u = None if _along(u) is None else jax.tree.map(rows, with_dtype(u, dtype))
        h = jnp.full(n, self.filter.dt, dtype)
        none = jnp.zeros((n, size), bool)
        readings = Readings(none.astype(dtype), none, h, u, jnp.arange(n) == n - 1)
        return Window(jax.tree.map(rows, belief), belief, belief, readings, jnp.zeros((), dtype))

    @checked
    def step(
        self, window: Window, reading: Any, u: PyTree = None, *, present: Any = None
    ) -> tuple[Window, Innovation]:
        """The window with what is read after another `dt`. The arguments are those of
        `Filter.step`. A control that is a function counts for the whole window.

        **Returns:** the `Window`, and the `Innovation` as against the prediction from the readings
        before."""
        if (_along(u) is None) != (window.readings.u is None):
            raise ValueError(
                "A window remembers its controls: give `start` of MovingHorizon a control `u` like "
                "those of the steps."
            )
        return _step(self, window, reading, present, u)

    @checked
    def run(self, start: Belief, record: Record) -> FilterRun:
        """All of a record, as `Filter.run`: what is believed at each time from the readings so
        far. If the last iteration of any time moved a mean by more than a tenth of its standard
        deviation, the result says so: use more of them."""
        data, steps = record_for(self.filter, start, record)
        return _run(self, self.start(start), data, steps)


def _along(u: PyTree) -> PyTree:
    """A control that is kept for each time: numbers."""
    return None if u is None or callable(u) else u


def _at(tree: PyTree, k: int) -> PyTree:
    return jax.tree.map(lambda x: x[k], tree)


@eqx.filter_jit
def _step(horizon: MovingHorizon, window: Window, reading: Any, present: Any, u: PyTree):
    h = jnp.asarray(horizon.filter.dt, window.beliefs.q.dtype)
    read = given(horizon.filter, window.belief, reading, present, u)
    window, _ = _onward(horizon, window, *read, h, u, 1)
    return _settled(horizon, window, u, 1)


@eqx.filter_jit
def _run(horizon: MovingHorizon, window: Window, record: PyTree, steps: int) -> FilterRun:
    time, measured, present, control = record

    def last(old, new):
        return old.at[-1].set(new)

    def sample(window, row):
        y, there, h, t = row
        window, prediction = _onward(horizon, window, y, there, h, control, steps)
        beliefs = window.beliefs
        beliefs = beliefs.replace(beliefs.point, t=last(beliefs.t, t))
        window = eqx.tree_at(lambda w: w.beliefs, window, beliefs)
        window, innovation = _settled(horizon, window, control, steps)
        return window, (prediction, window.belief, innovation, window.change)

    readings = window.readings
    numbers, there = last(readings.numbers, measured[0]), last(readings.present, present[0])
    readings = readings._replace(numbers=numbers, present=there)
    window = eqx.tree_at(lambda w: w.readings, window, readings)
    start = window.belief
    window, innovation = _settled(horizon, window, control, steps)
    rows = measured[1:], present[1:], jnp.diff(time) / steps, time[1:]
    first = window.belief, innovation
    _, (ahead, *later, changes) = jax.lax.scan(sample, window, rows)
    beliefs, innovations = jax.tree.map(
        lambda x, y: jnp.concatenate([x[None], y]), first, tuple(later)
    )
    before = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), start, ahead.belief)
    # As from a filter, with one that nobody needs at the end.
    slopes = jnp.concatenate([ahead.slope, ahead.slope[-1:]])
    run = filter_run(horizon.filter, before, beliefs, innovations, slopes)
    stayed = jnp.maximum(jnp.max(changes, initial=0.0), window.change) <= _STAYED
    verdict = RESULTS.where(stayed, RESULTS.successful, RESULTS.max_iterations_reached)
    return eqx.tree_at(lambda r: r.result, run, first_failure(run.result, verdict))


def _onward(
    horizon: MovingHorizon, window: Window, y, present, h: Scalar, u: PyTree, steps: int
) -> tuple[Window, Prediction]:
    """The window a time later, with a new reading and around the prediction of the new time; and
    this prediction."""
    found = predicted_over(horizon.filter, window.belief, h, u, steps)
    readings = window.readings
    kept = None if readings.u is None else with_dtype(u, y.dtype)
    row = Readings(y, present, h, kept, jnp.array(True))

    def shifted(rows, new):
        return jax.tree.map(lambda x, y: jnp.concatenate([x[1:], y[None]]), rows, new)

    arrival = tree_where(readings.begun[0], window.second, window.arrival)
    beliefs = shifted(window.beliefs, found.belief)
    later = Window(beliefs, arrival, window.second, shifted(readings, row), window.change)
    return later, found


def _settled(
    horizon: MovingHorizon, window: Window, control: Any, steps: int
) -> tuple[Window, Innovation]:
    """The window around the most probable motion, and what the newest reading told at first."""

    def again(beliefs, _):
        arrival, readings = window.arrival, window.readings
        found = once_more(horizon.filter, arrival, beliefs, readings, control, steps)
        return found.beliefs, (found.second, found.change, _at(found.innovations, -1))

    beliefs, found = jax.lax.scan(again, window.beliefs, length=horizon.iterations)
    second, change = _at(found[:2], -1)
    later = Window(beliefs, window.arrival, second, window.readings, change)
    return later, _at(found[2], 0)
