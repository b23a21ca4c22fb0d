"""Profiles against closed forms: regression, decay towards a bound, products, failures."""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from jaxtyping import Array
from known_motions import QUIET, TIMES, decay, position, state
from test_log_density import fall, made

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._compiler import to_jax
from jaxmbd.identify import NotNegative, Parameter, Positive, Record
from jaxmbd.identify.problem import FitProblem
from jaxmbd.identify.profile_sides import March, Nearby, Point
from jaxmbd.identify.report import findings
from jaxmbd.identify.residuals import PartMotion

__all__ = ["fall"]  # a fixture
NOISE = 0.05
GOOD, OPEN = mbd.RESULTS.successful, mbd.RESULTS.loss_stays_low
STUCK, LIMIT = mbd.RESULTS.stuck, mbd.RESULTS.max_iterations_reached


@pytest.mark.parametrize("held", [False, True])
def test_others_follow_along_a_quadratic(held):
    """The lowest sums of squares are those of the regression on the others, without those that the
    slope holds at a bound. The curvature is 1 / C_kk."""
    rng = np.random.default_rng(0)
    J, z, r, far = rng.normal(size=(9, 3)), rng.normal(size=3), rng.normal(size=9), np.full(3, 9.0)
    J[:, 0] *= np.sign(r @ J[:, 0])
    at_z = np.where([True, False, False], z, far)
    bounds = (np.where(at_z == 9, -far, z), far) if held else (-far, at_z)
    point, others = Point(z, float(r @ r), r, J, GOOD), [2] if held else [0, 2]
    near = Nearby.at(point, 1, bounds)

    def lowest(d):
        rest = r + J[:, 1] * d
        x = np.linalg.lstsq(J[:, others], -rest)[0]
        return np.sum((rest + J[:, others] @ x) ** 2), x

    for d in (-0.7, 0.4):
        S, x = lowest(d)
        S_near = point.squares - near.possible + 2 * near.slope * d + near.curvature * d**2
        np.testing.assert_allclose(S_near, S)
        np.testing.assert_allclose((near.still + d * near.moving)[others], x)
    ends = [lowest(side * near.distance(2.5, side))[0] for side in (-1, 1)]
    np.testing.assert_allclose(ends, point.squares + 2.5)
    C = np.linalg.inv(J[:, [1, *others]].T @ J[:, [1, *others]])
    np.testing.assert_allclose(near.curvature, 1 / C[0, 0])


def of_one(lower=0.0, low=1.0, high=9.0, results=(GOOD, GOOD)):
    """The profile of a number that was found to be 3, linearised as 2 to 5."""
    points, line = np.array([1.0, 3.0, 9.0]), np.array([2.0, 5.0])
    end, at_bound = np.array([low, high]), np.array([False, False])
    along = identify.ParameterProfile(
        "k",
        3.0,
        end,
        line,
        at_bound,
        results,
        points,
        points,
        np.array([1.9, 0.0, 1.9]),
        2 * points,
    )
    return identify.Profile({"k": along}, 0.95, 1.92, 1.0, lower, {"k": points[1]}, 5, 0.1)


@pytest.mark.parametrize(
    "profile, kind, told, found",
    [
        (of_one(), "note", "x 2.00, 3.00", "Profiled intervals of k reach 1.2 times as far"),
        (of_one(low=2.0, high=5.1), "good", "x 1.00, 1.05", "as far as linearised ones, within"),
        (of_one(low=2.0, high=5.0, lower=1.0), "doubt", "IS NO MINIMUM: the loss was lower by 1",
         "The loss was lower by 1 beside"),
        (of_one(low=2.0, high=5.0, lower=2.0), "failed", "lower by 2", "The loss was lower by 2"),
        (of_one(high=np.nan, results=(GOOD, LIMIT)), "doubt", "k: high end not found: The search",
         "k has an end that was not found"),
        (of_one(high=np.inf, results=(GOOD, OPEN)), "note", "high end open", "use the profiled"),
        (of_one(results=(STUCK, GOOD)), "doubt", "low end at kinks", "k ends at kinks"),
    ],
)  # fmt: skip
def test_what_is_told(profile, kind, told, found):
    """In the table, and in the report of the fit."""
    assert told in str(profile) and str(profile) == repr(profile)
    [finding] = [x for x in findings.of_profile(profile) if x.kind == kind]
    assert found in finding.text


@pytest.mark.slow
def test_profiles_of_a_linear_regression_are_its_intervals(fall):
    """Those of the fit, which are Student's, and normal ones for a known noise, from the regression
    matrix."""
    A, _, found = fall
    profile = identify.profile(found, tolerance=1e-4, **QUIET)
    np.testing.assert_allclose(profile["g"].interval, found.interval()[0], rtol=1e-9)
    np.testing.assert_allclose(profile["g"].linearised, found.interval()[0], rtol=1e-14)
    assert profile["g"].results == (GOOD, GOOD) and profile.is_minimum
    half = scipy.stats.norm.ppf(0.95) * 0.7 * NOISE * np.sqrt(np.linalg.inv(A.T @ A)[0, 0])
    known = identify.profile(found, "g", noise=0.7, level=0.9, tolerance=1e-4, **QUIET)
    np.testing.assert_allclose(known["g"].interval, found.entries + [-half, half], rtol=1e-9)
    along = known["g"]
    parabola = known.rise * ((along.value - found.entries) / half) ** 2
    np.testing.assert_allclose(along.loss, parabola, atol=1e-6)
    np.testing.assert_allclose(along.parabola, parabola, atol=1e-6)
    assert len(along.loss) == 5  # two on each side: half way, and the end


class Product(mbd.AbstractSystem):
    """q'' + c q' + a b q = 0."""

    c: Array
    a: Array
    b: Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return -self.c * v - self.a * self.b * q


@pytest.fixture(scope="module")
def swing():
    """A swing so weakly damped that the measurements allow no damping at all; and how often JAX has
    traced its model."""
    calls = []

    def build(p):
        calls.append(1)
        return Product(p["c"], p["a"], p["b"])

    guesses = {"c": Parameter(0.1, NotNegative())}
    guesses |= {"a": Parameter(2.0, Positive()), "b": Parameter(4.0, Positive())}
    x = decay(TIMES, damping=0.02) + made()
    record = Record(TIMES, x, state(), weights=1 / NOISE)
    found = identify.fit(build, guesses, record, {"x": position}, dt=0.02, **QUIET)
    return x, found, calls


def least(x, c):
    """The sum of squares of the closed form with the best stiffness."""

    def S(k):
        return np.sum((decay(TIMES, damping=c, stiffness=k) - x) ** 2) / NOISE**2

    return scipy.optimize.minimize_scalar(S, bounds=(8, 10), options={"xatol": 1e-9}).fun


@pytest.mark.slow
def test_a_bound_and_a_product(swing):
    """The upper end of the damping is where the closed form has it, its lower end is the bound. Two
    factors are open, and the profile says so. None of it compiles the model again."""
    x, found, calls = swing
    before = len(calls)
    profile = identify.profile(found, **QUIET)
    assert len(calls) == before
    low, high = profile["c"].interval
    assert low == 0 and profile["c"].at_bound.tolist() == [True, False]
    lowest = scipy.optimize.minimize_scalar(lambda c: least(x, c), bounds=(0, 0.2)).fun
    level = lowest + scipy.stats.t.ppf(0.975, found.freedom) ** 2 * lowest / found.freedom
    end = scipy.optimize.brentq(lambda c: least(x, c) - level, found.entries[0], 0.5)
    np.testing.assert_allclose(high, end, rtol=1e-4)
    assert abs(found.interval()[0, 1] / end - 1) > 3e-3  # not what the linearised one is
    for name in ("a", "b"):
        assert profile[name].results == (OPEN, OPEN)
        assert profile[name].interval.tolist() == [0.0, np.inf]
    text = str(profile)
    assert "low end at the bound" in text and "low end open, high end open" in text
    assert "NOT FOUND" not in text and profile.is_minimum


@pytest.mark.slow
def test_failures_are_told(swing):
    """Searches that are not finished give no end. An estimate beside the minimum is told, with how
    far below it the loss was seen, and where."""
    x, found, _ = swing
    short = identify.profile(found, "c", max_iterations=1, tolerance=1e-9, **QUIET)
    assert np.isnan(short["c"].interval[1])
    assert short["c"].results[1] == mbd.RESULTS.max_iterations_reached
    assert "high end NOT FOUND" in str(short) and "c: high end not found: The search" in str(short)
    off = eqx.tree_at(lambda f: f.z, found, to_jax(np.asarray(found.z) + [0.0, 0.01, 0.0]))
    beside = identify.profile(off, "a", **QUIET)
    c, stiffness = found.entries[0], math.exp(0.01) * np.prod(found.entries[1:])
    S = np.sum((decay(TIMES, damping=c, stiffness=stiffness) - x) ** 2) / NOISE**2
    rise = (S - least(x, c)) / (2 * found.noise**2)
    assert not beside.is_minimum and "THE ESTIMATE IS NO MINIMUM" in str(beside)
    np.testing.assert_allclose(beside.lower, rise, rtol=1e-2)
    product = beside.best["a"] * beside.best["b"]
    np.testing.assert_allclose(product, found.values["a"] * found.values["b"], rtol=1e-3)
    with pytest.raises(ValueError, match="no parameter 'd' among"):
        identify.profile(found, "d")
    parts = found.problem.partition._replace(links=(0,))
    problem = dataclasses.replace(found.problem, partition=parts)
    meeting = eqx.tree_at(lambda f: f.problem, found, problem)
    with pytest.raises(ValueError, match="`fit` again by"):
        identify.profile(meeting)


@pytest.mark.slow
def test_the_report_shows_profiles(swing):
    _, found, _ = swing
    profile = identify.profile(found, "c", **QUIET)
    page = identify.report(found, profile=profile)
    assert f"<td>0 … {profile['c'].interval[1]:.6g}  low end at the bound</td>" in page.html
    assert "95 % by profile" in page.html
    with pytest.raises(ValueError, match="of another fit"):
        identify.report(found, profile=of_one())


@pytest.mark.slow
def test_pictures(swing):
    import matplotlib.pyplot as plt

    profile = identify.profile(swing[1], ["c", "a"], **QUIET)
    panels = profile.plot()
    assert [ax.get_xlabel() for ax in panels] == ["c", "a"]
    along, (dots, curve, parabola, *_) = profile["c"], panels[0].get_lines()
    np.testing.assert_array_equal(dots.get_xdata(), along.value)
    # The curve is through the dots, and the parabola through the level at its end.
    at_dots = np.interp(along.value, *curve.get_data())
    np.testing.assert_allclose(at_dots, along.loss, atol=0.02)
    at_end = np.interp(along.linearised[1], *parabola.get_data())
    np.testing.assert_allclose(at_end, profile.rise, rtol=0.01)
    with pytest.raises(ValueError, match="2 parameters, but `axes` has 1"):
        profile.plot(panels[:1])
    plt.close("all")


class Kinked(eqx.Module):
    """S = z0^2 + (1 + |z1 - z0|)^2: at the bottom of the valley, its slope is that of a side."""

    def __call__(self, z, args):
        return self.jacobian(z, args)[0]

    def jacobian(self, z, args):
        far = z[1] - z[0]
        r = jnp.stack([z[0], 1 + jnp.abs(far)])
        side = jnp.where(far >= 0, 1.0, -1.0).astype(z.dtype)
        J = jnp.stack([jnp.eye(2, dtype=z.dtype)[0], jnp.stack([-side, side])])
        table = jnp.zeros((1, 2, 1), z.dtype)
        return r, J, PartMotion(table, table[0], table[0], table, GOOD)


@pytest.mark.slow
def test_ends_at_kinks_are_told():
    """The least S along z0 is 1 + z0^2, so with a rise of 4 the ends are -2 and 2."""
    free = np.full(2, np.inf)
    problem = object.__new__(FitProblem)  # with nothing but what a profile reads
    parts = dict(residuals=Kinked(), data=None, scale=1.0, bounds=(-free, free))
    for name, part in parts.items():
        object.__setattr__(problem, name, part)
    march = March(problem, to_jax(np.zeros(2)), 4.0, 100, 1e-3)
    for side in (-1, 1):
        end = march.side(0, side, 2.0)
        assert end.result == STUCK
        np.testing.assert_allclose(end.end, 2.0 * side, rtol=0.05)
