"""What threads that share a sample do together, told from the text of a program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd._kernels import program_source

LANES = 8


def twice(fn):
    """Arrays that are read again, so that they lie in memory."""
    return lambda x: [*(y := fn(x)), *(2 * z + z for z in y)]


@pytest.mark.parametrize(
    ("n", "fn", "sections", "waits"),
    [
        # Each lane needs only what it has computed itself.
        (20, twice(lambda x: [jnp.sin(x), jnp.cos(x), x * x]), 1, 0),
        (LANES, twice(lambda x: [jnp.sin(x), jnp.cos(x), x * x]), 1, 0),
        # What another lane has computed.
        (20, lambda x: [(y := jnp.sin(x)) + y[::-1]], 2, 1),
        (LANES, lambda x: [(y := jnp.sin(x)) + y[::-1]], 2, 1),
        # Parts of an array that do not overlap, before it is copied.
        (6, lambda x: [jnp.concatenate([x + 1, x * 2, -x])], 2, 1),
        # Overwritten while others still read it.
        (20, lambda x: [jax.lax.fori_loop(0, 3, lambda k, y: jnp.sin(y) + y[::-1], x)], 4, 3),
    ],
)
def test_lanes_wait_where_they_must(n, fn, sections, waits):
    text = program_source(jax.jit(fn).trace(np.ones(n)).jaxpr, lanes=LANES).text
    heads = [line for line in text.splitlines() if "= lane;" in line or "(lane <" in line]
    assert (len(heads), text.count("sync();")) == (sections, waits), text
