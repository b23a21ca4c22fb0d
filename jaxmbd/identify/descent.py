"""Gradient descent by reverse mode, for problems of many parameters."""

import math
import time
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import optimistix as optx

from .._concrete import to_jax
from .._search import Monitor, as_minimiser, first_iterate, iterate, next_iterate, once
from .least_squares import LeastSquares

# The search ends after so many steps in a row with a small gradient, because an optimiser with
# momentum may pass through the minimum.
_PATIENCE = 10


def descend(
    problem: Any,
    z: Any,
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
    here, steps = iterate(_step, args, once(_start, args, z), monitor._replace(report=report))
    best = here.state.best_y
    (first, *_), found = (once(_jacobian, args, x) for x in (z, best))
    seconds = time.perf_counter() - begin
    return LeastSquares.at(
        best, found, first, len(first), steps, bool(here.done) and bool(here.finite), seconds
    )


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


def _start(args, z):
    minimiser, data, _ = _prepared(args)
    return first_iterate(minimiser, _loss, z, data, jnp.zeros((), z.dtype))


def _step(args, here):
    minimiser, data, project = _prepared(args)
    return next_iterate(minimiser, _loss, data, project, here)


def _jacobian(args, z):
    residuals, data, *_ = args
    return residuals.jacobian(z, data)
