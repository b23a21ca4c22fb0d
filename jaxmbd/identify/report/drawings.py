"""Small charts as SVG, which need no script, and print."""

import html
import math
from collections.abc import Iterable, Sequence

import numpy as np

# Colours of Okabe and Ito (2008), which colour-blind readers can tell apart.
MEASURED, PREDICTED, REFERENCE, GREY = "#0072b2", "#d55e00", "#009e73", "#8a8f98"

# Intervals are drawn up to this multiple of the estimate.
_FAR = 2.0

_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 10.0, 8.0, 34.0


def ticks(low: float, high: float, count: int) -> tuple[np.ndarray, int]:
    """Round numbers between two others, and how many digits after the point they need."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return step * np.arange(first, last + 1), max(0, -math.floor(math.log10(step) + 1e-9))


def span_of(values: Iterable[float]) -> tuple[float, float]:
    """Bounds with some room around finite numbers."""
    known = np.asarray(list(values), float)
    known = known[np.isfinite(known)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    room = max(0.06 * (high - low), 1e-6 * max(abs(low), abs(high), 1e-3))
    return low - room, high + room


class Drawing:
    """An SVG picture with linear axes, or with a logarithmic y."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        size: tuple[float, float] = (300.0, 180.0),
        *,
        log: bool = False,
        left: float = _LEFT,
    ):
        self.width, self.height = size
        self.left, self.log = left, log
        self.xs = x
        self.ys = (math.log10(y[0]), math.log10(y[1])) if log else y
        self.parts: list[str] = []

    def x(self, value: float) -> float:
        """Pixels from the left."""
        low, high = self.xs
        return self.left + (value - low) / (high - low) * (self.width - self.left - _RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        low, high = self.ys
        value = math.log10(value) if self.log else value
        inner = self.height - _TOP - _BOTTOM
        return _TOP + inner - (value - low) / (high - low) * inner

    def axes(self, label: str, *, y: bool = True, count: int = 6) -> None:
        """The ticks of both axes, and the label of x."""
        bottom = self.height - _BOTTOM
        places, digits = ticks(*self.xs, count)
        for value in places:
            at = self.x(value)
            self.line([(at, bottom), (at, bottom + 4)], GREY, raw=True)
            self.text(at, bottom + 15, _written(value, digits), "middle")
        self.line([(self.left, bottom), (self.width - _RIGHT, bottom)], GREY, raw=True)
        if y:
            places, digits = ticks(*self.ys, 6)
            for value in places:
                value = 10**value if self.log else value
                at = self.y(value)
                self.line([(self.left, at), (self.width - _RIGHT, at)], "#e3e6ea", raw=True)
                text = f"{value:.3g}" if self.log else _written(value, digits)
                self.text(self.left - 5, at + 3.5, text, "end")
        middle = (self.left + self.width - _RIGHT) / 2
        self.text(middle, self.height - 4, label, "middle")

    def text(self, x: float, y: float, words: str, anchor: str = "start") -> None:
        """Words at a place in pixels."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'
        )

    def line(
        self,
        points: Sequence[tuple[float, float]],
        color: str,
        width: float = 1.0,
        *,
        raw: bool = False,
        dash: str = "",
    ) -> None:
        """A line through points of the axes, or of pixels if `raw`. It has a gap where one is not
        finite."""
        pieces, begun = [], False
        for point in points:
            if not all(map(math.isfinite, point)):
                begun = False
                continue
            x, y = point if raw else (self.x(point[0]), self.y(point[1]))
            pieces.append(f"{'L' if begun else 'M'}{x:.1f} {y:.1f}")
            begun = True
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<path d="{"".join(pieces)}" fill="none" stroke="{color}" '
            f'stroke-width="{width:g}"{dashed}/>'
        )

    def bar(self, x0: float, x1: float, y0: float, y1: float, color: str, title: str) -> None:
        """A filled rectangle between values of the axes, with words for the pointer."""
        a, b = sorted((self.x(x0), self.x(x1)))
        c, d = sorted((self.y(y0), self.y(y1)))
        self.parts.append(
            f'<rect x="{a:.1f}" y="{c:.1f}" width="{max(b - a, 1):.1f}" '
            f'height="{max(d - c, 1):.1f}" fill="{color}">'
            f"<title>{html.escape(title)}</title></rect>"
        )

    def dot(self, x: float, y: float, color: str, title: str, radius: float = 3.0) -> None:
        """A dot at values of the axes, with words for the pointer."""
        self.parts.append(
            f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius:g}" fill="{color}">'
            f"<title>{html.escape(title)}</title></circle>"
        )

    def svg(self, description: str) -> str:
        """The picture, with words for those who do not see it."""
        words = html.escape(description, quote=True)
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{words}" '
            f'style="max-width:{self.width:g}px">{"".join(self.parts)}</svg>'
        )


def _written(value: float, digits: int) -> str:
    return f"{value:.1e}" if abs(value) >= 1e5 or digits > 4 else f"{value:.{digits}f}"


def histogram(residuals: np.ndarray, label: str) -> str:
    """The shares of standardised residuals, and the normal curve with their mean and standard
    deviation."""
    mean, deviation = float(residuals.mean()), float(residuals.std())
    scaled = (residuals - mean) / deviation
    bins = int(np.clip(2 * len(scaled) ** (1 / 3), 8, 40))
    far = float(np.clip(np.max(np.abs(scaled)), 3.2, 6.0))
    density, edges = np.histogram(np.clip(scaled, -far, far), bins, (-far, far), density=True)
    drawing = Drawing((-far, far), (0.0, 1.1 * max(float(density.max()), 0.4)))
    drawing.axes("residual / standard deviation", y=False)
    for value, a, b in zip(density, edges[:-1], edges[1:], strict=True):
        if value > 0:
            number = round(value * (b - a) * len(scaled))
            title = f"{number} residuals from {a:.2f} to {b:.2f} standard deviations"
            drawing.bar(a, b, 0.0, value, "#9ec7e0", title)
    x = np.linspace(-far, far, 121)
    curve = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    drawing.line(list(zip(x.tolist(), curve.tolist(), strict=True)), PREDICTED, 1.8)
    return drawing.svg(
        f"Histogram of {len(residuals)} residuals of {label}, mean {mean:.3g}, standard deviation "
        f"{deviation:.3g}, with the normal curve"
    )


def autocorrelations(rho: Sequence[float], count: int, label: str) -> str:
    """Autocorrelations with the bounds that 95 % of those of noise keep."""
    bound = 1.96 / math.sqrt(count)
    low = min(-0.25, -1.3 * bound, *rho)
    drawing = Drawing((0.0, len(rho) + 0.7), (1.05 * low, max(1.3 * bound, 0.4, *rho) * 1.05))
    drawing.axes("lag [samples]")
    right = len(rho) + 0.7
    drawing.line([(0.0, 0.0), (right, 0.0)], GREY)
    for sign in (-1, 1):
        drawing.line([(0.0, sign * bound), (right, sign * bound)], PREDICTED, 1.2, dash="4 3")
    for lag, value in enumerate(rho, 1):
        drawing.bar(lag - 0.22, lag + 0.22, 0.0, value, MEASURED, f"lag {lag}: {value:.3f}")
    outside = sum(abs(x) > bound for x in rho)
    return drawing.svg(
        f"Autocorrelations of the residuals of {label} up to lag {len(rho)}; {outside} lie outside "
        f"of plus and minus {bound:.3f}"
    )


def intervals(
    names: Sequence[str],
    plain: np.ndarray,
    inflated: np.ndarray,
    entries: np.ndarray,
    reference: dict[str, float],
) -> str:
    """Intervals relative to the estimates, one below the other."""
    scale = np.where(entries == 0, 1.0, np.abs(entries))[:, None]
    plain, wide = ((x - entries[:, None]) / scale for x in (plain, inflated))
    marks = {
        i: (reference[name] - entries[i]) / scale[i, 0]
        for i, name in enumerate(names)
        if name in reference
    }
    # A few parameters that are hardly known do not hide the intervals of the others.
    reach = np.max(np.abs(wide), axis=1)
    reach = reach[np.isfinite(reach)]
    most = min(8 * float(np.median(reach)), _FAR) if len(reach) else 1.0
    low, high = span_of(np.clip([*wide.ravel(), 0.0, *marks.values()], -most, most))
    left = min(30 + 6.3 * max(map(len, names)), 300.0)
    size = 620.0, _TOP + _BOTTOM + 22.0 * len(names)
    drawing = Drawing((100 * low, 100 * high), (0.0, float(len(names))), size, left=left)
    drawing.axes("difference from the estimate [%]", y=False)
    drawing.line([(0.0, 0.0), (0.0, float(len(names)))], GREY)
    for i, name in enumerate(names):
        at = len(names) - i - 0.5
        drawing.text(left - 8, drawing.y(at) + 4, name, "end")
        if not np.all(np.isfinite(wide[i])):
            drawing.text(drawing.x(0.0) + 8, drawing.y(at) + 4, "not determined")
            continue
        for (a, b), half, color, what in (
            (100 * wide[i], 0.14, "#9ec7e0", "allowing for correlated residuals"),
            (100 * plain[i], 0.26, MEASURED, "for independent residuals"),
        ):
            title = f"{name}: {a:+.3g} % to {b:+.3g} %, {what}"
            begin, end = max(a, 100 * low), min(b, 100 * high)
            drawing.bar(begin, end, at - half, at + half, color, title)
            if b > end:
                drawing.text(drawing.x(end) + 1, drawing.y(at) + 4, "›")
            if a < begin:
                drawing.text(drawing.x(begin) - 1, drawing.y(at) + 4, "‹", "end")
        if i in marks:
            title = f"{name}: reference {reference[name]:.6g}"
            place = float(np.clip(100 * marks[i], 100 * low, 100 * high))
            drawing.dot(place, at, REFERENCE, title, 4.5)
    told = [f"{n} {x[0]:+.2g} to {x[1]:+.2g} %" for n, x in zip(names, 100 * wide, strict=True)]
    return drawing.svg("Intervals relative to the estimates: " + ", ".join(told))


def along(value: np.ndarray, rms: np.ndarray, minima: np.ndarray, name: str) -> str:
    """The root mean square of the residuals along a parameter, with a dot at each minimum."""
    good = rms[np.isfinite(rms) & (rms > 0)]
    if not len(good):
        return f"<p>{html.escape(name)}: all simulations failed.</p>"
    low, high = float(good.min()), float(good.max())
    drawing = Drawing(span_of(value), (low / 1.2, high * 1.2), log=True)
    drawing.axes(name)
    shown = np.where(rms > 0, rms, np.nan)
    drawing.line(list(zip(value.tolist(), shown.tolist(), strict=True)), MEASURED, 1.6)
    for i in minima:
        drawing.dot(float(value[i]), float(rms[i]), PREDICTED, f"minimum at {value[i]:.4g}")
    places = ", ".join(f"{value[i]:.4g}" for i in minima)
    return drawing.svg(f"Residuals along {name}, lowest at {places}")
