"""`Stepper`: the step that `simulate` takes, for loops of one's own."""

import cart_pole_environment
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from diffrax import SaveAt
from helpers import (
    COMPILED,
    Ball,
    Oscillator,
    Pendulum,
    assert_verdicts,
    both_modes,
    compilation_events,
    midpoint,
)

import jaxmbd as mbd

DT, R = 1e-3, mbd.RESULTS
PENDULUM = Pendulum()
SWINGING = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.0, -0.3]))
UK, IMPULSE = mbd.UdwadiaKalaba(), mbd.VelocityImpulse()
BALL = Ball(*map(np.asarray, (1.0, 0.3, 0.6)))


class Tether(Pendulum):
    """A point that falls until a string is taut, and hangs on it from then on."""

    def switch(self, q, v, t, active):
        return active | (jnp.sum(q**2) > self.length**2)


class Pushed(Oscillator):
    """A free mass on a line."""

    def force(self, t, q, v, u):
        return u


class Push(eqx.Module):
    """A force that depends on all it may depend on."""

    size: float = 0.4

    def __call__(self, t, q, v):
        return self.size * jnp.stack([jnp.sin(9 * t) + q[1], v[0]])


def falling(height):
    return mbd.State(0.0, np.array([0.1, height]), np.array([0.3, 0.0]))


@eqx.filter_jit
def scanned(stepper, state, control, steps, dt=DT):
    def step(state, _):
        state = stepper.step(state, dt, control)
        return state, state

    states = jax.lax.scan(step, stepper.init(state), None, length=steps)[1]
    last = jax.tree.map(lambda x: x[-1], states)
    return states, last, stepper.multipliers(last, control)


# They differ in what is kept from step to step.
CASES = {
    "contact": (BALL, falling(0.01), mbd.ContactImpulse(), None),
    "switched": (Tether(length=1.0), falling(-0.97), UK, midpoint()),
}


@pytest.mark.parametrize("case", CASES)
def test_simulate_is_a_scan_over_steps(case):
    """Bit for bit, with a step that floating point does not hold exactly."""
    system, state, enforcement, scheme = CASES[case]
    states, _, multipliers = scanned(mbd.Stepper(system, enforcement, scheme), state, Push(), 120)
    options = dict(control=Push(), scheme=scheme, saveat=SaveAt(steps=True))
    sol = mbd.simulate(system, enforcement, state, dt=DT, num_steps=120, **options)
    for name in ("t", "q", "v"):
        np.testing.assert_array_equal(getattr(states, name), getattr(sol, name))
    assert_verdicts(states.result, R.successful)
    assert_verdicts(sol.result, R.successful)
    if case == "contact":
        np.testing.assert_array_equal(states.contacts.force, sol.contact_force)
        np.testing.assert_array_equal(states.contacts.residual, sol.contact_residual)
        assert np.any(sol.contact_force)
    if case == "switched":
        np.testing.assert_array_equal(states.active, sol.active)
        active = np.asarray(sol.active)[:, 0]
        assert not active[0] and active[-1]
    np.testing.assert_allclose(multipliers, np.asarray(sol.multipliers)[-1], rtol=1e-12)


def test_numbers_in_numbers_out():
    """A loop in Python is the loop in JAX, bit for bit, and compiles each of the two parts once."""
    stepper, push = mbd.Stepper(PENDULUM, IMPULSE), Push()
    _, last, _ = scanned(stepper, SWINGING, push, 5)
    stepper.step(stepper.init(SWINGING), 3e-3, push)
    with compilation_events() as events:
        state = stepper.init(SWINGING)
        for _ in range(5):
            state = stepper.step(state, DT, push)
        stepper.step(state, 2 * DT, Push(0.7))
    assert events[COMPILED] == 0
    np.testing.assert_array_equal(state.q, last.q)
    np.testing.assert_array_equal(state.t, last.t)


@pytest.mark.parametrize("enforcement", [UK, IMPULSE])
def test_held_controls(enforcement):
    """Forces u0, u1 on a free mass, each held for a time h: v = (u0 + u1) h / m, and the position
    (3 u0 + u1) h^2 / 2 m of a scheme of second order, (2 u0 + u1) h^2 / m where it moves with the
    new velocities; and the derivatives."""
    h, m = 0.1, 1.3
    stepper = mbd.Stepper(Pushed(), enforcement)

    def run(us):
        state = stepper.init(mbd.State(0.0, jnp.zeros(1), jnp.zeros(1)))
        for u in us[:, None]:
            state = stepper.step(state, h, u)
        return jnp.concatenate([state.q, state.v])

    us = np.array([0.7, -0.2])
    by_q = [1.5 * h**2 / m, 0.5 * h**2 / m] if enforcement is UK else [2 * h**2 / m, h**2 / m]
    exact = np.array([by_q, [h / m, h / m]])
    end, *slopes = jax.jit(lambda us: both_modes(run, us))(us)
    np.testing.assert_allclose(end, exact @ us, rtol=1e-13)
    for slope in slopes:
        np.testing.assert_allclose(slope, exact, rtol=1e-13)


def test_time_is_not_lost():
    """Each of 10^5 steps rounds t in float32, all to the same side. Their sum does not."""
    state = mbd.State(0.0, np.zeros(1, np.float32), np.zeros(1, np.float32))
    stepper = mbd.Stepper(Oscillator(), UK, scheme=mbd.methods.SemiImplicitEuler())
    dt = np.float32(1e-3)

    @eqx.filter_jit
    def run(state):
        step = lambda _, state: stepper.step(state, dt)  # noqa: E731
        return jax.lax.fori_loop(0, 100_000, step, stepper.init(state)).t

    exact = 100_000 * float(dt)
    naive = np.add.accumulate(np.full(100_000, dt, np.float32))[-1]
    eps = np.spacing(np.float32(exact))
    assert abs(float(run(state)) - exact) <= eps < 100 * eps < abs(float(naive) - exact)


def test_failures_are_held():
    """The first failure stays, with the state before it; t goes on."""
    stepper = mbd.Stepper(PENDULUM, IMPULSE, drift_tolerance=1e-5)
    push = np.zeros(2)
    good = stepper.step(stepper.init(SWINGING), DT, push)
    assert_verdicts(good.result, R.successful)
    off = good.replace(q=np.asarray(good.q) + 1e-4)
    bad = stepper.step(stepper.step(off, DT, push), DT, push)
    assert_verdicts(bad.result, R.drift)
    np.testing.assert_array_equal(bad.q, off.q)
    np.testing.assert_allclose(bad.t, 3 * DT, rtol=1e-12)
    nan = stepper.step(good, DT, np.array([np.nan, 0.0]))
    assert_verdicts(nan.result, R.nonfinite_state)
    np.testing.assert_array_equal(nan.v, good.v)
    with pytest.raises(eqx.EquinoxRuntimeError, match="not finite|NaN"):
        mbd.raise_if_failed(nan)


def test_verdict_on_the_start():
    stepper = mbd.Stepper(PENDULUM, IMPULSE)
    off = mbd.State(0.0, np.array([1.0, 0.0]), SWINGING.v)
    assert_verdicts(stepper.init(off).result, R.inconsistent_start)
    assert_verdicts(stepper.init(off, start_tolerance=1.0).result, R.successful)
    low = mbd.Stepper(BALL, mbd.ContactImpulse()).init(falling(-0.1))
    assert_verdicts(low.result, R.overlapping_start)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["by_derivatives", "by_rewards"])
def test_example_learns(loss, monkeypatch):
    """Poles stay up twice as long with a policy that has learned as without a push."""
    monkeypatch.setattr(cart_pole_environment, "BATCH", 256)
    with jax.numpy_dtype_promotion("standard"):  # optax counts in integers of two sizes
        rewards, policy = cart_pole_environment.learn(getattr(cart_pole_environment, loss), 60)
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.1
    up = cart_pole_environment.time_up
    assert up(policy) > 2 * up(lambda seen: 0.0)
