"""What to do with numbers that are known before any program runs, so that little is compiled for
them: each operation that JAX is given by itself is a program, which takes ten milliseconds."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_Function = TypeVar("_Function", bound=Callable)


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` is known now."""
    return not isinstance(x, Tracer)


def all_known(tree: Any) -> bool:
    """Whether the values of all numbers in `tree` are known now."""
    return all(map(is_concrete, jax.tree.leaves(tree)))


def numpy_if_known(*values: Any) -> Any:
    """NumPy if the values are known, which compiles nothing, else `jax.numpy`. What comes out goes
    into an array of JAX by `jnp.asarray` with a dtype: without one, that compiles a program too."""
    return np if all_known(values) else jnp


def as_one_program(fn: _Function) -> _Function:
    """A function of pytrees, compiled as a whole where all its numbers are known. Traced, it is
    what it was."""
    compiled = eqx.filter_jit(fn)

    @functools.wraps(fn)
    def called(*args):
        return (compiled if all_known(args) else fn)(*args)

    return cast(_Function, called)
