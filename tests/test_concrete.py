"""Programs that run briefly are compiled quickly, by options that only whole programs may have."""

import jax
import jax.numpy as jnp
import jaxlib.version
import pytest
from helpers import COMPILED, compilation_events

from jaxmbd import _concrete


@pytest.fixture
def options(monkeypatch):
    """`_quick_options`, which afterwards forgets what it found."""
    _concrete._quick_options.cache_clear()
    yield _concrete._quick_options
    monkeypatch.undo()
    _concrete._quick_options.cache_clear()


def test_options_that_xla_knows(options):
    known = jaxlib.version.__version_info__ < (0, 11)
    assert ("xla_cpu_use_fusion_emitters" in options()) == known
    assert options()["xla_backend_optimization_level"] == 0


def test_an_option_that_xla_does_not_know(options, monkeypatch):
    monkeypatch.setattr(_concrete, "_OLDER_KERNELS", {"xla_cpu_no_such_option": False})
    assert options() == {"xla_backend_optimization_level": 0}
    triple = _concrete.compiled_quickly(lambda x: 3 * x)
    assert float(triple(jnp.array(2.0))) == 6.0


def test_traced_calls_are_part_of_the_program_around_them():
    triple = _concrete.compiled_quickly(lambda x: 3 * x)
    around = jax.jit(jax.grad(lambda x: triple(x) ** 2))
    x = jnp.array(2.0)
    with compilation_events() as events:
        assert float(around(x)) == 36.0
    assert events[COMPILED] == 1


def test_concrete_arguments_of_a_part_of_a_program():
    """Only whole programs may have options."""
    triple = _concrete.compiled_quickly(lambda x: 3 * x)
    assert float(jax.jit(lambda x: x * triple(jnp.array(2.0)))(jnp.array(4.0))) == 24.0
