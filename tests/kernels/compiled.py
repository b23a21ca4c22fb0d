"""Programs in C++ by the compiler of the system, for several samples."""

import ctypes
import math
import pathlib
import shutil
import subprocess
import tempfile

import jax
import numpy as np
import pytest

from jaxmbd._kernels import Source, program_source
from jaxmbd._kernels.operations import CTYPE

COMPILER = shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

# The samples one after the other, with a thread for each lane.
_MAIN = """
#include <math.h>
#include <string.h>
%(waiting)s
static void sample(
  %(parameters)s, char* scratch, long long n, long long s, char* arena, int lane, int lanes
) {
auto sync = [=] { wait_(); };
auto shuffle = [=](auto x, int k) {
  memcpy(&exchanged[lane], &x, sizeof(x));
  sync();
  memcpy(&x, &exchanged[lane ^ k], sizeof(x));
  sync();
  return x;
};
%(text)s}
extern "C" void run(long long n, const void* const* in, void* const* out, char* scratch) {
  alignas(16) static char arena[%(arena)d];
  auto work = [=](int lane) {
    for (long long s = 0; s < n; ++s) {
      sample(%(arguments)s, scratch, n, s, arena, lane, %(lanes)d);
      wait_();
    }
  };
  %(start)s
}
"""

# What starts and waits for the threads.
_ALONE = dict(waiting="static long long exchanged[1];\nstatic void wait_() {}", start="work(0);")
_TOGETHER = dict(
    waiting="""
#include <pthread.h>
#include <thread>
#include <vector>
static pthread_barrier_t barrier;
static long long exchanged[64];
static void wait_() { pthread_barrier_wait(&barrier); }
""",
    start="""
  pthread_barrier_init(&barrier, 0, %d);
  std::vector<std::thread> threads;
  for (int lane = 1; lane < %d; ++lane) threads.emplace_back(work, lane);
  work(0);
  for (auto& thread : threads) thread.join();
  pthread_barrier_destroy(&barrier);
""",
)


def text_of(source: Source) -> str:
    parameters, arguments = [], []
    for kind, numbers in (("in", source.inputs), ("out", source.outputs)):
        const = "const " if kind == "in" else ""
        for k, (dtype, shape) in enumerate(numbers):
            pointer = f"{const}{CTYPE[dtype.name]}*"
            parameters.append(f"{pointer} {kind}{k}")
            arguments.append(f"({pointer}){kind}[{k}] + s * {math.prod(shape)}")
    lanes = source.lanes
    threads = dict(_TOGETHER, start=_TOGETHER["start"] % (lanes, lanes)) if lanes > 1 else _ALONE
    values = threads | dict(parameters=", ".join(parameters), arguments=", ".join(arguments))
    return _MAIN % (values | dict(text=source.text, arena=max(source.arena, 1), lanes=lanes))


def compiled(source: Source, flags=("-O1",)):
    """The program as a function of arrays with the samples first."""
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "program.cpp").write_text(text_of(source))
    library = folder / "program.so"
    command = [COMPILER, *flags, "-std=c++17", "-fPIC", "-shared", "-w", "-pthread"]
    done = subprocess.run(
        [*command, folder / "program.cpp", "-o", library],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:4000]
    fn = ctypes.CDLL(str(library)).run
    shutil.rmtree(folder)

    def run(*inputs):
        n = len(inputs[0])
        given = [np.ascontiguousarray(x) for x in inputs]
        assert [(x.dtype, x.shape[1:]) for x in given] == list(source.inputs)
        # What is not written is seen.
        outputs = [np.full((n, *shape), 1, dtype) for dtype, shape in source.outputs]
        pointers = (
            (ctypes.c_void_p * len(a))(*(x.ctypes.data for x in a)) for a in (given, outputs)
        )
        scratch = np.full(max(n * source.scratch, 1), 255, np.uint8)
        fn(ctypes.c_longlong(n), *pointers, ctypes.c_void_p(scratch.ctypes.data))
        return outputs

    return run


def both(fn, *inputs, flags=("-O1",), **options):
    """The results of `fn` for all samples, by a kernel and by JAX."""
    traced = jax.jit(fn).trace(*(x[0] for x in inputs))
    source = program_source(traced.jaxpr, **options)
    found = compiled(source, flags)(*map(np.asarray, inputs))
    program = traced.lower().compile()
    known = [jax.tree.leaves(program(*(x[k] for x in inputs))) for k in range(len(inputs[0]))]
    return found, [np.stack(list(map(np.asarray, xs))) for xs in zip(*known, strict=True)]
