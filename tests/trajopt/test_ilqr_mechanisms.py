"""Iterative LQR of constrained motions, contacts and turns, against the same in other coordinates
and closed forms."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import trajopt_problems as tp
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import trajopt


class Angle(mbd.AbstractSystem):
    """A pendulum of 1 kg and 1 m by its angle from the upright."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return 9.81 * jnp.sin(q) + u


def of_angle(q, v):
    """4 (1 - cos(angle - 0.3)) + rate^2."""
    if q.shape[0] == 1:
        x, y, rate = jnp.sin(q[0]), jnp.cos(q[0]), v[0]
    else:
        (x, y), rate = q, (v[0] * q[1] - v[1] * q[0]) / (q @ q)
    return 4 * (1 - x * jnp.sin(0.3) - y * jnp.cos(0.3)) + rate**2


def swing(system, state):
    return trajopt.Problem(
        system,
        state,
        1.0,
        20,
        nu=1,
        running_cost=lambda t, q, v, u: of_angle(q, v) + jnp.sum(u**2) / 10,
        final_cost=lambda t, q, v: 10 * of_angle(q, v),
        lower=-9.0,
        upper=9.0,
        substeps=16,
    )


@pytest.mark.slow
def test_optimum_does_not_depend_on_the_coordinates():
    """A pendulum by its angle, and by its place with a redundant row, at the bounds at first: the
    motions differ by the error of the scheme, 1e-8. Second derivatives change the way there
    alone."""
    start = 0.8, 0.5
    minimal = swing(Angle(), mbd.State(0.0, [start[0]], [start[1]]))
    redundant = swing(tp.Circle(), tp.on_circle(*start))
    first = trajopt.FirstOrder()
    sharp = dict(progress=False, tolerance=1e-11)
    plans = [trajopt.ilqr(p, **sharp, expansion=first) for p in (minimal, redundant)]
    assert all(tp.ended(plan, "converged") for plan in plans)
    assert np.any(np.abs(plans[0].u) == 9.0)
    assert np.isclose(plans[0].cost, plans[1].cost, rtol=2e-8)
    # The optimum is flat: where costs agree to 1e-9, controls agree to the root of that.
    assert np.allclose(plans[0].u, plans[1].u, rtol=0, atol=1e-3)
    assert plans[1].phi_norm < 1e-8
    second = trajopt.ilqr(minimal, **sharp)
    assert np.isclose(second.cost, plans[0].cost, rtol=1e-9)
    assert second.iterations < plans[0].iterations


@pytest.mark.slow
def test_contact_with_friction():
    """The controls of least effort are those of the equality-constrained least squares of a sliding
    block, as far as the friction law is smoothed: the error is of second order in that."""
    u, cost = tp.least_push(20)
    off = []
    for smoothing in (1e-2, 1e-3):
        problem = tp.pushed(20, smoothing)
        guess = jnp.full((20, 1), 2.5)
        plan = trajopt.ilqr(problem, guess, expansion=trajopt.FirstOrder(), progress=False)
        assert tp.ended(plan, "converged") and plan.phi_norm == 0
        off.append(abs(float(plan.cost) - cost))
        assert np.allclose(plan.u[:, 0], u, rtol=0, atol=5 * smoothing)
    assert off[1] < 2e-4 and off[0] > 50 * off[1]


class Ball(mbd.AbstractSystem):
    """A rigid body of equal moments of inertia 2 kg m^2, turned by torques in body axes."""

    coordinates = mbd.QuaternionBody()

    def mass_matrix(self, q):
        return 2 * jnp.eye(3)

    def force(self, t, q, v, u):
        return u


class Facing(eqx.Module):
    """At rest in the orientation `goal`."""

    goal: Array

    def __call__(self, t, q, v):
        return jnp.concatenate([Ball().difference(self.goal, q), v])


@pytest.mark.slow
def test_reorientation_by_quaternions():
    """From rest to rest about an inclined axis by 2.5 rad, with least effort: a cart's problem."""
    axis = jnp.array([1.0, -2.0, 3.0]) / jnp.sqrt(14.0)
    q = mbd.rotations.quaternion_exp(jnp.array([0.3, 0.2, -0.5]))
    goal = Ball().retract(q, 2.5 * axis)
    options = dict(nu=3, running_cost=tp.Effort(), final=Facing(goal))
    problem = trajopt.Problem(Ball(), mbd.State(0.0, q, jnp.zeros(3)), 2.0, 16, **options)
    plan = trajopt.ilqr(problem, progress=False, expansion=trajopt.FirstOrder())
    assert tp.ended(plan, "converged")
    least = tp.least_norm(1 / 8, tp.moved_by(16, 1 / 8, False) / 2.0, np.array([2.5, 0.0]))[1]
    assert np.isclose(plan.cost, least, rtol=1e-5)
    # On the way: a push along the axis, then against it.
    assert np.allclose(plan.u, (plan.u @ axis)[:, None] * axis[None, :], atol=1e-4)
    # A disturbed start, given by the other quaternion of the same orientation.
    dx = 0.01 * jnp.array([1.0, 2.0, 0.0])
    beside = Ball().retract(q, dx)
    u = plan.control(0.0, -beside, jnp.zeros(3))
    expected = plan.u[0] + plan.control.gains[0][:, :3] @ dx
    assert np.allclose(u, expected, rtol=0, atol=1e-12)
