"""Plans that turn bodies: quaternions, and angles that pass half a turn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trajopt_problems import SHOOTING, Effort, Reach, converged, ended, least_norm, moved_by, solve

import jaxmbd as mbd
from jaxmbd import trajopt as T
from jaxmbd.trajopt.direct import loses_turns
from jaxmbd.trajopt.motion import Trajectory

K, INERTIA, END = 2.0, 0.5, 1.5


class Ball(mbd.AbstractSystem):
    """A rigid body of equal moments of inertia 2 kg m^2, turned by torques in body axes."""

    coordinates = mbd.QuaternionBody()

    def mass_matrix(self, q):
        return 2 * jnp.eye(3)

    def force(self, t, q, v, u):
        return u


@pytest.mark.slow
@pytest.mark.parametrize("collocated", [False, True])
def test_reorientation_by_quaternions(collocated):
    """From rest to rest about an inclined axis by 2.5 rad, with least effort: a cart's problem, its
    controls held in each interval or continuous."""
    ball, axis = Ball(), jnp.array([1.0, -2.0, 3.0]) / jnp.sqrt(14.0)
    q = mbd.rotations.quaternion_exp(jnp.array([0.3, 0.2, -0.5]))
    goal = ball.retract(q, 2.5 * axis)
    there = lambda t, q, v: jnp.concatenate([ball.difference(goal, q), v])  # noqa: E731
    options = dict(nu=3, running_cost=Effort(), final=there)
    problem = T.Problem(ball, mbd.State(0.0, q, jnp.zeros(3)), 2.0, 16, **options)
    if collocated:
        plan, least = solve(problem), 12 * 2**2 * 2.5**2 / 2**3
    else:
        plan = T.ilqr(problem, progress=False, expansion=T.FirstOrder())
        least = least_norm(1 / 8, moved_by(16, 1 / 8, False) / 2.0, np.array([2.5, 0.0]))[1]
        # A disturbed start, given by the other quaternion of the same orientation.
        dx = 0.01 * jnp.array([1.0, 2.0, 0.0])
        u = plan.control(0.0, -ball.retract(q, dx), jnp.zeros(3))
        expected = plan.u[0] + plan.control.gains[0][:, :3] @ dx
        np.testing.assert_allclose(u, expected, rtol=0, atol=1e-12)
    assert converged(plan)
    np.testing.assert_allclose(plan.cost, least, rtol=1e-5)
    # On the way: a push along the axis, then against it.
    np.testing.assert_allclose(plan.u, np.outer(plan.u @ axis, axis), atol=1e-4)


def wound_to(angle, near=0.0, stiffness=K, steps=12):
    """Wind a wheel on a torsion spring with a motor, from rest to rest."""
    wheel = mbd.Body("wheel", mbd.Inertia(mass=1.0, tensor=[INERTIA] * 3))
    options = dict(stiffness=stiffness, actuator=mbd.FromControl(0))
    place = dict(point=[0.0, 0.0, 0.0], axis=[0.0, 0.0, 1.0])
    spring = mbd.TorsionSpring("clock", "ground", wheel, **place, **options)
    mechanism = mbd.Mechanism([wheel], [], [spring], plane=mbd.Plane([0.0, 0.0, 1.0]))
    start = mechanism.state()
    start = mbd.State(0.0, start.q, start.v, angles=np.array([near]))
    options = dict(running_cost=Effort(), final=Reach(np.array([0.0, 0.0, angle])))
    return T.Problem(mechanism, start, END, steps, nu=1, **options)


def least_effort(angle):
    """d . W^-1 d with the Gramian W of I x'' = u - k x, that is, the integral of g g^T for
    g = (sin(w t) / (I w), cos(w t) / I), w^2 = k / I."""
    w = np.sqrt(K / INERTIA)
    double = np.sin(2 * w * END) / (4 * w)
    mixed = np.sin(w * END) ** 2 / (2 * w)
    W = np.array([[(END / 2 - double) / w**2, mixed / w], [mixed / w, END / 2 + double]])
    return angle**2 * np.linalg.inv(W / INERTIA**2)[0, 0]


@pytest.mark.slow
def test_a_plan_beyond_half_a_turn_is_right_or_tells():
    """From 0 to 4 rad, with angles within half a turn of 0 and of 2 rad. Shooting does not find
    what is not counted."""
    for angle, near in ((2.5, 0.0), (4.0, 2.0)):
        plan = solve(wound_to(angle, near))
        assert converged(plan)
        np.testing.assert_allclose(plan.cost, least_effort(angle), rtol=1e-4)
    plan = solve(wound_to(4.0))
    assert ended(plan, "half_turn_passed") and "`middle`" in str(plan)
    assert not converged(solve(wound_to(4.0, steps=4), SHOOTING))


def test_turns_between_grid_points():
    """Cubics from 2.8 rad and back: just within half a turn, just beyond, and too fast to count. A
    motor alone needs no turns."""
    rates = np.array([0.88, 0.95, -2.0, -2.2])
    shape = np.zeros((2, 3))

    @eqx.filter_jit
    def lost(problem, rates):
        def one(rate):
            q, v = shape + [0, 0, 2.8], shape + rate * np.array([[0, 0, 1.0], [0, 0, -1.0]])
            path = Trajectory(jnp.asarray(q), v, jnp.zeros((1, 1)), jnp.array(True))
            return loses_turns(problem, path)

        return jax.vmap(one)(rates)

    # The middle is at 2.8 + rate h / 4 with h = 1.5 s, and half an interval turns by rate h / 2.
    for stiffness in (0.0, K):
        found = lost(wound_to(1.0, stiffness=stiffness, steps=1), rates)
        assert found.tolist() == [False, stiffness > 0, False, stiffness > 0]
