"""Bad input of simulations that was once misunderstood, where no annotation refuses it and
`test_inputs.py` has no other example, and the ranges of gains; see `refusals`."""

import diffrax
import helpers as h
import jax
import numpy as np
import pytest
from refusals import PLANE, START, Plane, check_refused, refusals

import jaxmbd as mbd

UK, ADAPTIVE = mbd.UdwadiaKalaba(), diffrax.PIDController(rtol=1e-3, atol=1e-3)
HANGING = mbd.State(0.0, [0.0, -0.9], [0.0, 0.0])


def simulated(system=PLANE, enforcement=UK, state=START, **options):
    if "t1" not in options:
        options = {"num_steps": 2, **options}
    return mbd.simulate(system, enforcement, state, **{"dt": 0.01, **options})


def partitioned(*independent):
    choice = mbd.methods.CoordinatePartitioning(independent)
    return simulated(h.Pendulum(), mbd.IndependentCoordinates(independent=choice), HANGING)


@pytest.mark.parametrize(
    "of, name, value, words",
    [
        (mbd.AugmentedLagrangian, "penalty", 0.0, "must be positive"),
        (mbd.methods.ExplicitPenalty, "stiffness", -1.0, "must be .*not negative"),
        (mbd.GeneralisedAlpha, "rho_inf", 1.2, r"must be in \[0, 1\]"),
        (mbd.LagrangeMultipliers, "alpha", -1.0, "must be .*not negative"),
        (mbd.Pseudoinverse, "rtol", np.nan, "must be between 0 and 1, but is nan"),
        (mbd.methods.Relaxation, "tau", 0, "must be positive"),
        (mbd.VelocityImpulse, "stabilisation", "relax", "must be a .*Dead"),
        (mbd.rotations.quaternion_log, "p", np.zeros(4), "must be a quaternion other than 0"),
    ],
)
def test_gains(of, name, value, words):
    check_refused(lambda: of(**{name: value}), f"`{name}` of {of.__name__} {words}")


@refusals(
    ("saveat", "`saveat` of simulate must be a `diffrax.SaveAt`, but is None",
     lambda: simulated(saveat=None)),
    ("saveat-steps-negative", "`steps` of SaveAt must be a whole number, at least 0, but is -1",
     lambda: simulated(saveat=diffrax.SaveAt(steps=-1))),
    ("saveat-ts-nan", "`ts` of SaveAt must be finite",
     lambda: simulated(saveat=diffrax.SaveAt(ts=jax.device_put(np.full(1, np.nan))))),
    ("t-a-vector", r"`state.t` must be a number, but has shape \(2,\).*vmap",
     lambda: simulated(state=mbd.State(np.zeros(2), START.q, START.v))),
    ("scheme-a-class", r"`scheme` of .*class `Tsit5`: make one, `diffrax.Tsit5\(",
     lambda: simulated(scheme=diffrax.Tsit5)),
    ("scheme-for-noise", "`scheme` must be of one vector field, but `EulerHeun` .* use e.g.",
     lambda: simulated(scheme=diffrax.EulerHeun())),
    ("scheme-of-a-method-with-its-own", "step of its own: leave out `scheme`",
     lambda: simulated(enforcement=mbd.GeneralisedAlpha(), scheme=mbd.RK4())),
    ("account-of-adaptive-steps", "`energy_tolerance` needs fixed steps",
     lambda: simulated(energy_tolerance=1.0, stepsize_controller=ADAPTIVE)),
    ("force-complex", r"`force\(t, q, v, u\)` must return floating-point .* complex128",
     lambda: simulated(Plane(lambda q: q.astype(complex)))),
    ("force-of-complex-numbers", r"`system.its_mass` must be real, but is \[\[\(1\+0j",
     lambda: simulated(Plane(its_mass=np.eye(2, dtype=complex)))),
    ("assemble-fixed-by-name", r"`fixed` of assemble must hold indices .* but is \['x'\]",
     lambda: mbd.assemble(PLANE, START.q, fixed=["x"])),
    ("independent-twice", r"name each velocity once, but is \(0, 0\)", lambda: partitioned(0, 0)),
    ("independent-3", r"indices of the 2 velocities, up to 1, but is \(3,\)",
     lambda: partitioned(3)),
    ("coefficients-of-three-contacts-for-two", r"`friction` of ContactLaw must be .*each of its 2",
     lambda: simulated(Plane(law=mbd.ContactLaw([0.1, 0.2, 0.3])), mbd.ContactImpulse())),
    ("a-method-without-contacts", "2 contacts, which `UdwadiaKalaba` ignores: use",
     lambda: simulated(Plane(law=mbd.ContactLaw(0.1)))),
)  # fmt: skip
def test_others(words, call):
    check_refused(call, words)
