"""Controls with memory that are evaluated at sample times."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from refusals import check_refused

import jaxmbd as mbd

PERIOD, GAINS, MOST, TARGET = 0.02, (6.0, 4.0, 2.0), 1.5, 1.0


class Slider(mbd.AbstractSystem):
    mass: Array = h.parameter(0.5)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return u


def controller(gains=GAINS, **options):
    """PID control with a limit, at which the integral waits."""

    def law(state, memory):
        error = TARGET - state.q[0]
        wanted = gains[0] * error + gains[1] * memory - gains[2] * state.v[0]
        force = jnp.clip(wanted, -MOST, MOST)
        return force[None], memory + jnp.where(force == wanted, PERIOD * error, 0.0)

    return mbd.Sampled(law, **{"period": PERIOD, "memory": 0.0, "output": [0.2], **options})


def motion(samples, delay, gains=GAINS):
    """x and v at the samples: the force is constant between them."""
    x = v = memory = 0.0
    waiting, found = [0.2] * delay, [(x, v)]
    for _ in range(samples):
        error = TARGET - x
        wanted = gains[0] * error + gains[1] * memory - gains[2] * v
        waiting.append(np.clip(wanted, -MOST, MOST))
        memory += PERIOD * error if abs(wanted) <= MOST else 0.0
        a = waiting.pop(0) / 0.5
        x, v = x + PERIOD * v + PERIOD**2 / 2 * a, v + PERIOD * a
        found.append((x, v))
    return np.array(found)


def moved(control, dt=PERIOD / 5, samples=60, dtype=float, **options):
    start = mbd.State(0.0, jnp.zeros(1, dtype), jnp.zeros(1, dtype))
    options = {"saveat": diffrax.SaveAt(t0=True, steps=round(PERIOD / dt)), **options}
    steps = samples * round(PERIOD / dt)
    return mbd.simulate(
        Slider(), mbd.UdwadiaKalaba(), start, dt=dt, num_steps=steps, control=control, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 2])
def test_the_motion_of_a_sampled_loop(delay):
    """Exact between the samples, and the same with an own loop."""
    exact = motion(60, delay)
    sol = moved(controller(delay=delay))
    np.testing.assert_allclose(np.concatenate([sol.q, sol.v], 1), exact, atol=1e-12)
    assert np.max(exact[:, 0]) > 1.0
    control = controller(delay=delay)
    stepper = mbd.Stepper(Slider(), mbd.UdwadiaKalaba())
    state = stepper.init(mbd.State(0.0, np.zeros(1), np.zeros(1)))
    state = control.begun(state)
    for _ in range(7):
        state = stepper.step(state, PERIOD, control)
    np.testing.assert_allclose([state.q[0], state.v[0]], exact[7], atol=1e-12)


@pytest.mark.slow
def test_derivatives_batches_and_single_precision():
    def end(gains, dtype=float):
        sol = moved(controller(gains, delay=1), samples=30, dtype=dtype)
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    gains = np.array(GAINS)
    shifts = 1e-6 * np.eye(3)
    many = jax.jit(jax.vmap(end))(
        jnp.asarray(np.stack([gains, *(gains + shifts), *(gains - shifts)]))
    )
    one, ahead, behind = np.split(np.asarray(many), [1, 4])
    np.testing.assert_allclose(one[0], motion(30, 1)[-1], atol=1e-12)
    _, forward, reverse = jax.jit(h.both_modes, static_argnums=0)(end, jnp.asarray(gains))
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    np.testing.assert_allclose(forward, (ahead - behind).T / 2e-6, rtol=1e-6, atol=1e-9)
    single = end(jnp.asarray(gains, jnp.float32), jnp.float32)
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, one[0], atol=1e-4)


@pytest.mark.slow
def test_times_between_the_samples():
    """States within a step belong to the output that acts there."""
    t = np.linspace(0.0, 0.4, 7)
    sol = moved(controller(), samples=20, saveat=diffrax.SaveAt(ts=t))
    samples = motion(20, 0)
    k = np.floor(t / PERIOD + 1e-9).astype(int)
    s, x, v = t - k * PERIOD, samples[k, 0], samples[k, 1]
    a = (np.append(samples[1:, 1], 0.0) - samples[:, 1])[k] / PERIOD
    np.testing.assert_allclose(sol.q[:, 0], x + s * v + s**2 / 2 * a, atol=1e-9)


@pytest.mark.slow
def test_refused():
    check_refused(
        lambda: moved(controller(), dt=PERIOD / 2.5), "must be a whole multiple of the step"
    )
    adaptive = diffrax.PIDController(rtol=1e-6, atol=1e-6)
    check_refused(
        lambda: moved(controller(), stepsize_controller=adaptive, saveat=diffrax.SaveAt(t1=True)),
        "A `Sampled` control needs fixed steps",
    )
    wrong = mbd.Sampled(lambda state, memory: (state.q, state.q), period=PERIOD, output=0.0)
    check_refused(lambda: moved(wrong), r"`law` of Sampled must return an output and a memory")
    with pytest.raises(TypeError, match="has a memory"):
        controller()(0.0, np.zeros(1), np.zeros(1))
    stepper = mbd.Stepper(Slider(), mbd.UdwadiaKalaba())
    state = stepper.init(mbd.State(0.0, np.zeros(1), np.zeros(1)))
    check_refused(lambda: stepper.step(state, PERIOD, controller()), "a state that it has begun")
