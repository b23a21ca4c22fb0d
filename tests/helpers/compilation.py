"""What JAX and XLA do to compile a program."""

import collections
import contextlib
import itertools
import re
from typing import Any

import jax


def in_the_way(lowered: Any) -> dict[str, int]:
    """What keeps XLA from compiling the loops of a program whole, with how many there are."""
    text = lowered.compile(compiler_options={"xla_disable_hlo_passes": ""}).as_text()  # as users do
    # A custom fusion is a product or a sum that XLA leaves to a library.
    found = re.findall(r" (custom-call|scatter|sort|fft)\(|kind=(kCustom)", text)
    entry = text[text.index("\nENTRY") :]
    loops = re.findall(r" (while)\(", entry[: entry.index("\n}")])
    return dict(collections.Counter(["".join(x) for x in found] + loops))


_uses = itertools.count(1)


@contextlib.contextmanager
def nothing_kept():
    """A context in which nothing counts as traced before, as in a new process, while outside of it
    all that was compiled is kept. JAX keeps programs by its options. This one changes new random
    keys and nothing else."""
    jax.config.update("jax_random_seed_offset", next(_uses))
    try:
        yield
    finally:
        jax.config.update("jax_random_seed_offset", 0)


# The `compiler_options` of what runs longer than it compiles. Everything else is compiled without
# LLVM's optimisation, and runs ten times as long.
OPTIMISED = {"xla_backend_optimization_level": 3}

COMPILING = "/jax/core/compile/"
COMPILED = "backend_compile_duration"


@contextlib.contextmanager
def compilation_events():
    """What JAX does within it to compile, names with counts: tracing, lowering, compiling."""
    events = collections.Counter()

    def count(name, *_, **__):
        if name.startswith(COMPILING):
            events[name.removeprefix(COMPILING)] += 1

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
