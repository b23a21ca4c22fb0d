"""Verdicts, by their numbers: comparing batches of them compiles a program."""

from collections.abc import Sequence

import numpy as np

import jaxmbd as mbd
from jaxmbd._results import code


def assert_verdicts(found: mbd.RESULTS, expected: mbd.RESULTS | Sequence[mbd.RESULTS]):
    """`expected`: one for all, or one for each of a batch."""
    expected = list(map(code, expected)) if isinstance(expected, Sequence) else code(expected)
    np.testing.assert_array_equal(code(found), expected)
