"""Designed experiments against closed forms, energy, the covariance of fits, and random search."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._compiler import to_jax
from jaxmbd.identify import (
    AOptimal,
    Applied,
    DOptimal,
    EOptimal,
    Fourier,
    Limit,
    Positive,
    Prescribed,
    Spline,
    Sweep,
)
from jaxmbd.identify.criteria import judge

TIME = np.arange(0.0, 4.0, 0.05)


class Arm(mbd.AbstractSystem):
    """A link on a hinge: I x'' + d x' + m g sin x = effort. `more` adds to I."""

    inertia: jax.Array
    more: jax.Array
    moment: jax.Array
    damping: jax.Array

    def mass_matrix(self, q):
        return (self.inertia + self.more) * jnp.eye(1)

    def force(self, t, q, v, u):
        applied = 0.0 if u is None else u
        return -self.damping * v - 9.81 * self.moment * jnp.sin(q) + applied


ARM = Arm(*map(jnp.array, (0.2, 0.1, 0.4, 0.3)))
NAMES = ["inertia", "more", "moment", "damping"]
MOTION = Prescribed(lambda q: q[0], Fourier(4.0, 3), -1.2, 1.2, rate=2.0, effort=8.0)
START = mbd.State(0.0, [0.0], [0.0])


@functools.cache
def designed():
    options = dict(noise=0.05, tolerance=1e-4, progress=False)
    return identify.design(ARM, {x: Positive() for x in NAMES}, MOTION, TIME, START, **options)


def regressor(c, t):
    """By inertia, moment and damping as logarithms, and the motion, in NumPy."""
    k = np.arange(1, 4)
    w = 2 * np.pi / 4.0 * k
    s, co = np.sin(np.outer(t, w)), np.cos(np.outer(t, w))
    a, b = c[1:4] / k, c[4:] / k
    x = 1.2 * (c[0] + s @ a + co @ b)
    v, dv = 1.2 * (co @ (w * a) - s @ (w * b)), -1.2 * (s @ (w**2 * a) + co @ (w**2 * b))
    Y = np.stack([0.3 * dv, 9.81 * 0.4 * np.sin(x), 0.3 * v], axis=1)
    return Y / 0.05, x, v, Y.sum(1)


@pytest.mark.slow
def test_an_arm_in_closed_form():
    """Its sensitivity, base parameters, covariance and efforts, and the limits between samples.
    A random search of thousand guesses finds no better motion within the limits."""
    plan = designed()
    assert plan.result == mbd.RESULTS.successful and max(plan.excess.values()) <= 0
    c = np.asarray(plan.course.coefficients)[0] * float(plan.course.upper[0]) / 1.2
    Y, x, _, effort = regressor(c, TIME)
    J = np.stack([Y[:, 0] * 2 / 3, Y[:, 0] / 3, Y[:, 1], Y[:, 2]], axis=1)
    np.testing.assert_allclose(plan.jacobian, J, atol=1e-9)
    np.testing.assert_allclose(plan.q[:, 0], x, atol=1e-12)
    np.testing.assert_allclose(plan.u[:, 0], effort, atol=1e-10)
    C = np.linalg.inv(Y.T @ Y)
    np.testing.assert_allclose(plan.sigma[2:], np.sqrt(np.diag(C))[1:] * [0.4, 0.3], rtol=1e-9)
    assert np.all(np.isinf(plan.sigma[:2])) and len(plan.base) == 3
    together = next(b for b in plan.base if "more" in b.direction)
    ratio = together.direction["inertia"] / together.direction["more"]
    np.testing.assert_allclose(ratio, 2.0, rtol=1e-9)

    def within(c):
        _, x, v, effort = regressor(c, np.linspace(0.0, 3.95, 2001))
        return max(np.abs(x).max() / 1.2, np.abs(v).max() / 2.0, np.abs(effort).max() / 8.0) - 1

    assert within(c) < 1e-4
    rng, best = np.random.default_rng(0), np.inf
    value = lambda c: -np.linalg.slogdet(regressor(c, TIME)[0].T @ regressor(c, TIME)[0])[1]  # noqa: E731
    for _ in range(1000):
        guess = rng.normal(size=7) * rng.uniform(0.1, 0.6)
        if within(guess) <= 0:
            best = min(best, value(guess))
    assert value(c) < best


@pytest.mark.slow
def test_repeated_measurements_scatter_as_predicted():
    """What `fit` of the design finds, over forty repetitions: chi-square has 3 numbers each."""
    plan = designed()
    basis, rng = plan.setting.basis, np.random.default_rng(1)
    J = plan.jacobian @ basis
    found = []
    for _ in range(40):
        made = plan.u + 0.05 * rng.normal(size=plan.u.shape)
        found.append(np.asarray(plan.fit(made, progress=False).value))
    off = np.einsum("ni,ij,nj->n", found, J.T @ J, found)
    # 120 numbers: the mean of chi-square has the deviation sqrt(2 / 120).
    assert abs(off.sum() / 120 - 1) < 3 * np.sqrt(2 / 120)
    assert set(plan.values(plan.fit(plan.u, progress=False))) == set(NAMES)


@pytest.mark.slow
def test_criteria():
    """Their values against NumPy, and their derivatives against differences, also where all
    variances are equal."""
    rng = np.random.default_rng(2)
    J, along = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    G = np.linalg.qr(rng.normal(size=(4, 3)))[0]
    C = np.linalg.eigvalsh(G.T @ np.linalg.inv(J.T @ J) @ G)

    @functools.partial(jax.jit, static_argnums=0)
    def of(criterion, J, G, along):
        return jax.jvp(lambda J: judge(criterion, J, G), (J,), (along,))

    truths = np.mean(np.log(C)), np.log(np.mean(C)), np.log(C.max())
    orthonormal = 0.5 * np.linalg.qr(J)[0]
    for criterion, truth in zip((DOptimal(), AOptimal(), EOptimal()), truths, strict=True):
        value, slope = of(criterion, *map(to_jax, (J, G, along)))
        assert 0 <= value - truth < (np.log(3) / 20 if criterion == EOptimal() else 1e-12)
        for at, step in ((J, 1e-6), (orthonormal, 1e-6)):
            _, slope = of(criterion, *map(to_jax, (at, G, along)))
            ends = [
                of(criterion, *map(to_jax, (at + s * along, G, along)))[0] for s in (step, -step)
            ]
            np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), atol=2e-7)


@pytest.mark.slow
def test_signals_begin_at_rest():
    """A spline at both ends; it is twice continuously differentiable, and reproduces a constant."""
    spline = Spline(2.0, 5)
    c = to_jax(np.array([0.3, -0.5, 0.2, 0.9, -0.1]))

    @jax.jit
    def at(t):
        rate = lambda t: jax.jvp(lambda t: spline(c, t), (t,), (jnp.ones_like(t),))[1]  # noqa: E731
        bend = lambda t: jax.jvp(rate, (t,), (jnp.ones_like(t),))[1]  # noqa: E731
        one = lambda t: jnp.stack([spline(c, t), rate(t), bend(t), spline(0 * c + 1, t)])  # noqa: E731
        return jax.vmap(one)(t)

    knots = np.arange(1, 6) / 3.0
    ends = np.array([0.0, 2.0])
    found = np.asarray(at(to_jax(np.concatenate([ends, knots - 1e-9, knots + 1e-9]))))
    np.testing.assert_allclose(found[:2, :3], [[0.3, 0, 0], [-0.1, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(found[2:7], found[7:], atol=1e-6)
    np.testing.assert_allclose(found[:, 3], 1.0, rtol=1e-12)


def four_bar():
    """A four-bar in space, with redundant rows, and a passive joint that is limited."""
    points = np.array([[0, 0, 0], [0.0, 0, 0.2], [0.5, 0, 0.35], [0.4, 0, 0]])
    bodies, joints = [], []
    for name, a, b in (("crank", 0, 1), ("rod", 1, 2), ("rocker", 3, 2)):
        rod = mbd.Inertia.box(size=[0.03, 0.03, 0.3], mass=1.0)
        middle = (points[a] + points[b]) / 2
        bodies.append(mbd.Body(name, rod, position=middle))
    crank, rod, rocker = bodies
    ends = ("ground", crank), (crank, rod), (rod, rocker), ("ground", rocker)
    for name, (a, b), point in zip(("motor", "1", "2", "pivot"), ends, points, strict=True):
        joints.append(mbd.Revolute(name, a, b, point=point, axis=[0, 1, 0]))
    return mbd.Mechanism(bodies, joints)


@pytest.mark.slow
def test_a_closed_loop():
    """The work of the drive is the change of the energy, and the passive joint keeps its limit."""
    loop = four_bar()
    unknown = {"bodies[rocker].inertia.mass": Positive()}
    motion = Prescribed("motor", Fourier(2.0, 2), -0.5, 0.5, points=40)
    plan = identify.design(
        loop,
        unknown,
        motion,
        np.linspace(0.0, 2.0, 401),
        loop.state(),
        noise=0.1,
        limits=[Limit(identify.JointPosition("pivot"), -0.2, 0.25)],
        starts=1,
        max_iterations=25,
        progress=False,
    )
    assert plan.result != mbd.RESULTS.infeasible and max(plan.excess.values()) <= 1e-3
    angles = jax.jit(jax.vmap(lambda q: loop.joint_coordinates(q, "pivot")))(to_jax(plan.q))
    assert np.min(angles) > -0.2 - 1e-3 and np.max(angles) < 0.25 + 1e-3
    energy = jax.jit(jax.vmap(loop.mechanical_energy))(*map(to_jax, (plan.time, plan.q, plan.v)))
    power = plan.u[:, 0] * plan.drive(plan.time).rate[:, 0]
    # Simpson's rule, over pairs of steps.
    work = np.cumsum((power[:-2:2] + 4 * power[1:-1:2] + power[2::2]) * 0.005 / 3)
    change = np.asarray(energy)[2::2] - energy[0]
    np.testing.assert_allclose(work, change, atol=1e-7 * np.ptp(energy))


@pytest.mark.slow
def test_a_control():
    """The covariance that is predicted is that of a fit, and the gradient of the search is that of
    its differences. The angle keeps its limit between the samples."""
    unknown = {x: Positive() for x in ("inertia", "moment", "damping")}
    sensors = {"angle": lambda sample: sample.q}
    control = Applied(Spline(3.0, 6), [-3.0], [3.0], dt=0.05)
    plan = identify.design(
        ARM,
        unknown,
        control,
        TIME[:60],
        START,
        sensors,
        noise=0.01,
        limits=[Limit(sensors["angle"], -1.0, 1.0)],
        of=["inertia", "moment"],
        starts=3,
        max_iterations=15,
        progress=False,
    )
    assert max(plan.excess.values()) <= 1e-3
    options = dict(dt=0.05, progress=False)
    made = identify.measure(ARM, sensors, TIME[:60], START, control=plan.course, **options)
    rng = np.random.default_rng(3)
    noisy = made.measured + 1e-8 * rng.normal(size=made.measured.shape)
    found = identify.fit(ARM, unknown, plan.record(noisy), sensors, **options)
    np.testing.assert_allclose(found.sigma / found.noise, plan.sigma, rtol=1e-6)


@pytest.mark.slow
def test_a_sweep_tells_less(tmp_path):
    """It is as large as the limits allow, and its base parameters are less known. The table holds
    the motion."""
    plan = designed()
    sweep = plan.beside(Sweep(0.2, 1.0, 4.0), [1.0, 0.0])
    assert -1e-3 < max(sweep.excess.values()) <= 0
    assert np.all(sweep.sigma[2:] > plan.sigma[2:]) and sweep.value > plan.value
    plan.save(tmp_path / "motion.csv")
    head, *rows = (tmp_path / "motion.csv").read_text().splitlines()
    assert head == "t,position[0],rate[0],acceleration[0],q[0],v[0],u[0]"
    table = np.array([row.split(",") for row in rows], float)
    np.testing.assert_allclose(table[:, [1, 4]], plan.q[:, [0, 0]], atol=1e-12)
    np.testing.assert_allclose(table[:, 6], plan.u[:, 0], rtol=1e-15)
    for words in ("predicted 95 % interval", "3 combinations of 4", "limits: ", "converged"):
        assert words in str(plan)


@pytest.mark.slow
def test_refusals():
    """In words that name the remedy."""
    unknown = {"moment": Positive()}
    design = functools.partial(identify.design, ARM, unknown, noise=0.1, progress=False)
    with pytest.raises(ValueError, match="say what is measured"):
        design(Applied(Fourier(4.0), [-1.0], [1.0], dt=0.1), TIME, START)
    with pytest.raises(ValueError, match="must be finite and below `upper`"):
        design(Prescribed(lambda q: q[0], Fourier(4.0), 1.0, -1.0), TIME, START)
