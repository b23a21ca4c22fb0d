"""What a sceptical reader should know about a fit, in sentences, the worst first."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..._printed import counted
from ..._results import RESULTS, succeeded
from ..estimate import Estimate
from ..identifiability import ColumnTest, Identifiability
from ..model_check import ModelCheck, ModelError, Slice
from ..prediction import Prediction
from ..problem import DOUBTFUL
from ..profile import Profile
from .bands import LEVEL, Bands, root_mean_square

FAILED, DOUBT, GOOD, NOTE = "failed", "doubt", "good", "note"

# Stated and found noise agree within this factor.
_NOISE_AGREES = 1.3
# The p-value below which a test of residuals is told, as in `ColumnTest`.
_TOLD = 1e-3
# Estimates so strongly correlated are known in combination rather than one by one.
_TOGETHER = 0.95
# With fewer degrees of freedom, tests of the residuals see nothing.
_FEW = 10
# Errors of other records that are so many times as large say that the model does not carry over.
_CARRIES = 2.0
# Residuals are lower only if they are below this share.
_LOWER = 0.98
# Profiled half widths that differ from linearised ones by more than this factor are told.
_UNLIKE = 1.2
# Errors of the simulation of this share of the noise matter.
_MATTERS = 0.1


class Finding(NamedTuple):
    """One sentence, and its kind: failed, doubt, good or note."""

    kind: str
    text: str


def findings(
    estimate: Estimate,
    tests: Mapping[str, ColumnTest],
    known: Identifiability,
    bands: Bands,
    unseen: tuple[Prediction, Bands] | None,
    check: ModelCheck | None,
    profile: Profile | None,
    reference: Mapping[str, float],
) -> list[Finding]:
    """All findings, failures first, then doubts."""
    found = [
        *_search(estimate),
        *_size(estimate),
        *_shape(tests, estimate.inflation),
        *_determined(estimate, known),
        *_inside(bands, estimate.prediction, "the samples"),
    ]
    if unseen is not None:
        found += _unseen(estimate, *unseen)
    if check is not None:
        found += _check(check)
    if profile is not None:
        found += of_profile(profile)
    if reference:
        found += _reference(estimate, reference)
    if any(finding.kind == FAILED for finding in found):
        # What else is in order proves nothing.
        found = [finding for finding in found if finding.kind != GOOD]
    order = [FAILED, DOUBT, GOOD, NOTE]
    return sorted(found, key=lambda finding: order.index(finding.kind))


def headline(found: list[Finding]) -> Finding:
    """The verdict in a sentence."""
    kinds = [finding.kind for finding in found]
    if FAILED in kinds:
        return Finding(FAILED, "This fit failed. Do not use the estimates below.")
    doubts = kinds.count(DOUBT)
    if doubts:
        return Finding(DOUBT, f"The fit converged. There are reservations, {doubts} of them.")
    return Finding(GOOD, "The fit converged, and no check speaks against it.")


def _search(estimate: Estimate) -> list[Finding]:
    found = []
    steps = counted(estimate.iterations, "iteration")
    if succeeded(estimate.result):
        found.append(Finding(GOOD, f"The search converged in {steps}."))
    else:
        why = RESULTS[estimate.result]
        found.append(Finding(FAILED, f"The search did not converge in {steps}: {why}"))
    motions = estimate.prediction
    for record, result in zip(motions.records, motions.results, strict=True):
        if not succeeded(result):
            text = f'"{record.name}" was not simulated to its end: {RESULTS[result]}'
            found.append(Finding(FAILED, text))
    if motions.successful:
        many = counted(len(motions.records), "record")
        found.append(Finding(GOOD, f"The simulation of {many} reached the end."))
    if estimate.freedom < _FEW:
        many = counted(estimate.freedom, "measurement")
        text = f"There are only {many} more than unknowns, so tests and intervals mean little."
        found.append(Finding(DOUBT, text))
    if not np.all(np.isfinite(estimate.entries)):
        found.append(Finding(FAILED, "Some estimates are not finite."))
    return found


def _size(estimate: Estimate) -> list[Finding]:
    problem = estimate.problem
    if not problem.states_noise:
        text = (
            "The weights do not state the noise, so the size of the residuals, "
            f"{estimate.noise:.3g}, proves nothing. Give weights of 1 / (standard deviation)."
        )
        return [Finding(NOTE, text)]
    ratio = problem.times_noise(estimate.sensitivity.residuals)
    size = f"{ratio:.2f}" if ratio < 100 else f"{ratio:.3g}"
    text = f"What is left is {size} times the noise that the weights state"
    if ratio > DOUBTFUL or not np.isfinite(ratio):
        return [Finding(FAILED, f"{text}: a local minimum, a long step, or another model?")]
    if ratio > _NOISE_AGREES:
        return [Finding(DOUBT, f"{text}: the model lacks something, or the noise is larger.")]
    if ratio < 1 / _NOISE_AGREES:
        return [Finding(DOUBT, f"{text}: the noise is smaller than stated, or fitted as well.")]
    return [Finding(GOOD, f"{text}.")]


def _shape(tests: Mapping[str, ColumnTest], inflation: float) -> list[Finding]:
    """Whether residuals are independent, normal, and around zero."""
    found = []

    def told(which, text):
        names = [label or "reading" for label, test in tests.items() if which(test)]
        if names:
            found.append(Finding(DOUBT, text.format(_listed(names))))

    larger = (
        f" Sigmas are up to {inflation:.2g} times as large; bands and inflated intervals allow for "
        "that."
    )
    told(
        lambda t: t.white < _TOLD,
        "Residuals of {} resemble their neighbours: the model lacks something there."
        + (larger if inflation > 1.05 else ""),
    )
    told(lambda t: t.mean < _TOLD, "Residuals of {} do not have the mean 0.")
    told(lambda t: t.normal < _TOLD, "Residuals of {} are not normally distributed.")
    outliers = sum(test.outliers for test in tests.values())
    if outliers:
        text = f"{counted(outliers, 'residual')} lie more than 5 robust standard deviations off."
        found.append(Finding(DOUBT, text.replace("1 residual lie", "1 residual lies")))
    if not found:
        found.append(Finding(GOOD, _least(tests)))
    return found


def _least(tests: Mapping[str, ColumnTest]) -> str:
    known = [test for test in tests.values() if test.rms > 0]
    ps = [p for test in known for p in (test.white, test.mean, test.normal)]
    return (
        "The residuals look like noise: independent, around 0, normal. The least p-value of "
        f"{len(ps)} tests is {min(ps, default=1.0):.2g}."
    )


def _determined(estimate: Estimate, known: Identifiability) -> list[Finding]:
    found = []
    lost = estimate.unconnected
    if lost:
        text = f"Nothing that was measured depends on {_listed(lost)}: the guess is returned."
        found.append(Finding(DOUBT, text))
    for combination in known.undetermined:
        text = in_words(combination.direction)
        if set(text[1]) - set(lost):
            found.append(Finding(DOUBT, text[0]))
    if not found:
        worst = known.combinations[-1]
        text = "All parameters are determined. The least known combination has a standard deviation"
        found.append(Finding(GOOD, f"{text} of {worst.sigma:.2g} of a typical change."))
    bound = estimate.at_bounds
    if bound:
        text = f"{_listed(bound)} ended at a bound: intervals hold if it may move from there."
        found.append(Finding(DOUBT, text))
    together = strongest(estimate, _TOGETHER)
    if together:
        pairs = ", ".join(f"{a} and {b} ({rho:+.3f})" for a, b, rho in together[:3])
        more = f" and {len(together) - 3} more pairs" if len(together) > 3 else ""
        text = (
            f"Correlated beyond {_TOGETHER:g}, so better known together than alone: {pairs}{more}."
        )
        found.append(Finding(NOTE, text))
    return found


def in_words(direction: Mapping[str, float]) -> tuple[str, list[str]]:
    """An undetermined combination as a sentence, and the names in it."""
    largest = max(abs(x) for x in direction.values())
    shown = {name: x for name, x in direction.items() if abs(x) > 0.1 * largest}
    up = [name for name, x in shown.items() if x > 0]
    down = [name for name, x in shown.items() if x < 0]
    if len(shown) == 1:
        return f"{_listed([*shown])} is not determined.", [*shown]
    how = f"raising {_listed(up)}" + (f" while lowering {_listed(down)}" if down else " together")
    amounts = ", ".join(f"{name} {x:+.2f}" for name, x in shown.items())
    return f"Not determined: {how} changes no reading visibly ({amounts} in free numbers).", [
        *shown
    ]


def strongest(estimate: Estimate, least: float) -> list[tuple[str, str, float]]:
    """The pairs of entries that are correlated at least so much, the strongest first."""
    C, names = estimate.correlation, estimate.names
    pairs = [
        (names[i], names[j], float(C[i, j]))
        for i in range(len(names))
        for j in range(i + 1, len(names))
        if abs(C[i, j]) >= least
    ]
    return sorted(pairs, key=lambda pair: -abs(pair[2]))


def _inside(bands: Bands, motions: Prediction, what: str) -> list[Finding]:
    share = bands.share(motions.errors)
    if np.isnan(share):
        return []
    text = f"{100 * share:.1f} % of {what} lie inside the {100 * LEVEL:g} % band"
    noise = "stated noise" if bands.stated else "noise of what is left in each column"
    kind = GOOD if bands.expected(motions.errors, share) else DOUBT
    return [Finding(kind, f"{text} of the prediction with the {noise}.")]


def _unseen(estimate: Estimate, unseen: Prediction, bands: Bands) -> list[Finding]:
    found = []
    for record, result in zip(unseen.records, unseen.results, strict=True):
        if not succeeded(result):
            text = f'Unseen "{record.name}" was not simulated to its end: {RESULTS[result]}'
            found.append(Finding(DOUBT, text))
    ratios = rms_ratios(estimate.prediction, unseen, bands.stated)
    if ratios:
        worst = max(ratios, key=lambda label: ratios[label])
        unit = ", in units of the stated noise" if bands.stated else ""
        where = f" in the worst column, {worst}" if len(ratios) > 1 else ""
        text = f"Errors of unseen records are {ratios[worst]:.2f} times those of the fitted ones"
        text += f"{where}{unit}."
        found.append(Finding(DOUBT if ratios[worst] > _CARRIES else GOOD, text))
    return found + _inside(bands, unseen, "the unseen samples")


def rms_ratios(fitted: Prediction, unseen: Prediction, weighted: bool) -> dict[str, float]:
    """The errors of unseen records, times their weights if `weighted`, divided by those of the
    fitted ones, for the columns that were measured in both."""
    sizes = []
    for motions in (fitted, unseen):
        pairs = zip(motions.records, motions.errors, strict=True)
        rows = np.concatenate([(r.weights if weighted else 1.0) * e for r, e in pairs])
        sizes.append([root_mean_square(x) for x in rows.T])
    columns = zip(fitted.labels, *sizes, strict=True)
    return {label: b / a for label, a, b in columns if a > 0 and np.isfinite(b)}


def _check(check: ModelCheck) -> list[Finding]:
    errors = {f"The step of {check.step.dt:g} s": check.step, **check.beside}
    found = [_error(name, error) for name, error in errors.items()]
    lower = [name for name, along in check.slices.items() if _best(along) < _LOWER * check.rms]
    if lower:
        text = f"Along {_listed(lower)} a lower residual is seen than at the values of the check."
        found.append(Finding(DOUBT, text))
    if check.multimodal:
        text = f"There are several local minima along {_listed(check.multimodal)}."
        found.append(Finding(NOTE, text))
    failed = [name for name, along in check.slices.items() if np.any(np.isnan(along.rms))]
    if failed:
        found.append(Finding(NOTE, f"Simulations failed far from here along {_listed(failed)}."))
    elif check.slices and not check.multimodal:
        found.append(Finding(GOOD, "One local minimum is seen along each parameter."))
    return found


def of_profile(profile: Profile) -> list[Finding]:
    """What a profile says of the estimate and its linearised intervals."""
    found, members = [], profile.parameters.items()
    if not profile.is_minimum:
        text = (
            f"The loss was lower by {profile.lower:.3g} beside the estimate, which is no minimum."
        )
        found.append(Finding(FAILED if profile.lower > profile.rise else DOUBT, text))
    lost = [name for name, each in members if np.any(np.isnan(each.interval))]
    if lost:
        text = f"The profile of {_listed(lost)} has an end that was not found."
        found.append(Finding(DOUBT, text))
    kinked = [name for name, each in members if each.at_kinks.any()]
    if kinked:
        text = (
            f"The profile of {_listed(kinked)} ends at kinks of the loss, so it may be too short."
        )
        found.append(Finding(DOUBT, text))
    unlike = [
        name
        for name, each in members
        if name not in lost and not np.all(np.abs(np.log(each.half_widths)) <= np.log(_UNLIKE))
    ]
    if unlike:
        text = (
            f"Profiled intervals of {_listed(unlike)} reach {_UNLIKE:g} times as far as linearised "
            "ones or farther, or that much less far: use the profiled ones."
        )
        found.append(Finding(NOTE, text))
    elif not found:
        text = (
            f"Profiled intervals reach as far as linearised ones, within a factor of {_UNLIKE:g}."
        )
        found.append(Finding(GOOD, text))
    return found


def _best(along: Slice) -> float:
    return float(np.min(along.rms[np.isfinite(along.rms)], initial=np.inf))


def _error(name: str, error: ModelError) -> Finding:
    if not succeeded(error.result):
        return Finding(DOUBT, f"{name}: {error}.")
    kind = GOOD if error.off <= _MATTERS else DOUBT
    return Finding(kind, f"{name}: {error}.")


def _reference(estimate: Estimate, reference: Mapping[str, float]) -> list[Finding]:
    inflated = dict(zip(estimate.names, estimate.interval(inflated=True), strict=True))
    outside = [
        name for name, x in reference.items() if not inflated[name][0] <= x <= inflated[name][1]
    ]
    many = counted(len(reference), "reference value")
    if outside:
        text = f"The interval of {_listed(outside)} does not contain the reference value."
        return [Finding(DOUBT, text)]
    return [Finding(GOOD, f"The intervals contain {many}.")]


def _listed(names) -> str:
    names = list(names)
    shown = names[:6] + ([f"{len(names) - 6} more"] if len(names) > 6 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
