"""The source of a program, for one sample."""

import math
from dataclasses import dataclass

import numpy as np
from jax.extend.core import ClosedJaxpr

from . import arrays, control, places, reductions
from .emitter import Emitter, Options, TooLong
from .flatten import flattened
from .form import Value as Named
from .keys import is_key
from .operations import CTYPE, special_numbers
from .values import Buffer, Entries, View, packed

_RULES = {**arrays.RULES, **control.RULES, **places.RULES, **reductions.RULES}

# Bytes of shared memory that a block has on all devices, less 1 kB that Warp takes. Most devices
# give more to those that ask for it at the launch, for which Warp has no way but tiles of its own.
SHARED = 47 * 1024

# Lines of a program in variables. For 80 000 lines nvcc takes a minute and a half.
_LONGEST = 100_000


@dataclass(frozen=True)
class Source:
    """What computes a program for one sample: the body of a function of

    - `in0`, `in1` ...: pointers to the inputs of this sample, `out0` ...: to its outputs, all
      packed and of the types of C in `inputs` and `outputs`;
    - `char* scratch`: `scratch` bytes for each of `long long n` samples, of which this is number
      `long long s`: neighbouring samples have neighbouring numbers;
    - with several `lanes`, threads that share a sample: `int lane`, `int lanes`, a power of two,
      `char* arena`, of `arena` bytes for each sample, which its lanes share, `sync()`, which lets
      them wait for each other, and `shuffle(x, k)`, the x of the lane whose number differs by the
      bit k. Lanes access neighbouring numbers of scratch memory if they get that of their sample
      alone, n = 1 and s = 0.

    `inputs` and `outputs` are types and shapes in the order of the leaves. Keys of random numbers
    are their data, two `uint32` along a last axis. If there are `checks`, messages of errors, the
    last output is the number of the one that is raised, counted from 1, or 0; after an error others
    are not written. The body needs `<math.h>` and `<string.h>`, contains no other function, and no
    macro. For more than about 20 000 lines, nvcc's fast compilation (`--Ofast-compile=min`) is not
    only faster: without it registers are given up.
    """

    text: str
    inputs: tuple[tuple[np.dtype, tuple[int, ...]], ...]
    outputs: tuple[tuple[np.dtype, tuple[int, ...]], ...]
    scratch: int
    arena: int
    lanes: int
    checks: tuple[str, ...] = ()
    in_variables: bool = False  # without arrays and loops over their entries


def program_source(
    program: ClosedJaxpr,
    lanes: int = 1,
    small: int | None = None,
    unrolled: int | None = None,
) -> Source:
    """The source of a program, in which `lanes` threads share a sample. Raises `Unsupported` if it
    holds something that is not known.

    `small` is the most entries of an array whose entries become variables of their own, `unrolled`
    the most operations of a loop that is written out. By default one thread for a sample keeps
    everything in variables, which compilers place best, unless the program becomes too long.
    """
    if lanes == 1 and small is None and unrolled is None:
        try:
            return _written(program, Options(small=2048, longest=_LONGEST), 10_000)
        except TooLong:
            pass
    small = (4 if lanes > 1 else 8) if small is None else small
    # A device reserves local memory for all threads that it can hold, so threads get little of it.
    local = 4096 if lanes > 1 else 1024
    while True:
        source = _written(program, Options(small, local, lanes=lanes), unrolled or 0)
        if source.arena <= SHARED:
            return source
        local //= 2  # the largest arrays go to scratch memory


def _written(program: ClosedJaxpr, options: Options, unrolled: int) -> Source:
    top, checks = flattened(program, unrolled)
    e = Emitter(options, _RULES)
    if checks:
        e.definitions.append(f"int* const failed = out{len(top.results)};")

    def argument(name: str, x: Named, aval, constant: bool) -> View:
        if is_key(aval.dtype):
            const = "const " if constant else ""
            pointer = f"{const}unsigned long long*"
            e.line(f"{pointer} const key_{name} = ({pointer}){name};")
            name = f"key_{name}"
        buffer = Buffer(f"{name}[{{}}]", x.dtype, math.prod(x.shape), constant=constant)
        return packed(buffer, x.shape)

    for k, (x, aval) in enumerate(zip(top.params, program.in_avals, strict=True)):
        view = argument(f"in{k}", x, aval, constant=True)
        e.values[x] = Entries(e.entries(view)) if e.is_small(x) else view
    e.block(top)
    for k, (x, aval) in enumerate(zip(top.results, program.out_avals, strict=True)):
        e.store(argument(f"out{k}", x, aval, constant=False), e.value(x))
    if checks:
        e.line("failed[0] = 0;")
    body = "\n".join(e.lines)
    pools = dict(e.pools)
    scratch, arena = (pools.pop(name).size if name in pools else 0 for name in ("scratch", "arena"))
    local = [f"{CTYPE[name[6:]]} {name}[{pool.size}];" for name, pool in pools.items()]
    written = "\n".join([*e.definitions, body])
    text = "\n".join(filter(None, [special_numbers(written), *local, written]))
    inputs = tuple(map(_described, program.in_avals))
    outputs = tuple(map(_described, program.out_avals))
    if checks:
        outputs = *outputs, (np.dtype(np.int32), ())
    kept = options.longest is not None
    return Source(text + "\n", inputs, outputs, scratch, arena, options.lanes, tuple(checks), kept)


def _described(aval) -> tuple[np.dtype, tuple[int, ...]]:
    shape = tuple(map(int, aval.shape))
    return (
        (np.dtype(np.uint32), (*shape, 2)) if is_key(aval.dtype) else (np.dtype(aval.dtype), shape)
    )
