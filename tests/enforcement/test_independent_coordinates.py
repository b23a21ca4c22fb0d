"""Independent coordinates: the motion is that of a model with minimal coordinates, step by step,
whichever variables are independent, and constraints hold to rounding."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._linalg import partition

CRANK, ROD, GRAVITY = 0.5, 1.1, 9.81
MASSES = jnp.array([0.7, 0.4, 0.9])  # at the tip, in the middle of the rod, of the slider


class SliderCrank(mbd.AbstractSystem):
    """q = (a, b, x): angles of crank and rod to the x axis, place of the slider."""

    rod: jax.Array

    def _points(self, q):
        tip = CRANK * jnp.stack([jnp.cos(q[0]), jnp.sin(q[0])])
        middle = tip + self.rod / 2 * jnp.stack([jnp.cos(q[1]), jnp.sin(q[1])])
        return jnp.stack([tip, middle, jnp.stack([q[2], jnp.zeros_like(q[2])])])

    def _speeds(self, q, v):
        return jax.jvp(self._points, (q,), (v,))[1]

    def mass_matrix(self, q):
        columns = jax.vmap(lambda e: self._speeds(q, e))(jnp.eye(3, dtype=q.dtype))
        weights = MASSES.astype(q.dtype)[None, None, :, None]
        return jnp.sum(weights * columns[:, None] * columns[None], axis=(2, 3))

    def force(self, t, q, v, u):
        points, bias = jax.jvp(lambda q: self._speeds(q, v), (q,), (v,))
        del points
        loads = -MASSES.astype(q.dtype)[:, None] * (bias + jnp.array([0.0, GRAVITY], q.dtype)[None])
        _, pull = jax.vjp(self._points, q)
        return pull(loads)[0]

    def constraint(self, q, t):
        a, b, x = q
        reach = CRANK * jnp.cos(a) + self.rod * jnp.cos(b) - x
        return jnp.stack([reach, CRANK * jnp.sin(a) + self.rod * jnp.sin(b)])


def placed(rod, a):
    """q of a crank angle."""
    b = -jnp.arcsin(CRANK * jnp.sin(a) / rod)
    return jnp.stack([a, b, CRANK * jnp.cos(a) + rod * jnp.cos(b)])


def minimal(rod, start, dt, steps):
    """(a, a') after these steps of RK4, from Lagrange's equation in the crank angle alone."""
    system = SliderCrank(rod)

    def lagrangian(a, rate):
        q, v = jax.jvp(lambda a: placed(rod, a), (a,), (rate,))
        height = system._points(q)[:, 1]
        return v @ system.mass_matrix(q) @ v / 2 - GRAVITY * MASSES @ height

    def rates(y):
        a, rate = y
        momentum = jax.grad(lagrangian, 1)
        mass = jax.grad(momentum, 1)(a, rate)
        _, change = jax.jvp(lambda a: momentum(a, rate), (a,), (rate,))
        return jnp.stack([rate, (jax.grad(lagrangian)(a, rate) - change) / mass])

    def step(y, _):
        k1 = rates(y)
        k2 = rates(y + dt / 2 * k1)
        k3 = rates(y + dt / 2 * k2)
        k4 = rates(y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(step, jnp.array(start), None, length=steps)[0]


START = (0.4, 6.0)  # turns through the dead point
BY_CRANK = mbd.CoordinatePartitioning(independent=[0])
SETS = {
    "crank": BY_CRANK,
    "partitioned": mbd.CoordinatePartitioning(),
    "null space": mbd.NullSpace(),
}


def begun(rod, start=START):
    q, v = jax.jvp(lambda a: placed(rod, a), (jnp.array(start[0]),), (jnp.array(start[1]),))
    return mbd.State(0.0, q, v)


@eqx.filter_jit
def run(independent, rod, dt, steps=100, start=START, **options):
    method = mbd.IndependentCoordinates(independent=independent)
    state = begun(rod, start)
    return mbd.simulate(SliderCrank(rod), method, state, dt=dt, num_steps=steps, **options)


ROD_LENGTH = jnp.array(ROD)


def test_motion_of_the_minimal_model():
    """The same steps of RK4 as written by hand for the crank angle: not to the error of the scheme,
    but to rounding. With an independent coordinate that corrections move it would be 1e-6."""
    sol = run(BY_CRANK, ROD_LENGTH, 0.01)
    expected = jax.jit(minimal, static_argnums=(1, 3))(ROD_LENGTH, START, 0.01, 100)
    np.testing.assert_allclose([sol.q[-1, 0], sol.v[-1, 0]], expected, rtol=0, atol=1e-11)
    assert START[0] < np.pi < expected[0]  # through the dead point
    assert sol.phi_norm[-1] < 1e-15 and sol.phidot_norm[-1] < 1e-14


def end_of(name):
    def end(rod):
        sol = run(SETS[name], rod, 0.01)
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    return end


def difference(f, step=1e-5):
    return (f(ROD_LENGTH + step) - f(ROD_LENGTH - step)) / (2 * step)


@pytest.mark.slow
def test_gradient_is_that_of_the_minimal_model():
    derivative = jax.jit(jax.jacfwd(end_of("crank")))(ROD_LENGTH)
    expected = jax.jit(jax.jacfwd(lambda rod: minimal(rod, START, 0.01, 100)))(ROD_LENGTH)
    np.testing.assert_allclose([derivative[0], derivative[3]], expected, rtol=0, atol=1e-11)


@pytest.mark.slow
def test_gradients_in_both_modes_and_twice():
    def value(rod):
        return jnp.cos(jnp.arange(6.0)) @ end_of("null space")(rod)

    forward = jax.jit(lambda x: jax.jvp(value, (x,), (jnp.ones_like(x),)))
    second = jax.jit(jax.value_and_grad(jax.grad(value)))
    _, found = forward(ROD_LENGTH)
    np.testing.assert_allclose(found, difference(lambda x: forward(x)[0]), rtol=1e-8)
    reverse, twice = second(ROD_LENGTH)
    np.testing.assert_allclose(reverse, found, rtol=1e-11)
    np.testing.assert_allclose(twice, difference(lambda x: forward(x)[1]), rtol=1e-8, atol=1e-7)


# --- the choice in each step ----------------------------------------------------------------------


@eqx.filter_jit
def swung(independent, length, dt, steps):
    """A pendulum from (1, 0), which turns past 45 degrees: from there x is chosen in place of y."""
    method, system = mbd.IndependentCoordinates(independent=independent), h.Pendulum(length=length)
    state = mbd.State(0.0, length * jnp.array([1.0, 0.0]), jnp.zeros(2))
    return mbd.simulate(system, method, state, dt=dt, num_steps=steps).q[-1]


BOTH = mbd.CoordinatePartitioning(), mbd.NullSpace()
LENGTH = jnp.array(1.0)


@pytest.mark.slow
def test_choices_differ_by_the_error_of_the_scheme():
    """At half the step by 16 times less: all choices are one motion, with errors of their own."""
    distance = [
        np.linalg.norm(np.subtract(*(swung(x, LENGTH, dt, round(0.8 / dt)) for x in BOTH)))
        for dt in (0.02, 0.01)
    ]
    assert 1e-9 < distance[1] < 1e-5
    assert abs(np.log2(distance[0] / distance[1]) - 4) < 0.7


@pytest.mark.slow
def test_gradient_holds_the_choice_fixed():
    """Where another choice begins at another step the motion jumps by the error of the scheme,
    which differences would magnify. The derivative is that of the motion all the same."""
    partitioned, smooth = (
        jax.jit(jax.jacfwd(lambda length, x=x: swung(x, length, 0.01, 100)))(LENGTH) for x in BOTH
    )
    np.testing.assert_allclose(partitioned, smooth, rtol=0, atol=5e-6)
    assert np.max(np.abs(partitioned - smooth)) > 1e-9


@pytest.mark.slow
def test_no_drift_in_many_steps():
    """The crank turns up to 1000 rad, of which the rounding error is 1e-13."""
    sol = run(mbd.NullSpace(), ROD_LENGTH, 2e-3, 100_000, saveat=diffrax.SaveAt(steps=1000))
    assert np.max(np.abs(sol.q)) > 500
    assert np.max(sol.phi_norm) < 3e-13 and np.max(sol.phidot_norm) < 3e-12
    system = SliderCrank(ROD_LENGTH)

    def energy(q, v):
        height = system._points(q)[:, 1]
        return v @ system.mass_matrix(q) @ v / 2 + GRAVITY * MASSES @ height

    energies = jax.jit(jax.vmap(energy))(sol.q, sol.v)
    assert np.max(np.abs(energies - energies[0])) < 1e-5 * energies[0]


# --- verdicts and errors --------------------------------------------------------------------------


BAD = [([2], (0.0, 0.0)), ([0, 2], START), ([], START)]


@pytest.mark.parametrize("independent, start", h.slow_unless(lambda x, _: x == [2], BAD))
def test_dependent_choice(independent, start):
    """The slider is no coordinate at its dead point, two are too many, and none are too few."""
    chosen = mbd.CoordinatePartitioning(independent=independent)
    sol = run(chosen, ROD_LENGTH, 0.01, 2, start, throw=False)
    assert sol.result == mbd.RESULTS.not_independent


@pytest.mark.slow
def test_named_coordinate_up_to_its_dead_point():
    """The slider moves the crank as well as the crank the slider, but not over the dead point."""
    by_slider = mbd.CoordinatePartitioning(independent=[2])
    sol = run(by_slider, ROD_LENGTH, 1e-3, 1000, throw=False)
    assert sol.result == mbd.RESULTS.not_independent
    assert abs(sol.q[-1, 0] - np.pi) < 0.02
    before, expected = (run(x, ROD_LENGTH, 1e-3, 300).q[-1] for x in (by_slider, BY_CRANK))
    np.testing.assert_allclose(before, expected, rtol=0, atol=1e-9)


def test_steps_that_are_too_large():
    sol = run(mbd.NullSpace(), ROD_LENGTH, 0.2, throw=False)
    assert sol.result == mbd.RESULTS.dependents_unsolved
    assert np.all(np.isfinite(sol.q))


def test_bad_choices():
    with pytest.raises(ValueError, match=r"name each velocity once, but is \(0, 0\)"):
        mbd.CoordinatePartitioning(independent=[0, 0])
    with pytest.raises(ValueError, match=r"indices of the 3 velocities, up to 2, but is \(3,\)"):
        run(mbd.CoordinatePartitioning(independent=[3]), ROD_LENGTH, 0.01, 2)


# --- other systems --------------------------------------------------------------------------------


class Locked(mbd.AbstractSystem):
    """A point on three driven planes: no freedom, and one row more than coordinates."""

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(q)

    def constraint(self, q, t):
        x, y = q
        return jnp.stack([x - jnp.sin(t), y - t * t, x + y - jnp.sin(t) - t * t])


@pytest.mark.parametrize("independent", [mbd.NullSpace(), mbd.CoordinatePartitioning([])])
def test_no_freedom_is_left(independent):
    method = mbd.IndependentCoordinates(independent=independent)
    state = mbd.State(0.0, np.zeros(2), np.array([1.0, 0.0]))
    sol = mbd.simulate(Locked(), method, state, dt=0.05, num_steps=20)
    np.testing.assert_allclose(sol.q[-1], [np.sin(1.0), 1.0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(sol.v[-1], [np.cos(1.0), 2.0], rtol=0, atol=1e-13)


def test_batch_with_verdicts_of_each():
    method = mbd.IndependentCoordinates(independent=mbd.CoordinatePartitioning())

    def swing(speed):
        system = h.Pendulum()
        state = mbd.State(0.0, jnp.array([0.0, -1.0]) * system.length, speed * jnp.array([1.0, 0]))
        return mbd.simulate(system, method, state, dt=0.02, num_steps=20, throw=False)

    speeds = jnp.array([1.0, jnp.nan, 60.0, 2.0])
    batch = jax.jit(jax.vmap(swing))(speeds)
    good = batch.result == mbd.RESULTS.successful
    np.testing.assert_array_equal(good, [True, False, False, True])
    unsolved = batch.result == mbd.RESULTS.dependents_unsolved
    np.testing.assert_array_equal(unsolved, [False, False, True, False])
    assert np.max(batch.phi_norm[good]) < 1e-15


@pytest.mark.slow
def test_implicit_and_adaptive_schemes():
    """They take the motion like those of any continuous method."""
    reference = run(BY_CRANK, ROD_LENGTH, 1e-3, 500).q[-1]
    trapezoidal = run(mbd.NullSpace(), ROD_LENGTH, 1e-3, 500, scheme=mbd.CrankNicolson())
    np.testing.assert_allclose(trapezoidal.q[-1], reference, rtol=0, atol=1e-4)
    method, state = mbd.IndependentCoordinates(), begun(ROD_LENGTH)
    adaptive = mbd.simulate(
        SliderCrank(ROD_LENGTH), method, state, t1=0.5, dt=0.4,  # tried in vain
        stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-9),
    )  # fmt: skip
    np.testing.assert_allclose(adaptive.q[-1], reference, rtol=0, atol=1e-7)
    assert adaptive.phi_norm[-1] < 1e-15


# --- the elimination ------------------------------------------------------------------------------


@pytest.mark.parametrize("rows, rank", [(4, 4), (7, 4), (5, 2)])
def test_partition(rows, rank):
    """J K J = J, with as many dependent columns as the rank; these solve for the others."""
    rng = np.random.default_rng(rows)
    J = rng.normal(size=(2, rows, rank)) @ rng.normal(size=(2, rank, 6))
    scale = jnp.array([1.0, 0.1, 3.0, 1.0, 20.0, 1.0])
    split = jax.jit(jax.vmap(lambda J: partition(J, scale, jnp.ones(6, bool), jnp.array(1e-10))))
    K, dependent, determined = (np.asarray(x) for x in split(J))
    np.testing.assert_allclose(J @ K @ J, J, rtol=0, atol=1e-11)
    assert np.all(np.sum(dependent, axis=1) == rank) and np.all(determined)
    assert np.all(K[~dependent] == 0)
    for J, K, dependent in zip(J, K, dependent, strict=True):
        np.testing.assert_allclose((K @ J)[:, dependent], np.eye(6)[:, dependent], atol=1e-11)
        # With the largest pivots, dependent variables do not move much further than independent.
        assert np.max(np.abs((K @ J) * scale[None, :] / scale[:, None])) < 3
