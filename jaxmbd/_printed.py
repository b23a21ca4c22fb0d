"""Results that print as sentences.

`print` and `repr` of a result give the same text, as in pandas. So a notebook shows it too."""

import dataclasses
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import ArrayLike

from ._compiler import is_known
from ._results import RESULTS, code, verdict

_Class = TypeVar("_Class", bound=type)

# Indices of failed samples that are listed for each verdict.
_LISTED = 5


def printed(cls: _Class) -> _Class:
    """Class decorator: `str` and `repr` give the sentences of the class's own `__str__`. If numbers
    are traced, as inside `jax.jit`, they give the names and shapes of the fields instead."""
    sentences = vars(cls)["__str__"]

    def text(self) -> str:
        return sentences(self) if is_known(self) else _outline(self)

    cls.__str__ = cls.__repr__ = text  # type: ignore[assignment]
    return cls


def _outline(x: Any) -> str:
    names = getattr(x, "_fields", None) or [field.name for field in dataclasses.fields(x)]
    parts = []
    for name in names:
        leaves = [leaf for leaf in jax.tree.leaves(getattr(x, name)) if hasattr(leaf, "shape")]
        if leaves:
            parts.append(f"{name} {', '.join(str(leaf.shape) for leaf in leaves[:3])}")
    return f"{type(x).__name__} of traced numbers with the shapes: {'; '.join(parts)}"


def judged(result: Any, good: str, bad: str) -> str:
    """`good`, or `bad` and why. For a batch of verdicts: how many are good, and why others are
    not."""
    codes = np.asarray(code(result))
    if codes.ndim == 0:
        if codes == code(RESULTS.successful):
            return good
        return f"{bad}: {RESULTS[verdict(codes)]}"
    failed = codes != code(RESULTS.successful)
    lines = [f"{failed.size - failed.sum()} of {failed.size} successful: {good}"]
    if failed.all():
        lines = [f"0 of {failed.size} successful"]
    flat = np.ravel(codes)
    return "\n".join([*lines, *failures(np.nonzero(np.ravel(failed))[0], flat[np.ravel(failed)])])


def failures(index: np.ndarray, codes: np.ndarray) -> list[str]:
    """For each verdict: how many samples have it, which, and its message."""
    lines = []
    for kind in np.unique(codes):
        which = index[codes == kind]
        some = ", ".join(map(str, which[:_LISTED])) + (", ..." if which.size > _LISTED else "")
        lines.append(f"{which.size} ({some}): {RESULTS[verdict(kind)]}")
    return lines


def in_a_line(x: ArrayLike) -> str:
    """An array in one line, or its shape and range if it is long."""
    array = np.asarray(x)
    if array.ndim == 0:
        return f"{array.item():.6g}" if array.dtype.kind in "iufc" else str(array)
    if array.ndim > 1 or array.size > 12:
        return f"{array.shape}, {span(array)}"
    return np.array2string(array, precision=6, separator=", ", max_line_width=10**6)


def span(x: ArrayLike, unit: str = "") -> str:
    """From the smallest to the largest number."""
    array = np.asarray(x)
    if not array.size:
        return "no numbers"
    low, high = np.min(array), np.max(array)
    text = f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
    return f"{text} {unit}".rstrip()


def largest(x: ArrayLike) -> float:
    """The largest size; 0 for no numbers."""
    return float(np.max(np.abs(np.asarray(x)), initial=0.0))


def counted(number: int, noun: str) -> str:
    """The number with the noun in singular or plural."""
    return f"{number} {noun}" if abs(number) == 1 else f"{number} {noun}s"


def entries(words: str, *trees: Any) -> list[str]:
    """A line for each leaf of trees of one structure, with its place and its numbers in `words`,
    such as "mean {}, deviation {}"."""
    lines = []
    for (path, first), *others in zip(
        jax.tree_util.tree_leaves_with_path(trees[0]), *map(jax.tree.leaves, trees[1:]), strict=True
    ):
        place = jax.tree_util.keystr(path)
        text = words.format(*map(in_a_line, (first, *others)))
        lines.append(f"  {place}: {text}" if place else f"  {text}")
    return lines
