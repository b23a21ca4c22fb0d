"""Statistics of rollouts, against those of NumPy over the good samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rollout_runs import DATA, FAILED, run

import jaxmbd as mbd


def one_of_data(sample, key):
    x, failed = sample
    result = mbd.RESULTS.where(failed, mbd.RESULTS.drift, mbd.RESULTS.successful)
    return {"x": x, "whole": jnp.round(x[0]).astype(int)}, result


def of_data(reduction, chunk=16, data=DATA, failed=FAILED):
    return run(one_of_data, (data, failed), reductions=reduction, chunk=chunk).statistics


def test_moments():
    """Of good samples, and of numbers whose squares would lose all digits of the variance."""
    found, good = of_data(mbd.rollout.Moments()), DATA[~FAILED]
    assert found.count == len(good)
    np.testing.assert_allclose(found.mean["x"], good.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(found.variance["x"], good.var(axis=0, ddof=1), rtol=1e-9)
    np.testing.assert_allclose(found.mean["whole"], np.round(good[:, 0]).mean(), rtol=1e-15)
    np.testing.assert_allclose(found.deviation["x"], good.std(axis=0, ddof=1), rtol=1e-9)
    error = good.std(axis=0, ddof=1) / np.sqrt(len(good))
    np.testing.assert_allclose(found.standard_error["x"], error, rtol=1e-9)
    mean = of_data(mbd.rollout.Mean(lambda y: y["x"]))
    np.testing.assert_allclose(mean, good.mean(axis=0), rtol=1e-15)


def test_covariance():
    found, good = of_data(mbd.rollout.Covariance(lambda y: y["x"])), DATA[~FAILED]
    np.testing.assert_allclose(found.covariance, np.cov(good.T), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.correlation, np.corrcoef(good.T), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.mean, good.mean(axis=0), rtol=1e-15)


def test_extremes():
    """And whose they are: of equal values, the first sample."""
    data = np.round(DATA, 1)
    found = of_data(mbd.rollout.Extremes(lambda y: y["x"]), data=data)
    masked = np.where(FAILED[:, None], np.nan, data)
    np.testing.assert_array_equal(found.min, np.nanmin(masked, axis=0))
    np.testing.assert_array_equal(found.max, np.nanmax(masked, axis=0))
    np.testing.assert_array_equal(found.argmin, np.nanargmin(masked, axis=0))
    np.testing.assert_array_equal(found.argmax, np.nanargmax(masked, axis=0))


def test_histogram():
    data = np.round(DATA - 1e6, 1)  # many on an edge
    edges = np.linspace(-1.0, 1.5, 6)
    found = of_data(mbd.rollout.Histogram(edges, lambda y: y["x"]), data=data)
    for column in range(3):
        x = data[~FAILED, column]
        np.testing.assert_array_equal(found.counts[column], np.histogram(x, edges)[0])
        assert found.below[column] == np.sum(x < -1.0) and found.above[column] == np.sum(x > 1.5)


class Word(mbd.rollout.AbstractReduction):
    """First and last index, and a product of rotations, which does not commute."""

    def single(self, output, index):
        angle = output["x"] - 1e6
        turn = mbd.rotations.quaternion_exp(angle)
        return index, index, turn

    def merge(self, a, b):
        return a[0], b[1], mbd.rotations.quaternion_product(a[2], b[2])

    def result(self, state):
        return jax.tree.map(np.asarray, state)


@pytest.mark.parametrize("chunk", [1, 32])
def test_a_reduction_of_ones_own(chunk):
    """Samples are merged in their order, without those that failed."""
    first, last, turn = of_data({"word": Word()}, chunk)["word"]
    good = np.flatnonzero(~FAILED)
    assert (first, last) == (good[0], good[-1])
    turns = jax.jit(jax.vmap(mbd.rotations.quaternion_exp))(DATA[good] - 1e6)
    expected, _ = jax.lax.scan(
        lambda a, b: (mbd.rotations.quaternion_product(a, b), None),
        jnp.array([1.0, 0, 0, 0]),
        turns,
    )
    np.testing.assert_allclose(turn, expected, rtol=0, atol=1e-13)


def test_no_good_sample():
    found = run(
        one_of_data,
        (DATA, np.ones(200, bool)),
        reductions={"mean": mbd.rollout.Mean(), "moments": mbd.rollout.Moments()},
    )
    assert found.statistics == {"mean": None, "moments": None}
    assert "0 succeeded, 200 failed" in str(found)


def test_one_sample():
    found = of_data(mbd.rollout.Moments(), data=DATA[:1], failed=FAILED[:1])
    np.testing.assert_array_equal(found.mean["x"], DATA[0])
    assert np.all(np.isnan(found.variance["x"]))
