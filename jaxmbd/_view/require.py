"""Import of viser, made only when something is viewed."""

from types import ModuleType


def viser() -> ModuleType:
    """Import viser. **Raises:** `ImportError` that names the remedy."""
    try:
        import viser
    except ImportError as error:
        raise ImportError(
            "The viewer needs viser. Install it with `pip install jaxmbd[view]`."
        ) from error
    return viser
