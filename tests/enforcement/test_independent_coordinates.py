"""Independent coordinates: verdicts on their choice, systems without freedom, the elimination."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._linalg import partition

R = mbd.RESULTS


def swing(speed, method, **options):
    """A pendulum from its lowest point."""
    system = h.Pendulum()
    state = mbd.State(0.0, np.array([0.0, -0.9]), speed * np.array([1.0, 0.0]))
    options = dict(dt=0.02, num_steps=20, throw=False) | options
    return mbd.simulate(system, method, state, **options)


def test_dependent_choice():
    """The height is no coordinate at the lowest point."""
    method = mbd.IndependentCoordinates(independent=mbd.methods.CoordinatePartitioning([1]))
    h.assert_verdicts(swing(1.0, method, num_steps=2).result, R.not_independent)


def test_batch_with_verdicts_of_each():
    """Steps that are too large, and numbers that are none."""
    method = mbd.IndependentCoordinates(independent=mbd.methods.CoordinatePartitioning())
    batch = jax.jit(jax.vmap(lambda speed: swing(speed, method)))(
        np.array([1.0, np.nan, 60.0, 2.0])
    )
    expected = R.successful, R.nonfinite_state, R.dependents_unsolved, R.successful
    h.assert_verdicts(batch.result, expected)
    assert np.max(np.asarray(batch.phi_norm)[[0, 3]]) < 1e-15
    assert np.all(np.isfinite(batch.q))


def test_adaptive_steps():
    """A first step too large to be solved is tried in vain. The energy is kept."""
    options = dict(num_steps=None, t1=0.5, dt=0.4, scheme=diffrax.Bosh3())
    controller = diffrax.PIDController(rtol=1e-7, atol=1e-7)
    sol = swing(6.0, mbd.IndependentCoordinates(), stepsize_controller=controller, **options)
    h.assert_verdicts(sol.result, R.successful)
    q, v, phi_norm = (np.asarray(x)[-1] for x in (sol.q, sol.v, sol.phi_norm))
    assert phi_norm < 1e-14
    assert abs(v @ v / 2 + 9.81 * (q[1] + 0.9) - 18.0) < 1e-4


class Locked(mbd.AbstractSystem):
    """A point on three driven planes: no freedom, and one row more than coordinates."""

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(q)

    def constraint(self, q, t):
        x, y = q
        return jnp.stack([x - jnp.sin(t), y - t * t, x + y - jnp.sin(t) - t * t])


def test_no_freedom_is_left():
    state = mbd.State(0.0, np.zeros(2), np.array([1.0, 0.0]))
    sol = mbd.simulate(Locked(), mbd.IndependentCoordinates(), state, dt=0.05, num_steps=20)
    sol = jax.device_get(sol)
    np.testing.assert_allclose(sol.q[-1], [np.sin(1.0), 1.0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(sol.v[-1], [np.cos(1.0), 2.0], rtol=0, atol=1e-13)


@pytest.mark.slow
def test_gradients_twice():
    """Of the dependent variables in many steps, against differences and in both modes."""

    def end(length):
        system, method = h.Pendulum(length=length), mbd.IndependentCoordinates()
        state = mbd.State(0.0, length * jnp.array([1.0, 0.0]), jnp.zeros(2))
        sol = mbd.simulate(system, method, state, dt=0.01, num_steps=50)
        return jnp.cos(jnp.arange(4.0)) @ jnp.concatenate([sol.q[-1], sol.v[-1]])

    h.check_scalar(end, np.asarray(1.1))
    h.check_scalar(jax.grad(end), np.asarray(1.1))


def test_partition_near_a_dead_point():
    """The row is solved for x, although y would move it 50 or 200 times as much."""
    row = np.array([[[0.02, 1.0]], [[0.005, 1.0]]])
    given = jax.device_put((np.ones(2), np.array([True, False]), np.asarray(1e-10)))
    split = jax.jit(jax.vmap(lambda J: partition(J, *given)))(row)
    np.testing.assert_array_equal(split.dependent, [[True, False]] * 2)
    np.testing.assert_array_equal(split.determined, [True, False])


@pytest.mark.parametrize("rows, rank", [(4, 4), (7, 4), (5, 2)])
def test_partition(rows, rank):
    """J K J = J, with as many dependent columns as the rank; these solve for the others."""
    rng = np.random.default_rng(rows)
    J = rng.normal(size=(2, rows, rank)) @ rng.normal(size=(2, rank, 6))
    scale = np.array([1.0, 0.1, 3.0, 1.0, 20.0, 1.0])
    given = jax.device_put((scale, np.ones(6, bool), np.asarray(1e-10)))
    split = jax.jit(jax.vmap(lambda J: partition(J, *given)))
    K, dependent, determined = (np.asarray(x) for x in split(J))
    np.testing.assert_allclose(J @ K @ J, J, rtol=0, atol=1e-11)
    assert np.all(np.sum(dependent, axis=1) == rank) and np.all(determined)
    assert np.all(K[~dependent] == 0)
    for J, K, dependent in zip(J, K, dependent, strict=True):
        np.testing.assert_allclose((K @ J)[:, dependent], np.eye(6)[:, dependent], atol=1e-11)
        # With the largest pivots, dependent variables do not move much further than independent.
        assert np.max(np.abs((K @ J) * scale[None, :] / scale[:, None])) < 3
