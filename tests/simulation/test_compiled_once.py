"""What compiles nothing anew: other numbers in the same shapes."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._compiler import to_jax


def nothing_is_compiled(call):
    """Nor traced."""
    with h.compilation_events() as events:
        call()
    assert not events


METHOD = mbd.UdwadiaKalaba(mbd.Cholesky())
START = mbd.State(0.0, np.array([0.9]), np.zeros(1))
FORWARD = diffrax.ForwardMode()


def state(t):
    return mbd.State(t, START.q, START.v)


class Dragged(h.Oscillator):
    """With a number as a user may write it, without a converter."""

    drag: float = 0.1

    def force(self, t, q, v, u):
        return super().force(t, q, v, None) - self.drag * v + u


class Braked(eqx.Module):
    """A control with a Python number, which depends on time."""

    gain: float

    def __call__(self, t, q, v):
        return -self.gain * t * v


def simulate(state=START, system=None, **options):
    system = h.Oscillator() if system is None else system
    if "stepsize_controller" not in options:
        options = dict(scheme=diffrax.Euler()) | options
    return mbd.simulate(system, METHOD, state, **{"dt": 0.01, **options})


def times(*ts):
    return dict(num_steps=30, saveat=diffrax.SaveAt(ts=to_jax(ts)))


def adaptive(t1, dt, rtol, scheme):
    controller = diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol)
    return dict(t1=t1, dt=dt, scheme=scheme, stepsize_controller=controller)


def tolerances(x):
    names = ("start_tolerance", "drift_tolerance", "energy_tolerance")
    return dict(num_steps=3, **dict.fromkeys(names, x))


def numbers(stiffness, drag, gain):
    system = Dragged(stiffness=stiffness, drag=drag)
    return dict(num_steps=3, system=system, control=Braked(gain), start_tolerance=np.inf)


@pytest.mark.parametrize(
    "first, others",
    [
        # Of t1 / dt some are not quite whole numbers; and so is a number of steps.
        (
            dict(t1=0.3),
            [*(dict(t1=k * 0.3, dt=k * 0.01) for k in (2, 3, 7)), dict(num_steps=30, dt=0.02)],
        ),
        (dict(t1=0.305), [dict(t1=0.307), dict(t1=0.61, dt=0.02)]),
        (dict(t1=0.3), [dict(state=state(t), num_steps=30) for t in (1.0, 2)]),
        (
            numbers(9.81, 0.1, 1.0),
            [
                numbers(3.7, 0.2, 2.0),
                {**numbers(9.81, 0.1, 1.0), "state": mbd.State(0.2, np.array([1.8]), np.ones(1))},
            ],
        ),
        (tolerances(1e-3), [tolerances(1.0), tolerances(1)]),
        (times(0.1, 0.2), [times(0.13, 0.3)]),
        (times(0.101, 0.2), [times(0.1, 0.203)]),
        *(
            (adaptive(0.3, 0.01, 1e-6, scheme), [adaptive(0.4, 0.02, 1e-4, scheme)])
            for scheme in (diffrax.Heun(), mbd.methods.CrankNicolson())
        ),
        # Without reverse mode, nor anything saved on the way, another number of steps too.
        (
            dict(num_steps=3, adjoint=FORWARD),
            [dict(num_steps=5, dt=0.02, adjoint=FORWARD), dict(t1=0.1, adjoint=FORWARD)],
        ),
    ],
    ids=["t1", "off-grid", "t0", "numbers", "tolerances", "ts", "ts-off-grid", "adaptive"]
    + ["implicit", "steps"],
)
def test_other_numbers(first, others):
    simulate(**first)
    for options in others:
        nothing_is_compiled(lambda options=options: simulate(**options))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: mbd.LagrangeMultipliers(alpha=x, beta=x),
        lambda x: mbd.LagrangeMultipliers(k=x, d=x),
        lambda x: mbd.VelocityImpulse(stabilisation=mbd.methods.Relaxation(x)),
        lambda x: mbd.ImplicitPenalty(x, x),
        lambda x: mbd.methods.ExplicitPenalty(x, x),
        lambda x: mbd.AugmentedLagrangian(x, omega=x, xi=x),
        mbd.GeneralisedAlpha,
    ],
)
def test_gains_are_data(make):
    """Only what is static is compiled in."""
    one, other = make(0.2), make(0.3)
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert all(map(eqx.is_array, jax.tree.leaves(one)))
    assert float(jax.tree.leaves(one)[0]) != float(jax.tree.leaves(other)[0])


@pytest.mark.parametrize("t1", [0.3, 0.305])
def test_number_of_steps_as_data(t1):
    """The same motion, derivatives and verdicts."""

    def end(x, adjoint):
        sol = simulate(mbd.State(0.0, x, START.v), t1=t1, adjoint=adjoint, start_tolerance=0.1)
        return sol.q[-1], (sol.stats["num_steps"], sol.q[-1])

    @jax.jit
    def both(x):
        adjoints = FORWARD, diffrax.RecursiveCheckpointAdjoint()
        return [jax.jacfwd(lambda x, a=a: end(x, a), has_aux=True)(x) for a in adjoints]

    found, expected = both(START.q)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)
    assert int(found[1][0]) == (30 if t1 == 0.3 else 31)


LOOKED_AT = []


class Looked(h.Oscillator):
    """Notes that its functions are looked at."""

    def force(self, t, q, v, u):
        LOOKED_AT.append("force")
        return super().force(t, q, v, u)


def test_a_second_call_looks_at_nothing():
    """All checks of what the functions of the system return are made once."""
    simulate(system=Looked(), num_steps=3)
    assert LOOKED_AT
    LOOKED_AT.clear()
    nothing_is_compiled(lambda: simulate(state(1.0), Looked(mass=0.8), num_steps=3))
    assert not LOOKED_AT


def test_functions_of_mechanisms_are_one_program_each():
    """Functions of a joint are one for all joints of its kind."""
    bars = h.three_bars(closed=True)
    q, v = bars.state().q, bars.state().v
    states = mbd.State(np.zeros(3), np.stack([q] * 3), np.stack([v] * 3))
    zero = jnp.asarray(0.0)  # the first Python number that is converted is another program
    paths = [lambda name=name: mbd.reports.joint_path(bars, states, name) for name in ("j0", "j3")]
    programs = [
        ([lambda: bars.constraint(q, zero)], 1),
        ([lambda: bars.mass_matrix(q)], 1),
        ([lambda: bars.force(zero, q, v, None)], 1),
        ([lambda: bars.mechanical_energy(zero, q, v)], 1),
        (paths, 1),
    ]
    with h.nothing_kept():
        for calls, count in programs:
            with h.compilation_events() as events:
                for call in calls:
                    jax.block_until_ready(call())
            assert events[h.COMPILED] == count
