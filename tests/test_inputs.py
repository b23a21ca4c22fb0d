"""Bad input of `simulate` is refused before anything is computed.

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
from short_runs import PENDULUM, START, UK, Wrong, simulate

import jaxmbd as mbd
from jaxmbd._concrete import to_jax
from jaxmbd._results import code

IMPULSE, RESULTS = mbd.VelocityImpulse(), mbd.RESULTS
CONTROLLER = diffrax.PIDController(rtol=1e-3, atol=1e-6)


# --- shapes and types: errors before anything is computed ----------------------------------------


def wrong(name, function, enforcement=UK):
    """Of a system with this function in the place of its own."""
    return lambda: simulate(Wrong({name: function}), enforcement)


@refusals(
    ("M (3, 3)", r"mass_matrix.*\(2, 2\).*\(3, 3\)", wrong("mass_matrix", lambda q: jnp.eye(3))),
    ("M (2,)", r"mass_matrix.*\(2, 2\).*\(2,\)", wrong("mass_matrix", lambda q: jnp.ones(2))),
    ("f (3,)", r"force.*\(2,\).*\(3,\)", wrong("force", lambda t, q, v, u: jnp.zeros(3))),
    ("f ()", r"force.*\(2,\).*\(\)", wrong("force", lambda t, q, v, u: jnp.zeros(()), IMPULSE)),
    ("nonideal", r"nonideal_force.*\(2,\).*\(1,\)",
     wrong("nonideal_force", lambda q, v, t: jnp.zeros(1))),
    ("qdot", r"qdot.*\(2,\).*\(3,\)", wrong("qdot", lambda q, v: jnp.zeros(3))),
    ("phi two", r"constraint.*one floating-point array.*stack",
     wrong("constraint", lambda q, t: (q[0], q[1]))),
    ("phi int", r"constraint.*floating-point", wrong("constraint", lambda q, t: jnp.array([1]))),
    ("nonholonomic", r"nonholonomic.*one floating-point array",
     wrong("nonholonomic", lambda q, v, t: [v[0]])),
)  # fmt: skip
def test_functions_of_wrong_shape(words, call):
    check_refused(call, words)


@pytest.mark.parametrize(
    "q, v, message",
    [
        (np.zeros((5, 2)), np.zeros((5, 2)), r"`q` must be a vector.*\(5, 2\).*vmap"),
        (np.zeros(3), np.zeros(3), r"mass_matrix.*\(3, 3\).*nq = 3, nv = 3.*\(2, 2\)"),
    ],
)
def test_states_of_wrong_kind(q, v, message):
    check_refused(lambda: simulate(state=mbd.State(0.0, q, v)), message)
    check_refused(lambda: mbd.assemble(PENDULUM, q, v), message)


def test_whole_numbers_become_floating_point():
    state = mbd.State(0.0, [1, 0], [0, 2])
    assert (state.q.dtype, state.v.dtype) == (jnp.float64, jnp.float64)
    assert jax.eval_shape(lambda: mbd.assemble(PENDULUM, [1, 0])).q.dtype == jnp.float64


def of_top(n):
    return lambda: simulate(h.CASES["top"].system, state=mbd.State(0.0, np.ones(n), np.zeros(n)))


def gains(enforcement):
    return lambda: simulate(enforcement=enforcement)


EACH = "`{}`.*each of the 1 rows.*shape".format
ROWS = to_jax(np.ones(2))


@refusals(
    ("6 of q", "`q` has 6 entries.*nq = 7", of_top(6)),
    ("7 of v", "`v` has 7 entries.*nv = 6", of_top(7)),
    ("k", EACH("k"), gains(mbd.LagrangeMultipliers(k=ROWS))),
    ("d", EACH("d"), gains(mbd.LagrangeMultipliers(d=np.ones(3)))),
    ("stiffness", EACH("stiffness"), gains(mbd.ImplicitPenalty(ROWS, 1.0))),
    ("damping", EACH("damping"), gains(mbd.ImplicitPenalty(1.0, ROWS, mbd.Primal()))),
    ("explicit", EACH("stiffness"), gains(mbd.ExplicitPenalty(ROWS))),
    ("tau", "tau", gains(mbd.VelocityImpulse(stabilisation=mbd.Relaxation(ROWS)))),
    ("system", "system.*AbstractSystem", lambda: simulate(system=lambda q: q)),
    ("enforcement", "enforcement.*(method|Enforcement)", gains(mbd.Pseudoinverse())),
    ("alpha and k", "either `alpha` and `beta` or",
     lambda: mbd.LagrangeMultipliers(alpha=1.0, k=1.0)),
    ("Product", r"known sizes.*Plain\(3\)", lambda: mbd.Product(mbd.Plain(), mbd.QuaternionBody())),
    # --- times, steps and saving
    ("t1 0", "`t1`.* must be after the start 0.0.*0.0", lambda: simulate(t1=0.0)),
    ("t1 < 0", "`t1`.* must be after the start 0.0.*-1.0", lambda: simulate(t1=-1.0)),
    ("t1 < t0", "`t1`.* must be after the start 2.0", lambda: simulate(t1=1.0, t0=2.0)),
    ("both", "either `t1` or `num_steps`", lambda: simulate(num_steps=3, t1=1.0)),
    ("t1 alone", "Give `dt`, and either `t1` or `num_steps`", lambda: simulate(t1=1.0, dt=None)),
    ("steps alone", "Give `dt`", lambda: simulate(num_steps=3, dt=None)),
    ("none", "Give `dt`, and either `t1` or `num_steps`",
     lambda: mbd.simulate(PENDULUM, UK, START)),
    ("split method", "VelocityImpulse.*UdwadiaKalaba",
     lambda: simulate(enforcement=IMPULSE, stepsize_controller=CONTROLLER)),
    ("implicit method", "ImplicitPenalty.*UdwadiaKalaba",
     lambda: simulate(enforcement=mbd.ImplicitPenalty(1e4), stepsize_controller=CONTROLLER)),
)  # fmt: skip
def test_arguments(words, call):
    check_refused(call, words)


def test_adaptive_steps_need_an_error_estimate():
    with pytest.raises((ValueError, RuntimeError), match="adaptive|error estimate"):
        simulate(scheme=mbd.RK4(), stepsize_controller=CONTROLLER)


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


# --- values --------------------------------------------------------------------------------------

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
    assert int(code(sol.result)) == code(RESULTS.nonfinite_state)
    np.testing.assert_array_equal(np.asarray(sol.q)[-1], START.q)


class Bouncing(h.Ball):
    """A ball that is given its law."""

    law: mbd.ContactLaw | None = None

    @property
    def contact_law(self):
        return super().contact_law if self.law is None else self.law


ONE = np.array(1.0)


def started(system):
    stepper = mbd.Stepper(system, mbd.ContactImpulse())
    return stepper.init(mbd.State(0.0, [0.0, 0.01], [1.0, 0.0])).result


@jax.jit
def verdicts(friction, restitution):
    given = Bouncing(ONE, ONE, ONE, law=mbd.ContactLaw(friction, restitution=restitution))
    found = started(Bouncing(ONE, friction, restitution)), started(given)
    return [[x == y for x in found] for y in (RESULTS.successful, RESULTS.invalid_parameter)]


@pytest.mark.parametrize("numbers", [(-0.3, 0.5), (0.3, 1.5), (0.3, 0.5)])
def test_parameters_of_a_law(numbers):
    """Known ones out of range are refused, traced ones give a verdict."""
    numbers, good = np.array(numbers), numbers == (0.3, 0.5)
    if not good:
        with pytest.raises(ValueError, match="of ContactLaw must be"):
            started(Bouncing(ONE, *numbers))
    assert np.array_equal(verdicts(*numbers), [[good] * 2, [not good] * 2])


def test_lists_with_traced_numbers():
    """Numbers that are known and traced ones, side by side."""

    def speed(x):
        inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0)
        return mbd.Body("ball", inertia, velocity=[0.0, 0, x**2]).twist.linear[2]

    assert [float(x) for x in jax.jit(lambda x: h.both_modes(speed, x))(1.0)] == [1.0, 2.0, 2.0]
