"""What importing jaxmbd sets for the process: loops that are compiled whole, and full precision.

**Loops.** XLA and LLVM get options with which they compile the loops of simulations as one
function.

On a CPU, XLA's runtime dispatches each kernel in the body of a loop separately. For a small system
the dispatch takes longer than the arithmetic. XLA compiles a loop, with all loops inside it, as one
function ("whole") if it accesses less than a given number of bytes and holds no library call,
scatter, sort or FFT. This limit is an option of the process. XLA reads it when JAX creates its
backend. By default it is 1 kB before JAX 0.12, and then no smaller than what this module sets.

Within such a function LLVM writes out short loops before it forms vector instructions. Loops over
the joints around loops over the samples of a batch then become long pieces of scalar code. With a
lower limit for this, batches run 1.2 times as fast and compile in half the time, and single
simulations gain a few percent. GPU programs are compiled by LLVM too and need their loops written
out, so the limit is lowered only where JAX has no other devices than CPUs.

Such a function holds hundreds of loops. Each time LLVM writes one of them out, it walks through all
of them to drop what it knows about the indices. Dropping everything at once leaves the same machine
code, and the gradient of a box on a floor compiles in 0.85 of the time.

**Precision.** On GPUs with matrix units JAX multiplies float32 matrices in TensorFloat-32 by
default, with errors of 3e-4. Mass matrices and constraints do not stand that. The option is one of
the process: the derivatives of a simulation are traced where its user differentiates, so a setting
for the duration of a call would miss their products.
"""

import importlib.util
import os
import warnings

import jax

_FLAG = "--xla_backend_extra_options="
_OPTION = "xla_cpu_small_while_loop_byte_threshold"

# Gradients of small batches access a few MB. Loops over larger arrays gain nothing, and they would
# run on one core only.
BYTES = 10_000_000

_SMALL_BY_DEFAULT = jax.__version_info__ < (0, 12)

# LLVM's own limit is 300 instructions.
_UNROLLING = "-unroll-threshold=80"
_FORGETTING = "-forget-scev-loop-unroll"


def with_whole_loops(flags: str, cpus_only: bool) -> str:
    """`flags`, a value of `XLA_FLAGS`, with the options added; that of short loops if `cpus_only`.
    If the limit of bytes is already set, `flags` is returned unchanged."""
    if _OPTION in flags:
        return flags
    options = f"{_OPTION}={BYTES},{_FORGETTING}"
    if cpus_only and "unroll-threshold" not in flags:
        options += f",{_UNROLLING}"
    parts = flags.split()
    for i, part in enumerate(parts):
        if part.startswith(_FLAG):
            parts[i] = f"{part},{options}"
            return " ".join(parts)
    return " ".join([*parts, _FLAG + options])


def request_whole_loops() -> None:
    """Set the options for this process, or warn once if it is too late."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _OPTION in flags:
        return
    if not _backend_exists():
        os.environ["XLA_FLAGS"] = with_whole_loops(flags, _cpus_only())
    elif _SMALL_BY_DEFAULT and jax.default_backend() == "cpu":
        warnings.warn(
            "JAX was used before jaxmbd was imported, so simulations on the CPU are compiled in "
            "pieces, and steps of small systems take several times as long. Import jaxmbd first, "
            f"or set XLA_FLAGS={with_whole_loops('', _cpus_only())} before Python starts.",
            stacklevel=2,
        )


def _cpus_only() -> bool:
    """Whether JAX can use nothing but CPUs: no plugin for other devices is installed, or the user
    has chosen CPUs."""
    plugins = map(importlib.util.find_spec, ("jax_plugins", "libtpu"))
    return jax.config.jax_platforms == "cpu" or not any(plugins)  # type: ignore[attr-defined]


def _backend_exists() -> bool:
    # JAX has no public function for this that does not create a backend. A version without this one
    # gets the options, without the warning if they come too late.
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return False
    return backends_are_initialized()


def request_full_precision() -> None:
    """Set the option for this process, unless the user has set it."""
    if jax.config.jax_default_matmul_precision is None:  # type: ignore[attr-defined]
        jax.config.update("jax_default_matmul_precision", "highest")


request_whole_loops()
request_full_precision()
