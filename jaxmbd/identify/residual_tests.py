"""Tests of whether the residuals of a fit are noise."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._printed import printed

_LAGS = 20
_LEVEL = 1e-3  # the p-value below which residuals are reported not to be noise
_OUTLIER = 5.0  # robust standard deviations


@printed
class ColumnTest(NamedTuple):
    """Tests of the residuals of one column.

    **Fields:**

    - `rms`: the root mean square, in the units of the measurement.
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


def column_test(residuals: Sequence[np.ndarray]) -> ColumnTest:
    """Test the residuals of one column: an array for each record, in the order of time."""
    import scipy.stats  # takes longer to import than the rest of the package

    every = np.concatenate(residuals)
    rms = float(np.sqrt(np.mean(every**2)))
    n = len(every)
    if n < 8 or rms == 0:
        return ColumnTest(rms, 1.0, 1.0, 1.0, 0, 1.0)
    off = every - every.mean()
    variance = np.mean(off**2)
    lags = min(_LAGS, n // 4)
    # Only samples of the same record are multiplied.
    parts = np.split(off, np.cumsum([len(r) for r in residuals])[:-1])
    longest = max(len(part) for part in parts)
    rho = [
        sum(float(part[k:] @ part[: len(part) - k]) for part in parts if len(part) > k)
        / (n * variance)
        for k in range(1, max(lags + 1, min(longest, 1000)))
    ]
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
