"""The samples of a run, and the verdict on each of them."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._inputs import shown
from .._results import RESULTS, code, first_failure, is_verdict, promoted

_MOST = 2**31 - 1  # the largest index without x64


class Samples(NamedTuple):
    """n samples: arrays with one row for each, and the leaves that all of them share. Without
    arrays, a sample is its index."""

    n: int
    arrays: PyTree
    shared: PyTree

    def rows(self, index: np.ndarray) -> PyTree:
        """The rows of the arrays with these indices."""
        return jax.tree.map(lambda x: _some_keys(x, index) if _is_key(x) else x[index], self.arrays)

    def shapes(self, count: int) -> PyTree:
        """The shapes of `count` rows."""

        def shape(x):
            dtype = x.dtype if _is_key(x) else jax.dtypes.canonicalize_dtype(x.dtype)
            return jax.ShapeDtypeStruct((count, *x.shape[1:]), dtype)

        return jax.tree.map(shape, self.arrays)

    def digest(self) -> str:
        """The digest of all values, which identifies the samples of a run."""
        sha = hashlib.sha256()
        for x in jax.tree.leaves(self.arrays):
            for i in range(0, self.n, 4096):
                piece = x[i : i + 4096]
                piece = jax.random.key_data(piece) if _is_key(piece) else piece
                sha.update(np.ascontiguousarray(piece).tobytes())
        return sha.hexdigest()


def make_samples(samples: PyTree | int) -> Samples:
    if isinstance(samples, int | np.integer) and not isinstance(samples, bool):
        return Samples(_checked(int(samples)), None, None)
    arrays, shared = eqx.partition(samples, _is_rows)
    leaves = jax.tree_util.tree_leaves_with_path(arrays)
    if not leaves:
        raise ValueError(
            f"`samples` has no arrays; its leaves are {jax.tree.leaves(samples)!r}. Give a pytree "
            "of arrays whose leading axis counts the samples, or their number n alone: then the "
            "sample is its index."
        )
    lengths = {x.shape[:1] for _, x in leaves}
    if len(lengths) != 1 or () in lengths:
        listed = ", ".join(f"{_named(path)} has shape {x.shape}" for path, x in leaves)
        raise ValueError(
            "All arrays of `samples` must have a leading axis of one length, the number of "
            f"samples, but {listed}. What is common to all samples goes into the function."
        )
    for path, x in leaves:
        numeric = jnp.issubdtype(x.dtype, jnp.number) or x.dtype == bool
        if not _is_key(x) and not numeric:
            raise ValueError(
                f"{_named(path)} must be numbers or random keys, but is {shown(x)}: name samples "
                "by their index."
            )
    n = _checked(leaves[0][1].shape[0])
    # Rows are selected on the host, so that the devices hold only those of a chunk.
    arrays = jax.tree.map(lambda x: x if _is_key(x) else _on_host(x), arrays)
    return Samples(n, arrays, shared)


@jax.jit
def _some_keys(keys, index):
    return keys[index]


def _is_rows(x) -> bool:
    return isinstance(x, jax.Array | np.ndarray)


def _is_key(x) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _on_host(x):
    return x if isinstance(x, np.ndarray) else np.asarray(x)  # a memory map stays one


def _named(path) -> str:
    return f"`samples{jax.tree_util.keystr(path)}`"


def _checked(n: int) -> int:
    if not 0 < n <= _MOST:
        raise ValueError(f"The number of samples must be from 1 to {_MOST}, but is {n}.")
    return n


SUCCESSFUL = int(code(RESULTS.successful))


def without_verdicts(output: PyTree) -> PyTree:
    return jax.tree.map(lambda x: None if is_verdict(x) else x, output, is_leaf=is_verdict)


def judge(returned: PyTree) -> tuple[PyTree, RESULTS]:
    """The outputs, and the first failure among all returned verdicts. If there is none, the verdict
    says whether the outputs are finite."""
    outputs = returned
    if isinstance(returned, tuple) and len(returned) == 2 and is_verdict(returned[1]):
        outputs = returned[0]
    verdicts = [x for x in jax.tree.leaves(returned, is_leaf=is_verdict) if is_verdict(x)]
    numbers = [x for x in jax.tree.leaves(outputs) if eqx.is_inexact_array(x)]
    finite = jnp.all(jnp.asarray([jnp.all(jnp.isfinite(x)) for x in numbers], bool))
    finite = RESULTS.where(finite, RESULTS.successful, RESULTS.nonfinite_output)
    return outputs, first_failure(*map(promoted, verdicts), finite)


def compute(one: Callable, shared: PyTree, key, index, row) -> tuple[PyTree, jax.Array]:
    """The outputs of one sample, and the number of its verdict."""
    sample = index if row is None else eqx.combine(row, shared)
    returned = one(sample, jax.random.fold_in(key, index))
    if not jax.tree.leaves(returned):
        raise ValueError(
            f"The function of run returned {shown(returned)}, which holds no numbers: return "
            "arrays, numbers or verdicts."
        )
    outputs, result = judge(jax.tree_util.tree_map_with_path(_as_array, returned))
    return outputs, code(result).astype(jnp.int16)


def _as_array(path, x):
    if not eqx.is_array_like(x) or (
        eqx.is_array(x) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    ):
        raise ValueError(
            f"The function of run returned {shown(x)} at `{jax.tree_util.keystr(path)}`, which is "
            "not an array of numbers. Return arrays, numbers and verdicts only."
        )
    return jnp.asarray(x)
