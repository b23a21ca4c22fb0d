"""Collocated motions of angles that pass half a turn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trajopt_problems import SHOOTING, Effort, Reach, converged, solve

import jaxmbd as mbd
from jaxmbd import trajopt as T
from jaxmbd.trajopt.motion import Trajectory
from jaxmbd.trajopt.turns import loses_turns

K, INERTIA, END = 2.0, 0.5, 1.5


def wound_to(angle, near=0.0, stiffness=K, steps=12):
    """Wind a wheel on a torsion spring with a motor, from rest to rest."""
    wheel = mbd.Body("wheel", mbd.Inertia(mass=1.0, tensor=[INERTIA] * 3))
    spring = mbd.TorsionSpring(
        "clock",
        "ground",
        wheel,
        point=[0.0, 0.0, 0.0],
        axis=[0.0, 0.0, 1.0],
        stiffness=stiffness,
        actuator=mbd.FromControl(0),
    )
    mechanism = mbd.Mechanism([wheel], [], [spring], plane=mbd.Plane([0.0, 0.0, 1.0]))
    start = mechanism.state()
    return T.Problem(
        mechanism,
        mbd.State(0.0, start.q, start.v, angles=np.array([near])),
        END,
        steps,
        nu=1,
        running_cost=Effort(),
        final=Reach(np.array([0.0, 0.0, angle])),
    )


def least_effort(angle):
    """d . W^-1 d with the Gramian W of I x'' = u - k x, that is, the integral of g g^T for
    g = (sin(w t) / (I w), cos(w t) / I), w^2 = k / I."""
    w = np.sqrt(K / INERTIA)
    double = np.sin(2 * w * END) / (4 * w)
    mixed = np.sin(w * END) ** 2 / (2 * w)
    W = np.array([[(END / 2 - double) / w**2, mixed / w], [mixed / w, END / 2 + double]])
    return angle**2 * np.linalg.inv(W / INERTIA**2)[0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "angle, near, counted", [(2.5, 0.0, True), (4.0, 0.0, False), (4.0, 2.0, True)]
)
def test_a_plan_beyond_half_a_turn_is_right_or_tells(angle, near, counted):
    """From 0 to 4 rad, with angles within half a turn of 0 and of 2 rad."""
    plan = solve(wound_to(angle, near))
    if counted:
        assert converged(plan)
        np.testing.assert_allclose(plan.cost, least_effort(angle), rtol=1e-4)
    else:
        assert plan.status == T.STATUS.turns_not_counted
        assert "`middle`" in str(plan)


@pytest.mark.slow
def test_shooting_beyond_half_a_turn_does_not_converge():
    assert not converged(solve(wound_to(4.0, steps=4), SHOOTING))


@pytest.mark.parametrize("stiffness", [0.0, K])
def test_turns_between_grid_points(stiffness):
    """Cubics from 2.8 rad and back: within half a turn, to 3.4 rad, and too fast to count. A motor
    alone needs no turns."""
    problem = wound_to(1.0, stiffness=stiffness, steps=1)

    def lost(rate):
        q = jnp.zeros((2, 3)).at[:, 2].set(2.8)
        v = jnp.zeros((2, 3)).at[:, 2].set(jnp.array([1.0, -1.0]) * rate)
        return loses_turns(problem, Trajectory(q, v, jnp.zeros((1, 1)), jnp.array(True)))

    # The middle is at 2.8 + rate h / 4 with h = 1.5 s, and half an interval turns by rate h / 2.
    found = jax.jit(jax.vmap(lost))(jnp.array([0.5, 1.6, -2.0, -2.2]))
    assert found.tolist() == [False, stiffness > 0, False, stiffness > 0]
