"""The example that makes a plan a motion that can be performed."""

import hold_a_plan as example
import numpy as np
import pytest


@pytest.mark.slow
def test_feedback_holds_the_plan_and_the_torque_alone_does_not():
    """From disturbed starts, all motions with feedback end upright, where they stay. Without it
    they end elsewhere. The torque stays within the limit of the motor, which cannot lift the crank
    by itself."""
    system = example.SliderCrank()
    hanging, upright = example.equilibria(system)
    plan = example.swing_up(system, hanging, upright, 20, progress=False)
    assert plan.bound_violation <= 1e-8 and plan.final_violation < 1e-8
    policy = example.hold(system, plan, upright)
    starts = example.disturbed(hanging, system, 6)
    assert np.abs(starts[0][:, 0] - hanging.q[0]).max() > 0.1
    end = float(plan.t[-1])
    t, q, v = example.follow(system, starts, policy, end + 1.0)
    off = np.abs(np.asarray(q) - np.asarray(upright.q))
    at_end = int(np.argmin(np.abs(np.asarray(t[0]) - end)))
    assert off[:, at_end, 0].max() < 0.03 and off[:, -1].max() < 1e-3
    u = np.array([policy(*x) for x in zip(t[0, ::20], q[0, ::20], v[0, ::20])])
    assert np.abs(u).max() <= example.LIMIT
    _, q, _ = example.follow(system, starts, plan.control, end + 1.0)
    assert np.abs(np.asarray(q)[:, -1, 0] - float(upright.q[0])).min() > 0.3
