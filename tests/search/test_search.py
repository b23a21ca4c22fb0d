"""The parts of all searches: linear least squares within bounds, and the driver."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix as optx
import pytest
import scipy.optimize
from jaxtyping import Array

from jaxmbd._compiler import to_jax
from jaxmbd._results import RESULTS
from jaxmbd._search import (
    Checkpoint,
    Monitor,
    Multipliers,
    as_minimiser,
    bounded_least_squares,
    first_iterate,
    iterate,
    levenberg_marquardt,
    next_iterate,
    normal_inverse,
)


@jax.jit
@jax.vmap
def many(A, b, low, high):
    found = bounded_least_squares(A, b, low, high, jnp.zeros_like(low))
    return *found, normal_inverse(A, found.free)


def test_bounded_least_squares_as_scipy():
    """The same as SciPy's active set method, with none to all of the bounds holding, and in
    batches; and the inverse that gives the gains of those that are free. The variables of each
    column differ in size by factors up to 1e6."""
    rng = np.random.default_rng(0)
    held = []
    for n in (1, 12):
        A = rng.normal(size=(20, 40, n)) * 10.0 ** rng.uniform(-3, 3, size=(20, 1, n))
        b = 10 * rng.normal(size=(20, 40))
        centre = rng.normal(size=(20, n)) / np.linalg.norm(A, axis=1)
        width = 10 ** rng.uniform(-1, 2, size=(20, n)) / np.linalg.norm(A, axis=1)
        upper = np.where(rng.random((20, n)) < 0.3, np.inf, centre + width)
        found = map(np.asarray, many(A, b, centre - width, upper))
        for A, b, low, high, x, free, good, gains in zip(A, b, centre - width, upper, *found):
            reference = scipy.optimize.lsq_linear(A, b, (low, high), method="bvls", tol=1e-14)
            size = 1 / np.linalg.norm(A, axis=0)
            np.testing.assert_allclose(x / size, reference.x / size, rtol=1e-9, atol=1e-9)
            np.testing.assert_array_equal(free, (x > low) & (x < high))
            scaled = (gains / np.outer(size, size))[np.ix_(free, free)]
            inverse = np.linalg.pinv((A * size)[:, free])
            np.testing.assert_allclose(scaled, inverse @ inverse.T, rtol=1e-9, atol=1e-9)
            assert good and not gains[~free].any() and not gains[:, ~free].any()
            held.append(1 - free.mean())
    assert min(held) == 0 and max(held) == 1


def test_levenberg_marquardt_in_a_curved_valley():
    """The valley of Rosenbrock, 1e6 times as steep across as along: 338 steps without its
    curvature. A bound cuts it off on the way from (-1.2, 1) to the minimum at (1, 1)."""

    def rosenbrock(y, _):
        return jnp.stack([1e3 * (y[1] - y[0] ** 2), 1 - y[0], 0 * y[0]])

    @jax.jit
    def search(upper):
        start = jnp.array([-1.2, 1.0])
        solver = levenberg_marquardt(1e-9, start, jnp.full(2, -jnp.inf), upper)
        return optx.least_squares(rosenbrock, solver, start, max_steps=60).value

    for bound, best in (jnp.inf, 1.0), (-0.95, -0.95):
        found = search(np.array([bound, np.inf]))
        np.testing.assert_allclose(found, [best, best**2], rtol=1e-9)


@pytest.mark.slow
def test_levenberg_marquardt_with_confounded_unknowns():
    """Only the sum of two unknowns matters, and one of them has bounds: the search goes on to the
    least sum of squares, and leaves their difference as it was."""
    t = np.linspace(0.0, 3.0, 40)

    def residuals(y, _):
        made = jnp.exp(-y[2] * t) * jnp.sin(3 * t + y[0] / 7 + 3 * y[1])
        return made - np.exp(-0.3 * t) * np.sin(3 * t + 0.4)

    @jax.jit
    @jax.vmap
    def search(start):
        bound = np.array([0.5, np.inf, np.inf])
        solver = levenberg_marquardt(1e-9, start, -bound, bound)
        value = optx.least_squares(residuals, solver, start, max_steps=60).value
        return value, jnp.sum(residuals(value, None) ** 2)

    starts = np.random.default_rng(0).uniform([-0.2, -0.2, 0.3], [0.2, 0.2, 0.7], (5, 3))
    found, squares = search(starts)
    assert np.all(squares < 1e-18)
    change = found - starts
    np.testing.assert_allclose(3 * change[:, 0], change[:, 1] / 7, atol=1e-6)


def test_levenberg_marquardt_predicts_what_curvature_does():
    """With one unknown and quadratic residuals, the second derivative that the last step tells is
    exact, and so is the predicted decrease, to the fourth power of the step."""

    def quadratic(y, _):
        return jnp.stack([3.0 + y[0] + 0.02 * y[0] ** 2, 1.0 - 0.5 * y[0] + 0.05 * y[0] ** 2]), None

    y, rows = to_jax([1.5]), jax.ShapeDtypeStruct((2,), float)
    solver = levenberg_marquardt(1e-9, y)
    step = eqx.filter_jit(lambda y, state: solver.step(quadratic, y, None, {}, state, frozenset()))
    begin = eqx.filter_jit(lambda y: solver.init(quadratic, y, None, {}, rows, None, frozenset()))
    state = begin(y)
    of = jax.jit(lambda y: jnp.sum(quadratic(y, None)[0] ** 2))
    for number in range(4):
        y, state, _ = step(y, state)
        decrease = float(of(y)) - float(of(state.candidate))
        assert decrease > 1e-6  # every step is accepted, and none is the last
        if number > 0:
            assert float(state.predicted) == pytest.approx(decrease, rel=1e-9)


class Root(NamedTuple):
    x: Array
    done: Array


def heron(square, here):
    """Heron's iteration for square roots."""
    new = (here.x + square / here.x) / 2
    return Root(new, jnp.abs(new - here.x) < 1e-12)


START = Root(np.array(1.0), np.array(False))


def test_driver_with_and_without_a_monitor():
    """The same iterations one by one and in one compiled loop; traced, it is compiled too."""
    seen, square = [], np.array(2.0)
    report = lambda here: seen.append(float(here.x)) or ""  # noqa: E731
    one_by_one, count = iterate(heron, square, START, Monitor("root", 50, report, False))
    at_once, _ = iterate(heron, square, START, None)
    np.testing.assert_allclose([one_by_one.x, at_once.x], np.sqrt(2), rtol=1e-15)
    assert count == len(seen) == 6 and seen[0] == 1.5
    traced = jax.jit(lambda square: iterate(heron, square, START, None)[0].x)(square)
    assert float(traced) == float(at_once.x)


def test_driver_stops_at_its_limit_and_goes_on(tmp_path):
    """From a checkpoint, to the same number; of a batch it goes on until all are done."""
    square = np.array([2.0, 1e6])
    start = Root(np.ones(2), np.zeros(2, bool))

    def search(limit):
        saved = Checkpoint(tmp_path / "search", square)
        return iterate(heron, square, start, Monitor("roots", limit, lambda _: "", False, saved))

    half, count = search(6)
    assert count == 6 and np.asarray(half.done).tolist() == [True, False]
    whole, count = search(50)
    np.testing.assert_allclose(whole.x, [np.sqrt(2), 1e3], rtol=1e-15)
    assert 6 < count < 50


@pytest.mark.parametrize("rate, finite", [(0.1, True), (1e6, False)])
def test_search_that_diverges_has_not_converged(rate, finite):
    """It ends at the last finite unknowns, and says that a step was not finite."""
    minimiser = as_minimiser(optax.sgd(rate), to_jax(1e-6))

    def quartic(y, args):
        return jnp.sum(y**4) + jnp.sum(y**2), None

    here = jax.jit(lambda y: first_iterate(minimiser, quartic, y, None, None))(np.full(2, 0.5))
    step = jax.jit(lambda here: next_iterate(minimiser, quartic, None, here))
    for _ in range(100):
        here = step(here)
    assert here.done and bool(here.sound) == finite and np.all(np.isfinite(here.y))
    assert np.all(np.abs(here.y) < 1e-6) == finite


def test_multipliers_are_those_of_lagrange():
    """min x^2 / 2 subject to x - 1 = 0 and x - 2 <= 0 has lam = -1 and mu = 0. A round has a closed
    form here."""

    @jax.jit
    def round_of(multipliers):
        lam, rho = multipliers.equality, multipliers.penalty
        x = (rho - lam) / (1 + rho)
        c, d = x - 1.0, x - 2.0
        terms = multipliers.of_equations(c), multipliers.residuals(c)
        return multipliers.next_round(c, d), *terms

    multipliers = Multipliers(*map(to_jax, ([0.0], [0.0], 5.0, np.inf)))
    for _ in range(12):
        lam, rho = np.asarray(multipliers.equality), float(multipliers.penalty)
        multipliers, term, residuals = round_of(multipliers)
        by_residuals = np.sum(np.asarray(residuals) ** 2) / 2 - np.sum(lam**2) / (2 * rho)
        assert term == pytest.approx(by_residuals, abs=1e-12)
    np.testing.assert_allclose(multipliers.equality, [-1.0], rtol=1e-7)
    np.testing.assert_array_equal(multipliers.inequality, [0.0])
    assert float(multipliers.violation) < 1e-8


class _GivesUp(optx.GradientDescent):
    """A minimiser whose own verdict after a step is failure."""

    def terminate(self, fn, y, args, options, state, tags):
        return jnp.array(True), optx.RESULTS.nonlinear_divergence


def test_search_whose_solver_reports_failure_is_stuck():
    solver = _GivesUp(learning_rate=0.1, rtol=1e-6, atol=1e-6)

    @jax.jit
    def once(y):
        quadratic = lambda y, args: (jnp.sum(y**2), None)  # noqa: E731
        return next_iterate(solver, quadratic, None, first_iterate(solver, quadratic, y, None))

    here = once(np.full(2, 0.5))
    assert here.done and np.all(np.isfinite(here.y)) and here.result == RESULTS.stuck
