"""All public signatures against what they say: a value that an annotation does not allow is
refused in one line that names the argument; one that it allows is not.

What is allowed is read here from the annotations anew, ranges from their words as the user sees
them; `_inputs.py` is not asked.
"""

import collections.abc
import functools
import inspect
import math
import re
import types
import typing
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from test_printed import results

import jaxmbd as mbd
from jaxmbd import (
    analysis,
    contacts,
    coordinates,
    estimate,
    forces,
    identify,
    joints,
    methods,
    plots,
    reports,
    rollout,
    rotations,
    shapes,
    solvers,
    trajopt,
)
from jaxmbd._inputs import Range, Shape

NAN, INF = math.nan, math.inf
MODELS = (contacts, coordinates, forces, joints, methods, rotations, shapes, solvers)
MODULES = (mbd, *MODELS, analysis, estimate, identify, plots, reports, rollout, trajopt)


def unwrapped(function):
    """The function below decorators of equinox and JAX that has checks, if any has."""
    while not hasattr(function, "signature_of"):
        below = getattr(function, "__wrapped__", None) or getattr(function, "method", None)
        if below is None:
            return None
        function = below
    return function


def hints_of(function, owner):
    """Annotations of the parameters, evaluated; of a generated constructor those of the fields,
    since what a converter takes could be anything."""
    generated = inspect.unwrap(function).__code__.co_filename == "<string>"
    fields = owner.__dataclass_fields__ if generated else {}
    found = {}
    for name, p in inspect.signature(function).parameters.items():
        hint = fields[name].type if name in fields else p.annotation
        if isinstance(hint, str):
            hint = eval(hint, {**vars(mbd), **inspect.unwrap(function).__globals__})
        if hint is not p.empty and p.kind is not p.VAR_POSITIONAL:
            found[name] = hint
    return found


class Case(typing.NamedTuple):
    """What to call with keywords, one of its parameters, and the annotation of that."""

    label: str
    parameter: str
    call: Any
    hint: Any

    def __repr__(self):
        return f"{self.label}({self.parameter}: {self.hint})"


def things():
    """(name, public class or function)."""
    seen = set()
    for module in MODULES:
        for name, thing in vars(module).items():
            named = callable(thing) and not name.startswith("_")
            if named and id(thing) not in seen:
                seen.add(id(thing))
                yield name, thing


def public():
    """The cases of all public classes and functions that check their arguments."""
    for name, thing in things():
        if not inspect.isclass(thing):
            yield from of_callable(None, name, unwrapped(thing))
        elif not inspect.isabstract(thing):
            for key, member in {"__init__": thing.__init__, **vars(thing)}.items():
                if key == "__init__" or not key.startswith("_"):
                    function = unwrapped(getattr(member, "__func__", member))
                    yield from of_callable(thing, key, function)


def of_callable(owner, name, function):
    if function is None:
        return
    label, call = name, function
    if owner is not None:
        label = owner.__name__ if name == "__init__" else f"{owner.__name__}.{name}"
        first = next(iter(inspect.signature(inspect.unwrap(function)).parameters))
        make = tuple if issubclass(owner, tuple) else object
        blank = owner if first == "cls" else make.__new__(owner)
        call = functools.partial(function, blank)
    for parameter, hint in hints_of(function, owner).items():
        if parameter not in ("self", "cls"):
            yield Case(label, parameter, call, hint)


A_NUMBER = r"(-?[\d.e+-]*\d)"
WORDS = {
    r"any number, NaN as well": lambda x: True,
    r"a number": lambda x: not math.isnan(x),
    r"finite": math.isfinite,
    r"positive and finite": lambda x: 0 < x < INF,
    r"positive": lambda x: x > 0,
    r"finite and not negative": lambda x: 0 <= x < INF,
    r"not negative": lambda x: x >= 0,
    r"finite and not 0": lambda x: math.isfinite(x) and x != 0,
    rf"even and at least {A_NUMBER}": lambda x, low: low <= x < INF and x % 2 == 0,
    rf"at least {A_NUMBER}": lambda x, low: low <= x < INF,
    rf"in \[{A_NUMBER}, {A_NUMBER}\]": lambda x, low, high: low <= x <= high,
    rf"between {A_NUMBER} and {A_NUMBER}": lambda x, low, high: low < x < high,
}


def in_words(words, x):
    """Whether a number is what these words ask for."""
    matches = ((holds, re.fullmatch(pattern, words)) for pattern, holds in WORDS.items())
    holds, found = next((holds, found) for holds, found in matches if found)
    return holds(x, *map(float, found.groups()))


def is_array(hint):
    return inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)


def is_numeric(hint):
    kinds = bool, int, float, complex, np.generic, np.ndarray, jax.Array
    return is_array(hint) or (inspect.isclass(hint) and issubclass(hint, kinds))


def fits(shape, axes):
    for i, axis in enumerate(axes):
        if axis.startswith(("*", "...")):
            axes = [*axes[:i], *["n"] * (len(shape) - len(axes) + 1), *axes[i + 1 :]]
    return len(shape) == len(axes) and all(
        not axis.isdigit() or int(axis) == n for n, axis in zip(shape, axes)
    )


def allows(hint, x, words="finite", axes=None):
    """Whether an annotation allows a value; `None` where it leaves that to its function."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        for extra in hint.__metadata__:
            if isinstance(extra, Range):
                words = extra.words
            elif isinstance(extra, Shape):
                axes = list(map(str, extra))
            else:
                return None  # a check of its own
        ranged = any(isinstance(extra, Range | Shape) for extra in hint.__metadata__)
        if arguments[0] is Any and ranged:
            return allows_numbers(x, words, axes)
        return allows(arguments[0], x, words, axes)
    if origin in (typing.Union, types.UnionType):
        if types.NoneType in arguments and x is None:
            return True
        arguments = [a for a in arguments if a is not types.NoneType]
        if len(arguments) > 1 and all(map(is_numeric, arguments)):
            dims = [a.dim_str.split() for a in arguments if is_array(a)]
            return allows_numbers(x, words, dims[0] if dims else axes)
        if np.ndarray in arguments:
            return None
        each = [allows(a, x, words, axes) for a in arguments]
        return True if True in each else None if None in each else False
    if is_array(hint):
        floating = any("float" in str(dtype) for dtype in hint.dtypes)
        return allows_numbers(x, words, hint.dim_str.split()) if floating else None
    if hint is bool:
        return isinstance(x, bool)
    if hint is int:
        whole = isinstance(x, int) and not isinstance(x, bool)
        return whole and (words == "finite" or in_words(words, x))
    if hint is float:
        return allows_numbers(x, words, [])
    if origin is Literal:
        return isinstance(x, str) and x in arguments
    if hint is collections.abc.Callable or origin is collections.abc.Callable:
        return callable(x)
    if origin is collections.abc.Sequence:
        if not isinstance(x, list | tuple) and not (eqx.is_array_like(x) and np.ndim(x)):
            return False
        each = [allows(arguments[0], y) for y in x]
        return False if False in each else None if None in each else True
    kind = origin or hint
    if not inspect.isclass(kind) or kind in (object, jaxtyping.PyTree) or kind is Any:
        return None
    return isinstance(x, kind)


def allows_numbers(x, words, axes):
    if isinstance(x, str | bytes | dict | type(None)) or callable(x):
        return False
    try:
        array = np.asarray(x)
    except (TypeError, ValueError):
        return False
    if array.dtype.kind not in "fiu":
        return False
    if axes is not None and not fits(array.shape, axes):
        return False
    return all(in_words(words, float(y)) for y in array.ravel())


class Stranger:
    """An object of a class that nothing here knows."""

    def __repr__(self):
        return "stranger"


SPECIAL = [
    *(NAN, INF, -INF, 0.0, -0.0, -1.0, 0.5, 1.5, 5e-324, -1e300, 0, -3, 4, 10**20, None, True),
    *("text", "", "`Z'\n é", 1j, complex(NAN, 1.0), {"a": 1.0}, [], [None], ["a", "b"], [1.0, "b"]),
    *([[1.0], [2.0, 3.0]], [1.0, NAN, 2.0], [1.0, 2.0, 3.0], [INF], list(range(8)), ["`\n"]),
    *(
        np.array(["a", "b"]),
        np.array([True, False]),
        np.full(4, 0.3),
        jnp.asarray(np.ones(3), float),
    ),
    *(np.eye(3), [[-2.0, 0.0, 2.0]], [[0.5, 0.5, 0.5]] * 2),
    *(Stranger(), Stranger, print),
]
ARGUMENTS = sorted(public(), key=lambda case: case[:2])


def check_message(case, value):
    """Raised by the check, in one line that names the argument."""
    with pytest.raises((ValueError, TypeError)) as caught:
        case.call(**{case.parameter: value})
    message, kind = str(caught.value), case.label.split(".")[0]
    assert "\n" not in message and len(message) < 500, message
    assert all(x in message for x in (f"`{case.parameter}`", kind, " must ")), (message, value)


# What is made inside, beside the results of functions, and tuples that are checked where they are
# used.
MADE_INSIDE = set(
    "BlockDiagonal BlockRows BodyIndices CompilationCache ConstraintEquations "
    "ConstraintOperator ContactMemory ContactPoints ContactRows ContactState Correction Course "
    "CoupledBlocks Dependents Ends Frames Glyph Images Layout LinearMap LogDensity Motion "
    "Multipliers Page Placement Point Pose RESULTS RowImpulse Sample SingleShooting Starts Step "
    "StepperState Twist Window Wrench".split()
)


def test_all_are_checked():
    """All public functions, and all classes that are made by the user from arguments."""
    unchecked, returned = set(), results()
    for name, thing in things():
        if not inspect.isclass(thing):
            unchecked |= {name} if unwrapped(thing) is None else set()
        elif not (inspect.isabstract(thing) or name.startswith("Abstract") or thing in returned):
            no_parameters = len(inspect.signature(thing.__init__).parameters) == 1
            unchecked |= set() if unwrapped(thing.__init__) or no_parameters else {name}
    assert unchecked == MADE_INSIDE | {"raise_if_failed"}
    assert len(ARGUMENTS) > 1000


def test_all_arguments_have_names():
    """An editor shows them: no public class or function hides some behind `**`."""
    for name, thing in things():
        made = inspect.isclass(thing) and "__init__" in vars(thing)
        if made or not inspect.isclass(thing):
            parameters = inspect.signature(thing.__init__ if made else thing).parameters.values()
            assert all(p.kind is not p.VAR_KEYWORD for p in parameters), name


def test_arguments_of_joints():
    """Those of the place, the direction and the limits, with their types and defaults."""
    _, _, _, *optional = inspect.signature(mbd.Revolute).parameters.values()
    names = "limits point points frame_a frame_b axis axes orientation".split()
    assert [p.name for p in optional if p.default is None and p.annotation != p.empty] == names
    with pytest.raises(TypeError, match='Universal "u" has no argument `axis`: did you mean `ax'):
        mbd.Universal("u", "a", "b", axis=[0.0, 0.0, 1.0])
    with pytest.raises(TypeError, match='Spring "s" has no argument `axis`'):
        mbd.Spring("s", "a", "b", axis=[0.0, 0.0, 1.0])


def check_value(case, value):
    """Whether the annotation allows it; `None` where it does not say."""
    allowed = allows(case.hint, value)
    if value is inspect.signature(case.call).parameters[case.parameter].default:
        return None
    if allowed is False:
        check_message(case, value)
    elif allowed:
        # What is asked of the arguments alone: others are missing.
        partial = isinstance(case.call, functools.partial)
        inner, first = (case.call.func, case.call.args) if partial else (case.call, ())
        inner.signature_of().checks(first, {case.parameter: value})
    return allowed


def test_every_argument():
    """By the same values."""
    verdicts = [check_value(case, value) for case in ARGUMENTS for value in SPECIAL]
    assert verdicts.count(False) > 10_000 and verdicts.count(True) > 1_000


RANGES = [
    ("simulate", "dt", 0.0),
    ("simulate", "drift_tolerance", -1e-9),
    ("simulate", "energy_tolerance", -1e-9),
    ("simulate", "start_tolerance", -1e-9),
    ("simulate", "num_steps", 0),
    ("simulate", "max_steps", 0),
    ("Stepper", "drift_tolerance", -1e-9),
    ("Stepper.init", "start_tolerance", -1e-9),
    ("Stepper.step", "dt", 0.0),
]


@pytest.mark.parametrize("label, parameter, value", RANGES)
def test_ranges_of_steps(label, parameter, value):
    """Whatever the annotations say."""
    [case] = [case for case in ARGUMENTS if case[:2] == (label, parameter)]
    check_message(case, value)


def test_unknown_keyword():
    """The nearest name is proposed."""
    for label, parameter, call, _ in {case.label: case for case in ARGUMENTS}.values():
        words = rf"{label} has no argument `\w+x`: did you mean `\w+`\?"
        with pytest.raises(TypeError, match=words):
            call(**{parameter + "x": 1.0})
