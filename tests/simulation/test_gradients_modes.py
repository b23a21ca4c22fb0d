"""Derivatives of simulations by each adjoint, twice, and in batches, against each other and against
differences."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import EULER, check_scalar
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd


@pytest.mark.parametrize("steps", [30, pytest.param(1031, marks=pytest.mark.slow)])
def test_checkpoints_change_nothing(steps):
    """Recomputed, stored and forward derivatives are the same numbers to rounding."""
    case = h.CASES["driven_pendulum"]

    def end(system, adjoint):
        options = dict(dt=0.3 / steps, num_steps=steps, scheme=EULER, adjoint=adjoint)
        sol = mbd.simulate(system, mbd.UdwadiaKalaba(), case.state, **options)
        return sol.q[-1, 0] + sol.v[-1, 1]

    def gradient(jacobian, adjoint):
        compiled = jax.jit(jacobian(lambda system: end(system, adjoint)))
        return ravel_pytree(compiled(case.system))[0]

    checkpointed = gradient(jax.jacrev, diffrax.RecursiveCheckpointAdjoint())
    stored = gradient(jax.jacrev, diffrax.DirectAdjoint())
    forward = gradient(jax.jacfwd, diffrax.ForwardMode())
    np.testing.assert_allclose(stored, checkpointed, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(forward, checkpointed, rtol=1e-12, atol=1e-13)


def _bent(system, q, v):
    options = dict(dt=0.02, num_steps=4, scheme=EULER, start_tolerance=1.0)
    sol = mbd.simulate(system, mbd.UdwadiaKalaba(), mbd.State(0.0, q, v), **options)
    return sol.q[-1, 0] + sol.v[-1, 1]


# Solvers with derivatives of their own are differentiated twice most deeply in reverse mode.
@pytest.mark.parametrize(
    "case, inner",
    [
        ("pendulum", "forward"),
        pytest.param("pendulum", "reverse", marks=pytest.mark.slow),
        pytest.param("redundant_pendulum", "reverse", marks=pytest.mark.slow),
    ],
)
def test_second_derivatives(case, inner):
    """Of a directional derivative in either mode: both modes, and differences."""
    case = h.CASES[case]
    tree = (case.system, case.state.q, case.state.v)

    def slope(tree):
        flat, unravel = ravel_pytree(tree)
        direction = jnp.cos(jnp.arange(flat.size, dtype=flat.dtype))
        if inner == "reverse":
            return jax.grad(lambda x: _bent(*unravel(x)))(flat) @ direction
        return jax.jvp(lambda x: _bent(*unravel(x)), (flat,), (direction,))[1]

    check_scalar(slope, tree)


def test_batch_of_gradients():
    """vmap of grad is the loop over grads."""
    lengths = jnp.array([0.7, 0.9, 1.2])

    def loss(length):
        state = mbd.State(0.0, length * jnp.array([1.0, 0.0]), jnp.zeros(2))
        system = h.Pendulum(length=length)
        sol = mbd.simulate(system, mbd.UdwadiaKalaba(), state, dt=0.01, num_steps=20, scheme=EULER)
        return sol.q[-1, 1]

    gradient = jax.jit(jax.grad(loss))
    together = jax.jit(jax.vmap(jax.grad(loss)))(lengths)
    np.testing.assert_allclose(together, [gradient(x) for x in lengths], rtol=1e-12)
