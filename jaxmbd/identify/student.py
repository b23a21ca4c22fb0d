"""Student's distribution."""


def quantile(level: float, freedom: int) -> float:
    """Half the width of the central interval of this probability, in standard deviations."""
    import scipy.stats  # takes longer to import than the rest of the package

    return float(scipy.stats.t.ppf((1 + level) / 2, freedom))
