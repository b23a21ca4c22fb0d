"""What runs on the devices: a chunk of samples, compiled once."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from .._inputs import shown
from .._results import code
from .._sizes import in_words
from .blocks import reduce_block
from .memory import bytes_of
from .samples import Samples
from .verdicts import SUCCESSFUL, judge

_AXIS = "samples"
_ALL, _SPLIT = PartitionSpec(), PartitionSpec(_AXIS)

# Chunks of each device that keep it busy; larger ones gain little and cost memory.
_BUSY = {"cpu": 256}
_BUSY_ELSEWHERE = 16384


class Program(NamedTuple):
    """Compiled for blocks of `block` samples on each device."""

    block: int
    mesh: Mesh
    simulate: Callable  # key, n, index, rows -> outputs, status
    output: PyTree[jax.ShapeDtypeStruct]  # of one sample
    reduce: Callable | None  # n, outputs, status, index -> states of each device's block
    bytes: int

    def place(self, x: PyTree) -> PyTree:
        """On the devices, a block on each."""
        return jax.device_put(x, NamedSharding(self.mesh, _SPLIT))


def make_program(
    one: Callable,
    samples: Samples,
    key,
    reductions: PyTree | None,
    devices: list[Any],
    options: dict[str, Any] | None,
    chunk: int | None,
    memory: float | int,
) -> Program:
    """With the chunk asked for, or with the largest one that is of use and fits."""
    platform = devices[0].platform
    needed = _power_of_two_from(-(-samples.n // len(devices)))
    block = min(needed, _BUSY.get(platform, _BUSY_ELSEWHERE)) if chunk is None else chunk
    program = compile_program(one, samples, key, reductions, devices, options, block)
    while program.bytes > memory:
        if program.block in (1, chunk):
            least = "one sample" if program.block == 1 else f"a chunk of {program.block} samples"
            smaller = "" if program.block == 1 else "a smaller `chunk`, "
            raise ValueError(
                f"{least.capitalize()} on each device takes {in_words(program.bytes)} of memory, "
                f"but there are {in_words(memory)}: use {smaller}fewer outputs (see `saveat`), or "
                "a larger `memory` if there is more."
            )
        # By how much it is too large, and at least by a half.
        fits = int(program.block * memory / program.bytes)
        block = min(program.block // 2, 1 << max(0, fits.bit_length() - 1))
        program = compile_program(one, samples, key, reductions, devices, options, block)
    return program


def compile_program(
    one, samples: Samples, key, reductions, devices, options, block: int
) -> Program:
    parts = (one, samples.shared, reductions)
    arrays, rest = eqx.partition(parts, eqx.is_array)
    shapes = (_shapes(arrays), _shapes(key), samples.shapes(block * len(devices)))
    inputs = [_Hashable(rest), *map(_Hashable, (*shapes, options)), tuple(devices), block]
    try:
        mesh, simulate, output, reduce, size = _compile_once(*inputs)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        mesh, simulate, output, reduce, size = _compile(*inputs)
    return Program(
        block,
        mesh,
        functools.partial(simulate, arrays),
        output,
        None if reduce is None else functools.partial(reduce, arrays),
        size,
    )


class _Hashable:
    """A pytree without arrays, as a key of a cache."""

    def __init__(self, tree: PyTree):
        self.tree = tree
        self.key = tuple(jax.tree.leaves(tree)), jax.tree.structure(tree)

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return self.key == other.key


def _compile(rest, arrays, key, rows, options, devices, block):
    mesh = Mesh(np.asarray(devices), (_AXIS,))
    split, everywhere = NamedSharding(mesh, _SPLIT), NamedSharding(mesh, _ALL)

    # Indices go on beyond the last sample, which is computed over and over to fill a block.
    def simulate(arrays, key, n, index, rows):
        one, shared, _ = eqx.combine(arrays, rest.tree)
        each = functools.partial(_sample, one, shared, key)
        index = jnp.minimum(index, n - 1)
        if devices[0].platform == "cpu":
            # The steps of one sample are compiled whole, and fit the first cache; and a sample
            # takes the branches and iterations that it needs, not those of all.
            # A loop over one alone would be none, and round otherwise than one over many.
            samples = jax.tree.map(
                lambda x: jnp.resize(x, (max(len(x), 2), *x.shape[1:])), (index, rows)
            )
            found = jax.lax.map(lambda sample: each(*sample), samples)
            return jax.tree.map(lambda x: x[: len(index)], found)
        return jax.vmap(each)(index, rows)

    def reduce(arrays, n, outputs, status, index):
        reductions = eqx.combine(arrays, rest.tree)[2]
        good = (status == SUCCESSFUL) & (index < n)
        states = reduce_block(reductions, outputs, good, index)
        return jax.tree.map(lambda x: x[None], states)

    def lowered(fn, inputs, specs):
        # Each device on its own: a loop that ends early for its samples does not wait for others.
        apart = jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=_SPLIT, check_vma=False)
        where = tuple(everywhere if spec == _ALL else split for spec in specs)
        return jax.jit(apart, in_shardings=where, out_shardings=split).lower(*inputs)

    n, index = (
        jax.ShapeDtypeStruct(s, jnp.result_type(int)) for s in ((), (block * len(devices),))
    )
    inputs = (arrays.tree, key.tree, n, index, rows.tree)
    run = lowered(simulate, inputs, (_ALL, _ALL, _ALL, _SPLIT, _SPLIT))
    outputs, status = _shapes(run.out_info)
    run, merge = run.compile(options.tree), None
    size = bytes_of(run)
    if rest.tree[2] is not None:
        inputs = (arrays.tree, n, outputs, status, index)
        merge = lowered(reduce, inputs, (_ALL, _ALL, _SPLIT, _SPLIT, _SPLIT)).compile(options.tree)
        size += bytes_of(merge)
    output = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), outputs)
    return mesh, run, output, merge, size


# Of the last runs: another one with other numbers compiles nothing.
_compile_once = functools.lru_cache(maxsize=8)(_compile)


def _sample(one: Callable, shared: PyTree, key, index, row) -> tuple[Any, jax.Array]:
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
            "no array of numbers. Return arrays, numbers and verdicts only."
        )
    return jnp.asarray(x)


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def _power_of_two_from(n: int) -> int:
    return 1 << (n - 1).bit_length()
