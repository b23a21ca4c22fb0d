"""Choices, cases and checks that several tests share."""

import diffrax
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._results import code


def midpoint():
    """Two stages, the cheapest scheme to compile that has more than one."""
    return diffrax.Midpoint(scan_kind="bounded")


def located(count):
    """When impacts act: located within a step, up to so many, or at its start for none."""
    return mbd.Located(count) if count else mbd.contacts.AtStepStart()


def slow_unless(quick, items):
    """Cases of a parametrised test, those for which `quick` is false with the slow tests."""

    def marked(item):
        values = item if isinstance(item, tuple) else (item,)
        return item if quick(*values) else pytest.param(*values, marks=pytest.mark.slow)

    return [marked(item) for item in items]


def assert_verdicts(found, expected):
    """`expected`: one for all, or one for each of a batch. By their numbers: comparing batches of
    verdicts compiles a program."""
    expected = code(expected) if isinstance(expected, mbd.RESULTS) else list(map(code, expected))
    np.testing.assert_array_equal(code(found), expected)
