"""Batches by `vmap`, compilation once, float32."""

from typing import Any

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import _loop

N = 1000
UK = mbd.UdwadiaKalaba()


class Particle(mbd.AbstractSystem):
    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81])


def random_pendulums(key):
    """N damped pendulums of all sizes, and starts on their circles."""
    keys = jr.split(key, 6)
    mass, length, gravity, damping = (
        jr.uniform(k, (N,), minval=low, maxval=high)
        for k, low, high in zip(keys, (0.5, 0.5, 1.0, 0.0), (2.0, 1.5, 20.0, 1.0))
    )
    angle = jr.uniform(keys[4], (N,), minval=-3, maxval=3)
    rate = jr.normal(keys[5], (N,))
    radial = jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1)
    tangential = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    q, v = length[:, None] * radial, (rate * length)[:, None] * tangential
    return h.Pendulum(mass, length, gravity, damping), q, v


def check_batch(run, batch):
    """`run` on the whole batch at once and one by one, on a sample of it: 1e-12 of the largest."""
    together = jax.jit(jax.vmap(run))(batch)
    alone = jax.jit(run)
    for i in [0, 1, 7, 333, 512, 998, 999]:
        single = alone(jax.tree.map(lambda x, i=i: x[i], batch))
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(single), strict=True):
            scale = max(1.0, np.max(np.abs(b)))
            np.testing.assert_allclose(a[i], b, rtol=0, atol=1e-12 * scale)
    assert len(np.unique(np.asarray(together[0])[:, 0])) == N  # no two are the same


METHODS = ["udwadia_kalaba", "baumgarte", "impulse_dead_beat", "dual_penalty", "projected"]


@pytest.mark.parametrize(
    "method", h.slow_unless(lambda m: m not in ("baumgarte", "dual_penalty"), METHODS)
)
def test_batch_of_parameters_and_states(method, getkey):
    method = h.method(method)

    def run(sample):
        system, q, v = sample
        sol = method.simulate(system, mbd.State(0.0, q, v), t1=0.2, dt=0.01)
        return sol.q[-1], sol.v[-1], sol.multipliers[-1] / system.mass

    check_batch(run, random_pendulums(getkey()))


@pytest.mark.parametrize("solver", ["pseudoinverse", "proximal"])
def test_batch_of_redundant_rows(solver, getkey):
    """The pseudoinverse chooses its path by the pose of each sample."""
    enforcement = mbd.UdwadiaKalaba(h.SOLVERS[solver])

    def run(sample):
        system, q, v = sample
        system, state = h.RedundantPendulum(system), mbd.State(0.0, q, v)
        sol = mbd.simulate(system, enforcement, state, t1=0.1, dt=0.01, scheme=diffrax.Euler())
        return sol.q[-1], sol.v[-1]

    check_batch(run, random_pendulums(getkey()))


def test_batch_of_controls(getkey):
    case = h.CASES["guided_mass"]
    tables = h.Table(jr.normal(getkey(), (N, 5, 2)), jnp.full(N, 0.2))

    def run(table):
        sol = mbd.simulate(case.system, UK, case.state, t1=0.2, dt=0.01, control=table)
        return sol.q[-1], sol.v[-1]

    check_batch(run, tables)


def test_batch_of_gains_and_steps(getkey):
    """Baumgarte's gains, stiffness and step length; the number of steps is common."""
    case = h.CASES["pendulum"]
    gains = jr.uniform(getkey(), (N, 3), minval=1.0, maxval=8.0)

    def run(x):
        sol = mbd.simulate(
            case.system,
            mbd.LagrangeMultipliers(alpha=x[0], beta=x[1]),
            case.state,
            dt=0.01 * x[2],
            num_steps=10,
        )
        return sol.q[-1], sol.v[-1], sol.t[-1]

    check_batch(run, gains)


def test_batch_of_batches(getkey):
    """vmap of vmap: gravities by pendulums."""
    system, q, v = jax.tree.map(lambda x: x[:3], random_pendulums(getkey()))
    gravities = jnp.array([1.0, 9.81])

    def end(gravity, system, q, v):
        system = eqx.tree_at(lambda s: s.gravity, system, gravity)
        state = mbd.State(0.0, q, v)
        return mbd.simulate(system, UK, state, t1=0.1, dt=0.01, scheme=diffrax.Euler()).q[-1]

    inner = jax.vmap(end, (None, 0, 0, 0))
    grid = jax.jit(jax.vmap(inner, (0, None, None, None)))(gravities, system, q, v)
    assert grid.shape == (2, 3, 2)
    one = end(gravities[1], *jax.tree.map(lambda x: x[2], (system, q, v)))
    np.testing.assert_allclose(grid[1, 2], one, rtol=0, atol=1e-13)


def test_batch_of_solutions_to_states():
    """The ends of a batch of motions are a batch of starts."""
    case = h.CASES["guided_mass"]

    def run(state):
        options = dict(t0=0.0, dt=0.01, num_steps=5, scheme=diffrax.Euler())
        return mbd.simulate(case.system, UK, state, start_tolerance=1.0, **options)

    q, v = (jnp.stack([x, 2 * x]) for x in (case.state.q, case.state.v))
    first = jax.vmap(lambda q, v: run(mbd.State(0.0, q, v)))(q, v)
    second = jax.vmap(run)(first.state())
    one = run(mbd.State(0.0, first.q[1, -1], first.v[1, -1]))
    np.testing.assert_allclose(second.q[1], one.q, rtol=0, atol=1e-14)


# --- a failure stays with its sample -------------------------------------------------------------


def mixed_batch():
    """Good, NaN, negative mass, inconsistent, good."""
    masses = jnp.array([1.0, jnp.nan, -1.0, 1.0, 2.0])
    q = jnp.array([[0.9, 0.0]] * 3 + [[1.0, 0.0], [0.0, 0.9]])
    return masses, q


def run_mixed(mass, q, throw=False):
    system = h.Pendulum(mass=mass)
    state = mbd.State(0.0, q, jnp.zeros(2))
    return mbd.simulate(system, UK, state, t1=0.1, dt=0.01, scheme=diffrax.Euler(), throw=throw)


def test_derivatives_of_a_batch_that_is_jitted():
    """As many samples as saved steps: nothing but the values tells an exchanged axis. A particle
    falls, so that x = s^2 t and y = -g t^2 / 2 for s^2 the speed at the start."""
    times = 0.1 * jnp.arange(1.0, 5.0)

    @jax.jit
    @jax.vmap
    def path(s):
        particle = mbd.State(0.0, jnp.zeros(2), jnp.stack([s**2, 0.0 * s]))
        method, saveat = mbd.VelocityImpulse(), diffrax.SaveAt(steps=1)
        sol: Any = mbd.simulate(Particle(), method, particle, dt=0.1, num_steps=4, saveat=saveat)
        # Products along the axis of time, of what moves and what does not.
        return jax.vmap(lambda q, v: q[0] * v[0])(sol.q, sol.v)

    s = jnp.array([1.0, 2.0, 3.0, 4.0])
    _, tangents = jax.jvp(path, (s,), (jnp.ones_like(s),))
    np.testing.assert_allclose(tangents, 4 * s[:, None] ** 3 * times[None], rtol=1e-12)
    # A batch of derivatives of a batch: the outer axis meets the axis of time.
    found = jax.jit(jax.vmap(jax.jacfwd(lambda s: path(s[None])[0, -1])))(s)
    np.testing.assert_allclose(found, 1.6 * s**3, rtol=1e-12)


def test_each_sample_has_its_own_result():
    masses, q = mixed_batch()
    sol = jax.jit(jax.vmap(run_mixed))(masses, q)
    R = mbd.RESULTS
    for i, expected in enumerate([R.successful, R.nonfinite_state, None, R.inconsistent_start]):
        if expected is not None:
            assert bool((sol.result == expected)[i]), i
    assert (sol.result == R.successful).tolist() == [True, False, False, False, True]
    assert np.all(np.isfinite(sol.q)) and np.all(np.isfinite(sol.v))
    np.testing.assert_array_equal(sol.q[1:4, -1], q[1:4])  # held where they were
    for i in (0, 4):
        alone = run_mixed(masses[i], q[i])
        np.testing.assert_allclose(sol.q[i], alone.q, rtol=0, atol=1e-14)
        np.testing.assert_allclose(sol.v[i], alone.v, rtol=0, atol=1e-14)
        np.testing.assert_allclose(sol.multipliers[i], alone.multipliers, rtol=1e-13)


def test_negative_mass_in_a_batch():
    masses, q = mixed_batch()
    sol = jax.jit(jax.vmap(run_mixed))(masses, q)
    assert bool((sol.result == mbd.RESULTS.mass_matrix_indefinite)[2])


def test_throw_in_a_batch():
    masses, q = mixed_batch()
    run = eqx.filter_jit(jax.vmap(lambda m, q: run_mixed(m, q, throw=True)))
    good = jnp.array([0, 4])
    assert run(masses[good], q[good]).q.shape == (2, 1, 2)
    with pytest.raises(RuntimeError, match="violates the constraints"):
        run(masses[jnp.array([0, 3])], q[jnp.array([0, 3])])


def test_gradients_of_good_samples_survive():
    """A failed neighbour leaves the gradients of the others as they are."""
    masses, q = mixed_batch()

    def loss(mass, q):
        return jnp.sum(run_mixed(mass, q).multipliers[-1])

    gradient = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))
    together = gradient(masses, q)
    alone = gradient(masses[jnp.array([0, 4])], q[jnp.array([0, 4])])
    for a, b in zip(together, alone):
        np.testing.assert_allclose(a[np.array([0, 4])], b, rtol=1e-13)


# --- one compilation -----------------------------------------------------------------------------


class Counting(mbd.AbstractSystem):
    """Counts how often a step is traced, by the verdict on its coordinates: that is asked for in
    the step itself, while forces and constraints are traced once for all steps of a kind."""

    pendulum: h.Pendulum
    drag: float  # as a user may write it, without a converter
    calls: list = eqx.field(static=True)

    def mass_matrix(self, q):
        return self.pendulum.mass_matrix(q)

    def force(self, t, q, v, u):
        return self.pendulum.force(t, q, v, u) - self.drag * v

    def constraint(self, q, t):
        return self.pendulum.constraint(q, t)

    def result(self, q):
        self.calls.append(1)
        return super().result(q)


class Hashable(list):
    """A list that may be a static field."""

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


def calls_of(run, first, second):
    """Traces of a step in `run(first)` and in `run(second)`; the results must differ."""
    calls = Hashable()
    a = run(calls, first)
    compiled = len(calls)
    b = run(calls, second)
    assert not np.array_equal(a, b)
    return compiled, len(calls) - compiled


START = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.0, 1.0]))


def advance(calls, *, system=None, enforcement=UK, state=START, drag=0.1, **options):
    system = Counting(h.Pendulum() if system is None else system, drag, calls)
    options = {"dt": 0.01, "num_steps": 3, **options}
    if "t1" in options:
        del options["num_steps"]
    return mbd.simulate(system, enforcement, state, start_tolerance=np.inf, **options).q


class FloatFeedback(eqx.Module):
    """A control with a Python number."""

    k: float

    def __call__(self, t, q, v):
        return -self.k * v


CHANGES = {
    "parameter": (dict(system=h.Pendulum(gravity=9.81)), dict(system=h.Pendulum(gravity=3.7))),
    "python float of the system": (dict(drag=0.1), dict(drag=0.2)),
    "state": (dict(state=START), dict(state=mbd.State(0.0, np.array([0.0, 0.9]), np.ones(2)))),
    "control": (dict(control=h.Feedback(d=1.0)), dict(control=h.Feedback(d=2.0))),
    "python float of the control": (
        dict(control=FloatFeedback(1.0)),
        dict(control=FloatFeedback(2.0)),
    ),
    "dt": (dict(dt=0.01), dict(dt=0.02)),
    "t1 and dt": (dict(t1=0.04, dt=0.01), dict(t1=0.08, dt=0.02)),
    "Baumgarte": tuple(
        dict(enforcement=mbd.LagrangeMultipliers(alpha=x, beta=x), state=wide)
        for x, wide in [(1.0, START), (2.0, mbd.State(0.0, np.array([0.95, 0.0]), np.zeros(2)))]
    ),
    "relaxation": tuple(
        dict(
            enforcement=mbd.VelocityImpulse(stabilisation=mbd.Relaxation(x)),
            state=mbd.State(0.0, np.array([0.95, 0.0]), np.zeros(2)),
        )
        for x in (0.05, 0.06)
    ),
    "stiffness": tuple(dict(enforcement=mbd.ImplicitPenalty(k, 1.0)) for k in (1e3, 2e3)),
    "penalty": tuple(dict(enforcement=mbd.AugmentedLagrangian(p, 1)) for p in (1.0, 2.0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_new_values_compile_nothing(name):
    first, second = CHANGES[name]
    compiled, again = calls_of(lambda calls, options: advance(calls, **options), first, second)
    assert compiled > 0
    assert again == 0, f"the step was traced {again} times more"


def test_start_time_compiles_nothing():
    """Neither another start time: here through a control that depends on it."""
    table = h.Table(jnp.array([[0.0, 0.0], [9.0, 0.0]]))
    states = [mbd.State(t, START.q, START.v) for t in (0.0, 0.2)]
    run = lambda calls, state: advance(calls, state=state, control=table)  # noqa: E731
    compiled, again = calls_of(run, *states)
    assert compiled > 0 and again == 0


def test_other_types_do_compile():
    """So that the tests above can fail."""
    changes = dict(scheme=diffrax.Euler()), dict(scheme=diffrax.Heun())
    _, again = calls_of(lambda calls, options: advance(calls, **options), *changes)
    assert again > 0


def test_jit_of_a_function_that_simulates():
    """One trace in all, and the numbers of the direct call."""
    calls = Hashable()

    @jax.jit
    def end(system, state):
        return mbd.simulate(system, UK, state, t0=0.0, t1=0.05, dt=0.01).q[-1]

    def arguments(length):
        system = Counting(h.Pendulum(length=length), jnp.array(0.1), calls)
        return system, mbd.State(jnp.array(0.0), jnp.array([length, 0.0]), jnp.zeros(2))

    end(*arguments(0.9))
    traced = len(calls)
    result = end(*arguments(0.8))
    assert len(calls) == traced
    system, state = arguments(0.8)
    direct = mbd.simulate(system, UK, state, t1=0.05, dt=0.01).q[-1]
    np.testing.assert_allclose(result, direct, rtol=0, atol=1e-15)


# --- float32 -------------------------------------------------------------------------------------


def differences_in_float32(case, method, **options):
    """Largest differences of q and v to float64 over all saved times; everything stays float32."""
    case, method = h.CASES[case], h.method(method)
    options = {"dt": 0.01, "num_steps": 20, "saveat": diffrax.SaveAt(steps=4, t0=True), **options}

    def run(dtype):
        system, control, state, enforcement, projection = h.cast(
            (case.system, case.control, case.state, method.enforcement, method.projection), dtype
        )
        return mbd.simulate(
            system, enforcement, state, control=control, projection=projection, **options
        )

    single, double = run(jnp.float32), run(jnp.float64)
    for name in ("t", "q", "v", "multipliers", "phi_norm", "phidot_norm"):
        assert getattr(single, name).dtype == jnp.float32, name
        assert getattr(double, name).dtype == jnp.float64, name
    q, v = single.q - double.q.astype(jnp.float32), single.v - double.v.astype(jnp.float32)
    return np.max(np.abs(q)), np.max(np.abs(v))


@pytest.mark.parametrize("method", h.slow_unless(lambda m: m not in h.VARIANTS, h.METHODS))
def test_float32(method):
    """20 steps of a pendulum with positions of size 1 and velocities of size 3. Rounding is 6e-8;
    forces K Phi and Phi / h bring it into the velocity at 1e-6, and the matrix M + a J^T J of the
    augmented Lagrangian, with a = 2e3, has a condition number of 5e3. The share s of the passive
    feedback follows from Phi / h relative to velocities of 0.02, where it is below 1 (the last
    three steps), and so has an error of 6e-4 there: 1e-5 in the velocity of each step."""
    ill_conditioned = method.startswith("augmented")
    q, v = differences_in_float32("pendulum", method, start_tolerance=1e-5)
    assert q < (2e-5 if ill_conditioned else 1e-6)
    assert v < (2e-4 if ill_conditioned else 5e-5 if method == "impulse" else 5e-6)


@pytest.mark.parametrize(
    "case",
    [
        "driven_pendulum",
        "skate_in_space",
        pytest.param("redundant_pendulum", marks=pytest.mark.slow),
    ],
)
def test_float32_of_other_systems(case):
    q, v = differences_in_float32(
        case, "udwadia_kalaba", start_tolerance=1e-5, scheme=diffrax.Euler()
    )
    assert q < 1e-6 and v < 3e-6


@pytest.mark.parametrize(
    "solver", h.slow_unless(lambda s: s in ("pseudoinverse", "proximal"), h.SOLVERS)
)
def test_float32_of_the_gradient(solver):
    """Reverse mode in float32: its own dtype, and 1e-5 of the float64 gradient."""

    def loss(system):
        start = mbd.State(0.0, jnp.array([0.9, 0.0], system.mass.dtype), [0.0, 0.0])
        start = h.cast(start, system.mass.dtype)
        sol = mbd.simulate(
            system,
            mbd.UdwadiaKalaba(h.SOLVERS[solver]),
            start,
            dt=0.01,
            num_steps=20,
            scheme=diffrax.Euler(),
        )
        return sol.q[-1, 0] + sol.v[-1, 0]

    gradient = eqx.filter_jit(eqx.filter_grad(loss))
    single, double = (gradient(h.cast(h.Pendulum(), d)) for d in (jnp.float32, jnp.float64))
    for a, b in zip(jax.tree.leaves(single), jax.tree.leaves(double)):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_float32_of_assembly():
    system = h.cast(h.Pendulum(), jnp.float32)
    state = mbd.assemble(system, np.array([1.0, 0.2], np.float32), np.ones(2, np.float32))
    assert state.q.dtype == state.v.dtype == jnp.float32
    expected = 0.9 * np.array([1.0, 0.2]) / np.hypot(1.0, 0.2)
    np.testing.assert_allclose(state.q, expected, rtol=1e-6)
    assert abs(state.q @ state.v) < 1e-6


def test_all_at_once_where_loops_cost(monkeypatch):
    """As on a GPU, `vmap` takes all samples at once: each moves as it does alone."""
    system, starts = h.Pendulum(), jnp.array([0.1, 0.4, 0.7])

    def end(angle):
        q = system.length * jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
        state = mbd.State(0.0, q, jnp.zeros(2))
        return mbd.simulate(system, mbd.UdwadiaKalaba(), state, dt=1e-2, num_steps=20).q[-1]

    alone = jnp.stack([end(angle) for angle in starts])
    monkeypatch.setattr(_loop, "loops_cost_nothing", lambda: False)
    np.testing.assert_allclose(jax.vmap(end)(starts), alone, rtol=1e-11)
