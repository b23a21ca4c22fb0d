"""Imports of the optional packages, made only when a picture is drawn."""

from types import ModuleType


def pyplot() -> ModuleType:
    """Import `matplotlib.pyplot`. **Raises:** `ImportError` that names the remedy."""
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib. Install it with `pip install jaxmbd[viz]`."
        ) from error
    return matplotlib.pyplot
