"""Nonlinear least squares with a progress bar and intervals, for the `identify_*` scripts."""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import tqdm
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree


class Fit(NamedTuple):
    """A least-squares estimate.

    - `value`: the parameters, a pytree like the guess.
    - `sigma`: one standard deviation of each, the same pytree.
    - `covariance`: s^2 (J^T J)^-1, shape `(p, p)`, in the order of `ravel_pytree(value)`.
    - `jacobian`: J = d residuals / d parameters, shape `(n, p)`.
    - `residuals`: at `value`, shape `(n,)`; `rms` is their root mean square. `first_residuals`:
      at the guess.
    - `iterations`, `seconds`: what it took, compilation included.
    - `converged`: whether the last step was below the tolerance.
    """

    value: PyTree
    sigma: PyTree
    covariance: np.ndarray
    jacobian: Float[Array, "n p"]
    residuals: Float[Array, " n"]
    first_residuals: Float[Array, " n"]
    rms: float
    iterations: int
    seconds: float
    converged: bool


@eqx.filter_custom_jvp
def _with_jacobian(residuals, y, args):
    return residuals(y, args)


@_with_jacobian.def_jvp
def _with_jacobian_jvp(primals, tangents):
    # The optimiser asks for J several times over, as a linear map. Here it is made once, as a
    # matrix, by forward mode through the simulation; the map is then a product with it.
    residuals, y, args = primals
    _, dy, _ = tangents
    flat, unravel = ravel_pytree(y)

    def twice(flat):
        r = residuals(unravel(flat), args)
        return r, r

    J, r = jax.jacfwd(twice, has_aux=True)(flat)
    return r, J @ ravel_pytree(dy)[0]


class _Scaled(eqx.Module):
    """A residual function in optimistix's convention: (residuals / scale, auxiliary output)."""

    residuals: Callable

    def __call__(self, y, args):
        args, scale = args
        return _with_jacobian(self.residuals, y, args) / scale, None


# Each is compiled once for a residual function and the shapes of the data; new numbers reuse it.
@eqx.filter_jit
def _start(solver, fn, y, args):
    structure = eqx.filter_eval_shape(fn, y, args)
    return solver.init(fn, y, args, {}, *structure, frozenset())


@eqx.filter_jit
def _step(solver, fn, y, args, state):
    y, state, _ = solver.step(fn, y, args, {}, state, frozenset())
    done, result = solver.terminate(fn, y, args, {}, state, frozenset())
    return y, state, done & (result == optx.RESULTS.successful)


def covariance(J, r, count: int) -> np.ndarray:
    """s^2 (J^T J)^-1 with s^2 = |r|^2 / (count - p): s^2 times the inverse of the Gauss-Newton
    Hessian, shape `(p, p)`.

    Columns are first scaled to length one, so that parameters of very different size do not make
    J^T J look singular."""
    J, r = np.asarray(J), np.asarray(r)
    size = np.linalg.norm(J, axis=0)
    inverse = np.linalg.inv((J / size).T @ (J / size)) / np.outer(size, size)
    return r @ r / (count - J.shape[1]) * inverse


def fit(
    residuals: Callable[[PyTree, Any], Float[Array, " n"]],
    guess: PyTree,
    args: Any,
    *,
    scale: float = 1.0,
    count: int | None = None,
    max_steps: int = 100,
    tolerance: float = 1e-9,
    label: str = "fit",
    show_progress: bool = True,
) -> Fit:
    """Minimise |residuals(value, args)|^2 by Levenberg and Marquardt's method (optimistix), with
    Jacobians by forward-mode differentiation through whatever `residuals` simulates.

    The loop over iterations is an ordinary Python loop around one compiled step, so that the bar
    moves and Ctrl-C works.

    **Arguments:**

    - `residuals`: `(value, args) -> r`, shape `(n,)`: computed minus measured. Let `args` hold
      the data, and compare equal between calls (a module-level function, or an `eqx.Module`):
      then fits of other data compile nothing.
    - `guess`: pytree of floating-point numbers where the search starts.
    - `scale`: size of the measured motion, in whose units damping and tolerance act. Let
      parameters be logarithms or ratios, so that a unit change of each changes the motion by
      about this much.
    - `count`: number of actual measurements among the n, if some are masked by zeros.
    - `tolerance`: of the last change of parameters and residuals.

    **Raises:** `ValueError` when there are fewer measurements than parameters, or when the
    residuals at the guess are not finite.
    """
    begin = time.perf_counter()
    guess = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), guess)
    flat, unravel = ravel_pytree(guess)
    count = jax.eval_shape(residuals, guess, args).size if count is None else count
    if count <= flat.size:
        raise ValueError(f"{count} measurements cannot determine {flat.size} parameters.")

    # As an array, another tolerance does not compile anything either.
    tolerance = jnp.asarray(tolerance, flat.dtype)
    solver = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
    fn, scaled_args = _Scaled(residuals), (args, jnp.asarray(scale, flat.dtype))
    y, state = guess, _start(solver, fn, guess, scaled_args)
    converged, first = False, None
    with tqdm.tqdm(total=max_steps, desc=label, unit="it", disable=not show_progress) as bar:
        for iteration in range(max_steps):
            y, state, converged = _step(solver, fn, y, scaled_args, state)
            r = scale * state.f_info.residual
            first = r if iteration == 0 else first  # the first step is at the guess itself
            rms = float(jnp.linalg.norm(r)) / math.sqrt(count)
            if not math.isfinite(rms):
                raise ValueError("The residuals are not finite. Is the first guess sensible?")
            bar.update()
            bar.set_postfix_str(f"rms {rms:.4g}")
            if converged:
                break
        bar.total = int(state.num_steps)
    J = scale * state.f_info.jac.as_matrix()
    C = covariance(J, r, count)
    return Fit(
        value=y,
        sigma=unravel(jnp.asarray(np.sqrt(np.diag(C)), flat.dtype)),
        covariance=C,
        jacobian=J,
        residuals=r,
        first_residuals=first,
        rms=rms,
        iterations=int(state.num_steps),
        seconds=time.perf_counter() - begin,
        converged=bool(converged),
    )
