"""Batches by `vmap`: each sample is the sample alone, whatever its neighbours."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._compiler import loops

UK, EULER = mbd.UdwadiaKalaba(), diffrax.Euler()


def test_batch_of_everything():
    """Parameters, control, gains, step and start of pendulums with redundant rows, of which the
    solver chooses its path by the pose. 1e-12 of the largest."""
    rng, n = np.random.default_rng(0), 200
    mass, length, gravity = (rng.uniform(low, 2 * low, n) for low in (0.5, 0.6, 10.0))
    angle, rate = rng.uniform(-3, 3, n), rng.normal(size=n)
    radial = np.stack([np.sin(angle), -np.cos(angle)], axis=1)
    across = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    q, v = length[:, None] * radial, (rate * length)[:, None] * across
    damping, gain, dt = rng.uniform(size=n), rng.uniform(1, 8, n), rng.uniform(5e-3, 1e-2, n)
    pendulums = h.Pendulum(mass, length, gravity, damping)
    tables = h.Table(rng.normal(size=(n, 5, 2)), np.full(n, 0.2))

    def run(sample):
        pendulum, table, gain, dt, q, v = sample
        method = mbd.LagrangeMultipliers(mbd.Pseudoinverse(), alpha=gain, beta=gain)
        system, state = h.RedundantPendulum(pendulum), mbd.State(0.0, q, v)
        options = dict(dt=dt, num_steps=10, control=table, scheme=EULER)
        sol = mbd.simulate(system, method, state, **options)
        return sol.t[-1], sol.q[-1], sol.v[-1], sol.multipliers[-1]

    samples = pendulums, tables, gain, dt, q, v
    together, alone = jax.jit(jax.vmap(run))(samples), jax.jit(run)
    together = [np.asarray(x) for x in together]
    for i in (0, 1, 7, 100, 199):
        single = alone(jax.tree.map(lambda x, i=i: np.asarray(x)[i], samples))
        for a, b in zip(together, single, strict=True):
            np.testing.assert_allclose(a[i], b, rtol=0, atol=1e-12 * max(1, np.max(np.abs(b))))


def test_derivatives_of_a_batch_that_is_jitted():
    """As many samples as saved steps: nothing but the values tells an exchanged axis. A free
    particle moves by x = s^2 t for s^2 the speed at the start."""
    times = 0.1 * np.arange(1.0, 5.0)

    @jax.jit
    @jax.vmap
    def path(s):
        particle = mbd.State(0.0, jnp.zeros(2), jnp.stack([s**2, 0.0 * s]))
        options = dict(dt=0.1, num_steps=4, saveat=diffrax.SaveAt(steps=1))
        free = h.GuidedMass(stiffness=0.0, damping=0.0, angle=0.0)
        sol = mbd.simulate(free, mbd.VelocityImpulse(), particle, **options)
        # Products along the axis of time, of what moves and what does not.
        return jax.vmap(lambda q, v: q[0] * v[0])(sol.q, sol.v)

    @jax.jit
    def both(s):
        # The second is a batch of derivatives of a batch: the outer axis meets that of time.
        outer = jax.vmap(jax.jacfwd(lambda s: path(s[None])[0, -1]))(s)
        return jax.jvp(path, (s,), (jnp.ones_like(s),))[1], outer

    s = np.array([1.0, 2.0, 3.0, 4.0])
    tangents, found = both(s)
    np.testing.assert_allclose(tangents, 4 * s[:, None] ** 3 * times, rtol=1e-12)
    np.testing.assert_allclose(found, 1.6 * s**3, rtol=1e-12)


# Good, NaN, negative mass, inconsistent, good.
MASSES = np.array([1.0, np.nan, -1.0, 1.0, 2.0])
STARTS = np.array([[0.9, 0.0]] * 3 + [[1.0, 0.0], [0.0, 0.9]])


def pendulum(mass, q, throw=False):
    state = mbd.State(0.0, q, jnp.zeros(2))
    options = dict(t1=0.1, dt=0.01, scheme=EULER, throw=throw)
    return mbd.simulate(h.Pendulum(mass=mass), UK, state, **options).multipliers[-1, 0]


def test_failures_leave_the_gradients_of_other_samples():
    each, good = jax.jit(jax.vmap(jax.value_and_grad(pendulum, (0, 1)))), np.array([0, 4, 0, 4, 0])
    found, alone = each(MASSES, STARTS), each(MASSES[good], STARTS[good])
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(np.asarray(a)[[0, 4]], np.asarray(b)[:2], rtol=1e-13)


def test_throw_in_a_batch():
    run = eqx.filter_jit(jax.vmap(lambda m, q: pendulum(m, q, throw=True)))
    assert np.all(np.isfinite(run(MASSES[[0, 4]], STARTS[[0, 4]])))
    with pytest.raises(RuntimeError, match="violates the constraints"):
        run(MASSES[[0, 3]], STARTS[[0, 3]])


def test_all_at_once_where_loops_cost(monkeypatch):
    """As on a GPU, `vmap` takes all samples at once: each moves as it does alone."""
    starts = np.array([0.1, 0.4, 0.7])

    def end(angle):
        q = 0.9 * jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
        state = mbd.State(0.0, q, jnp.zeros(2))
        return mbd.simulate(h.Pendulum(), UK, state, dt=1e-2, num_steps=20, scheme=EULER).q[-1]

    alone = jax.jit(lambda x: jax.lax.map(end, x))(starts)
    monkeypatch.setattr(loops, "loops_cost_nothing", lambda: False)
    np.testing.assert_allclose(jax.jit(jax.vmap(end))(starts), alone, rtol=1e-11)
