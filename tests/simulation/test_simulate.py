"""Times, saving, steps, controls, progress meters and memory of `simulate`."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

SaveAt = diffrax.SaveAt
UK = mbd.UdwadiaKalaba()
ADAPTIVE = diffrax.PIDController(rtol=1e-8, atol=1e-8)


def run(case, enforcement=UK, *, state=None, **options):
    """A case from its start, in one jitted call."""
    case = h.CASES[case]
    state = case.state if state is None else state
    options = {"control": case.control, "start_tolerance": 1e-9, **options}
    return mbd.simulate(case.system, enforcement, state, **options)


class Drop(mbd.AbstractSystem):
    """Free fall: every Runge-Kutta scheme from order 2 on is exact."""

    gravity: jax.Array = h.parameter(9.81)

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.gravity[None]


class Counter(mbd.AbstractSystem):
    """v' = 2 t: q and v tell the time, to rounding, with any scheme of order 3."""

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return 2 * jnp.asarray(t, q.dtype)[None]


def count(t0=0.0, **options):
    start = mbd.State(t0, jnp.array([t0**3 / 3]), jnp.array([t0**2]))
    sol = mbd.simulate(Counter(), UK, start, **options)
    np.testing.assert_allclose(sol.v[:, 0], sol.t**2, rtol=0, atol=1e-14)
    np.testing.assert_allclose(sol.q[:, 0], sol.t**3 / 3, rtol=0, atol=1e-14)
    return sol


# --- which times ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "saveat, expected",
    [
        (SaveAt(t1=True), [1.5]),
        (SaveAt(t0=True), [0.5]),
        (SaveAt(t0=True, t1=True), [0.5, 1.5]),
        (SaveAt(steps=True), np.linspace(0.6, 1.5, 10)),
        (SaveAt(steps=True, t0=True), np.linspace(0.5, 1.5, 11)),
        (SaveAt(steps=True, t1=True), np.linspace(0.6, 1.5, 10)),  # the end only once
        (SaveAt(steps=5), [1.0, 1.5]),
        (SaveAt(steps=4), [0.9, 1.3]),
        (SaveAt(steps=4, t1=True), [0.9, 1.3, 1.5]),
        (SaveAt(steps=11), []),  # fewer steps than that
        (SaveAt(ts=[0.5, 0.6, 1.5]), [0.5, 0.6, 1.5]),  # on the grid, both ends
        (SaveAt(ts=[0.51, 0.523, 0.599, 1.1, 1.4999]), [0.51, 0.523, 0.599, 1.1, 1.4999]),
        (SaveAt(ts=[0.7, 0.7, 0.75, 0.75]), [0.7, 0.7, 0.75, 0.75]),  # twice the same
        (SaveAt(ts=[0.77], t0=True, t1=True), [0.5, 0.77, 1.5]),
        (SaveAt(ts=np.linspace(0.5, 1.5, 41)), np.linspace(0.5, 1.5, 41)),  # finer than the steps
    ],
    ids=["t1", "t0", "both", "steps", "steps t0", "steps t1", "5th", "4th", "4th t1", "11th"]
    + ["on grid", "off grid", "twice", "ts and ends", "finer"],
)
def test_saved_times(saveat, expected):
    """Times, shapes and states of all ways to save, from t = 0.5 to 1.5 in steps of 0.1."""
    sol = count(0.5, t1=1.5, dt=0.1, saveat=saveat)
    np.testing.assert_allclose(sol.t, expected, rtol=0, atol=1e-15)
    n = len(expected)
    assert sol.q.shape == sol.v.shape == (n, 1)
    assert sol.phi_norm.shape == sol.phidot_norm.shape == (n,)
    assert sol.multipliers.shape == (n, 0)
    assert sol.ys is None
    assert int(sol.stats["num_steps"]) == 10


@pytest.mark.parametrize(
    "saveat, expected",
    [
        (SaveAt(t0=True, t1=True), [0.0, 1.05]),
        (SaveAt(steps=True), [0.3, 0.6, 0.9]),
        (SaveAt(steps=True, t1=True), [0.3, 0.6, 0.9, 1.05]),
        (SaveAt(ts=[0.9, 0.95, 1.05], t1=True), [0.9, 0.95, 1.05, 1.05]),
    ],
    ids=["ends", "steps", "steps and end", "times"],
)
def test_last_step_is_shorter(saveat, expected):
    """t1 = 1.05 is no multiple of dt = 0.3: the motion still ends at t1 exactly."""
    sol = count(t1=1.05, dt=0.3, saveat=saveat)
    np.testing.assert_allclose(sol.t, expected, rtol=0, atol=1e-15)
    assert int(sol.stats["num_steps"]) == 4


def test_one_step_longer_than_the_motion():
    sol = count(t1=0.2, dt=1.0, saveat=SaveAt(t1=True))
    assert sol.t.tolist() == [0.2]


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_number_of_steps(steps):
    sol = count(num_steps=steps, dt=0.1, saveat=SaveAt(t0=True, t1=True))
    np.testing.assert_allclose(sol.t, [0, 0.1 * steps], rtol=0, atol=1e-15)
    assert int(sol.stats["num_steps"]) == steps


def test_rounding_makes_no_extra_step():
    """0.3 / 0.1 = 2.9999999999999996 is three steps."""
    sol = count(t1=0.3, dt=0.1, saveat=SaveAt(steps=True))
    assert int(sol.stats["num_steps"]) == 3 and sol.t.shape == (3,)


def test_integer_times():
    start = mbd.State(0, jnp.zeros(1), jnp.zeros(1))
    sol = mbd.simulate(Counter(), UK, start, t1=2, dt=1)
    assert sol.t.dtype == sol.q.dtype == jnp.float64
    np.testing.assert_allclose(sol.v[0, 0], 4.0, rtol=1e-15)


def test_start_time_given_apart():
    """`t0=` for a state that is traced."""

    @jax.jit
    def end(state):
        sol = mbd.simulate(Counter(), UK, state, t0=0.5, t1=1.0, dt=0.1)
        return sol.t[-1], sol.v[-1]

    t, v = end(mbd.State(jnp.array(0.5), jnp.array([0.5**3 / 3]), jnp.array([0.25])))
    np.testing.assert_allclose((t, v[0]), (1.0, 1.0), rtol=1e-15)


def test_restart():
    """A motion in two halves is the motion in one: `Solution.state` carries everything on."""
    whole = run("driven_pendulum", t1=0.2, dt=0.01)
    half = run("driven_pendulum", t1=0.1, dt=0.01)
    state = half.state()
    assert float(state.t) == 0.1
    rest = run("driven_pendulum", state=state, t1=0.2, dt=0.01, start_tolerance=1e-6)
    np.testing.assert_allclose(rest.q, whole.q, rtol=0, atol=1e-15)
    np.testing.assert_allclose(rest.v, whole.v, rtol=0, atol=1e-14)


# --- what is saved -------------------------------------------------------------------------------


def test_saved_function():
    """`fn(t, state, system)`: here the energy, constant to the error of the scheme."""
    case = h.CASES["pendulum"]

    def energy(t, state, system):
        assert isinstance(state, mbd.State) and isinstance(system, h.Pendulum)
        return {"energy": case.conserved(state.q, state.v), "t": (t, state.t)}

    saveat = SaveAt(t0=True, steps=5, ts=None, t1=True, fn=energy)
    sol = run("pendulum", t1=0.2, dt=0.01, saveat=saveat)
    assert sol.q is sol.v is sol.multipliers is sol.phi_norm is sol.phidot_norm is None
    np.testing.assert_allclose(sol.t, [0, 0.05, 0.1, 0.15, 0.2], rtol=0, atol=1e-15)
    for t in sol.ys["t"]:
        assert np.array_equal(t, sol.t)
    start = case.conserved(case.state.q, case.state.v)
    np.testing.assert_allclose(sol.ys["energy"], np.full(5, start), rtol=1e-6)
    with pytest.raises(ValueError, match="SaveAt"):
        sol.state()


def test_multipliers_and_norms():
    """lam of M a = f + J^T lam: centripetal and gravity load of the exact pendulum; norms are 0."""
    case = h.CASES["pendulum"]
    sol = run("pendulum", t1=0.5, dt=2e-3, saveat=SaveAt(ts=[0.0, 0.1234, 0.5]))
    q, v = case.motion(sol.t)
    p = case.system
    # J = 2 q^T; q . (m a) = -m v^2 = -m g y + 2 l^2 lam
    lam = p.mass * (p.gravity * q[:, 1] - np.sum(v**2, axis=1)) / (2 * p.length**2)
    np.testing.assert_allclose(sol.multipliers[:, 0], lam, rtol=1e-8)
    np.testing.assert_allclose(sol.q, q, rtol=0, atol=1e-9)
    violation = np.sum(np.square(sol.q), axis=1) - p.length**2
    np.testing.assert_allclose(sol.phi_norm, np.abs(violation), rtol=0, atol=1e-15)
    rate = 2 * np.sum(sol.q * sol.v, axis=1)
    np.testing.assert_allclose(sol.phidot_norm, np.abs(rate), rtol=0, atol=1e-14)
    assert np.all(sol.phi_norm < 1e-10) and np.all(sol.phidot_norm < 1e-10)


@pytest.mark.parametrize(
    "name, order",
    [
        ("udwadia_kalaba", 4),
        ("impulse", 1),
        pytest.param("baumgarte", 4, marks=pytest.mark.slow),
    ],
)
def test_times_between_steps_have_the_order_of_the_method(name, order):
    """Half-way between grid points the error shrinks with h as on the grid."""
    case, method = h.CASES["driven_pendulum"], h.method(name)
    ts = np.array([0.1375, 0.3875])
    exact = case.motion(ts)

    @eqx.filter_jit
    def error(dt, steps):
        options = dict(dt=dt, num_steps=steps, saveat=SaveAt(ts=ts))
        sol = method.simulate(case.system, case.state, **options)
        return jnp.max(jnp.abs(jnp.concatenate([sol.q - exact[0], sol.v - exact[1]])))

    ratio = 2 if order == 4 else 5
    coarse, fine = 16, 16 * ratio
    errors = [float(error(jnp.asarray(0.4 / n), n)) for n in (coarse, fine)]
    assert abs(np.log(errors[0] / errors[1]) / np.log(ratio) - order) < 0.3, errors
    assert errors[1] < (1e-6 if order == 4 else 1e-1)


# --- steps ---------------------------------------------------------------------------------------


def test_adaptive_equals_fixed():
    """To the tolerance of the controller, against the exact motion, at the end and between."""
    case = h.CASES["driven_pendulum"]
    ts = [0.2, 0.35, 0.5]
    options = dict(t1=0.5, dt=1e-2, scheme=diffrax.Dopri5(), saveat=SaveAt(ts=ts))
    adaptive = run("driven_pendulum", stepsize_controller=ADAPTIVE, **options)
    q, v = case.motion(np.array(ts))
    np.testing.assert_allclose(adaptive.t, ts)
    # The end is reached by steps, the others by the scheme's interpolation of fourth order.
    np.testing.assert_allclose(adaptive.q[-1], q[-1], rtol=0, atol=1e-7)
    np.testing.assert_allclose(adaptive.v[-1], v[-1], rtol=0, atol=1e-7)
    np.testing.assert_allclose(adaptive.q, q, rtol=0, atol=1e-6)
    assert int(adaptive.stats["num_accepted_steps"]) < 60
    assert adaptive.phi_norm[-1] < 1e-8


def test_constant_controller_is_fixed_steps():
    plain = run("pendulum", t1=0.05, dt=0.01)
    constant = run("pendulum", t1=0.05, dt=0.01, stepsize_controller=diffrax.ConstantStepSize())
    assert np.array_equal(plain.q, constant.q)


def test_adaptive_steps_saved():
    """Every accepted step: times increase from the first to t1, the states lie on the motion."""
    case = h.CASES["pendulum"]
    sol = run(
        "pendulum",
        t1=0.2,
        dt=1e-3,
        scheme=diffrax.Tsit5(),
        stepsize_controller=ADAPTIVE,
        saveat=SaveAt(steps=True),
        max_steps=100,
    )
    taken = int(sol.stats["num_accepted_steps"])
    t = np.asarray(sol.t)[:taken]
    assert 3 < taken < 100 and np.all(np.diff(t) > 0) and t[-1] == 0.2
    np.testing.assert_allclose(sol.q[:taken], case.motion(t)[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("n", [1023, 1024, 1025, 1031, 2048, 5000])
def test_long_loops(n):
    """More than 1024 steps run in chunks: 1031 is prime, 1025 = 25 x 41, 2048 has no integer root.
    Free fall is exact, so a step too many or too few, or a time shift, shows."""
    dt = 1.0 / n
    saveat = SaveAt(ts=[0.25, 0.5], steps=0, t1=True)
    start = mbd.State(0.0, jnp.zeros(1), jnp.zeros(1))
    sol = mbd.simulate(Counter(), UK, start, dt=dt, num_steps=n, saveat=saveat)
    np.testing.assert_allclose(sol.v[:, 0], [0.0625, 0.25, 1.0], rtol=1e-12)
    np.testing.assert_allclose(sol.q[:, 0], np.array([0.25, 0.5, 1.0]) ** 3 / 3, rtol=1e-12)
    assert int(sol.stats["num_steps"]) == n


@pytest.mark.parametrize("n, every", [(1031, 1), (1031, 10), (2100, 2)])
def test_steps_saved_in_long_loops(n, every):
    saveat = SaveAt(steps=every)
    sol = count(num_steps=n, dt=1.0 / n, saveat=saveat)
    assert sol.t.shape == (n // every,)
    np.testing.assert_allclose(sol.t, every / n * np.arange(1, n // every + 1), rtol=1e-14)


def test_long_loop_equals_short_loops():
    """1100 steps in chunks give the numbers of 11 times 100 steps."""
    case = h.CASES["pendulum"]

    @eqx.filter_jit
    def advance(state, steps):
        sol = mbd.simulate(case.system, UK, state, dt=1e-3, num_steps=steps)
        return mbd.State(jnp.asarray(0.0), sol.q[-1], sol.v[-1])

    state = mbd.State(jnp.asarray(0.0), case.state.q, case.state.v)
    long, short = advance(state, 1100), state
    for _ in range(11):
        short = advance(short, 100)
    np.testing.assert_allclose(long.q, short.q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(long.v, short.v, rtol=0, atol=1e-12)


# --- controls ------------------------------------------------------------------------------------


def test_open_loop_table():
    """A force that grows linearly from the table: v' = t / m, to rounding in RK4."""
    free = h.GuidedMass(mass=2.0, stiffness=0.0, damping=0.0, angle=0.0, gravity=0.0)
    table = h.Table(jnp.array([[0.0, 5.0], [0.5, 5.0], [1.0, 5.0]]), duration=1.0)
    start = mbd.State(0.0, jnp.zeros(2), jnp.zeros(2))
    sol = mbd.simulate(free, UK, start, t1=1.0, dt=0.1, control=table)
    np.testing.assert_allclose(sol.v[0], [0.25, 0.0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(sol.q[0], [1 / 12, 0.0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(sol.multipliers[0], [5.0], rtol=1e-14)  # row -y: y'' = 0 = 5 - lam


@pytest.mark.parametrize("name", ["udwadia_kalaba", "multipliers", "impulse"])
def test_feedback(name):
    """A spring and damper as a control act as those of the system do."""
    options = dict(t1=0.3, dt=0.01)
    method = h.method(name)
    passive, controlled = (
        method.simulate(c.system, c.state, control=c.control, **options)
        for c in (h.CASES["guided_mass"], h.CASES["controlled_mass"])
    )
    np.testing.assert_allclose(passive.q, controlled.q, rtol=0, atol=1e-14)
    np.testing.assert_allclose(passive.v, controlled.v, rtol=0, atol=1e-14)


def test_neural_control(getkey):
    """An untrained network with zeroed last layer is its bias: a constant force."""
    control = h.neural(getkey())
    last = lambda c: (c.mlp.layers[-1].weight, c.mlp.layers[-1].bias)  # noqa: E731
    control = eqx.tree_at(last, control, (jnp.zeros((2, 4)), jnp.array([3.0, 0.0])))
    free = h.GuidedMass(mass=2.0, stiffness=0.0, damping=0.0, angle=0.0, gravity=0.0)
    start = mbd.State(0.0, jnp.zeros(2), jnp.zeros(2))
    sol = mbd.simulate(free, UK, start, t1=1.0, dt=0.1, control=control)
    np.testing.assert_allclose(sol.v[0], [1.5, 0.0], rtol=0, atol=1e-14)


# --- progress ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 1031])
def test_progress_meter(n, capfd):
    """It changes nothing, reaches 100 % and works under vmap and grad."""

    def end(x, meter):
        start = mbd.State(0.0, x[None], jnp.zeros(1))
        sol = mbd.simulate(Drop(), UK, start, dt=1.0 / n, num_steps=n, progress=meter)
        return sol.q[-1, 0] ** 2

    meter = diffrax.TextProgressMeter()
    x = jnp.array([1.0, 2.0])
    expected = (np.asarray(x) - 9.81 / 2) ** 2
    plain = end(x[0], diffrax.NoProgressMeter())
    watched = jax.jit(lambda x: end(x, meter))(x[0])
    jax.effects_barrier()
    assert "100" in capfd.readouterr().out
    np.testing.assert_allclose([plain, watched], expected[0], rtol=1e-12)
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(lambda x: end(x, meter))))(x)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_allclose(slopes, 2 * (np.asarray(x) - 9.81 / 2), rtol=1e-12)
    jax.effects_barrier()
    assert "100" in capfd.readouterr().out


def test_progress_meter_of_adaptive_steps(capfd):
    run(
        "oscillator",
        t1=0.1,
        dt=0.01,
        scheme=diffrax.Tsit5(),
        stepsize_controller=ADAPTIVE,
        progress=diffrax.TextProgressMeter(),
    )
    jax.effects_barrier()
    assert "100" in capfd.readouterr().out


# --- memory --------------------------------------------------------------------------------------


def reverse_memory(n, adjoint, enforcement=UK):
    """Bytes of temporaries in the gradient of the pendulum's end with respect to everything."""
    case = h.CASES["pendulum"]

    def end(tree):
        system, state = tree
        sol = mbd.simulate(
            system, enforcement, state, t0=0.0, t1=n * 1e-3, dt=1e-3, adjoint=adjoint
        )
        return jnp.sum(sol.q[-1])

    tree = (case.system, jax.tree.map(jnp.asarray, case.state))
    compiled = jax.jit(jax.grad(end)).lower(tree).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_forward_memory_does_not_grow():
    """A motion of which only the end is kept needs the memory of one step."""
    case = h.CASES["pendulum"]

    def end(system, n):
        return mbd.simulate(system, UK, case.state, dt=1e-3, num_steps=n).q[-1]

    compiled = jax.jit(end, static_argnums=1).lower(case.system, 65536).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 50_000


def test_reverse_memory_grows_like_the_root():
    """16 times the steps: 4 times the memory with checkpoints."""
    adjoint = diffrax.RecursiveCheckpointAdjoint()
    small, large = (reverse_memory(n, adjoint) for n in (4096, 65536))
    assert large / small < 6, (small, large)


@pytest.mark.slow
def test_reverse_memory_of_a_long_motion():
    adjoint = diffrax.RecursiveCheckpointAdjoint()
    assert reverse_memory(100_000, adjoint) < 200e6


@pytest.mark.slow
def test_direct_adjoint_keeps_everything():
    """So that the test above can fail: without checkpoints memory is proportional to n."""
    small, large = (reverse_memory(n, diffrax.DirectAdjoint()) for n in (4096, 65536))
    assert large / small > 12, (small, large)
