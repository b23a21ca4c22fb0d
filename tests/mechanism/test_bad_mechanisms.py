"""Bad input of mechanisms and of reports on them that was once misunderstood; see `refusals`."""

import numpy as np
from refusals import PLANE, START, check_refused, refusals

import jaxmbd as mbd

# --- mechanisms ----------------------------------------------------------------------------------


def body(name="arm", **options):
    return mbd.Body(name, mbd.Inertia(1.0, np.eye(3)), **options)


def pin(**options):
    options = {"axis": [0, 0, 1], "point": [0, 0, 0], **options}
    return mbd.Revolute("pin", "ground", body(), **options)


def held(**frames):
    return pin(point=None, axis=None, **frames)


def spring():
    ends = [[0, 0, 0], [1, 0, 0]]
    return mbd.Spring("s", "ground", body(), points=ends, rest_length=1.0, stiffness=1.0)


def frame(position=(0.0, 0.0, 0.0), orientation=(1.0, 0.0, 0.0, 0.0)):
    return mbd.Pose(np.array(position), np.array(orientation))


def resting(**options):
    return mbd.Contact("rest", "ground", "arm", mbd.HalfSpace(), mbd.Sphere(0.1), **options)


@refusals(
    ("a-body-instead-of-a-list", r"`bodies` of Mechanism must be a sequence, but is Body\(",
     lambda: mbd.Mechanism(body())),
    ("a-joint-among-the-bodies", "`bodies` of Mechanism has an entry, number 1, that must be a",
     lambda: mbd.Mechanism([body(), pin()])),
    ("a-joint-among-the-contacts", "`contacts` of Mechanism has an entry, number 0, .*mbd.Contact",
     lambda: mbd.Mechanism([body()], contacts=[pin()])),
    ("a-joint-among-the-forces", "`forces` of Mechanism has an entry, number 0, .*AbstractForce",
     lambda: mbd.Mechanism([body()], forces=[pin()])),
    ("a-force-among-the-joints", "`joints` of Mechanism has an entry, number 0, .*AbstractConstr",
     lambda: mbd.Mechanism([body()], [spring()])),
    ("centre-nan", "`center` of Inertia must be finite, but is",
     lambda: mbd.Inertia(1.0, np.eye(3), center=[np.nan, 0, 0])),
    ("mass-text", "`mass` of Inertia must be a number, but is '1 kg'",
     lambda: mbd.Inertia("1 kg", np.eye(3))),
    ("position-nan", '`position` of Body "arm" must be finite, but is',
     lambda: body(position=[np.nan, 0, 0])),
    ("position-text", '`position` of Body "arm" must be numbers, but is .origin.',
     lambda: body(position="origin")),
    ("velocity-nan", '`velocity` of Body "arm" must be finite, but is',
     lambda: body(velocity=[np.nan, 0, 0])),
    ("orientation-not-unit", '`orientation` of body "arm" must be a unit quaternion',
     lambda: body(orientation=[2.0, 0, 0, 0])),
    ("axis-text", '`axis` of Revolute "pin" must be numbers, but is .z.', lambda: pin(axis="z")),
    ("frame-a-tuple", '`frame_a` of Revolute "pin" must be a `mbd.Pose`, but is',
     lambda: held(frame_a=(0, 0, 0), frame_b=frame())),
    ("frame-of-wrong-shape", r"`frame_a` of Revolute .pin. must have a `position` of shape \(3,\)",
     lambda: held(frame_a=frame((0.0, 0.0)), frame_b=frame())),
    ("frame-with-a-wrong-quaternion", "`frame_a` of Revolute .pin. must have .*`orientation`",
     lambda: held(frame_a=frame(orientation=(1.0, 0.0)), frame_b=frame())),
    ("frame-not-unit", "`frame_b` of Revolute .pin. must have a unit quaternion.* Divide by it",
     lambda: held(frame_a=frame(), frame_b=frame(orientation=(2.0, 0, 0, 0)))),
    ("FromControl-gear-nan", "`gear` of FromControl must be finite, but is nan",
     lambda: mbd.FromControl(0, gear=np.nan)),
    ("Spring-law-a-number", '`law` of Spring "s" must be a function, but is 3.0',
     lambda: mbd.Spring("s", "ground", "arm", law=3.0)),
    ("Spring-potential-a-number", '`potential` of Spring "s" must be a function, but is 3.0',
     lambda: mbd.Spring("s", "ground", "arm", law=abs, potential=3.0)),
    ("inertia-with-negative-mass", "`mass` of Inertia.with_mass must be positive and",
     lambda: mbd.Inertia(1.0, np.eye(3)).with_mass(-1.0)),
    ("inertia-turned-by-a-vector", r"`R` of Inertia.turned must have shape \(3, 3\), but has",
     lambda: mbd.Inertia(1.0, np.eye(3)).turned(np.ones(3))),
    ("pose-of-text", "`q` must be numbers, but is 'x'",
     lambda: mbd.Mechanism([body()]).pose("x", "arm")),
    ("pose-of-a-short-q", r"`q` must have 7 entries .*but has shape \(5,\)",
     lambda: mbd.Mechanism([body()]).pose(np.zeros(5), "arm")),
    ("point-of-text", "of Pose.point must be numbers, but is 'x'", lambda: frame().point("x")),
    ("collide-a-body", "`a` of collide must be a `mbd.AbstractShape`, such as",
     lambda: mbd.collide(body(), frame(), mbd.Sphere(0.1), frame())),
    ("JointLimit-by-name", r"`joint` of JointLimit must be a `mbd.AbstractJoint`, .*'pin'",
     lambda: mbd.JointLimit("pin")),
    ("contact-frame-not-unit", '`frame_b` of Contact "rest" must have a unit quaternion',
     lambda: resting(frame_b=frame(orientation=(2.0, 0, 0, 0)))),
    ("friction-of-two-numbers-for-a-point", '`friction` of Contact "rest" .*each of its 1 contact',
     lambda: mbd.Mechanism([body()], contacts=[resting(friction=[0.1, 0.2])])),
    ("contacts_among-bodies-without-shapes", r"`pieces` of contacts_among .* \(body, shape\) or",
     lambda: mbd.contacts_among([body(), body("other")])),
    ("contacts_among-shapes-first", r"`pieces` of contacts_among .* \(body, shape\) or",
     lambda: mbd.contacts_among([(mbd.Sphere(0.1), body()), (mbd.HalfSpace(), "ground")])),
)  # fmt: skip
def test_mechanisms(words, call):
    check_refused(call, words)


# --- reports and pictures ------------------------------------------------------------------------


ARM = mbd.Mechanism([body()], [pin()])
REST = ARM.state()


def a_solution():
    """None was made: what takes it refuses something else."""
    return object.__new__(mbd.Solution)


@refusals(
    ("evaluate-at-a-short-q", "`q` has 3 entries, but the coordinates .* have nq = 7",
     lambda: mbd.evaluate(ARM, None, 0.0, np.zeros(3), np.zeros(6))),
    ("animate-at-fps-0", "`fps` of animate must be .*at least 1, but is 0",
     lambda: mbd.plots.animate(ARM, a_solution(), fps=0)),
    ("draw-a-plain-system", "`mechanism` of draw must be a `mbd.Mechanism`, but is",
     lambda: mbd.plots.draw(PLANE)),
    ("mobility-of-a-plain-system", "`mechanism` of mobility must be a `mbd.Mechanism`, but is",
     lambda: mbd.reports.mobility(PLANE)),
    ("place-a-plain-system", "`mechanism` of place_bodies must be a `mbd.Mechanism`, but is",
     lambda: mbd.place_bodies(PLANE, {"pin": 1.0})),
    ("place-by-text", "`coordinates` of .pin. must be numbers, but is 'open'",
     lambda: mbd.place_bodies(ARM, {"pin": "open"})),
    ("place-on-a-list", "`coordinates` of place_bodies must be a .*, but is",
     lambda: mbd.place_bodies(ARM, ["pin"])),
    ("total_energy-of-a-plain-system", "`mechanism` of total_energy must be a `mbd.Mechanism`",
     lambda: mbd.reports.total_energy(PLANE, START.q, START.v)),
    ("joint_coordinates-of-a-short-q", r"`q` must have 7 entries .*but has shape \(5,\)",
     lambda: ARM.joint_coordinates(np.zeros(5), "pin")),
    ("singularity-of-a-short-q", r"`q` must have 7 entries .*but has shape \(5,\)",
     lambda: mbd.reports.singularity(ARM, np.zeros(5))),
    ("violation-of-a-short-q", r"`q` must have 7 entries .*but has shape \(5,\)",
     lambda: mbd.reports.violation(ARM, np.zeros(5))),
    ("reactions-of-too-few-multipliers", "`multipliers` must have 5 entries .*but has",
     lambda: mbd.reports.reactions(ARM, 0.0, REST.q, np.zeros(3), "pin")),
)  # fmt: skip
def test_reports(words, call):
    check_refused(call, words)
