"""Times, saving, steps, controls, progress meters and memory of `simulate`."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._compiler import to_jax

SaveAt = diffrax.SaveAt
UK, HEUN, MIDPOINT = mbd.UdwadiaKalaba(), diffrax.Heun(), h.midpoint()
ADAPTIVE = diffrax.PIDController(rtol=1e-8, atol=1e-8)


def run(case, enforcement=UK, **options):
    """A case from its start."""
    case = h.CASES[case]
    sol = mbd.simulate(case.system, enforcement, case.state, control=case.control, **options)
    return jax.device_get(sol)


class Counter(mbd.AbstractSystem):
    """v' = 2 t: q and v tell the time, to rounding, with any scheme of order 3."""

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return 2 * jnp.asarray(t, q.dtype)[None]


def count(t0=0.0, **options):
    start = mbd.State(t0, np.array([t0**3 / 3]), np.array([t0**2], float))
    sol = mbd.simulate(Counter(), UK, start, **options)
    saved = np.isfinite(sol.t)  # adaptive steps may leave room
    t, q, v = (np.asarray(x)[saved] for x in (sol.t, sol.q, sol.v))
    np.testing.assert_allclose(v[:, 0], t**2, rtol=0, atol=1e-14)
    np.testing.assert_allclose(q[:, 0], t**3 / 3, rtol=0, atol=1e-14)
    return sol


WHOLE = dict(t0=0.5, t1=1.5, dt=0.1)
SHORTER = dict(t1=1.05, dt=0.3)  # no multiple: the last step ends at t1


@pytest.mark.parametrize(
    "options, saveat, expected, steps",
    [
        (WHOLE, SaveAt(t0=True, t1=True), [0.5, 1.5], 10),
        (WHOLE, SaveAt(steps=True, t0=True), np.linspace(0.5, 1.5, 11), 10),
        (WHOLE, SaveAt(steps=True, t1=True), np.linspace(0.6, 1.5, 10), 10),  # the end once
        (WHOLE, SaveAt(steps=4), [0.9, 1.3], 10),
        (WHOLE, SaveAt(steps=4, t1=True), [0.9, 1.3, 1.5], 10),
        (WHOLE, SaveAt(steps=11), [], 10),  # fewer steps than that
        (WHOLE, SaveAt(ts=to_jax([0.5, 0.6, 1.5])), [0.5, 0.6, 1.5], 10),  # on the grid, both ends
        (
            WHOLE,
            SaveAt(ts=to_jax([0.51, 0.523, 0.7, 0.75, 0.75, 1.4999]), t0=True, t1=True),
            [0.5, 0.51, 0.523, 0.7, 0.75, 0.75, 1.4999, 1.5],
            10,
        ),
        (SHORTER, SaveAt(steps=True, t1=True), [0.3, 0.6, 0.9, 1.05], 4),
        (SHORTER, SaveAt(ts=to_jax([0.9, 0.95, 1.05]), t1=True), [0.9, 0.95, 1.05, 1.05], 4),
        (dict(t1=0.2, dt=1.0), SaveAt(t1=True), [0.2], 1),
        (dict(t1=0.3, dt=0.1), SaveAt(steps=True), [0.1, 0.2, 0.3], 3),  # 2.9999999999999996
        (
            dict(t1=0.3, dt=0.1, stepsize_controller=diffrax.ConstantStepSize()),
            SaveAt(t1=True),
            [0.3],
            3,
        ),
        (dict(t0=0, t1=2, dt=1), SaveAt(t1=True), [2.0], 2),  # whole numbers
    ],
)
def test_saved_times(options, saveat, expected, steps):
    """Times, shapes and states of all ways to save."""
    sol = count(**options, saveat=saveat)
    np.testing.assert_allclose(sol.t, expected, rtol=0, atol=1e-15)
    n = len(expected)
    assert sol.t.dtype == sol.q.dtype == np.float64
    assert sol.q.shape == sol.v.shape == (n, 1)
    assert sol.phi_norm.shape == sol.phidot_norm.shape == (n,)
    assert sol.multipliers.shape == (n, 0)
    assert sol.ys is None
    assert int(sol.stats["num_steps"]) == steps


def test_start_time_given_apart():
    """`t0=` for a state that is traced."""

    @jax.jit
    def end(state):
        sol = mbd.simulate(Counter(), UK, state, t0=0.5, t1=1.0, dt=0.1)
        return sol.t[-1], sol.v[-1, 0]

    state = mbd.State(np.array(0.5), np.array([0.5**3 / 3]), np.array([0.25]))
    np.testing.assert_allclose(end(state), (1.0, 1.0), rtol=1e-15)


@pytest.mark.parametrize("n, every", [(1025, None), (1031, 10), (2048, None), (2100, 2)])
def test_long_loops(n, every):
    """More than 1024 steps run in chunks: 1031 is prime, 1025 = 25 x 41, 2048 has no integer root.
    A step too many or too few, or a time shift, shows."""
    ts = jax.device_put(np.array([0.25, 0.5]))
    saveat = SaveAt(ts=ts, t1=True) if every is None else SaveAt(steps=every)
    sol = count(dt=1.0 / n, num_steps=n, saveat=saveat)
    times = [0.25, 0.5, 1.0] if every is None else np.arange(every, n + 1, every) / n
    np.testing.assert_allclose(sol.t, times, rtol=1e-12)
    assert int(sol.stats["num_steps"]) == n


def test_saved_function():
    """`fn(t, state, system)`: here the energy, constant to the error of the scheme."""

    def energy(t, state, system):
        assert isinstance(state, mbd.State) and isinstance(system, h.Pendulum)
        energy = system.mass * (state.v @ state.v / 2 + system.gravity * state.q[1])
        return {"energy": energy, "t": (t, state.t)}

    saveat = SaveAt(t0=True, steps=5, ts=None, t1=True, fn=energy)
    sol = run("pendulum", t1=0.2, dt=0.01, saveat=saveat)
    assert sol.q is sol.v is sol.multipliers is sol.phi_norm is sol.phidot_norm is None
    np.testing.assert_allclose(sol.t, [0, 0.05, 0.1, 0.15, 0.2], rtol=0, atol=1e-15)
    for t in sol.ys["t"]:
        np.testing.assert_array_equal(t, sol.t)
    energies = np.asarray(sol.ys["energy"])  # from rest, 2 rad from the lowest point
    np.testing.assert_allclose(energies, -1.2 * 9.81 * 0.9 * np.cos(2.0), rtol=1e-6)
    with pytest.raises(ValueError, match="SaveAt"):
        sol.state()


def test_multipliers_and_norms():
    """lam of M a = f + J^T lam: centripetal and gravity load of the exact pendulum; norms are 0."""
    case = h.CASES["pendulum"]
    sol = run(
        "pendulum", t1=0.5, dt=2e-3, saveat=SaveAt(ts=jax.device_put(np.array([0.0, 0.1234, 0.5])))
    )
    q, v = case.motion(sol.t)
    mass, length, gravity = 1.2, 0.9, 9.81
    # J = 2 q^T; q . (m a) = -m v^2 = -m g y + 2 l^2 lam
    lam = mass * (gravity * q[:, 1] - np.sum(v**2, axis=1)) / (2 * length**2)
    np.testing.assert_allclose(sol.multipliers[:, 0], lam, rtol=1e-8)
    np.testing.assert_allclose(sol.q, q, rtol=0, atol=1e-9)
    for i, state in ((-1, sol.state()), (1, sol.state(1))):
        for x, all_of_them in ((state.t, sol.t), (state.q, sol.q), (state.v, sol.v)):
            np.testing.assert_array_equal(x, all_of_them[i])
    violation = np.sum(sol.q**2, axis=1) - length**2
    np.testing.assert_allclose(sol.phi_norm, np.abs(violation), rtol=0, atol=1e-15)
    rate = 2 * np.sum(sol.q * sol.v, axis=1)
    np.testing.assert_allclose(sol.phidot_norm, np.abs(rate), rtol=0, atol=1e-14)
    assert np.max(np.abs(violation)) < 1e-10 and np.max(np.abs(rate)) < 1e-10


@pytest.mark.parametrize(
    "case, method, order",
    [
        ("driven_pendulum", UK, 4),
        ("driven_pendulum", mbd.VelocityImpulse(), 1),
        ("oscillator", mbd.GeneralisedAlpha(), 2),
    ],
)
def test_times_between_steps_have_the_order_of_the_method(case, method, order):
    """Beside the middle of a step the error shrinks as on the grid."""
    ts = np.array([0.1355, 0.3855])
    q, v = h.CASES[case].motion(ts)
    errors = []
    for dt in (0.025, 0.025 / 3):
        sol = run(case, method, dt=dt, num_steps=48, saveat=SaveAt(ts=to_jax(ts)))
        errors.append(np.max(np.abs(np.concatenate([sol.q - q, sol.v - v]))))
    assert abs(np.log(errors[0] / errors[1]) / np.log(3) - order) < 0.3, errors
    assert errors[1] < {4: 1e-6, 2: 1e-2, 1: 1e-1}[order]


def test_adaptive_steps():
    """Against the exact motion, at both ends and, by interpolation, between steps."""
    ts = np.array([0.0, 0.2, 0.35, 0.5])
    saveat = SaveAt(t0=True, ts=jax.device_put(ts[1:]))
    q, v = h.CASES["driven_pendulum"].motion(ts)
    options = dict(t1=0.5, dt=1e-2, scheme=diffrax.Bosh3(), saveat=saveat)
    sol = run("driven_pendulum", stepsize_controller=ADAPTIVE, **options)
    np.testing.assert_allclose(sol.t, ts)
    np.testing.assert_allclose(sol.v[-1], v[-1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(sol.q, q, rtol=0, atol=1e-6)
    assert 20 < int(sol.stats["num_accepted_steps"]) < 1000
    assert sol.phi_norm[-1] < 1e-8


def test_adaptive_steps_saved():
    """Every accepted step: times increase from the first to t1, the states lie on the motion."""
    options = dict(scheme=diffrax.Bosh3(), stepsize_controller=ADAPTIVE, max_steps=100)
    sol = count(t1=0.2, dt=1e-3, saveat=SaveAt(steps=True), **options)
    taken = int(sol.stats["num_accepted_steps"])
    t = np.asarray(sol.t)[:taken]
    assert 3 < taken < 100 and np.all(np.diff(t) > 0) and t[-1] == 0.2


def test_progress_meter(capfd):
    """It changes nothing, reaches 100 % and works under vmap and grad, and with adaptive steps."""
    meter, x = dict(progress=diffrax.TextProgressMeter()), np.array([1.0, 2.0])

    def end(x):
        start = mbd.State(0.0, x[None], jnp.zeros(1))
        sol = mbd.simulate(Counter(), UK, start, dt=1.0 / 1031, num_steps=1031, **meter)
        return sol.q[-1, 0] ** 2

    def adaptive():
        run("oscillator", t1=0.1, dt=0.01, scheme=HEUN, stepsize_controller=ADAPTIVE, **meter)

    def plain():
        np.testing.assert_allclose(jax.jit(end)(x[0]), (x[0] + 1 / 3) ** 2, rtol=1e-12)

    def batched():
        values, slopes = jax.jit(jax.vmap(jax.value_and_grad(end)))(x)
        np.testing.assert_allclose(values, (x + 1 / 3) ** 2, rtol=1e-12)
        np.testing.assert_allclose(slopes, 2 * (x + 1 / 3), rtol=1e-12)

    for call in (adaptive, plain, batched):
        call()
        jax.effects_barrier()
        assert "100" in capfd.readouterr().out


def memory(n, adjoint=None):
    """Bytes of temporaries for the end of a motion, or with an adjoint for its gradient."""
    case = h.CASES["oscillator"]

    def end(system):
        options = {} if adjoint is None else dict(adjoint=adjoint)
        sol = mbd.simulate(system, UK, case.state, dt=1e-3, num_steps=n, scheme=MIDPOINT, **options)
        return jnp.sum(sol.q[-1])

    program = jax.jit(end if adjoint is None else jax.grad(end)).lower(case.system)
    return program.compile().memory_analysis().temp_size_in_bytes


STEPS = 65536


def test_memory():
    """That of one step for a motion of which only the end is kept; with checkpoints less than one
    number a step."""
    assert memory(STEPS) < 50_000
    assert memory(STEPS, diffrax.RecursiveCheckpointAdjoint()) < 8 * STEPS
