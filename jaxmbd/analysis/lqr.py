"""Optimal feedback about a state and along a motion."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float

from .._compiler import array_namespace, is_known, to_jax, tree_where
from .._inputs import checked, not_negative, positive
from .._printed import counted, judged, printed
from .._raising import raise_failure
from .._results import RESULTS, first_failure
from .._step import as_control
from .._types import RealScalarLike
from ..trajopt import AbstractControl
from .linear_motion import DiscreteMotion, LinearMotion, magnus
from .linearise import LinearModel
from .tracking import SampledFeedback, TrackingFeedback

# An interval is divided into 2^k parts, k at most this. The exponential of a part must hold no
# large numbers, since growing and decaying parts of the motion stand in it side by side.
_DOUBLINGS = 20

# P is a cost, so negative eigenvalues down to this share of its entries are rounding.
_ROUNDING = 1e-6


@printed
class StateFeedback(AbstractControl):
    """The control u = u0 - K xi(q, v), for `simulate`, `Stepper` and `trajopt`. A sampled
    controller is held through each interval of a `Problem` in `mbd.trajopt.perform`. `simulate` has
    no intervals, so there it is computed at each time.

    **Fields:** `gain`: K, `(nu, n)`. `value`: P, `(2 nv, 2 nv)`: a small deviation dx = (dp, dv)
    costs dx^T P dx. `model`: the `LinearModel`, with u0 and the state from which xi is measured.
    `dt`: the sampling interval [s], or `None`. `result`: `RESULTS.successful`, or why the gains are
    not to be used.
    """

    constants: ClassVar[tuple[str, ...]] = ("value", "model", "dt", "result")

    gain: Float[Array, "nu n"]
    value: Float[Array, "nx nx"]
    model: LinearModel
    dt: Float[Array, ""] | None
    result: RESULTS

    def __str__(self) -> str:
        rows = [judged(self.result, "feedback found", "no feedback found")]
        nu, n = self.gain.shape[-2:]
        held = "" if self.dt is None else f", held for {float(self.dt):g} s"
        rows.append(f"gains of {counted(nu, 'input')} by {counted(n, 'deviation')}{held}:")
        return "\n".join([*rows, str(np.asarray(self.gain))])

    def __call__(self, t, q, v):
        del t
        flat, unravel = ravel_pytree(self.model.u)
        return unravel(flat - self.gain @ self.model.deviation(q, v))

    def within(self, t, q, v):
        return self if self.dt is None else as_control(self(t, q, v), q.dtype)


@overload
def lqr(
    model: LinearModel,
    Q: ArrayLike = 1.0,
    R: ArrayLike = 1.0,
    *,
    dt: RealScalarLike | None = None,
    throw: bool = True,
) -> StateFeedback: ...


@overload
def lqr(
    model: LinearMotion,
    Q: ArrayLike = 1.0,
    R: ArrayLike = 1.0,
    *,
    final: ArrayLike | None = None,
    throw: bool = True,
) -> TrackingFeedback: ...


@overload
def lqr(
    model: DiscreteMotion,
    Q: ArrayLike = 1.0,
    R: ArrayLike = 1.0,
    *,
    final: ArrayLike | None = None,
    throw: bool = True,
) -> SampledFeedback: ...


@checked
def lqr(
    model: LinearModel | LinearMotion | DiscreteMotion,
    Q: Annotated[ArrayLike, not_negative] = 1.0,
    R: Annotated[ArrayLike, positive] = 1.0,
    *,
    final: ArrayLike | None = None,
    dt: Annotated[RealScalarLike | None, positive] = None,
    throw: bool = True,
) -> StateFeedback | TrackingFeedback | SampledFeedback:
    r"""The linear feedback that minimises

    $$ \int \left(dx^\mathsf{T} Q \, dx + du^\mathsf{T} R \, du\right) dt $$

    for the linear model of a system, $\xi' = A \xi + B \, du$, $dx = Z \xi$. The gain is
    $K = R^{-1} B^\mathsf{T} P$.

    About an equilibrium, time goes on forever, and P is the stabilising solution of the algebraic
    Riccati equation. With `dt` the controller is a digital one: it measures the deviation every dt
    and holds the inputs until the next time. The integral stays that over all times, also between
    the samples, so weights mean the same for every dt. (The discrete LQR of textbooks sums the
    values at the samples instead.) With $W = \mathrm{diag}(Z^\mathsf{T} Q Z, R)$ and the motion
    $(\xi, du)(t) = F(t)\,(\xi, du)(0)$ of held inputs, the cost of an interval is

    $$ \int_0^{dt} F^\mathsf{T} W F \, dt
       = \begin{pmatrix} Q_d & N_d \\ N_d^\mathsf{T} & R_d \end{pmatrix} , $$

    and the gain is $K = (R_d + B_d^\mathsf{T} P B_d)^{-1} (B_d^\mathsf{T} P A_d + N_d^\mathsf{T})$.

    Along a motion, the integral ends with it, and $dx^\mathsf{T} P_f \, dx$ is
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
    - `dt`: the sampling interval of a digital controller about an equilibrium [s].
    - `throw`: raise if `result` is not successful.

    **Returns:** a `StateFeedback`, a `TrackingFeedback` or a `SampledFeedback`, which are controls.
    `result`: the model's, or `riccati_unsolved` if the equation has no solution that is a
    cost. About an equilibrium the gains are NaN then.
    For bounds, wrap it: `mbd.trajopt.Saturated(feedback, lower, upper)`.

    It works under `jax.jit` and `jax.vmap`, and can be differentiated in both modes by everything
    in the model and the weights. About an equilibrium, SciPy solves the equation, and derivatives
    are those of its solution, in the basis S of the model: `gain @ model.S.T` acts on (dp, dv).

    **Raises:** `ValueError` for weights of wrong shape, for a model without inputs, and for `final`
    or `dt` that do not belong to the model; a run-time error if `result` is not successful and
    `throw` is true.

    References: Laub (1979), A Schur method for solving algebraic Riccati equations, IEEE Trans.
    Automatic Control 24, 913-921. Van Loan (1978), Computing integrals involving the matrix
    exponential, IEEE Trans. Automatic Control 23, 395-404. Anderson (1978), Second-order convergent
    algorithms for the steady-state Riccati equation, Int. J. Control 28, 295-306.
    """
    of = model.motion if isinstance(model, DiscreteMotion) else model
    nx, nu = of.Z.shape[-2], model.B.shape[-1]
    if nu == 0:
        raise ValueError(
            "The model has no inputs: give `linearise` the inputs `u` at the state, or "
            "`linearise_along` the `control` of the motion."
        )
    dtype = model.A.dtype
    weights = (to_jax(_per_entry(*x).astype(dtype)) for x in (("Q", Q, nx), ("R", R, nu)))
    weight_x, weight_u = weights
    if isinstance(model, LinearModel):
        if final is not None:
            raise ValueError(
                "Argument `final` is for motions: about an equilibrium there is no end."
            )
        every = None if dt is None else jnp.asarray(dt, dtype)
        found = _about(model, weight_x, weight_u, every)
    else:
        if dt is not None:
            raise ValueError(
                "Argument `dt` is for equilibria: along a motion give `model.discretised()`, whose "
                "intervals come from the motion."
            )
        end = _final(weight_x if final is None else jnp.asarray(final, dtype), nx)
        solve: Any = _along if isinstance(model, LinearMotion) else _sampled
        found = solve(model, weight_x, weight_u, end)
    return raise_failure(found, found.result) if throw else found


@eqx.filter_jit
def _about(model: LinearModel, Q: Array, R: Array, dt: Array | None) -> StateFeedback:
    A, B, Z, S = model.A, model.B, model.Z, model.S
    weight, effort = _symmetric(Z.T @ (Q[:, None] * Z)), jnp.diag(R)
    if dt is None:
        P = continuous_riccati(A, B, weight, effort)
        gain = (B.T @ P) / R[:, None]
    else:
        A, B, weight, effort, cross = _over_interval(A, B, weight, effort, dt)
        P = discrete_riccati(A, B, weight, effort, cross)
        gain = discrete_gain(A, B, effort, cross, P)
    solved = jnp.all(jnp.isfinite(gain))
    result = RESULTS.where(solved, RESULTS.successful, RESULTS.riccati_unsolved)
    trusted = model.result == RESULTS.successful
    gain, P = (jnp.where(trusted, x, jnp.nan) for x in (gain, P))
    return StateFeedback(gain, S @ P @ S.T, model, dt, first_failure(model.result, result))


def _over_interval(A: Array, B: Array, Q: Array, R: Array, dt: Array) -> tuple[Array, ...]:
    """A_d, B_d, Q_d, R_d, N_d of a time through which u is held. A part of it is done by Van Loan's
    exponential, and doubled. His exponential of the whole time would hold large numbers."""
    n, nu = B.shape
    rates = jnp.zeros((n + nu, n + nu), A.dtype).at[:n].set(jnp.concatenate([A, B], axis=1))
    weights = jax.scipy.linalg.block_diag(Q, R)
    halvings = _halvings(dt * rates)
    both = jnp.block([[-rates.T, weights], [jnp.zeros_like(rates), rates]])
    found = jax.scipy.linalg.expm(dt / 2**halvings * both)
    F = found[n + nu :, n + nu :]
    W = _symmetric(F.T @ found[: n + nu, n + nu :])

    F, W = _doubled(lambda F, W: (F @ F, _symmetric(W + F.T @ W @ F)), (F, W), halvings)
    return F[:n, :n], F[:n, n:], W[:n, :n], W[n:, n:], W[:n, n:]


@eqx.filter_jit
def _along(model: LinearMotion, Q: Array, R: Array, end: Array) -> TrackingFeedback:
    stages = model.stages

    def hamiltonian(A, B, Z):
        weight = Z.T @ (Q[:, None] * Z)
        return jnp.block([[A, -(B / R[None]) @ B.T], [-weight, -A.T]])

    rates = jax.vmap(jax.vmap(hamiltonian))(stages.A, stages.B, stages.Z)
    intervals = jax.vmap(lambda x, h: _interval(magnus(x, h)))(rates, jnp.diff(model.t))

    def back(P, given):
        interval, into, out = given
        # At the end of the interval, in its own components; then at its beginning.
        P = into.T @ interval.back(out.T @ P @ out) @ into
        return P, P

    last = model.Z[-1].T @ end @ model.Z[-1]
    _, P = jax.lax.scan(back, last, (intervals, *model.changes()), reverse=True)
    P = jnp.concatenate([P, last[None]])
    gains = jnp.swapaxes(model.B / R[None, None], 1, 2) @ P @ jnp.swapaxes(model.S, 1, 2)
    value = model.S @ P @ jnp.swapaxes(model.S, 1, 2)
    result = first_failure(model.result, _verdict(P, gains))
    return TrackingFeedback(gains, value, model.nominal, result)


class _Interval(eqx.Module):
    """What the Hamiltonian system does over a time, with the costate given at the end:
    x1 = E x0 - G p1, p0 = H x0 + E^T p1. G and H are not negative, so no matrix
    that is solved here is singular, however stiff the system is and however long the time."""

    E: Float[Array, "m m"]
    G: Float[Array, "m m"]
    H: Float[Array, "m m"]

    def doubled(self) -> "_Interval":
        """This time twice."""
        E, G, H = self.E, self.G, self.H
        one = jnp.eye(E.shape[0], dtype=E.dtype)
        X = jnp.linalg.solve(one + G @ H, jnp.concatenate([E, G], axis=1))
        moved, spread = jnp.split(X, 2, axis=1)
        return _Interval(
            E @ moved,
            _symmetric(G + E @ spread @ E.T),
            _symmetric(H + E.T @ H @ moved),
        )

    def back(self, P: Float[Array, "m m"]) -> Float[Array, "m m"]:
        """P at the beginning, for P at the end."""
        one = jnp.eye(P.shape[0], dtype=P.dtype)
        moved = jnp.linalg.solve(one + self.G @ P, self.E)
        return _symmetric(self.H + self.E.T @ P @ moved)


def _interval(X: Float[Array, "two_m two_m"]) -> _Interval:
    """The flow exp(X), by doubling a part of it."""
    m = X.shape[0] // 2
    halvings = _halvings(X)
    F = jax.scipy.linalg.expm(X / 2**halvings)
    Y = jnp.linalg.solve(F[m:, m:], jnp.concatenate([jnp.eye(m, dtype=X.dtype), F[m:, :m]], axis=1))
    part = _Interval(Y[:, :m].T, _symmetric(-F[:m, m:] @ Y[:, :m]), _symmetric(-Y[:, m:]))

    return _doubled(lambda part: (part.doubled(),), (part,), halvings)[0]


def _halvings(X: Array) -> Array:
    """k for which exp(X / 2^k) holds no large numbers; NaN if X has any."""
    size = jax.lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(X), axis=0)))
    return jnp.clip(jnp.ceil(jnp.log2(size)), 0, _DOUBLINGS)


def _doubled(twice: Callable, parts: tuple, halvings: Array) -> tuple:
    """What `twice` makes of the parts of a motion, as often as it was halved."""

    def double(parts, k):
        return tree_where(k < halvings, twice(*parts), parts), None

    return jax.lax.scan(double, parts, jnp.arange(_DOUBLINGS, dtype=halvings.dtype))[0]


def _symmetric(P: Array) -> Array:
    return (P + P.T) / 2


def _verdict(P: Float[Array, "points m m"], gains: Array) -> RESULTS:
    """Whether P is a cost at all points, and the gains are numbers."""
    P = jax.lax.stop_gradient(P)
    rounding = _ROUNDING * jnp.max(jnp.abs(P), axis=(1, 2), initial=0.0)
    tiny = jnp.finfo(P.dtype).tiny
    lifted = P + (rounding + tiny)[:, None, None] * jnp.eye(P.shape[1], dtype=P.dtype)[None]
    factor = jnp.linalg.cholesky(lifted)  # NaN if an eigenvalue is negative
    solved = jnp.all(jnp.isfinite(factor)) & jnp.all(jnp.isfinite(gains))
    return RESULTS.where(solved, RESULTS.successful, RESULTS.riccati_unsolved)


@eqx.filter_jit
def _sampled(model: DiscreteMotion, Q: Array, R: Array, end: Array) -> SampledFeedback:
    motion = model.motion
    h, Z, S = jnp.diff(motion.t), motion.Z, motion.S
    weights = jnp.einsum("kxi,x,kxj->kij", Z[:-1], Q, Z[:-1]) * h[:, None, None]

    def back(P, given):
        A, B, weight, h = given
        K = jnp.linalg.solve(h * jnp.diag(R) + B.T @ P @ B, B.T @ P @ A)
        P = _symmetric(weight + A.T @ P @ (A - B @ K))
        return P, (P, K)

    last = Z[-1].T @ end @ Z[-1]
    _, (P, K) = jax.lax.scan(back, last, (model.A, model.B, weights, h), reverse=True)
    P = jnp.concatenate([P, last[None]])
    gains = K @ jnp.swapaxes(S[:-1], 1, 2)
    value = S @ P @ jnp.swapaxes(S, 1, 2)
    result = first_failure(motion.result, _verdict(P, gains))
    return SampledFeedback(gains, value, motion.nominal, result)


def _final(final: Array, nx: int) -> Float[Array, "nx nx"]:
    """The weights at the end as a symmetric matrix.

    **Raises:** `ValueError` if they do not belong to a cost. Then P might not exist."""
    if final.shape == (nx, nx):
        final = array_namespace(final).asarray(final)
        matrix = to_jax((final + final.T) / 2)
    else:
        matrix = to_jax(array_namespace(final).diag(_per_entry("final", final, nx)))
    if is_known(matrix):
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
    xp = array_namespace(value)
    return xp.broadcast_to(xp.asarray(value), (size,))


# Algebraic Riccati equations, with derivatives.


# Smith's doubling sums 2^k terms. A closed loop whose errors halve in a million steps is summed.
_SUMMED = 30


@jax.custom_jvp
def continuous_riccati(A: Array, B: Array, Q: Array, R: Array) -> Float[Array, "n n"]:
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


@continuous_riccati.defjvp
def _continuous_jvp(primals, tangents):
    (A, B, Q, R), (dA, dB, dQ, dR) = primals, tangents
    P = continuous_riccati(A, B, Q, R)
    K = jnp.linalg.solve(R, B.T @ P)
    X = P @ (dA - dB @ K)
    return P, _lyapunov(A - B @ K, _symmetric(dQ + K.T @ dR @ K + X + X.T))


@jax.custom_jvp
def discrete_riccati(A: Array, B: Array, Q: Array, R: Array, N: Array) -> Float[Array, "n n"]:
    r"""The stabilising solution of

    $$ P = A^\mathsf{T} P A + Q - (A^\mathsf{T} P B + N)\,K, \qquad
    K = (R + B^\mathsf{T} P B)^{-1} (B^\mathsf{T} P A + N^\mathsf{T}) , $$

    for the cost $x^\mathsf{T} Q x + 2 x^\mathsf{T} N u + u^\mathsf{T} R u$ of each step, NaN if
    there is none. Derivatives are implicit as in `continuous_riccati`, by Stein's equation

    $$ \dot P = A_c^\mathsf{T} \dot P A_c + \dot Q + K^\mathsf{T} \dot R K
    - \dot N K - K^\mathsf{T} \dot N^\mathsf{T} + X + X^\mathsf{T}, \qquad
    X = A_c^\mathsf{T} P\,(\dot A - \dot B K) . $$
    """

    def solve(A, B, Q, R, N):
        return scipy.linalg.solve_discrete_are(A, B, Q, R, s=N)

    return _on_host(solve, A, B, Q, R, N)


@discrete_riccati.defjvp
def _discrete_jvp(primals, tangents):
    (A, B, Q, R, N), (dA, dB, dQ, dR, dN) = primals, tangents
    P = discrete_riccati(A, B, Q, R, N)
    K = discrete_gain(A, B, R, N, P)
    closed = A - B @ K
    X = closed.T @ P @ (dA - dB @ K) - dN @ K
    return P, _stein(closed, _symmetric(dQ + K.T @ dR @ K + X + X.T))


def discrete_gain(A: Array, B: Array, R: Array, N: Array, P: Array) -> Float[Array, "nu n"]:
    """The gain K of `discrete_riccati`, u = -K x."""
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

    return jax.lax.scan(double, (W, A), None, length=_SUMMED)[0][0]


def _lyapunov(A: Array, W: Array) -> Array:
    """A^T X + X A + W = 0 for a stable A, as Stein's equation of its Cayley transform."""
    one = jnp.eye(A.shape[0], dtype=A.dtype)
    # Between the fastest and the slowest pole, so that the transform of neither is slow.
    fast = jnp.linalg.norm(jax.lax.stop_gradient(A))
    slow = 1 / jnp.linalg.norm(jnp.linalg.inv(jax.lax.stop_gradient(A)))
    g = jnp.sqrt(fast * slow)
    back = jnp.linalg.inv(A - g * one)
    return _stein(back @ (A + g * one), 2 * g * back.T @ W @ back)
