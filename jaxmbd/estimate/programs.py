"""What a filter compiles. `filter` is a `Filter`."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag
from jaxtyping import Array, PyTree

from .._compiler import product
from .._results import RESULTS, first_failure
from .._step import as_control
from .._types import RealScalarLike
from .belief import Belief
from .chart import Chart, on_positions, settled
from .gaussian import carried, factor
from .relinearised import Forward, Readings, once_more, smoothed
from .run import FilterRun, SmoothedRun, filter_run, smoothed_run
from .steps import (
    ITERATIONS,
    entries,
    first_of,
    given,
    judged,
    moved,
    point_at,
    predicted,
    predicted_over,
    readings,
    sample_at,
    system_at,
    systems_near,
    updated,
)

# Means that change by no more of their standard deviations stay.
_STAYED = 1e-3


@eqx.filter_jit
def compiled_start(filter: Any, still: Belief, spread: tuple[Any, Any, Any]) -> Belief:
    point, t = still.point, still.t
    system = system_at(filter, point.theta, still.angles)
    verdicts, bases = [still.result], still.bases
    if not bases.none:
        point, met = on_positions(system, t, point, ITERATIONS)
        system_of = systems_near(filter, still.angles)
        point, bases, same = settled(system_of, t, point, bases)
        verdicts += [met, same]
    chart = Chart(point, bases)
    nv, nz = point.v.shape[0], chart.sizes[2]
    pp, vv = (_broadcast(x, nv, point.q) ** 2 for x in spread[:2])
    P = chart.of_motion(pp, jnp.zeros_like(pp), vv)
    parts = [P, jnp.diag(_broadcast(spread[2], nz, point.q) ** 2)]
    if filter.unknowns.size:
        slope = jax.jacfwd(filter.unknowns.prior)(point.theta)
        W = factor(slope.T @ slope).W
        parts.append(product(W.T, W))
    new = still.replace(point, P=block_diag(*parts), bases=bases)
    return new.replace(new.point, result=first_failure(*verdicts, RESULTS.successful))


def _broadcast(x: Any, n: int, like: Array) -> Array:
    return jnp.broadcast_to(jnp.asarray(x, like.dtype), (n,))


@eqx.filter_jit
def compiled_intervals(filter: Any, belief: Belief, reach: Array) -> tuple[Array, Array]:
    _, sigma = entries(filter, jax.tree.map(lambda x: jnp.asarray(x)[None], belief))
    return filter.unknowns.interval(belief.free, reach * sigma[0])


@eqx.filter_jit
def compiled_expected(filter: Any, belief: Belief, output: Callable | None, u: PyTree):
    control = as_control(u, belief.q.dtype)

    def image(xi):
        point, met = point_at(filter, belief, xi)
        at = belief.t, point, belief.angles, control
        if output is None:
            return jnp.concatenate(readings(filter, *at)), met
        return jnp.ravel(output(sample_at(filter, *at))), met

    images = filter.rule.images(image, belief.P)
    found = filter.rule.linear(images, lambda y: y - images.center)
    return images.center + found.mean, carried(found.slope, belief.P, found.rest)


@eqx.filter_jit
def compiled_covariance(filter: Any, belief: Belief) -> Array:
    chart = belief.chart
    system = system_at(filter, belief.free, belief.angles)

    def displacement(xi):
        other = chart.lifted(system, xi)
        return jnp.concatenate([system.difference(belief.q, other.q), other.v - belief.v])

    return carried(jax.jacfwd(displacement)(jnp.zeros(chart.size, belief.q.dtype)), belief.P)


@eqx.filter_jit
def compiled_predict(filter: Any, belief: Belief, u: PyTree, h: RealScalarLike) -> Belief:
    return predicted(filter, belief, jnp.asarray(h, belief.q.dtype), u).belief


@eqx.filter_jit
def compiled_update(filter: Any, belief: Belief, reading: Any, present: Any, u: PyTree):
    return updated(filter, belief, *given(filter, belief, reading, present, u), u)


@eqx.filter_jit
def compiled_step(filter: Any, belief: Belief, reading: Any, present: Any, u: PyTree):
    later = predicted(filter, belief, jnp.asarray(filter.dt, belief.q.dtype), u).belief
    return updated(filter, later, *given(filter, later, reading, present, u), u)


@eqx.filter_jit
def compiled_run(filter: Any, start: Belief, record: PyTree, substeps: int) -> FilterRun:
    time, measured, present, control = record
    # From the last sample the filter goes on as far as to it, which is thrown away.
    steps = jnp.diff(time)
    steps = jnp.concatenate([steps, steps[-1:]]) / substeps

    def sample(before, row):
        t, y, there, h = row
        before = before.replace(before.point, t=t)
        belief, innovation = updated(filter, before, y, there, control)
        after, slope = predicted_over(filter, belief, h, control, substeps)
        return after, (before, belief, innovation, slope)

    rows = time, measured, present, steps
    _, (before, beliefs, innovations, slopes) = jax.lax.scan(sample, start, rows)
    return filter_run(filter, before, beliefs, innovations, slopes)


@eqx.filter_jit
def compiled_smooth(filter: Any, run: FilterRun) -> SmoothedRun:
    last = jax.tree.map(lambda x: x[-1], run.beliefs)
    pieces = (
        jax.tree.map(lambda x: x[:-1], run.beliefs),
        jax.tree.map(lambda x: x[1:], run.predicted),
        run.slopes[:-1],
    )

    def back(later, row):
        belief, ahead, slope = row
        none = jnp.zeros_like(belief.P[0])
        here = Forward(none, belief.P, ahead, none, slope)
        new, _, met = moved(filter, belief, *smoothed(filter, here, later, none, later.P))
        new = judged(new, belief, [later.result, belief.result, met])
        return new, new

    _, before = jax.lax.scan(back, last, pieces, reverse=True)
    beliefs = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), before, last)
    return smoothed_run(filter, beliefs, first_of(beliefs.result))


@eqx.filter_jit
def compiled_most_probable(
    filter: Any, run: FilterRun, smooth: SmoothedRun, record: PyTree, substeps: int, iterations: int
) -> SmoothedRun:
    time, measured, present, control = record
    present = present & run.innovations.accepted[:, None]
    h = jnp.diff(time, prepend=2 * time[0] - time[1]) / substeps
    readings = Readings(measured, present, h, None, jnp.ones(len(time), bool))
    arrival = jax.tree.map(lambda x: x[0], run.predicted)

    def again(beliefs, _):
        found = once_more(filter, arrival, beliefs, readings, control, substeps)
        return found.beliefs, found.change

    beliefs, changes = jax.lax.scan(again, smooth.beliefs, length=iterations)
    stayed = changes[-1] <= _STAYED
    verdict = RESULTS.where(stayed, RESULTS.successful, RESULTS.max_iterations_reached)
    return smoothed_run(filter, beliefs, first_failure(first_of(beliefs.result), verdict))
