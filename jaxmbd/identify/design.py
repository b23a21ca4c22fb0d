"""`design`, which finds the motion that tells most about parameters."""

import csv
import os
import pathlib
import time as clock
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import scipy.linalg
import scipy.special
from jaxtyping import Array, Float, PyTree

from .._compiler import as_one_program, to_jax
from .._inputs import Numbers, at_least, checked, inside, positive, random_key
from .._mechanism import pyplot
from .._printed import judged, printed
from .._progress import progress_bar, says_when_compiling
from .._results import RESULTS
from .._search import (
    DEPENDENT,
    Iterate,
    Monitor,
    Multipliers,
    Optimiser,
    as_minimiser,
    first_iterate,
    iterate,
    largest_violation,
    next_iterate,
    nonzero,
    once,
)
from .._system import AbstractSystem, State
from .._types import SeveralAxes
from .criteria import AbstractCriterion, DOptimal, judge
from .driven import Drive
from .excitation import AbstractExcitation, Applied, Course, Limit, Prescribed
from .experiment import (
    AbstractExperiment,
    Outcome,
    PrescribedExperiment,
    applied,
    in_parts,
    outcome,
    prescribed,
)
from .identifiability import Combination, Identifiability, identifiability
from .least_squares import LeastSquares, covariance, least_squares
from .record import Record
from .sensors import SensorsGiven
from .signals import AbstractSignal

# The method of multipliers: the first penalty of limits in shares of their range, and the largest
# number of rounds.
_PENALTY, _ROUNDS = 10.0, 12
# The share of their size down to which the signals of the last round are made smaller, if they
# exceed limits by a little.
_LEAST = 0.9
# Limits are looked at this many times as often as the search does.
_FINER = 4


@printed
class Design(eqx.Module):
    """The result of `design`, or another experiment beside it; `print` it.

    **Fields:**

    - `course`: the signals, whose `coefficients` are `(channels, size)`; between its `lower` and
      `upper`, which may be a little closer than those given. `course(t)` are their values, and
      `course.at(t)` also their first two derivatives. A control `(t, q, v) -> u`.
    - `time`: of the samples, `(n,)`. `q`, `v`: the motion there. `u`: the inputs, or the efforts of
      the drives in a `Prescribed` motion.
    - `names`, `entries`: all numbers of the parameters at the guess, `(e,)`. `covariance`: the one
      that a fit to this experiment will have, `(e, e)`. Its diagonal is infinite for entries that
      the experiment does not determine.
    - `jacobian`: of the readings in units of their noise by the free numbers, `(rows, p)`.
    - `excess`: how far each limit is exceeded, in shares of its range, on a finer grid of times
      than that of the samples or of the search. Limits that hold are negative: `name -> share`.
    - `value`: of the criterion. `history`: its values in the search, with the limits in it.
    - `iterations`, `seconds`, `result`: those of the search. `infeasible` if limits are exceeded.
    """

    course: Course
    time: np.ndarray
    q: np.ndarray
    v: np.ndarray
    u: np.ndarray
    names: tuple[str, ...]
    entries: np.ndarray
    covariance: np.ndarray
    jacobian: np.ndarray
    excess: dict[str, float]
    value: float
    history: np.ndarray
    iterations: int
    seconds: float
    result: RESULTS
    setting: "_Setting"

    @property
    def sigma(self) -> np.ndarray:
        """The standard deviation that a fit will find for each entry."""
        return np.sqrt(np.diag(self.covariance))

    @checked
    def interval(self, level: Annotated[float, inside(0, 1)] = 0.95) -> np.ndarray:
        """The confidence intervals that a fit will find, about the guess, `(e, 2)`."""
        half = scipy.special.ndtri((1 + level) / 2) * self.sigma
        parameters = self.setting.experiment.parameters
        z = to_jax(np.zeros(parameters.size))
        return np.stack(as_one_program(parameters.interval)(z, to_jax(half)), axis=1)

    def identifiability(self) -> Identifiability:
        """Which combinations of the free numbers the experiment determines. Priors are left out."""
        names = self.setting.experiment.parameters.free_names
        return identifiability(self.jacobian, 1.0, names)

    @property
    def condition(self) -> float:
        """The condition number of the sensitivity to what any such experiment determines, with
        columns of length 1, as designs in the literature are compared."""
        J = self.jacobian @ self.setting.basis
        return float(np.linalg.cond(J / np.linalg.norm(J, axis=0)))

    @property
    def base(self) -> tuple[Combination, ...]:
        """The base parameters, from the best to the least known one: as many combinations of the
        free numbers as experiments of this kind can determine, each with one number that is in no
        other combination."""
        basis, names = self.setting.basis, self.setting.experiment.parameters.free_names
        rank = basis.shape[1]
        found: Any = scipy.linalg.qr(basis.T, mode="economic", pivoting=True)
        _, R, order = found
        rows = np.zeros((rank, len(names)))
        rows[:, order] = scipy.linalg.solve_triangular(R[:, :rank], R)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        J = np.concatenate([self.jacobian, self.setting.prior]) @ basis
        _, values, right = np.linalg.svd(J, full_matrices=False)
        sigma = np.linalg.norm((rows @ basis) @ right.T / values, axis=1)
        return tuple(
            Combination(
                float(1 / sigma[k]),
                float(sigma[k]),
                {name: float(x) for name, x in zip(names, rows[k], strict=True) if abs(x) > _SMALL},
                bool(sigma[k] < 1),
            )
            for k in np.argsort(sigma)
        )

    @checked
    def record(self, measured: Any, name: str = "record") -> Record:
        """What was measured under an `Applied` control, `(n, m)`, as a record for `fit`.

        **Raises:** `ValueError` for a `Prescribed` motion, which `fit` of this design takes."""
        setting = self.setting
        if not isinstance(setting.excitation, Applied):
            raise ValueError(
                "A record is of a motion under a control, but this one is `Prescribed`: call `fit` "
                "of the design."
            )
        columns = len(self.jacobian) // len(self.time)
        weights = 1 / np.broadcast_to(setting.noise, columns)
        return Record(
            self.time, measured, setting.start, control=self.course, weights=weights, name=name
        )

    @checked
    def fit(self, measured: Any, *, progress: bool = True) -> LeastSquares:
        """Find the parameters from what was measured in a `Prescribed` motion, `(n, m)`, in the
        order of the sensors, by default the efforts of the drives. Of what is not determined the
        guess is kept. See `values`.

        **Returns:** a `LeastSquares` for the coordinates in what can be known.

        **Raises:** `ValueError` for a control, whose `record` goes to `identify.fit`, and for
        another number of measurements."""
        experiment = self.setting.experiment
        if not isinstance(experiment, PrescribedExperiment):
            raise ValueError("Give the `record` of a motion under a control to `identify.fit`.")
        columns = len(self.jacobian) // len(self.time)
        measured = np.asarray(measured, float).reshape(len(self.time), -1)
        if measured.shape[1] != columns:
            raise ValueError(
                f"`measured` must have {columns} columns, but has {measured.shape[1]}."
            )
        basis = to_jax(self.setting.basis)
        data = experiment, self.course, basis, to_jax(measured)
        start = to_jax(np.zeros(basis.shape[1]))
        return least_squares(_of_efforts, start, data, count=measured.size, progress=progress)

    def values(self, found: LeastSquares) -> dict[str, PyTree]:
        """The values of the parameters that `fit` of this design has found, by name."""
        z = to_jax(self.setting.basis @ np.asarray(found.value))
        return self.setting.experiment.parameters.values(z)

    @checked
    def beside(self, signal: AbstractSignal, coefficients: Numbers) -> "Design":
        """The same experiment with another signal, such as a `Sweep`, about the middle of the range
        and as large as the limits allow.

        **Arguments:** `coefficients`: `(size,)`, or `(channels, size)`.
        """
        course = self.setting.experiment.course
        shape = (len(course.lower), signal.size)
        given = np.broadcast_to(np.asarray(coefficients, float), shape)
        largest = self.setting.shrunk(Course(signal, course.lower, course.upper, to_jax(given)))
        return self.setting.design(largest, np.zeros(0), 0, 0.0, RESULTS.successful)

    @checked
    def save(self, path: str | os.PathLike) -> None:
        """Write a table as CSV: t, and x, x' and x'' of the drives in a `Prescribed` motion; q, v
        and u."""
        columns = {"t": self.time[:, None]}
        if isinstance(self.setting.excitation, Prescribed):
            names = ("position", "rate", "acceleration")
            columns |= dict(zip(names, self.drive(self.time), strict=True))
        columns |= {"q": self.q, "v": self.v, "u": self.u}
        head = [
            name if name == "t" else f"{name}[{i}]"
            for name, x in columns.items()
            for i in range(x.shape[1])
        ]
        with pathlib.Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(np.concatenate(list(columns.values()), axis=1).tolist())

    def drive(self, t: Any) -> Drive:
        """The values of the signals at times `(n,)`, with their first two derivatives."""
        found = as_one_program(lambda course, t: jax.vmap(course.at)(t))(self.course, to_jax(t))
        return jax.tree.map(np.asarray, found)

    @checked
    def plot(self, axes: SeveralAxes | None = None) -> np.ndarray:
        """Plot the signals, and the inputs or efforts of the drives, with their limits.

        **Returns:** the two axes. **Raises:** `ImportError` without matplotlib."""
        if axes is None:
            size = dict(figsize=(10, 5), sharex=True, layout="constrained")
            _, axes = pyplot().subplots(2, 1, **size)
        above, below = np.ravel(np.asarray(axes, object))
        x, course = self.drive(self.time).position, self.setting.experiment.course
        ends = zip(np.asarray(course.lower), np.asarray(course.upper), strict=True)
        is_motion = isinstance(self.setting.excitation, Prescribed)
        for i, (low, high) in enumerate(ends):
            above.plot(self.time, x[:, i], f"C{i}", label=str(i))
            above.hlines([low, high], *self.time[[0, -1]], f"C{i}", "dotted", lw=0.8)
        other = self.u if is_motion else self.q
        below.plot(self.time, other, lw=0.9)
        above.set_ylabel("position of the drives" if is_motion else "inputs")
        below.set_ylabel("efforts of the drives" if is_motion else "q")
        below.set_xlabel("time [s]")
        for ax in (above, below):
            ax.grid(alpha=0.3)
        return np.array([above, below])

    def __str__(self) -> str:
        told = np.isfinite(self.sigma)
        names = [name for name, known in zip(self.names, told, strict=True) if known]
        width = max(9, *(len(name) for name in names)) if names else 9
        lines = [f"{'':{width}}  {'guess':>12}  {'sigma':>9}   predicted 95 % interval"]
        rows = zip(self.entries[told], self.sigma[told], self.interval()[told], strict=True)
        for name, (value, sigma, (low, high)) in zip(names, rows, strict=True):
            lines.append(f"{name:{width}}  {value:12.6g}  {sigma:9.2g}   {low:.6g} ... {high:.6g}")
        base, free = self.base, len(self.setting.basis)
        if len(base) < free:
            lines.append(
                f"{len(base)} combinations of {free} free numbers can be known; the worst:"
            )
            lines += [f"  {c!s}" for c in base[-_SHOWN:]]
        lines.append(f"condition number {self.condition:.3g}, criterion {self.value:.4g}")
        name, share = max(self.excess.items(), key=lambda item: item[1], default=("", -1.0))
        if name:
            says = "exceeded by" if share > 0 else "kept with a margin of"
            lines.append(f"limits: {name} {says} {100 * abs(share):.2g} % of its range")
        lines.append(judged(self.result, "converged", "NOT CONVERGED"))
        lines.append(f"{self.iterations} iterations in {self.seconds:.1f} s, with compilation")
        return "\n".join(lines)


# Coefficients of base parameters up to this are rounding errors.
_SMALL = 1e-6
# How many of the least known base parameters are printed.
_SHOWN = 5
# The steps in which the largest share of the range is found that keeps the limits.
_HALVINGS = 12


class _Setting(eqx.Module):
    """What designs of one experiment share."""

    experiment: AbstractExperiment
    excitation: AbstractExcitation
    criterion: AbstractCriterion
    start: Any
    noise: np.ndarray
    # Orthonormal columns: what the experiment can tell of the free numbers; and the combinations of
    # these whose covariance is judged.
    basis: np.ndarray
    combinations: np.ndarray
    prior: np.ndarray
    tolerance: float

    def finer(self) -> np.ndarray:
        """The times at which limits are checked."""
        time = np.asarray(self.experiment.time)
        few = len(self.experiment.thinned().time)
        return np.linspace(time[0], time[-1], _FINER * (few - 1) + 1)

    def conditions(self, course: Course) -> np.ndarray:
        """The conditions on a finer grid, or infinite ones if there is no such motion."""
        _, values, good = in_parts(self.experiment, course, self.finer())
        d = np.asarray(self.experiment.bounds.conditions(values))
        return d if good else np.full_like(d, np.inf)

    def within(self, course: Course) -> bool:
        return bool(np.max(self.conditions(course), initial=-np.inf) <= 0)

    def shrunk(self, course: Course, least: float = 0.0) -> Course:
        """The signals about the middle of their ranges, as large as the limits allow; unchanged if
        they are exceeded even at the share `least` of the size."""
        lower, upper = np.asarray(course.lower), np.asarray(course.upper)
        middle, half = (lower + upper) / 2, (upper - lower) / 2

        def scaled(share):
            ends = to_jax(middle - share * half), to_jax(middle + share * half)
            return Course(course.signal, *ends, course.coefficients)

        if self.within(course) or not self.within(scaled(least)):
            return course
        low, high = least, 1.0
        for _ in range(_HALVINGS):
            share = (low + high) / 2
            low, high = (share, high) if self.within(scaled(share)) else (low, share)
        return scaled(low)

    def design(
        self, course: Course, history: np.ndarray, iterations: int, seconds: float, result: RESULTS
    ) -> Design:
        """The design with these signals."""
        experiment, parameters = self.experiment, self.experiment.parameters
        J, values = in_parts(experiment, course)[:2]
        d = self.conditions(course)
        bounds, excess = experiment.bounds, {}
        for k, column in enumerate(bounds.columns):
            name = experiment.labels[column]
            excess[name] = max(excess.get(name, -np.inf), float(np.max(d[:, k])))
        if max(excess.values(), default=-1.0) > self.tolerance:
            result = RESULTS.infeasible
        told, J = J, np.concatenate([J, self.prior])
        # The noise is known, so the residuals count as if they had its size.
        count = len(J) + parameters.size
        r = np.ones(len(J))
        z = to_jax(np.zeros(parameters.size))
        entries, D = as_one_program(lambda z: _entries(parameters, z))(z)
        known = to_jax(J @ self.basis), to_jax(self.combinations)
        value = as_one_program(judge)(self.criterion, *known)
        return Design(
            course,
            np.asarray(experiment.time),
            *experiment.states(values),
            parameters.names,
            np.asarray(entries),
            covariance(J, r, count, D),
            told,
            excess,
            float(value),
            history,
            iterations,
            seconds,
            result,
            self,
        )


def _of_efforts(y: Array, data: tuple) -> Array:
    experiment, course, basis, measured = data
    readings = experiment.readings(course, basis @ y)
    return jnp.concatenate(
        [
            ((readings - measured) * experiment.weights[None]).ravel(),
            experiment.parameters.prior(basis @ y),
        ]
    )


def _entries(parameters, z):
    return parameters.entries(z), jax.jacfwd(parameters.entries)(z)


@checked
@says_when_compiling("design")
def design(
    model: AbstractSystem | Callable[[dict[str, PyTree]], Any],
    parameters: Any,
    excitation: AbstractExcitation,
    time: Any,
    start: State | Callable[[AbstractSystem], State],
    sensors: SensorsGiven | None = None,
    *,
    noise: Annotated[Numbers, positive],
    limits: Sequence[Limit] = (),
    of: Sequence[str] | None = None,
    criterion: AbstractCriterion = DOptimal(),
    guess: Numbers | None = None,
    starts: Annotated[int, at_least(1)] = 10,
    key: Annotated[PyTree, random_key] | None = None,
    optimiser: Any = None,
    max_iterations: Annotated[int, at_least(1)] = 60,
    tolerance: Annotated[float, positive] = 1e-3,
    progress: bool = True,
) -> Design:
    r"""Find the signals of an experiment that tells most about parameters: those for which the
    covariance that a fit will have is smallest, within limits,

    $$
    \min_c \; \varphi\bigl(G^\mathsf{T} (J^\mathsf{T} J)^{-1} G\bigr), \qquad
    J = \frac{1}{\sigma} \frac{\partial h}{\partial p}, \qquad d(c, t) \leq 0 .
    $$

    h are the readings of the sensors at the guess of the parameters. What no experiment of this
    kind determines is left out: the search is for the base parameters, whose number is the rank of
    J over all first guesses.

    **Arguments:**

    - `model`, `parameters`, `sensors`: as of `fit`. By default the sensors of a `Prescribed` motion
      are the efforts of its drives.
    - `excitation`: `Prescribed` or `Applied`, with a signal and its limits.
    - `time`: of the samples, increasing, `(n,)` [s]. `start`: the state at `time[0]` as of
      `Record`; for a `Prescribed` motion any pose, near its middle, of the right branch.
    - `noise`: the standard deviation of the readings, a number or one for each column.
    - `limits`: further ones, see `Limit`.
    - `of`: the parameters whose covariance matters, of which only what can be determined counts;
      default all.
    - `criterion`: `DOptimal()`, `AOptimal()`, `EOptimal()`, or one of your own.
    - `guess`: the coefficients to start from, `(channels, size)`. By default the best one of
      `starts` random guesses with this random `key`.
    - `optimiser`: a minimiser of optimistix or an optimiser of optax; default BFGS.
    - `max_iterations` of each round of the method of multipliers. `tolerance`: of the coefficients
      and the criterion; also how far limits may be exceeded, in shares of their range.
    - `progress`: whether to show a bar.

    **Returns:** a `Design`; `print` it. If a limit is exceeded, or the search has not converged,
    its `result` says so.

    **Raises:** `ValueError` for arguments that do not match, and if none of the guesses has a
    motion.

    References: Swevers et al. (1997), see `Fourier`. Gautier and Khalil (1992), Exciting
    trajectories for the identification of base inertial parameters of robots, Int. J. Robotics
    Research 11. Walter and Pronzato (1997), Identification of Parametric Models from Experimental
    Data, Springer, chapter 6.
    """
    begin = clock.perf_counter()
    blank = Record(time, np.zeros(len(time)), start)
    given: Any = blank.time, start, sensors, noise, limits
    if isinstance(excitation, Prescribed):
        experiment: AbstractExperiment = prescribed(model, parameters, excitation, *given)
    elif isinstance(excitation, Applied):
        experiment = applied(model, parameters, excitation, *given)
    else:
        raise ValueError(
            f"`excitation` of design must be `Prescribed` or `Applied`, but is {excitation!r}."
        )
    thinned = experiment.thinned()
    courses, outcomes = _first(thinned, guess, starts, key, progress)
    unknown = experiment.parameters
    prior = np.asarray(
        as_one_program(lambda z: jax.jacfwd(unknown.prior)(z))(to_jax(np.zeros(unknown.size)))
    )
    every = np.concatenate([prior, *(x.jacobian for x in outcomes)])
    basis = _basis(every)
    chosen = _chosen(basis, experiment.parameters, of)
    # Limits are kept at the samples of the search with a little room.
    margin = np.full(len(experiment.bounds.columns), tolerance)
    setting = _Setting(
        eqx.tree_at(lambda e: e.bounds.margin, experiment, np.zeros_like(margin)),
        excitation,
        criterion,
        start,
        np.asarray(noise, float),
        basis,
        chosen,
        prior,
        tolerance,
    )
    thinned = eqx.tree_at(lambda e: e.bounds.margin, thinned, margin)
    objective = _Objective(thinned, criterion, to_jax(prior), to_jax(basis), to_jax(chosen))
    solver = optx.BFGS(rtol=tolerance, atol=tolerance) if optimiser is None else optimiser
    search = _Search(objective, solver, max_iterations, tolerance, progress)
    course, history, iterations, result = search.from_best(courses, outcomes, setting)
    return setting.design(course, history, iterations, clock.perf_counter() - begin, result)


def _first(experiment, guess, starts, key, progress) -> tuple[list[Course], list[Outcome]]:
    """First guesses and what they give."""
    course = experiment.course
    shape = course.coefficients.shape
    if guess is not None:
        guess = np.asarray(guess, float)
        if guess.shape != shape:
            raise ValueError(
                f"`guess` of design must have shape {shape}, a row of coefficients for each "
                f"channel, but has {guess.shape}."
            )
    key = jax.random.key(0) if key is None else key
    random = np.asarray(jax.random.normal(key, (starts, *shape))) * course.signal.scale
    tables = list(random) if guess is None else [guess, *random[:2]]
    courses, outcomes = [], []
    with progress_bar(len(tables), "design, first guesses", progress) as bar:
        for table in tables:
            here = eqx.tree_at(lambda c: c.coefficients, course, to_jax(table))
            found = jax.tree.map(np.asarray, outcome(experiment, here))
            if found.good and np.all(np.isfinite(found.jacobian)):
                courses.append(here)
                outcomes.append(found)
            bar.update()
    if not courses:
        raise ValueError(
            "None of the first guesses has a motion: give another `start`, a narrower range, or a "
            "`guess`."
        )
    return courses, outcomes


def _basis(J: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span what J tells of the free numbers."""
    _, values, rows = np.linalg.svd(J, full_matrices=False)
    return rows[nonzero(values, DEPENDENT)].T


def _chosen(basis: np.ndarray, parameters: Any, of: Sequence[str] | None) -> np.ndarray:
    """The combinations of the basis that concern only the chosen parameters."""
    if of is None:
        return np.eye(basis.shape[1])
    unknown = [name for name in of if name not in parameters.keys]
    if unknown or not of:
        raise ValueError(
            f"`of` of design must name parameters among {list(parameters.keys)}, but has "
            f"{unknown or list(of)}."
        )
    sizes = [member.transform.size(member.guess) for _, member in parameters.items()]
    wanted = np.repeat([name in of for name in parameters.keys], sizes)
    own = np.eye(len(wanted))[:, wanted]
    # Directions in both spaces have no part outside of the basis.
    lost = own - basis @ (basis.T @ own)
    _, values, rows = np.linalg.svd(lost)
    values = np.append(values, np.zeros(len(rows) - len(values)))
    found = basis.T @ (own @ rows[values < np.sqrt(DEPENDENT)].T)
    if not found.size:
        raise ValueError(
            f"No experiment of this kind determines any of {list(of)} alone, but only together "
            "with other parameters: leave these out, or give them priors."
        )
    return found


class _Objective(eqx.Module):
    """The criterion of coefficients with the limits, as a function to minimise."""

    experiment: AbstractExperiment
    criterion: AbstractCriterion
    prior: Float[Array, "rows p"]
    basis: Float[Array, "p r"]
    combinations: Float[Array, "r k"]

    def judged(self, found: Outcome) -> tuple[Array, Array]:
        """The criterion, infinite if there is no motion, and the conditions d <= 0."""
        J = jnp.concatenate([found.jacobian, self.prior]) @ self.basis
        value = judge(self.criterion, J, self.combinations)
        return jnp.where(found.good, value, jnp.inf), self.experiment.bounds.conditions(
            found.values
        )

    def __call__(self, coefficients: Array, multipliers: Multipliers):
        """The augmented criterion, and (criterion, violation)."""
        course = eqx.tree_at(lambda c: c.coefficients, self.experiment.course, coefficients)
        value, d = self.judged(self.experiment.outcome(course))
        none = jnp.zeros(0, d.dtype)
        whole = value + multipliers.of_inequalities(multipliers.inequality, d)
        return whole, (value, largest_violation(none, d))


@eqx.filter_custom_jvp
def _loss(coefficients, args):
    objective, multipliers = args
    return objective(coefficients, multipliers)


# The optimiser transposes the derivative in a program of its own. Here it is one product with the
# gradient, which is computed together with the value.
@_loss.def_jvp
def _loss_jvp(primals, tangents):
    (coefficients, (objective, multipliers)), (along, _) = primals, tangents
    both = jax.value_and_grad(objective, has_aux=True)
    found, gradient = both(coefficients, multipliers)
    value, aux = found
    return (value, aux), (jnp.sum(gradient * along), jax.tree.map(lambda _: None, aux))


@eqx.filter_jit
def _judged(objective: _Objective, found: Outcome):
    return objective.judged(found)


def _begin(args, coefficients) -> Iterate:
    objective, multipliers, solver = args
    aux = jnp.zeros((), coefficients.dtype), jnp.zeros((), coefficients.dtype)
    return first_iterate(solver, _loss, coefficients, (objective, multipliers), aux)


def _step(args, here: Iterate) -> Iterate:
    objective, multipliers, solver = args
    return next_iterate(solver, _loss, (objective, multipliers), here)


class _Search(eqx.Module):
    """The search by the method of multipliers."""

    objective: _Objective
    optimiser: Optimiser
    max_iterations: int
    tolerance: float
    progress: bool

    def from_best(self, courses: list[Course], outcomes: list[Outcome], setting: _Setting):
        """The course, the history of the criterion, the number of iterations, and the verdict."""

        def first_cost(found):
            value, d = map(np.asarray, _judged(self.objective, found))
            pull = np.maximum(d, 0.0)
            return float(value) + _PENALTY / 2 * float(np.sum(pull**2))

        costs = [first_cost(found) for found in outcomes]
        best = int(np.argmin(costs))
        course, found = courses[best], outcomes[best]
        objective = self.objective
        solver = as_minimiser(self.optimiser, jnp.asarray(self.tolerance))
        y, total, done = course.coefficients, 0, False
        _, d = _judged(objective, found)
        multipliers = Multipliers.zeros(jnp.zeros(0, d.dtype), d, jnp.asarray(_PENALTY))
        history: list[float] = []

        def report(here: Iterate) -> str:
            value, violation = map(float, here.aux)
            history.append(value)
            return f"criterion {value:.6g}, limits {violation:.1e}"

        for number in range(1, _ROUNDS + 1):
            args = objective, multipliers, solver
            monitor = Monitor(f"design, round {number}", self.max_iterations, report, self.progress)
            end, count = iterate(_step, args, once(_begin, args, y), monitor)
            y, total, done = end.y, total + count, bool(end.done) and bool(end.sound)
            course = eqx.tree_at(lambda c: c.coefficients, course, y)
            found = outcome(objective.experiment, course)
            _, d = _judged(objective, found)
            multipliers = multipliers.next_round(jnp.zeros(0, d.dtype), d)
            if float(multipliers.violation) > self.tolerance:
                continue
            # Between the samples of the search limits may be exceeded a little.
            worst = np.max(setting.conditions(course), axis=0, initial=-np.inf)
            if np.max(worst, initial=-np.inf) <= 0:
                if done:
                    break
                continue
            more = objective.experiment.bounds.margin + np.maximum(worst, 0.0)
            objective = eqx.tree_at(lambda o: o.experiment.bounds.margin, objective, more)
        result = RESULTS.successful if done else RESULTS.max_iterations_reached
        # What is left of the last round's violation.
        course = setting.shrunk(course, _LEAST)
        return course, np.array(history), total, result
