"""Experiments before they are done: what sensors would read, how that depends on the parameters,
and how far it is from the limits, as functions of the coefficients of signals."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._checks import check_no_internal, check_system
from .._compiler import as_one_program, to_jax
from .._equations import equations
from .._linalg import dense
from .._mechanism import Driven, with_drives
from .._methods import UdwadiaKalaba
from .._results import succeeded
from .._search import nonzero, redundancy
from .._system import AbstractSystem, State
from .driven import Drive, Kinematic, kinematic, loads, off, poses
from .excitation import Applied, Bounds, Course, Limit, Prescribed, each_channel, in_sequence
from .parameters import Parameters
from .problem import FitProblem, SimulationOptions, make_problem
from .record import Record
from .rig import Rig, Rigged, named
from .sample import Sample
from .sensors import SensorsGiven


class Outcome(NamedTuple):
    """What an experiment gives.

    - `jacobian`: the derivatives of the readings, with their noise as the unit, with respect to the
      free numbers of the parameters, `(rows, p)`.
    - `values`: what is limited, `(n, k)`. `good`: whether there is such a motion.
    """

    jacobian: Float[Array, "rows p"]
    values: Float[Array, "n k"]
    good: Bool[Array, ""]


class AbstractExperiment(eqx.Module):
    """An experiment as a function of the coefficients of its signals."""

    course: eqx.AbstractVar[Course]
    bounds: eqx.AbstractVar[Bounds]
    time: eqx.AbstractVar[Float[Array, " n"]]
    labels: eqx.AbstractVar[tuple[str, ...]]
    # The number of measured numbers.
    count: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def parameters(self) -> Parameters:
        """The unknowns."""

    @abc.abstractmethod
    def outcome(self, course: Course) -> Outcome:
        """What the experiment gives."""

    @abc.abstractmethod
    def states(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, v and the inputs, or the efforts of the drives, in the values of an `Outcome`."""

    @abc.abstractmethod
    def thinned(self) -> "AbstractExperiment":
        """The experiment with which a search computes."""

    @abc.abstractmethod
    def parts(self, time: np.ndarray | None = None) -> Sequence["AbstractExperiment"]:
        """The experiment in parts, which one program computes; or at other times."""


def in_parts(
    experiment: AbstractExperiment, course: Course, time: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The parts of the `Outcome` of a whole experiment, or at other times."""
    count = len(experiment.time if time is None else time)
    found = [jax.tree.map(np.asarray, outcome(x, course)) for x in experiment.parts(time)]
    values, J = (
        np.concatenate([getattr(x, name) for x in found]) for name in ("values", "jacobian")
    )
    # The last part may repeat the last time.
    columns = len(J) // len(values)
    return J[: count * columns], values[:count], all(bool(x.good) for x in found)


@eqx.filter_jit
def outcome(experiment: AbstractExperiment, course: Course) -> Outcome:
    """What an experiment gives, compiled."""
    return experiment.outcome(course)


# --- prescribed motions ---------------------------------------------------------------------------


class PrescribedExperiment(AbstractExperiment):
    """Measurements of a prescribed motion."""

    rig: Rig
    unknown: Parameters
    excitation: Prescribed
    course: Course
    bounds: Bounds
    limits: tuple[Callable[[Sample], Any], ...]
    start: State
    time: Float[Array, " n"]
    weights: Float[Array, " m"]
    # Which of position, rate, acceleration and effort are limited.
    limited: tuple[bool, ...] = eqx.field(static=True)
    # Whether the motion depends on the parameters.
    follows: bool = eqx.field(static=True)
    labels: tuple[str, ...] = eqx.field(static=True)
    count: int = eqx.field(static=True)

    @property
    def parameters(self):
        return self.unknown

    @property
    def _guess(self) -> Float[Array, " p"]:
        return jnp.zeros(self.unknown.size, self.start.q.dtype)

    def _rigged(self, z) -> tuple[Rigged, Driven]:
        rigged = self.rig(self.unknown.values(z))
        drives = in_sequence(self.excitation.drives)
        return rigged, with_drives("design", rigged.system, self.start.q, drives)

    def _motion(self, course: Course) -> "_Motion":
        rigged, whole = self._rigged(self._guess)
        wanted = jax.vmap(course.at)(self.time)
        start, still = (self.start.q, self.start.v), jnp.zeros_like(self.start.v)
        q, good = poses(whole, start, self.time, wanted.position)

        def moment(t, q, wanted):
            return kinematic(whole, 1, t, q, still, wanted)

        here = jax.vmap(moment)(self.time, q, wanted)
        return _Motion(rigged, whole, wanted, here, q, jnp.all(good))

    def _sample(self, system, whole, t, here) -> Sample:
        forces = loads(system, whole, self.excitation.u, t, here)
        return Sample(system=system, control=None, t=t, q=here.q, v=here.v, driven=forces)

    def _limited(self, motion: "_Motion"):
        system, whole = motion.rigged.system, motion.whole

        def moment(t, here, wanted):
            sample = self._sample(system, whole, t, here)
            both = zip((*wanted, sample.u), self.limited, strict=True)
            own = [jnp.ravel(jnp.asarray(limit(sample), t.dtype)) for limit in self.limits]
            limited = [x for x, limited in both if limited]
            return jnp.concatenate([*limited, *own, here.q, here.v, sample.u])

        found = jax.vmap(moment)(self.time, motion.here, motion.wanted)
        return found, motion.good & jnp.all(jnp.isfinite(found))

    def states(self, values):
        nq, nv, d = len(self.start.q), len(self.start.v), len(self.course.lower)
        q, v, u = np.split(values[:, -nq - nv - d :], [nq, nq + nv], axis=1)
        return q, v, u

    def _readings(self, motion: "_Motion", z: Float[Array, " p"]) -> Float[Array, "n m"]:
        rigged, whole = self._rigged(z)
        still = jnp.zeros_like(self.start.v)

        def moment(t, here, q, wanted):
            if self.follows:
                here = kinematic(whole, 2, t, q, still, wanted)
            return jnp.ravel(rigged.sensors(self._sample(rigged.system, whole, t, here)))

        return jax.vmap(moment)(self.time, motion.here, motion.pose, motion.wanted)

    def readings(self, course: Course, z: Float[Array, " p"]) -> Float[Array, "n m"]:
        """The readings for these free numbers of the parameters."""
        return self._readings(self._motion(course), z)

    def outcome(self, course):
        motion = self._motion(course)

        def rows(z):
            return (self._readings(motion, z) * self.weights[None]).ravel()

        return Outcome(jax.jacfwd(rows)(self._guess), *self._limited(motion))

    def _at(self, time, factor=1.0):
        new = to_jax(time, self.time.dtype), self.weights * factor
        return eqx.tree_at(lambda e: (e.time, e.weights), self, new)

    def thinned(self):
        n, few = len(self.time), self.excitation.points
        if n <= few:
            return self
        time = np.asarray(self.time)[np.linspace(0, n - 1, few).round().astype(int)]
        return self._at(time, np.sqrt(n / few))

    def parts(self, time=None):
        time = np.asarray(self.time) if time is None else time
        few = min(self.excitation.points, len(self.time))
        count = -(-len(time) // few)
        time = np.concatenate([time, np.repeat(time[-1:], count * few - len(time))])
        return [self._at(part) for part in np.split(time, count)]


class _Motion(NamedTuple):
    """The model at the guess, the wanted values of the drives, the motion, the poses from which it
    follows, and whether they were found."""

    rigged: Rigged
    whole: Driven
    wanted: Drive
    here: Kinematic
    pose: Float[Array, "n nq"]
    good: Bool[Array, ""]


def _effort(sample: Sample) -> Array:
    return sample.u


def prescribed(
    model: Any,
    parameters: Any,
    excitation: Prescribed,
    time: np.ndarray,
    start: State | Callable[[AbstractSystem], State],
    sensors: SensorsGiven | None,
    noise: Any,
    limits: Sequence[Limit],
) -> PrescribedExperiment:
    """The experiment with a prescribed motion. **Raises:** `ValueError` for arguments that do not
    match."""
    rig = Rig(model, {"effort": _effort} if sensors is None else sensors, [])
    unknown = Parameters(rig.parameters(parameters))
    rigged = rig(as_one_program(unknown.values)(to_jax(np.zeros(unknown.size))))
    system = rigged.system
    state = start if isinstance(start, State) else start(system)
    state = State(float(time[0]), *(to_jax(x, float) for x in (state.q, state.v)))
    control = None if excitation.u is None else lambda *_: excitation.u
    check_system(system, control, state.q, state.v)
    check_no_internal(system)
    drives = in_sequence(excitation.drives)
    count = len(drives)
    ends = [each_channel(x, getattr(excitation, x), count) for x in ("lower", "upper")]
    course = _course(excitation, *ends)
    most = [each_channel(x, getattr(excitation, x), count) for x in ("rate", "acceleration")]
    effort = each_channel("effort", excitation.effort, count)
    names = [x if isinstance(x, str) else str(i) for i, x in enumerate(drives)]
    low, high, limited, labels = [ends[0]], [ends[1]], [True], [f"position of {x}" for x in names]
    for what, bound in zip(("rate", "acceleration", "effort"), (*most, effort), strict=True):
        limited.append(bool(np.any(np.isfinite(bound))))
        if limited[-1]:
            low.append(-bound)
            high.append(bound)
            labels += [f"{what} of {x}" for x in names]
    made = PrescribedExperiment(
        rig=rig,
        unknown=unknown,
        excitation=excitation,
        course=course,
        bounds=Bounds.of(np.zeros(0), np.zeros(0)),
        limits=tuple(limit.sensor for limit in limits),
        start=state,
        time=to_jax(time, float),
        weights=to_jax(np.ones(1)),
        limited=tuple(limited),
        follows=False,
        labels=(),
        count=0,
    )

    def sample(z):
        rigged, whole = made._rigged(z)
        t = made.time[0]
        here = kinematic(whole, 1, t, state.q, state.v, course.at(t))
        return rigged, made._sample(rigged.system, whole, t, here)

    z = made._guess
    columns = [
        jax.eval_shape(lambda s=s: jnp.ravel(jnp.asarray(s(sample(z)[1])))).size
        for s in made.limits
    ]
    for i, (limit, size) in enumerate(zip(limits, columns, strict=True)):
        low.append(np.broadcast_to(limit.lower, size).astype(float))
        high.append(np.broadcast_to(limit.upper, size).astype(float))
        labels += [f"limit {i}"] * size
    size = jax.eval_shape(lambda: sample(z)[0].sensors(sample(z)[1])).size
    weights = 1 / _noise(noise, size)
    J, K = (np.asarray(x) for x in eqx.filter_jit(_rows_at_start)(made, z))
    free = K.shape[1] - int(
        np.sum(nonzero(np.linalg.svd(J, compute_uv=False), redundancy(K.dtype)))
    )
    if free != count:
        raise ValueError(
            f"The system has {free} freedoms, but `drives` has {count}: a motion is prescribed by "
            "as many drives as there are freedoms."
        )
    return dataclasses.replace(
        made,
        bounds=Bounds.of(np.concatenate(low), np.concatenate(high)),
        weights=to_jax(weights),
        follows=_follows(made),
        labels=tuple(labels),
        count=len(time) * size,
    )


def _rows_at_start(made: PrescribedExperiment, z):
    _, whole = made._rigged(z)
    K = dense(equations(whole.system).rows(made.time[0], made.start.q, made.start.v).J)
    return K[whole.own], K


# The derivatives by the parameters may vanish at a pose by chance, so others are looked at too.
_POSES = 3


def _follows(made: PrescribedExperiment) -> bool:
    """Whether the motion depends on the parameters."""
    rng = np.random.default_rng(0)
    near = to_jax(0.01 * rng.normal(size=(_POSES, made.unknown.size)))
    shifts = to_jax(rng.normal(size=(_POSES, *made.start.v.shape)))

    @jax.jit
    def slopes(near, shifts):
        guess, _ = made._rigged(made._guess)

        def of(z, shift):
            q = guess.system.retract(made.start.q, shift)

            def rows(z):
                _, whole = made._rigged(z)
                return off(whole, made.time[0], q, jnp.zeros(len(whole.drives), q.dtype))

            return jax.jacfwd(rows)(z)

        return jax.vmap(of)(near, shifts)

    return bool(np.any(np.asarray(slopes(near, shifts))))


def _noise(noise: Any, size: int) -> np.ndarray:
    noise = np.asarray(noise, float)
    if noise.shape not in ((), (1,), (size,)):
        raise ValueError(
            f"`noise` of design must be one number or one for each of the {size} numbers of the "
            f"sensors, but has shape {noise.shape}."
        )
    return np.broadcast_to(noise, size)


def _course(excitation: Prescribed | Applied, lower: np.ndarray, upper: np.ndarray) -> Course:
    """The signals, at rest in the middle. **Raises:** `ValueError` for bounds that leave no
    room."""
    if not np.all(np.isfinite(lower) & np.isfinite(upper) & (lower < upper)):
        raise ValueError(
            f"`lower` of the excitation must be finite and below `upper`, but they are {lower} and "
            f"{upper}."
        )
    zeros = np.zeros((len(lower), excitation.signal.size))
    return Course(excitation.signal, to_jax(lower), to_jax(upper), to_jax(zeros))


# --- controls that are applied --------------------------------------------------------------------


class AppliedExperiment(AbstractExperiment):
    """Measurements of the motion under a control, with the residuals of `fit`. The limited values
    are the last columns of the readings, without weight."""

    problem: FitProblem
    course: Course
    bounds: Bounds
    time: Float[Array, " n"]
    make: Callable[[np.ndarray], FitProblem] = eqx.field(static=True)
    measured: int = eqx.field(static=True)
    labels: tuple[str, ...] = eqx.field(static=True)
    count: int = eqx.field(static=True)

    @property
    def parameters(self):
        return self.problem.residuals.parameters

    def _under(self, course: Course):
        z = jnp.zeros(self.problem.size, course.coefficients.dtype)
        controls = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, course)
        data = self.problem.data
        return z, data._replace(parts=data.parts._replace(controls=controls))

    def outcome(self, course):
        _, J, found = self.problem.residuals.jacobian(*self._under(course))
        good = jnp.all(jnp.isfinite(found.readings)) & succeeded(found.result)[0]
        n, columns = found.readings[0].shape
        J = J[: n * columns].reshape(n, columns, -1)[:, : self.measured]
        values = found.readings[0][:, self.measured :]
        return Outcome(J.reshape(n * self.measured, -1), values, good)

    def states(self, values):
        nu, state = len(self.course.lower), self.problem.data.starts
        nq, nv = state[0].shape[1], state[1].shape[1]
        q, v = np.split(values[:, -nq - nv :], [nq], axis=1)
        return q, v, values[:, :nu]

    def thinned(self):
        return self

    def parts(self, time=None):
        if time is None:
            return [self]
        problem = self.make(time)
        return [dataclasses.replace(self, problem=problem, time=to_jax(time, self.time.dtype))]


def _state(sample: Sample) -> Array:
    return jnp.concatenate([sample.q, sample.v])


def applied(
    model: Any,
    parameters: Any,
    excitation: Applied,
    time: np.ndarray,
    start: State | Callable[[AbstractSystem], State],
    sensors: SensorsGiven | None,
    noise: Any,
    limits: Sequence[Limit],
) -> AppliedExperiment:
    """The experiment with a control. **Raises:** `ValueError` for arguments that do not match."""
    if sensors is None:
        raise ValueError("`sensors` of design is missing: under a control, say what is measured.")
    size = max(np.size(excitation.lower), np.size(excitation.upper))
    ends = [each_channel(x, getattr(excitation, x), size) for x in ("lower", "upper")]
    course = _course(excitation, *ends)
    own = named(sensors)
    bounded = (Limit(_effort, *ends), *limits, Limit(_state))
    every = {**own, **{f"limit {i}": limit.sensor for i, limit in enumerate(bounded)}}
    options = SimulationOptions(
        excitation.dt, excitation.enforcement or UdwadiaKalaba(), excitation.scheme
    )

    def make(time: np.ndarray, columns: int = 1, weights: Any = 1.0, measuring: bool = False):
        record = Record(
            time, np.zeros((len(time), columns)), start, control=course, weights=weights
        )
        with_sizes = options._replace(measuring=measuring)
        return make_problem(model, parameters, record, every, with_sizes)

    sizes = make(time, measuring=True).sizes
    measured, columns = sum(sizes[: len(own)]), sum(sizes)
    weights = np.concatenate([1 / _noise(noise, measured), np.zeros(columns - measured)])
    problem = make(time, columns, weights)

    def make_at(time):
        return make(time, columns, weights)

    pairs = list(zip(bounded, sizes[len(own) :], strict=True))
    low, high = (
        np.concatenate([np.broadcast_to(getattr(x, side), n).astype(float) for x, n in pairs])
        for side in ("lower", "upper")
    )
    labels = ["input", *(f"limit {i}" for i in range(len(limits))), "state"]
    return AppliedExperiment(
        problem=problem,
        course=course,
        bounds=Bounds.of(low, high),
        time=to_jax(time, float),
        make=make_at,
        measured=measured,
        labels=tuple(np.repeat(labels, sizes[len(own) :]).tolist()),
        count=problem.count,
    )
