"""Values of functions beside their derivatives, in one pass."""

from collections.abc import Callable


def with_value(fn: Callable) -> Callable:
    """fn with its value as auxiliary output too, which its derivative then returns."""

    def both(x):
        value = fn(x)
        return value, value

    return both
