import gc
import os
import pathlib
import sys

import jaxlib.version

# Compilation dominates the tests: without LLVM's optimisation it takes half the time, and with
# XLA's older generator of kernels a third less again. The workers fill all cores, so splitting a
# program to compile it in parallel costs time. What XLA does to shorten the rounds of loops takes a
# quarter of its time. The arithmetic is the same up to rounding.
# Set before JAX starts; a flag that a later version does not know would end the process.
FLAGS = [
    "--xla_backend_optimization_level=0",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_disable_hlo_passes=while-loop-invariant-code-motion,while-loop-constant-sinking,"
    "simplify-while-loops",
]
if jaxlib.version.__version_info__ < (0, 11):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS])

import compiled_budget  # noqa: E402
import jax  # noqa: E402
import jax.random as jr  # noqa: E402
import pytest  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

jax.config.update("jax_enable_x64", True)
# Strict promotion lets hidden casts and broadcasts surface.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Without the lines of Python that each operation comes from, compilation takes a tenth less.
jax.config.update("jax_traceback_in_locations_limit", 0)


# Tracing makes objects by the million, few of which are garbage. Looked through after every 700, as
# is Python's default, they took a tenth of the time.
gc.set_threshold(50_000, 20, 100)


def pytest_addoption(parser):
    parser.addoption(
        "--shapes", action="store_true", help="check shapes and dtypes of all annotated signatures"
    )
    parser.addoption("--counts", metavar="FILE", help="write what each test compiled to FILE")


def pytest_configure(config):
    config.pluginmanager.register(compiled_budget.Recorder())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(compiled_budget.Budget(config))
    # Without it the tests see what users see, the package's own messages above all.
    if config.getoption("--shapes"):
        if "jaxmbd" in sys.modules:
            raise pytest.UsageError(
                "--shapes checks nothing, since jaxmbd is imported already: a conftest.py below "
                "`tests/` must import it within its fixtures."
            )
        install_import_hook("jaxmbd", "beartype.beartype")


def pytest_collection_finish(session):
    # What was compiled is kept for the other worker and for the next run. A process that hands out
    # the tests collects none and compiles nothing.
    import jaxmbd

    if hasattr(session.config, "cache"):  # unless pytest's plugin for it is switched off
        jaxmbd.compilation_cache(session.config.cache.mkdir("compiled"))
    gc.freeze()  # what stays to the end


@pytest.fixture(autouse=True, scope="module")
def forget_compiled():
    """What modules have compiled is kept for those after them, up to a limit: a program holds about
    five memory maps, of which Linux gives a process 65530."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def getkey():
    """A function that gives a new random key at each call, the same ones in every run."""
    keys = iter(jr.split(jr.key(2026), 1000))
    return lambda: next(keys)


@pytest.fixture(scope="session")
def shared():
    """The folder of reference solutions and measurements beside the checkout."""
    folder = pathlib.Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder of reference data, `shared`, beside the checkout")
    return folder
