"""`identify.fit` finds what motions were made with, and says what cannot be found.

Truths: motions in closed form, linear regression, SciPy's robust fits, and one search against
another."""

import math
import warnings

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import optimistix as optx
import pytest
import scipy.integrate
import scipy.optimize
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd.identify import Bounded, Free, Parameter, Positive, Record, UnknownStart
from jaxmbd.identify.interpolation import interpolated

QUIET = dict(progress=False)


class Oscillator(mbd.AbstractSystem):
    """m q'' + c q' + k q = f."""

    mass: Array
    damping: Array
    stiffness: Array

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1)

    def force(self, t, q, v, u):
        push = 0.0 if u is None else u[0]
        return push - self.damping * v - self.stiffness * q


def oscillator(mass=1.0, damping=0.4, stiffness=9.0):
    return Oscillator(jnp.array(mass), jnp.array(damping), jnp.array(stiffness))


TIMES = np.linspace(0.0, 4.0, 41)


def decay(t, q0=1.0, v0=0.0, mass=1.0, damping=0.4, stiffness=9.0):
    """q(t) of the free oscillator."""
    d, omega = damping / (2 * mass), math.sqrt(stiffness / mass - (damping / (2 * mass)) ** 2)
    return np.exp(-d * t) * (q0 * np.cos(omega * t) + (v0 + d * q0) / omega * np.sin(omega * t))


def state(q=1.0, v=0.0, t=0.0):
    return mbd.State(t, jnp.array([q]), jnp.array([v]))


def position(sample):
    return sample.q


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
    """To the error of RK4 at this step, 1e-9 of the motion."""
    record = Record(TIMES, decay(TIMES), state())
    found = identify.fit(
        oscillator(damping=0.8, stiffness=5.0),
        {"damping": Positive(), "stiffness": Positive()},
        record,
        {"height": position},
        dt=5e-3,
        **QUIET,
    )
    assert found.converged and found.prediction.successful
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


# --- sensors and mechanisms -----------------------------------------------------------------------


def turning_bar(rate):
    """A bar of 2 kg turning at a rate about a hinge at its end, hanging down."""
    inertia = mbd.Inertia.box(size=[0.05, 0.05, 1.0], mass=2.0).moved([0, 0, -0.5])
    bar = mbd.Body("bar", inertia, angular_velocity=[0.0, rate, 0.0])
    hinge = mbd.Revolute("hinge", "ground", bar, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
    damper = mbd.TurningFriction.of(hinge, name="damper", viscous=0.1)
    return mbd.Mechanism([bar], [hinge], [damper])


@pytest.mark.slow
def test_sensors_of_a_turning_bar():
    """At the lowest point: no torque of gravity, so that only the damper slows it; the hinge
    carries weight and centripetal force."""
    rate = 3.0
    system = turning_bar(rate)
    start = system.state()

    def read(sensor):
        sample = identify.Sample(system, None, jnp.array(0.0), start.q, start.v)
        return jax.jit(lambda: sensor(sample))()

    moment = float(system.body("bar").inertia.tensor[1, 1]) + 2.0 * 0.25  # about the hinge
    slowing = -0.1 * rate / moment
    np.testing.assert_allclose(read(identify.JointRate("hinge")), [rate], rtol=1e-12)
    np.testing.assert_allclose(read(identify.Gyroscope("bar")), [0, rate, 0], atol=1e-12)
    tip = [0.0, 0.0, -1.0]
    np.testing.assert_allclose(read(identify.BodyPoint("bar", tip)), tip, atol=1e-12)
    # Towards the hinge, upwards: r w^2 + g; along the path, which goes to -x: r times the slowing.
    np.testing.assert_allclose(
        read(identify.Accelerometer("bar", tip)), [-slowing, 0, rate**2 + 9.81], atol=1e-9
    )
    force = read(identify.JointForce("hinge"))
    np.testing.assert_allclose(
        force[:3], [-2.0 * 0.5 * slowing, 0, 2.0 * (9.81 + 0.5 * rate**2)], atol=1e-9
    )


@pytest.mark.slow
def test_accelerometer_is_the_second_derivative():
    """Of a point at a pose where nothing vanishes, against differences of the simulated motion."""
    system = turning_bar(3.0)
    h = 1e-3
    sol = mbd.simulate(
        system, mbd.UdwadiaKalaba(), system.state(), t1=0.2 + h, dt=h,
        saveat=diffrax.SaveAt(ts=[0.2 - h, 0.2, 0.2 + h]),
    )  # fmt: skip
    point = [0.1, 0.2, -0.7]
    samples = [identify.Sample(system, None, sol.t[i], sol.q[i], sol.v[i]) for i in range(3)]
    path = np.stack([identify.BodyPoint("bar", point)(sample) for sample in samples])
    a = (path[0] - 2 * path[1] + path[2]) / h**2 - np.array([0, 0, -9.81])
    R = mbd.quaternion_to_matrix(system.pose(sol.q[1], "bar").orientation)
    found = identify.Accelerometer("bar", point)(samples[1])
    np.testing.assert_allclose(found, R.T @ a, atol=1e-4)


def test_paths_of_a_mechanism():
    """A path changes the one number it names, and finds whole parts too."""
    system = turning_bar(1.0)
    paths = identify.leaves(system)
    assert paths["forces[damper].viscous"] == 0.1
    assert {"bodies[bar].inertia.mass", "joints[hinge].frame_a.position", "gravity"} <= set(paths)
    model = identify.Leaves(system)
    heavier = mbd.Inertia.sphere(radius=0.1, mass=5.0)
    other = model({"forces[damper].viscous": jnp.array(0.3), "bodies[bar].inertia": heavier})
    assert other.force_element("damper").viscous == 0.3
    assert other.body("bar").inertia.mass == 5.0
    changed = {p for p, x in identify.leaves(other).items() if not np.array_equal(x, paths[p])}
    inertia = {f"bodies[bar].inertia.{field}" for field in ("mass", "tensor", "center")}
    assert changed == {"forces[damper].viscous"} | inertia
    chosen = model.parameters(lambda path, leaf: path.endswith("viscous"))
    assert list(chosen) == ["forces[damper].viscous"]


def inertia_of_bar(mass):
    return mbd.Inertia.box(size=[0.05, 0.05, 1.0], mass=mass).moved([0, 0, -0.5])


class CompoundPendulum(mbd.AbstractSystem):
    """A body about the y axis, hanging at angle 0."""

    inertia: mbd.Inertia
    damping: Array

    def mass_matrix(self, q):
        return self.inertia.about(jnp.zeros(3))[1:2, 1:2]

    def force(self, t, q, v, u):
        return 9.81 * self.inertia.mass * self.inertia.center[2] * jnp.sin(q) - self.damping * v


def compound_pendulum(mass):
    return CompoundPendulum(inertia_of_bar(mass), jnp.array(0.4))


def hanging_bar(mass):
    bar = mbd.Body("bar", inertia_of_bar(mass), angular_velocity=[0.0, 3.0, 0.0])
    hinge = mbd.Revolute("hinge", "ground", bar, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
    damper = mbd.TurningFriction.of(hinge, name="damper", viscous=0.4)
    return mbd.Mechanism([bar], [hinge], [damper])


@pytest.mark.parametrize(
    "system, path, sensor",
    [
        (compound_pendulum, "inertia.mass", lambda sample: sample.v),
        pytest.param(
            hanging_bar, "bodies[bar].inertia.mass", identify.JointRate("hinge"),
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_tensor_goes_with_the_mass(system, path, sensor):
    """A compound pendulum of 2 kg whose damper is known, from guesses of 1.5 kg: of twenty 95 %
    intervals at least 16 hold the truth, but for one trial in four hundred. With the tensor of the
    guess none does."""
    mass, moment = 2.0, 2.0 * ((1 + 0.05**2) / 12 + 0.25)
    times = np.linspace(0, 2, 41)
    motion = scipy.integrate.solve_ivp(
        lambda t, y: [y[1], (-0.4 * y[1] - mass * 9.81 * 0.5 * np.sin(y[0])) / moment],
        (0, 2), [0.0, 3.0], t_eval=times, rtol=1e-11, atol=1e-12,
    )  # fmt: skip
    guess, rng, inside = system(1.5), np.random.default_rng(0), 0
    start = guess.state() if isinstance(guess, mbd.Mechanism) else state(0.0, 3.0)
    for _ in range(20):
        record = Record(times, motion.y[1] + 0.02 * rng.normal(size=41), start)
        found = identify.fit(guess, {path: Positive()}, record, sensor, dt=1e-2, **QUIET)
        lower, upper = np.ravel(found.interval())
        inside += lower <= mass <= upper
    assert inside >= 16


def test_tensor_by_its_path():
    """A mass given alone scales the tensor; a tensor given too is taken, in any order; six numbers
    make all tensors of a body."""
    system = compound_pendulum(2.0)
    model = identify.Leaves(system)
    heavier = inertia_of_bar(5.0)
    np.testing.assert_allclose(model({"inertia.mass": 5.0}).inertia.tensor, heavier.tensor)
    other = mbd.Inertia.sphere(radius=0.3, mass=1.0).tensor
    both = model({"inertia.tensor": other, "inertia.mass": jnp.array(5.0)}).inertia
    assert both.mass == 5.0 and np.array_equal(both.tensor, other)
    parameter = model.parameters({"inertia.tensor": identify.LogCholesky()})
    parameters = identify.parameters.Parameters(parameter)
    assert parameters.size == 6
    np.testing.assert_allclose(
        parameters.values(jnp.zeros(6))["inertia.tensor"], system.inertia.tensor, atol=1e-15
    )
    moved = parameters.values(jr.normal(jr.key(0), (6,)))["inertia.tensor"]
    mbd.Inertia(1.0, moved)  # raises for what is no tensor of a body
    assert not np.allclose(moved, jnp.diag(jnp.diag(moved)))


@pytest.mark.parametrize(
    "chosen, remedy",
    [
        ("inertia.tensor", r"LogCholesky\(\)"),
        ("inertia", r"LogCholesky\(\)"),
        (lambda path, leaf: "tensor" in path, r"LogCholesky\(\)"),
        (["inertia.mass", "inertia"], "is a part of"),
    ],
)
def test_numbers_that_do_not_stand_alone(chosen, remedy):
    with pytest.raises(ValueError, match=remedy):
        identify.Leaves(compound_pendulum(2.0)).parameters(chosen)


class Square(eqx.Module):
    """A profile of a cam, and its number."""

    spline: mbd.PeriodicSpline

    def __call__(self, phi):
        return self.spline(phi)


def shared_numbers():
    """Two balls on a floor that touch; one turns about a hinge with limits, a drive and friction,
    and the wind blows on it."""
    inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0).moved([0.0, 0.02, 0.0])
    one, two = (mbd.Body(name, inertia, position=[x, 0, 0.1]) for x, name in enumerate("ab"))
    hinge = mbd.Revolute("hinge", one, two, point=[0.5, 0, 0.1], axis=[0, 1, 0], limits=(-1, 1))
    drive = mbd.PrescribedMotion("drive", hinge, lambda t: t)
    friction = mbd.TurningFriction.of(hinge, name="friction", viscous=0.1)
    pieces = [("ground", mbd.HalfSpace()), (one, mbd.Sphere(0.1)), (two, mbd.Sphere(0.1))]
    angles = np.arange(4.0)
    cam = mbd.Cam(
        "cam", one, two, points=[[0, 0, 0.1], [1, 0, 0.1]], axis=[0, 1, 0],
        profile=Square(mbd.PeriodicSpline(angles, 1 + 0 * angles)),
    )  # fmt: skip
    return mbd.Mechanism(
        [one, two],
        [hinge, drive, cam],
        [friction, mbd.Drag("wind", one, linear=1.0), mbd.Drag("aside", one, point=[0, 0, 1.0])],
        contacts=[mbd.JointLimit(hinge, name="stop"), *mbd.contacts_among(pieces)],
    )


@pytest.mark.parametrize(
    "path, value, expected",
    [
        (
            "joints[hinge].frame_a.position",
            [0.6, 0.0, 0.0],
            {
                "joints[drive].driven.joint.frame_a.position",
                "forces[friction].frame_a.position",
                "contacts[stop].joint.frame_a.position",
            },
        ),
        ("contacts[stop].joint.limits", [[-2.0, 1.0]], {"joints[hinge].limits"}),
        ("contacts[ground-a].shape_b.radius", 0.2, {"contacts[a-b].shape_a.radius"}),
        ("bodies[a].inertia.center", [0.0, 0.0, 0.1], {"forces[wind].frame.position"}),
        ("forces[wind].frame.position", [0.0, 0.0, 0.1], set()),
        ("contacts[a-b].law.restitution", 0.5, set()),
    ],
)
def test_copies_change_together(path, value, expected):
    """What a mechanism holds several times is one number, and nothing else changes with it."""
    system = shared_numbers()
    before = identify.leaves(system)
    after = identify.leaves(identify.Leaves(system)({path: jnp.array(value)}))
    changed = {p for p, x in after.items() if not np.array_equal(x, before[p])}
    assert changed == {path} | expected
    for other in expected:
        np.testing.assert_array_equal(after[other], value)


def test_copies_are_one_parameter():
    model = identify.Leaves(shared_numbers())
    radii = model.parameters(lambda path, leaf: path.endswith("radius"))
    assert len(radii) == 2
    first, second = "contacts[ground-a].shape_b.radius", "contacts[a-b].shape_a.radius"
    with pytest.raises(ValueError, match="one number"):
        model.parameters([first, second])
    for path, remedy in (
        ("joints[cam].profile.spline.values", "function"),
        ("joints[hinge].frame_a.orientation", r"UnitVector\(\)"),
        ("joints[hinge].frame_a", "whole Pose"),
    ):
        with pytest.raises(ValueError, match=remedy):
            model.parameters(path)


def test_unit_quaternions():
    """Turns of a guess by the angle 2 |z| about all axes, of length 1."""
    guess = jnp.array([0.5, -0.5, 0.5, 0.5])
    transform = identify.UnitVector()
    transform.check("p", guess)
    p = transform.value(guess, jnp.array([0.3, 0.0, 0.4]))
    turn = mbd.quaternion_product(mbd.quaternion_conjugate(guess), p)
    expected = [math.cos(0.5), 0.6 * math.sin(0.5), 0.0, 0.8 * math.sin(0.5)]
    np.testing.assert_allclose(turn, expected, atol=1e-15)
    slopes = jax.jacfwd(lambda z: transform.value(guess, z))(jnp.zeros(3))
    np.testing.assert_allclose(slopes.T @ slopes, np.eye(3), atol=1e-15)


@pytest.mark.slow
def test_mechanism_by_paths_and_log_cholesky():
    """A body's damper and inertia from the rate of its hinge. Of the ten numbers of the inertia the
    motion tells two, the moment about the hinge and the static moment: both are found."""
    truth = turning_bar(3.0)
    start = truth.state()
    times = np.linspace(0, 2, 81)
    sol = mbd.simulate(
        truth, mbd.UdwadiaKalaba(), start, t1=2.0, dt=2.5e-3, saveat=diffrax.SaveAt(ts=times)
    )
    rates = mbd.joint_rates(truth, sol.q, sol.v, "hinge")
    guess = mbd.Inertia.box(size=[0.1, 0.1, 0.8], mass=1.5).moved([0, 0, -0.4])
    found = identify.fit(
        truth,
        {
            "forces[damper].viscous": Parameter(0.2, Positive()),
            "bodies[bar].inertia": Parameter(guess, identify.LogCholesky()),
        },
        Record(times, np.asarray(rates), start),
        identify.JointRate("hinge"),
        dt=2.5e-3,
        **QUIET,
    )
    inertia = found.values["bodies[bar].inertia"]

    def told(inertia, damper):
        moment = inertia.mass * inertia.center[2]
        about = inertia.tensor[1, 1] + inertia.mass * jnp.sum(inertia.center[::2] ** 2)
        return [float(moment / about), float(damper / about), float(inertia.center[0])]

    true_inertia = truth.body("bar").inertia
    np.testing.assert_allclose(
        told(inertia, found.values["forces[damper].viscous"]), told(true_inertia, 0.1), atol=1e-6
    )
    # Eleven numbers, and three combinations that the motion tells.
    assert len(found.identifiability().undetermined) == 8


@pytest.mark.slow
def test_geometry_moves_the_start():
    """A pendulum whose length is unknown starts on its own circle, not on that of the guess."""

    class Pendulum(mbd.AbstractSystem):
        length: Array

        def mass_matrix(self, q):
            return jnp.eye(2)

        def force(self, t, q, v, u):
            return jnp.array([0.0, -9.81])

        def constraint(self, q, t):
            return q @ q - self.length**2

    truth = Pendulum(jnp.array(0.5))
    start = mbd.State(0.0, jnp.array([0.3, -0.4]), jnp.zeros(2))
    times = np.linspace(0.0, 1.0, 21)
    sol = mbd.simulate(
        truth, mbd.UdwadiaKalaba(), start, t1=1.0, dt=0.01, saveat=diffrax.SaveAt(ts=times)
    )
    record = Record(times, np.asarray(sol.q), mbd.State(0.0, start.q * 1.2, start.v))
    found = identify.fit(
        Pendulum(jnp.array(0.6)), {"length": Positive()}, record, position, dt=0.01, **QUIET
    )
    assert found.values["length"] == pytest.approx(0.5, rel=1e-8)
    np.testing.assert_allclose(found.starts[0].q, [0.3, -0.4], atol=1e-8)


# --- pieces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transform, guess",
    [
        (Free(), np.array([2.0, 0.0, -3.0])),
        (Positive(), np.array([2.0, 1e-3])),
        (identify.NotNegative(), np.array([2.0, 1e-3])),
        (Bounded(-1.0, 3.0), np.array([0.5, 2.9])),
        (identify.UnitVector(), np.array([0.6, 0.0, 0.8])),
        (identify.LogCholesky(), mbd.Inertia.box(size=[0.1, 0.2, 0.4], mass=2.0)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_transforms(transform, guess):
    """The guess at zero, only allowed values elsewhere, and as many directions as free numbers."""
    size = transform.size(guess)
    flat = lambda tree: np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])  # noqa: E731
    np.testing.assert_allclose(
        flat(transform.value(guess, jnp.zeros(size))), flat(guess), rtol=1e-12, atol=1e-14
    )
    value = lambda z: jnp.concatenate(  # noqa: E731
        [jnp.ravel(x) for x in jax.tree.leaves(transform.value(guess, z))]
    )
    lower, upper = transform.bounds(guess)
    for z in (jnp.zeros(size), 0.7 * jnp.arange(1.0, size + 1) / size, jnp.full(size, -1.5)):
        z = jnp.clip(z, lower, upper)
        D = jax.jacfwd(value)(z)
        assert np.linalg.matrix_rank(D) == size
        x = transform.value(guess, z)
        if isinstance(transform, Positive):
            assert np.all(x > 0)
        elif isinstance(transform, identify.NotNegative):
            assert np.all(x >= 0)
        elif isinstance(transform, Bounded):
            assert np.all((x >= -1) & (x <= 3))
        elif isinstance(transform, identify.UnitVector):
            assert np.linalg.norm(x) == pytest.approx(1.0, abs=1e-12)
        elif isinstance(transform, identify.LogCholesky):
            a, b, c = np.linalg.eigvalsh(x.tensor)
            assert x.mass > 0 and a > 0 and a + b > c


def test_transform_units():
    """A unit change is a factor e, the size of the guess, and at the middle the whole range."""
    one = jnp.ones(1)
    assert Positive().value(jnp.array(2.0), one) == pytest.approx(2 * math.e)
    for at in (0.0, -1.0):  # at the bound too, where half a derivative would be wrong
        slope = jax.jacfwd(lambda z: identify.NotNegative().value(jnp.array(3.0), z))(at * one)
        assert slope[0] == pytest.approx(3.0)
    assert identify.NotNegative().value(jnp.array(3.0), -2 * one) == 0.0
    assert Free().value(jnp.array(-4.0), one) == pytest.approx(0.0)
    slope = jax.jacfwd(lambda z: Bounded(1.0, 5.0).value(jnp.array(3.0), z))(jnp.zeros(1))
    assert slope[0] == pytest.approx(4.0)
    turned = identify.UnitVector().value(jnp.array([0.0, 0.0, 1.0]), jnp.array([math.pi / 2, 0.0]))
    assert abs(turned[2]) < 1e-12


def test_split_records():
    """The rest begins where the record does, and only its own samples count."""
    rng = np.random.default_rng(0)
    record = Record(TIMES, decay(TIMES) + 0.01 * rng.normal(size=41), state(), weights=[3.0])
    seen, unseen = record.split(1.0)
    assert seen.count == 10 and seen.time[-1] < 1.0 and unseen.count == 31
    np.testing.assert_array_equal(unseen.time, TIMES)
    assert np.all(unseen.weights[:10] == 0) and np.all(unseen.weights[10:] == 3.0)
    prediction = identify.predict(oscillator(), unseen, position, dt=0.02)
    off = np.asarray(decay(TIMES) - record.measured[:, 0])[10:]
    assert prediction.rms["reading"] == pytest.approx(np.sqrt(np.mean(off**2)), rel=1e-5)
    for at in (0.05, 3.95):
        with pytest.raises(ValueError, match="split it where"):
            record.split(at)


@pytest.mark.parametrize(
    "optimiser",
    [None, pytest.param(optax.lbfgs(), marks=pytest.mark.slow)],
    ids=["levenberg-marquardt", "lbfgs"],
)
def test_a_bound_that_holds(optimiser):
    """A motion that grows, as if damping were negative: it ends at zero, and the stiffness where it
    belongs without damping; a stiffness that may not go there ends at its bound."""
    record = Record(TIMES, decay(TIMES, damping=-0.1), state())
    without = {"stiffness": Parameter(8.0, Positive())}

    def found(parameters):
        system = oscillator(damping=0.0)
        options = dict(dt=0.05, optimiser=optimiser, tolerance=1e-10, max_steps=200)
        return identify.fit(system, parameters, record, position, **options, **QUIET)

    free = found(without)
    bounded = found(without | {"damping": Parameter(0.4, identify.NotNegative())})
    assert free.converged and bounded.converged
    assert bounded.values["damping"] == pytest.approx(0.0, abs=1e-15)
    assert bounded.values["stiffness"] == pytest.approx(float(free.values["stiffness"]), rel=1e-5)
    assert optimiser is not None or bounded.iterations < 20
    within = found({"stiffness": Parameter(8.0, Bounded(3.0, 8.5))})
    assert within.converged
    assert within.values["stiffness"] == pytest.approx(8.5, abs=1e-14)


def test_interpolation_is_of_sixth_order():
    """Exact for polynomials of degree 5 everywhere, at the ends too, and at steps for anything."""
    s = np.array([0.0, 0.3, 1.0, 4.5, 7.99, 9.0])
    grid = np.arange(10.0)
    coefficients = np.array([1.0, -2.0, 0.5, 0.1, -0.3, 0.02])
    x = jnp.asarray(np.polynomial.polynomial.polyval(grid, coefficients))[:, None]
    expected = np.polynomial.polynomial.polyval(s, coefficients)
    np.testing.assert_allclose(interpolated(x, jnp.asarray(s), 6)[:, 0], expected, rtol=1e-9)
    rough = jnp.asarray(np.random.default_rng(0).normal(size=(10, 2)))
    np.testing.assert_array_equal(
        interpolated(rough, jnp.array([3.0, 8.0]), 6), rough[jnp.array([3, 8])]
    )
    between = interpolated(rough, jnp.array([2.25]), 2)[0]
    np.testing.assert_allclose(between, 0.75 * rough[2] + 0.25 * rough[3])


def test_measured_input():
    """Straight between samples, constant beyond, and of no effect where a record is made longer."""
    control = identify.MeasuredInput([0.0, 1.0, 3.0], [0.0, 2.0, -2.0])
    q = jnp.zeros(1)
    found = [float(control(jnp.array(t), q, q)[0]) for t in (-1.0, 0.5, 1.0, 2.0, 3.0, 9.0)]
    np.testing.assert_allclose(found, [0.0, 1.0, 2.0, 0.0, -2.0, -2.0])


@pytest.mark.slow
def test_records_of_different_length_with_inputs():
    """As each fitted alone: the same sum of squares, so the same estimate as of both in one."""
    pushes = [np.sin(3 * TIMES), np.cos(2 * TIMES[:21])]
    truth, records = oscillator(), []
    for k, push in enumerate(pushes):
        time = TIMES[: len(push)]
        control = identify.MeasuredInput(time, push)
        sol = mbd.simulate(
            truth, mbd.UdwadiaKalaba(), state(0.0), t1=time[-1], dt=0.01, control=control,
            saveat=diffrax.SaveAt(ts=time),
        )  # fmt: skip
        records.append(Record(time, np.asarray(sol.q), state(0.0), control=control, name=str(k)))
    found = identify.fit(
        oscillator(damping=0.5, stiffness=8.0),
        {"damping": Positive(), "stiffness": Positive()},
        records,
        position,
        dt=0.01,
        **QUIET,
    )
    np.testing.assert_allclose(found.entries, [0.4, 9.0], rtol=1e-6)
    assert [len(r) for r in found.prediction.readings] == [41, 21]


def test_residual_tests_tell_noise_from_structure():
    rng = np.random.default_rng(3)
    noise = identify.residual_tests.column_test([rng.normal(size=500), rng.normal(size=300)])
    assert "like noise" in str(noise) and 0.7 < noise.correlation < 1.5
    # An AR(1) process with rho = 0.8: 1 + 2 sum rho^k = (1 + rho) / (1 - rho) = 9.
    process = np.zeros(20000)
    for i, kick in enumerate(rng.normal(size=19999)):
        process[i + 1] = 0.8 * process[i] + kick
    found = identify.residual_tests.column_test([process])
    assert found.white < 1e-6 and found.correlation == pytest.approx(9.0, rel=0.2)
    skewed = identify.residual_tests.column_test([rng.exponential(size=500)])
    assert skewed.mean < 1e-6 and skewed.normal < 1e-6 and skewed.outliers > 0


# --- bad input ------------------------------------------------------------------------------------


def bad(**changes):
    """`fit` of the oscillator with changed arguments."""
    record = Record(TIMES, decay(TIMES), state())
    arguments = dict(
        model=oscillator(), parameters=["stiffness"], records=record, sensors=position, dt=0.02
    )
    arguments.update(changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        identify.fit(**arguments, **QUIET)


def record(time=TIMES, measured=None, **options):
    return Record(time, np.zeros(len(time)) if measured is None else measured, state(), **options)


def few():
    return bad(records=record(TIMES[:2]), parameters=["mass", "damping"])


def of_one(**parameter):
    """A model of a parameter that it does not use."""
    return bad(model=lambda values: oscillator(), parameters=parameter)


@pytest.mark.parametrize(
    "message, make",
    [
        ("nan in row 3, column 0", lambda: record(measured=np.where(TIMES == TIMES[3], np.nan, 1))),
        ("must increase", lambda: record([0.0, 2.0, 1.0])),
        ("stands in rows 1 and 2", lambda: record([0.0, 1.0, 1.0])),
        ("one row of measurements", lambda: record(measured=np.zeros(7))),
        ("`weights` of", lambda: record(weights=np.ones(3))),
        ("is NaN", lambda: record([0.0, np.nan])),
        ("array of numbers", lambda: record(["a", "b"])),
        ("no parameter `stifness`", lambda: bad(parameters=["stifness"])),
        ("chooses none", lambda: bad(parameters=lambda path, leaf: False)),
        ("must lie between", lambda: bad(parameters={"stiffness": Bounded(10.0, 20.0)})),
        ("must be positive", lambda: bad(parameters={"damping": Parameter(-1.0, Positive())})),
        ("must be finite and increase", lambda: Bounded(2.0, 1.0)),
        ("give `Parameter", lambda: of_one(k=Positive())),
        ("unit vector", lambda: of_one(n=Parameter(np.ones(3), identify.UnitVector()))),
        ("must return", lambda: bad(model=lambda values: 1.0, parameters={"k": 1.0})),
        ("nothing to find", lambda: bad(parameters=[])),
        ("nothing to compare with", lambda: bad(records=[])),
        ("give 2 numbers", lambda: bad(sensors={"q": position, "v": lambda s: s.v})),
        ("`dt`.* must be positive", lambda: bad(dt=0.0)),
        ("2 measurements cannot", lambda: few()),
        ("same columns", lambda: bad(records=[record(), record(measured=np.zeros((41, 2)))])),
        ("too few for 50 parts", lambda: bad(shooting=identify.MultipleShooting(50))),
        ("at least 1", lambda: identify.MultipleShooting(0)),
        ("has the shape", lambda: identify.Leaves(oscillator())({"mass": jnp.ones(2)})),
    ],
    ids=lambda x: x.replace(" ", "-") if isinstance(x, str) else "",
)
def test_bad_input(message, make):
    with pytest.raises(ValueError, match=message):
        make()


def test_pictures(tmp_path, falls):
    """Each measured row is on the axes of its column, and every entry on those of the intervals."""
    import matplotlib

    matplotlib.use("Agg")
    found = falling(falls[0])
    (ax,) = identify.plot_fit(found)
    first = ax.lines[0].get_xydata()
    np.testing.assert_allclose(first[:, 1], falls[2][0])
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
