"""Posterior densities against closed forms, and what samplers make of them."""

import math

import identify_pendulum as pendulum
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_motions import QUIET, TIMES, Falling, decay, oscillator, position, state
from scipy.integrate import quad
from test_identify_pieces import TRANSFORMS, values

from jaxmbd import identify
from jaxmbd.identify import Bounded, Free, NotNegative, Parameter, Positive, Record, UnknownStart

NOISE, HUBER = 0.05, identify.Huber(0.1)


def made(times=TIMES, seed=3):
    return NOISE * np.random.default_rng(seed).normal(size=len(times))


@pytest.fixture(scope="module")
def fall():
    """A fall from an unknown height with an unknown velocity, which are in the readings as g is:
    linearly. And the regression matrix of the readings by (g, height, velocity)."""
    A = np.stack([-(TIMES**2) / 2, np.ones_like(TIMES), TIMES], axis=1)
    record = Record(TIMES, A @ [9.81, 1.0, 0.3] + made(), state(), weights=1 / NOISE)
    found = identify.fit(
        lambda p: Falling(p["g"]), {"g": Parameter(9.0, Free())}, record, {"x": position},
        dt=0.1, start=UnknownStart(), **QUIET,
    )  # fmt: skip
    return A, record.measured[:, 0], found


def unknowns(density, w):
    """The free numbers at w."""
    return np.asarray(density.coordinates(jnp.asarray(w))[0])


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.0, 0.7, None])
def test_density_of_linear_regression(fall, noise):
    """The sum of squares is quadratic in all three unknowns. For unknown noise its power -n/2 gives
    Student's distribution with n - 3 degrees of freedom (Gelman et al. 2013, section 14.2)."""
    A, y, found = fall
    density = identify.log_density(found, noise=noise)
    w = np.random.default_rng(0).normal(size=(5, 3))
    got, g = (np.asarray(jax.jit(jax.vmap(fn))(w)) for fn in (density, density.entries))
    z = np.stack([unknowns(density, each) for each in w])
    np.testing.assert_allclose(g[:, 0], 9 + 9 * z[:, 0], rtol=1e-14)
    theta = np.stack([g[:, 0], 1 + z[:, 1], z[:, 2]], axis=1)
    squares = np.sum((theta @ A.T - y) ** 2, axis=1) / NOISE**2
    expected = -squares / 2 / noise**2 if noise else -len(y) / 2 * np.log(squares)
    np.testing.assert_allclose(np.diff(got), np.diff(expected), rtol=1e-9)
    # w are independent, with standard deviations of 1, by the covariance of the regression.
    s2 = (noise * NOISE) ** 2 if noise else np.linalg.lstsq(A, y)[1][0] / (len(y) - 3)
    root = np.asarray(density.coordinates.root) * np.array([[9.0], [1.0], [1.0]])
    np.testing.assert_allclose(root @ root.T, s2 * np.linalg.inv(A.T @ A), rtol=1e-4)


def volume(transform, guess, z):
    return jax.jit(lambda z: transform.log_volume(guess, z))(z)


@pytest.mark.slow
@pytest.mark.parametrize("transform, guess, _", TRANSFORMS)
def test_volumes_are_those_of_the_slopes(transform, guess, _):
    z = np.linspace(0.1, 0.4, transform.size(guess))
    _, (slopes,) = values(transform, guess, [z])
    expected = np.linalg.slogdet(slopes.T @ slopes)[1] / 2
    np.testing.assert_allclose(volume(transform, guess, z), expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n, area", [(3, 4 * math.pi), (4, 2 * math.pi**2)])
def test_directions_have_the_area_of_the_sphere(n, area):
    """What is flat over directions is so everywhere, and counts none of them twice."""
    guess, shell = np.eye(n)[0], {3: lambda r: 2 * math.pi * r, 4: lambda r: 4 * math.pi * r**2}[n]
    along = jax.jit(lambda r: identify.UnitVector().log_volume(guess, jnp.eye(n - 1)[0] * r))
    found, _ = quad(lambda r: float(np.exp(along(r))) * shell(r), 0, 4)
    np.testing.assert_allclose(found, area, rtol=1e-6)


@pytest.mark.slow
def test_no_transform_changes_the_density():
    """Values are as likely by all transforms: near a bound, far from it, and in logarithms."""
    record = Record(TIMES, decay(TIMES) + made(), state(), weights=1 / NOISE)

    def likely(transform):
        def search():
            known = {name: Parameter(x, transform) for name, x in guesses.items()}
            build = lambda p: oscillator(damping=p["damping"], stiffness=p["stiffness"])  # noqa: E731
            return identify.fit(build, known, record, {"x": position}, dt=0.01, **QUIET)

        density = identify.log_density(search())
        w = 0.7 * np.random.default_rng(1).normal(size=(4, 2))
        volumes = lambda w: jnp.linalg.slogdet(jax.jacfwd(density.entries)(w))[1]  # noqa: E731
        functions = density, density.entries, volumes
        return (np.asarray(jax.jit(jax.vmap(fn))(w)) for fn in functions)

    def of_values(x):
        x0 = decay(TIMES, damping=x[0], stiffness=x[1])
        return -len(TIMES) / 2 * np.log(np.sum((x0 - record.measured[:, 0]) ** 2))

    guesses = {"damping": 0.3, "stiffness": 8.0}
    for transform in (Free(), Positive(), NotNegative(), Bounded(0.2, 9.05)):
        got, x, volumes = likely(transform)
        expected = np.array([of_values(each) for each in x]) + volumes
        np.testing.assert_allclose(np.diff(got), np.diff(expected), rtol=1e-4)


@pytest.fixture(scope="module")
def bob():
    """The frequency and friction of a bob in the plane, two unknown numbers of its start, and
    robust residuals; and its density with a prior."""
    record = pendulum.record_of(TIMES, 0.4 * np.cos(1.5 * TIMES) + made(), "bob")
    known = {
        "omega": Parameter(1.4, Positive(), sigma=0.2),
        "viscous": Parameter(0.02, NotNegative()),
    }
    build = lambda p: pendulum.build({"tilt": 0.0} | p)  # noqa: E731
    found = identify.fit(
        build, known, record, {"angle": pendulum.angle}, dt=0.1,
        loss=HUBER, start=UnknownStart(), **QUIET,
    )  # fmt: skip
    prior = lambda p: -(p["viscous"] / 0.1)  # noqa: E731
    return identify.log_density(found, noise=NOISE, prior=prior)


@pytest.mark.slow
def test_derivatives_of_the_density(bob):
    """Those of differences, in both modes, and in a batch of chains those of each."""
    w, h = jnp.asarray(np.random.default_rng(2).normal(size=bob.size)), 1e-4
    value = jax.jit(bob)
    steps = h * np.eye(bob.size)
    differences = [float(value(w + step) - value(w - step)) / 2 / h for step in steps]
    np.testing.assert_allclose(jax.jit(jax.grad(bob))(w), differences, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(bob))(w), differences, rtol=1e-5, atol=1e-6)
    chains = jnp.stack([w, 0 * w, -w])
    batch = jax.jit(jax.vmap(jax.value_and_grad(bob)))(chains)
    alone = [jax.jit(jax.value_and_grad(bob))(each) for each in chains]
    for k, (density, slope) in enumerate(alone):
        np.testing.assert_allclose(batch[0][k], density, rtol=1e-12)
        np.testing.assert_allclose(batch[1][k], slope, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("logarithm", [20.0, 800.0])
def test_failed_motions_are_refused(bob, logarithm):
    """Where a motion or a value overflows, the density is 0, and its slope is a number."""
    z = logarithm * (np.array(bob.coordinates.order) == 0)
    w = jnp.linalg.solve(bob.coordinates.root, z)
    density, slope = jax.jit(jax.value_and_grad(bob))(w)
    assert density == -np.inf
    np.testing.assert_array_equal(slope, 0)


@pytest.mark.slow
def test_samples_have_students_distribution(fall):
    """NUTS finds the mean and the standard deviation of Student's distribution."""
    A, y, found = fall
    blackjax = pytest.importorskip("blackjax", reason="the sampler is that of blackjax")
    density = identify.log_density(found)

    @jax.jit
    def sample(key):
        kernel = blackjax.nuts(density, step_size=0.7, inverse_mass_matrix=np.ones(3))

        def one(state, key):
            state, info = kernel.step(key, state)
            return state, (density.entries(state.position)[0], info.is_divergent)

        start = kernel.init(jnp.zeros(3))
        return jax.lax.scan(one, start, jax.random.split(key, 2000))[1]

    g, diverged = map(np.asarray, sample(jax.random.key(0)))
    best, left, *_ = np.linalg.lstsq(A, y)
    freedom = len(y) - 3
    sigma = np.sqrt(np.linalg.inv(A.T @ A)[0, 0] * left[0] / (freedom - 2))
    assert not diverged.any()
    # Some 2000 effective samples: errors of 0.022 and 0.016 standard deviations.
    np.testing.assert_allclose(g.mean(), best[0], rtol=0, atol=0.08 * sigma)
    np.testing.assert_allclose(g.std(), sigma, rtol=0.06)


@pytest.mark.slow
def test_posterior_of_a_measured_pendulum(shared):
    """Its friction is far from zero by its standard deviation, so samples agree with the intervals
    of the fit."""
    example = pytest.importorskip("posterior_pendulum", reason="the sampler is that of blackjax")
    record = pendulum.read(shared / "data" / "pendulum_lab" / "real_pend_h_1.txt")
    first = pendulum.record_of(record.time[:150], record.measured[:150, 0], "first 25 s")
    found = pendulum.fitted(first, ("viscous",))
    density = identify.log_density(found, noise=found.noise)
    with jax.numpy_dtype_promotion("standard"):  # BlackJAX mixes types.
        entries, diverged = example.sampled(density, jax.random.key(0), 1, 60, 140)
    off = (entries[0].mean(axis=0) - found.entries) / found.sigma
    assert diverged == 0 and entries.min(axis=(0, 1))[0] > 0
    np.testing.assert_allclose(off, 0, atol=0.3)
    np.testing.assert_allclose(entries[0].std(axis=0), found.sigma, rtol=0.25)


@pytest.mark.slow
def test_density_without_the_error_of_the_step():
    """The estimate by `extrapolate=True` is the most likely value also for its density."""
    record = Record(TIMES, decay(TIMES) + made(), state(), weights=1 / NOISE)
    build = lambda p: oscillator(stiffness=p["stiffness"])  # noqa: E731
    slope = {}
    for extrapolate in (False, True):
        found = identify.fit(
            build, {"stiffness": 8.0}, record, {"x": position}, dt=0.4,
            extrapolate=extrapolate, **QUIET,
        )  # fmt: skip
        density = identify.log_density(found, noise=1.0)
        slope[extrapolate] = density, jax.jit(jax.grad(density))(jnp.zeros(1))
    np.testing.assert_allclose([s for _, s in slope.values()], 0, atol=0.05)
    stiffness = [float(density.entries(jnp.zeros(1))[0]) for density, _ in slope.values()]
    assert abs(np.diff(stiffness)) > 20 * 0.0075  # standard deviations


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, choices",
    [
        ("parts that have to meet", {"shooting": identify.MultipleShooting(4)}),
        ("With Huber the noise cannot be integrated out: give `noise`", {"loss": HUBER}),
        ("leave open .0.89 second +.0.45 first", {}),
    ],
)
def test_refused_densities(words, choices):
    """What has no density says why: here of two parameters whose sum alone is in the motion."""
    record = Record(TIMES, 1 - TIMES**2 + made(), state(), weights=1 / NOISE)
    build = lambda p: Falling(p["first"] + p["second"])  # noqa: E731
    found = identify.fit(
        build, {"first": 1.0, "second": 0.5}, record, {"x": position}, dt=0.1, **QUIET, **choices
    )
    with pytest.raises(ValueError, match=words):
        identify.log_density(found)
    if not choices:  # A prior of any one of them gives it one.
        density = identify.log_density(found, prior=lambda p: -(p["first"] ** 2))
        assert np.isfinite(density(jnp.ones(2)))
