"""The optional packages that pictures need, imported when a picture is made."""

from types import ModuleType


def pyplot() -> ModuleType:
    """**Raises:** `ImportError` that names the remedy."""
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib. Install it with `pip install jaxmbd[viz]`."
        ) from error
    return matplotlib.pyplot
