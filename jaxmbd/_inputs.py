"""Checks of arguments: bad input raises an error of one line with the argument, the value and the
remedy.

The annotations of a signature say what its arguments must be. The decorator `checked` of a function
or a class enforces them:

    @checked
    class Relaxation(AbstractStabilisation):
        tau: Annotated[Float[Array, "..."], positive]

    @checked
    def evaluate(system: AbstractSystem, control: Control | None, t: RealScalarLike, ...): ...

`int` is a whole number and `float` a number; both must be known when tracing. `Float[Array, "3"]`
is anything that can be converted to such an array, and it is converted. A class stands for its
instances, `Callable` for functions, `Literal` for a choice, `**frames: Unpack[Frames]` for the
arguments that the `TypedDict` `Frames` lists. Numbers must be finite unless a `Range`
beside the type says otherwise. Of a traced number only the shape can be checked when tracing. If
the constructor gives a range for it, `simulate` checks the range at run time and returns a verdict.

A check takes about a microsecond and adds nothing to what is traced.
"""

import collections.abc
import difflib
import functools
import inspect
import math
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray, Array

from ._compiler import held, is_concrete, is_known, to_jax
from ._types import Convertible, DType

_T = TypeVar("_T")
_Check = Callable[[Any], Any]


class Refusal(Exception):
    """An argument is invalid. The message is the end of a sentence about the argument: what it must
    be, and what it is. A function that returns its value or raises a `Refusal` is a check too, as
    in `Annotated[Pose, frame]`."""


# --- numbers -------------------------------------------------------------------------------------


class Range(NamedTuple):
    """The range of allowed numbers, in words and as a predicate on arrays of NumPy or JAX.

    In an annotation such as `Annotated[float, positive]` it tells `checked` which numbers to
    accept. Called, it converts a value to an array of such numbers.
    """

    words: str
    holds: Callable[[Any], Any]

    def __call__(
        self,
        what: str,
        value: Any,
        dtype: DType | None = None,
        shape: tuple[int | str, ...] | None = (),
    ) -> Array:
        """`value` as an array of this shape. `None` allows any shape, and a size that is text
        stands for any size.

        **Raises:** `ValueError` for other values. The message names the argument by `what`, as in
        '`length` of Distance "rod"'."""
        axes = None if shape is None else tuple(map(str, shape))
        try:
            return _Numbers(axes, self, converts=True)(value, dtype)
        except Refusal as refusal:
            raise ValueError(f"Argument {what} {refusal}") from None


unjudged = Range("any number, NaN as well", lambda x: (x == x) | (x != x))
number = Range("a number", lambda x: x == x)
finite = Range("finite", lambda x: abs(x) < math.inf)
positive = Range("positive and finite", lambda x: (x > 0) & (x < math.inf))
positive_or_infinite = Range("positive", lambda x: x > 0)
not_negative = Range("finite and not negative", lambda x: (x >= 0) & (x < math.inf))
not_negative_or_infinite = Range("not negative", lambda x: x >= 0)
not_zero = Range("finite and not 0", lambda x: (x != 0) & (abs(x) < math.inf))


def at_least(least: float | int) -> Range:
    """x >= `least`, finite."""
    return Range(f"at least {least}", lambda x: (x >= least) & (x < math.inf))


def within(low: float | int, high: float | int) -> Range:
    """`low` <= x <= `high`."""
    return Range(f"in [{low:g}, {high:g}]", lambda x: (x >= low) & (x <= high))


def inside(low: float | int, high: float | int) -> Range:
    """`low` < x < `high`."""
    return Range(f"between {low:g} and {high:g}", lambda x: (x > low) & (x < high))


class Shape(tuple):
    """The shape of an array in an annotation, as in `Annotated[Numbers, Shape(["n", 3])]`. A size
    that is text stands for any size."""


# What can be converted to an array of numbers. A range or another shape may be added, as in
# `Annotated[Numbers, Shape(["n", 3]), positive]`.
Numbers: TypeAlias = Annotated[Convertible, Shape(["..."])]
Vector: TypeAlias = Annotated[Convertible, Shape([3])]
Number: TypeAlias = Annotated[float | int | Array | np.ndarray | np.number, Shape()]


class _Numbers(NamedTuple):
    """The check of real numbers in a range. The shape is given as the axes of jaxtyping, or `None`
    for any shape. If it `converts`, it returns an array."""

    axes: tuple[str, ...] | None
    range: Range
    converts: bool
    floating: bool = True

    def __call__(self, value: Any, dtype: DType | None = None) -> Any:
        scalar = type(value) is float and self.axes in (None, ())
        if scalar and not self.converts and self.range.holds(value):
            return value  # the most frequent case, on a fast path
        array: Any = value
        if not isinstance(value, jax.Array):
            try:
                # NumPy cannot convert lists with traced numbers.
                array = np.asarray(value) if is_known(value) else jnp.asarray(value)
                array = jnp.asarray(value) if array.dtype == object else array
            except (TypeError, ValueError, OverflowError):
                self._refuse(value)
        real = array.dtype.kind in "fiu" or jnp.issubdtype(array.dtype, jnp.floating)
        if not real and (self.floating or array.dtype.kind not in "bc"):
            self._refuse(value)
        if self.axes is not None and not _fits(array.shape, self.axes):
            shape = ", ".join(self.axes) + "," * (len(self.axes) == 1)
            raise Refusal(f"must have shape ({shape}), but has {array.shape}.")
        if is_concrete(array) and self.floating:
            known = np.asarray(array)
            if not np.all(self.range.holds(known)):
                raise Refusal(f"must be {self.range.words}, but is {shown(known)}.")
        if not self.converts:
            return value
        if dtype is None and self.floating and not jnp.issubdtype(array.dtype, jnp.floating):
            dtype = float
        if isinstance(array, np.ndarray) and (array.ndim or dtype is not None):
            # NumPy converts, and JAX is given the dtype. Otherwise JAX would compile programs for
            # the conversion.
            dtype = jnp.result_type(array if dtype is None else dtype)
            return jnp.asarray(array.astype(dtype), dtype)
        return held(value) if dtype is None else to_jax(value, dtype)

    def _refuse(self, value):
        what = "a number" if self.axes == () else "numbers"
        raise Refusal(f"must be {what}, but is {shown(value)}.")


def _fits(shape: tuple[int, ...], axes: tuple[str, ...]) -> bool:
    many = [i for i, axis in enumerate(axes) if axis.startswith(("*", "..."))]
    if many:
        before, after = axes[: many[0]], axes[many[0] + 1 :]
        if len(shape) < len(before) + len(after):
            return False
        shape = shape[: len(before)] + shape[len(shape) - len(after) :]
        axes = before + after
    return len(shape) == len(axes) and all(
        not axis.isdigit() or int(axis) == size for size, axis in zip(shape, axes, strict=True)
    )


def _whole(range: Range | None, value: Any) -> int:
    demand = "a whole number" + (f", {range.words}" if range is not None else "")
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        whole = operator.index(value)
    except TypeError:
        known = "" if is_concrete(value) else " known when tracing"
        raise Refusal(f"must be {demand}{known}, but is {shown(value)}.") from None
    if range is not None and not range.holds(whole):
        raise Refusal(f"must be {demand}, but is {whole}.")
    return whole


def _known(range: Range, value: Any) -> float:
    if not is_concrete(value):
        raise Refusal(f"must be a number known when tracing, but is {shown(value)}.")
    return float(_Numbers((), range, converts=False)(value))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise Refusal(f"must be `True` or `False`, but is {shown(value)}.")
    return bool(value)


def each_number(range: Range) -> Callable[[Any], Any]:
    """A check of all leaves of a pytree, as in `Annotated[PyTree, each_number(positive)]`."""
    check = _Numbers(None, range, converts=False)

    def each(value: Any) -> Any:
        for leaf in jax.tree.leaves(value):
            check(leaf)
        return value

    return each


def random_key(value: Any) -> Any:
    """The check of one random key, as made by `jax.random.key`. A key of the old style, an array of
    two numbers, is converted."""
    dtype = getattr(value, "dtype", None)
    if isinstance(value, jax.Array | np.ndarray) and dtype is not None:
        if jnp.issubdtype(dtype, jax.dtypes.prng_key) and value.shape == ():
            return value
        if dtype == jnp.uint32 and value.shape == (2,):
            return jax.random.wrap_key_data(jnp.asarray(value))
    raise Refusal(f"must be one random key, e.g. `jax.random.key(0)`, but is {shown(value)}.")


# --- objects -------------------------------------------------------------------------------------

# The names of Python's own types in messages.
_PLAIN: dict[type, str] = {str: "text", collections.abc.Mapping: "a mapping, such as a `dict`"}


def _instance(kinds: tuple[type, ...], value: Any) -> Any:
    if isinstance(value, kinds):
        return value
    names = " or ".join(_PLAIN.get(kind) or f"a `{_name(kind)}`" for kind in kinds)
    if isinstance(value, type) and issubclass(value, kinds):
        raise Refusal(
            f"must be {names}, but is the class `{value.__name__}`: make one, "
            f"`{_name(value)}(...)`."
        )
    members = [f"`{_name(member)}`" for kind in kinds for member in _plainest_first(kind)]
    such_as = f", such as {', '.join(members[:3])}" if members else ""
    raise Refusal(f"must be {names}{such_as}, but is {shown(value)}.")


def _optional(check: _Check, value: Any) -> Any:
    return None if value is None else check(value)


def _either(checks: list[_Check], words: str, value: Any) -> Any:
    for check in checks:
        try:
            return check(value)
        except Refusal:
            continue
    raise Refusal(f"must be {words}, but is {shown(value)}.")


def _further(check: _Check | None, own: _Check, value: Any) -> Any:
    return own(value if check is None else check(value))


def _function(value: Any) -> Any:
    if not callable(value):
        raise Refusal(f"must be a function, but is {shown(value)}.")
    return value


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, str | int) or value not in choices:
        names = [f'"{choice}"' for choice in choices]
        raise Refusal(f"must be {', '.join(names[:-1])} or {names[-1]}, but is {shown(value)}.")
    return value


def _each(check: _Check | None, value: Any) -> tuple[Any, ...]:
    try:
        if isinstance(value, str | bytes | collections.abc.Mapping | set | frozenset):
            raise TypeError
        members = list(value)
    except TypeError:  # that of arrays without axes, too
        raise Refusal(f"must be a sequence, but is {shown(value)}.") from None
    for i, member in enumerate(members if check is not None else ()):
        try:
            members[i] = check(member)  # pyright: ignore[reportOptionalCall]
        except Refusal as refusal:
            raise Refusal(f"has an entry, number {i}, that {refusal}") from None
    return tuple(members)


def _members(kind: type) -> Iterator[type]:
    """The concrete subclasses of an abstract class, as far as its own package defines them; none
    for a concrete class."""
    if "Abstract" not in kind.__name__:
        return
    package = kind.__module__.split(".")[0]
    for member in kind.__subclasses__() if package not in ("builtins", "collections") else ():
        own = member.__module__.split(".")[0] == package
        if own and not member.__name__.startswith(("_", "Abstract")):
            yield member
        yield from _members(member)


def _plainest_first(kind: type) -> list[type]:
    """The members, with `Contact` as the first one of `AbstractContact`."""
    plain = kind.__name__.removeprefix("Abstract")
    return sorted(_members(kind), key=lambda member: member.__name__ != plain)


def _name(kind: type) -> str:
    package = kind.__module__.split(".")[0]
    if package == "builtins":
        return kind.__name__
    short = "mbd" if package == __name__.split(".")[0] else package
    part = ".".join(kind.__module__.split(".")[:2])
    for module in (package, part):  # by `vars`, since `getattr` of a module may raise warnings
        if kind.__name__ in vars(sys.modules.get(module, object)):
            return f"{short}{module.removeprefix(package)}.{kind.__name__}"
    return kind.__name__


def shown(value: Any) -> str:
    """A value as text for an error message: one short line."""
    if not is_concrete(value):
        return f"a traced {value.dtype}[{','.join(map(str, value.shape))}]"
    try:
        array = isinstance(value, np.ndarray | np.generic | jax.Array)
        if array and np.size(value) < 20 and not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = np.asarray(value).tolist()
        text = " ".join(repr(value).split())
    except Exception:  # an object without a working `repr` is named by its type
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


# --- what an annotation asks for -----------------------------------------------------------------


def _check_of(annotation: Any, range: Range | None = None, shape: Any = None) -> _Check | None:
    """The check that an annotation asks for; `None` if there is nothing to check."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        for extra in annotation.__metadata__:
            range = extra if isinstance(extra, Range) else range
            shape = extra if isinstance(extra, Shape) else shape
        check = _check_of(arguments[0], range, shape)
        own = [x for x in annotation.__metadata__ if not isinstance(x, Range | Shape)]
        return functools.partial(_further, check, *own) if own else check
    if origin in (typing.Union, types.UnionType):
        if types.NoneType in arguments:
            rest = tuple(x for x in arguments if x is not types.NoneType)
            check = _check_of(typing.Union[rest], range, shape)  # noqa: UP007
            return check and functools.partial(_optional, check)
        if all(map(_is_numeric, arguments)):
            axes = [tuple(x.dim_str.split()) for x in arguments if _is_array_type(x)]
            axes = axes if shape is None else [tuple(map(str, shape))]
            return _Numbers(axes[0] if axes else None, range or finite, converts=False)
        if all(isinstance(x, type) and not _is_numeric(x) for x in arguments):
            return functools.partial(_instance, arguments)
        checks = [check for check in map(_check_of, arguments) if check is not None]
        if len(checks) < len(arguments) or np.ndarray in arguments:
            return None  # arrays or other objects: the function checks them itself
        words = " or ".join(dict.fromkeys(map(_words, arguments)))
        return functools.partial(_either, checks, words)
    if annotation is Any:
        if range is None and shape is None:
            return None
        axes = None if shape is None else tuple(map(str, shape))
        return _Numbers(axes, range or finite, converts=False)
    if _is_array_type(annotation):
        floating = any("float" in str(dtype) for dtype in annotation.dtypes)
        axes = tuple(annotation.dim_str.split())
        return _Numbers(axes, range or finite, converts=True, floating=floating)
    if annotation is bool:
        return _truth
    if annotation is int:
        return functools.partial(_whole, range)
    if annotation is float:
        return functools.partial(_known, range or finite)
    if origin is Literal:
        return functools.partial(_choice, arguments)
    if annotation is Callable or origin is collections.abc.Callable:
        return _function
    if origin is collections.abc.Sequence:
        return functools.partial(_each, _check_of(arguments[0]))
    kind = origin or annotation
    if isinstance(kind, type) and not getattr(kind, "_is_protocol", False):
        return functools.partial(_instance, (kind,))
    return None


def _words(annotation: Any) -> str:
    """An annotation in words, for the message of a union."""
    kind = typing.get_origin(annotation) or annotation
    if kind is Annotated:
        return _words(typing.get_args(annotation)[0])
    if kind in (Callable, collections.abc.Callable):
        return "a function"
    if kind is str:
        return "text"
    if kind is bool:
        return "`True` or `False`"
    if kind is int:
        return "a whole number"
    if _is_numeric(kind):
        return "numbers"
    if kind in (collections.abc.Mapping, dict):
        return "a dictionary"
    if kind is collections.abc.Sequence:
        return f"a sequence, each {_words(typing.get_args(annotation)[0])}"
    return f"a `{_name(kind)}`" if isinstance(kind, type) else str(kind)


def _is_array_type(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, AbstractArray)


def _is_numeric(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(
        annotation, bool | int | float | complex | np.generic | np.ndarray | Array | AbstractArray
    )


def conform(what: str, value: Any, annotation: Any) -> Any:
    """`value`, checked and converted as an annotation asks for.

    **Raises:** `ValueError`, which names the argument by `what`."""
    check = _check_of(annotation)
    try:
        return value if check is None else check(value)
    except Refusal as refusal:
        raise ValueError(f"Argument {what} {refusal}") from None


def _range_of(annotation: Any) -> Range | None:
    """The range in an annotation, or `None`."""
    named = [x for x in getattr(annotation, "__metadata__", ()) if isinstance(x, Range)]
    inner = (_range_of(x) for x in typing.get_args(annotation) if typing.get_origin(x) or x)
    return next(iter(named), None) or next((x for x in inner if x is not None), None)


# --- signatures ----------------------------------------------------------------------------------


def checked(target: _T) -> _T:
    """Decorate a function or a class, so that its arguments are checked against its signature.

    **Raises:** when called, `ValueError` for a bad value and `TypeError` for an unknown
    argument."""
    if isinstance(target, type):
        target.__init__ = _checked(target.__init__, target)
        return target
    return cast(_T, _checked(cast(Callable, target)))


def _written_out(function: Callable) -> inspect.Signature:
    """The signature of a function, with each of the arguments that `**rest: Unpack[Arguments]`
    stands for. `Arguments` is a `TypedDict`; what it does not require is `None` by default."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    groups = [p for p in parameters if typing.get_origin(p.annotation) is typing.Unpack]
    if not groups:
        return signature
    (kind,) = typing.get_args(groups[0].annotation)
    named = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hint,
            default=None if name in kind.__optional_keys__ else inspect.Parameter.empty,
        )
        for name, hint in typing.get_type_hints(kind, include_extras=True).items()
    ]
    return signature.replace(parameters=[*parameters[:-1], *named])


class _Signature:
    """The checks of a function's arguments, by position and by name."""

    def __init__(self, function: Callable, owner: type | None):
        parameters = _written_out(function).parameters
        space = vars(sys.modules[function.__module__])
        hints = {name: p.annotation for name, p in parameters.items()}
        if owner is not None:  # of a generated `__init__`
            space = vars(sys.modules[owner.__module__])
            hints.update({name: f.type for name, f in owner.__dataclass_fields__.items()})
        self.function = function
        self.names = tuple(parameters)
        self.known = frozenset(parameters)
        self.named = [x for x, p in parameters.items() if p.kind is not p.VAR_POSITIONAL]
        self.method = self.names[:1] in (("self",), ("cls",))
        self.by_name: dict[str, tuple[_Check, Any]] = {}
        self.ranges: dict[str, Range] = {}
        for name, p in parameters.items():
            hint = hints[name]
            if isinstance(hint, str):  # a forward reference
                hint = eval(hint, {**vars(sys.modules[__name__.split(".")[0]]), **space})
            check = None if hint is inspect.Parameter.empty else _check_of(hint)
            if check is not None:
                self.by_name[name] = check, p.default
                named = _range_of(hint)
                if named is not None:
                    self.ranges[name] = named
        self.by_place = [self.by_name.get(name) for name in self.names]
        kinds = [p.kind for p in parameters.values()]
        many = inspect.Parameter.VAR_POSITIONAL
        self.rest = kinds.index(many) if many in kinds else None

    def checks(self, args: tuple, kwargs: dict[str, Any]) -> tuple[list, dict[str, Any]]:
        """The arguments, converted. A default is not checked."""
        new, name = list(args), ""
        try:
            for i, value in enumerate(args):
                place = i if self.rest is None else min(i, self.rest)
                entry = self.by_place[place] if place < len(self.by_place) else None
                if entry is not None and value is not entry[1]:
                    name = self.names[place]
                    new[i] = entry[0](value)
            for name, value in kwargs.items():
                entry = self.by_name.get(name)
                if entry is not None and value is not entry[1]:
                    kwargs[name] = entry[0](value)
        except Refusal as refusal:
            refusal.args = (name, *refusal.args)
            raise
        return new, kwargs

    def label(self, args: tuple, kwargs: dict[str, Any]) -> str:
        """The name of what was called: a function, a class, or an element of a mechanism with its
        own name."""
        given = dict(zip(self.names, args, strict=False)) | kwargs
        name = given.get("name")
        named = f' "{name}"' if isinstance(name, str) and name else ""
        if not self.method:
            kind = self.function.__name__
            return kind + named if kind[0].isupper() else kind  # it makes an element
        kind = args[0].__name__ if isinstance(args[0], type) else type(args[0]).__name__
        if self.function.__name__ != "__init__":
            return f"{kind}.{self.function.__name__}"
        return kind + named


def _checked(function: Callable, owner: type | None = None) -> Callable:
    found: list[_Signature] = []

    def signature_of() -> _Signature:
        if not found:  # at the first call, since annotations may refer to later definitions
            found.append(_Signature(function, owner))
        return found[0]

    @functools.wraps(function)
    def with_checks(*args, **kwargs):
        signature = signature_of()
        try:
            new, kwargs = signature.checks(args, kwargs)
            if kwargs.keys() <= signature.known:
                return function(*new, **kwargs)
            error = TypeError(_unknown(signature, args, kwargs))
        except Refusal as refusal:
            name, demand = refusal.args
            label = signature.label(args, kwargs)
            error = ValueError(f"Argument `{name}` of {label} {demand}")
        raise error

    with_checks.signature_of = signature_of  # pyright: ignore[reportAttributeAccessIssue]
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & inspect.CO_VARKEYWORDS:
        # For `help` and whoever else asks for the signature.
        with_checks.__signature__ = _written_out(function)  # pyright: ignore[reportAttributeAccessIssue]
    return with_checks


def traced_in_range(*objects: Any) -> Array | None:
    """Whether all traced numbers in the fields of `objects` are in the ranges of their
    constructors; `None` if none is traced. NaN counts as in range, since other verdicts report
    it."""
    if is_known(objects):
        return None
    verdicts = []

    def visit(node):
        if isinstance(node, list | tuple):
            for x in node:
                visit(x)
        elif isinstance(node, eqx.Module):
            # Elements of one kind are kept together.
            node = getattr(node, "together", node)
            signature_of = getattr(type(node).__init__, "signature_of", None)
            ranges = {} if signature_of is None else signature_of().ranges
            for name, x in vars(node).items():
                if name in ranges and not is_concrete(x):
                    verdicts.append(jnp.all(ranges[name].holds(x) | jnp.isnan(x)))
                visit(x)

    visit(objects)
    return jnp.all(jnp.stack(verdicts)) if verdicts else None


def _unknown(signature: _Signature, args: tuple, kwargs: dict[str, Any]) -> str:
    name = min(kwargs.keys() - signature.known)
    names = [x for x in signature.named if x not in ("self", "cls", *kwargs)]
    near = difflib.get_close_matches(name, names, 1)
    listed = ", ".join(f"`{x}`" for x in names)
    remedy = f"did you mean `{near[0]}`?" if near else f"its arguments are {listed}."
    return f"{signature.label(args, kwargs)} has no argument `{name}`: {remedy}"
