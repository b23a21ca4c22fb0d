"""Bad input and failed numerics: a clear error, or a member of `RESULTS`."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import jaxmbd as mbd

SaveAt = diffrax.SaveAt
UK = mbd.UdwadiaKalaba()
START = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.0, 0.0]))
PENDULUM = h.Pendulum()


def simulate(system=PENDULUM, enforcement=UK, state=START, **options):
    """Two cheap steps, unless told otherwise."""
    steps = {} if "t1" in options or "num_steps" in options else dict(num_steps=2)
    options = {"dt": 0.01, "scheme": diffrax.Euler(), **steps, **options}
    if isinstance(enforcement, mbd.AbstractSplitEnforcement):
        options["scheme"] = None
    return mbd.simulate(system, enforcement, state, **options)


class Wrong(mbd.AbstractSystem):
    """A pendulum one of whose functions is replaced."""

    replace: dict = eqx.field(static=True)

    def _or(self, name, default, *args):
        return self.replace[name](*args) if name in self.replace else default

    def mass_matrix(self, q):
        return self._or("mass_matrix", jnp.eye(2), q)

    def force(self, t, q, v, u):
        return self._or("force", jnp.array([0.0, -9.81]), t, q, v, u)

    def constraint(self, q, t):
        return self._or("constraint", q @ q - 0.81, q, t)

    def nonholonomic(self, q, v, t):
        return self._or("nonholonomic", jnp.zeros(0), q, v, t)

    def nonideal_force(self, q, v, t):
        return self._or("nonideal_force", jnp.zeros(2), q, v, t)

    def qdot(self, q, v):
        return self._or("qdot", v, q, v)


# --- shapes and types: errors before anything is computed ----------------------------------------


@pytest.mark.parametrize(
    "name, function, message",
    [
        ("mass_matrix", lambda q: jnp.eye(3), r"mass_matrix.*\(2, 2\).*\(3, 3\)"),
        ("mass_matrix", lambda q: jnp.ones(2), r"mass_matrix.*\(2, 2\).*\(2,\)"),
        ("force", lambda t, q, v, u: jnp.zeros(3), r"force.*\(2,\).*\(3,\)"),
        ("force", lambda t, q, v, u: jnp.zeros(()), r"force.*\(2,\).*\(\)"),
        ("nonideal_force", lambda q, v, t: jnp.zeros(1), r"nonideal_force.*\(2,\).*\(1,\)"),
        ("qdot", lambda q, v: jnp.zeros(3), r"qdot.*\(2,\).*\(3,\)"),
        ("constraint", lambda q, t: (q[0], q[1]), r"constraint.*one floating-point array.*stack"),
        ("constraint", lambda q, t: jnp.array([1]), r"constraint.*floating-point"),
        ("nonholonomic", lambda q, v, t: [v[0]], r"nonholonomic.*one floating-point array"),
    ],
)
@pytest.mark.parametrize("enforcement", [UK, mbd.VelocityImpulse()])
def test_functions_of_wrong_shape(name, function, message, enforcement):
    with pytest.raises(ValueError, match=message):
        simulate(Wrong({name: function}), enforcement)


def test_assemble_checks_shapes_too():
    with pytest.raises(ValueError, match="Give `v`.*`qdot`"):
        mbd.assemble(Wrong({}), START.q)
    with pytest.raises(ValueError, match=r"mass_matrix.*\(2, 2\)"):
        mbd.assemble(Wrong({"mass_matrix": lambda q: jnp.eye(3)}), START.q, START.v)
    with pytest.raises(ValueError, match=r"weights.*\(2,\).*\(3,\)"):
        mbd.assemble(PENDULUM, START.q, weights=jnp.ones(3))
    with pytest.raises(ValueError, match="fixed.*below 2"):
        mbd.assemble(PENDULUM, START.q, fixed=[2])
    with pytest.raises(ValueError, match="fixed_velocities.*shape"):
        mbd.assemble(PENDULUM, START.q, fixed_velocities=[True])


@pytest.mark.parametrize(
    "q, v, message",
    [
        (np.zeros((5, 2)), np.zeros((5, 2)), r"`q` must be a vector.*\(5, 2\).*vmap"),
        (np.zeros(3), np.zeros(3), r"mass_matrix.*\(3, 3\).*nq = 3, nv = 3.*\(2, 2\)"),
    ],
)
def test_states_of_wrong_kind(q, v, message):
    with pytest.raises(ValueError, match=message):
        simulate(state=mbd.State(0.0, q, v))
    with pytest.raises(ValueError, match=message):
        mbd.assemble(PENDULUM, q, v)


def test_whole_numbers_become_floating_point():
    state = mbd.State(0.0, [1, 0], [0, 2])
    assert (state.q.dtype, state.v.dtype) == (jnp.float64, jnp.float64)
    assert mbd.assemble(PENDULUM, [1, 0]).q.dtype == jnp.float64


def test_sizes_of_the_coordinates():
    top = h.CASES["top"]
    with pytest.raises(ValueError, match="`q` has 6 entries.*nq = 7"):
        simulate(top.system, state=mbd.State(0.0, np.ones(6), np.zeros(6)))
    with pytest.raises(ValueError, match="`v` has 7 entries.*nv = 6"):
        simulate(top.system, state=mbd.State(0.0, np.ones(7), np.zeros(7)))


@pytest.mark.parametrize(
    "enforcement, name",
    [
        (mbd.LagrangeMultipliers(k=jnp.ones(2)), "k"),
        (mbd.LagrangeMultipliers(d=jnp.ones(3)), "d"),
        (mbd.ImplicitPenalty(jnp.ones(2), 1.0), "stiffness"),
        (mbd.ImplicitPenalty(1.0, jnp.ones(2), mbd.Primal()), "damping"),
        (mbd.ExplicitPenalty(jnp.ones(2)), "stiffness"),
    ],
)
def test_gains_of_each_row(enforcement, name):
    with pytest.raises(ValueError, match=f"`{name}`.*each of the 1 rows.*shape"):
        simulate(enforcement=enforcement)


def test_relaxation_of_each_row():
    """tau has one value a row, as the other gains."""
    with pytest.raises(ValueError, match="tau"):
        simulate(enforcement=mbd.VelocityImpulse(stabilisation=mbd.Relaxation(jnp.ones(2))))


def test_not_a_system_or_enforcement():
    """With type checks, those say so."""
    errors = (ValueError, jaxtyping.TypeCheckError)
    with pytest.raises(errors, match="(?s)system.*AbstractSystem"):
        simulate(system=lambda q: q)
    with pytest.raises(errors, match="(?s)enforcement.*(method|Enforcement)"):
        simulate(enforcement=mbd.Pseudoinverse())


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: mbd.LagrangeMultipliers(alpha=1.0, k=1.0), "either `alpha` and `beta` or"),
        (lambda: mbd.AugmentedLagrangian(iterations=0), "`iterations`.*at least 1"),
        (lambda: mbd.Projection(iterations=-1), "`iterations` of Projection.*at least 0.*-1"),
        (lambda: mbd.Proximal(rho=0.0), "`rho`.*positive"),
        (lambda: mbd.Proximal(refinements=0), "`refinements`.*at least 1"),
        (lambda: mbd.Product(mbd.Plain(), mbd.QuaternionBody()), "known sizes.*Plain\\(3\\)"),
    ],
)
def test_options_of_objects(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "call", [lambda: simulate(step=0.1), lambda: mbd.assemble(PENDULUM, START.q, fix=[0])]
)
def test_unknown_keyword(call):
    with pytest.raises(TypeError, match="unexpected keyword|step|fix"):
        call()


# --- times, steps and saving ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(t1=1.0, dt=0.0), "`dt` of simulate must be positive.*0.0"),
        (dict(t1=1.0, dt=-0.1), "`dt` of simulate must be positive.*-0.1"),
        (dict(t1=1.0, dt=np.nan), "`dt` of simulate must be positive and finite.*nan"),
        (dict(t1=1.0, dt=np.inf), "`dt` of simulate must be positive and finite.*inf"),
        (dict(num_steps=3, dt=-0.1), "`dt` of simulate must be positive.*-0.1"),
        (dict(t1=0.0), "`t1`.* must be after the start 0.0.*0.0"),
        (dict(t1=-1.0), "`t1`.* must be after the start 0.0.*-1.0"),
        (dict(t1=np.nan), "`t1` of simulate must be finite.*nan"),
        (dict(t1=1.0, t0=2.0), "`t1`.* must be after the start 2.0"),
        (dict(num_steps=0), "`num_steps`.*at least 1.*0"),
        (dict(num_steps=3, t1=1.0), "either `t1` or `num_steps`"),
        (dict(t1=1.0, dt=None), "Give `dt`, and either `t1` or `num_steps`"),
        (dict(num_steps=3, dt=None), "Give `dt`"),
    ],
    ids=str,
)
def test_times(options, message):
    with pytest.raises(ValueError, match=message):
        simulate(**options)


def test_neither_end_nor_number_of_steps():
    with pytest.raises(ValueError, match="Give `dt`, and either `t1` or `num_steps`"):
        mbd.simulate(PENDULUM, UK, START)


def test_number_of_steps_is_a_whole_number():
    for steps in (2.5, 3.0, 0, "three"):
        with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="num_steps"):
            simulate(num_steps=steps)


@pytest.mark.parametrize("name, remedy", [("t1", "num_steps"), ("dt", "num_steps"), ("t0", "t0=")])
def test_traced_times(name, remedy):
    """The number of steps must be known; each message says how."""
    options = {"t1": 1.0, "dt": 0.1}

    def end(x):
        if name == "t0":
            return simulate(state=mbd.State(x, START.q, START.v), **options).q
        return simulate(**{**options, name: x}).q

    what = "state.t" if name == "t0" else name
    with pytest.raises(ValueError, match=f"`{what}` is traced.*{remedy}"):
        jax.jit(end)(jnp.asarray(0.1))


@pytest.mark.parametrize(
    "saveat, message",
    [
        (SaveAt(dense=True), "t0, t1, ts, steps and fn"),
        (SaveAt(t1=True, solver_state=True), "t0, t1, ts, steps and fn"),
        (SaveAt(ts=[0.01], steps=True), "either `ts` or `steps`"),
        (SaveAt(subs=[diffrax.SubSaveAt(t1=True), diffrax.SubSaveAt(t0=True)]), "SubSaveAt"),
        (SaveAt(), "save something"),
        (SaveAt(ts=[0.005, 0.03]), r"increase within \[0.0, 0.02\].*0.005 to 0.03"),
        (SaveAt(ts=[-0.01, 0.01]), "increase within"),
        (SaveAt(ts=[0.01, 0.005]), "increase within"),
    ],
    ids=[
        "dense",
        "solver_state",
        "both",
        "tree",
        "nothing",
        "late",
        "early",
        "falling",
    ],
)
def test_saveat(saveat, message):
    with pytest.raises(ValueError, match=message):
        simulate(saveat=saveat)


@pytest.mark.parametrize("enforcement", [mbd.VelocityImpulse(), mbd.ImplicitPenalty(1e4)])
def test_adaptive_steps_need_a_continuous_method(enforcement):
    controller = diffrax.PIDController(rtol=1e-3, atol=1e-6)
    with pytest.raises(ValueError, match=f"{type(enforcement).__name__}.*UdwadiaKalaba"):
        simulate(enforcement=enforcement, stepsize_controller=controller)


def test_adaptive_steps_need_an_error_estimate():
    controller = diffrax.PIDController(rtol=1e-3, atol=1e-6)
    with pytest.raises((ValueError, RuntimeError), match="adaptive|error estimate"):
        simulate(scheme=mbd.RK4(), stepsize_controller=controller)


# --- values --------------------------------------------------------------------------------------


def nan_in(place):
    nan = jnp.array(jnp.nan)
    system, control, enforcement, state = PENDULUM, h.Feedback(), UK, START
    if place == "system.mass":
        system = h.Pendulum(mass=nan)
    if place == "control.d":
        control = h.Feedback(d=nan)
    if place == "enforcement.k":
        enforcement = eqx.tree_at(lambda e: e.k, mbd.LagrangeMultipliers(k=1.0), nan)
    if place == "state.v":
        state = mbd.State(0.0, START.q, np.array([0.0, np.nan]))
    return system, control, enforcement, state


@pytest.mark.parametrize("place", ["system.mass", "control.d", "enforcement.k", "state.v"])
def test_nan_in_input(place):
    system, control, enforcement, state = nan_in(place)
    with pytest.raises(ValueError, match=f"`{place}` is NaN"):
        simulate(system, enforcement, state, control=control)


@pytest.mark.parametrize("place", ["system.mass", "control.d", "enforcement.k", "state.v"])
def test_nan_in_traced_input(place):
    """Under jit the value is not known: the verdict tells, and the state stays where it was."""

    @jax.jit
    def run(arguments):
        system, control, enforcement, state = arguments
        return simulate(system, enforcement, state, t0=0.0, control=control, throw=False)

    sol = run(nan_in(place))
    assert sol.result == mbd.RESULTS.nonfinite_state
    assert np.array_equal(sol.q[-1], START.q)


@pytest.mark.parametrize(
    "friction, restitution, expected",
    [
        (0.3, 0.5, mbd.RESULTS.successful),
        (-0.3, 0.5, mbd.RESULTS.invalid_parameter),
        (0.3, 1.5, mbd.RESULTS.invalid_parameter),
    ],
)
def test_traced_parameters_out_of_range(friction, restitution, expected):
    sol = bounced(jnp.array(friction), jnp.array(restitution))
    assert sol.result == expected
    if expected != mbd.RESULTS.successful:
        assert np.array_equal(sol.q[-1], [0.0, 0.01])


class Ball(mbd.AbstractSystem):
    """A point above the ground."""

    law: mbd.ContactLaw

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81])

    def gap(self, q, t):
        return q[1:]

    def slip(self, q, v, t):
        return v[:1, None]

    @property
    def contact_law(self):
        return self.law


@jax.jit
def bounced(friction, restitution):
    ball = Ball(mbd.ContactLaw(friction, restitution=restitution))
    state = mbd.State(0.0, [0.0, 0.01], [1.0, 0.0])
    options = dict(num_steps=10, dt=0.01, throw=False)
    return mbd.simulate(ball, mbd.ContactImpulse(), state, **options)


def check_failure(expected, system=PENDULUM, enforcement=UK, state=START, **options):
    """With throw=False the verdict and finite numbers, with throw=True its message."""
    sol = simulate(system, enforcement, state, throw=False, **options)
    assert sol.result == expected, sol.result
    for x in (sol.q, sol.v, sol.phi_norm, sol.phidot_norm):
        assert np.all(np.isfinite(x))
    message = mbd.RESULTS[expected].splitlines()[0][:40]
    with pytest.raises(RuntimeError, match=message):
        simulate(system, enforcement, state, **options)
    return sol


ALL_METHODS = pytest.mark.parametrize("method", [m for m in h.METHODS if "project" not in m])


def start_like(q):
    return mbd.State(0.0, np.asarray(q), np.zeros(len(q)))


MASSES = {
    "negative": np.diag([1.0, -1.0]),
    "singular": np.diag([1.0, 0.0]),
    "indefinite": np.array([[1.0, 2.0], [2.0, 1.0]]),
}


@pytest.mark.parametrize(
    "mass, method",
    [
        (mass, method)
        for mass in MASSES
        for method in ("udwadia_kalaba", "baumgarte", "impulse", "primal_penalty")
    ],
)
def test_indefinite_mass_matrix(mass, method):
    M = MASSES[mass]
    system = Wrong({"mass_matrix": lambda q: jnp.asarray(M)})
    enforcement = h.method(method).enforcement
    check_failure(mbd.RESULTS.mass_matrix_indefinite, system, enforcement)


def test_mass_matrix_without_symmetry():
    """Only its lower half would enter otherwise."""
    system = Wrong({"mass_matrix": lambda q: jnp.array([[1.0, 0.3], [0.1, 1.0]])})
    check_failure(mbd.RESULTS.mass_matrix_indefinite, system)


@pytest.mark.parametrize("solver", ["cholesky", "kkt"])
@pytest.mark.parametrize("method", ["udwadia_kalaba", "multipliers", "impulse", "projected"])
def test_dependent_rows(method, solver):
    """Solvers for independent rows say so, and which others there are."""
    case, method = h.CASES["redundant_pendulum"], h.method(method, solver)
    check_failure(
        mbd.RESULTS.singular_constraints,
        case.system,
        method.enforcement,
        case.state,
        projection=method.projection,
    )


@ALL_METHODS
def test_inconsistent_start(method):
    """Rigid methods refuse; compliant ones take it as a deflection."""
    enforcement = h.method(method).enforcement
    state = mbd.State(0.0, np.array([0.95, 0.0]), np.zeros(2))
    if method in h.SOFT:
        assert simulate(enforcement=enforcement, state=state).result == mbd.RESULTS.successful
        return
    sol = check_failure(mbd.RESULTS.inconsistent_start, enforcement=enforcement, state=state)
    assert np.array_equal(sol.q[-1], state.q)


def test_inconsistent_velocity():
    """|Phi'| = 2 q . v = 0.018 against the tolerance, and a tolerance that allows it."""
    state = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.01, 0.0]))
    check_failure(mbd.RESULTS.inconsistent_start, state=state)
    assert simulate(state=state, start_tolerance=0.02).result == mbd.RESULTS.successful


def test_inconsistent_nonholonomic_start():
    case = h.CASES["skate"]
    state = mbd.State(0.0, case.state.q, case.state.v + jnp.array([0.0, 0.1, 0.0]))
    check_failure(mbd.RESULTS.inconsistent_start, case.system, state=state)


class Burst(mbd.AbstractSystem):
    """q'' = 0 until t = 0.025, NaN afterwards."""

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.where(t > 0.025, jnp.nan, 0.0) * q


@pytest.mark.parametrize("enforcement", [UK, mbd.VelocityImpulse()])
def test_nan_in_flight(enforcement):
    """The state is held at the last good one, t = 0.03: force at 0, 0.01, 0.02 is finite."""
    start = mbd.State(0.0, np.array([1.0]), np.array([2.0]))
    saveat = SaveAt(t0=True, steps=True)
    sol = check_failure(
        mbd.RESULTS.nonfinite_state, Burst(), enforcement, start, num_steps=6, saveat=saveat
    )
    np.testing.assert_allclose(sol.q[:4, 0], 1 + 2 * np.array([0, 0.01, 0.02, 0.03]), rtol=1e-15)
    assert np.all(sol.q[4:, 0] == sol.q[3, 0]) and np.all(sol.v == 2)
    assert int(sol.stats["num_steps"]) == 3


def test_nan_in_flight_between_steps():
    start = mbd.State(0.0, np.array([1.0]), np.array([2.0]))
    ts = [0.005, 0.015, 0.035, 0.06]
    sol = check_failure(
        mbd.RESULTS.nonfinite_state, Burst(), UK, start, num_steps=6, saveat=SaveAt(ts=ts)
    )
    np.testing.assert_allclose(sol.q[2:, 0], 1.06, rtol=1e-15)


def test_nan_in_flight_of_adaptive_steps():
    """The controller takes it for a step too large, and halves it until the steps are used up."""
    start = mbd.State(0.0, np.array([1.0]), np.array([2.0]))
    sol = check_failure(
        mbd.RESULTS.max_steps_reached,
        Burst(),
        UK,
        start,
        t1=0.06,
        scheme=diffrax.Tsit5(),
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
        saveat=SaveAt(ts=[0.01, 0.05]),
        max_steps=100,
    )
    np.testing.assert_allclose(sol.q[:, 0], [1.02, 1.05], rtol=1e-4)  # held at t = 0.025


def test_verdict_of_adaptive_steps():
    """The same member as at fixed steps."""
    case = h.CASES["redundant_pendulum"]
    sol = simulate(
        case.system,
        mbd.UdwadiaKalaba(mbd.Cholesky()),
        case.state,
        t1=0.02,
        scheme=diffrax.Tsit5(),
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
        throw=False,
    )
    assert sol.result == mbd.RESULTS.singular_constraints


def test_too_many_adaptive_steps():
    sol = simulate(
        t1=1.0,
        scheme=diffrax.Tsit5(),
        stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-9),
        max_steps=5,
        throw=False,
    )
    assert sol.result == mbd.RESULTS.max_steps_reached
    assert np.all(np.isfinite(sol.q)) and np.all(np.isfinite(sol.multipliers))


class Snap(mbd.AbstractSystem):
    """A force that saturates, where Newton's method at large steps goes to and fro."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return -10 * jnp.arctan(1e3 * q)


@pytest.mark.parametrize("scheme", [mbd.CrankNicolson(), diffrax.ImplicitEuler()])
def test_implicit_scheme_that_does_not_converge(scheme):
    sol = mbd.simulate(
        Snap(),
        UK,
        mbd.State(0.0, np.array([1.0]), np.array([0.0])),
        t1=1.0,
        dt=0.5,
        scheme=scheme,
        throw=False,
    )
    assert sol.result == mbd.RESULTS.implicit_scheme_unsolved


@pytest.mark.parametrize("method", ["uncorrected", "impulse"])
def test_drift_tolerance(method):
    """Methods without position feedback leave the circle; with a tolerance they are stopped."""
    enforcement = h.method(method).enforcement
    state = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.0, 3.0]))
    options = dict(state=state, enforcement=enforcement, num_steps=40)
    free = simulate(**options)
    tolerance = float(free.phi_norm[-1]) / 4
    assert tolerance > 1e-4
    stopped = check_failure(mbd.RESULTS.drift, drift_tolerance=tolerance, **options)
    assert tolerance < stopped.phi_norm[-1] < 1.5 * tolerance  # at the first step beyond it
    assert 0 < int(stopped.stats["num_steps"]) < 40


def test_drift_tolerance_of_adaptive_steps():
    """The step that is too large is the last one."""
    state = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.0, 3.0]))
    sol = simulate(
        enforcement=mbd.LagrangeMultipliers(),
        state=state,
        t1=2.0,
        scheme=diffrax.Heun(),
        stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-3),
        drift_tolerance=1e-6,
        throw=False,
    )
    assert sol.result == mbd.RESULTS.drift
    assert sol.phi_norm[-1] > 1e-6
    assert sol.stats["num_accepted_steps"] == 1


class Gimbal(mbd.AbstractSystem):
    """Free body in roll-pitch-yaw, turning about world y at 1 rad/s: locked at t = pi/2."""

    coordinates = mbd.RollPitchYawWorld(tolerance=0.01)

    def mass_matrix(self, q):
        return jnp.eye(3, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)


@pytest.mark.parametrize("enforcement", [UK, mbd.VelocityImpulse()])
def test_gimbal_lock(enforcement):
    start = mbd.State(0.0, np.zeros(3), np.array([0.0, 1.0, 0.0]))
    step = np.pi / 2 / 10
    before = simulate(Gimbal(), enforcement, start, dt=step, num_steps=9)
    np.testing.assert_allclose(before.q[-1], [0, 9 * step, 0], rtol=0, atol=1e-12)
    sol = check_failure(
        mbd.RESULTS.gimbal_lock, Gimbal(), enforcement, start, dt=step, num_steps=12
    )
    np.testing.assert_allclose(sol.q[-1], [0, np.pi / 2, 0], rtol=0, atol=1e-12)


def test_vanished_quaternion():
    top = h.CASES["top"]
    state = mbd.State(0.0, top.state.q.at[3:].multiply(1e-3), top.state.v)
    sol = simulate(top.system, state=state, start_tolerance=jnp.inf, throw=False)
    assert sol.result == mbd.RESULTS.invalid_coordinates


def test_projection_that_cannot():
    """x^2 + 1 = 0 has no solution; the projection says so in the first step."""
    system = Wrong({"constraint": lambda q, t: q[0] ** 2 + 1.0})
    check_failure(
        mbd.RESULTS.projection_failed,
        system,
        mbd.ExplicitPenalty(0.0),
        projection=mbd.Projection(),
    )


# --- assembly ------------------------------------------------------------------------------------


def test_contradiction_at_assembly():
    """x = 0 and x = 1: the nearest point satisfies y = 2 and reports both other rows."""
    rows = lambda q, t: jnp.stack([q[0], q[0] - 1.0, q[1] - 2.0])  # noqa: E731
    system = Wrong({"constraint": rows})
    with pytest.raises(RuntimeError, match="could not be satisfied.*contradict"):
        mbd.assemble(system, START.q, START.v)
    state = mbd.assemble(system, START.q, START.v, throw=False)
    assert state.report.result == mbd.RESULTS.assembly_failed
    assert state.report.unsatisfied.tolist() == [True, True, False]
    np.testing.assert_allclose(state.q, [0.5, 2.0], rtol=0, atol=1e-9)
    assert int(state.report.rank) == 2


def test_unreachable_at_assembly():
    """Two circles around the origin and around (3, 0), both of radius 0.9, do not meet."""
    circles = lambda q, t: jnp.stack([q @ q - 0.81, (q[0] - 3.0) ** 2 + q[1] ** 2 - 0.81])  # noqa: E731
    state = mbd.assemble(Wrong({"constraint": circles}), START.q, START.v, throw=False)
    assert state.report.result == mbd.RESULTS.assembly_failed
    assert np.all(np.isfinite(state.q))


def test_contradictory_velocities_at_assembly():
    """A row and its copy that moves: x = 0 and x = t agree at t = 0, their rates do not."""
    system = Wrong({"constraint": lambda q, t: jnp.stack([q[0], q[0] - t])})
    state = mbd.assemble(system, np.zeros(2), np.zeros(2), throw=False)
    assert state.report.result == mbd.RESULTS.assembly_failed
    np.testing.assert_allclose(np.abs(state.report.velocity), [0.5, 0.5], rtol=0, atol=1e-12)


def test_fixed_coordinates_that_must_move():
    with pytest.raises(RuntimeError, match="could not be satisfied"):
        mbd.assemble(PENDULUM, np.array([0.5, 0.5]), fixed=[0, 1])


def test_nan_at_assembly():
    with pytest.raises(ValueError, match="`system.length` is NaN"):
        mbd.assemble(h.Pendulum(length=np.nan), START.q)
    with pytest.raises(ValueError, match="`q` of assemble must be finite.*nan"):
        mbd.assemble(PENDULUM, np.array([np.nan, 0.0]))
    found = jax.jit(lambda x: mbd.assemble(h.Pendulum(length=x), START.q, throw=False))(jnp.nan)
    assert found.report.result == mbd.RESULTS.assembly_failed


@pytest.mark.parametrize("mode", [jax.jit, jax.grad, jax.jacfwd])
def test_lists_with_traced_numbers(mode):
    """Numbers that are known and traced ones, side by side."""

    def speed(x):
        inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0)
        return mbd.Body("ball", inertia, velocity=[0.0, 0, 2 * x]).twist.linear[2]

    assert mode(speed)(1.5) == (3.0 if mode is jax.jit else 2.0)
