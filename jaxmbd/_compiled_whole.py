"""The option by which XLA compiles the loops of simulations whole.

On a CPU XLA's runtime dispatches each kernel of a loop's body by itself, which takes longer than
the arithmetic of a small system. A loop that accesses few bytes, 1 kB by default, and holds no
library call, scatter, sort or FFT becomes one function instead, with the loops inside it. How many
bytes are few is an option of the process, which XLA reads when JAX first makes its backend.
"""

import os
import warnings

import jax

_FLAG = "--xla_backend_extra_options="
_OPTION = "xla_cpu_small_while_loop_byte_threshold"

# Gradients of small batches access some MB. Loops over larger arrays gain nothing, and would lose
# the other cores.
BYTES = 10_000_000


def with_whole_loops(flags: str) -> str:
    """The value of `XLA_FLAGS` with the option, merged with what stands there; as it is if the
    option is there already."""
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
    """Set the option for this process, or warn once if it is too late."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _OPTION in flags:
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
    # JAX has no public way to ask without making one.
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()


request_whole_loops()
