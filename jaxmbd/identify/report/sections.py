"""The sections of the page as HTML. All words that users chose are escaped here."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..._pages import Content
from ..._printed import counted
from ..._results import RESULTS, succeeded
from ..estimate import Estimate
from ..identifiability import ColumnTest, autocorrelation
from ..model_check import ModelCheck
from ..prediction import Prediction
from ..profile import ParameterProfile, Profile
from . import drawings
from .bands import LEVEL, Bands, root_mean_square
from .findings import DOUBT, FAILED, GOOD, NOTE, Finding, strongest

# Records beyond so many charts are folded.
_OPEN = 24
# Readings so many times as large as the measurements lose these in single precision.
_LOST = 1e3
# Lags of a chart of autocorrelations, as in `ColumnTest`.
_LAGS = 20

_SIGNS = {FAILED: "✗", DOUBT: "!", GOOD: "✓", NOTE: "·"}
_WORDS = {FAILED: "failed", DOUBT: "reservation", GOOD: "in order", NOTE: "to know"}


def escaped(words: object) -> str:
    """Words as HTML."""
    return html.escape(str(words), quote=True)


def verdict(head: Finding, found: Iterable[Finding]) -> str:
    """The headline and all findings."""
    rows = [
        f'<li class="{x.kind}"><span title="{_WORDS[x.kind]}" aria-label="{_WORDS[x.kind]}:">'
        f"{_SIGNS[x.kind]}</span> {escaped(x.text)}</li>"
        for x in found
    ]
    return (
        f'<section id="verdict" class="{head.kind}"><p class="headline">'
        f'<span aria-hidden="true">{_SIGNS[head.kind]}</span> {escaped(head.text)}</p>'
        f"<ul>{''.join(rows)}</ul></section>"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: str) -> str:
    """A table; the cells are HTML."""
    top = "".join(f'<th scope="col">{x}</th>' for x in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{x}</td>" for x in rest) + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll"><table><caption>{escaped(words)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _number(x: float, digits: int = 6) -> str:
    return f"{x:.{digits}g}" if np.isfinite(x) else "not determined" if np.isinf(x) else "–"


def _range(low: float, high: float) -> str:
    if not np.isfinite(high - low):
        return "not determined"
    return f"{low:.6g} … {high:.6g}"


def parameters(
    estimate: Estimate, profile: Profile | None, reference: Mapping[str, float], sound: bool
) -> str:
    """The table of the parameters, and their correlations. `sound`: whether the fit did not
    fail."""
    inflation = estimate.inflation
    plain = estimate.interval(LEVEL)
    wide = estimate.interval(LEVEL, inflated=True) if inflation > 1 else plain
    level = f"{100 * LEVEL:g} % interval"
    head = ["parameter", "estimate", "sigma", level]
    head += [f"× {inflation:.2g}, for correlated residuals"] if inflation > 1 else []
    if profile is not None:
        head.append(f"{100 * profile.level:g} % by profile")
    head += ["guess", "may be"] + (["reference"] if reference else [])
    rows = []
    for i, (name, guess, allowed) in enumerate(_unknowns(estimate)):
        row = [escaped(name), _number(estimate.entries[i], 7), _number(estimate.sigma[i], 2)]
        row.append(_range(*plain[i]))
        row += [_range(*wide[i])] if inflation > 1 else []
        if profile is not None:
            row.append(_profiled(profile.parameters.get(name)))
        row += [_number(guess), escaped(allowed)]
        if reference:
            row.append(_against(reference.get(name), wide[i]))
        rows.append(row)
    chart = ""
    if np.any(np.isfinite(wide)):
        chart = drawings.intervals(estimate.names, plain, wide, estimate.entries, dict(reference))
    key = "Dark: for independent residuals. "
    if inflation > 1:
        key += f"Light: {inflation:.2g} times as wide, since residuals resemble their neighbours. "
    key += "Green dots: reference values. " if reference else ""
    figure = (
        f'<figure class="wide">{chart}<figcaption>{key}Intervals of Student\'s distribution with '
        f"{estimate.freedom} degrees of freedom, relative to the estimates.</figcaption></figure>"
    )
    return (
        f'<section id="parameters"><h2>Parameters{"" if sound else " of a failed fit"}</h2>'
        + table(head, rows, counted(len(estimate.names), "number"))
        + (figure if chart else "")
        + _correlations(estimate)
        + "</section>"
    )


def _profiled(along: ParameterProfile | None) -> str:
    if along is None:
        return "–"
    low, high = (f"{x:.6g}" if np.isfinite(x) else "–" for x in along.interval)
    return escaped(f"{low} … {high}{along.notes}")


def _against(value: float | None, interval: np.ndarray) -> str:
    if value is None:
        return ""
    inside = interval[0] <= value <= interval[1]
    return f"{value:.6g} ({'inside' if inside else 'outside'})"


def _unknowns(estimate: Estimate) -> Iterable[tuple[str, float, str]]:
    """Name, guess and allowed values of each entry."""
    members = estimate.problem.residuals.parameters
    i = 0
    for _, member in members.items():
        guesses = np.concatenate(
            [np.ravel(np.asarray(x, float)) for x in jax.tree.leaves(member.guess)]
        )
        sigma = "" if member.sigma is None else ", prior around the guess"
        for guess in guesses:
            yield estimate.names[i], float(guess), _allowed(member.transform) + sigma
            i += 1


def _allowed(transform: Any) -> str:
    """The values that a transform allows."""
    name = type(transform).__name__
    if name == "Bounded":
        lower, upper = np.asarray(transform.lower), np.asarray(transform.upper)
        if lower.ndim == upper.ndim == 0:
            return f"{float(lower):g} to {float(upper):g}"
        return "between bounds"
    words = {
        "Free": "any",
        "Positive": "positive",
        "NotNegative": "not negative",
        "UnitVector": "a unit vector",
        "LogCholesky": "an inertia",
    }
    return words.get(name, name)


def _correlations(estimate: Estimate) -> str:
    names, C = estimate.names, estimate.correlation
    known = np.isfinite(estimate.sigma)
    if known.sum() < 2:
        return ""
    rows = []
    for i, name in enumerate(names):
        cells = []
        for j, other in enumerate(names):
            if i == j or not (known[i] and known[j]):
                cells.append("<td>" + ("1" if i == j else "–") + "</td>")
                continue
            cells.append(
                f'<td style="background:{_shade(C[i, j])}" title="{escaped(name)} and '
                f'{escaped(other)}: {C[i, j]:+.3f}">{_signed(C[i, j])}</td>'
            )
        rows.append(f'<tr><th scope="row">{escaped(name)}</th>{"".join(cells)}</tr>')
    top = "".join(f'<th scope="col">{escaped(name)}</th>' for name in names)
    pairs = strongest(estimate, 0.5)[:5]
    words = "; ".join(f"{a} and {b} {rho:+.3f}" for a, b, rho in pairs)
    told = f"Strongest: {words}." if pairs else "No two estimates are correlated beyond 0.5."
    return (
        f"<h3>Correlations</h3><p>{escaped(told)}</p>"
        '<div class="scroll"><table class="matrix"><caption>Correlations of the estimates: '
        "blue is negative, orange positive</caption>"
        f"<thead><tr><td></td>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _signed(x: float) -> str:
    return f"{x:+.2f}" if abs(x) >= 0.005 else "0.00"


def _shade(x: float) -> str:
    """White at 0, blue at -1, orange at 1, light enough for black words."""
    end = (230, 140, 60) if x > 0 else (90, 160, 215)
    parts = [round(255 + abs(x) * (c - 255)) for c in end]
    return f"rgb({','.join(map(str, parts))})"


def records(
    content: Content, series: list[dict], motions: Prediction, bands: Bands, where: str
) -> str:
    """A table of all records, and the charts of each."""
    head = ["record", "column", "samples", "rms error"]
    head += ["times stated noise"] if bands.stated else []
    head += [f"inside the {100 * LEVEL:g} % band"]
    rows, charts = [], []
    errors = motions.errors
    for k, record in enumerate(motions.records):
        ended = succeeded(motions.results[k])
        name = escaped(record.name) + ("" if ended else " ✗")
        for j, label in enumerate(motions.labels):
            own = errors[k][:, j]
            count = int(np.isfinite(own).sum())
            row = [name, escaped(label or "reading"), str(count)]
            row.append(_number(root_mean_square(own), 3))
            if bands.stated:
                row.append(_number(root_mean_square(record.weights[:, j] * own), 3))
            share = bands.inside(errors, k, j)
            row.append("–" if np.isnan(share) else f"{100 * share:.1f} %")
            rows.append(row)
        folded = (k + 1) * len(motions.labels) > _OPEN and k > 0
        charts.append(_record(content, series, motions, bands, (k, where, folded)))
    return table(head, rows, "What is left of each column") + "".join(charts)


def _record(content, series, motions: Prediction, bands: Bands, place) -> str:
    k, where, folded = place
    record, errors = motions.records[k], motions.errors[k]
    time = content.add(record.time, "<f8")
    figures = []
    for j, label in enumerate(motions.labels):
        label = label or "reading"
        share = bands.inside(motions.errors, k, j)
        told = f"{100 * share:.1f} % of the samples inside the band" if share == share else ""
        count = int(np.isfinite(errors[:, j]).sum())
        words = (
            f"{label} of {record.name}: {count} measured samples as dots, the prediction as a line "
            f"from {record.time[0]:g} to {record.time[-1]:g} s, and the residuals below. {told}"
        )
        spread = None
        if bands.spread is not None:
            spread = content.add(_single(bands.spread[k][:, j]))
        noise = bands.noise[k][:, j]
        even = np.all(noise == noise[0])
        far = np.abs(motions.readings[k][:, j]) > _LOST * np.max(np.abs(record.measured[:, j]))
        series.append(
            {
                "time": time,
                "predicted": content.add(_single(motions.readings[k][:, j])),
                "error": content.add(_single(errors[:, j])),
                "spread": spread,
                "noise": float(noise[0]) if even else content.add(_single(noise)),
                "measured": content.add(_single(record.measured[:, j])) if far.any() else None,
            }
        )
        figures.append(
            f'<figure class="series" data-series="{len(series) - 1}"><figcaption>'
            f"<b>{escaped(label)}</b> <span>{escaped(told)}</span></figcaption>"
            f'<canvas role="img" tabindex="0" aria-label="{escaped(words)}"></canvas>'
            "<output></output></figure>"
        )
    failure = ""
    if not succeeded(motions.results[k]):
        why = escaped(RESULTS[motions.results[k]])
        failure = f'<p class="failed"><span>✗</span> Not simulated to its end: {why}</p>'
    tag = "details" if folded else "div"
    title = f"{escaped(record.name)}"
    head = f"<summary>{title}</summary>" if folded else f"<h3>{title}</h3>"
    return (
        f'<{tag} class="record" data-group="{where}{k}">{head}{failure}{"".join(figures)}</{tag}>'
    )


def _single(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32)


def residuals(motions: Prediction, tests: Mapping[str, ColumnTest]) -> str:
    """For each column the histogram, the autocorrelations, and the tests."""
    head = ["column", "rms", "mean 0", "independent", "normal", "outliers", "in words"]
    rows, charts = [], []
    for j, (label, test) in enumerate(tests.items()):
        label = label or "reading"
        measured = np.isfinite(test.rms)
        ps = [f"p = {p:.2g}" if measured else "–" for p in (test.mean, test.white, test.normal)]
        words = escaped(str(test).partition(", ")[2] or test)
        rows.append([escaped(label), _number(test.rms, 4), *ps, str(test.outliers), words])
        parts = [e[:, j][np.isfinite(e[:, j])] for e in motions.errors]
        parts = [x for x in parts if len(x)]
        every = np.concatenate([np.zeros(0), *parts])
        if len(every) < 8 or not every.std() > 0 or not np.isfinite(every.std()):
            continue
        rho = autocorrelation(parts, min(_LAGS, len(every) // 4))
        charts.append(
            f'<figure class="small"><figcaption><b>{escaped(label)}</b> residuals</figcaption>'
            + drawings.histogram(every, label)
            + drawings.autocorrelations(rho, len(every), label)
            + "</figure>"
        )
    return (
        '<section id="residuals"><h2>Residuals</h2>'
        "<p>Computed minus measured. p-values below 0.001 say that residuals are no such noise. "
        "Left: their histogram and the normal curve. Right: their autocorrelations; 19 of 20 of "
        "noise lie between the dashed lines.</p>"
        + table(head, rows, "Tests of the residuals")
        + f'<div class="row">{"".join(charts)}</div></section>'
    )


def checked_model(check: ModelCheck) -> str:
    """The words and the slices of a check."""
    drawn = "".join(
        '<figure class="small">' + drawings.along(s.value, s.rms, s.minima, name) + "</figure>"
        for name, s in check.slices.items()
    )
    key = "<p>Root mean square of the weighted residuals along each free number.</p>"
    return (
        f'<section id="check"><h2>Check of the model</h2><pre>{escaped(check)}</pre>'
        f'{key if drawn else ""}<div class="row">{drawn}</div></section>'
    )


def listing(items: Mapping[str, object]) -> str:
    """Names and what they are."""
    rows = "".join(f"<dt>{escaped(a)}</dt><dd>{escaped(b)}</dd>" for a, b in items.items())
    return f"<dl>{rows}</dl>"
