"""A source as a function inside `jax.jit`: compiled and launched by NVIDIA Warp, on JAX's stream
and memory, on GPUs and on CPUs.

Warp compiles a native snippet for the device at hand and keeps the binary in its cache on disk,
under a hash of the text. Nothing has to be built by the user. The kernel has one thread for each
sample, or a group of neighbouring threads.
"""

import functools
import importlib.util
import linecache
import math
import sys
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .operations import CTYPE
from .source import SHARED, Source

_BLOCK = 64  # threads

_WORD = 4  # bytes of an entry of the scratch memory, which exists without x64 too


def has_warp() -> bool:
    """Whether NVIDIA Warp is installed."""
    return importlib.util.find_spec("warp") is not None


def _block(source: Source) -> int:
    """Threads of a block: as many groups as share its memory."""
    if source.lanes == 1:
        return _BLOCK
    return source.lanes * max(1, min(_BLOCK // source.lanes, SHARED // max(1, _stride(source))))


class Batched:
    """A source for many samples. `load` compiles it for devices, in advance, so that errors of the
    compiler are raised there. A call computes all samples at once.

    **Arguments:**

    - `source`: of one sample.
    - `shared`: which inputs are the same for all samples. They have no axis of samples.
    """

    def __init__(self, source: Source, shared: Sequence[bool]):
        self.source, self.shared = source, tuple(shared)
        self.block = _block(source)
        self.kernel = _kernel(source, self.shared, self.block)

    def load(self, devices: Sequence[Any]) -> None:
        warp = _warp()
        for device in devices:
            level = _level(self.source, device)
            self.kernel.module.options["optimization_level"] = level
            warp.load_module(self.kernel.module, warp.device_from_jax(device), block_dim=self.block)

    def __call__(self, n: int, *inputs: Array | np.ndarray) -> list[Array]:
        """The outputs of `n` samples, which are their first axis."""
        source = self.source
        rows = [1 if shared else n for shared in self.shared]
        sizes = [math.prod(shape) for _, shape in source.inputs]
        flat = [jnp.reshape(x, (m, k)) for x, m, k in zip(inputs, rows, sizes, strict=True)]
        shapes = {f"y{k}": (n, math.prod(shape)) for k, (_, shape) in enumerate(source.outputs)}
        shapes["memory"] = _words(source), n
        call = _warp().jax_kernel(
            self.kernel,
            num_outputs=len(shapes),
            vmap_method="sequential",
            module_preload_mode=_warp().JaxModulePreloadMode.NONE,
            block_dim=self.block,
        )
        *found, _ = call(*flat, output_dims=shapes, launch_dims=n * source.lanes)
        return [
            jnp.reshape(x, (n, *shape)) for x, (_, shape) in zip(found, source.outputs, strict=True)
        ]


def _level(source: Source, device: Any) -> int:
    """How far a compiler may optimise."""
    if device.platform == "cpu":
        return 0  # above, a gradient takes minutes to compile, and kernels on CPUs are for tests
    # At the highest level the compiler of GPUs gives up most registers for long programs.
    return 2 if source.lanes == 1 else 3


def _words(source: Source) -> int:
    return max(1, -(-source.scratch // _WORD))


def _stride(source: Source) -> int:
    """Bytes from the shared memory of a group of threads to that of the next: in other banks."""
    words = -(-source.arena // 16) * 4
    while 4 <= source.lanes < 32 and words % 32 not in (source.lanes, 32 - source.lanes):
        words += 4
    return words * 4


@functools.cache
def _warp():
    quiet = "warp" not in sys.modules  # whoever uses Warp already has decided what it prints
    import warp

    if quiet:
        warp.config.log_level = warp.LOG_ERROR
    return warp


@functools.cache
def _compiled(snippet: str, arguments: tuple[tuple[str, str], ...], block: int):
    """The kernel of a snippet, with two-dimensional arrays `(name, dtype)` as arguments."""
    names = ", ".join(name for name, _ in arguments)
    typed = ", ".join(f"{name}: warp.array2d(dtype=warp.{dtype})" for name, dtype in arguments)
    # JAX finds compiled programs on disk by the name of the kernel, so it must tell its content.
    digest = sha256(f"{snippet}{typed}{block}".encode()).hexdigest()[:32]
    text = (
        f"@warp.func_native(snippet)\ndef sample_{digest}(thread: int, {typed}): ...\n\n"
        f"@warp.kernel(enable_backward=False, launch_bounds={block}, grid_stride=False)\n"
        f"def samples_{digest}({typed}):\n    sample_{digest}(warp.tid(), {names})\n"
    )
    module = f"jaxmbd_{digest}"
    known: dict[str, Any] = {"warp": _warp(), "snippet": snippet, "__name__": module}
    # Warp reads the text of a function, as a traceback does.
    file = f"<{module}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), known)
    return known[f"samples_{digest}"]


def _kernel(source: Source, shared: tuple[bool, ...], block: int):
    inputs = [(f"x{k}", np.dtype(dtype).name) for k, (dtype, _) in enumerate(source.inputs)]
    outputs = [(f"y{k}", np.dtype(dtype).name) for k, (dtype, _) in enumerate(source.outputs)]
    arguments = (*inputs, *outputs, ("memory", "uint32"))
    return _compiled(_snippet(source, shared, block), arguments, block)


def _snippet(source: Source, shared: tuple[bool, ...], block: int) -> str:
    """The text of a source behind the names that it expects."""
    lanes, stride = source.lanes, _stride(source)
    lines = [f"const long long sample = thread / {lanes};", "char* scratch = (char*)memory.data;"]
    if lanes == 1:
        lines += ["const long long s = sample, n = memory.shape[1];"]
    else:
        # The lanes of a sample have its scratch memory in one piece.
        lines += [
            "const long long s = 0, n = 1;",
            f"const int lane = thread % {lanes}, lanes = {lanes};",
            f"const unsigned together = {2**lanes - 1}u << threadIdx.x % 32 / {lanes} * {lanes};",
            "auto sync = [=]() { __syncwarp(together); };",
            "auto shuffle = [=](auto x, int k) {",
            "    return (decltype(x))__shfl_xor_sync(together, x, k);",
            "};",
            f"__shared__ __align__(16) char arenas[{max(1, stride * (block // lanes))}];",
            f"char* arena = arenas + threadIdx.x / {lanes} * {stride};",
            f"scratch += sample * {source.scratch};",
        ]
    for k, (dtype, shape) in enumerate(source.inputs):
        at = "" if shared[k] else f" + sample * {math.prod(shape)}"
        t = CTYPE[np.dtype(dtype).name]
        lines.append(f"const {t}* in{k} = (const {t}*)x{k}.data{at};")
    for k, (dtype, shape) in enumerate(source.outputs):
        t = CTYPE[np.dtype(dtype).name]
        lines.append(f"{t}* out{k} = ({t}*)y{k}.data + sample * {math.prod(shape)};")
    return "\n".join([*lines, source.text])
