"""A bar for loops of Python."""

from typing import Any

import tqdm


class Bar:
    """How far a search is; silent if not `shown`."""

    def __init__(self, label: str, total: int, done: int, shown: bool):
        self._bar: Any = tqdm.tqdm(
            total=total, initial=done, desc=label, unit="it", disable=not shown
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._bar.close()

    def moved(self, text: str) -> None:
        self._bar.update()
        self._bar.set_postfix_str(text)

    def finished(self) -> None:
        """It took fewer than the most."""
        self._bar.total = self._bar.n
        self._bar.refresh()
