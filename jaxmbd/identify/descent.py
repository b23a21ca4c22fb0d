"""Gradient descent by reverse mode, for problems of many parameters."""

import math
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from .._progress import progress_bar
from .checkpoint import Checkpoint, NoCheckpoint
from .least_squares import LeastSquares, summary


def descend(
    residuals: Any,
    z: Any,
    bounds: tuple[Any, Any],
    data: Any,
    optimiser: optax.GradientTransformation,
    *,
    max_steps: int,
    tolerance: float,
    progress: bool,
    checkpoint: Checkpoint | NoCheckpoint,
) -> LeastSquares:
    """Minimise |residuals(z, data)|^2 / 2 by an optax transformation, line searches included, with
    z cut off at the bounds. It has converged when the loss and its gradient have come to rest; at a
    bound, only the gradient away from it counts.

    **Raises:** `ValueError` when the loss is not finite at the guess.
    """
    begin, guess, state = time.perf_counter(), z, optimiser.init(z)
    best, least, worst = z, math.inf, 0.0
    done, (z, state, best) = checkpoint.restored((z, state, best))
    at_rest, steps = 0, done
    with progress_bar(max_steps, "fit", progress, done=done) as bar:
        while steps < max_steps and at_rest < 10:
            new, state, loss, slope = _descent_step(optimiser, residuals, z, state, bounds, data)
            loss, slope = float(loss), float(slope)
            if not math.isfinite(loss) and least == math.inf:
                raise ValueError("The loss is not finite. Is the first guess sensible?")
            worst = max(worst, slope if math.isfinite(slope) else 0.0)
            quiet = slope <= math.sqrt(tolerance) * worst
            at_rest = at_rest + 1 if quiet and abs(loss - least) <= tolerance * least else 0
            if loss < least:
                best, least = z, loss
            z, steps = new, steps + 1
            bar.update()
            bar.set_postfix_str(f"loss {loss:.4g}, |gradient| {slope:.2g}")
            checkpoint.save(steps, (z, state, best))
        bar.total = bar.n  # fewer than the most
        checkpoint.save(steps, (z, state, best), now=True)
    (first, _), (r, J) = (_with_jacobian(residuals, x, data) for x in (guess, best))
    seconds = time.perf_counter() - begin
    return summary(best, r, J, first, len(r), steps, at_rest >= 10, seconds)


@eqx.filter_jit
def _with_jacobian(residuals, z, data):
    return residuals.jacobian(z, data)


@eqx.filter_jit
def _descent_step(optimiser, residuals, z, state, bounds, data):
    def loss(z):
        r = residuals(z, data)
        return 0.5 * jnp.sum(r * r)

    value, gradient = jax.value_and_grad(loss)(z)
    lower, upper = bounds
    held = ((z <= lower) & (gradient > 0)) | ((z >= upper) & (gradient < 0))
    gradient = jnp.where(held, 0.0, gradient)
    # Optax counts in integers of two sizes.
    with jax.numpy_dtype_promotion("standard"):
        # Line searches, such as that of L-BFGS, evaluate the loss themselves.
        optimiser = optax.with_extra_args_support(optimiser)
        updates, state = optimiser.update(
            gradient, state, z, value=value, grad=gradient, value_fn=loss
        )
        z = optax.projections.projection_box(optax.apply_updates(z, updates), lower, upper)
    return z, state, value, jnp.linalg.norm(gradient)
