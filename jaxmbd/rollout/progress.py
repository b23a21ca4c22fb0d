"""How far a run has come."""

from collections.abc import Callable
from typing import Any

# Called with the number of samples that are done, and that there are.
Hook = Callable[[int, int], Any]


class Progress:
    """A bar, a function of the user's, or nothing."""

    def __init__(self, progress: bool | Hook, done: int, total: int):
        self.hook = progress if callable(progress) else None
        self.done, self.total = done, total
        self.bar = _bar(done, total) if progress is True else None

    def advance(self, count: int, failed: int) -> None:
        self.done += count
        if self.bar is not None:
            self.bar.set_postfix_str(f"{failed} failed" if failed else "", refresh=False)
            self.bar.update(count)
        if self.hook is not None:
            self.hook(self.done, self.total)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.bar is not None:
            self.bar.close()


def _bar(done: int, total: int):
    try:
        import tqdm
    except ImportError as error:
        raise ImportError(
            'The progress bar needs the package tqdm: `pip install "jaxmbd[rollout]"`, or pass '
            "`progress=False`."
        ) from error
    return tqdm.tqdm(total=total, initial=done, desc="rollouts", unit=" samples", unit_scale=True)
