"""Failures as errors: raised after the program, which so can be kept on disk; one line each."""

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

UK = mbd.UdwadiaKalaba(mbd.Cholesky())
AWAY = "The initial state violates the constraints beyond the tolerance"


class Pendulum(h.Pendulum):
    """Of this module alone, so that nothing of it is compiled before."""


def swing(length, **options):
    state = mbd.State(0.0, jnp.array([0.9, 0.0]), jnp.zeros(2))
    return mbd.simulate(Pendulum(length=length), UK, state, t1=0.03, dt=1e-2, **options)


def test_programs_hold_no_callback(monkeypatch):
    """Which JAX does not keep on disk. Errors are one line, and name the failure."""

    def none(*args, **kwargs):
        raise AssertionError("A callback is compiled in.")

    monkeypatch.setattr(jax, "pure_callback", none)
    swing(jnp.array(0.9))
    jax.grad(lambda length: swing(length).q[-1, 1])(jnp.array(0.9))
    with pytest.raises(eqx.EquinoxRuntimeError, match=f"^{AWAY}[^\n]*$"):
        swing(jnp.array(0.8))
    with pytest.raises(eqx.EquinoxRuntimeError, match=r"^The constraints could not be[^\n]*$"):
        mbd.assemble(Pendulum(), [1.0, 0.1], fixed=[0])


def test_raise_if_failed():
    """Of a batch that was computed without raising: how many failed, which first, and why."""
    lengths = jnp.array([0.9, 0.8, 0.9, jnp.nan])
    batch = jax.jit(jax.vmap(lambda length: swing(length, throw=False)))(lengths)
    with pytest.raises(RuntimeError, match=f"^2 of 4 failed, the first at index 1: {AWAY}"):
        mbd.raise_if_failed(batch)
    with pytest.raises(RuntimeError, match="^A state or a parameter became NaN"):
        mbd.raise_if_failed({"one": jax.tree.map(lambda x: np.asarray(x)[3], batch)})
    good = jax.tree.map(lambda x: np.asarray(x)[:1], batch)
    assert mbd.raise_if_failed(good) is good
    assert mbd.raise_if_failed(3.0) == 3.0
    with pytest.raises(RuntimeError, match=AWAY):
        eqx.filter_jit(mbd.raise_if_failed)(batch)
