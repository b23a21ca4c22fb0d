"""Raising failed verdicts as errors. A verdict that is concrete raises after the compiled program,
without a callback."""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree

from ._compiler import is_known
from ._results import RESULTS, code, first_failure, is_verdict, messages, promoted

_T = TypeVar("_T")


def raise_if_failed(tree: _T) -> _T:
    """Raise unless every verdict in `tree` is successful.

    Functions with `throw=True` do so by themselves. Inside your own `jax.jit` they can raise only
    by a callback into Python, and JAX does not store programs with callbacks in its compilation
    cache on disk. Call them with `throw=False` there, and pass the result to this function:

        run = jax.jit(lambda length: mbd.simulate(Pendulum(length), ..., throw=False))
        solution = mbd.raise_if_failed(run(length))

    **Arguments:** `tree`: a `Solution`, a batch of them, a `State` with its report, or any pytree
    with verdicts in it.

    **Returns:** `tree`.

    **Raises:** `equinox.EquinoxRuntimeError` with the message of the first failure. For a batch it
    also gives the number of failures and the index of the first. Traced values are checked at run
    time.
    """
    verdicts = [x for x in jax.tree.leaves(tree, is_leaf=is_verdict) if is_verdict(x)]
    if not verdicts:
        return tree
    if len({np.shape(code(x)) for x in verdicts}) > 1:
        for x in verdicts:
            tree = raise_failure(tree, promoted(x))
        return tree
    return raise_failure(tree, first_failure(*map(promoted, verdicts)))


def raise_failure(x: _T, result: RESULTS) -> _T:
    """`x`; **raises** if `result`, or any verdict of a batch, is not successful."""
    codes = np.asarray(code(result)) if _is_here(code(result)) else code(result)
    return error_if(x, codes != code(RESULTS.successful), codes, messages())


def error_if(x: _T, failed: ArrayLike, which: ArrayLike, words: Sequence[str]) -> _T:
    """`x`; **raises** the error words[which] if `failed`, or any entry of a batch, is true. Use the
    returned value: traced values are checked when it, or a derivative of it, is computed."""
    # Equinox handles other settings, such as a debugger.
    usual = os.environ.get("EQX_ON_ERROR", "raise") == "raise"
    if not (usual and _is_here(failed) and _is_here(which)):
        # Equinox returns tangents unchanged, so a program of derivatives alone would drop the
        # check. A factor of all values carries it there too.
        x, one = eqx.branched_error_if((x, jnp.ones(())), failed, which, words)
        return jax.tree.map(lambda leaf: _times(one, leaf), x)
    flags, kinds = np.broadcast_arrays(np.asarray(failed), np.asarray(which))
    if not flags.any():
        return x
    first = np.unravel_index(np.argmax(flags), flags.shape)
    message = words[int(kinds[first])]
    if flags.ndim:
        at = ", ".join(map(str, first))
        message = f"{flags.sum()} of {flags.size} failed, the first at index {at}: {message}"
    raise eqx.EquinoxRuntimeError(message)


def _times(factor: Array, leaf: Any) -> Any:
    real = eqx.is_inexact_array(leaf)
    return leaf * factor.astype(leaf.dtype) if real else leaf


def _is_here(x: PyTree) -> bool:
    """Whether this process can read the value now."""
    value: Any = x
    return is_known(x) and (not isinstance(x, jax.Array) or value.is_fully_addressable)
