"""Bad input of simulations that was once misunderstood; see `refusals`."""

import diffrax
import numpy as np
import pytest
from refusals import PLANE, START, Plane, check_refused, refusals

import jaxmbd as mbd

UK = mbd.UdwadiaKalaba()


def simulated(system=PLANE, enforcement=UK, state=START, **options):
    if "t1" not in options:
        options = {"num_steps": 2, **options}
    return mbd.simulate(system, enforcement, state, **{"dt": 0.01, **options})


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("adjoint", "forward", "must be a `diffrax.AbstractAdjoint`, such as"),
        ("saveat", None, "must be a `diffrax.SaveAt`, but is None"),
        ("control", 1.0, "must be a function, but is 1.0"),
        ("dt", np.ones(2), r"must have shape \(\), but has \(2,\)"),
        ("max_steps", 0, ".* at least 1, but is 0"),
        ("progress", True, "must be a `diffrax.AbstractProgressMeter`, such as"),
        ("projection", 3, "must be a `mbd.Projection`, but is 3"),
        ("t1", np.inf, "must be finite, but is inf"),
        ("scheme", diffrax.Tsit5, r".*class `Tsit5`: make one, `diffrax.Tsit5\("),
        ("scheme", "rk4", "must be a `diffrax.AbstractSolver`, such as"),
        ("state", None, "must be a `mbd.State`, but is None"),
        ("stepsize_controller", 0.1, "must be a .*, such as"),
        ("enforcement", mbd.Pseudoinverse(), "must be a `mbd.AbstractEnforcement`, such"),
        ("start_tolerance", np.nan, "must be not negative, but is nan"),
        ("drift_tolerance", -1.0, "must be not negative, but is -1"),
        ("throw", "no", "must be `True` or `False`, but is .no."),
    ],
)
def test_arguments_of_simulate(name, value, words):
    check_refused(lambda: simulated(**{name: value}), f"`{name}` of simulate {words}")


@pytest.mark.parametrize(
    "of, name, value, words",
    [
        (mbd.AugmentedLagrangian, "penalty", 0.0, "must be positive"),
        (mbd.ExplicitPenalty, "stiffness", -1.0, "must be .*not negative"),
        (mbd.LagrangeMultipliers, "alpha", -1.0, "must be .*not negative"),
        (mbd.LagrangeMultipliers, "alpha", "much", "must be numbers"),
        (mbd.Pseudoinverse, "rtol", np.nan, "must be between 0 and 1, but is nan"),
        (mbd.Relaxation, "tau", 0, "must be positive"),
        (mbd.Projection, "iterations", 1.5, "must be a whole number"),
        (mbd.Projection, "norm", "energy", "must be a .*`mbd.Euclidean`"),
        (mbd.Proximal, "refinements", 1.5, "must be a whole number, at least 1"),
        (mbd.UdwadiaKalaba, "solver", "svd", "must be a .*ConstraintSolver`"),
        (mbd.VelocityImpulse, "stabilisation", "relax", "must be a .*Dead"),
        (mbd.ContactImpulse, "stabilisation", "relax", "must be a .*DeadBeat"),
        (mbd.ContactImpulse, "impact_law", "energy", "must be a .*, such as .*Newton"),
        (mbd.ProjectedGaussSeidel, "sweeps", 2.5, "must be a whole number"),
        (mbd.ContactLaw, "friction", -0.1, "must be .*not negative"),
        (mbd.rotations.quaternion_log, "p", np.zeros(4), "must be a quaternion other than 0"),
        (mbd.rotations.skew, "a", np.zeros(4), r"must have shape \(\*batch, 3\), but has \(4,\)"),
        (mbd.rotations.rpy_to_matrix, "q", np.zeros(2), r"must have .*3\), but has \(2,\)"),
    ],
)
def test_arguments_of_others(of, name, value, words):
    check_refused(lambda: of(**{name: value}), f"`{name}` of {of.__name__} {words}")


@refusals(
    ("saveat-steps-1.5", "`steps` of SaveAt must be a whole number, at least 0, but is 1.5",
     lambda: simulated(saveat=diffrax.SaveAt(steps=1.5))),
    ("saveat-steps-negative", "`steps` of SaveAt must be a whole number, at least 0, but is -1",
     lambda: simulated(saveat=diffrax.SaveAt(steps=-1))),
    ("saveat-ts-nan", "`ts` of SaveAt must be finite",
     lambda: simulated(saveat=diffrax.SaveAt(ts=[np.nan]))),
    ("q-none", "`q` of State must be numbers, but is None", lambda: mbd.State(0.0, None, [0.0])),
    ("q-text", "`q` of State must be numbers, but is .left.",
     lambda: mbd.State(0.0, "left", [0.0])),
    ("q-complex", "`q` of State must be numbers, but is", lambda: mbd.State(0.0, [1j], [0.0])),
    ("t-text", "`t` of State must be numbers, but is .now.",
     lambda: mbd.State("now", [0.0], [0.0])),
    ("t-a-vector", r"`state.t` must be a number, but has shape \(2,\).*vmap",
     lambda: simulated(state=mbd.State(np.zeros(2), START.q, START.v))),
    ("scheme-for-noise", "`scheme` must be of one vector field, but `EulerHeun` .* use e.g.",
     lambda: simulated(scheme=diffrax.EulerHeun())),
    ("scheme-in-two", "`scheme` must be of one vector field, but `SemiImplicitEuler` .* use e.g.",
     lambda: simulated(scheme=diffrax.SemiImplicitEuler())),
    ("force-none", r"`force\(t, q, v, u\)` must return one floating-point array, but returns None",
     lambda: simulated(Plane(lambda q: None))),
    ("force-complex", r"`force\(t, q, v, u\)` must return floating-point .* complex128",
     lambda: simulated(Plane(lambda q: q.astype(complex)))),
    ("force-of-complex-numbers", r"`system.its_mass` must be real, but is \[\[\(1\+0j",
     lambda: simulated(Plane(its_mass=np.eye(2, dtype=complex)))),
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
    ("ImplicitPenalty-damping", "`damping` of ImplicitPenalty must be not negative",
     lambda: mbd.ImplicitPenalty(1.0, -1.0)),
    ("ImplicitPenalty-form", "`form` of ImplicitPenalty must be a .*`mbd.Primal`",
     lambda: mbd.ImplicitPenalty(1.0, form="dual")),
    ("coefficients-of-three-contacts-for-two", r"`friction` of ContactLaw must be .*each of its 2",
     lambda: simulated(Plane(law=mbd.ContactLaw([0.1, 0.2, 0.3])), mbd.ContactImpulse())),
    ("a-method-without-contacts", "2 contacts, which `UdwadiaKalaba` ignores: use",
     lambda: simulated(Plane(law=mbd.ContactLaw(0.1)))),
    ("quaternion_rotate-of-three", r"`p` of quaternion_rotate must have shape .*4\), but has",
     lambda: mbd.rotations.quaternion_rotate(np.zeros(3), np.zeros(3))),
    ("check_gradients-of-a-number", "`loss` of check_gradients must be a function",
     lambda: mbd.analysis.check_gradients(1.0, 1.0)),
    ("check_gradients-rtol-nan", "`rtol` of check_gradients must be positive",
     lambda: mbd.analysis.check_gradients(lambda x: x, 1.0, rtol=np.nan)),
    ("tangent_growth-every-0", "`every` of tangent_growth .*at least 1, but is 0",
     lambda: mbd.analysis.tangent_growth(PLANE, UK, START, 1.0, 0.1, every=0)),
    ("first_nonfinite-dt-0", "`dt` of first_nonfinite must be positive",
     lambda: mbd.analysis.first_nonfinite(PLANE, UK, START, 1.0, 0.0)),
)  # fmt: skip
def test_others(words, call):
    check_refused(call, words)
