"""A stepper that runs while it is shown."""

import time

import numpy as np
import pytest
from helpers import Oscillator
from refusals import check_refused, refusals
from swinging import double_pendulum

import jaxmbd as mbd

pytest.importorskip("viser", reason="the viewer needs viser: pip install jaxmbd[view]")

MASS = "bodies[ball].inertia.mass"


def ball():
    """A ball that only falls, pushed up by a control."""
    body = mbd.Body("ball", mbd.Inertia.sphere(radius=0.1, mass=2.0))
    push = mbd.PointForce("push", body, force_world=mbd.FromControl(0, gear=[0.0, 0.0, 1.0]))
    return mbd.Mechanism([body], [], [push])


@pytest.fixture(scope="module")
def live():
    stepper = mbd.Stepper(ball(), mbd.VelocityImpulse())
    controls, parameters = {"thrust": (0.0, 50.0)}, {MASS: (1.0, 4.0)}
    live = mbd.view(stepper, dt=1e-2, controls=controls, parameters=parameters)
    yield live
    live.stop()


def test_controls_and_parameters_act(live):
    live.reset()
    live.advance(0.5)
    # Semi-implicit steps of a free fall.
    assert float(np.asarray(live.state.q)[2]) == pytest.approx(-9.81 * 1e-4 * 50 * 51 / 2, rel=1e-9)
    speed = float(np.asarray(live.state.v)[2])
    live.controls["thrust"], live.parameters[MASS] = 30.0, 3.0
    live.advance(0.1)
    after = float(np.asarray(live.state.v)[2])
    assert (after - speed) / 0.1 == pytest.approx(30.0 / 3.0 - 9.81, rel=1e-9)


def test_the_scene_shows_the_state(live):
    live.reset()
    assert float(live.state.t) == 0.0
    live.advance(0.2)
    node = live._bodies["ball"]
    np.testing.assert_allclose(node.position, np.asarray(live.state.q)[:3], atol=1e-12)
    own = mbd.State(3.0, np.asarray(live.state.q) + np.eye(7)[1], live.state.v)
    live.update(own)
    np.testing.assert_allclose(node.position[1], 1.0)


@pytest.mark.slow
def test_it_runs_by_itself_and_pauses(live):
    live.reset()
    live.run()
    end = time.monotonic() + 20
    while float(live.state.t) < 0.1 and time.monotonic() < end:
        time.sleep(0.05)
    live.pause()
    time.sleep(0.2)
    stopped = float(live.state.t)
    time.sleep(0.2)
    assert 0.1 <= stopped == float(live.state.t)


@refusals(
    ("system", "must be of a `Mechanism`", lambda: _live(Oscillator())),
    ("bounds", "pair .lowest, highest", lambda: _live(controls={"u": (1.0, 0.0)})),
    ("one bound", "pair .lowest, highest", lambda: _live(controls={"u": (1.0,)})),
    ("path", "There is no parameter", lambda: _live(parameters={"bodies[x].mass": (1.0, 2.0)})),
    ("vector", "paths of single numbers", lambda: _live(parameters={"gravity": (1.0, 2.0)})),
)
def test_bad_inputs(words, call):
    check_refused(call, words)


def _live(system=None, **options):
    return mbd.view(mbd.Stepper(system or double_pendulum(), mbd.VelocityImpulse()), **options)
