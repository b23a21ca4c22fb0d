"""Derivatives of `assemble`, against a closed form and differences."""

import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import EULER, check_scalar

import jaxmbd as mbd
from jaxmbd._assemble import pseudoinverse


def assembled(tree, **options):
    system, q, v, weights = tree
    state = mbd.assemble(system, q, v, 0.1, weights=weights, **options)
    ends = jnp.concatenate([state.q, state.v])
    return jnp.cos(1.0 + jnp.arange(ends.size, dtype=ends.dtype)) @ ends


def test_assembly_closed_form():
    """q = l q0 / |q0| and v without its radial part: derivatives by l, q0, v0 by hand."""
    q0, v0 = np.array([0.5, -0.9]), np.array([0.7, 0.2])
    norm = np.hypot(*q0)
    radial = q0 / norm
    across = np.eye(2) - np.outer(radial, radial)

    def run(length, q, v):
        state = mbd.assemble(h.Pendulum(length=length), q, v)
        return state.q, state.v

    for jacobian in (jax.jacrev, jax.jacfwd):
        derivative = jax.jit(jacobian(run, argnums=(0, 1, 2)))
        (q_l, q_q, q_v), (v_l, v_q, v_v) = derivative(jnp.array(0.9), q0, v0)
        np.testing.assert_allclose(q_l, radial, rtol=1e-9)
        np.testing.assert_allclose(q_q, 0.9 / norm * across, rtol=0, atol=1e-9)
        np.testing.assert_allclose(q_v, np.zeros((2, 2)), rtol=0, atol=1e-9)
        np.testing.assert_allclose(v_l, np.zeros(2), rtol=0, atol=1e-9)
        np.testing.assert_allclose(v_v, across, rtol=0, atol=1e-9)
        turn = -(np.outer(radial, v0 @ across) + (radial @ v0) * across) / norm
        np.testing.assert_allclose(v_q, turn, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "name, options",
    [
        pytest.param("driven_pendulum", dict(), marks=pytest.mark.slow),
        ("driven_pendulum", dict(fixed=[0], fixed_velocities=[1])),
        ("redundant_pendulum", dict()),
        pytest.param("skate_in_space", dict(fixed=[3]), marks=pytest.mark.slow),
        pytest.param("slider_crank", dict(fixed=[0, 2]), marks=pytest.mark.slow),
        pytest.param("top", dict(), marks=pytest.mark.slow),
    ],
)
def test_assembly(name, options):
    """By q, v, parameters and weights, from a start off the constraints; redundant rows too."""
    case = h.CASES[name]
    rough = 0.05 * jnp.sin(1.0 + jnp.arange(case.state.q.size, dtype=float))
    q, v = case.state.q + rough, case.state.v + 0.3
    weights = 1.0 + jnp.arange(v.size, dtype=float) / 2
    check_scalar(lambda tree: assembled(tree, **options), (case.system, q, v, weights))


@pytest.mark.slow
def test_simulation_from_an_assembled_start():
    """The whole chain that an identification differentiates."""
    case = h.CASES["driven_pendulum"]

    def loss(tree):
        system, q, v = tree
        state = mbd.assemble(system, q, v)
        sol = mbd.simulate(
            system, mbd.UdwadiaKalaba(), state, t1=0.1, dt=0.01, scheme=EULER, start_tolerance=1e-8
        )
        return sol.q[-1, 0] + sol.v[-1, 1]

    check_scalar(loss, (case.system, case.state.q + 0.1, case.state.v))


def test_derivative_of_the_pseudoinverse():
    """Of B C, with columns and rows that are independent: C^T (C C^T)^-1 (B^T B)^-1 B^T. Its two
    singular values coincide, where those of the SVD have no derivatives."""
    B, C = jnp.eye(3, 2), jnp.eye(4, 2)[::-1].T
    changes = (jnp.asarray(x) for x in np.random.default_rng(0).normal(size=(2, 12)))
    dB, dC = (x[: y.size].reshape(y.shape) for x, y in zip(changes, (B, C), strict=True))

    def closed(B, C):
        return C.T @ jnp.linalg.inv(C @ C.T) @ jnp.linalg.inv(B.T @ B) @ B.T

    @jax.jit
    def both(*changes):
        found = jax.jvp(lambda B, C: pseudoinverse(B @ C), (B, C), changes)
        return found, jax.jvp(closed, (B, C), changes)

    found, expected = both(dB, dC)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
