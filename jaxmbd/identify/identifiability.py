"""What the measurements determine, and whether what is left of them is noise."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike

from .._printed import printed
from .._search import DEPENDENT, ROUNDED, nonzero, simulation_error


class Sensitivity(NamedTuple):
    """The residuals `(rows,)` at the estimate, and their derivatives `(rows, p)` with respect to
    the free numbers of the parameters, without the effects that changes of the starts can also
    have. The first `samples` rows are measurements, the others priors.
    `nuisance`: the number of estimated numbers of the starts."""

    residuals: np.ndarray
    jacobian: np.ndarray
    samples: int
    nuisance: int


def sensitivity(
    residuals: ArrayLike,
    jacobian: ArrayLike,
    parameters: int,
    samples: int,
    links: int,
    penalty: float,
) -> Sensitivity:
    """Eliminate the starts from the Jacobian. They follow a change dp of the parameters such that
    the parts remain continuous, C_p dp + C_s ds = 0, and otherwise as is best for the residuals:

        ds = -C_s^+ C_p dp + N y,    N = null(C_s).

    The result is (1 - Q Q^T) (J_p - J_s C_s^+ C_p), with an orthonormal basis Q of range(J_s N).

    **Arguments:** the residuals and Jacobian at the estimate. The first `samples` rows are those of
    the measurements, the last `links` rows those of the continuity. The first `parameters` columns
    are those of the parameters.
    """
    r, J = np.asarray(residuals), np.asarray(jacobian)
    rows = len(r) - links
    C = J[rows:] / np.sqrt(penalty)
    r, J = r[:rows], J[:rows]
    Jp, Js = J[:, :parameters], J[:, parameters:]
    Cp, Cs = C[:, :parameters], C[:, parameters:]
    if Js.shape[1] == 0:
        return Sensitivity(r, Jp, samples, 0)
    N = np.eye(Js.shape[1])
    if links:
        _, values, right = np.linalg.svd(Cs)
        rank = int(np.sum(nonzero(values, DEPENDENT)))
        N = right[rank:].T
        Jp = Jp - Js @ (np.linalg.pinv(Cs, rcond=DEPENDENT) @ Cp)
    left, values, _ = np.linalg.svd(Js @ N, full_matrices=False)
    Q = left[:, nonzero(values, ROUNDED)]
    return Sensitivity(r, Jp - Q @ (Q.T @ Jp), samples, N.shape[1])


# Coefficients below this share of the largest one are not printed.
_SHOWN = 0.1


@printed
class Combination(NamedTuple):
    """A direction in the free numbers of the parameters, of length 1.

    **Fields:** `singular_value` of the sensitivity along it; `sigma`, its standard deviation, where
    1 is a typical change (for `Positive`, a factor e); `direction`, name -> coefficient;
    `determined`, whether `sigma` is below 1.
    """

    singular_value: float
    sigma: float
    direction: dict[str, float]
    determined: bool

    def __str__(self) -> str:
        largest = max(abs(x) for x in self.direction.values())
        shown = sorted(self.direction.items(), key=lambda item: -abs(item[1]))
        text = "  ".join(f"{x:+.2f} {name}" for name, x in shown if abs(x) > _SHOWN * largest)
        known = f"+- {self.sigma:.2g}" if self.determined else "not determined"
        return f"{text}: {known}"


@printed
class Identifiability(NamedTuple):
    """The singular values and vectors of the sensitivity matrix, without the effects that changes
    of the starts can also have; `print` it.

    **Fields:** `combinations`, from the best known to the least known one.

    Reference: Walter and Pronzato (1997), Identification of Parametric Models from Experimental
    Data, Springer, section 5.
    """

    combinations: tuple[Combination, ...]

    @property
    def undetermined(self) -> tuple[Combination, ...]:
        """The combinations that could change by 1 or more without a visible effect."""
        return tuple(c for c in self.combinations if not c.determined)

    @property
    def condition(self) -> float:
        """The largest singular value divided by the smallest."""
        values = [c.singular_value for c in self.combinations]
        return values[0] / values[-1] if values[-1] > 0 else np.inf

    def __str__(self) -> str:
        head = f"condition number {self.condition:.2g}; combinations from best to least known:"
        return "\n".join([head, *(f"  {c}" for c in self.combinations)])


def identifiability(J: np.ndarray, s: float, names: tuple[str, ...]) -> Identifiability:
    """The combinations for a sensitivity `(rows, p)` of residuals with standard deviation s."""
    _, values, rows = np.linalg.svd(J, full_matrices=False)
    found = []
    known = nonzero(values, simulation_error(J.dtype))
    for value, direction, told in zip(values, rows, known, strict=True):
        sigma = float(s / value) if told else np.inf
        lead = direction[np.argmax(np.abs(direction))]
        by_name = dict(zip(names, (np.sign(lead) * direction).tolist(), strict=True))
        found.append(Combination(float(value), sigma, by_name, sigma < 1))
    return Identifiability(tuple(found))


_LAGS = 20
_LEVEL = 1e-3  # the p-value below which residuals are reported not to be noise
_OUTLIER = 5.0  # robust standard deviations


@printed
class ColumnTest(NamedTuple):
    """Tests of the residuals of one column.

    **Fields:**

    - `rms`: the root mean square, in the units of the measurement; NaN if nothing was measured.
    - `mean`: the p-value of a mean of 0.
    - `white`: the p-value of no correlation over 20 samples (Ljung and Box, 1978).
    - `normal`: the p-value of a normal distribution (Jarque and Bera, 1980).
    - `outliers`: the number of residuals farther than 5 robust standard deviations from the median.
    - `correlation`: 1 + 2 times the sum of the autocorrelations before the first negative one. So
      many samples are worth one independent sample.
    """

    rms: float
    mean: float
    white: float
    normal: float
    outliers: int
    correlation: float

    def __str__(self) -> str:
        if np.isnan(self.rms):
            return "nothing was measured"
        said = [f"rms {self.rms:.4g}"]
        if self.mean < _LEVEL:
            said.append("mean not 0")
        if self.white < _LEVEL:
            said.append(f"correlated, 1 in {self.correlation:.1f} samples is independent")
        if self.normal < _LEVEL:
            said.append("not normal")
        if self.outliers:
            said.append(f"{self.outliers} outliers")
        return ", ".join(said) + ("" if len(said) > 1 else ", like noise")


def autocorrelation(residuals: Sequence[np.ndarray], lags: int) -> list[float]:
    """The autocorrelations of residuals, an array for each record, for 1 to `lags` samples. Only
    samples of the same record are multiplied."""
    every = np.concatenate(residuals)
    off = every - every.mean()
    total = len(every) * np.mean(off**2)
    parts = np.split(off, np.cumsum([len(r) for r in residuals])[:-1])
    return [
        sum(float(part[k:] @ part[: len(part) - k]) for part in parts if len(part) > k) / total
        for k in range(1, lags + 1)
    ]


def column_test(residuals: Sequence[np.ndarray]) -> ColumnTest:
    """Test the residuals of one column: an array for each record, in the order of time."""
    import scipy.stats  # takes longer to import than the rest of the package

    every = np.concatenate([np.zeros(0), *residuals])
    n = len(every)
    rms = float(np.sqrt(np.mean(every**2))) if n else np.nan
    if n < 8 or rms == 0:
        return ColumnTest(rms, 1.0, 1.0, 1.0, 0, 1.0)
    lags = min(_LAGS, n // 4)
    longest = max(map(len, residuals))
    rho = autocorrelation(residuals, max(lags, min(longest, 1000) - 1))
    box = n * (n + 2) * sum(r**2 / (n - k) for k, r in enumerate(rho[:lags], 1))
    first_negative = next((i for i, r in enumerate(rho) if r < 0), len(rho))
    median = np.median(every)
    deviation: Any = scipy.stats.median_abs_deviation
    spread = float(deviation(every, scale="normal"))
    mean: Any = scipy.stats.ttest_1samp(every, 0.0)
    normal: Any = scipy.stats.jarque_bera(every)
    return ColumnTest(
        rms,
        float(mean.pvalue),
        float(scipy.stats.chi2.sf(box, lags)),
        float(normal.pvalue),
        int(np.sum(np.abs(every - median) > _OUTLIER * spread)) if spread > 0 else 0,
        1 + 2 * float(sum(rho[:first_negative])),
    )
