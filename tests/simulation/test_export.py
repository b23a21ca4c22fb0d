"""Exported programs give the same numbers after they were written and read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Pendulum, midpoint
from jax import export

import jaxmbd as mbd

# `jax.export` writes with flatbuffers, an extra.
pytest.importorskip("flatbuffers")

NUMBER = jax.ShapeDtypeStruct((), jnp.float64)


def read_again(fn, *shapes, **options):
    """The function from the bytes of its program."""
    return export.deserialize(export.export(jax.jit(fn))(*shapes).serialize(**options)).call


def swing(length, angle):
    q = length * jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
    state = mbd.State(0.0, q, jnp.zeros(2))
    options = dict(t1=0.5, dt=1e-2, throw=False, scheme=midpoint())
    sol = mbd.simulate(Pendulum(length=length), mbd.UdwadiaKalaba(), state, **options)
    return sol.q[-1], sol.result == mbd.RESULTS.successful


def test_simulation():
    """With its gradient, and for batches of any size."""
    call = read_again(swing, NUMBER, NUMBER, vjp_order=1)
    q, good = call(1.3, 0.4)
    expected, also = jax.jit(swing)(1.3, 0.4)
    assert good and also
    np.testing.assert_array_equal(q, expected)

    def slope(fn):
        return jax.jit(jax.grad(lambda length: fn(length, 0.4)[0] @ np.array([1.0, 0.0])))(1.3)

    np.testing.assert_allclose(slope(call), slope(swing), rtol=1e-12)
    (b,) = export.symbolic_shape("b")
    many = jax.ShapeDtypeStruct((b,), jnp.float64)
    both = read_again(jax.vmap(swing), many, many)(np.array([1.0, 1.3]), np.full(2, 0.4))
    batch, good = jax.device_get(both)
    assert np.all(good)
    np.testing.assert_allclose(batch[1], expected, rtol=1e-12)
