"""Collocated motions of angles that pass half a turn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trajopt_problems import SHOOTING, Effort, Reach, converged, ended, solve

import jaxmbd as mbd
from jaxmbd import trajopt as T
from jaxmbd.trajopt.motion import Trajectory
from jaxmbd.trajopt.turns import loses_turns

K, INERTIA, END = 2.0, 0.5, 1.5


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
    assert ended(plan, "turns_not_counted") and "`middle`" in str(plan)
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
