"""Filters of bodies that turn, and of internal states."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from estimated import drawn, nees, truth
from helpers import OPTIMISED
from scipy.stats import chi2

import jaxmbd as mbd
from jaxmbd import estimate
from jaxmbd.rotations import quaternion_rotate


class Spinner(mbd.AbstractSystem):
    """A free rigid body that turns about its centre; v is its angular velocity in its own axes."""

    inertia = np.array([1.0, 2.0, 2.5])
    coordinates = mbd.QuaternionBody()

    def mass_matrix(self, q):
        return jnp.diag(jnp.asarray(self.inertia, q.dtype))

    def force(self, t, q, v, u):
        return -jnp.cross(v, self.inertia * v)


def spinner_filter(rule, off):
    """Two directions are seen. And its start, which is off."""

    def direction(axis):
        return lambda sample: quaternion_rotate(sample.q, jnp.asarray(axis, sample.q.dtype))

    filter = estimate.Filter(
        Spinner(),
        {"a": direction([1.0, 0.0, 0.0]), "b": direction([0.0, 0.6, 0.8])},
        {"a": 0.02, "b": 0.03},
        dt=0.02,
        process_noise=estimate.ContinuousNoise(0.2),
        rule=rule,
    )
    state = mbd.State(0.0, np.array([1.0, 0, 0, 0]), np.array([0.5, 2.0, -1.0]))
    return filter, filter.start(state, position=off, velocity=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule, off", [(estimate.Extended(), 0.05), (estimate.Unscented(), 0.2)], ids=["ekf", "ukf"]
)
def test_a_body_that_turns(rule, off):
    """Errors of 300 runs of a body that tumbles are as large as expected. Two directions are seen,
    each with every second sample. From a guess that is 0.2 rad off, the extended filter trusts
    itself too much at first: the mean square is 1.18 times as large after 10 samples."""
    filter, start = spinner_filter(rule, off)
    runs, steps = 300, 40
    present = np.zeros((steps, 6), bool)
    present[::2, :3] = present[1::2, 3:] = True

    def run(key):
        of_start, of_motion = jr.split(key)
        true, readings = truth(filter, drawn(filter, start, of_start), of_motion, steps)

        def one(belief, row):
            belief, innovation = filter.step(belief, row[0], present=row[1])
            return belief, (belief, innovation.nis)

        _, (beliefs, nis) = jax.lax.scan(one, start, (readings, jnp.asarray(present)))
        errors, _ = jax.vmap(lambda b, x: nees(filter, b, x))(beliefs, true)
        return errors, nis, beliefs.result

    found, nis, result = jax.jit(lambda keys: jax.lax.map(run, keys), compiler_options=OPTIMISED)(
        jr.split(jr.key(5), runs)
    )
    mbd.raise_if_failed(result)
    for total, size in (
        (np.sum(found[:, 9::10], axis=0), 6 * runs),
        (np.sum(nis[:, 9::10], axis=0), 3 * runs),
    ):
        low, high = chi2.ppf([1e-5, 1 - 1e-5], size)
        assert np.all((low < total) & (total < high)), total / size


class Drive(mbd.AbstractSystem):
    """A wheel with a motor whose current is an internal state; u is the voltage."""

    initial_internal = np.zeros(1)

    def mass_matrix(self, q):
        return 0.1 * jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u, z):
        return 0.5 * z - 0.05 * v

    def internal(self, t, q, v, u, z):
        return (u - 2.0 * z - 0.5 * v) / 0.1


@pytest.mark.slow
def test_internal_states():
    """A linear drive whose current nobody measures: Kalman's filter of the three states, with the
    map of a step found column by column."""
    filter = estimate.Filter(
        Drive(),
        {"rate": lambda sample: sample.v},
        0.1,
        dt=0.01,
        process_noise=estimate.ContinuousNoise(0.3, internal=0.7),
    )
    state = mbd.State(0.0, np.zeros(1), np.zeros(1))
    belief = filter.start(state, position=0.1, velocity=0.2, internal=0.4)
    stepper = mbd.Stepper(Drive(), mbd.UdwadiaKalaba())
    u = np.array([1.5])

    def step(x):
        start = stepper.init(mbd.State(0.0, x[:1], x[1:2], z=x[2:]), check=False)
        end = stepper.step(start, 0.01, jnp.asarray(u))
        return jnp.concatenate([end.q, end.v, end.z])

    F, x, P = np.asarray(jax.jit(jax.jacfwd(step))(jnp.zeros(3))), np.zeros(3), np.eye(3)
    P = np.diag([0.1, 0.2, 0.4]) ** 2
    h = 0.01
    Q = 0.09 * np.array([[h**3 / 3, h**2 / 2, 0], [h**2 / 2, h, 0], [0, 0, 0]])
    Q[2, 2] = 0.49 * h
    H, R = np.array([[0.0, 1.0, 0.0]]), 0.01
    for y in (0.3, 0.1, 0.5):
        belief, _ = filter.step(belief, np.array([y]), u)
        x, P = np.asarray(step(jnp.asarray(x))), F @ P @ F.T + Q
        K = P @ H.T / (H @ P @ H.T + R)
        x, P = x + K[:, 0] * (y - x[1]), P - K @ H @ P
        mean = np.concatenate([belief.q, belief.v, belief.z])
        np.testing.assert_allclose(mean, x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(belief.P, P, rtol=0, atol=1e-12)
