"""Internal states of a system: a motor with a winding, whose equations are linear."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from refusals import check_refused, refusals
from scipy.linalg import expm

import jaxmbd as mbd

R, K, J, VOLTS, RATE = 1.0, 0.5, 0.1, 3.0, 2.0


class Drive(mbd.AbstractSystem):
    """J v' = K i, L i' = u - R i - K v."""

    L: Array = h.parameter(0.05)
    R: Array = h.parameter(R)
    initial_internal = np.zeros(1)

    def mass_matrix(self, q):
        return jnp.array([[J]])

    def force(self, t, q, v, u, z):
        return K * z

    def internal(self, t, q, v, u, z):
        return (u - self.R * z - K * v) / self.L


def volts(t, q, v):
    return VOLTS * jnp.cos(RATE * t)


def exact(L, t):
    """(q, v, i) from rest."""
    A = np.zeros((5, 5))
    A[0, 1], A[1, 2], A[3, 4], A[4, 3] = 1, K / J, -RATE, RATE
    A[2] = [0, -K / L, -R / L, VOLTS / L, 0]
    return (expm(A * t) @ np.array([0, 0, 0, 1, 0]))[:3]


REST = mbd.State(0.0, np.zeros(1), np.zeros(1))
METHODS = {
    "additive": (mbd.UdwadiaKalaba(), None, 4, 2),
    "null space": (mbd.IndependentCoordinates(), None, 4, 2),
    "explicit": (mbd.UdwadiaKalaba(), mbd.RK4(), 4, None),
    "implicit": (mbd.UdwadiaKalaba(), diffrax.Kvaerno5(), 5, None),
    "alpha": (mbd.GeneralisedAlpha(), None, 2, 2),
    "impulse": (mbd.VelocityImpulse(), None, 1, 1),
    "contacts": (mbd.ContactImpulse(), None, 1, 1),
}
all_methods = pytest.mark.parametrize("name", METHODS)


def run(name, system, dt, steps, start=REST, **options):
    method, scheme, *_ = METHODS[name]
    return mbd.simulate(
        system, method, start, dt=dt, num_steps=steps, scheme=scheme, control=volts, **options
    )


def end(sol):
    return jnp.concatenate([sol.q[-1], sol.v[-1], sol.z[-1]])


@pytest.mark.slow
@all_methods
def test_order(name):
    """Of q, v and z, where the winding is slow, and where it is faster than the step by 10^4."""
    for L, order in zip((0.05, 1e-6), METHODS[name][2:], strict=True):
        if order is None:
            continue
        errors = [
            np.linalg.norm(end(run(name, Drive(L), 0.4 / n, n)) - exact(L, 0.4)) for n in (40, 80)
        ]
        np.testing.assert_allclose(np.log2(errors[0] / errors[1]), order, atol=0.3)
        assert errors[1] < {1: 3e-2, 2: 1e-3}.get(order, 1e-5)


@pytest.mark.slow
@all_methods
def test_derivatives(name):
    """By inductance, resistance, v and z at the start."""

    def angle_and_current(x):
        start = mbd.State(0.0, REST.q, x["v"], z=x["z"])
        found = end(run(name, Drive(x["L"], x["R"]), 0.01, 8, start))
        return found @ np.array([2.0, 0.3, 1.0])

    x = {"L": np.array(0.02), "R": np.array(R), "v": np.array([0.3]), "z": np.array([0.2])}
    h.check_scalar(angle_and_current, x)


@pytest.mark.slow
@all_methods
def test_batches_and_float32(name):
    L = np.array([0.02, 0.05])
    each = jax.jit(lambda L: end(run(name, Drive(L), 0.01, 8)))
    together = jax.jit(jax.vmap(each))(L)
    np.testing.assert_allclose(together, [each(x) for x in L], rtol=1e-12)
    single = mbd.State(0.0, np.zeros(1, np.float32), np.zeros(1, np.float32))
    found = end(run(name, Drive(0.05), 0.01, 8, single))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, together[1], rtol=3e-5)


@pytest.mark.slow
@all_methods
def test_saved_states_resume_the_motion(name):
    """At steps, between them, and from a state that was saved. Schemes and methods with a memory
    begin anew."""
    L, n, at = 0.05, 20, np.array([0.034, 0.1, 0.155])
    whole, between = (
        run(name, Drive(L), 0.01, n, saveat=saveat)
        for saveat in (diffrax.SaveAt(steps=1), diffrax.SaveAt(ts=at))
    )
    most, errors = (
        np.abs(np.concatenate([sol.q, sol.v, sol.z], 1) - [exact(L, t) for t in np.array(sol.t)])
        for sol in (whole, between)
    )
    assert np.all(errors <= 1.2 * np.max(most, axis=0))
    rest = run(name, Drive(L), 0.01, n // 2, whole.state(n // 2 - 1), t0=0.1)
    tolerance = np.max(most) if name == "alpha" else 1e-12
    np.testing.assert_allclose(end(rest), end(whole), atol=tolerance)


@pytest.mark.slow
def test_adaptive_steps():
    """They are as large as the motion allows, however fast the winding."""
    controller = diffrax.PIDController(rtol=1e-7, atol=1e-9)
    sol = mbd.simulate(
        Drive(1e-6),
        mbd.UdwadiaKalaba(),
        REST,
        t1=0.5,
        dt=1e-2,
        control=volts,
        stepsize_controller=controller,
        saveat=diffrax.SaveAt(ts=[0.25, 0.5]),
    )
    found = np.concatenate([sol.q, sol.v, sol.z], axis=1)
    np.testing.assert_allclose(found, [exact(1e-6, t) for t in (0.25, 0.5)], atol=1e-5)
    assert sol.stats["num_steps"] < 3000


@pytest.mark.slow
def test_the_stepper_takes_the_same_steps():
    stepper = mbd.Stepper(Drive(), mbd.VelocityImpulse())
    state = stepper.init(REST)
    for _ in range(3):
        state = stepper.step(state, 0.01, volts)
    np.testing.assert_array_equal(state.z, run("impulse", Drive(), 0.01, 3).z[-1])
    # One step by hand: the current is implicit at the end, and the torque that of the start.
    one = stepper.step(stepper.init(mbd.State(0.0, [0.0], [0.2], z=[0.4])), 0.01, 3.0)
    v = 0.2 + 0.01 * K * 0.4 / J
    np.testing.assert_allclose(one.v, [v], rtol=1e-14)
    np.testing.assert_allclose(one.z, [(0.4 + 0.2 * (3 - K * v)) / (1 + 0.2)], rtol=1e-13)


class Unfinished(mbd.AbstractSystem):
    initial_internal = np.zeros(2)

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u, z):
        return z[:1]


class Short(Unfinished):
    def internal(self, t, q, v, u, z):
        return z[:1]


IMPULSE = mbd.VelocityImpulse()
ADDITIVE = mbd.methods.AdditiveRungeKutta()


@refusals(
    (
        "variational",
        "`Variational` moves q and v only, but Drive has internal states",
        lambda: mbd.Stepper(Drive(), mbd.Variational()),
    ),
    (
        "scheme of a velocity-level method",
        "`VelocityImpulse` moves internal states by itself: leave out `scheme`",
        lambda: mbd.Stepper(Drive(), IMPULSE, ADDITIVE),
    ),
    (
        "scheme without internal states",
        "Oscillator has none: leave out `scheme`",
        lambda: mbd.Stepper(h.Oscillator(), mbd.UdwadiaKalaba(), ADDITIVE),
    ),
    (
        "z of another size",
        r"`z` of the state must have shape \(1,\)",
        lambda: mbd.Stepper(Drive(), IMPULSE).init(mbd.State(0.0, [0.0], [0.0], z=[0.0, 1.0])),
    ),
    (
        "z of a system without",
        "The state has internal states `z`, but Oscillator has none",
        lambda: mbd.Stepper(h.Oscillator(), IMPULSE).init(mbd.State(0.0, [0.0], [0.0], z=[0.0])),
    ),
    (
        "no rates",
        r"`Unfinished` has `initial_internal`, but no method `internal\(t, q, v, u, z\)`",
        lambda: jax.eval_shape(lambda: Unfinished().internal(0.0, 0.0, 0.0, None, np.zeros(2))),
    ),
    (
        "rates of another size",
        r"`internal\(t, q, v, u, z\)` must have shape \(2,\) for nz = 2",
        lambda: jax.eval_shape(lambda: mbd.simulate(Short(), IMPULSE, REST, t1=1.0, dt=0.1)),
    ),
    (
        "linearise",
        "Drive has internal states, with which only `simulate` and `Stepper` deal so far",
        lambda: mbd.analysis.linearise(Drive(), REST),
    ),
    (
        "tangent growth",
        "Drive has internal states",
        lambda: mbd.analysis.tangent_growth(Drive(), IMPULSE, REST, t1=1.0, dt=0.1),
    ),
)
def test_refused(words, call):
    check_refused(call, words)


def test_without_internal_states_nothing_is_kept():
    """No leaf in states and solutions."""
    sol = jax.eval_shape(lambda: mbd.simulate(h.Oscillator(), IMPULSE, REST, t1=1.0, dt=0.1))
    assert sol.z is None and h.Oscillator().initial_internal is None
