"""The suite is red when it compiles too much, and when tests did not get their turn."""

import types

import compiled_budget
import jax
import pytest
from compiled_budget import OPERATIONS, SINGLE_OPERATIONS, Budget, described


def told(programs, *, waiting=0, keyword="", source=pytest.Config.ArgsSource.TESTPATHS):
    """What is said of a run of one test that compiled these programs, (key, name, operations)."""
    option = types.SimpleNamespace(markexpr="not slow", keyword=keyword)
    budget = Budget(types.SimpleNamespace(option=option, args_source=source))
    budget.pytest_xdist_node_collection_finished([str(i) for i in range(1 + waiting)])
    for _ in range(2):  # by two processes
        report = types.SimpleNamespace(
            nodeid="0", duration=1.0, when="teardown", user_properties=[("programs", programs)]
        )
        budget.pytest_runtest_logreport(report)
    return list(budget.faults())


FULL = [("a", "jit_a", OPERATIONS - 5), ("b", "jit_b", 5)]
SINGLE = [(f"key {i}", "jit_add", 1) for i in range(SINGLE_OPERATIONS + 1)]


def test_limits():
    assert told(FULL) == told(SINGLE[1:]) == []
    (operations,) = told([*FULL, ("c", "jit_c", 5)])
    assert "more than" in operations and f"{OPERATIONS:,} operations" in operations
    assert any(f"jit_add {len(SINGLE)}" in line for line in told(SINGLE))


@pytest.mark.parametrize("part", [{"keyword": "x"}, {"source": pytest.Config.ArgsSource.ARGS}])
def test_parts_of_the_suite_have_no_limit(part):
    assert told([("a", "jit_a", OPERATIONS + 1)], **part) == []


def test_tests_without_their_turn_are_named():
    assert told(FULL, waiting=2) == ["2 of 3 tests did not get their turn:", "1", "2"]


def test_programs_of_this_test_are_noted(monkeypatch):
    noted = []
    compile_or_get_cached = compiled_budget.compiler.compile_or_get_cached

    def note(backend, module, *args, **kwargs):
        noted.append(described(module))
        return compile_or_get_cached(backend, module, *args, **kwargs)

    monkeypatch.setattr(compiled_budget.compiler, "compile_or_get_cached", note)

    def noted_program(x):
        return (x + x) * x - x / 2

    jax.jit(noted_program)(3.0)
    ((_, name, operations),) = noted
    assert "noted_program" in name and operations == 5
