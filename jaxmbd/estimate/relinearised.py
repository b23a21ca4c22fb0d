"""The most probable motion given readings, by repeated smoothing around it.

One pass is Kalman's filter and the smoother of Rauch, Tung and Striebel, both linearised at the
means x_k of given beliefs. Deviations from these means are carried along. So a pass is a step of
Gauss and Newton's method for the sum of squares

    |x_0 - arrival|^2_P  +  sum_k |x_k+1 - f(x_k)|^2_Q  +  sum_k |y_k - h(x_k)|^2_R,

each in the norm of the inverse of its covariance (Bell 1994). `filter` is a `Filter`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._compiler import product, tree_where
from .._results import RESULTS, first_failure
from .._types import Scalar
from .belief import Belief, Innovation
from .gaussian import carried, factor
from .steps import first_of, judged, moved, predicted_over, system_at, told_by


class Readings(NamedTuple):
    """What was read at n times, and the way to each from the one before.

    - `numbers`, `present`: the readings, and which of them there are.
    - `h`, `u`: the step that leads to a time, and the control in it.
    - `begun`: whether a time counts. Those before the first that does stand for nothing.
    """

    numbers: Float[Array, "n m"]
    present: Bool[Array, "n m"]
    h: Float[Array, " n"]
    u: PyTree
    begun: Bool[Array, " n"]


class Pass(NamedTuple):
    """The beliefs after one pass; what each reading told; the belief at the second time before its
    reading, and the largest change of a mean in standard deviations."""

    beliefs: Belief
    innovations: Innovation
    second: Belief
    change: Scalar


class Forward(NamedTuple):
    """Deviations of the filter at a time, with mean and covariance, and the prediction from there:
    a belief around the image of the mean that was given, and the mean seen from it."""

    mean: Float[Array, " n"]
    P: Float[Array, "n n"]
    ahead: Belief
    ahead_mean: Float[Array, " n"]
    slope: Float[Array, "n n"]


def once_more(
    filter: Any, arrival: Belief, beliefs: Belief, readings: Readings, control: Any, steps: int
) -> Pass:
    """One pass around the means of the beliefs. `arrival`: the belief at the first time before its
    reading. `control`: that of all times, if `readings.u` is `None`. `steps`: the number of steps
    from one time to the next."""

    def forth(before, row):
        belief, later, (y, present, _, u, begun), (*_, h, next_u, _) = row
        mean, P = before
        belief = belief.replace(belief.point, P=P)
        told = told_by(filter, belief, y, present, control if u is None else u, mean)
        belief = belief.replace(belief.point, P=told.P)
        found = predicted_over(filter, belief, h, control if u is None else next_u, steps)
        ahead, ahead_mean = found.belief, found.slope @ told.mean
        there = _seen(filter, ahead, ahead_mean, ahead.P, later)
        # Before the window has begun all beliefs are the arrival, and wait.
        kept = tree_where(begun, there, (told.mean, told.P))
        out = Forward(told.mean, told.P, ahead, ahead_mean, found.slope)
        verdict = first_failure(told.result, ahead.result)
        return kept, (out, told.innovation, RESULTS.where(begun, verdict, told.result))

    def back(later, row):
        belief, next_one, forward, begun = row
        mean, P = tree_where(begun, smoothed(filter, forward, next_one, *later), later)
        new, _, met = moved(filter, belief, mean, P)
        return (mean, P), (judged(new, belief, [belief.result, met]), _size(mean, P))

    def without(k, tree):
        return jax.tree.map(lambda x: jnp.delete(x, k, axis=0), tree)

    # The prediction from the last time is thrown away.
    begin = _seen(filter, arrival, jnp.zeros_like(arrival.P[0]), arrival.P, _at(beliefs, 0))
    following = jax.tree.map(lambda x: jnp.concatenate([x[1:], x[-1:]]), (beliefs, readings))
    rows = beliefs, following[0], readings, following[1]
    _, (forward, innovations, verdicts) = jax.lax.scan(forth, begin, rows)
    last = _at(forward.mean, -1), _at(forward.P, -1)
    newest, _, met = moved(filter, _at(beliefs, -1), *last)
    newest = judged(newest, _at(beliefs, -1), [_at(beliefs, -1).result, met])
    rows = without(-1, (beliefs, forward, readings.begun))
    rows = rows[0], without(0, beliefs), *rows[1:]
    _, (before, sizes) = jax.lax.scan(back, last, rows, reverse=True)
    new = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), before, newest)
    failed = first_failure(first_of(verdicts), first_of(new.result))
    new = new.replace(new.point, result=jax.tree.map(lambda x: jnp.full(len(new.t), x), failed))
    first = _at(forward, 0)
    second, _, _ = moved(filter, first.ahead, first.ahead_mean, first.ahead.P)
    change = jnp.maximum(jnp.max(sizes, initial=0.0), _size(*last))
    return Pass(new, innovations, second, change)


def smoothed(
    filter: Any, here: Forward, later: Belief, mean: Array, P: Array
) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Deviations here, given what is known later: deviations from a belief there (Rauch, Tung and
    Striebel 1965)."""
    ahead_mean, ahead_P = _seen(filter, later, mean, P, here.ahead)
    W = factor(here.ahead.P).W
    gain = product(product(product(here.P, here.slope.T), W.T), W)
    more = carried(gain, ahead_P - here.ahead.P)
    return here.mean + gain @ (ahead_mean - here.ahead_mean), here.P + more


def _seen(filter: Any, belief: Belief, mean: Array, P: Array, other: Belief) -> tuple[Array, Array]:
    """Deviations from a belief, as deviations from another one near it."""
    system = system_at(filter, other.free, other.angles)
    change = belief.chart.change(system, jnp.zeros_like(mean), other.chart)
    return other.chart.seen(system, belief.point) + change @ mean, carried(change, P)


def _at(tree: PyTree, k: int) -> PyTree:
    return jax.tree.map(lambda x: x[k], tree)


def _size(mean: Float[Array, " n"], P: Float[Array, "n n"]) -> Scalar:
    """The largest mean in standard deviations."""
    variance = jnp.diagonal(P)
    known = variance > 0
    sigma = jnp.sqrt(jnp.where(known, variance, 1.0))
    return jnp.max(jnp.where(known, jnp.abs(mean) / sigma, 0.0), initial=0.0)
