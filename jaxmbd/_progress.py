"""Bars for loops of Python."""

from typing import Any

import tqdm


def progress_bar(
    total: int, label: str, shown: bool = True, *, done: int = 0, unit: str = "it"
) -> Any:
    """A tqdm bar, silent unless `shown`."""
    scaled = unit != "it"
    return tqdm.tqdm(
        total=total, initial=done, desc=label, unit=unit, unit_scale=scaled, disable=not shown
    )
