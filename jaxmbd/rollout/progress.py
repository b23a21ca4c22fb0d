"""The progress of a run."""

from collections.abc import Callable
from typing import Any

from .._progress import progress_bar

# Called with the number of finished samples and the number of all samples.
Hook = Callable[[int, int], Any]


class Progress:
    """Shows a bar, calls the user's function, or does nothing."""

    def __init__(self, progress: bool | Hook, done: int, total: int):
        self.hook = progress if callable(progress) else None
        self.done, self.total = done, total
        self.bar = progress_bar(total, "rollouts", progress is True, done=done, unit=" samples")

    def advance(self, count: int, failed: int) -> None:
        self.done += count
        self.bar.set_postfix_str(f"{failed} failed" if failed else "", refresh=False)
        self.bar.update(count)
        if self.hook is not None:
            self.hook(self.done, self.total)

    def __enter__(self):
        self.bar.__enter__()
        return self

    def __exit__(self, *exception):
        self.bar.__exit__(*exception)
