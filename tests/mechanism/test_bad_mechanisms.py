"""Bad input of mechanisms and of reports on them that was once misunderstood; see `refusals`."""

import jax
import numpy as np
from refusals import PLANE, check_refused, refusals

import jaxmbd as mbd


def body(name="arm", **options):
    return mbd.Body(name, mbd.Inertia(1.0, np.eye(3)), **options)


def pin(**options):
    options = {"axis": [0, 0, 1], "point": [0, 0, 0], **options}
    return mbd.Revolute("pin", "ground", body(), **options)


def held(**frames):
    return pin(point=None, axis=None, **frames)


def frame(position=(0.0, 0.0, 0.0), orientation=(1.0, 0.0, 0.0, 0.0)):
    return mbd.Pose(np.array(position), np.array(orientation))


def resting(**options):
    return mbd.Contact("rest", "ground", "arm", mbd.HalfSpace(), mbd.Sphere(0.1), **options)


@refusals(
    ("a-joint-among-the-bodies", "`bodies` of Mechanism has an entry, number 1, that must be a",
     lambda: mbd.Mechanism([body(), pin()])),
    ("orientation-not-unit", '`orientation` of body "arm" must be a unit quaternion',
     lambda: body(orientation=[2.0, 0, 0, 0])),
    ("frame-a-tuple", '`frame_a` of Revolute "pin" must be a `mbd.Pose`, but is',
     lambda: held(frame_a=(0, 0, 0), frame_b=frame())),
    ("frame-of-wrong-shape", r"`frame_a` of Revolute .pin. must have a `position` of shape \(3,\)",
     lambda: held(frame_a=frame((0.0, 0.0)), frame_b=frame())),
    ("frame-not-unit", "`frame_b` of Revolute .pin. must have a unit quaternion.* Divide by it",
     lambda: held(frame_a=frame(), frame_b=frame(orientation=(2.0, 0, 0, 0)))),
    ("pose-of-text", "`q` must be numbers, but is 'x'",
     lambda: mbd.Mechanism([body()]).pose("x", "arm")),
    ("friction-of-two-numbers-for-a-point", '`friction` of Contact "rest" .*each of its 1 contact',
     lambda: mbd.Mechanism([body()], contacts=[resting(friction=np.array([0.1, 0.2]))])),
    ("contacts_among-bodies-without-shapes", r"`pieces` of contacts_among .* \(body, shape\) or",
     lambda: mbd.contacts_among([body(), body("other")])),
)  # fmt: skip
def test_mechanisms(words, call):
    check_refused(call, words)


ARM = mbd.Mechanism([body()], [pin()])
REST = ARM.state()


def solution(result=mbd.RESULTS.successful):
    """Of one saved time."""
    q, v = np.asarray(REST.q)[None], np.asarray(REST.v)[None]
    zero, q, v, none = jax.device_put((np.zeros(1), q, v, np.zeros((1, 5))))
    return mbd.Solution(zero, q, v, none, zero, zero, None, {}, result)


@refusals(
    ("evaluate-at-a-short-q", "`q` has 3 entries, but the coordinates .* have nq = 7",
     lambda: mbd.evaluate(ARM, None, 0.0, np.zeros(3), np.zeros(6))),
    ("evaluate-a-system-at-a-long-q", r"`qdot\(q, v\)` must have",
     lambda: mbd.evaluate(PLANE, None, 0.0, np.zeros(3), np.zeros(2))),
    ("animate-into-no-folder", "`path` must lie in a folder that is there",
     lambda: mbd.plots.animate(ARM, solution(), "no such folder/x.gif", progress=False)),
    ("place-by-text", "`coordinates` of .pin. must be numbers, but is 'open'",
     lambda: mbd.place_bodies(ARM, {"pin": "open"})),
    ("reactions-of-too-few-multipliers", "`multipliers` must have 5 entries .*but has",
     lambda: mbd.reports.reactions(ARM, REST, "pin", np.zeros(3))),
    ("reactions-in-a-frame-elsewhere", '`frame`.* be a body of "pin", which are "ground", ',
     lambda: mbd.reports.reactions(ARM, REST, "pin", np.zeros(5), frame="rod")),
    ("audit-of-a-failed-motion", "1 of 1 motions failed",
     lambda: mbd.reports.audit(ARM, solution(result=mbd.RESULTS.nonfinite_state))),
    ("spline-of-numbers", "`angles` of PeriodicSpline must have shape",
     lambda: mbd.joints.PeriodicSpline(1.0, 2.0)),
)  # fmt: skip
def test_reports(words, call):
    check_refused(call, words)
