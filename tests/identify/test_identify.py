"""`identify.fit` finds what motions were made with, and says what cannot be found.

Truths: motions in closed form, linear regression, SciPy's robust fits, and one search against
another."""

import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import optimistix as optx
import pytest
import scipy.optimize
from jaxtyping import Array
from known_motions import QUIET, TIMES, decay, oscillator, position, state

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd.identify import Free, Parameter, Positive, Record, UnknownStart


class Falling(mbd.AbstractSystem):
    """q'' = -g: a motion that is linear in g and in its start, and exact by RK4."""

    gravity: Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return -jnp.reshape(self.gravity, 1)


def falling(records, **options):
    return identify.fit(
        Falling(jnp.array(8.0)),
        ["gravity"],
        records,
        position,
        dt=0.05,
        start=UnknownStart(),
        **QUIET,
        **options,
    )


def regression(times, heights):
    """Estimate and covariance of g from heights of several falls, each with a start of its own."""
    rows = sum(len(t) for t in times)
    X, y, at = np.zeros((rows, 1 + 2 * len(times))), np.concatenate(heights), 0
    for k, t in enumerate(times):
        part = slice(at, at + len(t))
        X[part, 0], X[part, 1 + 2 * k], X[part, 2 + 2 * k] = -(t**2) / 2, 1.0, t
        at += len(t)
    found, squares, *_ = np.linalg.lstsq(X, y, rcond=None)
    C = squares[0] / (rows - X.shape[1]) * np.linalg.inv(X.T @ X)
    return found, C


# --- what is found --------------------------------------------------------------------------------


def test_oscillator_without_noise():
    """To the error of RK4 at this step, 1e-9 of the motion. The motion is traced once."""
    record, traced = Record(TIMES, decay(TIMES), state()), []

    def height(sample):
        traced.append(sample)
        return position(sample)

    found = identify.fit(
        oscillator(damping=0.8, stiffness=5.0),
        {"damping": Positive(), "stiffness": Positive()},
        record,
        {"height": height},
        dt=5e-3,
        **QUIET,
    )
    assert found.converged and found.prediction.successful
    assert len(traced) == 2  # at first only for the names of what it measures
    np.testing.assert_allclose(found.entries, [0.4, 9.0], rtol=1e-7)
    assert found.names == ("damping", "stiffness")
    assert found.system.stiffness == found.values["stiffness"]
    assert found.prediction.rms["height"] < 1e-8
    moved = found.predict(record, starts=[state(0.5, 1.0)])
    np.testing.assert_allclose(moved.readings[0][:, 0], decay(TIMES, 0.5, 1.0), atol=1e-8)
    with pytest.raises(ValueError, match="2 starts"):
        found.predict(record, starts=[state()] * 2)


@pytest.fixture(scope="module")
def falls():
    """Two falls at different times with unknown starts; some samples are missing."""
    rng = np.random.default_rng(1)
    times = np.arange(0.0, 1.01, 0.1), np.array([0.5, 0.62, 0.71, 0.9, 1.13, 1.2, 1.31, 1.6])
    heights = [2.0 + 0.5 * t - 4.905 * t**2 + 0.01 * rng.normal(size=t.shape) for t in times]
    seen = [np.ones(len(t), bool) for t in times]
    seen[0][[3, 4]] = seen[1][5] = False
    records = [
        Record(t, np.where(use, y, np.nan), state(0.0, 0.0, t[0]), weights=use, name=f"fall {k}")
        for k, (t, y, use) in enumerate(zip(times, heights, seen))
    ]
    return (
        records,
        [t[u] - t[0] for t, u in zip(times, seen)],
        [y[u] for y, u in zip(heights, seen)],
    )


def test_falls_are_linear_regression(falls):
    """Estimate, starts, noise and interval of a problem that is one."""
    records, times, heights = falls
    found = falling(records)
    expected, C = regression(times, heights)
    np.testing.assert_allclose(found.entries[0], expected[0], rtol=1e-9)
    np.testing.assert_allclose(found.covariance[0, 0], C[0, 0], rtol=1e-7)
    for k, start in enumerate(found.starts):
        np.testing.assert_allclose([start.q[0], start.v[0]], expected[1 + 2 * k :][:2], rtol=1e-7)
    low, high = found.interval(0.9)[0]
    width = scipy.stats.t.ppf(0.95, sum(map(len, times)) - 5) * math.sqrt(C[0, 0])
    np.testing.assert_allclose([low, high], expected[0] + np.array([-width, width]), rtol=1e-7)
    assert found.freedom == sum(map(len, times)) - 5


@pytest.mark.slow
def test_multiple_shooting_finds_the_same(falls):
    """Estimate and covariance, the parts meeting to 1e-8."""
    records, times, heights = falls
    expected, C = regression(times, heights)
    for parts in (2, 3):
        found = falling(records, shooting=identify.MultipleShooting(parts))
        assert found.converged
        np.testing.assert_allclose(found.entries[0], expected[0], rtol=1e-7)
        np.testing.assert_allclose(found.covariance[0, 0], C[0, 0], rtol=1e-6)


def test_prior_counts_as_a_measurement():
    """Of weight 1 / sigma, beside those of the record: the weighted mean, by Gauss."""
    t = np.linspace(0.0, 1.0, 11)
    record = Record(t, -4.0 * t**2, state(0.0, 0.0), weights=100.0 * np.ones(11))
    sigma = 0.05
    found = identify.fit(
        Falling(jnp.array(9.0)),
        {"gravity": Parameter(9.0, Free(), sigma=sigma)},
        record,
        position,
        dt=0.1,
        **QUIET,
    )
    weights = np.array([np.sum((100 * t**2 / 2) ** 2), 1 / sigma**2])
    assert found.entries[0] == pytest.approx((weights @ [8.0, 9.0]) / weights.sum(), rel=1e-9)


@pytest.mark.parametrize("loss", [identify.Huber(2.0), identify.Cauchy(3.0)], ids=type)
def test_robust_losses(loss):
    """Against `scipy.optimize.least_squares` with the same loss, with outliers that move least
    squares by a multiple of that."""
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 1.0, 31)
    y = -4.9 * t**2 + 0.01 * rng.normal(size=31)
    y[[5, 20, 28]] += [0.5, -0.8, 1.0]
    record = Record(t, y, state(0.0, 0.0), weights=np.full(31, 100.0))
    found = identify.fit(
        Falling(jnp.array(9.5)), ["gravity"], record, position, dt=0.1, loss=loss, **QUIET
    )
    name, scale = ("huber", 2.0) if isinstance(loss, identify.Huber) else ("cauchy", 3.0)
    reference = scipy.optimize.least_squares(
        lambda g: 100 * (-g[0] * t**2 / 2 - y), [9.5], loss=name, f_scale=scale, xtol=1e-14,
        ftol=1e-14, gtol=1e-14,
    )  # fmt: skip
    assert found.entries[0] == pytest.approx(reference.x[0], rel=1e-6)
    assert abs(found.entries[0] - 9.8) < 0.05


# --- what cannot be found -------------------------------------------------------------------------


def test_undetermined_combination_is_named():
    """Of a free oscillation only k/m and c/m: a common factor of all three goes unnoticed."""
    rng = np.random.default_rng(0)
    record = Record(TIMES, decay(TIMES) + 1e-3 * rng.normal(size=41), state())
    found = identify.fit(
        oscillator(1.1, 0.5, 8.0),
        {name: Positive() for name in ("mass", "damping", "stiffness")},
        record,
        position,
        dt=0.02,
        **QUIET,
    )
    (lost,) = found.identifiability().undetermined
    assert lost.sigma > 1e3
    np.testing.assert_allclose(list(lost.direction.values()), np.full(3, 3**-0.5), atol=1e-6)
    assert np.all(np.isinf(found.sigma))
    assert found.values["stiffness"] / found.values["mass"] == pytest.approx(9.0, rel=1e-2)
    assert "not determined" in str(found) and "mass" in str(found)
    # A ratio is known though neither of its parameters is, and a sum is not.
    derived = found.derived(
        lambda p: {"square": p["stiffness"] / p["mass"], "sum": p["stiffness"] + p["mass"]}
    )
    two = {"damping": Positive(), "stiffness": Positive()}
    alone = identify.fit(oscillator(1.0, 0.5, 8.0), two, record, position, dt=0.02, **QUIET)
    sigma = alone.sigma[1] * np.sqrt(39 / 38)  # one more unknown of 41 measurements
    np.testing.assert_allclose(derived["square"], [alone.entries[1], sigma], rtol=1e-5)
    assert derived["sum"][1] == np.inf
    with pytest.raises(ValueError, match='"both" must be one number, but has shape \\(2,\\)'):
        found.derived(lambda p: {"both": jnp.stack([p["mass"], p["stiffness"]])})


def test_unconnected_parameter_warns():
    record = Record(TIMES, decay(TIMES), state())

    def model(values):
        return oscillator(1.0, 0.4, values["stiffness"])

    parameters = {"stiffness": Parameter(8.0, Positive()), "colour": 1.0}
    with pytest.warns(UserWarning, match="colour"):
        found = identify.fit(model, parameters, record, position, dt=0.02, **QUIET)
    assert found.unconnected == ("colour",)
    assert found.values["colour"] == 1.0 and np.isinf(found.sigma[1])


# --- searches -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimiser",
    [optax.lbfgs(), optax.adam(0.05), optx.GaussNewton(1e-10, 1e-10), optx.Dogleg(1e-10, 1e-10)],
    ids=["lbfgs", "adam", "gauss-newton", "dogleg"],
)
def test_optimisers_agree(optimiser):
    rng = np.random.default_rng(0)
    record = Record(TIMES, decay(TIMES) + 1e-2 * rng.normal(size=41), state(), weights=[10.0])

    def found(optimiser, max_steps=100):
        return identify.fit(
            oscillator(damping=0.5, stiffness=8.5),
            {"damping": Positive(), "stiffness": Positive()},
            record,
            position,
            dt=0.05,
            optimiser=optimiser,
            max_steps=max_steps,
            **QUIET,
        )

    reference, other = found(None), found(optimiser, 1000)
    np.testing.assert_allclose(other.entries, reference.entries, rtol=1e-4)
    np.testing.assert_allclose(other.sigma, reference.sigma, rtol=1e-2)


@pytest.mark.slow
def test_scattered_starts_find_the_far_minimum():
    """A stiffness off by a factor of five loses the phase: alone it ends in a local minimum."""
    record = Record(TIMES, decay(TIMES), state())

    def found(multistart):
        return identify.fit(
            oscillator(stiffness=45.0), {"stiffness": Positive()}, record, position, dt=0.02,
            multistart=multistart, **QUIET,
        )  # fmt: skip

    assert abs(found(None).entries[0] - 9.0) > 1.0
    many = identify.MultiStart(16, jr.key(0), spread=1.5)
    assert found(many).entries[0] == pytest.approx(9.0, rel=1e-5)


def test_interrupted_search_goes_on(tmp_path):
    """Two halves are the whole, to the last bit; the file of another problem is refused."""
    record = Record(TIMES, decay(TIMES), state())

    def found(max_steps, path, stiffness=5.0):
        return identify.fit(
            oscillator(stiffness=stiffness), {"stiffness": Positive()}, record, position, dt=0.02,
            max_steps=max_steps, checkpoint=path, **QUIET,
        )  # fmt: skip

    whole = found(100, None)
    half = found(3, tmp_path / "fit")
    assert not half.converged and half.entries[0] != whole.entries[0]
    rest = found(100, tmp_path / "fit")
    assert rest.converged and rest.iterations == whole.iterations
    np.testing.assert_array_equal(rest.entries, whole.entries)
    with pytest.raises(ValueError, match="another problem"):
        found(100, tmp_path / "fit", stiffness=6.0)


def test_saved_estimate_is_readable(tmp_path, falls):
    found = falling(falls[0])
    found.save(tmp_path / "fit.json")
    text = (tmp_path / "fit.json").read_text()
    assert '"gravity"' in text
    again = identify.load_estimate(tmp_path / "fit.json")
    assert again["values"]["gravity"] == found.entries[0]
    np.testing.assert_array_equal(again["covariance"], found.covariance)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="not written by"):
        identify.load_estimate(tmp_path / "other.json")


def test_prediction_of_other_records():
    """From the start that they give, with the values found or others."""
    found = identify.fit(
        oscillator(stiffness=8.0), {"stiffness": Positive()}, Record(TIMES, decay(TIMES), state()),
        {"height": position}, dt=5e-3, **QUIET,
    )  # fmt: skip
    later = np.linspace(1.0, 3.0, 15)
    other = Record(later, decay(later - 1.0, 0.5, 2.0), state(0.5, 2.0, 1.0))
    assert found.predict(other).rms["height"] < 1e-7
    worse = found.predict(other, {"stiffness": 4.0})
    expected = decay(later - 1.0, 0.5, 2.0, stiffness=4.0) - decay(later - 1.0, 0.5, 2.0)
    np.testing.assert_allclose(worse.errors[0][:, 0], expected, atol=1e-7)
    with pytest.raises(ValueError, match="no parameter .*length"):
        found.predict(other, {"length": 1.0})


@pytest.mark.slow
def test_bootstrap_scatters_as_the_intervals_say():
    """400 repetitions: the share of 95 % intervals that hold the truth is binomial, between 0.92
    and 0.98 but for one in a thousand."""
    rng = np.random.default_rng(0)
    record = Record(TIMES, decay(TIMES) + 1e-2 * rng.normal(size=41), state(), weights=[100.0])
    found = identify.fit(
        oscillator(), {"damping": Positive(), "stiffness": Positive()}, record, position, dt=0.05,
        start=UnknownStart(), **QUIET,
    )  # fmt: skip
    many = identify.bootstrap(found, jr.key(1), 400)
    assert many.converged.all()
    np.testing.assert_allclose(many.entries.std(axis=0), found.sigma, rtol=0.15)
    assert np.all((many.coverage() > 0.915) & (many.coverage() < 0.98))


# --- pictures -------------------------------------------------------------------------------------


def test_pictures(tmp_path, falls):
    """Each measured row is on the axes of its column, and every entry on those of the intervals."""
    import matplotlib

    matplotlib.use("Agg")
    found = falling(falls[0])
    (ax,) = identify.plot_fit(found)
    first = ax.lines[0].get_xydata()
    np.testing.assert_allclose(first[:, 1], falls[2][0])
    ax.figure.draw_without_rendering()
    legend, inside = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert legend.y0 >= inside.y1  # it hides no data
    (ax,) = identify.plot_residuals(found)
    shown = np.concatenate([line.get_ydata() for line in ax.lines])
    np.testing.assert_allclose(
        np.sqrt(np.nanmean(shown**2)), found.prediction.rms["reading"], rtol=1e-12
    )
    left, _ = identify.plot_intervals(found, {"gravity": 9.81})
    star = left.lines[-1].get_xydata()[0]
    assert star[0] == pytest.approx(9.81 / found.entries[0] - 1)
    with pytest.raises(ValueError, match="1 columns to plot"):
        identify.plot_fit(found, axes=np.array([ax, ax]))
