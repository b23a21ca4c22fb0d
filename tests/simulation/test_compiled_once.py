"""What compiles nothing anew: other numbers in the same shapes."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd


def nothing_is_compiled(call):
    """Nor traced."""
    with h.compilation_events() as events:
        call()
    assert not events


SYSTEM, METHOD = h.Pendulum(), mbd.UdwadiaKalaba(mbd.Cholesky())


def state(t=0.0):
    return mbd.State(t, jnp.stack([SYSTEM.length, 0.0]), jnp.zeros(2))


def simulate(state=state(), **options):
    return mbd.simulate(SYSTEM, METHOD, state, **options)


def times(*ts):
    return dict(num_steps=30, dt=0.01, saveat=diffrax.SaveAt(ts=np.array(ts)))


def adaptive(t1, dt, rtol, scheme=None):
    controller = diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol)
    return dict(t1=t1, dt=dt, scheme=scheme, stepsize_controller=controller)


def tolerances(x):
    names = ("start_tolerance", "drift_tolerance", "energy_tolerance")
    return dict(num_steps=3, dt=0.01, **dict.fromkeys(names, x))


FORWARD = diffrax.ForwardMode()


@pytest.mark.parametrize(
    "first, others",
    [
        (dict(num_steps=30, dt=0.01), [dict(num_steps=30, dt=0.02)]),
        # Of t1 / dt some are not quite whole numbers.
        (dict(t1=0.3, dt=0.01), [dict(t1=k * 0.3, dt=k * 0.01) for k in (2, 3, 7)]),
        (dict(t1=0.305, dt=0.01), [dict(t1=0.307, dt=0.01), dict(t1=0.61, dt=0.02)]),
        (
            dict(num_steps=3, dt=0.01),
            [dict(state=state(t), num_steps=3, dt=0.01) for t in (1.0, 2)],
        ),
        (tolerances(1e-3), [tolerances(1.0), tolerances(1)]),
        (times(0.1, 0.2), [times(0.13, 0.3)]),
        (times(0.101, 0.2), [times(0.1, 0.203)]),
        (adaptive(0.3, 0.01, 1e-6), [adaptive(0.4, 0.02, 1e-4)]),
        (
            adaptive(0.3, 0.01, 1e-6, diffrax.Kvaerno3()),
            [adaptive(0.4, 0.02, 1e-4, diffrax.Kvaerno3())],
        ),
        # Without reverse mode, nor anything saved on the way, another number of steps too.
        (
            dict(num_steps=3, dt=0.01, adjoint=FORWARD),
            [dict(num_steps=5, dt=0.02, adjoint=FORWARD), dict(t1=0.1, dt=0.01, adjoint=FORWARD)],
        ),
    ],
    ids=[
        "dt",
        "t1",
        "t1-off-grid",
        "t0",
        "tolerances",
        "ts",
        "ts-off-grid",
        "adaptive",
        "implicit",
        "steps",
    ],
)
def test_other_numbers(first, others):
    simulate(**first)
    for options in others:
        nothing_is_compiled(lambda options=options: simulate(**options))


@pytest.mark.parametrize("t1", [0.3, 0.305])
def test_number_of_steps_as_data(t1):
    """The same motion, derivatives and verdicts."""

    def end(x, adjoint):
        start = mbd.State(0.0, x, jnp.zeros(2))
        sol = simulate(start, t1=t1, dt=0.01, adjoint=adjoint, start_tolerance=0.1, throw=False)
        return sol.q[-1], (sol.stats["num_steps"], sol.result)

    found, expected = (
        (*end(x, adjoint), jax.jacfwd(lambda x, a=adjoint: end(x, a)[0])(x))
        for adjoint in (FORWARD, diffrax.RecursiveCheckpointAdjoint())
        for x in [state().q]
    )
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)
    assert expected[1][0] == (30 if t1 == 0.3 else 31)


LOOKED_AT = []


class Looked(h.Pendulum):
    """Notes that its functions are looked at."""

    def force(self, t, q, v, u):
        LOOKED_AT.append("force")
        return super().force(t, q, v, u)


def test_a_second_call_looks_at_nothing():
    """All checks of what the functions of the system return are made once."""
    options = dict(num_steps=3, dt=0.01)
    mbd.simulate(Looked(), METHOD, state(), **options)
    assert LOOKED_AT
    LOOKED_AT.clear()
    other, start = Looked(length=0.8), mbd.State(0.0, jnp.array([0.0, 0.8]), jnp.zeros(2))
    nothing_is_compiled(lambda: mbd.simulate(other, METHOD, start, **options))
    assert not LOOKED_AT


def test_little_is_compiled_to_build_a_mechanism():
    """Numbers that are known are NumPy's; the poses of the frames of joints are a program."""
    with h.nothing_kept():
        with h.compilation_events() as events:
            inertia = mbd.Inertia.box(size=[1.0, 0.1, 0.1], mass=1.0)
            arm = mbd.Body("arm", inertia, position=[0.5, 0.0, 0.0])
            hinge = mbd.Revolute("hinge", "ground", arm, point=[0.0] * 3, axis=[0.0, 1.0, 0.0])
            mechanism = mbd.Mechanism([arm], [hinge])
            mechanism.state()
        assert 0 < events[h.COMPILED] <= 2
        with h.compilation_events() as events:
            mechanism.joint_coordinates(mechanism.state().q, "hinge")
        assert 0 < events[h.COMPILED] <= 3


def test_functions_of_mechanisms_are_one_program_each():
    """Functions of a joint are one for all joints of its kind."""
    bars = h.three_bars(closed=True)
    q, v = bars.state().q, bars.state().v
    t, qs, vs = jnp.zeros(3), jnp.stack([q] * 3), jnp.stack([v] * 3)
    zero = jnp.asarray(0.0)  # the first Python number that is converted is another program
    programs = [
        ([lambda: bars.constraint(q, zero)], 1),
        ([lambda: bars.mass_matrix(q)], 1),
        ([lambda: bars.force(zero, q, v, None)], 1),
        ([lambda: bars.mechanical_energy(zero, q, v)], 1),
        # Two for the number of a column, and the path.
        (
            [
                lambda name=name: mbd.reports.joint_path(bars, name, t, qs, vs)
                for name in ("j0", "j3")
            ],
            2,
        ),
    ]
    with h.nothing_kept():
        for calls, count in programs:
            with h.compilation_events() as events:
                for call in calls:
                    jax.block_until_ready(call())
            assert events[h.COMPILED] == count
