"""Statistics of rollouts, against those of NumPy over the good samples."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rollouts import DATA, run

import jaxmbd as mbd

FAILED = np.random.default_rng(4).random(len(DATA)) < 0.1
GOOD = DATA[~FAILED]
ROUND = np.round(DATA - 1e6, 1)  # many on an edge, and equal ones
EDGES = np.linspace(-1.0, 1.5, 6)


class Word(mbd.rollout.AbstractReduction):
    """First and last index, and a product of rotations, which does not commute."""

    def single(self, output, index):
        return index, index, mbd.rotations.quaternion_exp(output["x"] - 1e6)

    def merge(self, a, b):
        return a[0], b[1], mbd.rotations.quaternion_product(a[2], b[2])

    def result(self, state):
        return jax.tree.map(np.asarray, state)


def one_of_data(sample, key):
    x, rounded, failed = sample
    result = mbd.RESULTS.where(failed, mbd.RESULTS.drift, mbd.RESULTS.successful)
    return {"x": x, "round": rounded, "whole": jnp.round(x[0]).astype(int)}, result


def of_data(reductions, good=len(DATA), failed=FAILED):
    samples = DATA[:good], ROUND[:good], failed[:good]
    return run(one_of_data, samples, reductions=reductions, chunk=16).statistics


@pytest.fixture(scope="module")
def found():
    x, rounded = (lambda y: y["x"]), (lambda y: y["round"])
    return of_data(
        {
            "moments": mbd.rollout.Moments(),
            "mean": mbd.rollout.Mean(x),
            "covariance": mbd.rollout.Covariance(x),
            "extremes": mbd.rollout.Extremes(rounded),
            "histogram": mbd.rollout.Histogram(EDGES, rounded),
            "word": Word(),
        }
    )


def test_moments_and_covariance(found):
    """Of good samples, and of numbers whose squares would lose all digits of the variance."""
    moments, covariance = found["moments"], found["covariance"]
    assert moments.count == len(GOOD)
    np.testing.assert_allclose(moments.mean["x"], GOOD.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(moments.variance["x"], GOOD.var(axis=0, ddof=1), rtol=1e-9)
    np.testing.assert_allclose(moments.mean["whole"], np.round(GOOD[:, 0]).mean(), rtol=1e-15)
    deviation = GOOD.std(axis=0, ddof=1)
    np.testing.assert_allclose(moments.deviation["x"], deviation, rtol=1e-9)
    error = deviation / np.sqrt(len(GOOD))
    np.testing.assert_allclose(moments.standard_error["x"], error, rtol=1e-9)
    np.testing.assert_allclose(found["mean"], GOOD.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(covariance.covariance, np.cov(GOOD.T), rtol=0, atol=1e-9)
    np.testing.assert_allclose(covariance.correlation, np.corrcoef(GOOD.T), rtol=0, atol=1e-9)
    np.testing.assert_allclose(covariance.mean, GOOD.mean(axis=0), rtol=1e-15)


def test_extremes(found):
    """And whose they are: of equal values, the first sample."""
    masked = np.where(FAILED[:, None], np.nan, ROUND)
    for name in ("min", "max", "argmin", "argmax"):
        expected = getattr(np, f"nan{name}")(masked, axis=0)
        np.testing.assert_array_equal(getattr(found["extremes"], name), expected)


def test_histogram(found):
    histogram, good = found["histogram"], ROUND[~FAILED]
    for column, x in enumerate(good.T):
        np.testing.assert_array_equal(histogram.counts[column], np.histogram(x, EDGES)[0])
    np.testing.assert_array_equal(histogram.below, np.sum(good < -1.0, axis=0))
    np.testing.assert_array_equal(histogram.above, np.sum(good > 1.5, axis=0))
    np.testing.assert_array_equal(histogram.nan, 0)


def test_a_reduction_of_ones_own(found):
    """Samples are merged in their order, without those that failed."""
    first, last, turn = found["word"]
    good = np.flatnonzero(~FAILED)
    assert (first, last) == (good[0], good[-1])

    @jax.jit
    def product(x):
        turns, start = jax.vmap(mbd.rotations.quaternion_exp)(x), jnp.array([1.0, 0, 0, 0])
        step = lambda a, b: (mbd.rotations.quaternion_product(a, b), None)  # noqa: E731
        return jax.lax.scan(step, start, turns)[0]

    np.testing.assert_allclose(turn, product(GOOD - 1e6), rtol=0, atol=1e-13)


EXTREMES, HISTOGRAM = mbd.rollout.Extremes(), mbd.rollout.Histogram(np.array([0.0, 1.0, 2.0]))


@jax.jit
def merged(x):
    """The states of `Extremes` and `Histogram` of three numbers, merged in both ways."""
    found = []
    for kind in (EXTREMES, HISTOGRAM):
        a, b, c = (kind.single(x[i], jnp.asarray(i)) for i in range(3))
        found += [kind.merge(kind.merge(a, b), c), kind.merge(a, kind.merge(b, c))]
    return found


@pytest.mark.parametrize("x", list(itertools.permutations([0.5, -1.0, np.nan])))
def test_nan_is_told_at_any_place(x):
    """As NumPy tells it in extremes, with its sample; apart from the numbers above in a
    histogram."""
    *of_extremes, one, other = merged(np.array(x))
    for result in map(EXTREMES.result, of_extremes):
        assert np.isnan(result.min) and np.isnan(result.max)
        assert result.argmin == result.argmax == np.argmin(x) == np.argmax(x)
    for result in map(HISTOGRAM.result, (one, other)):
        assert result.counts.tolist() == [1, 0]
        assert (result.below, result.above, result.nan) == (1, 0, 1)
        assert "above 0, NaN 1" in str(result)


def test_no_good_sample():
    reductions = {"mean": mbd.rollout.Mean(), "moments": mbd.rollout.Moments()}
    assert of_data(reductions, 16, np.ones(16, bool)) == {"mean": None, "moments": None}


def test_one_sample():
    moments = of_data(mbd.rollout.Moments(), 1)
    np.testing.assert_array_equal(moments.mean["x"], DATA[0])
    assert not FAILED[0] and np.all(np.isnan(moments.variance["x"]))
