"""Bad input of `simulate` is refused before anything is computed.

The error names the argument, what is wrong and what is right. Bad values that are traced end in a
member of `RESULTS`."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from short_runs import PENDULUM, START, UK, Wrong, simulate

import jaxmbd as mbd

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
        (diffrax.SaveAt(dense=True), "t0, t1, ts, steps and fn"),
        (diffrax.SaveAt(t1=True, solver_state=True), "t0, t1, ts, steps and fn"),
        (diffrax.SaveAt(ts=[0.01], steps=True), "either `ts` or `steps`"),
        (
            diffrax.SaveAt(subs=[diffrax.SubSaveAt(t1=True), diffrax.SubSaveAt(t0=True)]),
            "SubSaveAt",
        ),
        (diffrax.SaveAt(), "save something"),
        (diffrax.SaveAt(ts=[0.005, 0.03]), r"increase within \[0.0, 0.02\].*0.005 to 0.03"),
        (diffrax.SaveAt(ts=[-0.01, 0.01]), "increase within"),
        (diffrax.SaveAt(ts=[0.01, 0.005]), "increase within"),
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


class Bouncing(mbd.AbstractSystem):
    """A point that makes its law from numbers of its own."""

    friction: jax.Array
    restitution: jax.Array

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.zeros(2)

    def gap(self, q, t):
        return q[1:]

    def slip(self, q, v, t):
        return v[:1, None]

    @property
    def contact_law(self):
        return mbd.ContactLaw(self.friction, restitution=self.restitution)


@pytest.mark.parametrize("numbers", [(-0.3, 0.5), (0.3, 1.5)])
def test_parameters_of_a_law_that_the_system_makes(numbers):
    """Known ones are refused, traced ones give a verdict."""

    def start(friction, restitution):
        stepper = mbd.Stepper(Bouncing(friction, restitution), mbd.ContactImpulse())
        return stepper.init(mbd.State(0.0, jnp.ones(2), jnp.ones(2))).result

    friction, restitution = map(jnp.array, numbers)
    with pytest.raises(ValueError, match="of ContactLaw must be"):
        start(friction, restitution)
    found = jax.jit(start)
    assert found(friction, restitution) == mbd.RESULTS.invalid_parameter
    assert found(jnp.array(0.3), jnp.array(0.5)) == mbd.RESULTS.successful


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


@pytest.mark.parametrize("mode", [jax.jit, jax.grad, jax.jacfwd])
def test_lists_with_traced_numbers(mode):
    """Numbers that are known and traced ones, side by side."""

    def speed(x):
        inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0)
        return mbd.Body("ball", inertia, velocity=[0.0, 0, 2 * x]).twist.linear[2]

    assert mode(speed)(1.5) == (3.0 if mode is jax.jit else 2.0)
