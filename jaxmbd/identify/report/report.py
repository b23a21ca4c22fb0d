"""`report`: a fit as one page for the browser."""

import pathlib
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import jax
import numpy as np

from ..._inputs import Number, checked
from ..._pages import AbstractPage, Content, embedded
from ..._printed import counted, printed
from ..estimate import Estimate
from ..model_check import ModelCheck
from ..prediction import Prediction
from ..profile import Profile
from . import sections
from .bands import LEVEL, Bands, bands_of
from .findings import FAILED, findings, headline, rms_ratios
from .motion import motion

_HERE = pathlib.Path(__file__).parent


@printed
class Report(AbstractPage):
    """A page about a fit, from `report`.

    **Fields:** `html`: the page as text. `headline`: the verdict in a sentence. `findings`: its
    reasons, the worst first.
    """

    def __init__(self, text: str, headline: str, findings: tuple[str, ...]):
        self.html, self.headline, self.findings = text, headline, findings

    def __str__(self) -> str:
        size = f"Report of {len(self.html) / 1e6:.2f} MB: `save`, or `show`."
        return "\n".join([self.headline, *(f"  {each}" for each in self.findings), size])


@checked
def report(
    estimate: Estimate,
    *,
    unseen: Prediction | None = None,
    check: ModelCheck | None = None,
    profile: Profile | None = None,
    reference: Mapping[str, Number] | None = None,
    view: Callable[..., Any] | None = None,
    record: str | None = None,
    title: str = "Fit",
) -> Report:
    """Make one page of a fit, for a reader who has to decide whether to trust it.

        found = identify.fit(...)
        page = identify.report(found, unseen=found.predict(others))
        page.save("fit.html")            # one file, which needs no network
        page                             # as the last line of a notebook cell

    It begins with the verdict and its reasons, failures first. Then come the parameters with
    intervals and correlations, each column of each record against its prediction, the residuals
    and their tests, and how the fit was made.

    The dark band around a prediction is that of the parameters, and of the starts if they were
    found: to first order, 95 % of Student's distribution, times `Estimate.inflation`. The light
    band adds the noise: 1 / weight if the weights state it, otherwise what is left in the column.

    **Arguments:**

    - `unseen`: the prediction of records that were not fitted, `found.predict(others)`.
    - `check`: a `ModelCheck` at the estimate or at the guess.
    - `profile`: the intervals of `identify.profile`, to show beside the linearised ones.
    - `reference`: name of an entry -> value to compare with, such as a published one.
    - `view`: `mbd.view`, to show the motion of a mechanism in 3D, with the measured one overlaid;
      or a function like it, such as `functools.partial(mbd.view, visuals=loaded.visuals)`.
    - `record`: the name of the record whose motion is shown; default the first.
    - `title`: of the page.

    **Returns:** a `Report`.

    **Raises:** `ValueError` for names in `reference` that are no entries, for a `record` that was
    not fitted, for `unseen` with other columns, and for the `profile` of another fit.
    """
    known = {name: float(x) for name, x in (reference or {}).items()}
    strange = set(known) - set(estimate.names)
    if strange:
        raise ValueError(
            f"There is no entry {sorted(strange)} to compare with a reference, but there are "
            f"{list(estimate.names)}."
        )
    if unseen is not None and unseen.labels != estimate.prediction.labels:
        raise ValueError(
            f"`unseen` has the columns {list(unseen.labels)}, but those of the fit are "
            f"{list(estimate.prediction.labels)}."
        )
    if profile is not None and not _belongs(profile, estimate):
        raise ValueError("`profile` is that of another fit: it begins at other estimates.")
    bands, other = bands_of(estimate, unseen)
    tests, determined = estimate.residual_tests(), estimate.identifiability()
    pair = None if unseen is None or other is None else (unseen, other)
    found = findings(estimate, tests, determined, bands, pair, check, profile, known)
    head = headline(found)
    content, series = Content(), []
    body = [
        sections.verdict(head, found),
        sections.parameters(estimate, profile, known, head.kind != FAILED),
        '<section id="records"><h2>Measured and predicted</h2>',
        _key(bands),
        sections.records(content, series, estimate.prediction, bands, "f"),
        "</section>",
        sections.residuals(estimate.prediction, tests),
    ]
    if pair is not None:
        body += [
            '<section id="unseen"><h2>Records that were not fitted</h2>',
            _rms_beside(estimate.prediction, pair[0], bands.stated),
            _key(pair[1]),
            sections.records(content, series, *pair, "u"),
            "</section>",
        ]
    if view is not None:
        body.append(motion(estimate, view, record))
    if check is not None:
        body.append(sections.checked_model(check))
    body.append(_how(estimate))
    return Report(
        _page(content, series, title, "".join(body)), head.text, tuple(x.text for x in found)
    )


def _belongs(profile: Profile, estimate: Estimate) -> bool:
    """Whether a profile begins at this estimate."""
    entries = dict(zip(estimate.names, estimate.entries, strict=True))
    return all(
        np.isclose(along.estimate, entries[name], rtol=1e-6) if name in entries else name in free
        for free in [estimate.problem.residuals.parameters.free_names]
        for name, along in profile.parameters.items()
    )


def _key(bands: Bands) -> str:
    """What the charts show."""
    noise = "the noise that the weights state" if bands.stated else "what is left in the column"
    dark = "The dark band is where the prediction may lie for the uncertain parameters. "
    if bands.spread is None:
        dark = f"There is no band of the parameters, since {bands.why}. "
    return (
        f"<p>Blue dots are measured, the orange line is predicted. {dark}The light band adds "
        f"{noise}: {100 * LEVEL:g} % of new samples should lie inside. Below are the residuals "
        '(computed minus measured). <span class="screen">Drag over a chart to enlarge a span of '
        "time in all charts of its record; double-click or press 0 to go back; move over it, or "
        "press the arrow keys, to read numbers.</span></p>"
    )


def _rms_beside(fitted: Prediction, unseen: Prediction, stated: bool) -> str:
    ratios, rows = rms_ratios(fitted, unseen, stated), []
    for label, rms in unseen.rms.items():
        ratio = f"{ratios[label]:.3g}" if label in ratios else "–"
        name = sections.escaped(label or "reading")
        rows.append([name, f"{fitted.rms[label]:.4g}", f"{rms:.4g}", ratio])
    head = ["column", "fitted", "unseen", "ratio, by stated noise" if stated else "ratio"]
    return sections.table(head, rows, "Rms errors")


def _how(estimate: Estimate) -> str:
    """How the fit was made."""
    problem, simulation = estimate.problem, estimate.problem.residuals.simulation
    parameters = problem.residuals.parameters
    starts = problem.size - parameters.size
    parts = len(problem.partition.record)
    priors = [name for name, member in parameters.items() if member.sigma is not None]
    facts: dict[str, Any] = {
        "system": type(estimate.system).__name__,
        "measurements": f"{problem.count} numbers in {counted(len(problem.records), 'record')} of "
        f"{counted(len(problem.labels), 'column')}",
        "unknowns": f"{parameters.size} numbers of parameters"
        + (f", {starts} of starts" if starts else "; starts as given"),
        "degrees of freedom": estimate.freedom,
        "standard deviation of the weighted residuals": f"{estimate.noise:.4g}",
        "priors": ", ".join(priors) or "none",
        "loss": type(problem.residuals.loss).__name__,
        "step": f"at most {problem.dt:g} s",
        "enforcement": type(simulation.enforcement).__name__,
        "scheme": "default" if simulation.scheme is None else type(simulation.scheme).__name__,
        "parts": f"{parts} simulations for {counted(len(problem.records), 'record')}",
        "search": f"{counted(estimate.iterations, 'iteration')} in {estimate.seconds:.1f} s, with "
        "compilation",
        "numbers": str(np.asarray(estimate.z).dtype),
        "versions": f"jaxmbd {_version()}, jax {jax.__version__}",
    }
    return f'<section id="how"><h2>How it was found</h2>{sections.listing(facts)}</section>'


def _version() -> str:
    try:
        return metadata.version("jaxmbd")
    except metadata.PackageNotFoundError:  # a checkout on Python's path
        return "unknown"


def _page(content: Content, series: list[dict], title: str, body: str) -> str:
    style, script = ((_HERE / f"report.{end}").read_text(encoding="utf-8") for end in ("css", "js"))
    own = embedded(content, {"series": series}, style, script)
    name = sections.escaped(title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title>{own}</head><body><main><h1>{name}</h1>{body}</main></body></html>"
    )
