"""Progress bars for Python loops, and a message while JAX compiles."""

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import tqdm

from ._compiler import is_traced

_T = TypeVar("_T")

# A thread is compiling while it runs code of one of these modules. JAX itself reports a compilation
# only when it has ended. If a later version renames the modules, no message is shown.
_COMPILERS = {
    f"jax._src.{name}" for name in ("compiler", "interpreters.mlir", "interpreters.partial_eval")
}
_LOOK = 0.25  # [s] between two samples of the thread
_AT_LEAST = 1.0  # [s] of compilation before a message is shown
_LONG = 5.0  # [s] of compilation within a user's own jit before one is shown
_IDLE = 4  # looks without compilation after which it has ended


def progress_bar(
    total: int, label: str, shown: bool = True, *, done: int = 0, unit: str = "it"
) -> Any:
    """A tqdm bar, silent unless `shown`. While JAX compiles, the bar says so and for how long. Its
    rate and the remaining time do not count the compilation."""
    scaled = unit != "it"
    return _Bar(
        total=total, initial=done, desc=label, unit=unit, unit_scale=scaled, disable=not shown
    )


def says_when_compiling(label: str) -> Callable[[_T], _T]:
    """Decorate a function with an argument `progress`, so that it also shows compilations before
    its bar appears and after it has gone. An argument `label` takes the place of the label."""

    def decorated(function):
        @functools.wraps(function)
        def wrapped(*args, progress=True, **kwargs):
            with compiling(kwargs.get("label", label), progress is True):
                return function(*args, progress=progress, **kwargs)

        wrapped.label = label  # pyright: ignore[reportAttributeAccessIssue]
        return wrapped

    return cast(Callable[[_T], _T], decorated)


@contextlib.contextmanager
def compiling(label: str, shown: bool = True) -> Iterator[None]:
    """A context that shows a line while JAX compiles and no bar is there."""
    if not shown:
        yield
        return
    line = _Line(label)
    with _watched(line):
        yield


def says_when_traced(label: str) -> None:
    """Show a line while JAX compiles the program around this call, if that takes long, where JAX
    traces a function of the user, in a terminal. It goes when the thread compiles no more."""
    if is_traced():
        _say(label)


def _say(label: str) -> None:
    thread = threading.get_ident()
    if sys.stderr.isatty() and thread not in _watches and thread not in _announced:
        _announced.add(thread)
        threading.Thread(target=_announce, args=(thread, label), daemon=True).start()


_announced: set[int] = set()


def _announce(thread: int, label: str) -> None:
    line, begin, idle = _Line(label), time.perf_counter(), 0
    try:
        # Between tracing and compilation JAX runs other code for a moment.
        while idle < _IDLE and thread not in _watches:
            time.sleep(_LOOK)
            idle = 0 if _compiles(thread) else idle + 1
            spent = time.perf_counter() - begin
            if not idle and spent >= _LONG:
                line.compiles(f"compiling {spent:.0f} s", 0.0)
    finally:
        line.compiled()
        _announced.discard(thread)


class _Line:
    """A line that is shown while JAX compiles. It is not a tqdm bar, since the next bar would then
    appear below it."""

    def __init__(self, label: str):
        self.label, self.length = label, 0

    def compiles(self, words: str, since: float) -> None:
        del since
        if words:
            self._write(f"{self.label}: {words}")

    def compiled(self) -> None:
        if self.length:
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{text.ljust(self.length)}\r")
        sys.stderr.flush()
        self.length = len(text)


class _Bar(tqdm.tqdm):
    own = ""

    def __enter__(self):
        self.open = contextlib.ExitStack()
        if not self.disable:
            self.open.enter_context(_watched(self))
        return super().__enter__()

    def close(self):
        if hasattr(self, "open"):
            self.open.close()
        super().close()

    def compiles(self, words: str, since: float) -> None:
        now = time.time()
        self.start_t = min(self.start_t + since, now)
        self.last_print_t = min(self.last_print_t + since, now)
        if words:
            self.own = words
            self.set_postfix_str(words)

    def compiled(self) -> None:
        if self.own and self.postfix == self.own:
            self.set_postfix_str("")


# --- whether a thread compiles -------------------------------------------------------------------


class _Watch:
    """Samples a thread, and lets the innermost of its displays say that it compiles."""

    def __init__(self, thread: int):
        self.displays, self.on = [], None
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.watcher = threading.Thread(target=self._run, args=(thread,), daemon=True)
        self.watcher.start()

    def _run(self, thread: int) -> None:
        total, before = 0.0, time.perf_counter()
        while not self.ended.wait(_LOOK):
            now = time.perf_counter()
            with self.lock:
                compiles = self.displays and _compiles(thread)
                self._turn_to(self.displays[-1] if compiles else None)
                if self.on is not None:
                    total += now - before
                    words = f"compiling {total:.0f} s" if total >= _AT_LEAST else ""
                    self.on.compiles(words, now - before)
            before = now

    def _turn_to(self, display: Any) -> None:
        if self.on is not None and self.on is not display:
            self.on.compiled()
        self.on = display

    def remove(self, display: Any) -> None:
        with self.lock:
            # Compared by identity, since tqdm bars are equal if they are on one line.
            self.displays = [x for x in self.displays if x is not display]
            if self.on is display:
                self._turn_to(None)

    def end(self) -> None:
        self.ended.set()
        self.watcher.join()


_watches: dict[int, _Watch] = {}


@contextlib.contextmanager
def _watched(display: Any) -> Iterator[None]:
    thread = threading.get_ident()
    if thread not in _watches:
        _watches[thread] = _Watch(thread)
    watch = _watches[thread]
    watch.displays.append(display)
    try:
        yield
    finally:
        watch.remove(display)
        if not watch.displays:
            _watches.pop(thread).end()


def _compiles(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_globals.get("__name__") in _COMPILERS:
            return True
        frame = frame.f_back
    return False
