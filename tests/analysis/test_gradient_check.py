"""The check of derivatives: it passes right ones and names wrong ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.analysis.gradient_check import central_difference


@pytest.mark.parametrize(
    "fn, exact",
    [
        (lambda x: jnp.sin(1 + x), np.cos(1.0)),
        (lambda x: jnp.sin(300 * x), 300.0),  # needs small steps
        (lambda x: 1e3 + jnp.exp(2 * x), 2.0),  # needs large ones
        (lambda x: jnp.sqrt(1e-3 + x), 0.5 / np.sqrt(1e-3)),  # NaN at large ones
    ],
    ids=["sine", "fast sine", "offset", "root"],
)
def test_differences_choose_their_step(fn, exact):
    found, error = map(float, jax.jit(lambda: central_difference(fn, jnp.dtype("float64")))())
    assert abs(found - exact) < 1e-8 * abs(exact)
    assert abs(found - exact) <= 10 * error < 1e-6 * abs(exact)


@jax.custom_jvp
def mistaken(x):
    return x**2


mistaken.defjvp(lambda primals, tangents: (mistaken(*primals), 2.001 * primals[0] * tangents[0]))


class Params(eqx.Module):
    mass: jax.Array
    table: jax.Array
    gain: float
    kind: str = eqx.field(default="spring", static=True)
    count: int = 3


PARAMS = Params(np.array(2.0), np.linspace(-1.0, 1.0, 20).reshape(4, 5), 0.3)


def smooth(p):
    return p.count * jnp.sin(p.mass * p.gain) + jnp.sum(jnp.cos(p.table) ** 2)


def test_right_derivatives_pass():
    found = mbd.analysis.check_gradients(smooth, PARAMS)
    assert found.passed and str(found).endswith("10 of 10 derivatives are right")
    names = [d.name for d in found.derivatives]
    assert names == [".mass", *(f".table along direction {k}" for k in range(8)), ".gain"]
    exact = 3 * 0.3 * np.cos(0.6) * 2.0  # by the mass, times the mass
    for x in (*found.derivatives[0].modes.values(), found.derivatives[0].difference):
        np.testing.assert_allclose(x, exact, rtol=1e-9)


def test_wrong_leaves_and_entries_are_named():
    """A leaf, and an entry of a table."""

    def loss(p):
        return smooth(p) + mistaken(p.mass) + mistaken(p.table[3, 4])

    found = mbd.analysis.check_gradients(loss, PARAMS)
    wrong, *others = found.failed
    assert not found.passed and wrong.name == ".mass" and wrong.verdict == "wrong"
    assert set(wrong.modes) == {"reverse", "forward"}
    for x in wrong.modes.values():
        np.testing.assert_allclose(x - wrong.difference, 0.001 * 2.0 * 2.0, rtol=1e-6)
    assert {d.name.split(" ")[0] for d in others} == {".table"}
    assert "of 10" in str(found) and ".mass: wrong" in str(found)


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_an_entry_is_named(dtype):
    x = {"q": np.array([[1.0, 2.0], [3.0, 4.0]], dtype), "v": np.ones(3, dtype)}
    loss = lambda x: jax.lax.stop_gradient(x["q"][1, 0]) + jnp.sum(x["v"])  # noqa: E731
    found = mbd.analysis.check_gradients(loss, x, modes=("reverse",))
    assert [(d.name, set(d.modes)) for d in found.failed] == [("['q'][1, 0]", {"reverse"})]


def test_what_is_not_finite_and_what_is_rough():
    def masked(x):  # the derivative of the branch that is not taken is NaN at 0
        return jnp.where(x[0] > 0, jnp.sqrt(x[0]), 0.0) + x[1]

    found = mbd.analysis.check_gradients(masked, np.array([0.0, 1.0]))
    assert [d.verdict for d in found.derivatives] == ["not finite", "right"]
    rough = mbd.analysis.check_gradients(
        lambda x: jnp.round(1e3 * x[0]) + x[1], np.array([0.7, 1.0])
    )
    assert [d.verdict for d in rough.derivatives] == ["wrong", "right"]

    def alone(x):  # a number here, and nowhere else
        return jnp.where(x[0] == 0.7, 0.0, jnp.nan) + x[1]

    found = mbd.analysis.check_gradients(alone, np.array([0.7, 1.0]))
    assert [d.verdict for d in found.derivatives] == ["unsure", "right"]


def test_no_influence():
    """A number without influence is right beside others, and alone. One that is held is wrong."""
    check, stopped = mbd.analysis.check_gradients, jax.lax.stop_gradient
    found = check(lambda x: x[0] ** 2 + 0 * x[1] + stopped(x[2]) ** 2, np.array([2.0, 5.0, 2.0]))
    assert [d.verdict for d in found.derivatives] == ["right", "right", "wrong"]
    assert check(lambda x: 7.0 + 0 * x, np.array(2.0)).passed


BAD = [
    (lambda x: x, np.ones(2), {}, "must return a scalar"),
    (lambda x: jax.lax.complex(x[0], x[1]), np.ones(2), {}, "must return a real number"),
    (lambda x: jnp.sum(x) / 0, np.ones(2), {}, "`loss` is inf at `params`"),
    (lambda x: 1.0, {"n": 3}, {}, "no floating-point number"),
    (lambda x: jnp.abs(x), np.array(1j), {}, "real and imaginary"),
    (lambda x: x, np.array(1.0), {"modes": ("backward",)}, '`modes`.*must be "reverse" or'),
    (lambda x: x, np.array(1.0), {"directions": 0}, "at least 1"),
]


@pytest.mark.parametrize("loss, params, options, message", BAD)
def test_bad_input(loss, params, options, message):
    with pytest.raises(ValueError, match=message):
        mbd.analysis.check_gradients(loss, params, **options)
