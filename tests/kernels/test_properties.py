"""Programs at random against XLA: many operations on all kinds of shapes, types and special numbers
in each, in all forms of kernels."""

import random

import jax
import numpy as np
import pytest
from compiled import compiled, needs_compiler
from drawn import Number
from drawn_operations import Program, inputs
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jaxmbd._kernels import program_source

FORMS = {
    "variables": dict(small=1000, unrolled=100),
    "memory": dict(small=1),
    "both": dict(small=8, unrolled=40),
    "lanes": dict(small=4, lanes=4),
}
SAMPLES = 4

PHASES = [Phase.generate, Phase.shrink]
FIXED = dict(derandomize=True, database=None, deadline=None, phases=PHASES)
seeds = st.integers(0, 2**32 - 1)


def assert_same(name: str, result: Number, found: np.ndarray, known: np.ndarray) -> None:
    assert found.dtype == known.dtype and found.shape == known.shape, name
    close = result.rounded or 0
    np.testing.assert_allclose(found, known, rtol=close, atol=close * 1e-3, err_msg=name)
    if result.signed and result.rounded is None and found.dtype.kind == "f":
        signs = (np.signbit(x[known == known]) for x in (found, known))
        np.testing.assert_array_equal(*signs, err_msg=f"signs of {name}")


def check(seed: int, length: int, forms) -> None:
    """A shorter program of the same seed is the beginning of a longer one."""
    choices = random.Random(seed)
    arrays = inputs(choices, SAMPLES)
    program = Program(choices, length)
    traced = jax.jit(program).trace(*(x[0] for x in arrays))
    run = traced.lower().compile()
    each = [run(*(x[k] for x in arrays)) for k in range(SAMPLES)]
    known = [np.stack(list(map(np.asarray, xs))) for xs in zip(*each)]
    for form in forms:
        found = compiled(program_source(traced.jaxpr, **FORMS[form]))(*arrays)
        for name, result, a, b in zip(program.names, program.results, found, known):
            assert_same(f"{form}: {name}", result, a, b)


@needs_compiler
@settings(max_examples=3, **FIXED)
@given(seeds, st.integers(8, 24), st.sampled_from(list(FORMS)))
def test_a_few_programs(seed, length, form):
    check(seed, length, [form])


@needs_compiler
@pytest.mark.slow
@settings(max_examples=30, **FIXED)
@given(seeds, st.integers(4, 60))
def test_many_programs(seed, length):
    check(seed, length, FORMS)
