"""Programs that run briefly are compiled quickly, by options that only whole programs may have."""

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest
from helpers import COMPILED, Pendulum, compilation_events

import jaxmbd as mbd
from jaxmbd._compiler import concrete


def thrice(x):
    """3 x, in more than a few operations."""
    return (x + 1) ** 2 - x**2 + x - 1


def test_options_that_xla_knows(monkeypatch):
    """An option that it does not know is left out."""
    options = concrete._quick_options.__wrapped__
    known = jaxlib.version.__version_info__ < (0, 11)
    assert ("xla_cpu_use_fusion_emitters" in options()) == known
    monkeypatch.setattr(concrete, "_OLDER_KERNELS", {"xla_cpu_no_such_option": False})
    assert options() == {"xla_backend_optimization_level": 0}


def test_traced_calls_are_part_of_the_program_around_them():
    """Only whole programs may have options, even where arguments are concrete."""
    triple = concrete.compiled_quickly(thrice)
    around = jax.jit(jax.grad(lambda x: triple(x) ** 2 + x * triple(np.array(2.0))))
    with compilation_events() as events:
        assert float(around(np.array(2.0))) == 42.0
    assert events[COMPILED] == 1


class Rod(Pendulum):
    """A pendulum whose length is kept as it is given."""

    length: jax.Array = 0.9


STATE = mbd.State(0.0, [0.0, -0.9], [0.3, 0.0])
RECORD = mbd.identify.Record(np.linspace(0.0, 0.02, 3), np.zeros((3, 2)), STATE)


def positions(sample):
    return sample.q


def simulated(length):
    anywhere = {"start_tolerance": jnp.inf, "dt": 0.01, "num_steps": 2}
    return mbd.simulate(Rod(length=length), mbd.VelocityImpulse(), STATE, **anywhere).q


def stepped(length):
    stepper = mbd.Stepper(Rod(length=length), mbd.VelocityImpulse())
    return stepper.step(stepper.init(STATE, start_tolerance=1.0), 0.01).q


def predicted(length):
    return mbd.identify.predict(Rod(length=length), RECORD, positions, dt=0.01).readings


TAKE_NUMBERS = {
    "simulate": simulated,
    "step": stepped,
    "assemble": lambda x: mbd.assemble(Rod(length=x), [0.1, -0.9]).q,
    "evaluate": lambda x: mbd.evaluate(Rod(length=x), None, 0.0, STATE.q, STATE.v).f,
    "equilibrium": lambda x: mbd.analysis.equilibrium(Rod(length=x), STATE).q,
    "linearise": lambda x: mbd.analysis.linearise(Rod(length=x), STATE, start_tolerance=1.0).A,
    "jacfwd": mbd.jacfwd(lambda x: x * x),
    "predict": predicted,
}


@pytest.mark.parametrize("name", TAKE_NUMBERS)
def test_a_number_is_a_number(name):
    """A float, an array made of one (whose type is weak), and one of NumPy are the same program."""
    fn, given = TAKE_NUMBERS[name], (0.91, jnp.asarray(0.92), np.float64(0.93), np.array(0.94))
    fn(jnp.array(0.95, float))  # off the start, so that this is assembled, too
    with compilation_events() as events:
        for x in given:
            fn(x)
    assert events[COMPILED] == 0


def test_strong_types():
    """Of the dtype of the other numbers; what is no real number stays."""
    a32 = concrete.to_jax(np.ones(2, np.float32))
    tree = {"a": a32, "b": 0.5, "c": jnp.asarray(0.5), "n": 3, "s": "x", "i": jnp.asarray(2)}
    found = concrete.with_strong_types(tree)
    assert found["a"] is a32 and found["n"] == 3 and found["s"] == "x"
    for name in "bc":
        assert found[name].dtype == jnp.float32 and not found[name].weak_type
    assert jnp.issubdtype(found["i"].dtype, jnp.integer)
    alone = concrete.with_strong_types(0.5)
    assert alone.dtype == jnp.float64 and not alone.weak_type


def test_forward_derivatives_that_run_now_have_options(monkeypatch):
    """Also of functions that close over what the reverse mode follows, which must not have any."""
    triple = concrete.compiled_quickly(lambda fn, x: thrice(fn(x)))
    asked, zero, one = [], np.array(0.0), np.array(1.0)
    monkeypatch.setattr(concrete, "_quick_options", lambda: asked.append(1) or {})
    forward = lambda x: jax.jvp(lambda x: triple(jnp.sin, x), (x,), (one,))[1]  # noqa: E731
    assert float(forward(zero)) == 3.0 and asked
    closed_over = lambda a: triple(lambda x: a * x, np.array(2.0))  # noqa: E731
    for fn, slope in ((closed_over, 6.0), (lambda x: triple(jnp.sin, x), 3.0)):
        assert float(jax.vjp(fn, zero)[1](one)[0]) == slope
    assert float(jax.jit(forward)(zero)) == 3.0


@pytest.mark.parametrize("dtype", [float, np.float32, int, bool])
def test_entries_of_what_is_concrete_compile_nothing(dtype):
    x = np.arange(30).reshape(5, 6).astype(dtype)

    def both(x, by):
        return concrete.picked(x, np.s_[1:, 2]), concrete.set_at(x, np.s_[..., 0], by)

    with compilation_events() as events:
        now = both(x, x[:, 3])
    assert events[COMPILED] == 0
    changed = np.concatenate([x[:, 3:4], x[:, 1:]], axis=1)
    for found in (now, jax.jit(both)(x, x[:, 3])):
        for part, expected in zip(found, (x[1:, 2], changed), strict=True):
            assert isinstance(part, jax.Array) and part.dtype == expected.dtype
            np.testing.assert_array_equal(part, expected)
    assert float(concrete.to_jax(np.float64(2.5))) == 2.5
