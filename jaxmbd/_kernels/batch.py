"""A function of one sample as a kernel for many: traced, translated, called with any pytrees."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr
from jaxtyping import PyTree

from .._compiler import is_concrete
from .keys import is_key
from .source import Source, program_source
from .unsupported import Unsupported
from .warp_call import Batched

# Entries of an array up to which it is written into the source, where its values can be used.
_WRITTEN = 1024


# Samples of a launch up to which a group of threads shares each sample. Millions of steps in a
# second of a chain of 5 on an NVIDIA H200, in float32:
#
#     samples                   1024   16384   131072
#     a thread for each         12.1    86.9      124
#     32 threads for each       34.0    62.7     66.8
_GROUPED = 4096
_GROUP = 32


# Characters of a source up to which a compiler for GPUs takes about a minute. One core took 5 s for
# 704 thousand in variables (the chain of 5 in float32) and 17 s for 2.15 million (its gradient);
# with loops for one thread 168 s for 1.7 million (the gradient of a robot on four feet), and for 32
# threads 1 s for 128 thousand, 4 s for 330 thousand (the chain) and 28 s for a million (the robot).
_LONG_IN_VARIABLES = 3_000_000
_LONG_ALONE = 600_000
_LONG_TOGETHER = 1_500_000


def lanes_for(samples: int, device: Any) -> tuple[int, ...]:
    """Threads for each of this number of samples that are computed at once, by preference."""
    if device.platform == "cpu":
        return (1,)  # it has no groups of threads
    return (_GROUP, 1) if samples <= _GROUPED else (1, _GROUP)


class Function:
    """`fn(*operands)` for many samples by one kernel.

    **Arguments:**

    - `fn`: of one sample.
    - `operands`: shapes and dtypes of those of one sample; random keys are allowed.
    - `shared`: which operands are the same for all samples.
    - `lanes`: numbers of threads for each sample, by preference, of which those are left out with
      which the source is too long to compile. A single one is taken however it is. See
      `lanes_for`.

    **Raises:** `Unsupported` for programs that can be no kernel. What `fn` itself raises when it is
    traced passes unchanged. Errors that it raises in compiled code, by Equinox, are raised after
    the kernel, if some sample has one.
    """

    def __init__(
        self,
        fn: Callable,
        operands: Sequence[PyTree],
        shared: Sequence[bool],
        lanes: Sequence[int],
    ):
        closed, self.returned, self.constants = _traced(fn, operands)
        each = [s for s, x in zip(shared, operands, strict=True) for _ in jax.tree.leaves(x)]
        self.source = _source(closed, lanes)
        self.batched = Batched(self.source, [True] * len(self.constants) + each)

    @property
    def lanes(self) -> int:
        """Threads for each sample."""
        return self.source.lanes

    def load(self, devices: Sequence[Any]) -> None:
        """Compile for the devices, where this is not done yet."""
        self.batched.load(devices)

    def __call__(self, n: int, *operands: PyTree) -> PyTree:
        """The outputs of `n` samples, which are the first axis of all outputs and operands, except
        for the shared ones."""
        raw = map(_raw, jax.tree.leaves(operands))
        found = self.batched(n, *self.constants, *raw)
        leaves, structure = jax.tree.flatten(self.returned)
        wrapped = [_wrapped(x, like) for x, like in zip(found, leaves, strict=False)]
        if self.source.checks and n:
            failed = jnp.max(found[-1])
            checks = self.source.checks
            wrapped = eqx.branched_error_if(wrapped, failed > 0, failed - 1, checks)
        return jax.tree.unflatten(structure, wrapped)


def _source(closed: ClosedJaxpr, lanes: Sequence[int]) -> Source:
    for count in lanes:
        source = _translated(closed, count)
        if len(lanes) == 1 or _is_short(source):
            return source
    raise Unsupported("programs as large as this one")


def _is_short(source: Source) -> bool:
    alone = _LONG_IN_VARIABLES if source.in_variables else _LONG_ALONE
    return len(source.text) <= (alone if source.lanes == 1 else _LONG_TOGETHER)


def _translated(closed: ClosedJaxpr, lanes: int) -> Source:
    try:
        return program_source(closed, lanes)
    except Unsupported:
        raise
    except Exception as error:  # whatever is wrong, XLA can compute the program
        named = f"{type(error).__name__}: {error}"
        raise Unsupported(f"this program (their compiler fails with {named})") from error


def _traced(fn: Callable, operands: Sequence[PyTree]) -> tuple[ClosedJaxpr, PyTree, list[Any]]:
    """The program of `fn`, whose first operands are large constants; the shapes that `fn` returns;
    and those constants."""
    # In a kernel loops cost no more than their arithmetic, as on a CPU.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        closed, returned = jax.make_jaxpr(fn, return_shape=True)(*operands)
        moved = [x for x in closed.consts if not _is_written(x)]
        if moved:
            closed = _with_operands(closed, moved)
    if closed.effects:
        named = ", ".join(sorted(map(str, closed.effects)))
        raise Unsupported(f"effects of JAX: {named}")
    return closed, returned, list(map(_raw, moved))


def _with_operands(closed: ClosedJaxpr, moved: list[Any]) -> ClosedJaxpr:
    """The same program with the constants that are not written as its first operands."""

    def program(moved, *operands):
        given = iter(moved)
        consts = [x if _is_written(x) else next(given) for x in closed.consts]
        return eval_jaxpr(closed.jaxpr, consts, *operands)

    return jax.make_jaxpr(program)(moved, *closed.in_avals)


def _is_written(x) -> bool:
    return is_concrete(x) and math.prod(np.shape(x)) <= _WRITTEN


def _raw(x):
    """The numbers of a random key; of an array, itself."""
    return jax.random.key_data(x) if is_key(x.dtype) else x


def _wrapped(x, like):
    """The random key of numbers, if `like` is one."""
    if not is_key(like.dtype):
        return x
    kinds = []
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), like)
    return jax.random.wrap_key_data(x, impl=kinds[0])
