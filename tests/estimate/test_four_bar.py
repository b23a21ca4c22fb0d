"""Filters of a closed loop with redundant rows."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from estimated import DAMPING, drawn, four_bar, nees, truth
from scipy.stats import chi2

import jaxmbd as mbd
from jaxmbd import estimate, identify

SENSORS = {"crank": identify.JointPosition("hinge 0"), "gyro": identify.Gyroscope("bar 1")}


def four_bar_filter(rule, **options):
    mechanism = four_bar()
    given = dict(process_noise=estimate.ContinuousNoise(0.3, drift={DAMPING: 0.02})) | options
    filter = estimate.Filter(
        mechanism,
        SENSORS,
        {"crank": [0.005], "gyro": [0.05] * 3},
        dt=0.01,
        parameters={DAMPING: identify.Parameter(0.4, identify.Positive(), 0.08)},
        rule=rule,
        **given,
    )
    return filter, filter.start(mechanism.state(), position=0.02, velocity=0.2)


@pytest.mark.slow
def test_errors_are_as_large_as_expected():
    """The average of the normalised squared errors of runs with 30 samples, at 5 of them and
    for 3 deviations, within the bounds that 1 of 10^4 right filters would miss; and the same for
    innovations. The loop is closed after each update."""
    filter, start = four_bar_filter(estimate.Extended())
    runs = 150
    steps = 30

    def run(key):
        of_start, of_motion = jr.split(key)
        true, readings = truth(filter, drawn(filter, start, of_start), of_motion, steps)

        def one(belief, y):
            belief, innovation = filter.step(belief, y)
            return belief, (belief, innovation)

        _, (beliefs, innovations) = jax.lax.scan(one, start, readings)
        return (
            *jax.vmap(lambda b, x: nees(filter, b, x))(beliefs, true),
            innovations.nis,
            beliefs.result,
        )

    keys = jr.split(jr.key(3), runs)
    found, phi, nis, result = jax.jit(lambda keys: jax.lax.map(run, keys))(keys)
    mbd.raise_if_failed(result)
    assert np.max(phi) < 1e-10
    for total, size in (
        (np.sum(found[:, 5::6], axis=0), 3 * runs),
        (np.sum(nis[:, 5::6], axis=0), 4 * runs),
    ):
        low, high = chi2.ppf([1e-5, 1 - 1e-5], size)
        assert np.all((low < total) & (total < high)), total / size


@pytest.mark.slow
def test_damping_is_tracked():
    """From a guess that is half of the truth, with samples at two rates and missing ones. The
    interval at the end holds the truth; the smoother's errors of the motion are smaller than the
    filter's, and its parameter at the start is that at the end, since it is constant."""
    filter, start = four_bar_filter(
        estimate.Extended(), process_noise=estimate.ContinuousNoise(0.1)
    )
    exact = eqx.tree_at(lambda b: (b.free, b.P), start, (jnp.log(jnp.array([2.0])), 0 * start.P))
    system = filter.system(exact)
    np.testing.assert_allclose(identify.leaf(system, DAMPING), 0.8, rtol=1e-12)
    guess = eqx.tree_at(lambda b: b.P, start, start.P.at[2, 2].set(0.5))
    steps = 300
    true, readings = eqx.filter_jit(truth)(filter, exact, jr.key(1), steps)
    readings = np.concatenate([np.full((1, 4), np.nan), readings])
    present = np.ones((steps + 1, 4), bool)
    present[:, 1:] = (np.arange(steps + 1) % 5 == 0)[:, None]
    present[0] = present[60:80] = False
    record = identify.Record(
        0.01 * np.arange(steps + 1), readings, start, weights=present.astype(float)
    )
    run = filter.run(guess, record)
    smooth = filter.smooth(run)
    mbd.raise_if_failed((run.result, smooth.result))
    assert "forces[damper].damping = " in str(run) and run.test().passed
    low, high = filter.intervals(run.last)[DAMPING]
    assert low < 0.8 < high and high - low < 0.2
    last = np.broadcast_to(run.entries[-1], smooth.entries.shape)
    np.testing.assert_allclose(smooth.entries, last, rtol=1e-6)

    def errors(beliefs):
        return np.sqrt(np.mean((np.asarray(beliefs.q)[1:] - np.asarray(true.q)) ** 2))

    assert errors(smooth.beliefs) < 0.8 * errors(run.beliefs)
    C = np.asarray(filter.covariance(run.last))
    _, spread = filter.expected(run.last, identify.JointPosition("hinge 0"))
    np.testing.assert_allclose(np.linalg.matrix_rank(C, tol=1e-12), 2)
    rate = np.sqrt(run.last.P[0, 0]) * np.abs(run.last.bases.position.U[:, 0])
    np.testing.assert_allclose(np.sqrt(np.diagonal(C)[:18]), rate, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.sqrt(spread[0, 0]), rate[12], rtol=1e-6)  # bar 0 turns with it
