"""Optimal feedback about a state and along a motion."""

from typing import Annotated, Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float

from .._concrete import all_concrete, is_concrete
from .._inputs import checked, not_negative, positive
from .linear_motion import DiscreteMotion, LinearMotion, magnus
from .linearise import LinearModel
from .tracking import SampledFeedback, TrackingFeedback

# Each interval of a motion is solved in so many parts. The flow of an interval holds growing and
# decaying exponentials side by side, and would lose digits if they differed too much.
_PARTS = 8


class StateFeedback(eqx.Module):
    """The control u = u0 - K xi(q, v), for `simulate`, `Stepper` and `trajopt`.

    **Fields:** `gain`: K, `(nu, n)`. `value`: P, `(2 nv, 2 nv)`: a small deviation dx = (dp, dv)
    costs dx^T P dx. `model`: the `LinearModel`, with u0 and the state from which xi is measured.
    """

    gain: Float[Array, "nu n"]
    value: Float[Array, "nx nx"]
    model: LinearModel

    def __call__(self, t, q, v):
        del t
        flat, unravel = ravel_pytree(self.model.u)
        return unravel(flat - self.gain @ self.model.deviation(q, v))


@overload
def lqr(model: LinearModel, Q: ArrayLike = 1.0, R: ArrayLike = 1.0) -> StateFeedback: ...


@overload
def lqr(
    model: LinearMotion,
    Q: ArrayLike = 1.0,
    R: ArrayLike = 1.0,
    *,
    final: ArrayLike | None = None,
) -> TrackingFeedback: ...


@overload
def lqr(
    model: DiscreteMotion,
    Q: ArrayLike = 1.0,
    R: ArrayLike = 1.0,
    *,
    final: ArrayLike | None = None,
) -> SampledFeedback: ...


@checked
def lqr(
    model: LinearModel | LinearMotion | DiscreteMotion,
    Q: Annotated[ArrayLike, not_negative] = 1.0,
    R: Annotated[ArrayLike, positive] = 1.0,
    *,
    final: ArrayLike | None = None,
) -> StateFeedback | TrackingFeedback | SampledFeedback:
    r"""The linear feedback that minimises

    $$ \int \left(dx^\mathsf{T} Q \, dx + du^\mathsf{T} R \, du\right) dt $$

    for the linear model of a system, $\xi' = A \xi + B \, du$, $dx = Z \xi$. The gain is
    $K = R^{-1} B^\mathsf{T} P$.

    About an equilibrium, time goes on forever, and P is the stabilising solution of the algebraic
    Riccati equation. Along a motion, the integral ends with it, and $dx^\mathsf{T} P_f \, dx$ is
    added there. P(t) is the solution of

    $$ -P' = A^\mathsf{T} P + P A - P B R^{-1} B^\mathsf{T} P + Q, \qquad P(t_1) = P_f , $$

    by the flow of its Hamiltonian system, with an error of fourth order in the intervals of the
    motion. For a digital controller that holds its correction through each interval, give the
    discretised model. The integral then is the sum of the values at the points times the intervals.

    **Arguments:**

    - `model`: from `linearise`, about an equilibrium; from `linearise_along`; or the latter's
      `discretised()`.
    - `Q`: the weights of the entries of (dp, dv), a scalar or `(2 nv,)`. `R`: the weights of the
      numbers in u, a scalar or `(nu,)`.
    - `final`: the weights P_f at the end of a motion, a scalar, `(2 nv,)` or `(2 nv, 2 nv)`. The
      default is Q. If the motion ends in an equilibrium, `lqr(...).value` of the linear model there
      holds the system after the end too.

    **Returns:** a `StateFeedback`, a `TrackingFeedback` or a `SampledFeedback`, which are controls.
    For bounds, wrap it: `mbd.trajopt.Saturated(feedback, lower, upper)`.

    Along a motion it works under `jax.jit` and `jax.vmap` and can be differentiated.

    **Raises:** `ValueError` for weights of wrong shape and for a model without inputs; about an
    equilibrium also if no feedback stabilises the model, and under `jax.jit`, since SciPy solves
    the equation.

    References: Laub (1979), A Schur method for solving algebraic Riccati equations, IEEE Trans.
    Automatic Control 24, 913-921. Schiff and Shnider (1999), A natural approach to the numerical
    integration of Riccati differential equations, SIAM J. Numer. Anal. 36, 1392-1413.
    """
    of = model.motion if isinstance(model, DiscreteMotion) else model
    nx, nu = of.Z.shape[-2], model.B.shape[-1]
    if nu == 0:
        raise ValueError(
            "The model has no inputs: give `linearise` the inputs `u` at the state, or "
            "`linearise_along` the `control` of the motion."
        )
    if not isinstance(model, LinearModel):
        dtype = model.A.dtype
        weight_x, weight_u = (
            jnp.asarray(_per_entry(*x), dtype) for x in (("Q", Q, nx), ("R", R, nu))
        )
        end = _final(weight_x if final is None else jnp.asarray(final, dtype), nx)
        solve: Any = _along if isinstance(model, LinearMotion) else _sampled
        return solve(model, weight_x, weight_u, end)
    if final is not None:
        raise ValueError("Argument `final` is for motions: about an equilibrium there is no end.")
    if not all_concrete((model, Q, R)):
        raise ValueError(
            "`lqr` about an equilibrium needs known numbers: call it outside of `jax.jit` and "
            "`jax.vmap`."
        )
    return _about(model, np.asarray(_per_entry("Q", Q, nx)), np.asarray(_per_entry("R", R, nu)))


def _about(model: LinearModel, Q: np.ndarray, R: np.ndarray) -> StateFeedback:
    A, B, Z, S = (np.asarray(x) for x in (model.A, model.B, model.Z, model.S))
    try:
        P = scipy.linalg.solve_continuous_are(A, B, Z.T @ (Q[:, None] * Z), np.diag(R))
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "No feedback stabilises the linear model: the inputs do not reach an unstable motion, "
            "or `Q` does not see one."
        ) from error
    gain, value = (B.T @ P) / R[:, None], S @ P @ S.T
    dtype = model.A.dtype
    return StateFeedback(jnp.asarray(gain, dtype), jnp.asarray(value, dtype), model)


@eqx.filter_jit
def _along(model: LinearMotion, Q: Array, R: Array, end: Array) -> TrackingFeedback:
    stages = model.stages

    def hamiltonian(A, B, Z):
        weight = Z.T @ (Q[:, None] * Z)
        return jnp.block([[A, -(B / R[None]) @ B.T], [-weight, -A.T]])

    H = jax.vmap(jax.vmap(hamiltonian))(stages.A, stages.B, stages.Z)
    flows = jax.vmap(lambda H, h: jax.scipy.linalg.expm(magnus(H, h) / _PARTS))(
        H, jnp.diff(model.t)
    )
    m = model.A.shape[-1]

    def back(P, given):
        flow, into, out = given
        # At the end of the interval, in its own components; then at its beginning.
        P = out.T @ P @ out

        def part(P, _):
            left = flow[m:, m:] - P @ flow[:m, m:]
            P = jnp.linalg.solve(left, P @ flow[:m, :m] - flow[m:, :m])
            return (P + P.T) / 2, None

        P, _ = jax.lax.scan(part, P, None, length=_PARTS)
        P = into.T @ P @ into
        return P, P

    last = model.Z[-1].T @ end @ model.Z[-1]
    _, P = jax.lax.scan(back, last, (flows, *model.changes()), reverse=True)
    P = jnp.concatenate([P, last[None]])
    gains = jnp.swapaxes(model.B / R[None, None], 1, 2) @ P @ jnp.swapaxes(model.S, 1, 2)
    value = model.S @ P @ jnp.swapaxes(model.S, 1, 2)
    return TrackingFeedback(gains, value, model.nominal)


@eqx.filter_jit
def _sampled(model: DiscreteMotion, Q: Array, R: Array, end: Array) -> SampledFeedback:
    motion = model.motion
    h, Z, S = jnp.diff(motion.t), motion.Z, motion.S
    weights = jnp.einsum("kxi,x,kxj->kij", Z[:-1], Q, Z[:-1]) * h[:, None, None]

    def back(P, given):
        A, B, weight, h = given
        K = jnp.linalg.solve(h * jnp.diag(R) + B.T @ P @ B, B.T @ P @ A)
        P = weight + A.T @ P @ (A - B @ K)
        P = (P + P.T) / 2
        return P, (P, K)

    last = Z[-1].T @ end @ Z[-1]
    _, (P, K) = jax.lax.scan(back, last, (model.A, model.B, weights, h), reverse=True)
    P = jnp.concatenate([P, last[None]])
    gains = K @ jnp.swapaxes(S[:-1], 1, 2)
    return SampledFeedback(gains, S @ P @ jnp.swapaxes(S, 1, 2), motion.nominal)


def _final(final: Array, nx: int) -> Float[Array, "nx nx"]:
    """The weights at the end as a symmetric matrix.

    **Raises:** `ValueError` if they are not those of a cost. Then P might not exist."""
    if final.shape == (nx, nx):
        matrix = (final + final.T) / 2
    else:
        matrix = jnp.diag(_per_entry("final", final, nx))
    if is_concrete(matrix):
        values = np.linalg.eigvalsh(np.asarray(matrix))
        if not values[0] >= -1e-6 * np.max(np.abs(values)):
            raise ValueError(
                "Argument `final` must not be negative in any direction, but has the eigenvalue "
                f"{values[0]:.3g}: give weights, or the `value` of a feedback."
            )
    return matrix


def _per_entry(name: str, value: Any, size: int) -> Any:
    if np.shape(value) not in ((), (1,), (size,)):
        or_matrix = f", or be {size} x {size}" if name == "final" else ""
        raise ValueError(
            f"Argument `{name}` must be a scalar or have {size} entries{or_matrix}, but has shape "
            f"{np.shape(value)}."
        )
    return jnp.broadcast_to(jnp.asarray(value), (size,))
