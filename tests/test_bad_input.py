"""Inputs that were once accepted in silence, or refused in words about something inside: each is
refused in one line that names the argument and what it must be, or ends in a verdict, or is right.

Nothing here is compiled but for a few small runs; inputs that need a longer one are slow.
"""

import json
import re
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import identify, rollout, trajopt

TIMES = np.linspace(0.0, 1.0, 11)


def check_refused(call, words):
    """One line, of these words."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    message = str(caught.value)
    if isinstance(caught.value, jaxtyping.TypeCheckError):
        return  # tests with checks of all shapes may find it sooner
    assert re.search(words, message) and "\n" not in message, message


def refusals(*cases):
    """(name, words, call) each."""
    assert len({name for name, *_ in cases}) == len(cases)
    return pytest.mark.parametrize(
        "words, call", [pytest.param(words, call, id=name) for name, words, call in cases]
    )


# --- simulation ----------------------------------------------------------------------------------


class Plane(mbd.AbstractSystem):
    """A point in a plane, of any forces, masses and contacts."""

    its_force: Any = ()
    its_mass: Any = ()
    law: mbd.ContactLaw | None = None

    def mass_matrix(self, q):
        return jnp.eye(2) if self.its_mass == () else self.its_mass

    def force(self, t, q, v, u):
        return self.its_force(q) if callable(self.its_force) else jnp.array([0.0, -9.81])

    def gap(self, q, t):
        return jnp.zeros(0) if self.law is None else jnp.stack([q[1], q[1] + 1])

    def slip(self, q, v, t):
        return jnp.zeros((0, 0)) if self.law is None else jnp.stack([v[:1], v[:1]])

    @property
    def contact_law(self):
        return self.law


PLANE, START = Plane(), mbd.State(0.0, [0.0, 1.0], [1.0, 0.0])


def simulated(system=PLANE, enforcement=mbd.UdwadiaKalaba(), state=START, **options):  # noqa: B008
    if "t1" not in options:
        options = {"num_steps": 2, **options}
    return mbd.simulate(system, enforcement, state, **{"dt": 0.01, **options})


SaveAt = diffrax.SaveAt


@refusals(
    ("adjoint-text", "`adjoint` of simulate must be a `diffrax.AbstractAdjoint`, such as",
     lambda: simulated(adjoint="forward")),
    ("saveat-steps-1.5", "`steps` of SaveAt must be a whole number, at least 0, but is 1.5",
     lambda: simulated(saveat=SaveAt(steps=1.5))),
    ("saveat-steps-negative", "`steps` of SaveAt must be a whole number, at least 0, but is -1",
     lambda: simulated(saveat=SaveAt(steps=-1))),
    ("saveat-ts-nan", "`ts` of SaveAt must be finite",
     lambda: simulated(saveat=SaveAt(ts=[np.nan]))),
    ("saveat-none", "`saveat` of simulate must be a `diffrax.SaveAt`, but is None",
     lambda: simulated(saveat=None)),
    ("saveat-a-list", "`saveat` of simulate must be a `diffrax.SaveAt`, but is",
     lambda: simulated(saveat=[0.1])),
    ("control-a-number", "`control` of simulate must be a function, but is 1.0",
     lambda: simulated(control=1.0)),
    ("dt-a-vector", r"`dt` of simulate must have shape \(\), but has \(2,\)",
     lambda: simulated(dt=np.ones(2))),
    ("max_steps-0", "`max_steps` of simulate .* at least 1, but is 0",
     lambda: simulated(max_steps=0)),
    ("progress-true", "`progress` of simulate must be a `diffrax.AbstractProgressMeter`, such as",
     lambda: simulated(progress=True)),
    ("projection-a-number", "`projection` of simulate must be a `mbd.Projection`, but is 3",
     lambda: simulated(projection=3)),
    ("q-none", "`q` of State must be numbers, but is None", lambda: mbd.State(0.0, None, [0.0])),
    ("q-text", "`q` of State must be numbers, but is .left.",
     lambda: mbd.State(0.0, "left", [0.0])),
    ("q-complex", "`q` of State must be numbers, but is", lambda: mbd.State(0.0, [1j], [0.0])),
    ("t-text", "`t` of State must be numbers, but is .now.",
     lambda: mbd.State("now", [0.0], [0.0])),
    ("t-a-vector", r"`state.t` must be a number, but has shape \(2,\).*vmap",
     lambda: simulated(state=mbd.State(np.zeros(2), START.q, START.v))),
    ("t1-infinite", "`t1` of simulate must be finite, but is inf", lambda: simulated(t1=np.inf)),
    ("scheme-a-class", r"`scheme` of simulate .*class `Tsit5`: make one, `diffrax.Tsit5\(",
     lambda: simulated(scheme=diffrax.Tsit5)),
    ("scheme-for-noise", "`scheme` must be of one vector field, but `EulerHeun` .* use e.g.",
     lambda: simulated(scheme=diffrax.EulerHeun())),
    ("scheme-in-two", "`scheme` must be of one vector field, but `SemiImplicitEuler` .* use e.g.",
     lambda: simulated(scheme=diffrax.SemiImplicitEuler())),
    ("scheme-text", "`scheme` of simulate must be a `diffrax.AbstractSolver`, such as",
     lambda: simulated(scheme="rk4")),
    ("state-none", "`state` of simulate must be a `mbd.State`, but is None",
     lambda: simulated(state=None)),
    ("state-a-tuple", "`state` of simulate must be a `mbd.State`, but is",
     lambda: simulated(state=(0.0, [1.0, 0.0], [0.0, 0.0]))),
    ("stepsize-controller-a-number", "`stepsize_controller` of simulate must be a .*, such as",
     lambda: simulated(stepsize_controller=0.1)),
    ("enforcement-a-solver", "`enforcement` of simulate must be a `mbd.AbstractEnforcement`, such",
     lambda: simulated(enforcement=mbd.Pseudoinverse())),
    ("start_tolerance-nan", "`start_tolerance` of simulate must be not negative, but is nan",
     lambda: simulated(start_tolerance=np.nan)),
    ("drift_tolerance-negative", "`drift_tolerance` of simulate must be not negative, but is -1",
     lambda: simulated(drift_tolerance=-1.0)),
    ("throw-text", "`throw` of simulate must be `True` or `False`, but is .no.",
     lambda: simulated(throw="no")),
    ("force-none", r"`force\(t, q, v, u\)` must return one floating-point array, but returns None",
     lambda: simulated(Plane(lambda q: None))),
    ("force-complex", r"`force\(t, q, v, u\)` must return floating-point .* complex128",
     lambda: simulated(Plane(lambda q: q.astype(complex)))),
    ("force-of-complex-numbers", r"`system.its_mass` must be real, but is \[\[\(1\+0j",
     lambda: simulated(Plane(its_mass=jnp.eye(2, dtype=complex)))),
    ("mass-matrix-a-list", r"`mass_matrix\(q\)` must return one floating-point array.*`jnp.stack`",
     lambda: simulated(Plane(its_mass=[[1.0, 0.0], [0.0, 1.0]]))),
    ("assemble-t-nan", "`t` of assemble must be finite, but is nan",
     lambda: mbd.assemble(PLANE, START.q, t=np.nan)),
    ("assemble-fixed-by-name", r"`fixed` of assemble must hold indices .* but is \['x'\]",
     lambda: mbd.assemble(PLANE, START.q, fixed=["x"])),
    ("assemble-q-text", "`q` of assemble must be numbers, but is 'up'",
     lambda: mbd.assemble(PLANE, "up")),
    ("assemble-tolerance-nan", "`tolerance` of assemble must be positive and finite, but is nan",
     lambda: mbd.assemble(PLANE, START.q, tolerance=np.nan)),
    ("assemble-weights-negative", "`weights` of assemble must be positive and finite, but is",
     lambda: mbd.assemble(PLANE, START.q, weights=[1.0, -1.0])),
)  # fmt: skip
def test_simulation(words, call):
    check_refused(call, words)


@refusals(
    ("AugmentedLagrangian-penalty-0", "`penalty` of AugmentedLagrangian must be positive",
     lambda: mbd.AugmentedLagrangian(0.0)),
    ("ExplicitPenalty-stiffness-negative", "`stiffness` of ExplicitPenalty must be .*not negative",
     lambda: mbd.ExplicitPenalty(-1.0)),
    ("ImplicitPenalty-damping-negative", "`damping` of ImplicitPenalty must be not negative",
     lambda: mbd.ImplicitPenalty(1.0, -1.0)),
    ("LagrangeMultipliers-alpha-negative", "`alpha` of LagrangeMultipliers must be .*not negative",
     lambda: mbd.LagrangeMultipliers(alpha=-1.0, beta=1.0)),
    ("LagrangeMultipliers-beta-negative", "`beta` of LagrangeMultipliers must be .*not negative",
     lambda: mbd.LagrangeMultipliers(alpha=1.0, beta=-1.0)),
    ("LagrangeMultipliers-k-negative", "`k` of LagrangeMultipliers must be .*not negative",
     lambda: mbd.LagrangeMultipliers(k=-1.0)),
    ("LagrangeMultipliers-alpha-text", "`alpha` of LagrangeMultipliers must be numbers",
     lambda: mbd.LagrangeMultipliers(alpha="much", beta=1.0)),
    ("Pseudoinverse-rtol-2", "`rtol` of Pseudoinverse must be between 0 and 1, but is 2",
     lambda: mbd.Pseudoinverse(2.0)),
    ("Pseudoinverse-rtol-nan", "`rtol` of Pseudoinverse must be between 0 and 1, but is nan",
     lambda: mbd.Pseudoinverse(np.nan)),
    ("Pseudoinverse-rtol-negative", "`rtol` of Pseudoinverse must be between 0 and 1, but is -1",
     lambda: mbd.Pseudoinverse(-1.0)),
    ("Relaxation-negative", "`tau` of Relaxation must be positive", lambda: mbd.Relaxation(-1.0)),
    ("Relaxation-0", "`tau` of Relaxation must be positive", lambda: mbd.Relaxation(0)),
    ("ImplicitPenalty-form-text", "`form` of ImplicitPenalty must be a .*`mbd.Primal`",
     lambda: mbd.ImplicitPenalty(1.0, form="dual")),
    ("Projection-iterations-1.5", "`iterations` of Projection must be a whole number",
     lambda: mbd.Projection(iterations=1.5)),
    ("Projection-norm-text", "`norm` of Projection must be a .*`mbd.Euclidean`",
     lambda: mbd.Projection(norm="energy")),
    ("Proximal-refinements-1.5", "`refinements` of Proximal must be a whole number, at least 1",
     lambda: mbd.Proximal(refinements=1.5)),
    ("UdwadiaKalaba-solver-text", "`solver` of UdwadiaKalaba must be a .*ConstraintSolver`",
     lambda: mbd.UdwadiaKalaba("svd")),
    ("VelocityImpulse-stabilisation-text", "`stabilisation` of VelocityImpulse must be a .*Dead",
     lambda: mbd.VelocityImpulse(stabilisation="relax")),
    ("ContactImpulse-stabilisation-text", "`stabilisation` of ContactImpulse must be a .*DeadBeat",
     lambda: mbd.ContactImpulse(stabilisation="relax")),
    ("ContactImpulse-impact-law", "`impact_law` of ContactImpulse must be a .*, such as .*Newton",
     lambda: mbd.ContactImpulse(impact_law="energy")),
    ("ProjectedGaussSeidel-2.5", "`sweeps` of ProjectedGaussSeidel must be a whole number",
     lambda: mbd.ProjectedGaussSeidel(2.5)),
    ("ContactLaw-negative-friction", "`friction` of ContactLaw must be .*not negative",
     lambda: mbd.ContactLaw(-0.1)),
    ("ContactLaw-restitution-1.5", r"`restitution` of ContactLaw must be in \[0, 1\], but is 1.5",
     lambda: mbd.ContactLaw(restitution=1.5)),
    ("coefficients-of-three-contacts-for-two", r"`friction` of ContactLaw must be .*each of its 2",
     lambda: simulated(Plane(law=mbd.ContactLaw([0.1, 0.2, 0.3])), mbd.ContactImpulse())),
    ("a-method-without-contacts", "2 contacts, which `UdwadiaKalaba` ignores: use",
     lambda: simulated(Plane(law=mbd.ContactLaw(0.1)))),
)  # fmt: skip
def test_enforcement(words, call):
    check_refused(call, words)


@refusals(
    ("quaternion_log-of-zeros", "`p` of quaternion_log must be a quaternion other than 0",
     lambda: mbd.quaternion_log(np.zeros(4))),
    ("skew-of-a-matrix", r"`a` of skew must have shape \(3,\), but has \(3, 3\)",
     lambda: mbd.skew(np.eye(3))),
    ("quaternion_exp-of-four", r"`phi` of quaternion_exp must have shape \(3,\), but has \(4,\)",
     lambda: mbd.quaternion_exp(np.zeros(4))),
    ("quaternion_rotate-of-three", r"`p` of quaternion_rotate must have shape \(4,\), but has",
     lambda: mbd.quaternion_rotate(np.zeros(3), np.zeros(3))),
    ("rpy_to_matrix-of-two", r"`q` of rpy_to_matrix must have shape \(3,\), but has \(2,\)",
     lambda: mbd.rpy_to_matrix(np.zeros(2))),
    ("check_gradients-of-a-number", "`loss` of check_gradients must be a function",
     lambda: mbd.check_gradients(1.0, 1.0)),
    ("check_gradients-rtol-nan", "`rtol` of check_gradients must be positive",
     lambda: mbd.check_gradients(lambda x: x, 1.0, rtol=np.nan)),
    ("tangent_growth-every-0", "`every` of tangent_growth .*at least 1, but is 0",
     lambda: mbd.tangent_growth(PLANE, mbd.UdwadiaKalaba(), START, 1.0, 0.1, every=0)),
    ("first_nonfinite-dt-0", "`dt` of first_nonfinite must be positive",
     lambda: mbd.first_nonfinite(PLANE, mbd.UdwadiaKalaba(), START, 1.0, 0.0)),
)  # fmt: skip
def test_analysis(words, call):
    check_refused(call, words)


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
     lambda: mbd.animate(ARM, a_solution(), fps=0)),
    ("draw-a-plain-system", "`mechanism` of draw must be a `mbd.Mechanism`, but is",
     lambda: mbd.draw(PLANE)),
    ("mobility-of-a-plain-system", "`mechanism` of mobility must be a `mbd.Mechanism`, but is",
     lambda: mbd.mobility(PLANE)),
    ("place-a-plain-system", "`mechanism` of place_bodies must be a `mbd.Mechanism`, but is",
     lambda: mbd.place_bodies(PLANE, {"pin": 1.0})),
    ("place-by-text", "`coordinates` of .pin. must be numbers, but is 'open'",
     lambda: mbd.place_bodies(ARM, {"pin": "open"})),
    ("place-on-a-list", "`coordinates` of place_bodies must be a .*, but is",
     lambda: mbd.place_bodies(ARM, ["pin"])),
    ("total_energy-of-a-plain-system", "`mechanism` of total_energy must be a `mbd.Mechanism`",
     lambda: mbd.total_energy(PLANE, START.q, START.v)),
    ("joint_coordinates-of-a-short-q", r"`q` must have 7 entries .*but has shape \(5,\)",
     lambda: ARM.joint_coordinates(np.zeros(5), "pin")),
    ("singularity-of-a-short-q", r"`q` must have 7 entries .*but has shape \(5,\)",
     lambda: mbd.singularity(ARM, np.zeros(5))),
    ("violation-of-a-short-q", r"`q` must have 7 entries .*but has shape \(5,\)",
     lambda: mbd.violation(ARM, np.zeros(5))),
    ("reactions-of-too-few-multipliers", "`multipliers` must have 5 entries .*but has",
     lambda: mbd.reactions(ARM, 0.0, REST.q, np.zeros(3), "pin")),
)  # fmt: skip
def test_reports(words, call):
    check_refused(call, words)


# --- identification ------------------------------------------------------------------------------


class Oscillator(mbd.AbstractSystem):
    """x'' = -k x."""

    k: jax.Array | float = 4.0

    def mass_matrix(self, q):
        return np.eye(1)

    def force(self, t, q, v, u):
        return -self.k * q


POSITION = {"height": lambda sample: sample.q[0]}


def record(start=None, measured=None):
    measured = np.cos(2 * TIMES) if measured is None else measured
    return identify.Record(
        TIMES, measured, mbd.State(0.0, [1.0], [0.0]) if start is None else start
    )


def fitted(records=None, sensors=POSITION, parameters=None, dt=0.05, model=Oscillator, **options):
    parameters = {"k": 3.0} if parameters is None else parameters
    records = record() if records is None else records
    build = (lambda values: Oscillator(**values)) if model is Oscillator else model
    return identify.fit(build, parameters, records, sensors, dt=dt, progress=False, **options)


def an_estimate():
    """None was made: its methods refuse before they look at it."""
    return object.__new__(identify.Estimate)


@refusals(
    ("bootstrap-of-0", "`count` of bootstrap .* at least 1, but is 0",
     lambda: identify.bootstrap(an_estimate(), jax.random.key(0), 0)),
    ("bootstrap-without-key", "`key` of bootstrap must be one random key.*jax.random.key",
     lambda: identify.bootstrap(an_estimate(), 0)),
    ("bootstrap-of-no-estimate", "`estimate` of bootstrap .*identify.Estimate",
     lambda: identify.bootstrap(None, jax.random.key(0))),
    ("interval-at-level-2", r"`level` of Estimate.interval .*between 0 and 1, but is 2",
     lambda: an_estimate().interval(2)),
    ("interval-at-level-nan", "`level` of Estimate.interval .*between 0 and 1",
     lambda: an_estimate().interval(np.nan)),
    ("start-text", "`start` of fit must be a `mbd.identify.AbstractStart`, such as",
     lambda: fitted(start="unknown")),
    ("BodyPoint-of-two-numbers", r"`point` of BodyPoint must have shape \(3,\), but has \(2,\)",
     lambda: identify.BodyPoint("bob", [1.0, 2.0])),
    ("BodyPoint-of-a-number", "`body` of BodyPoint must be text", lambda: identify.BodyPoint(2)),
    ("Cauchy-0", "`scale` of Cauchy must be positive", lambda: identify.Cauchy(0)),
    ("Huber-negative", "`delta` of Huber must be positive.*-1", lambda: identify.Huber(-1)),
    ("Huber-nan", "`delta` of Huber must be positive.*nan", lambda: identify.Huber(np.nan)),
    ("MultiStart-of-0", "`count` of MultiStart .*at least 1, but is 0",
     lambda: identify.MultiStart(0, jax.random.key(0))),
    ("MultiStart-without-key", "`key` of MultiStart must be one random key",
     lambda: identify.MultiStart(5, 0)),
    ("records-text", "`records` of fit .*`mbd.identify.Record`.* but is 'data.csv'",
     lambda: fitted("data.csv")),
    ("records-of-text", "`records` of fit .*`mbd.identify.Record`.* but is", lambda: fitted(["a"])),
    ("dt-text", "`dt` of fit must be a number, but is 'small'", lambda: fitted(dt="small")),
    ("dt-nan", "`dt` of fit must be positive and finite, but is nan", lambda: fitted(dt=np.nan)),
    ("guess-text", "`guess` of `k` must be numbers, but is 'large'",
     lambda: fitted(parameters={"k": "large"})),
    ("loss-text", "`loss` of fit must be a `mbd.identify.AbstractLoss`, such as",
     lambda: fitted(loss="huber")),
    ("max_steps-0", "`max_steps` of fit .*at least 1, but is 0", lambda: fitted(max_steps=0)),
    ("max_steps-negative", "`max_steps` of fit .*at least 1, but is -3",
     lambda: fitted(max_steps=-3)),
    ("tolerance-nan", "`tolerance` of fit must be positive and finite, but is nan",
     lambda: fitted(tolerance=np.nan)),
    ("optimiser-text", "`optimiser` of fit must be a .*, but is 'adam'",
     lambda: fitted(optimiser="adam")),
    ("parameters-a-number", "`parameters` of fit must be a dictionary .*but is 3.0",
     lambda: fitted(parameters=3.0)),
    ("parameters-a-list-for-a-function", "`parameters` of fit must be a .*, but is",
     lambda: fitted(parameters=["k"])),
    ("prior-of-sigma-0", "`sigma` of Parameter must be positive", 
     lambda: identify.Parameter(3.0, sigma=0.0)),
    ("prior-of-negative-sigma", "`sigma` of Parameter must be positive, but is -0.5",
     lambda: identify.Parameter(3.0, sigma=-0.5)),
    ("prior-of-sigma-nan", "`sigma` of Parameter must be positive, but is nan",
     lambda: identify.Parameter(np.ones(2), sigma=[1.0, np.nan])),
    ("transform-text", "`transform` of Parameter must be a `mbd.identify.AbstractTransform`",
     lambda: identify.Parameter(3.0, "positive")),
    ("sensor-of-text", 'reading of sensor "height" must be numbers, but is \'high\'',
     lambda: fitted(sensors={"height": lambda sample: "high"})),
    ("sensor-that-is-no-function", r'`sensors\["height"\]` of fit must be a function',
     lambda: fitted(sensors={"height": 1.0})),
    ("sensors-a-number", "`sensors` of fit must be .*a function, but is 1.0",
     lambda: fitted(sensors=1.0)),
    ("shooting-text", "`shooting` of fit must be a `mbd.identify.AbstractShooting`",
     lambda: fitted(shooting="multiple")),
    ("start-nan", '`start` of Record "record" must be finite, but is',
     lambda: fitted(record(mbd.State(0.0, [np.nan], [0.0])))),
    ("start-none", "`start` of Record must be a `mbd.State` or a function, but is None",
     lambda: identify.Record(TIMES, TIMES, None)),
    ("start-an-array", "`start` of Record must be a `mbd.State` or a function, but is",
     lambda: record(np.zeros(2))),
    ("start-from-a-function-of-no-state", '`start` of Record "record" must be a `mbd.State`',
     lambda: fitted(record(lambda system: np.zeros(2)))),
    ("start-of-another-size", r"`mass_matrix\(q\)` must have shape \(2, 2\) for nq = 2, nv = 2",
     lambda: fitted(record(mbd.State(0.0, [1.0, 0.0], [0.0, 0.0])))),
    ("Bounded-by-text", "`lower` of Bounded must be numbers", lambda: identify.Bounded("a", 2.0)),
    ("Free-of-scale-0", "`scale` of Free must be positive", lambda: identify.Free(0.0)),
    ("UnknownStart-negative", "`sigma_position` of UnknownStart must be positive",
     lambda: identify.UnknownStart(sigma_position=-1.0)),
)  # fmt: skip
def test_identification(words, call):
    check_refused(call, words)


@pytest.mark.parametrize(
    "content, words",
    [
        (lambda data: b"[1, 2]\n", "no checkpoint of a fit: remove it"),
        (lambda data: b"\x00\xff", "no checkpoint of a fit: remove it"),
        (lambda data: data[: len(data) // 2], "is damaged: remove it"),
        (lambda data: data[: data.index(b"\n") + 1], "is damaged: remove it"),
    ],
    ids=["a-list", "bytes", "truncated", "header-alone"],
)
def test_damaged_checkpoint(tmp_path, content, words):
    path, state = tmp_path / "search", {"x": np.arange(50.0), "y": np.zeros(3)}
    checkpoint = identify.Checkpoint(path, state)
    checkpoint.save(4, state, now=True)
    assert json.loads(path.read_bytes().split(b"\n")[0])["iterations"] == 4
    assert eqx.tree_equal(checkpoint.restored(state), (4, state))
    path.write_bytes(content(path.read_bytes()))
    check_refused(lambda: checkpoint.restored(state), words)


# --- trajectory optimisation ---------------------------------------------------------------------


class Cart(mbd.AbstractSystem):
    """x'' = u."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return u


def cart(**changes):
    arguments = dict(system=Cart(), state=mbd.State(0.0, [0.0], [0.0]), duration=1.0, steps=4, nu=1)
    return trajopt.Problem(**{**arguments, **changes})


CART = cart()


def a_plan(steps):
    """Its times are all that is looked at."""
    plan = object.__new__(trajopt.Plan)
    for name, x in (("t", jnp.arange(steps + 1.0)), ("cost", jnp.array(1.0))):
        object.__setattr__(plan, name, x)
    return plan


@refusals(
    ("PiecewiseConstant-of-dt-0", "`dt` of PiecewiseConstant must be positive and finite, but is 0",
     lambda: trajopt.PiecewiseConstant(0.0, 0.0, np.ones((3, 1)))),
    ("PiecewiseLinear-of-negative-dt", "`dt` of PiecewiseLinear must be positive",
     lambda: trajopt.PiecewiseLinear(0.0, -1.0, np.ones((3, 1)))),
    ("PiecewiseQuadratic-of-dt-nan", "`dt` of PiecewiseQuadratic must be positive",
     lambda: trajopt.PiecewiseQuadratic(0.0, np.nan, np.ones((3, 1)), np.ones((2, 1)))),
    ("PiecewiseConstant-of-text", "`values` of PiecewiseConstant must be numbers",
     lambda: trajopt.PiecewiseConstant(0.0, 1.0, "up")),
    ("Saturated-with-bounds-crossed", "`lower` of Saturated must not exceed `upper`, but is 1.0",
     lambda: trajopt.Saturated(lambda t, q, v: q, 1.0, -1.0)),
    ("Squashed-with-bounds-crossed", "`lower` of Squashed must not exceed `upper`, but is",
     lambda: trajopt.Squashed(lambda t, q, v: q, [0.0, 1.0], 0.5)),
    ("Held-text", "`u` of Held must be numbers, but is 'up'", lambda: trajopt.Held("up")),
    ("Guess-of-text", "`q` of Guess must be numbers, but is 'a'",
     lambda: trajopt.transcription(CART, trajopt.Guess("a", "b", "c"))),
    ("Term-of-a-number", "`fn` of Term must be a function, but is 1.0",
     lambda: trajopt.Term(1.0, np.zeros((1, 1), int))),
    ("Saturated-of-a-number", "`control` of Saturated must be a function, but is 1.0",
     lambda: trajopt.Saturated(1.0, -1.0, 1.0)),
    ("Uno-of-an-unknown-preset", '`preset` of Uno must be "ipopt" or "filtersqp", but is .fast.',
     lambda: trajopt.Uno("fast")),
    ("Uno-of-tolerance-nan", "`tolerance` of Uno must be positive",
     lambda: trajopt.Uno(tolerance=np.nan)),
    ("SciPy-of-0-iterations", "`max_iterations` of SciPy .*at least 1",
     lambda: trajopt.SciPy(max_iterations=0)),
    ("best-of-one-plan", r"`plans` of best must be a batch.*shape \(\)",
     lambda: trajopt.best(a_plan(4))),
    ("best-of-a-list", "`plans` of best must be a `mbd.trajopt.Plan`, but is",
     lambda: trajopt.best([a_plan(4)])),
    ("duration-text", "`duration` of Problem must be numbers, but is 'short'",
     lambda: cart(duration="short")),
    ("duration-nan", "`duration` of Problem must be positive", lambda: cart(duration=np.nan)),
    ("steps-fraction", "`steps` of Problem must be a whole number, at least 1, but is 2.5",
     lambda: cart(steps=2.5)),
    ("scheme-text", "`scheme` of Problem must be a .*AbstractSolver`.* but is 'rk4'",
     lambda: cart(scheme="rk4")),
    ("state-a-tuple", "`state` of Problem must be a `mbd.State`, but is",
     lambda: cart(state=(0.0, [0.0], [0.0]))),
    ("running-cost-a-number", "`running_cost` of Problem must be a function, but is 1.0",
     lambda: cart(running_cost=1.0)),
    ("expansion-text", "`expansion` of ilqr must be a `mbd.trajopt.AbstractExpansion`, such as",
     lambda: trajopt.ilqr(CART, expansion="first")),
    ("guess-text", r"`guess`, a callable \(t, q, v\) -> u or an array, must be numbers.*'zero'",
     lambda: trajopt.ilqr(CART, "zero")),
    ("guess-of-another-shape", r"`guess` must be a callable .* \(4, 1\) or \(1,\), but has .*\(3,",
     lambda: trajopt.ilqr(CART, np.zeros(3))),
    ("interpolated-to-a-wrong-u", r"`u` must have shape \(1,\), but has \(3,\)",
     lambda: trajopt.interpolated(CART, u=np.zeros(3))),
    ("interpolated-to-q-text", "`q` of interpolated must be numbers, but is 'up'",
     lambda: trajopt.interpolated(CART, "up")),
    ("perform-a-number", r"`control` must be a callable .*, but has shape \(\)",
     lambda: trajopt.perform(CART, 1.0)),
    ("problem-a-system", "`problem` of ilqr must be a `mbd.trajopt.Problem`, but is",
     lambda: trajopt.ilqr(Cart())),
    ("receding-horizon-of-2.5-periods", "`periods` of receding_horizon must be a whole number",
     lambda: trajopt.receding_horizon(CART, 2.5)),
    ("replay-a-plan-of-another-grid", "`plan` of replay must be on the grid .*4 intervals",
     lambda: trajopt.replay(CART, a_plan(7))),
    ("shooting-with-bounds-of-text", "`bounds` of shooting must be a `mbd.trajopt.AbstractBounds`",
     lambda: trajopt.shooting(CART, bounds="squash")),
    ("shooting-of-tolerance-nan", "`tolerance` of shooting must be finite and not negative",
     lambda: trajopt.shooting(CART, tolerance=np.nan)),
    ("shooting-of-negative-penalty", "`penalty` of shooting must be positive",
     lambda: trajopt.shooting(CART, penalty=-1.0)),
    ("transcription-duration-a-number", "`duration` of transcription must be a sequence, but is 1",
     lambda: trajopt.transcription(CART, duration=1.0)),
    ("transcription-duration-of-three", "`duration` of transcription must be a pair of finite",
     lambda: trajopt.transcription(CART, duration=(1.0, 2.0, 3.0))),
    ("transcription-method-text", "`method` of transcription must be a .*AbstractTranscription`",
     lambda: trajopt.transcription(CART, method="trapezoidal")),
    ("transcription-solver-text", "`solver` of transcription must be a .*AbstractNLPSolver`",
     lambda: trajopt.transcription(CART, solver="ipopt")),
)  # fmt: skip
def test_trajectory_optimisation(words, call):
    check_refused(call, words)


# --- rollouts ------------------------------------------------------------------------------------


def run(one=lambda x, key: 2 * x, samples=np.arange(4.0), **options):  # noqa: B008
    return rollout.run(one, samples, progress=False, **options)


@refusals(
    ("function-that-returns-none", "function of run returned None, which holds no numbers: return",
     lambda: run(lambda x, key: None)),
    ("function-that-returns-text", "function of run returned 'done' .*not an array of numbers",
     lambda: run(lambda x, key: "done")),
    ("not-a-function", "`one` of run must be a function, but is 1.0", lambda: run(1.0)),
    ("samples-of-objects", "`samples` must be numbers or random keys, but is",
     lambda: run(samples=np.array([Cart(), Cart()]))),
    ("samples-text", r"`samples` must be numbers or random keys, but is \['a', 'b'\]",
     lambda: run(samples=np.array(["a", "b"]))),
    ("chunk-2.0", "`chunk` of run must be a whole number, but is 2.0", lambda: run(chunk=2.0)),
    ("chunk-3", "`chunk` of run must be a power of two, but is 3: e.g. 2", lambda: run(chunk=3)),
    ("store-text", "`store` of run must be a `mbd.rollout.AbstractStore`.* but is 'here'",
     lambda: run(store="here")),
    ("Zarr-at-a-number", "`path` of Zarr must be text or a", lambda: rollout.Zarr(3)),
    ("Mean-of-text", "`of` of Mean must be a function", lambda: rollout.Mean("q")),
    ("Histogram-nan", "`edges` of Histogram must be finite",
     lambda: rollout.Histogram([0.0, np.nan])),
    ("memory-negative", "`memory` of run must be positive", lambda: run(memory=-1.0)),
    ("key-0", "`key` of run must be one random key", lambda: run(key=0)),
)  # fmt: skip
def test_rollouts(words, call):
    check_refused(call, words)


def test_rollout_that_throws():
    """The remedy is named, and counts the sample that failed."""

    def one(height, key, throw=True):
        state = mbd.State(0.0, height[None], jnp.zeros(1))
        return mbd.simulate(Lifted(), mbd.UdwadiaKalaba(), state, num_steps=1, dt=0.01, throw=throw)

    heights = jnp.array([0.0, 0.5])
    with pytest.raises(RuntimeError, match="violates the constraints.*`throw=False`") as caught:
        run(one, heights)
    assert "\n" not in str(caught.value)
    found = run(lambda height, key: one(height, key, throw=False), heights)
    assert found.failures.index.tolist() == [1]
    assert repr(found).startswith("Rollouts(n=2") and "1 failures" in repr(found)


class Lifted(Cart):
    """At x = 0."""

    def force(self, t, q, v, u):
        return jnp.zeros(1)

    def constraint(self, q, t):
        return q


def test_a_run_without_failures_is_printed():
    assert "0 failures" in repr(run()) and "4 succeeded, 0 failed" in str(run())
