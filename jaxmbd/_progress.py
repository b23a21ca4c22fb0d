"""Bars for loops of Python, and what is shown while JAX compiles."""

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import tqdm

_T = TypeVar("_T")

# A thread compiles while it is in one of these modules: JAX itself tells of a compilation only when
# it is over. If a later version has other names, nothing is shown.
_COMPILERS = {
    f"jax._src.{name}" for name in ("compiler", "interpreters.mlir", "interpreters.partial_eval")
}
_LOOK = 0.25  # [s] between two looks
_AT_LEAST = 1.0  # [s] of compilation are worth a word


def progress_bar(
    total: int, label: str, shown: bool = True, *, done: int = 0, unit: str = "it"
) -> Any:
    """A tqdm bar, silent unless `shown`. While JAX compiles it says so, and for how long; its rate
    and the time that is left are without that."""
    scaled = unit != "it"
    return _Bar(
        total=total, initial=done, desc=label, unit=unit, unit_scale=scaled, disable=not shown
    )


def says_when_compiling(label: str) -> Callable[[_T], _T]:
    """A function with an argument `progress`, which so shows that JAX compiles also before there is
    a bar, and after it."""

    def decorated(function):
        @functools.wraps(function)
        def wrapped(*args, progress=True, **kwargs):
            with compiling(label, progress is True):
                return function(*args, progress=progress, **kwargs)

        wrapped.label = label  # pyright: ignore[reportAttributeAccessIssue]
        return wrapped

    return cast(Callable[[_T], _T], decorated)


@contextlib.contextmanager
def compiling(label: str, shown: bool = True) -> Iterator[None]:
    """While JAX compiles in here, and there is no bar, a line that says so."""
    if not shown:
        yield
        return
    line = _Line(label)
    with _watched(line):
        yield


class _Line:
    """There while JAX compiles. No bar of tqdm, below which the next one would be."""

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
    """Looks at a thread, and has the last one of its displays say that it compiles."""

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
            # By identity: two bars are equal if they are on one line.
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
