"""Simulations that fail end in a member of `RESULTS`, with the last good state: one system with all
faults, on each family of methods."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd

R, DT = mbd.RESULTS, 0.01
GOOD = R.successful


class Faulty(mbd.AbstractSystem):
    """A mass in space that slides along x, at 2 m/s and held by nothing."""

    mass: Array = h.parameter(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))
    row: Array = h.parameter((0.0, 1.0, 0.0))  # beside that of z
    burst: Array = h.parameter(10.0)  # when the force is no number any more
    steepness: Array = h.parameter(0.0)
    locked: Array = h.parameter(10.0)  # where the coordinates are locked
    never: Array = h.parameter(0.0)  # other than 0, no position satisfies the second row

    def mass_matrix(self, q):
        return self.mass

    def force(self, t, q, v, u):
        steep = -jnp.where(q + v / 3 > 1.5, 1.0, -1.0) * self.steepness
        return jnp.where(t > self.burst, jnp.nan, steep * jnp.array([1, 0, 0], q.dtype))

    def constraint(self, q, t):
        return jnp.stack([q[2], self.row @ q + self.never * (1 + q[1] ** 2)])

    def result(self, q):
        return R.where(q[0] > self.locked, R.gimbal_lock, GOOD)


# The fault, the start, the verdict, and how many steps of 6 are good.
FAULTS = {
    "none": ({}, {}, GOOD, 6),
    "negative mass": (dict(mass=np.diag([1.0, -1.0, 1.0])), {}, R.mass_matrix_indefinite, 0),
    "indefinite mass": (
        dict(mass=[[1.0, 2, 0], [2, 1, 0], [0, 0, 1]]), {}, R.mass_matrix_indefinite, 0,
    ),
    "singular mass": (dict(mass=np.diag([1.0, 0.0, 1.0])), {}, R.mass_matrix_indefinite, 0),
    "mass without symmetry": (
        dict(mass=[[1.0, 0.3, 0], [0.1, 1, 0], [0, 0, 1]]), {}, R.mass_matrix_indefinite, 0,
    ),
    "mass that is no number": (dict(mass=np.full((3, 3), np.nan)), {}, R.nonfinite_state, 0),
    "dependent rows": (dict(row=[0.0, 0.0, 2.0]), {}, R.singular_constraints, 0),
    "force that is no number": (dict(burst=2.5 * DT), {}, R.nonfinite_state, 3),
    "locked coordinates": (dict(locked=1 + 4.5 * 2 * DT), {}, R.gimbal_lock, 5),
    "drift": ({}, dict(z=8e-4), R.drift, 0),
    "position off": ({}, dict(z=0.05), R.inconsistent_start, 0),
    "velocity off": ({}, dict(vz=0.05), R.inconsistent_start, 0),
}  # fmt: skip


def of_all(faults):
    """Systems and starts as one batch."""
    systems = jax.tree.map(lambda *x: np.stack(x), *(Faulty(**fault) for fault, *_ in faults))
    starts = [start for _, start, *_ in faults]
    q = np.array([[1.0, 0.0, start.get("z", 0.0)] for start in starts])
    v = np.array([[2.0, 0.0, start.get("vz", 0.0)] for start in starts])
    return systems, q, v


@eqx.filter_jit
def run(method, batch, dt=DT, throw=False, **options):
    def one(system, q, v):
        steps = {} if "t1" in options else dict(num_steps=6)
        return mbd.simulate(
            system, method, mbd.State(0.0, q, v), dt=dt, throw=throw, **steps, **options
        )

    return jax.vmap(one)(*batch)


CHOLESKY = mbd.Cholesky()
METHODS = {
    "udwadia_kalaba": mbd.UdwadiaKalaba(CHOLESKY),
    "multipliers": mbd.LagrangeMultipliers(mbd.solvers.KKT()),
    "impulse": mbd.VelocityImpulse(CHOLESKY),
    "independent": mbd.IndependentCoordinates(CHOLESKY),
    "alpha": mbd.GeneralisedAlpha(solver=CHOLESKY),
    "variational": mbd.Variational(CHOLESKY),
    "augmented": mbd.AugmentedLagrangian(),
    "primal": mbd.ImplicitPenalty(1.0, 1.0, mbd.methods.Primal()),
}
# KKT solves with any mass, and penalties with any rows.
EXEMPT = {
    "multipliers": {"negative mass", "indefinite mass", "singular mass"},
    "augmented": {"dependent rows"},
    "primal": {"dependent rows", "position off", "velocity off"},
}


# They meet the force at the end of the step too.
MET = {
    "independent": R.nonfinite_state,
    "alpha": R.implicit_scheme_unsolved,
    "variational": R.nonfinite_state,
}


@pytest.mark.parametrize("name", METHODS)
def test_faults(name):
    faults = {k: x for k, x in FAULTS.items() if k not in EXEMPT.get(name, ())}
    if name in MET:
        faults["force that is no number"] = dict(burst=2.5 * DT), {}, MET[name], 2
    if name in ("alpha", "variational"):
        faults["force that jumps"] = dict(steepness=1e6), {}, R.implicit_scheme_unsolved, 0
    scheme = diffrax.Euler() if name in ("udwadia_kalaba", "multipliers", "augmented") else None
    batch = of_all(list(faults.values()))
    saveat = diffrax.SaveAt(t0=True, steps=True)
    sol = run(METHODS[name], batch, scheme=scheme, drift_tolerance=5e-4, saveat=saveat)
    h.assert_verdicts(sol.result, [verdict for *_, verdict, _ in faults.values()])
    good = np.array([steps for *_, steps in faults.values()])
    np.testing.assert_array_equal(sol.stats["num_steps"], good)
    # The states are held at the last good one, while the time goes on.
    held = np.minimum(np.arange(7)[None], good[:, None])
    np.testing.assert_allclose(np.asarray(sol.q)[:, :, 0], 1 + 2 * DT * held, rtol=1e-12)
    np.testing.assert_allclose(sol.t, np.tile(DT * np.arange(7), (len(good), 1)), atol=1e-15)
    assert np.all(np.isfinite(sol.q)) and np.all(np.isfinite(sol.v))


EULER, FREE = (
    diffrax.Euler(),
    mbd.methods.ExplicitPenalty(0.0),
)  # the verdicts below are no method's own


def test_held_between_steps():
    batch = of_all([FAULTS["force that is no number"]])
    saveat = diffrax.SaveAt(ts=jax.device_put(np.array([0.005, 0.015, 0.035, 0.06])))
    sol = run(FREE, batch, scheme=EULER, saveat=saveat)
    np.testing.assert_allclose(np.asarray(sol.q)[0, 2:, 0], 1.06, rtol=1e-14)


def test_projection_that_cannot():
    batch = of_all([(dict(never=1.0), {}), (dict(never=-1.0), {})])  # from both sides
    sol = run(FREE, batch, scheme=EULER, projection=mbd.Projection(iterations=1))
    h.assert_verdicts(sol.result, R.projection_failed)


def test_adaptive_steps():
    """The same members as at fixed steps. A force that is no number is taken for a step too large,
    which is halved until the steps are used up. The step that drifts too far is the last one."""
    names = "none", "negative mass", "dependent rows", "force that is no number", "position off"
    faults = [*(FAULTS[name] for name in names), ({}, dict(vz=8e-4), R.drift, 1)]
    sol = run(
        mbd.LagrangeMultipliers(CHOLESKY),
        of_all(faults),
        t1=0.06,
        scheme=diffrax.Heun(),
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
        saveat=diffrax.SaveAt(ts=jax.device_put(np.array([0.01, 0.05]))),
        max_steps=60,
        drift_tolerance=5e-6,
    )
    expected = [fault[2] for fault in faults]
    expected[3] = R.max_steps_reached
    h.assert_verdicts(sol.result, expected)
    # held at t = 0.025
    np.testing.assert_allclose(np.asarray(sol.q)[3, :, 0], [1.02, 1.05], rtol=1e-4)
    assert np.all(np.isfinite(sol.q)) and np.all(np.isfinite(sol.v))
    assert np.asarray(sol.stats["num_accepted_steps"])[5] == 1


@pytest.mark.parametrize(
    "controller",
    # A step that fails at the shortest length allowed.
    [None, diffrax.PIDController(rtol=1e-3, atol=1e-3, dtmin=0.5, force_dtmin=True)],
)
def test_implicit_schemes_that_are_not_solved(controller):
    """Newton's method goes to and fro between the sides of a force that jumps."""
    system, q, v = of_all([({}, {}), (dict(steepness=1e3), {})])
    options = dict(scheme=mbd.methods.CrankNicolson(), stepsize_controller=controller, t1=1.0)
    sol = run(FREE, (system, q, 0 * v), dt=0.5, **options)
    h.assert_verdicts(sol.result, [GOOD, R.implicit_scheme_unsolved])


PENDULUM = h.Pendulum()
OFF = mbd.State(0.0, np.array([0.95, 0.0]), np.zeros(2))


def test_failures_are_raised():
    """With its message, unless the start may be off by so much; compliant rows deflect."""
    options = dict(dt=DT, num_steps=2)
    method, soft = mbd.VelocityImpulse(CHOLESKY), mbd.ImplicitPenalty(1e3)
    with pytest.raises(RuntimeError, match="violates the constraints"):
        mbd.simulate(PENDULUM, method, OFF, **options)
    for method, tolerance in ((method, 0.1), (soft, 1e-3)):
        sol = mbd.simulate(PENDULUM, method, OFF, start_tolerance=tolerance, **options)
        h.assert_verdicts(sol.result, GOOD)
