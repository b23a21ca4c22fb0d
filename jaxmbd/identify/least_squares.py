"""Nonlinear least squares with a progress bar, checkpoints and standard deviations."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix as optx
from jaxtyping import Array, ArrayLike, Float, PyTree

from .._compiler import reshaped, split, to_jax
from .._inputs import Numbers, Shape, at_least, checked, each_number, finite, positive
from .._lanes import forward_jacobian
from .._printed import counted, in_a_line, judged, printed
from .._progress import says_when_compiling
from .._results import RESULTS
from .._search import (
    Checkpoint,
    Iterate,
    Monitor,
    NoCheckpoint,
    as_minimiser,
    first_iterate,
    iterate,
    levenberg_marquardt,
    next_iterate,
    nonzero,
    once,
    rounding,
    with_value,
)


@printed
class LeastSquares(NamedTuple):
    """A least-squares estimate.

    - `value`: the parameters, a pytree like the guess.
    - `sigma`: their standard deviations, the same pytree.
    - `covariance`: s^2 (J^T J)^-1, shape `(p, p)`, in the order of `ravel_pytree(value)`.
    - `jacobian`: J = d residuals / d parameters, shape `(n, p)`.
    - `residuals`: the residuals at `value`, shape `(n,)`; `rms` is their root mean square.
      `first_residuals`: the residuals at the guess.
    - `aux`: what the method `jacobian` of the residuals returned besides r and J at `value`;
      `None` without.
    - `iterations`, `seconds`: the number of iterations, and the time including compilation.
    - `result`: `RESULTS.successful` if the last step was below the tolerance, or another step could
      not lower the sum of squares by more than its rounding.
    """

    value: PyTree
    sigma: PyTree
    covariance: np.ndarray
    jacobian: Float[Array, "n p"]
    residuals: Float[Array, " n"]
    first_residuals: Float[Array, " n"]
    rms: float
    aux: PyTree
    iterations: int
    seconds: float
    result: RESULTS

    def __str__(self) -> str:
        rows = [
            judged(self.result, "converged", "not converged"),
            f"after {counted(self.iterations, 'iteration')}, {self.seconds:.1f} s; rms "
            f"{self.rms:.4g}",
        ]
        sigma = jax.tree.leaves(self.sigma)
        for (path, x), s in zip(
            jax.tree_util.tree_leaves_with_path(self.value), sigma, strict=True
        ):
            name = jax.tree_util.keystr(path) or "value"
            rows.append(f"  {name} = {in_a_line(x)} +- {in_a_line(s)}")
        return "\n".join(rows)

    @classmethod
    def at(
        cls,
        value: PyTree,
        found: tuple[Array, Array, PyTree],
        first: Array,
        count: int,
        iterations: int,
        result: RESULTS,
        seconds: float,
    ) -> "LeastSquares":
        """The estimate at the end of a search. `found`: the residuals, their Jacobian and `aux` at
        the end. `first`: the residuals at the guess."""
        r, J, aux = found
        C = covariance(J, r, count)
        dtype = jnp.result_type(*jax.tree.leaves(value))
        sigma = _Unravel(value)(jnp.asarray(np.sqrt(np.diag(C)), dtype))
        rms = float(jnp.linalg.norm(r)) / math.sqrt(count)
        return cls(value, sigma, C, J, r, first, rms, aux, iterations, seconds, result)


def _raveled(tree: PyTree) -> Array:
    """All concrete numbers of `tree` as one vector, in the order of `ravel_pytree`."""
    return to_jax(np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]))


class _Unravel(eqx.Module):
    """The pytree like `tree` of a vector. For a concrete one it compiles nothing."""

    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __init__(self, tree: PyTree):
        leaves, self.structure = jax.tree.flatten(tree)
        self.shapes = tuple(map(np.shape, leaves))

    def __call__(self, flat):
        parts = split(flat, [math.prod(shape) for shape in self.shapes])
        parts = [reshaped(part, s) for part, s in zip(parts, self.shapes, strict=True)]
        return self.structure.unflatten(parts)


@checked
@says_when_compiling("fit")
def least_squares(
    residuals: Callable[[PyTree, PyTree], Float[Array, " n"]],
    guess: Annotated[PyTree, each_number(finite)],
    args: PyTree,
    *,
    solver: optx.AbstractLeastSquaresSolver | None = None,
    bounds: tuple[PyTree, PyTree] | None = None,
    scale: Annotated[float, positive] = 1.0,
    count: Annotated[int | None, at_least(1)] = None,
    max_iterations: Annotated[int, at_least(1)] = 100,
    tolerance: Annotated[float, positive] = 1e-9,
    label: str = "fit",
    progress: bool = True,
    checkpoint: Checkpoint | NoCheckpoint = NoCheckpoint(),
) -> LeastSquares:
    """Minimise |residuals(value, args)|^2 by the Levenberg-Marquardt method, with Jacobians by
    forward-mode differentiation through the simulations in `residuals`. Its steps follow the curved
    valleys of weakly determined parameters by geodesic acceleration, whose second derivatives come
    from the change of the Jacobian in the last step.

    The loop over iterations is a Python loop around one compiled step, so that the bar moves and
    Ctrl-C works.

    **Arguments:**

    - `residuals`: `(value, args) -> r`, shape `(n,)`: computed minus measured. If `args` holds the
      data and `residuals` compares equal between calls (a module-level function, or an
      `eqx.Module`), fits of other data need no compilation. If it has a method
      `jacobian(value, args) -> (r, J, aux)` for one vector of parameters, that is used.
    - `guess`: the start of the search, a pytree of floating-point numbers.
    - `solver`: any least-squares solver of optimistix in place of this method.
    - `bounds`: the lower and upper bounds, two pytrees like the guess; infinite for no bound. Only
      the default solver uses them.
    - `scale`: the size of the measured motion, which is the unit of damping and tolerance. Choose
      logarithms or ratios as parameters, such that a change of each by 1 changes the motion by
      about this much.
    - `count`: the number of actual measurements among the n, if some are masked by zeros.
    - `tolerance`: the tolerance of the last change of parameters and residuals.
    - `checkpoint`: a `Checkpoint` to save the search in, or to continue it from.

    **Raises:** `ValueError` if there are not more measurements than parameters, or if the residuals
    at the guess are not finite.

    Reference: Transtrum, Sethna (2012), Improvements to the Levenberg-Marquardt algorithm for
    nonlinear least-squares minimization, arXiv:1201.5885.
    """
    begin = time.perf_counter()
    guess = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), guess)
    flat, unravel = _raveled(guess), _Unravel(guess)
    total = jax.eval_shape(residuals, guess, args).size if count is None else count
    if total <= flat.size:
        raise ValueError(f"{total} measurements cannot determine {flat.size} parameters.")

    # The tolerance is an array, so that another tolerance needs no compilation.
    if solver is None:
        lower, upper = (None, None) if bounds is None else map(_raveled, bounds)
        solver = levenberg_marquardt(jnp.asarray(tolerance, flat.dtype), flat, lower, upper)
    problem = solver, _Scaled(residuals, unravel), (args, jnp.asarray(scale, flat.dtype))
    at_guess: list[np.ndarray] = []

    def report(here: Iterate) -> str:
        r = scale * np.asarray(here.state.f_info.residual)
        rms = float(np.linalg.norm(r)) / math.sqrt(total)
        if not math.isfinite(rms):
            raise ValueError("The residuals are not finite. Is the first guess sensible?")
        at_guess.append(r) if not at_guess else None  # the first step is at the guess itself
        return f"rms {rms:.4g}"

    monitor = Monitor(label, max_iterations, report, progress, checkpoint)
    here, _ = iterate(_step, problem, once(_start, problem, flat), monitor)
    r = to_jax(scale * np.asarray(here.state.f_info.residual))
    return LeastSquares.at(
        unravel(here.y),
        (r, to_jax(scale * np.asarray(here.state.f_info.jac.as_matrix())), here.aux),
        to_jax(at_guess[0]) if at_guess else r,
        total,
        int(here.state.num_steps),
        here.result,
        time.perf_counter() - begin,
    )


def searched(
    residuals: Callable[[Array, PyTree], Array],
    y: Float[Array, " p"],
    bounds: tuple[np.ndarray, np.ndarray],
    args: PyTree,
    scale: float,
    tolerance: float,
    step_size: float,
) -> Iterator[Iterate]:
    """The iterates of the same search from a vector y, by the program that `least_squares` has
    compiled, also for other bounds. It begins with steps of this size, which is 1 in
    `least_squares`."""
    lower, upper = map(to_jax, bounds)
    solver = levenberg_marquardt(jnp.asarray(tolerance, y.dtype), y, lower, upper)
    problem = solver, _Scaled(residuals, _Unravel(y)), (args, jnp.asarray(scale, y.dtype))
    first = jnp.asarray(step_size, y.dtype)
    here = eqx.tree_at(lambda it: it.state.step_size, once(_start, problem, y), first)
    while not here.done:
        here = once(_step, problem, here)
        yield here


class TracedLeastSquares(NamedTuple):
    """The result of a traced search: the value, the residuals and their Jacobian there, and the
    verdict."""

    value: Float[Array, " p"]
    residuals: Float[Array, " n"]
    jacobian: Float[Array, "n p"]
    result: RESULTS


def traced_least_squares(
    residuals: Callable[[Float[Array, " p"], PyTree], Float[Array, " n"]],
    guess: Float[Array, " p"],
    bounds: tuple[ArrayLike, ArrayLike],
    args: PyTree,
    scale: float | Float[Array, ""],
    max_iterations: int,
    tolerance: float,
) -> TracedLeastSquares:
    """Do the same search as one traceable function of one vector, for batches by `jax.vmap`."""
    found = optx.least_squares(
        _Scaled(residuals, lambda y: y),
        levenberg_marquardt(tolerance, guess, *bounds),
        guess,
        (args, jnp.asarray(scale, guess.dtype)),
        has_aux=True,
        max_steps=max_iterations,
        throw=False,
    )
    r, J = scale * found.state.f_info.residual, scale * found.state.f_info.jac.as_matrix()
    good = found.result == optx.RESULTS.successful
    result = RESULTS.where(good, RESULTS.successful, RESULTS.max_iterations_reached)
    return TracedLeastSquares(found.value, r, J, result)


@checked
def covariance(
    J: Annotated[Numbers, Shape(["n", "p"])],
    r: Annotated[Numbers, Shape(["n"])],
    count: Annotated[int, at_least(1)],
    D: Annotated[Numbers, Shape(["m", "p"])] | None = None,
) -> np.ndarray:
    """The covariance s^2 D (J^T J)^-1 D^T with s^2 = |r|^2 / (count - p), shape `(m, m)`. It is s^2
    times the inverse of the Gauss-Newton Hessian, for quantities whose derivatives with respect to
    the parameters are D. Without D, the quantities are the parameters, and m is p.

    Columns are first scaled to length one, so that parameters of very different size do not make
    J^T J look singular. Quantities that the data do not determine at all have infinite variance."""
    J, r = np.asarray(J), np.asarray(r)
    size = np.linalg.norm(J, axis=0)
    largest = np.max(size, initial=0.0)
    # Columns of nothing but rounding errors stay small.
    size = np.where(size > rounding(J) * largest, size, largest if largest > 0 else 1.0)
    _, values, rows = np.linalg.svd(J / size, full_matrices=False)
    known = nonzero(values, rounding(J))
    D = (np.eye(J.shape[1]) if D is None else np.asarray(D)) / size
    root = D @ (rows[known].T / values[known])
    lost = np.abs(D @ rows[~known].T) > 1e-6 * np.linalg.norm(D, axis=1, keepdims=True)
    unknown = np.any(lost, axis=1)
    C = r @ r / max(count - J.shape[1], 1) * (root @ root.T)
    C[unknown, unknown] = np.inf
    return C


# --- the compiled parts ---------------------------------------------------------------------------


@eqx.filter_custom_jvp
def _with_jacobian(fn, y, args):
    r, _, aux = _linearised(fn, y, args)
    return r, aux


@_with_jacobian.def_jvp
def _with_jacobian_jvp(primals, tangents):
    # The optimiser applies J several times, as a linear map. Here J is computed once, as a matrix,
    # by forward mode through the simulation. The map is then a product with it.
    _, dy, _ = tangents
    r, J, aux = _linearised(*primals)
    return (r, aux), (J @ dy, jax.tree.map(lambda _: None, aux))


@eqx.filter_jit  # so that the start of a search and its steps trace it once
def _linearised(fn, y, args):
    """The residuals of a vector y, their Jacobian and `aux`."""
    residuals, unravel = fn
    if hasattr(residuals, "jacobian"):
        r, J, aux = residuals.jacobian(unravel(y), args)
    else:
        J, r = forward_jacobian(with_value(lambda y: residuals(unravel(y), args)), y)
        aux = None
    # A search must not end where derivatives overflow. It turns back from such a point.
    return jnp.where(jnp.all(jnp.isfinite(J)), r, jnp.nan), J, aux


class _Scaled(eqx.Module):
    """The residuals of a vector as in optimistix: (residuals / scale, auxiliary output)."""

    residuals: Callable
    unravel: Callable

    def __call__(self, y, args):
        args, scale = args
        r, aux = _with_jacobian((self.residuals, self.unravel), y, args)
        return r / scale, aux


def _start(problem, y):
    solver, fn, args = problem
    return first_iterate(solver, fn, y, args)


def _step(problem, here):
    solver, fn, args = problem
    return next_iterate(solver, fn, args, here)


# The search ends after so many steps in a row with a small gradient, because an optimiser with
# momentum may pass through the minimum.
_PATIENCE = 10


def descend(
    problem: Any,
    z: Float[Array, " n"],
    optimiser: optax.GradientTransformation,
    tolerance: float,
    monitor: Monitor,
) -> LeastSquares:
    """Minimise |residuals(z, data)|^2 / 2 of a `FitProblem` by an optax transformation, which may
    have a line search. z is clipped to the bounds. The search has converged when the gradient stays
    small. At a bound, only the gradient away from the bound counts.

    **Raises:** `ValueError` if the loss is not finite at the guess.
    """
    begin, losses = time.perf_counter(), []
    # The loss is flat at its minimum: its error is proportional to the square of the gradient.
    small = to_jax(0.1 * math.sqrt(tolerance) * problem.count * np.asarray(problem.scale) ** 2)

    def report(here):
        losses.append(float(here.aux))
        if not math.isfinite(losses[0]):
            raise ValueError("The loss is not finite. Is the first guess sensible?")
        return f"loss {losses[-1]:.4g}"

    args = problem.residuals, problem.data, problem.bounds, optimiser, small
    here, steps = iterate(
        _step_down, args, once(_start_of_descent, args, z), monitor._replace(report=report)
    )
    best = here.state.best_y
    (first, *_), found = (once(_jacobian, args, x) for x in (z, best))
    seconds = time.perf_counter() - begin
    return LeastSquares.at(best, found, first, len(first), steps, here.result, seconds)


def _loss(z, args):
    residuals, data = args
    r = residuals(z, data)
    value = 0.5 * jnp.sum(r * r)
    return value, value


def _prepared(args):
    residuals, data, bounds, optimiser, small = args

    def project(z):
        return optax.projections.projection_box(z, *bounds)

    minimiser = as_minimiser(optimiser, small, project, _PATIENCE)
    return optx.BestSoFarMinimiser(minimiser), (residuals, data), project


def _start_of_descent(args, z):
    minimiser, data, _ = _prepared(args)
    return first_iterate(minimiser, _loss, z, data, jnp.zeros((), z.dtype))


def _step_down(args, here):
    minimiser, data, project = _prepared(args)
    return next_iterate(minimiser, _loss, data, here, project)


def _jacobian(args, z):
    residuals, data, *_ = args
    return residuals.jacobian(z, data)
