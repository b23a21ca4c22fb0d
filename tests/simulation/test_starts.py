"""Starts that contacts forbid, told by name before anything long is compiled."""

import re
import sys

import jax
import numpy as np
import pytest
from refusals import Plane

import jaxmbd as mbd
from jaxmbd._simulate.simulate import check_overlaps

BOX = mbd.Inertia.box(size=[0.2, 0.2, 0.2], mass=1.0)


@pytest.fixture(autouse=True)
def compiles_nothing_long(monkeypatch):
    def refuse(*args):
        raise AssertionError("the simulation was compiled")

    monkeypatch.setattr(sys.modules["jaxmbd._simulate.simulate"], "_simulate", refuse)


def simulate(system, state):
    return mbd.simulate(system, mbd.ContactImpulse(), state, t1=0.02, dt=1e-2)


def knee(**law):
    """A box on the floor that is 0.15 m too low, and a hinge that its limits exclude."""
    low = mbd.Body("low", BOX, position=[2.0, 0, -0.05])
    arm = mbd.Body("arm", BOX, position=[0.25, 0, 1.0])
    hinge = mbd.Revolute("knee", "ground", arm, point=[0, 0, 1.0], axis=[0, 1, 0], limits=(0.3, 2))
    floor = mbd.Contact(
        "floor", "ground", low, mbd.HalfSpace(), mbd.Box(size=[0.2, 0.2, 0.2]), **law
    )
    return mbd.Mechanism([low, arm], [hinge], contacts=[floor, mbd.JointLimit(hinge, **law)])


def test_joints_and_contacts_are_named():
    mechanism = knee()
    with pytest.raises(Exception, match="outside of their limits") as error:
        simulate(mechanism, mechanism.state())
    message = str(error.value)
    assert re.search(r'Contact "floor" of "ground" and "low" has the gap -0\.15\b', message)
    at, lower, upper = re.search(
        r'joint "knee" is at (\S+) rad, outside of (\S+) to (\S+) rad', message
    ).groups()
    assert abs(float(at)) < 1e-12
    assert (float(lower), float(upper)) == (0.3, 2.0)


def test_a_traced_caller_leaves_the_start_to_the_first_step():
    """Also where only the velocities are traced."""
    mechanism = knee()
    q = mechanism.state().q
    with pytest.raises(AssertionError, match="was compiled"):
        jax.jit(lambda v: simulate(mechanism, mbd.State(0.0, q, v)))(mechanism.state().v)


def test_springs_may_overlap():
    mechanism = knee(stiffness=1e4)
    state = mechanism.state()
    check_overlaps(mechanism, mbd.ContactImpulse(), state.t, state.q, 1e-3)
    with pytest.raises(AssertionError, match="was compiled"):
        simulate(mechanism, state)


def test_limits_of_coordinates_are_named():
    slider = mbd.Body("slider", BOX, position=[0.5, 0, 0])
    rail = mbd.Prismatic("rail", "ground", slider, point=[0, 0, 0], axis=[1, 0, 0])
    stop = mbd.contacts.CoordinateLimit("stop", mbd.OfJoint(rail), lower=0.1, upper=0.2)
    mechanism = mbd.Mechanism([slider], [rail], contacts=[stop])
    x = np.asarray(mechanism.joint_coordinates(mechanism.state().q, "rail"))[0]
    side = rf"is {x:.4g}, below its lower limit 0\.1"
    with pytest.raises(Exception, match=f'coordinate "stop" {side}'):
        simulate(mechanism, mechanism.state())


def test_gaps_of_a_system_are_numbered():
    with pytest.raises(Exception, match=r"`gap`\[0\] is -0.25[;.]"):
        simulate(Plane(law=mbd.ContactLaw(0.1)), mbd.State(0.0, [1.0, -0.25], [0.0, 0.0]))
