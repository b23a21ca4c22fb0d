"""The initial guess of the controls."""

from typing import Any

import numpy as np
from jaxtyping import Array

from .._checks import check_no_nan, with_dtype
from .._concrete import numpy_if_concrete, to_jax
from .._inputs import finite
from .controls import PiecewiseConstant
from .problem import Problem


def with_strong_types(problem: Problem) -> Problem:
    """The problem with Python numbers, and arrays made of them, as arrays of its dtype. The user
    may have put some in, and they would be compiled again."""
    return with_dtype(problem, problem.state.q.dtype)


def as_control(problem: Problem, guess: Any, name: str = "guess") -> Any:
    """Turn the user's guess (`None`, an array or a callable) into a callable.

    **Raises:** `ValueError` for the wrong shape."""
    dtype = problem.state.q.dtype
    check_no_nan(**{name: guess})
    if callable(guess):
        return with_dtype(guess, dtype)
    what = f"`{name}`, a callable (t, q, v) -> u or an array,"
    values = finite(what, 0.0 if guess is None else guess, dtype, shape=None)
    if guess is None:
        values = np.zeros(problem.nu, dtype)
    shapes = (problem.nu,), (problem.steps, problem.nu)
    if values.shape not in shapes:
        raise ValueError(
            f"Argument `{name}` must be a callable (t, q, v) -> u, or have shape {shapes[1]} or "
            f"{shapes[0]}, but has shape {values.shape}."
        )
    xp = numpy_if_concrete(values)
    return table(problem, to_jax(xp.broadcast_to(xp.asarray(values), shapes[1])))


def table(problem: Problem, u: Array) -> PiecewiseConstant:
    """The table of u on the grid of the problem."""
    return PiecewiseConstant(problem.state.t, problem.dt, u)
