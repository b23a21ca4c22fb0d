"""Classes that users subclass. A name that has a meaning in them cannot become something else."""

import functools
import inspect
import re
import sys
from dataclasses import MISSING, Field
from typing import Any

import equinox as eqx

_PROPERTY = property | functools.cached_property


class Extensible(eqx.Module):
    """A module for subclasses of users. In Python a field of a subclass replaces a method of its
    base without a word. Here it is an error when the class is made.

    **Raises:** `TypeError` that names the class, the field, and what the name means.
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        fields = [name for name, hint in _hints(cls).items() if "ClassVar" not in hint]
        for name in dict.fromkeys([*fields, *vars(cls)]):
            base = next((base for base in cls.__mro__[1:] if name in vars(base)), None)
            # A function may also be the default of a field.
            if base and not name.startswith("__") and name not in _hints(base):
                fault = _fault(vars(cls).get(name, MISSING), vars(base)[name], name in fields)
                if fault:
                    raise TypeError(_message(cls, base, name, *fault))


def _fault(new: Any, inherited: Any, is_field: bool) -> tuple[str, str] | None:
    """What replaces a method or a property by something else, and the remedy; `None` if nothing
    does."""
    if isinstance(inherited, _PROPERTY):
        # A value in the class takes the place of the property, for instance `coordinates = ...`.
        if is_field and (new is MISSING or (isinstance(new, Field) and new.default is MISSING)):
            return "field", "Rename the field, or return it from a property of this name"
        if inspect.isfunction(new):
            return "method", "Write `@property` above it, or rename it"
    elif inspect.isroutine(inherited):
        if is_field:
            return "field", "Rename the field"
        if isinstance(new, _PROPERTY):
            return "property", "Rename the property, or write a method"
        if not callable(new) and not hasattr(new, "__get__"):
            return "attribute", "Rename the attribute"
    return None


def _message(cls: type, base: type, name: str, what: str, remedy: str) -> str:
    inherited = vars(base)[name]
    if isinstance(inherited, _PROPERTY):
        kind, call = "property", name
    else:
        parameters = [x for x in inspect.signature(getattr(base, name)).parameters if x != "self"]
        kind, call = "method", f"{name}({', '.join(parameters)})"
    texts = (getattr(vars(each).get(name), "__doc__", None) for each in base.__mro__)
    text = " ".join(next(filter(None, texts), "").split())
    meaning = re.split(r"\.(?:\s+(?=[A-Z`])|$)", text)[0]
    return (
        f"The {what} `{name}` of class `{cls.__name__}` replaces the {kind} `{call}` of "
        f"`{base.__name__}`{f', which means: {meaning}' if meaning else ''}. {remedy}."
    )


def _hints(cls: type) -> dict[str, str]:
    """The annotations of a class itself, in words."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.STRING)
    return {name: str(hint) for name, hint in inspect.get_annotations(cls).items()}
