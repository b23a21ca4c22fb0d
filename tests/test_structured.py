"""Functions that differ in their numbers only are one to the compiler."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import CartPole
from helpers import COMPILED, compilation_events

import jaxmbd as mbd
from jaxmbd import analysis
from jaxmbd._structured import by_structure

X = np.array([0.5, -1.5, 2.0])
call = eqx.filter_jit(lambda fn, x: fn(x))


def scaled(g):
    return lambda x: jnp.where(x > g, jnp.sin(x) * g, 0.25)


def program(fn):
    return jax.tree.structure(by_structure(fn, X))


@pytest.mark.promised
def test_values_are_arguments():
    """Floats and arrays, closed over and in the text; integers and operations count."""
    for g in (0.3, np.array([0.3, 0.1, 2.0]), jnp.array(0.3)):
        x, number = np.asarray(X), np.asarray(g)
        expected = np.where(x > number, np.sin(x) * number, 0.25)
        np.testing.assert_allclose(call(by_structure(scaled(g), X), X), expected, rtol=1e-15)
    assert program(scaled(0.3)) == program(scaled(0.7))
    assert program(scaled(jnp.array(0.3))) == program(scaled(jnp.array(0.7)))
    assert program(lambda x: x**2) != program(lambda x: x**3)
    assert program(lambda x: x[:1]) != program(lambda x: x[1:2])


LEVEL = 1.0


def test_what_a_function_refers_to_is_up_to_date():
    global LEVEL
    fn = lambda x: LEVEL * scaled(0.3)(x)  # noqa: E731
    first = np.asarray(call(by_structure(fn, X), X))
    LEVEL = 3.0
    np.testing.assert_array_equal(call(by_structure(fn, X), X), 3.0 * first)


def test_derivatives_by_what_a_function_closes_over():
    slope = jax.jit(jax.grad(lambda g: jnp.sum(by_structure(scaled(g), X)(X))))(0.3)
    np.testing.assert_allclose(slope, np.sin(0.5) + np.sin(2.0), rtol=1e-14)


def test_other_outputs_and_controls_of_linear_models_compile_nothing():
    """y = g x of a cart that u = -k x drives: C = g, and the pole's equations."""
    system = CartPole(*map(jax.device_put, (1.0, 0.1, 0.5)))
    rest = mbd.State(0.0, [0.0, np.pi], [0.0, 0.0])

    def linear(g, k):
        control, output = lambda t, q, v: -k * q[:1], lambda t, q, v, u: g * q[0]
        return analysis.linearise(system, rest, control, output=output)

    linear(2.0, 5.0)
    with compilation_events() as events:
        found = linear(3.0, 7.0)
    assert events[COMPILED] == 0
    np.testing.assert_allclose(found.C, [[3.0, 0.0, 0.0, 0.0]], atol=1e-15)
    np.testing.assert_allclose(np.asarray(found.A)[2, 0], -7.0, rtol=1e-12)
