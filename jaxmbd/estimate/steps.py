"""The steps of a filter: prediction and correction. `filter` is a `Filter`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Bool, Float, PyTree

from .._checks import with_dtype
from .._compiler import product, tree_where
from .._methods import finite
from .._results import RESULTS, code, first_failure
from .._step import Stepper, as_control, near
from .._system import AbstractSystem, State, has_plain_coordinates
from .._types import Control, Scalar
from ..identify import Sample
from ..identify.parameters import Parameters
from .belief import Belief, Innovation
from .chart import Chart, Point, on_positions, on_velocities, settled
from .gaussian import carried, corrected

# The largest number of iterations of Newton's method onto the constraints.
ITERATIONS = 8


class Prediction(NamedTuple):
    """A later belief, and the linear map of the deviations that leads to it."""

    belief: Belief
    slope: Float[Array, "n n"]


def entries(filter: Any, beliefs: Belief) -> tuple[Array, Array]:
    """All numbers of the parameters, and their standard deviations, of stacked beliefs."""

    def of(free, P):
        slope = jax.jacfwd(filter.unknowns.entries)(free)
        own = P[P.shape[0] - free.shape[0] :, P.shape[0] - free.shape[0] :]
        return filter.unknowns.entries(free), jnp.sqrt(jnp.diagonal(carried(slope, own)))

    if not filter.unknowns.size:
        return beliefs.free, beliefs.free
    return jax.vmap(of)(beliefs.free, beliefs.P)


def system_at(filter: Any, free: Array, angles: Array | None) -> AbstractSystem:
    """The system with free numbers of the parameters, near counted angles."""
    system = filter.rig(filter.unknowns.values(free)).system
    return near(with_dtype(system, free.dtype), angles)


def systems_near(filter: Any, angles: Array | None) -> Callable[[Array], AbstractSystem]:
    """free -> `system_at`."""
    return lambda free: system_at(filter, free, angles)


def sample_at(filter: Any, t, point: Point, angles, control: Control | None) -> Sample:
    system = system_at(filter, point.theta, angles)
    return Sample(system=system, control=control, t=t, q=point.q, v=point.v, z=point.z)


def point_at(filter: Any, belief: Belief, xi: Float[Array, " n"]) -> tuple[Point, RESULTS]:
    """The point at xi near a belief, for `rule`."""
    chart = belief.chart
    system = system_at(filter, belief.free, belief.angles)
    point = chart.lifted(system, xi)
    if chart.bases.none:
        return point, RESULTS.successful
    if not filter.rule.finite:
        return point, RESULTS.successful  # to first order
    there = system_at(filter, point.theta, belief.angles)
    point, result = on_positions(there, belief.t, point, ITERATIONS)
    return on_velocities(there, belief.t, point), result


def moved(
    filter: Any, belief: Belief, xi: Float[Array, " n"], P: Float[Array, "n n"]
) -> tuple[Belief, Float[Array, "n n"], RESULTS]:
    """The belief whose mean is at xi, and whose covariance is P as seen from the given one; and
    the change of the deviations from the one to the other."""
    chart = belief.chart
    system = system_at(filter, belief.free, belief.angles)
    point = chart.lifted(system, xi)
    if filter.bounds is not None:
        lower, upper = filter.bounds
        point = point._replace(theta=jnp.clip(point.theta, lower, upper))
    bases, results = chart.bases, []
    if not bases.none:
        there = system_at(filter, point.theta, belief.angles)
        point, met = on_positions(there, belief.t, point, ITERATIONS)
        system_of = systems_near(filter, belief.angles)
        point, bases, same = settled(system_of, belief.t, point, bases)
        results = [met, same]
    change = jnp.eye(xi.shape[0], dtype=xi.dtype)
    if not (bases.none and has_plain_coordinates(system)):
        change = chart.change(system, xi, Chart(point, bases))
        P = carried(change, P)
    new = belief.replace(point, P=P, bases=bases)
    return new, change, first_failure(*results, RESULTS.successful)


def predicted(filter: Any, belief: Belief, h: Scalar, u: PyTree) -> Prediction:
    """The belief after a step h."""
    control = as_control(u, belief.q.dtype)

    def image(xi):
        point, met = point_at(filter, belief, xi)
        stepper = Stepper(system_at(filter, point.theta, None), filter.enforcement, filter.scheme)
        begin = State(belief.t, point.q, point.v, angles=belief.angles, z=point.z)
        end = stepper.step(stepper.init(begin, check=False), h, control)
        verdict = first_failure(met, end.result)
        return Point(end.q, end.v, end.z, point.theta), (end.angles, verdict)

    images = filter.rule.images(image, belief.P)
    center, (angles, _) = images.center, images.other
    t = belief.t + h
    sample = sample_at(filter, t, center, angles, control)
    system = sample.system
    system_of = systems_near(filter, angles)
    _, bases, same = settled(system_of, t, center, belief.bases, velocity=False)
    chart = Chart(center, bases)
    found = filter.rule.linear(images, lambda y: chart.seen(system, y))
    P = carried(found.slope, belief.P, found.rest + step_noise(filter, chart, sample, h))
    new, slope = belief.replace(center, t=t, angles=angles, P=P, bases=bases), found.slope
    verdicts = [
        belief.result,
        RESULTS.where(images.valid, RESULTS.successful, RESULTS.covariance_indefinite),
        first_of(images.others[1]),
        same,
    ]
    if filter.rule.finite:
        new, change, met = moved(filter, new, found.mean, P)
        slope = product(change, slope)
        verdicts.append(met)
    return Prediction(judged(new, belief, verdicts), slope)


def step_noise(filter: Any, chart: Chart, sample: Sample, h: Scalar) -> Float[Array, "n n"]:
    of = filter.process_noise
    parts = [chart.of_motion(*with_dtype(of.of_motion(sample, h), h.dtype))]
    if sample.z is not None:
        parts.append(jnp.diag(of.of_internal(sample, h) ** 2))
    if filter.unknowns.size:
        given = of.of_parameters(h)
        theta = chart.point.theta
        parts.append(jnp.diag(_in_free_numbers(filter.unknowns, theta, given) ** 2))
    return block_diag(*parts)


def readings(
    filter: Any, t: Scalar, point: Point, angles: Array | None, control: Control | None
) -> list[Array]:
    """What each sensor reads."""
    named = filter.rig(filter.unknowns.values(point.theta)).named
    sample = sample_at(filter, t, point, angles, control)
    sensors = with_dtype(tuple(named.values()), point.q.dtype)
    return [jnp.ravel(jnp.asarray(sensor(sample))) for sensor in sensors]


def predicted_over(filter: Any, belief: Belief, h: Scalar, u: PyTree, steps: int) -> Prediction:
    """The belief after some steps h."""

    def onward(before, _):
        found = predicted(filter, before.belief, h, u)
        return Prediction(found.belief, product(found.slope, before.slope)), None

    one = jnp.eye(belief.P.shape[0], dtype=belief.P.dtype)
    return jax.lax.scan(onward, Prediction(belief, one), None, length=steps)[0]


def updated(
    filter: Any, belief: Belief, reading: Array, present: Array, u: PyTree
) -> tuple[Belief, Innovation]:
    """The belief with a reading."""
    told = told_by(filter, belief, reading, present, u, gate=filter.gate)
    new, _, met = moved(filter, belief, told.mean, told.P)
    return judged(new, belief, [belief.result, told.result, met]), told.innovation


class Told(NamedTuple):
    """What a reading makes of the deviations from a belief: their mean and their covariance."""

    mean: Float[Array, " n"]
    P: Float[Array, "n n"]
    innovation: Innovation
    result: RESULTS


def told_by(
    filter: Any,
    belief: Belief,
    reading: Array,
    present: Array,
    u: PyTree,
    before: Float[Array, " n"] | None = None,
    gate: float | None = None,
) -> Told:
    """What a reading tells, if the deviations from the belief had the mean `before`; default 0."""
    dtype = belief.q.dtype
    control = as_control(u, dtype)

    def image(xi):
        point, met = point_at(filter, belief, xi)
        read = readings(filter, belief.t, point, belief.angles, control)
        return jnp.concatenate(read), met

    images = filter.rule.images(image, belief.P)
    sizes = reading_sizes(filter, belief, control)
    period = _spread(filter.periods, sizes, dtype, lambda x: np.inf if x is None else x)
    sigma = jnp.concatenate(
        [jnp.broadcast_to(x.astype(dtype), (n,)) for x, n in zip(filter.sigma, sizes, strict=True)]
    )

    def off(y, expected):
        d = y - expected
        turns = jnp.where(jnp.isfinite(period), jnp.round(d / period), 0.0)
        return d - jnp.where(turns == 0, 0.0, turns * period)

    model = filter.rule.linear(images, lambda y: off(y, images.center))
    number = jnp.isfinite(reading)
    used = present & number
    expected = model.mean if before is None else model.mean + model.slope @ before
    value = off(jnp.where(used, reading, images.center), images.center) - expected
    found = corrected(belief.P, model, sigma, value, used)
    accepted = jnp.array(True)
    shift, P = found.shift, found.P
    if gate is not None:
        limits = scipy.stats.chi2.ppf(gate, np.maximum(np.arange(len(reading) + 1), 1))
        limit = jnp.asarray(limits, dtype)[jnp.sum(used)]
        accepted = found.nis <= limit
        shift = jnp.where(accepted, shift, 0.0)
        P = jnp.where(accepted, P, belief.P)
    valid = images.valid & found.valid
    verdict = RESULTS.where(valid, RESULTS.successful, RESULTS.covariance_indefinite)
    lost = jnp.any(present & ~number)
    innovation = Innovation(
        jnp.where(used, value, 0.0),
        found.S,
        used,
        found.nis,
        found.log_density,
        accepted,
        RESULTS.where(lost, RESULTS.nonfinite_reading, RESULTS.successful),
    )
    mean = shift if before is None else before + shift
    return Told(mean, P, innovation, first_failure(verdict, first_of(images.others)))


def reading_sizes(filter: Any, belief: Belief, control: Control | None) -> list[int]:
    """The numbers that the sensors give."""
    at = belief.t, belief.point, belief.angles, control
    return [x.shape[0] for x in jax.eval_shape(lambda: readings(filter, *at))]


def given(
    filter: Any, belief: Belief, reading: Any, present: Any, u: PyTree
) -> tuple[Float[Array, " m"], Bool[Array, " m"]]:
    """A reading as numbers of all sensors, and which of them are present."""
    dtype = belief.q.dtype
    sizes = reading_sizes(filter, belief, as_control(u, dtype))
    if isinstance(reading, Mapping):
        unknown = set(reading) - set(filter.names)
        if unknown:
            raise ValueError(
                f"There is no sensor {sorted(unknown)}, but there are {list(filter.names)}."
            )
        parts, there = [], []
        for name, n in zip(filter.names, sizes, strict=True):
            x = jnp.ravel(jnp.asarray(reading.get(name, jnp.zeros(n)), dtype))
            if x.shape != (n,):
                raise ValueError(f"Sensor `{name}` gives {n} numbers, but {x.shape[0]} are read.")
            parts.append(x)
            there.append(np.full(n, name in reading))
        numbers, found = jnp.concatenate(parts), jnp.asarray(np.concatenate(there))
    else:
        numbers = jnp.ravel(jnp.asarray(reading, dtype))
        found = jnp.ones(sum(sizes), bool)
    if numbers.shape != (sum(sizes),):
        raise ValueError(
            f"A reading has {sum(sizes)} numbers, of the sensors {list(filter.names)}, but is of "
            f"{numbers.shape[0]}. Of some sensors alone, give a dictionary by name."
        )
    if present is not None:
        found = found & jnp.broadcast_to(jnp.asarray(present, bool), found.shape)
    return numbers, found


def judged(new: Belief, old: Belief, verdicts: list[RESULTS]) -> Belief:
    """The new belief, or the old one at this time if anything failed."""
    good = finite((new.q, new.v, new.z, new.free, new.P))
    verdicts.append(RESULTS.where(good, RESULTS.successful, RESULTS.nonfinite_state))
    result = first_failure(*verdicts)
    kept = tree_where(result == RESULTS.successful, new, old)
    return kept.replace(kept.point, t=new.t, result=result)


def first_of(results: RESULTS) -> RESULTS:
    """The first failure along the first axis."""
    k = jnp.argmax(code(results) != code(RESULTS.successful))
    return jax.tree.map(lambda x: jnp.asarray(x)[k], results)


def _spread(given, sizes, dtype, of) -> Array:
    return jnp.asarray(np.repeat([of(x) for x in given], sizes), dtype)


def _in_free_numbers(
    unknowns: Parameters, theta: Float[Array, " p"], given: Mapping[str, Any]
) -> Float[Array, " p"]:
    """Standard deviations of values as those of the free numbers of entrywise transforms."""
    slopes = unknowns.slopes(theta)
    parts, begin = [], 0
    for name, unknown in unknowns.items():
        size = unknown.transform.size(unknown.guess)
        here = jnp.zeros(size, theta.dtype)
        if name in given:
            here = here + jnp.ravel(jnp.asarray(given[name], theta.dtype))
        parts.append(here)
        begin += size
    return jnp.concatenate(parts) / slopes
