"""Which cases of a parametrised test are slow."""

import pytest


def slow_unless(quick, items):
    """Cases of a parametrised test, those for which `quick` is false with the slow tests."""

    def marked(item):
        values = item if isinstance(item, tuple) else (item,)
        return item if quick(*values) else pytest.param(*values, marks=pytest.mark.slow)

    return [marked(item) for item in items]
