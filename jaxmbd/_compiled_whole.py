"""The XLA option with which the loops of simulations are compiled as one function.

On a CPU, XLA's runtime dispatches each kernel in the body of a loop separately. For a small system
the dispatch takes longer than the arithmetic. XLA compiles a loop, with all loops inside it, as one
function ("whole") if it accesses less than a given number of bytes and holds no library call,
scatter, sort or FFT. This limit is an option of the process. XLA reads it when JAX creates its
backend. By default it is 1 kB before JAX 0.12. Since then it is larger than this module would set.
"""

import os
import warnings

import jax

_FLAG = "--xla_backend_extra_options="
_OPTION = "xla_cpu_small_while_loop_byte_threshold"

# Gradients of small batches access a few MB. Loops over larger arrays gain nothing, and they would
# run on one core only.
BYTES = 10_000_000

_SMALL_BY_DEFAULT = jax.__version_info__ < (0, 12)


def with_whole_loops(flags: str) -> str:
    """`flags`, a value of `XLA_FLAGS`, with the option added. If the option is already set, `flags`
    is returned unchanged."""
    if _OPTION in flags:
        return flags
    option = f"{_OPTION}={BYTES}"
    parts = flags.split()
    for i, part in enumerate(parts):
        if part.startswith(_FLAG):
            parts[i] = f"{part},{option}"
            return " ".join(parts)
    return " ".join([*parts, _FLAG + option])


def request_whole_loops() -> None:
    """Set the option for this process where the default is small, or warn once if it is too
    late."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _OPTION in flags or not _SMALL_BY_DEFAULT:
        return
    if not _backend_exists():
        os.environ["XLA_FLAGS"] = with_whole_loops(flags)
    elif jax.default_backend() == "cpu":
        warnings.warn(
            "JAX was used before jaxmbd was imported, so simulations on the CPU are compiled in "
            "pieces, and steps of small systems take several times as long. Import jaxmbd first, "
            f"or set XLA_FLAGS={_FLAG}{_OPTION}={BYTES} before Python starts.",
            stacklevel=2,
        )


def _backend_exists() -> bool:
    # JAX has no public function for this that does not create a backend.
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()


request_whole_loops()
