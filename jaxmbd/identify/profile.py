"""Intervals of a fit from the loss itself: profile likelihood."""

import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import equinox as eqx
import numpy as np
import scipy.special
from jaxtyping import Array, PyTree

from .._compiler import compiled_quickly, to_jax
from .._inputs import at_least, checked, inside, positive
from .._mechanism import pyplot
from .._printed import counted, printed
from .._progress import progress_bar, says_when_compiling
from .._results import RESULTS, code, succeeded
from .._types import SeveralAxes
from .estimate import Estimate, interval_ends
from .least_squares import covariance
from .parameters import Parameters
from .profile_sides import March, Side

# A lower loss than that of the estimate is told from this share of the rise on.
_TOLD = 0.02
_SIDES = "low", "high"


def _is(result: RESULTS, other: RESULTS) -> bool:
    return bool(code(result) == code(other))


@printed
class ParameterProfile(NamedTuple):
    """The profile of one free number. What has two sides has two members, low and high.

    **Fields:**

    - `name`; `estimate`: the value that was found.
    - `interval`: the ends of the interval, `(2,)`: where the loss has risen by `Profile.rise`. At a
      bound it is the bound. Where the loss stays low, it is the limit of the values, such as 0 or
      infinity. NaN if it was not found, see `results`.
    - `linearised`: the interval of the covariance, `(2,)`.
    - `at_bound`: whether an end is a bound of the parameter, `(2,)`.
    - `results`: two verdicts. `successful` is an end that was found, or a bound;
      `loss_stays_low` an open one; `stuck` one that was found where searches ended at kinks of the
      loss, so it may be too near. Others tell why a search failed.
    - `value`, `free`, `loss`, `parabola`: the points that were computed, in the order of the
      values, `(points,)`: the value, its free number, how far the loss has risen, and how far it
      had if the residuals were linear.
    """

    name: str
    estimate: float
    interval: np.ndarray
    linearised: np.ndarray
    at_bound: np.ndarray
    results: tuple[RESULTS, RESULTS]
    value: np.ndarray
    free: np.ndarray
    loss: np.ndarray
    parabola: np.ndarray

    def __str__(self) -> str:
        low, high = self.interval
        head = f"{self.name}: {low:.6g} ... {high:.6g}{self.notes}"
        return "\n".join([head, *(f"  {text}" for text in self._failures())])

    @property
    def half_widths(self) -> np.ndarray:
        """How far the ends are from the estimate, divided by those of `linearised`, `(2,)`; NaN
        where one of both is not finite."""
        with np.errstate(all="ignore"):
            found = (self.interval - self.estimate) / (self.linearised - self.estimate)
        return np.where(np.isfinite(found), found, np.nan)

    @property
    def at_kinks(self) -> np.ndarray:
        """Whether an end is where searches ended at kinks of the loss, `(2,)`."""
        return np.array([_is(result, RESULTS.stuck) for result in self.results])

    @property
    def notes(self) -> str:
        """What is special about the ends, in words."""
        said = []
        for side, at_bound, result in zip(_SIDES, self.at_bound, self.results, strict=True):
            if at_bound:
                said.append(f"{side} end at the bound")
            elif _is(result, RESULTS.loss_stays_low):
                said.append(f"{side} end open")
            elif _is(result, RESULTS.stuck):
                said.append(f"{side} end at kinks")
            elif not succeeded(result):
                said.append(f"{side} end NOT FOUND")
        return "  " + ", ".join(said) if said else ""

    def _failures(self) -> list[str]:
        """Why ends were not found."""
        return [
            f"{side} end not found: {RESULTS[result]}"
            for side, end, result in zip(_SIDES, self.interval, self.results, strict=True)
            if np.isnan(end)
        ]


@printed
class Profile(eqx.Module):
    """The result of `profile`; `print` it, or `plot` it. `profile["stiffness"]` is the
    `ParameterProfile` of a free number.

    **Fields:**

    - `parameters`: name -> `ParameterProfile`.
    - `level`: that of the intervals. `rise`: the rise of the loss at their ends, where the loss is
      half the sum of squares in units of the noise.
    - `noise`: the standard deviation of the weighted residuals, times the inflation if `inflated`.
    - `lower`: how far the loss of the best point that was seen lies below that of the estimate; 0
      for a minimum. `best`: the values there.
    - `evaluations`: the number of simulations with derivatives. `seconds`: the time.
    """

    parameters: dict[str, ParameterProfile]
    level: float
    rise: float
    noise: float
    lower: float
    best: dict[str, PyTree]
    evaluations: int
    seconds: float

    def __getitem__(self, name: str) -> ParameterProfile:
        return self.parameters[name]

    @property
    def intervals(self) -> dict[str, np.ndarray]:
        """Name -> the ends of the interval, `(2,)`."""
        return {name: each.interval for name, each in self.parameters.items()}

    @property
    def results(self) -> dict[str, tuple[RESULTS, RESULTS]]:
        """Name -> the verdicts of both ends."""
        return {name: each.results for name, each in self.parameters.items()}

    @property
    def is_minimum(self) -> bool:
        """Whether no point with a clearly lower loss than that of the estimate was seen."""
        return self.lower <= _TOLD * self.rise

    @checked
    def plot(self, axes: SeveralAxes | None = None) -> np.ndarray:
        """Plot how the loss rises along each parameter, all others fitted anew, beside the parabola
        of the linearisation, with both intervals.

        **Arguments:** `axes`: matplotlib axes, one for each parameter; default new ones.

        **Returns:** the axes, an array.

        **Raises:** `ImportError` without matplotlib; `ValueError` for another number of axes."""
        count = len(self.parameters)
        if axes is None:
            rows = -(-count // 4)
            size = dict(figsize=(12, 1 + 2.4 * rows), sharey=True, layout="constrained")
            _, axes = pyplot().subplots(rows, min(count, 4), squeeze=False, **size)
            panels = np.ravel(np.asarray(axes, object))
            for unused in panels[count:]:
                unused.remove()
            panels = panels[:count]
        else:
            panels = np.ravel(np.asarray(axes, object))
        if len(panels) != count:
            raise ValueError(f"There are {count} parameters, but `axes` has {len(panels)}.")
        for (name, along), ax in zip(self.parameters.items(), panels, strict=True):
            self._draw(along, ax)
            ax.set_xlabel(name)
        panels[0].set_ylabel("rise of the loss")
        panels[0].legend(fontsize="small")
        return panels

    def _draw(self, along: ParameterProfile, ax) -> None:
        import scipy.interpolate  # takes long to import

        _, kept = np.unique(along.value, return_index=True)
        kept = kept[along.loss[kept] < 3 * self.rise]
        x = along.value[kept]
        ax.plot(x, along.loss[kept], ".", color="C0")
        # Roots of the rise are nearly linear, so curves through them need few points.
        side, dense = np.sign(x - along.estimate), np.linspace(x[0], x[-1], 200)
        curves = ("profile", along.loss, "-"), ("linearised", along.parabola, "--")
        for name, loss, style in curves if len(x) > 1 else ():
            root = side * np.sqrt(np.maximum(loss[kept], 0.0))
            y = scipy.interpolate.PchipInterpolator(x, root)(dense) ** 2
            ax.plot(dense, y, style, lw=0.9, label=name)
        ax.axhline(self.rise, color="0.5", lw=0.8)
        for end in along.interval[np.isfinite(along.interval)]:
            ax.axvline(end, color="C0", ls=":", lw=0.8)
        ax.set_ylim(bottom=min(0.0, -1.1 * self.lower), top=1.5 * self.rise)
        ax.grid(alpha=0.3)

    def __str__(self) -> str:
        width = max(9, *(len(name) for name in self.parameters))
        level = f"{100 * self.level:g} %"
        rows = [f"{level:{width}}  {'linearised':>26}  {'profiled':>26}   half widths"]
        failed = []
        for name, each in self.parameters.items():
            old, new = (f"{a:.6g} ... {b:.6g}" for a, b in (each.linearised, each.interval))
            told = ", ".join("-" if np.isnan(x) else f"{x:.2f}" for x in each.half_widths)
            rows.append(f"{name:{width}}  {old:>26}  {new:>26}   x {told}{each.notes}")
            failed += [f"{name}: {text}" for text in each._failures()]
        rows += failed
        if not self.is_minimum:
            rows.append(
                f"THE ESTIMATE IS NO MINIMUM: the loss was lower by {self.lower:.3g} elsewhere. "
                "`fit` again from `best`."
            )
        rows.append(f"{counted(self.evaluations, 'evaluation')} in {self.seconds:.1f} s")
        return "\n".join(rows)


@checked
@says_when_compiling("profile")
def profile(
    estimate: Estimate,
    names: Sequence[str] | str | None = None,
    *,
    level: Annotated[float, inside(0, 1)] = 0.95,
    inflated: bool = False,
    noise: Annotated[float | None, positive] = None,
    max_iterations: Annotated[int, at_least(1)] = 50,
    tolerance: Annotated[float, positive] = 1e-3,
    progress: bool = True,
) -> Profile:
    r"""Find intervals by profile likelihood: all values of a parameter with which the model, all
    other numbers fitted anew, follows the measurements nearly as well as with the estimate,

    $$
    \min_{z,\,z_k = x} |r(z)|^2 \le |r(\hat z)|^2 + q^2 s^2,
    $$

    with the s of the estimate and the quantile q of Student's distribution, as in
    `Estimate.interval`. If the residuals are linear in all numbers, these are the same intervals.
    If they are not, over an interval, profiles still hold: near bounds, in curved valleys, where
    moments of impact move. They do not depend on transforms.

        found = identify.fit(...)
        profile = identify.profile(found, ["stiffness", "play"])
        print(profile)                      # linearised and profiled
        profile["stiffness"].interval
        profile.plot()

    From the estimate outward, a search that holds the number finds the lowest loss at each of a few
    points, until the level lies between two of them. Between these regula falsi finds it. The
    searches use the program that the fit has compiled.

    **Arguments:**

    - `estimate`: the result of `fit`, by `SingleShooting()` or `GuidedShooting()`.
    - `names`: parameters, or free numbers as `Parameters` names them: `mass`, `point[0]`, `axis~1`.
      Those of directions, orientations and inertias are free numbers without a value of their own.
      Default: all.
    - `level`: that of the intervals. `inflated`: whether to allow for residuals that resemble their
      neighbours, by `Estimate.inflation`.
    - `noise`: the standard deviation of the weighted residuals if it is known; 1 if the weights are
      right. Then q is that of the normal distribution. Default: unknown, as in the fit.
    - `max_iterations`: the limit for each search. `tolerance`: the relative error of half widths.
    - `progress`: whether to show a bar.

    **Returns:** a `Profile`. Each end has a verdict of its own.

    **Raises:** `ValueError` for unknown names, and for parts that have to meet
    (`MultipleShooting`).

    Reference: Venzon and Moolgavkar (1988), A method for computing profile-likelihood-based
    confidence intervals, Applied Statistics 37. Bates and Watts (1988), Nonlinear Regression
    Analysis and Its Applications, section 6.1.
    """
    begin, problem = time.perf_counter(), estimate.problem
    if problem.partition.links:
        raise ValueError(
            "A profile needs simulations without parts that have to meet: `fit` again by "
            "`SingleShooting()`, from `estimate.parameters`."
        )
    chosen = _chosen(problem.residuals.parameters, names)
    q = scipy.special.ndtri if noise else lambda p: scipy.special.stdtrit(estimate.freedom, p)
    q = float(q((1 + level) / 2))
    unit = (noise or estimate.noise) * (estimate.inflation if inflated else 1.0)
    march = March(problem, estimate.z, (q * unit) ** 2, max_iterations, tolerance)
    sens = estimate.sensitivity
    C = covariance(sens.jacobian, sens.residuals, problem.count - sens.nuisance)
    widths = (q * unit / estimate.noise * x for x in (np.sqrt(np.diag(C)), estimate.sigma))
    values, found = _Values(estimate, march, *widths), {}
    with progress_bar(2 * len(chosen), "profile", progress) as bar:
        for name, i in chosen.items():
            sides = []
            for side in (-1, 1):
                sides.append(march.side(i, side, float(values.half[i])))
                bar.update()
            found[name] = values.profile(name, i, sides, q**2 / 2)
    lower = (march.here.squares - march.best.squares) / (2 * unit**2)
    best = values.at(march.best.z)[0]
    seconds = time.perf_counter() - begin
    return Profile(found, level, q**2 / 2, unit, lower, best, march.evaluations, seconds)


def _chosen(parameters: Parameters, names: Sequence[str] | str | None) -> dict[str, int]:
    """The free numbers with these names, and their places."""
    places = {name: i for i, name in enumerate(parameters.free_names)}
    if names is None:
        return places
    of_key, place = {}, 0
    for key, member in parameters.items():
        size = member.transform.size(member.guess)
        of_key[key] = parameters.free_names[place : place + size]
        place += size
    found = {}
    for name in [names] if isinstance(names, str) else names:
        own = (name,) if name in places else of_key.get(name)
        if own is None:
            raise ValueError(f"There is no parameter {name!r} among {list(places)}.")
        found |= {each: places[each] for each in own}
    return found


class _Values(NamedTuple):
    """What free numbers mean: the values of entries, or, of directions and inertias, the numbers
    themselves."""

    estimate: Estimate
    march: March
    # The half widths of linearised intervals.
    half: np.ndarray
    half_entries: np.ndarray

    @property
    def parameters(self) -> Parameters:
        return self.estimate.problem.residuals.parameters

    def at(self, z: np.ndarray) -> tuple[dict[str, PyTree], np.ndarray]:
        """The values by name, and their entries."""
        shared = to_jax(z[: self.parameters.size], self.march.dtype)
        values, entries = _evaluated(self.parameters, shared)
        return values, np.asarray(entries, float)

    def profile(self, name: str, i: int, sides: Sequence[Side], rise: float):
        here, names = self.march.here, self.parameters.names
        points = sorted([*sides[0].points, (here.z[i], here.squares), *sides[1].points])
        free, squares = np.array(points).T
        everything = [here.z[i], *(side.end for side in sides), *free]
        linearised = here.z[i] + self.half[i] * np.array([-1.0, 1.0])
        if name in names:
            k = names.index(name)
            along = np.repeat(here.z[None], len(everything), axis=0)
            along[:, i] = everything
            everything = [self.at(z)[1][k] for z in along]
            shared = to_jax(here.z[: self.parameters.size], self.march.dtype)
            ends = interval_ends(self.parameters, shared, to_jax(self.half_entries))
            linearised = np.array([np.asarray(end)[k] for end in ends])
        value, low, high, *values = everything
        return ParameterProfile(
            name,
            float(value),
            np.array([low, high]),
            linearised,
            np.array([side.at_bound for side in sides]),
            (sides[0].result, sides[1].result),
            np.array(values),
            free,
            rise * (squares - here.squares) / self.march.level,
            rise * ((free - here.z[i]) / self.half[i]) ** 2,
        )


@compiled_quickly
def _evaluated(parameters: Parameters, z: Array):
    return parameters.values(z), parameters.entries(z)
