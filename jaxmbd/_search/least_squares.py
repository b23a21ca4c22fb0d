"""Linear and nonlinear least squares within bounds."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from .._compiler import array_namespace, to_jax, tree_where

# Which singular values count as zero: those up to a share of the largest one.
#
# The share depends on the origin of the matrix. All shares are defined here, except those for the
# linear algebra of a step, where rows turn as the constraints are violated (`_linalg/rank.py`).


# For a matrix that is known up to rounding, multiplied by an orthonormal basis.
ROUNDED = 1e-12
# For derivatives of equations that may depend on each other, such as continuity and final states.
DEPENDENT = 1e-9


def rounding(matrix: np.ndarray) -> float:
    """The share for a matrix that is exact up to rounding, as in NumPy's `matrix_rank`."""
    return float(np.finfo(matrix.dtype).eps) * max(matrix.shape)


def simulation_error(dtype: np.dtype) -> float:
    """The share for sensitivities, which accumulate rounding errors over thousands of steps."""
    return float(np.finfo(dtype).eps) ** (2 / 3)


def redundancy(dtype: np.dtype) -> float:
    """The share for rows of constraints, which are redundant only up to the drift."""
    return 1e-6 if dtype == np.float64 else 1e-3


def nonzero(values: Any, share: float) -> Any:
    """Which of these singular values exceed this share of the largest one."""
    xp = np if isinstance(values, np.ndarray) else jnp
    return values > share * xp.max(values, initial=0.0)


_STEPS = 0.5 ** np.arange(20)
_ARMIJO = 0.1


class BoundedSolution(NamedTuple):
    """The minimiser, which of its entries are not held at a bound, and whether it was found."""

    x: Float[Array, " n"]
    free: Bool[Array, " n"]
    converged: Bool[Array, ""]


# Traced once for all places in a program.
@jax.jit
def bounded_least_squares(
    A: Float[Array, "m n"],
    b: Float[Array, " m"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    start: Float[Array, " n"],
) -> BoundedSolution:
    """Solve min |A x - b|^2, lower <= x <= upper, for A of full column rank. Each Newton step moves
    the entries that the gradient does not hold at a bound, and is projected onto the bounds.

    Minimising a strictly convex quadratic x^T H x / 2 + g^T x is the same problem, with H = A^T A
    and A^T b = -g.

    Reference: Bertsekas (1982), Projected Newton methods for optimization problems with simple
    constraints, SIAM J. Control 20.
    """

    def is_free(x, slope):
        return ~((x <= lower) & (slope > 0) | (x >= upper) & (slope < 0))

    def body(state):
        x, _, _, count = state
        r = b - A @ x
        slope = -(A.T @ r)
        free = is_free(x, slope)
        Q, R = _factor(A, free)
        dx = jax.scipy.linalg.solve_triangular(R, Q[: len(r)].T @ r)
        dx = jnp.where(free, dx, 0.0)

        def trial(scale):
            new = jnp.clip(x + scale * dx, lower, upper)
            d = new - x
            # The decrease follows from the step. A difference of two sums of squares would cancel.
            linear = slope @ d
            return new, -(linear + jnp.sum((A @ d) ** 2) / 2) >= -_ARMIJO * linear

        trials, enough = jax.vmap(trial)(jnp.asarray(_STEPS, x.dtype))
        new = trials[jnp.argmax(enough)]
        moved = jnp.any(enough) & jnp.any(new != x)
        new = jnp.where(moved, new, x)
        new_free = is_free(new, A.T @ (A @ new - b))
        # A full step that changed no bound is the exact minimum.
        exact = jnp.all(new == x + dx) & jnp.all(new_free == free)
        return new, new_free, ~moved | exact, count + 1

    def is_going(state):
        _, _, done, count = state
        return ~done & (count < 30 + 2 * lower.size)

    first = (jnp.clip(start, lower, upper), jnp.ones(lower.shape, bool), jnp.array(False))
    x, free, done, _ = jax.lax.while_loop(is_going, body, (*first, jnp.array(0)))
    return BoundedSolution(x, free, done)


def normal_inverse(A: Float[Array, "m n"], free: Bool[Array, " n"]) -> Float[Array, "n n"]:
    """The inverse of A^T A on the free entries, zero elsewhere."""
    _, R = _factor(A, free)
    inverse = jax.scipy.linalg.solve_triangular(R, jnp.diag(free.astype(A.dtype)))
    return inverse @ inverse.T


def _factor(A, free):
    """QR of the free columns. The others become columns of the identity, in rows of their own."""
    own_rows = jnp.diag((~free).astype(A.dtype))
    return jnp.linalg.qr(jnp.concatenate([jnp.where(free, A, 0.0), own_rows]))


# The Levenberg-Marquardt method within bounds, with steps along curved valleys.


# A step is accepted from this share of the predicted decrease on, and the next one may be longer
# from that share on, after Nocedal and Wright (2006), Numerical Optimization, algorithm 4.1.
# Problems with large residuals rarely reach more.
_ACCEPTED, _GOOD = 0.25, 0.75
_LONGER, _SHORTER = 3.5, 0.25
# The largest share of a step that its curvature may change. Terms of third order are unknown.
_BENT = 0.25


def levenberg_marquardt(
    tolerance: ArrayLike,
    y: Float[Array, " n"],
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
) -> optx.AbstractLeastSquaresSolver:
    """The method for a vector y, with steps that stay within the bounds. `tolerance` is relative
    and absolute, for the last change of the unknowns and residuals."""
    xp = array_namespace(y)
    lower, upper = (
        to_jax(xp.full_like(y, free)) if bound is None else jnp.asarray(bound, y.dtype)
        for bound, free in ((lower, -jnp.inf), (upper, jnp.inf))
    )
    return _LevenbergMarquardt(rtol=tolerance, atol=tolerance, lower=lower, upper=upper)


class _Model(NamedTuple):
    """The residuals at y + d as far as they are known, up to an orthogonal transformation:
    r + R (d, w / 2), with the w that is `curved`. p is the last step."""

    r: Float[Array, " 2*n"]
    R: Float[Array, "2*n 2*n"]
    p: Float[Array, " n"]

    @classmethod
    def of(
        cls,
        r: Float[Array, " m"],
        J: Float[Array, "m n"],
        before: Float[Array, "m n"],
        p: Float[Array, " n"],
    ) -> "_Model":
        """The model with the Jacobian J, and the Jacobian `before` the step p."""
        columns = jnp.concatenate([J, J - before], axis=1)
        m, n = columns.shape
        Q, R = jnp.linalg.qr(jnp.pad(columns, ((0, max(0, n - m)), (0, 0))))
        return cls(Q[:m].T @ r, R, p)

    def curved(self, d: Float[Array, " n"]) -> Float[Array, " n"]:
        """The w for which the curvature along d is D w."""
        length = self.p @ self.p
        a = jnp.where(length > 0, d @ self.p / jnp.where(length > 0, length, 1.0), 0.0)
        return 2 * a * d - a**2 * self.p

    def decrease(self, d: Float[Array, " n"], w: Float[Array, " n"]) -> Float[Array, ""]:
        """The decrease of the sum of squares."""
        change = self.R @ jnp.concatenate([d, w / 2])
        return -jnp.sum((2 * self.r + change) * change)


class _State(eqx.Module):
    """The `candidate` is tried in the next step, and is predicted to lower the sum of squares by
    `predicted`. The rest belongs to the last y that was accepted."""

    candidate: Float[Array, " n"]
    predicted: Float[Array, ""]
    f_info: optx.FunctionInfo
    aux: PyTree
    model: _Model
    step_size: Float[Array, ""]
    num_steps: Int[Array, ""]
    done: Bool[Array, ""]


class _LevenbergMarquardt(optx.AbstractLeastSquaresSolver):
    r"""The method of Levenberg and Marquardt takes the step

        d1 = arg min |J d + r|^2 + |d|^2 / s,    lower <= y + d <= upper.

    Parameters that are weakly determined lie in a narrow valley of the sum of squares. If it is
    curved, only short steps of this kind stay in it. The step with the curvature of the residuals
    along d1,

        d2 = arg min |J d + r + c / 2|^2 + |d|^2 / s,    c = r'' d1 d1,

    follows the valley (geodesic acceleration of Transtrum and Sethna). Here c costs nothing. The
    Jacobian has changed by D = r'' p in the last step p, and with d1 = a p + e,

        c = r'' (a^2 p p + 2 a p e + e e) = D w + r'' e e,    w = 2 a d1 - a^2 p.

    The last term is unknown and left out. e is small where p and d1 lead along the same valley.

    The method also stops when no step can lower the sum of squares by more than its rounding.

    Reference: Transtrum, Sethna (2012), Improvements to the Levenberg-Marquardt algorithm for
    nonlinear least-squares minimization, arXiv:1201.5885.
    """

    rtol: ArrayLike
    atol: ArrayLike
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    norm: Callable = eqx.field(default=optx.max_norm, static=True)

    def init(self, fn, y, args, options, f_struct, aux_struct, tags):
        m, n, zeros = f_struct.size, y.size, lambda *shape: jnp.zeros(shape, y.dtype)
        return _State(
            candidate=y,
            predicted=zeros(),
            f_info=_info(zeros(m), zeros(m, n)),
            aux=jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), aux_struct),
            model=_Model(zeros(2 * n), zeros(2 * n, 2 * n), zeros(n)),
            step_size=jnp.ones((), y.dtype),
            num_steps=jnp.zeros((), int),
            done=jnp.array(False),
        )

    def step(self, fn, y, args, options, state, tags):
        r, J, aux = _linearised(fn, state.candidate, args)
        first = state.num_steps == 0
        old, before, p = state.f_info.residual, state.f_info.jac.as_matrix(), state.candidate - y
        decrease = jnp.sum(old**2) - jnp.sum(r**2)
        accepted = first | (decrease >= _ACCEPTED * state.predicted)
        good = ~first & (decrease >= _GOOD * state.predicted)

        new = state.candidate, _info(r, J), aux, _Model.of(r, J, before, p)
        kept = y, state.f_info, state.aux, state.model
        y, f_info, aux, model = tree_where(accepted, new, kept)
        factor = jnp.where(accepted, jnp.where(good, _LONGER, 1.0), _SHORTER)
        step_size = state.step_size * factor.astype(y.dtype)
        d, predicted, possible = self._descend(model, y, step_size)
        # If the last step did not lower the sum, the sum may be less accurate than its own
        # rounding, because of the rounding errors of the simulation.
        eps = jnp.finfo(y.dtype).eps
        rounding = jnp.where(accepted, 8 * eps, eps**0.75)
        lowest = possible <= rounding * jnp.sum(f_info.residual**2)
        still = accepted & self._small(p, y) & self._small(r - old, r)
        state = _State(
            candidate=y + d,
            predicted=predicted,
            f_info=f_info,
            aux=aux,
            model=model,
            step_size=step_size,
            num_steps=state.num_steps + 1,
            done=lowest | (~first & still),
        )
        return y, state, aux

    def terminate(self, fn, y, args, options, state, tags):
        return state.done, optx.RESULTS.successful

    def postprocess(self, fn, y, aux, args, options, state, tags, result):
        return y, aux, {}

    def _small(self, change: Array, x: Array) -> Bool[Array, ""]:
        return self.norm(jnp.abs(change) / (self.atol + self.rtol * jnp.abs(x))) < 1

    def _descend(self, model: _Model, y: Float[Array, " n"], step_size: Float[Array, ""]):
        """The step from y, the decrease it is predicted to bring, and the largest possible one."""
        n = y.size
        R, r, none = model.R[:n, :n], model.r[:n], jnp.zeros_like(y)
        sizes = jnp.stack([step_size, jnp.full_like(step_size, jnp.inf)])
        straight, longest = jax.vmap(lambda size: self._minimum(R, r, y, size))(sizes)
        curvature = model.R[:n, n:] @ model.curved(straight) / 2
        bent = self._minimum(R, r + curvature, y, step_size)
        near = jnp.linalg.norm(bent - straight) <= _BENT * jnp.linalg.norm(straight)
        lower = model.decrease(bent, model.curved(bent))
        follow = near & (lower > 0)
        d = jnp.where(follow, bent, straight)
        decrease = jnp.where(follow, lower, model.decrease(straight, none))
        # Where unknowns are confounded, the longest step may not be found within the bounds.
        return d, decrease, jnp.maximum(decrease, model.decrease(longest, none))

    def _minimum(
        self,
        R: Float[Array, "n n"],
        r: Float[Array, " n"],
        y: Float[Array, " n"],
        step_size: Float[Array, ""],
    ) -> Float[Array, " n"]:
        """The d that minimises |R d + r|^2 + |d|^2 / step_size within the bounds of y + d."""
        tiny = jnp.finfo(y.dtype).eps
        # Damping is never zero, so directions that R does not determine at all stay unchanged.
        damping = jnp.sqrt(1 / jnp.maximum(step_size, tiny))
        damping = jnp.maximum(damping, 10 * tiny * jnp.max(jnp.abs(R), initial=0.0))
        matrix = jnp.concatenate([R, damping * jnp.eye(y.size, dtype=y.dtype)])
        right = jnp.concatenate([-r, jnp.zeros_like(r)])
        lower, upper = self.lower - y, self.upper - y
        d = bounded_least_squares(matrix, right, lower, upper, jnp.zeros_like(y)).x
        # y + d may be rounded to outside of a bound, where parameters have no derivative.
        d = jnp.where(y + d < self.lower, d + 2 * tiny * jnp.maximum(jnp.abs(y), jnp.abs(d)), d)
        return jnp.where(y + d > self.upper, d - 2 * tiny * jnp.maximum(jnp.abs(y), jnp.abs(d)), d)


def _linearised(fn: Callable, y: Float[Array, " n"], args: PyTree) -> tuple[Array, Array, PyTree]:
    """The residuals, their Jacobian and the auxiliary output."""

    def both(y):
        r, aux = fn(y, args)
        return r, (r, aux)

    # `jax.linearize` would move what stays the same out of the loops of a simulation, where it
    # takes longer to compile.
    J, (r, aux) = jax.jacfwd(both, has_aux=True)(y)
    return r, J, aux


def _info(r: Float[Array, " m"], J: Float[Array, "m n"]) -> optx.FunctionInfo:
    return optx.FunctionInfo.ResidualJac(r, lx.MatrixLinearOperator(J))
