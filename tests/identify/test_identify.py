"""`identify.fit` finds what motions were made with, and says what cannot be found.

Truths: motions in closed form, linear regression, SciPy's robust fits, and one search against
another."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import optimistix as optx
import pytest
import scipy.optimize
import scipy.stats
from known_motions import BOTH, QUIET, TIMES, Falling, decay, oscillator, position, state

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._compiler import to_jax
from jaxmbd._results import succeeded
from jaxmbd._search import Multipliers
from jaxmbd.identify import Free, Parameter, Positive, Record, UnknownStart
from jaxmbd.identify.problem import SimulationOptions, make_problem

HEIGHT = {"height": position}


def of_oscillator(guess, parameters, record, dt=0.02, **options):
    return identify.fit(guess, parameters, record, HEIGHT, dt=dt, **QUIET, **options)


def noisy(size):
    off = size * np.random.default_rng(0).normal(size=41)
    return Record(TIMES, decay(TIMES) + off, state(), weights=np.full(41, 1 / size))


def falling(records, guess=8.0, parameters=("gravity",), **options):
    model = Falling(to_jax(guess))
    return identify.fit(model, parameters, records, position, dt=0.1, **QUIET, **options)


def test_residuals_and_their_jacobian():
    """Of falls, by hand: weighted samples of both parts and their padding under a robust loss,
    priors, and the violation of continuity with its multipliers."""
    t = np.array([0.5, 0.6, 0.8, 1.0, 1.5])
    record = Record(t, np.sin(t), state(2.0, -1.0, 0.5), weights=np.arange(1.0, 6.0))
    problem = make_problem(
        Falling(to_jax(8.0)),
        {"gravity": Parameter(8.0, Free(4.0), sigma=0.5)},
        [record],
        position,
        SimulationOptions(0.1, mbd.UdwadiaKalaba(), None),
        UnknownStart(position=0.1, velocity=3.0, sigma_position=0.2, sigma_velocity=0.7),
        identify.MultipleShooting(2),
        identify.Huber(1.3),
    )
    lam, rho = np.array([[0.3, -0.2]]), 4.0
    data = problem.data._replace(
        multipliers=Multipliers(*map(to_jax, (lam, np.zeros(0), rho, np.inf)))
    )

    def rows(z):
        g, starts, found, ends = 8 + 4 * z[0], z[1:].reshape(2, 2), [], []
        begin = np.array([2.0, -1.0])
        for k, (first, last) in enumerate(((0, 3), (3, 5))):  # parts of 0.5 s
            x0 = begin + starts[k] * [0.1, 3.0]
            tau = np.append(t[first:last], t[last - 1])[:3] - t[first]
            w = np.append(record.weights[first:last], 0.0)[:3]
            y = np.append(np.sin(t[first:last]), 0.0)[:3]
            r = w * (x0[0] + x0[1] * tau - g * tau**2 / 2 - y)
            root = np.sqrt(np.maximum(2.6 * np.abs(r) - 1.69, 1.69))
            found.append(np.where(np.abs(r) > 1.3, np.sign(r) * root, r))
            ends.append((x0, np.array([x0[0] + x0[1] / 2 - g / 8, x0[1] - g / 2])))
            begin = np.array([2.0 - 0.5 - 1.0, -1.0 - 4.0])  # of the guess
        prior = [(g - 8) / 0.5, *starts[0] * [0.1 / 0.2, 3 / 0.7], 0, 0]
        gap = ends[0][1] - ends[1][0]
        return np.concatenate([*found, prior, np.sqrt(rho) * gap + lam[0] / np.sqrt(rho)])

    z = np.array([0.3, -0.2, 0.1, 0.4, -0.5])
    assert problem.size == 5
    r, J, _ = eqx.filter_jit(problem.residuals.jacobian)(z, data)
    np.testing.assert_allclose(r, rows(z), atol=1e-12)
    columns = [(rows(z + e) - rows(z - e)) / 2e-5 for e in 1e-5 * np.eye(5)]
    np.testing.assert_allclose(np.asarray(J).T, columns, atol=1e-8)
    assert 0 < np.sum(np.abs(np.asarray(r)[:6]) > 1.3) < 5


def test_oscillator_without_noise():
    """To the error of RK4 at this step. Records are predicted from the starts that are given, with
    the values found or others."""
    record = Record(TIMES, decay(TIMES), state())
    found = of_oscillator(oscillator(damping=0.8, stiffness=5.0), BOTH, record)
    assert succeeded(found.result) and found.prediction.successful
    np.testing.assert_allclose(found.entries, [0.4, 9.0], rtol=3e-6)
    assert found.names == ("damping", "stiffness")
    assert float(found.system.stiffness) == float(found.values["stiffness"])
    assert found.prediction.rms["height"] < 1e-6
    moved = found.predict(record, {"stiffness": 4.0}, starts=[state(0.5, 1.0)])
    expected = decay(TIMES, 0.5, 1.0, stiffness=4.0)
    np.testing.assert_allclose(moved.readings[0][:, 0], expected, atol=2e-6)
    np.testing.assert_allclose(moved.errors[0][:, 0], expected - decay(TIMES), atol=2e-6)
    with pytest.raises(ValueError, match="2 starts"):
        found.predict(record, starts=[state()] * 2)
    with pytest.raises(ValueError, match="no parameter .*length"):
        found.predict(record, {"length": 1.0})


FALLS = np.arange(0.0, 1.01, 0.1), np.array([0.5, 0.62, 0.71, 0.9, 1.13, 1.2, 1.31, 1.6])
MISSING = (3, 4), (5,)


def two_falls():
    """At different times with unknown starts; some samples are missing. Records, and the times from
    the start and the heights that were seen."""
    rng, records, times, heights = np.random.default_rng(1), [], [], []
    for k, (t, gone) in enumerate(zip(FALLS, MISSING)):
        y = 2.0 + 0.5 * t - 4.905 * t**2 + 0.01 * rng.normal(size=t.shape)
        use = ~np.isin(np.arange(len(t)), gone)
        start, measured = state(0.0, 0.0, t[0]), np.where(use, y, np.nan)
        records.append(Record(t, measured, start, weights=use, name=f"fall {k}"))
        times.append(t[use] - t[0])
        heights.append(y[use])
    return records, times, heights


@pytest.fixture(scope="module")
def falls():
    return two_falls(), falling(two_falls()[0], start=UnknownStart())


def regression(times, heights):
    """Estimate and covariance of g from heights of several falls, each with a start of its own."""
    X = np.zeros((sum(map(len, times)), 1 + 2 * len(times)))
    X[:, 0] = -(np.concatenate(times) ** 2) / 2
    for k, part in enumerate(np.split(np.arange(len(X)), np.cumsum([*map(len, times)])[:-1])):
        X[part, 1 + 2 * k], X[part, 2 + 2 * k] = 1.0, times[k]
    found, squares, *_ = np.linalg.lstsq(X, np.concatenate(heights))
    return found, squares[0] / (len(X) - X.shape[1]) * np.linalg.inv(X.T @ X)


def test_falls_are_linear_regression(falls, tmp_path):
    """Estimate, starts, noise and interval of a problem that is one; also read from a file."""
    (_, times, heights), found = falls
    expected, C = regression(times, heights)
    np.testing.assert_allclose(found.entries[0], expected[0], rtol=1e-9)
    np.testing.assert_allclose(found.covariance[0, 0], C[0, 0], rtol=1e-7)
    for k, start in enumerate(found.starts):
        ends = np.concatenate([start.q, start.v])
        np.testing.assert_allclose(ends, expected[1 + 2 * k :][:2], rtol=1e-7)
    width = scipy.stats.t.ppf(0.95, sum(map(len, times)) - 5) * math.sqrt(C[0, 0])
    ends = expected[0] + np.array([-width, width])
    np.testing.assert_allclose(found.interval(0.9)[0], ends, rtol=1e-7)
    assert found.freedom == sum(map(len, times)) - 5

    found.save(tmp_path / "fit.json")
    assert '"gravity"' in (tmp_path / "fit.json").read_text()
    again = identify.load_estimate(tmp_path / "fit.json")
    assert again["values"]["gravity"] == found.entries[0]
    np.testing.assert_array_equal(again["covariance"], found.covariance)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="not written by"):
        identify.load_estimate(tmp_path / "other.json")


@pytest.mark.slow
def test_bootstrap_scatters_as_the_intervals_say(falls):
    """Of a linear problem, where both are exact: estimates scatter by sigma, to 4 standard errors,
    and the share of 90 % intervals that hold the truth is binomial."""
    found = falls[1]
    many = identify.bootstrap(found, jr.key(1), 400)
    assert succeeded(many.result).all()
    spread = math.sqrt(2 / found.freedom / 400)  # of the mean of 400 variances
    np.testing.assert_allclose((many.sigma**2).mean(axis=0), found.sigma**2, rtol=4 * spread)
    np.testing.assert_allclose(many.entries.std(axis=0), found.sigma, rtol=4 / math.sqrt(800))
    assert abs(many.entries.mean() - found.entries[0]) < 4 * found.sigma[0] / 20
    assert abs(many.coverage(0.9)[0] - 0.9) < 4 * math.sqrt(0.09 / 400)


@pytest.mark.slow
def test_multiple_shooting_finds_the_same():
    """Estimate and covariance, the parts meeting to 1e-8."""
    records, times, heights = two_falls()
    expected, C = regression(times, heights)
    found = falling(records, start=UnknownStart(), shooting=identify.MultipleShooting(3))
    assert succeeded(found.result)
    np.testing.assert_allclose(found.entries[0], expected[0], rtol=1e-7)
    np.testing.assert_allclose(found.covariance[0, 0], C[0, 0], rtol=1e-6)


def test_prior_counts_as_a_measurement():
    """Of weight 1 / sigma^2, beside those of the record: the weighted mean, by Gauss. Gradient
    descent finds it in one step of the right length. A number of no effect is told."""
    t = np.linspace(0.0, 1.0, 11)
    lever = np.sum((t**2 / 2) ** 2)  # the weight of g by the heights of a fall
    optimiser = optax.sgd(1 / (81 * (lever + 1 / 4)))
    parameters = {"gravity": Parameter(9.0, Free(), sigma=2.0), "colour": 1.0}
    model = lambda values: Falling(values["gravity"])  # noqa: E731
    record = Record(t, -4.0 * t**2, state(0.0, 0.0))
    options = dict(dt=0.1, optimiser=optimiser, **QUIET)
    with pytest.warns(UserWarning, match="colour"):
        found = identify.fit(model, parameters, record, position, **options)
    mean = (lever * 8 + 9 / 4) / (lever + 1 / 4)
    assert found.entries[0] == pytest.approx(mean, rel=1e-9) and succeeded(found.result)
    assert found.unconnected == ("colour",)
    assert float(found.values["colour"]) == 1.0 and np.isinf(found.sigma[1])


@pytest.mark.parametrize(
    "name, loss", [("huber", identify.Huber(2.0)), ("cauchy", identify.Cauchy(2.0))]
)
def test_robust_losses_are_those_of_scipy(name, loss):
    """r-hat^2 = rho(r) with the sign of r."""
    r = np.array([-30.0, -2.1, -1.9, -1e-6, 0.0, 0.5, 2.0, 7.0])
    x = (r / 2) ** 2
    rho = np.where(x <= 1, x, 2 * np.sqrt(x) - 1) if name == "huber" else np.log1p(x)
    found, slope = jax.jit(lambda r: jax.jvp(loss, (r,), (jnp.ones_like(r),)))(r)
    np.testing.assert_allclose(found, np.sign(r) * 2 * np.sqrt(rho), rtol=1e-12)
    weight = np.where(x <= 1, 1, 1 / np.sqrt(np.maximum(x, 1))) if name == "huber" else 1 / (1 + x)
    np.testing.assert_allclose(np.multiply(found, slope), weight * r, rtol=1e-9)  # rho' / 2


def test_bounds_hold():
    """A motion that grows, as if damping were negative: it ends at zero, and the stiffness where
    SciPy has it without damping, or at its bound. Bounds may be arrays, of any value for one
    program."""
    y = decay(TIMES, damping=-0.1)

    def found(upper):
        stiffness = Parameter(8.0, identify.Bounded(np.array(3.0), np.array(upper)))
        damping = Parameter(0.4, identify.NotNegative())
        return of_oscillator(
            oscillator(damping=0.0), {"stiffness": stiffness, "damping": damping},
            Record(TIMES, y, state()), tolerance=1e-10,
        )  # fmt: skip

    best = scipy.optimize.minimize_scalar(
        lambda k: np.sum((decay(TIMES, damping=0.0, stiffness=k) - y) ** 2), (8.5, 9.0), tol=1e-12
    )
    for upper, expected, tolerance in ((20.0, best.x, 1e-5), (8.5, 8.5, 1e-14)):
        fit = found(upper)
        assert succeeded(fit.result) and fit.iterations < 20
        assert fit.values["damping"] == pytest.approx(0.0, abs=1e-15)
        assert fit.values["stiffness"] == pytest.approx(expected, rel=tolerance)


def test_undetermined_combination_is_named():
    """Of a free oscillation only k/m and c/m: a common factor of all three goes unnoticed."""
    record = noisy(1e-3)
    all_three = {name: Positive() for name in ("mass", "damping", "stiffness")}
    found = of_oscillator(oscillator(1.1, 0.5, 8.0), all_three, record)
    (lost,) = found.identifiability().undetermined
    assert lost.sigma > 1e3
    np.testing.assert_allclose(list(lost.direction.values()), np.full(3, 3**-0.5), atol=1e-6)
    assert np.all(np.isinf(found.sigma))
    ratio = np.divide(found.values["stiffness"], found.values["mass"])
    assert ratio == pytest.approx(9.0, rel=1e-2)
    assert "not determined" in str(found) and "mass" in str(found)
    # A ratio is known though neither of its parameters is, and a sum is not.
    k, m = (lambda p: p["stiffness"]), (lambda p: p["mass"])
    derived = found.derived(lambda p: {"square": k(p) / m(p), "sum": k(p) + m(p)})
    alone = of_oscillator(oscillator(1.0, 0.5, 8.0), BOTH, record)
    sigma = alone.sigma[1] * np.sqrt(39 / 38)  # one more unknown of 41 measurements
    np.testing.assert_allclose(derived["square"], [alone.entries[1], sigma], rtol=1e-5)
    assert derived["sum"][1] == np.inf
    with pytest.raises(ValueError, match='"both" must be one number, but has shape \\(2,\\)'):
        found.derived(lambda p: {"both": jnp.stack([k(p), m(p)])})


class Pulled(mbd.AbstractSystem):
    """q'' = -g(t)."""

    pull: Callable

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return -jnp.reshape(self.pull(jnp.asarray(t)), 1)


@pytest.mark.slow
def test_functions_made_by_a_model_have_its_values():
    """Sensors and forces that take the values from around, of what is found."""

    def model(p):
        pull = Pulled(lambda t: p["g"] * jnp.ones_like(t))
        return pull, {"x": lambda sample: sample.q + p["offset"]}

    record = Record(TIMES, 3 - 9.81 / 2 * TIMES**2, state())
    found = identify.fit(model, {"g": 9.0, "offset": 1.0}, record, dt=0.1, **QUIET)
    reading = found.sensors["x"](state(q=0.5))
    np.testing.assert_allclose(reading, [2.5], rtol=1e-9)
    there = state()
    np.testing.assert_allclose(
        found.system.force(there.t, there.q, there.v, None), -9.81, rtol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", [optax.lbfgs(), optx.GaussNewton(1e-10, 1e-10)], ids=type)
def test_other_optimisers(optimiser):
    guess, record = oscillator(damping=0.5, stiffness=8.5), Record(TIMES, decay(TIMES), state())
    found = of_oscillator(guess, BOTH, record, optimiser=optimiser, max_iterations=1000)
    np.testing.assert_allclose(found.entries, [0.4, 9.0], rtol=1e-4)


@pytest.mark.slow
def test_scattered_starts_find_the_far_minimum():
    """A stiffness off by a factor of five loses the phase: alone it ends in a local minimum."""
    record, guess = Record(TIMES, decay(TIMES), state()), oscillator(stiffness=45.0)
    one = {"stiffness": Positive()}
    assert abs(of_oscillator(guess, one, record).entries[0] - 9.0) > 1.0
    many = identify.MultiStart(16, jr.key(0), spread=1.5)
    found = of_oscillator(guess, one, record, multistart=many)
    assert found.entries[0] == pytest.approx(9.0, rel=1e-5)


def test_interrupted_search_goes_on(tmp_path):
    """Two halves are the whole, to the last bit; the file of another problem is refused."""
    record = Record(TIMES, decay(TIMES), state())

    def found(max_iterations, path, stiffness=5.0):
        options = dict(max_iterations=max_iterations, checkpoint=path)
        return of_oscillator(oscillator(stiffness=stiffness), BOTH, record, **options)

    whole = found(100, None)
    half = found(3, tmp_path / "fit")
    assert not succeeded(half.result) and half.entries[1] != whole.entries[1]
    rest = found(100, tmp_path / "fit")
    assert succeeded(rest.result) and rest.iterations == whole.iterations
    np.testing.assert_array_equal(rest.entries, whole.entries)
    with pytest.raises(ValueError, match="another problem"):
        found(100, tmp_path / "fit", stiffness=6.0)


def test_pictures(falls):
    """Each measured row is on the axes of its column, and every entry on those of the intervals."""
    import matplotlib

    matplotlib.use("Agg")
    (_, _, heights), found = falls
    (ax,) = identify.plot_fit(found)
    np.testing.assert_allclose(ax.lines[0].get_xydata()[:, 1], heights[0])
    (ax,) = identify.plot_residuals(found)
    shown = np.concatenate([line.get_ydata() for line in ax.lines])
    rms = np.sqrt(np.nanmean(shown**2))
    np.testing.assert_allclose(rms, found.prediction.rms["reading"], rtol=1e-12)
    left, _ = identify.plot_intervals(found, {"gravity": 9.81})
    star = left.lines[-1].get_xydata()[0]
    assert star[0] == pytest.approx(9.81 / found.entries[0] - 1)
    with pytest.raises(ValueError, match="1 columns to plot"):
        identify.plot_fit(found, axes=np.array([ax, ax]))
