"""What the tests have compiled: programs and their instructions, by test, and the limits on them.

Compilation takes most of the time of the tests, and seconds differ between machines. The operations
of the programs that JAX hands to XLA are the same on all. A program that two workers ask for counts
once, for the test that asked first.
"""

import collections
import hashlib
import json
import pathlib
import re

import jax._src.compiler as compiler  # JAX tells how often it compiles, and not what
import pytest

# The default tests in all: operations, and programs of hardly any operation, which are single
# operations outside of `jit` (CONTRIBUTING.md).
OPERATIONS = 10_000_000
SINGLE_OPERATIONS = 20
PROGRAMS = "programs"


def described(module) -> tuple[str, str, int]:
    """Key, name and number of operations of a lowered module."""
    text = module.operation.get_asm(enable_debug_info=False)
    name = re.search(r"@(\S+)", text)[1]
    return hashlib.sha1(text.encode()).hexdigest()[:16], name, text.count(" = ")


class Recorder:
    """Notes what this process compiles, and hands it out with the report of the test."""

    def __init__(self):
        self.programs = []
        ask = compiler.compile_or_get_cached

        def noted(backend, computation, *args, **kwargs):
            self.programs.append(described(computation))
            return ask(backend, computation, *args, **kwargs)

        compiler.compile_or_get_cached = noted

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        if self.programs:
            item.user_properties.append((PROGRAMS, self.programs))
            self.programs = []
        return (yield)


class Budget:
    """Adds up what all processes have compiled, and ends the default tests in red if it exceeds a
    limit."""

    def __init__(self, config):
        self.config = config
        self.first = {}  # key of a program -> (test, name, operations)
        self.seconds = collections.Counter()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        if report.when == "teardown":
            for name, programs in report.user_properties:
                if name == PROGRAMS:
                    for key, program, operations in programs:
                        self.first.setdefault(key, (report.nodeid, program, operations))

    def pytest_terminal_summary(self):
        if path := self.config.getoption("--counts"):
            pathlib.Path(path).write_text(
                json.dumps({"programs": self.first, "seconds": self.seconds})
            )
