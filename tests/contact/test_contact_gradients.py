"""Derivatives of motions in contact and with equality rows, against differences."""

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import G, WallPendulum, ball, flight, slope

import jaxmbd as mbd


@pytest.mark.slow
@pytest.mark.parametrize("impacts", [0, 2])
def test_equality_rows_hold_in_contact(impacts):
    """A pendulum that bounces off a wall: rows below 1e-9, the wall is not passed, and the speed
    after the first impact is e times that before, by the energy."""
    system = WallPendulum(jnp.asarray(-0.3), jnp.asarray(0.7))
    sol = mbd.simulate(
        system,
        mbd.ContactImpulse(impacts=helpers.located(impacts), solver=mbd.Pseudoinverse()),
        mbd.State(0.0, jnp.array([1.0, 0.0]), jnp.zeros(2)),
        t1=1.2,
        dt=1e-3,
        projection=mbd.Projection(solver=mbd.Pseudoinverse()),
        saveat=diffrax.SaveAt(steps=1),
    )
    assert sol.phi_norm.max() < 1e-9
    assert sol.q[:, 0].min() > -0.3 - 1e-6
    energy = 0.5 * jnp.sum(sol.v**2, axis=1) + G * sol.q[:, 1]
    hit = int(jnp.argmax(sol.contact_force[:, 0, 0] > 0))
    before, after = energy[hit - 2] - G * sol.q[hit, 1], energy[hit + 1] - G * sol.q[hit, 1]
    np.testing.assert_allclose(after / before, 0.49, rtol=2e-2)


class Count:
    """By identity the same, whatever it has counted."""

    calls = 0

    def __call__(self, x):
        self.calls += 1
        return x


class Counted(mbd.solvers.AbstractContactSolver):
    """`InteriorPoint`, with a count of the problems that it solves."""

    count: Count = eqx.field(static=True)
    tolerance: float = eqx.field(static=True, default=1e-8)

    def solve(self, problem, guess):
        solved = mbd.InteriorPoint().solve(problem, guess)
        shape = jax.ShapeDtypeStruct(solved.impulses.shape, solved.impulses.dtype)
        return solved._replace(impulses=jax.pure_callback(self.count, shape, solved.impulses))


@pytest.mark.slow
def test_reverse_pass_solves_nothing_again():
    """It recomputes steps from their start, but keeps the impulses that a solver found. A ball at
    rest has a problem in every step."""
    steps, state = 40, mbd.State(0.0, jnp.zeros(2), jnp.zeros(2))

    def calls(transform):
        count = Count()
        method = mbd.ContactImpulse(impacts=mbd.Located(1), contact_solver=Counted(count))

        def height(e):
            sol = mbd.simulate(ball(restitution=e), method, state, dt=1e-2, num_steps=steps)
            return sol.q[-1, 1]

        assert jnp.isfinite(jax.jit(transform(height))(jnp.asarray(0.5)))
        return count.calls

    assert calls(jax.grad) == calls(lambda f: f) >= steps


@pytest.mark.slow
def test_smoothing_gives_derivatives_where_there_are_none():
    """A ball at rest does not feel its friction, and smoothed it does; as smoothing fades, so does
    what it changes."""

    @jax.jit
    @jax.value_and_grad
    def end(mu, smoothing):
        system = slope(jnp.asarray(0.1), mu)
        sol = flight(system, jnp.zeros(3), jnp.zeros(3), [0.3], 1e-2, 0, smoothing=smoothing)
        return sol.q[-1, 0]

    mu, step = jnp.asarray(0.5), 1e-5
    ends, slopes = zip(*(end(mu, s) for s in (0.0, 1e-3, 1e-2)))
    assert abs(slopes[0]) < 1e-15
    assert slopes[1] < 0 and slopes[2] < 0
    assert abs(ends[1] - ends[0]) < 0.2 * abs(ends[2] - ends[0])
    difference = (end(mu + step, 1e-2)[0] - end(mu - step, 1e-2)[0]) / (2 * step)
    np.testing.assert_allclose(slopes[2], difference, rtol=1e-5)
