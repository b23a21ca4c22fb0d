"""Bad input of `simulate` and `assemble` is refused before anything is computed.

The error names the argument, what is wrong and what is right. Bad values that are traced end in a
member of `RESULTS`."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import check_refused, refusals

import jaxmbd as mbd
from jaxmbd._compiler import to_jax

UK, IMPULSE, RESULTS = mbd.UdwadiaKalaba(), mbd.VelocityImpulse(), mbd.RESULTS
CONTROLLER = diffrax.PIDController(rtol=1e-3, atol=1e-6)
PENDULUM, START = h.Pendulum(), mbd.State(0.0, [0.9, 0.0], [0.0, 0.0])


def simulate(system=PENDULUM, enforcement=UK, state=START, **options):
    """Two cheap steps, unless told otherwise."""
    steps = {} if "t1" in options or "num_steps" in options else dict(num_steps=2)
    options = {"dt": 0.01, "scheme": diffrax.Euler(), **steps, **options}
    if not isinstance(enforcement, mbd.methods.AbstractContinuousEnforcement):
        options["scheme"] = None
    return mbd.simulate(system, enforcement, state, **options)


def assemble(system=PENDULUM, q=START.q, v=None, **options):
    return mbd.assemble(system, q, v, **options)


def pendulum(**functions):
    """One whose functions are replaced by these."""
    methods = {name: lambda self, *x, fn=fn: fn(*x) for name, fn in functions.items()}
    return type(h.Pendulum)("Wrong", (h.Pendulum,), methods)()


def wrong(**functions):
    return lambda: simulate(pendulum(**functions))


@refusals(
    ("M (3, 3)", r"mass_matrix.*\(2, 2\).*\(3, 3\)", wrong(mass_matrix=lambda q: jnp.eye(3))),
    ("f (3,)", r"force.*\(2,\).*\(3,\)", wrong(force=lambda t, q, v, u: jnp.zeros(3))),
    ("nonideal", r"nonideal_force.*\(2,\).*\(1,\)",
     wrong(nonideal_force=lambda q, v, t: jnp.zeros(1))),
    ("qdot", r"qdot.*\(2,\).*\(3,\)", wrong(qdot=lambda q, v: jnp.zeros(3))),
    ("phi two", r"constraint.*one floating-point array.*stack",
     wrong(constraint=lambda q, t: (q[0], q[1]))),
    ("phi int", r"constraint.*floating-point", wrong(constraint=lambda q, t: jnp.array([1]))),
    ("nonholonomic", r"nonholonomic.*one floating-point array",
     wrong(nonholonomic=lambda q, v, t: [v[0]])),
)  # fmt: skip
def test_functions_of_wrong_shape(words, call):
    check_refused(call, words)


def test_whole_numbers_become_floating_point():
    state = mbd.State(0.0, [1, 0], [0, 2])
    assert (state.q.dtype, state.v.dtype) == (jnp.float64, jnp.float64)
    assert jax.eval_shape(lambda: mbd.assemble(PENDULUM, [1, 0])).q.dtype == jnp.float64


def of_top(n):
    return lambda: simulate(h.CASES["top"].system, state=mbd.State(0.0, np.ones(n), np.zeros(n)))


def gains(enforcement):
    return lambda: simulate(enforcement=enforcement)


EACH = "`{}`.*each of the 1 rows.*shape".format
ROWS, TABLE = to_jax(np.ones(2)), np.zeros((5, 2))


@refusals(
    ("6 of q", "`q` has 6 entries.*nq = 7", of_top(6)),
    ("7 of v", "`v` has 7 entries.*nv = 6", of_top(7)),
    ("batch", r"`q` must be a vector.*\(5, 2\).*vmap",
     lambda: simulate(state=mbd.State(0.0, TABLE, TABLE))),
    ("k", EACH("k"), gains(mbd.LagrangeMultipliers(k=ROWS))),
    ("stiffness", EACH("stiffness"), gains(mbd.ImplicitPenalty(ROWS, 1.0))),
    ("damping", EACH("damping"), gains(mbd.ImplicitPenalty(1.0, ROWS, mbd.methods.Primal()))),
    ("explicit", EACH("stiffness"), gains(mbd.methods.ExplicitPenalty(ROWS))),
    ("tau", "tau", gains(mbd.VelocityImpulse(stabilisation=mbd.methods.Relaxation(ROWS)))),
    ("system", "system.*AbstractSystem", lambda: simulate(system=lambda q: q)),
    ("enforcement", "enforcement.*(method|Enforcement)", gains(mbd.Pseudoinverse())),
    ("alpha and k", "either `alpha` and `beta` or",
     lambda: mbd.LagrangeMultipliers(alpha=1.0, k=1.0)),
    # --- times and steps
    ("t1 0", "`t1`.* must be after the start 0.0.*0.0", lambda: simulate(t1=0.0)),
    ("t1 < t0", "`t1`.* must be after the start 2.0", lambda: simulate(t1=1.0, t0=2.0)),
    ("both", "either `t1` or `num_steps`", lambda: simulate(num_steps=3, t1=1.0)),
    ("t1 alone", "Give `dt`, and either `t1` or `num_steps`", lambda: simulate(t1=1.0, dt=None)),
    ("none", "Give `dt`, and either `t1` or `num_steps`",
     lambda: mbd.simulate(PENDULUM, UK, START)),
    ("split method", "VelocityImpulse.*UdwadiaKalaba",
     lambda: simulate(enforcement=IMPULSE, stepsize_controller=CONTROLLER)),
    # --- assemble
    ("no v", "Give `v`.*`qdot`", lambda: assemble(pendulum(qdot=lambda q, v: v))),
    ("q (3,)", r"mass_matrix.*\(3, 3\).*nq = 3, nv = 3.*\(2, 2\)", lambda: assemble(q=np.zeros(3))),
    ("table", r"`q` must be a vector.*\(5, 2\).*vmap", lambda: assemble(q=TABLE)),
    ("weights", r"weights.*\(2,\).*\(3,\)", lambda: assemble(weights=np.ones(3))),
    ("fixed", "fixed.*below 2", lambda: assemble(fixed=[2])),
    ("fixed v", "fixed_velocities.*shape", lambda: assemble(fixed_velocities=[True])),
    ("NaN in system", "`system.length` is NaN", lambda: assemble(h.Pendulum(length=np.nan))),
    ("NaN in q", "`q` of assemble must be finite.*nan", lambda: assemble(q=np.array([np.nan, 0]))),
    ("M of assemble", r"mass_matrix.*\(2, 2\)",
     lambda: assemble(pendulum(mass_matrix=lambda q: jnp.eye(3)))),
)  # fmt: skip
def test_arguments(words, call):
    check_refused(call, words)


def test_adaptive_steps_need_an_error_estimate():
    with pytest.raises((ValueError, RuntimeError), match="adaptive|error estimate"):
        simulate(scheme=mbd.RK4(), stepsize_controller=CONTROLLER)


@pytest.mark.parametrize("name, remedy", [("t1", "num_steps"), ("dt", "num_steps"), ("t0", "t0=")])
def test_traced_times(name, remedy):
    """The number of steps must be known; each message says how."""

    def end(x):
        given = {"t1": 1.0, "dt": 0.1, "t0": 0.0, name: x}
        state = mbd.State(given.pop("t0"), START.q, START.v)
        return simulate(state=state, **given).q

    what = "state.t" if name == "t0" else name
    with pytest.raises(ValueError, match=f"`{what}` is traced.*{remedy}"):
        jax.eval_shape(end, np.asarray(0.1))


def saved(**options):
    return lambda: simulate(saveat=diffrax.SaveAt(**options))


SUBS = [diffrax.SubSaveAt(t1=True), diffrax.SubSaveAt(t0=True)]


@refusals(
    ("dense", "t0, t1, ts, steps and fn", saved(dense=True)),
    ("solver state", "t0, t1, ts, steps and fn", saved(t1=True, solver_state=True)),
    ("both", "either `ts` or `steps`", saved(ts=[0.01], steps=True)),
    ("tree", "SubSaveAt", saved(subs=SUBS)),
    ("nothing", "save something", saved()),
    ("late", r"increase within \[0.0, 0.02\].*0.005 to 0.03", saved(ts=[0.005, 0.03])),
    ("early", "increase within", saved(ts=[-0.01, 0.01])),
    ("falling", "increase within", saved(ts=[0.01, 0.005])),
)
def test_saveat(words, call):
    check_refused(call, words)


NAN = np.array(np.nan)
GAINS = mbd.LagrangeMultipliers(k=1.0)
WITH_NAN = {
    "system.mass": (h.Pendulum(mass=NAN), h.Feedback(), GAINS, START),
    "control.d": (PENDULUM, h.Feedback(d=NAN), GAINS, START),
    "enforcement.k": (PENDULUM, h.Feedback(), eqx.tree_at(lambda e: e.k, GAINS, NAN), START),
    "state.v": (PENDULUM, h.Feedback(), GAINS, mbd.State(0.0, START.q, [0.0, np.nan])),
}


@eqx.filter_jit
def run(system, control, enforcement, state):
    return simulate(system, enforcement, state, t0=0.0, control=control, throw=False)


@pytest.mark.parametrize("place", WITH_NAN)
def test_nan_in_input(place):
    """Under jit the value is not known: the verdict tells, and the state stays where it was."""
    system, control, enforcement, state = WITH_NAN[place]
    with pytest.raises(ValueError, match=f"`{place}` is NaN"):
        simulate(system, enforcement, state, control=control)
    sol = run(*WITH_NAN[place])
    h.assert_verdicts(sol.result, RESULTS.nonfinite_state)
    np.testing.assert_array_equal(np.asarray(sol.q)[-1], START.q)


def started(friction, restitution):
    stepper = mbd.Stepper(h.Ball(1.0, friction, restitution), mbd.ContactImpulse())
    return stepper.init(mbd.State(0.0, [0.0, 0.01], [1.0, 0.0])).result


verdict = jax.jit(started)


@pytest.mark.parametrize("numbers", [(-0.3, 0.5), (0.3, 1.5), (0.3, 0.5)])
def test_parameters_of_a_law(numbers):
    """Known ones out of range are refused, traced ones give a verdict."""
    expected = RESULTS.successful
    if numbers != (0.3, 0.5):
        expected = RESULTS.invalid_parameter
        with pytest.raises(ValueError, match="of ContactLaw must be"):
            started(*numbers)
    h.assert_verdicts(verdict(*np.array(numbers)), expected)


def test_lists_with_traced_numbers():
    """Numbers that are known and traced ones, side by side."""

    def speed(x):
        return mbd.Body("ball", h.BOX, velocity=[0.0, 0, x**2]).twist.linear[2]

    assert [float(x) for x in jax.jit(lambda x: h.both_modes(speed, x))(1.0)] == [1.0, 2.0, 2.0]


def test_contradiction_at_assembly():
    """x = 0 and x = 1: the nearest point satisfies y = 2 and reports both other rows."""
    rows = lambda q, t: jnp.stack([q[0], q[0] - 1.0, q[1] - 2.0])  # noqa: E731
    system = pendulum(constraint=rows)
    with pytest.raises(RuntimeError, match="could not be satisfied.*contradict"):
        mbd.assemble(system, START.q, START.v)
    state = mbd.assemble(system, START.q, START.v, throw=False)
    h.assert_verdicts(state.report.result, RESULTS.assembly_failed)
    assert state.report.unsatisfied.tolist() == [True, True, False]
    np.testing.assert_allclose(state.q, [0.5, 2.0], rtol=0, atol=1e-9)
    assert int(state.report.rank) == 2


def test_contradictory_velocities_at_assembly():
    """A row and its copy that moves: x = 0 and x = t agree at t = 0, their rates do not."""
    system = pendulum(constraint=lambda q, t: jnp.stack([q[0], q[0] - t]))
    state = mbd.assemble(system, np.zeros(2), np.zeros(2), throw=False)
    h.assert_verdicts(state.report.result, RESULTS.assembly_failed)
    np.testing.assert_allclose(np.abs(state.report.velocity), [0.5, 0.5], rtol=0, atol=1e-12)


def test_nan_at_assembly():
    found = jax.jit(lambda x: mbd.assemble(h.Pendulum(length=x), START.q, throw=False))(np.nan)
    h.assert_verdicts(found.report.result, RESULTS.assembly_failed)
