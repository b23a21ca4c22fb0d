"""Algebraic Riccati equations, with derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

# Smith's doubling sums 2^k terms. A closed loop whose errors halve in a million steps is summed.
_DOUBLINGS = 30


@jax.custom_jvp
def continuous(A: Array, B: Array, Q: Array, R: Array) -> Float[Array, "n n"]:
    r"""The stabilising solution of

    $$ A^\mathsf{T} P + P A - P B R^{-1} B^\mathsf{T} P + Q = 0 , $$

    NaN if there is none. SciPy solves it, also under `jax.jit` and `jax.vmap`, where the samples
    are solved one by one. Derivatives in both modes are implicit: the change of P solves Lyapunov's
    equation of the closed loop, $\dot P$ being that with fixed $K = R^{-1} B^\mathsf{T} P$,

    $$ A_c^\mathsf{T} \dot P + \dot P A_c + \dot Q + K^\mathsf{T} \dot R K + X + X^\mathsf{T} = 0,
    \qquad X = P\,(\dot A - \dot B K), \quad A_c = A - B K . $$

    Reference: Laub (1979), A Schur method for solving algebraic Riccati equations, IEEE Trans.
    Automatic Control 24, 913-921.
    """
    return _on_host(scipy.linalg.solve_continuous_are, A, B, Q, R)


@continuous.defjvp
def _continuous_jvp(primals, tangents):
    (A, B, Q, R), (dA, dB, dQ, dR) = primals, tangents
    P = continuous(A, B, Q, R)
    K = jnp.linalg.solve(R, B.T @ P)
    X = P @ (dA - dB @ K)
    return P, _lyapunov(A - B @ K, _symmetric(dQ + K.T @ dR @ K + X + X.T))


@jax.custom_jvp
def discrete(A: Array, B: Array, Q: Array, R: Array, N: Array) -> Float[Array, "n n"]:
    r"""The stabilising solution of

    $$ P = A^\mathsf{T} P A + Q - (A^\mathsf{T} P B + N)\,K, \qquad
    K = (R + B^\mathsf{T} P B)^{-1} (B^\mathsf{T} P A + N^\mathsf{T}) , $$

    for the cost $x^\mathsf{T} Q x + 2 x^\mathsf{T} N u + u^\mathsf{T} R u$ of each step, NaN if
    there is none. Derivatives are implicit as in `continuous`, by Stein's equation

    $$ \dot P = A_c^\mathsf{T} \dot P A_c + \dot Q + K^\mathsf{T} \dot R K
    - \dot N K - K^\mathsf{T} \dot N^\mathsf{T} + X + X^\mathsf{T}, \qquad
    X = A_c^\mathsf{T} P\,(\dot A - \dot B K) . $$
    """

    def solve(A, B, Q, R, N):
        return scipy.linalg.solve_discrete_are(A, B, Q, R, s=N)

    return _on_host(solve, A, B, Q, R, N)


@discrete.defjvp
def _discrete_jvp(primals, tangents):
    (A, B, Q, R, N), (dA, dB, dQ, dR, dN) = primals, tangents
    P = discrete(A, B, Q, R, N)
    K = discrete_gain(A, B, R, N, P)
    closed = A - B @ K
    X = closed.T @ P @ (dA - dB @ K) - dN @ K
    return P, _stein(closed, _symmetric(dQ + K.T @ dR @ K + X + X.T))


def discrete_gain(A: Array, B: Array, R: Array, N: Array, P: Array) -> Float[Array, "nu n"]:
    """The gain K of `discrete`, u = -K x."""
    return jnp.linalg.solve(R + B.T @ P @ B, B.T @ P @ A + N.T)


def _on_host(solve, *matrices):
    def solved(*matrices):
        A = np.asarray(matrices[0])
        try:
            P = solve(*(np.asarray(x, np.float64) for x in matrices))
        except (np.linalg.LinAlgError, ValueError):  # no solution; numbers that are not finite
            P = np.full(A.shape, np.nan)
        return np.asarray(P, A.dtype)

    like = jax.ShapeDtypeStruct(matrices[0].shape, matrices[0].dtype)
    return jax.pure_callback(solved, like, *matrices, vmap_method="sequential")


def _stein(A: Array, W: Array) -> Array:
    """X = A^T X A + W for a stable A, by the sum of A^T^k W A^k with twice as many terms in each
    round (Smith 1968, Matrix equation XA + BX = C, SIAM J. Applied Math. 16)."""

    def double(state, _):
        X, A = state
        return (X + A.T @ X @ A, A @ A), None

    return jax.lax.scan(double, (W, A), None, length=_DOUBLINGS)[0][0]


def _lyapunov(A: Array, W: Array) -> Array:
    """A^T X + X A + W = 0 for a stable A, as Stein's equation of its Cayley transform."""
    one = jnp.eye(A.shape[0], dtype=A.dtype)
    # Between the fastest and the slowest pole, so that the transform of neither is slow.
    fast = jnp.linalg.norm(jax.lax.stop_gradient(A))
    slow = 1 / jnp.linalg.norm(jnp.linalg.inv(jax.lax.stop_gradient(A)))
    g = jnp.sqrt(fast * slow)
    back = jnp.linalg.inv(A - g * one)
    return _stein(back @ (A + g * one), 2 * g * back.T @ W @ back)


def _symmetric(P: Array) -> Array:
    return (P + P.T) / 2
