"""What the tests compile: programs and their operations, by test, and the limits on them.

Compilation takes most of the time of the tests. Seconds differ between machines, but the operations
of the programs that JAX hands to XLA do not. A program that two processes ask for counts once, for
the test that asked first. The plugin also names the tests of a run that did not get their turn.
"""

import collections
import hashlib
import itertools
import json
import pathlib
import re
import signal
import sys

import jax._src.compiler as compiler  # its events tell how often JAX compiles, and not what
import pytest

# Limits on the default tests in all. Whoever needs more says why in the commit that raises them.
OPERATIONS = 1_300_000
SINGLE_OPERATIONS = 20  # outside of `jit`; CONTRIBUTING.md tells what to write instead

FEW = 3  # operations of what counts as a single one
DEAREST = 20
ROOT = f"{pathlib.Path(__file__).parents[1]}/"
PROGRAMS = "programs"


def described(module) -> tuple[str, str, int]:
    """Key, name and number of operations of a lowered module. The name of a single operation also
    tells which line of ours asked for it."""
    text = module.operation.get_asm(enable_debug_info=False)
    name = re.search(r"@(\S+)", text)[1].removeprefix("jit_")
    operations = len(re.findall(r"^\s*%", text, re.MULTILINE))
    if operations <= FEW:
        name += f" ({asking()})"
    return hashlib.sha1(text.encode()).hexdigest()[:16], name, operations


def asking() -> str:
    """The innermost line of this project on the stack."""
    frame = sys._getframe(1)
    while frame := frame.f_back:
        file = frame.f_code.co_filename
        if file.startswith(ROOT) and "site-packages" not in file and file != __file__:
            return f"{file.removeprefix(ROOT)}:{frame.f_lineno}"
    return "unknown"


class Recorder:
    """Notes what this process compiles, and hands it out with the reports of the test."""

    def __init__(self):
        self.programs = []
        compile_or_get_cached = compiler.compile_or_get_cached

        def noted(backend, module, *args, **kwargs):
            self.programs.append(described(module))
            return compile_or_get_cached(backend, module, *args, **kwargs)

        compiler.compile_or_get_cached = noted

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        if self.programs:
            item.user_properties.append((PROGRAMS, self.programs))
            self.programs = []
        return (yield)


class Budget:
    """Adds up what all processes compiled. The default tests, run as a whole, are red beyond the
    limits, and so is a run that ended before all of its tests had their turn."""

    def __init__(self, config):
        self.config = config
        self.collected = []
        self.seconds = collections.Counter()
        self.first = {}  # key of a program -> (test, name, operations)

    def pytest_sessionstart(self):
        # `timeout` then ends a run as Ctrl-C does, with a summary.
        signal.signal(signal.SIGTERM, signal.default_int_handler)

    def pytest_collection_finish(self, session):
        self.collected = [item.nodeid for item in session.items]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        self.collected = ids

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        if report.when == "teardown":
            for key, *program in itertools.chain.from_iterable(
                programs for name, programs in report.user_properties if name == PROGRAMS
            ):
                self.first.setdefault(key, (report.nodeid, *program))

    @property
    def operations(self):
        return sum(operations for _, _, operations in self.first.values())

    @property
    def single(self):
        """Programs that hold hardly more than one operation, names with counts."""
        return collections.Counter(name for _, name, count in self.first.values() if count <= FEW)

    @property
    def waiting(self):
        """The tests that did not get their turn."""
        return [test for test in self.collected if test not in self.seconds]

    def faults(self):
        """What is wrong with the run as a whole, in sentences."""
        option = self.config.option
        if waiting := self.waiting:
            yield f"{len(waiting)} of {len(self.collected)} tests did not get their turn:"
            yield from waiting
        if (
            option.markexpr == "not slow"
            and not option.keyword
            and self.config.args_source == pytest.Config.ArgsSource.TESTPATHS
        ):
            remedy = "see the limits in tests/compiled_budget.py"
            if self.operations > OPERATIONS:
                yield f"The tests compiled more than {OPERATIONS:,} operations: {remedy}."
            if self.single.total() > SINGLE_OPERATIONS:
                names = ", ".join(f"{name} {n}" for name, n in self.single.most_common())
                yield f"They compiled more than {SINGLE_OPERATIONS} single operations: {remedy}."
                yield f"They were {names}."

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.OK and any(self.faults()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        write = terminalreporter.write_line
        if path := self.config.getoption("--counts"):
            counts = {"programs": self.first, "seconds": self.seconds}
            pathlib.Path(path).write_text(json.dumps(counts))
        dearest = collections.Counter()
        for test, _, operations in self.first.values():
            dearest[test] += operations
        terminalreporter.section("compiled")
        write(
            f"{len(self.first)} programs of {self.operations:,} operations, "
            f"{self.single.total()} of them single operations"
        )
        for test, operations in dearest.most_common(DEAREST):
            write(f"{operations:9,} {operations / max(self.operations, 1):6.1%} {test}")
        for fault in self.faults():
            write(fault, red=True)
