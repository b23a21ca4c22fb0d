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

import jaxmbd as mbd
from jaxmbd import analysis, identify, plots, reports, rollout, rotations, solvers, trajopt
from jaxmbd._inputs import Range, Shape

NAN, INF = math.nan, math.inf
MODULES = (mbd, analysis, identify, plots, reports, rollout, rotations, solvers, trajopt)


# --- public signatures ---------------------------------------------------------------------------


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


# --- what an annotation allows -------------------------------------------------------------------

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
    for pattern, holds in WORDS.items():
        found = re.fullmatch(pattern, words)
        if found:
            return holds(x, *map(float, found.groups()))
    raise AssertionError(f"Unknown words: {words}")


def is_array(hint):
    return inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)


def is_numeric(hint):
    kinds = bool, int, float, complex, np.generic, np.ndarray, jax.Array
    return is_array(hint) or (inspect.isclass(hint) and issubclass(hint, kinds))


def fits(shape, axes):
    free = [i for i, axis in enumerate(axes) if axis.startswith(("*", "..."))]
    if free:
        i = free[0]
        before, after = axes[:i], axes[i + 1 :]
        if len(shape) < len(before) + len(after):
            return False
        shape = (*shape[:i], *shape[len(shape) - len(after) :])
        axes = [*before, *after]
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


# --- values --------------------------------------------------------------------------------------


class Stranger:
    """An object of a class that nothing here knows."""

    def __repr__(self):
        return "stranger"


SPECIAL = [
    *(NAN, INF, -INF, 0.0, -0.0, -1.0, 0.5, 1.5, 5e-324, -1e300, 0, -3, 4, 10**20, None, True),
    *("text", "", "`Z'\n é", 1j, complex(NAN, 1.0), {"a": 1.0}, [], [None], ["a", "b"], [1.0, "b"]),
    *([[1.0], [2.0, 3.0]], [1.0, NAN, 2.0], [1.0, 2.0, 3.0], [INF], list(range(8)), ["`\n"]),
    *(np.array(["a", "b"]), np.array([True, False]), np.full(4, 0.3), jnp.asarray(np.ones(3))),
    *(np.eye(3), [[-2.0, 0.0, 2.0]], [[0.5, 0.5, 0.5]] * 2),
    *(Stranger(), Stranger, print),
]
ARGUMENTS = sorted(public(), key=lambda case: case[:2])


def ended(call, options):
    """The error of a call, or `None`."""
    try:
        call(**options)
    except Exception as error:
        return error
    return None


def check_message(error, label, parameter, value):
    """Raised by the check, in one line that names the argument."""
    assert isinstance(error, ValueError | TypeError), (label, parameter, type(error))
    message = str(error)
    kind = label.split(".")[0]
    assert "\n" not in message and len(message) < 500, message
    assert f"`{parameter}`" in message and kind in message and " must " in message, (message, value)


# What functions return, and tuples that are checked where they are used.
RETURNED = set(
    "EquilibriumReport Inputs LinearModel LinearMotion Modes Participation Campbell CriticalSpeeds "
    "StateFeedback DiscreteMotion TrackingFeedback SampledFeedback ReactionEnvelope "
    "Branch BranchPoint LimitLoad LimitPoint Equilibria DeadPoint Kinematics "
    "CheckedDerivative GradientCheck NonfiniteOrigin TangentGrowth AssemblyReport ContactRows "
    "Correction Dependents Motion Point RowImpulse BlockDiagonal BlockRows ConstraintEquations "
    "ConstraintOperator CoupledBlocks RESULTS Solution StepperState ContactMemory ContactLoads "
    "JointClosure GeneralisedForces Audit "
    "BodyIndices ContactPoints ContactState ContactStates Dependency ElementPower Mobility "
    "Placement Pose Singularity Twist Violation Wrench Bootstrap Estimate Combination "
    "Identifiability LeastSquares Prediction ColumnTest Sample SingleShooting Guess Multipliers "
    "NLPSolution Plan Pursuit Replay STATUS CovarianceResult ExtremesResult HistogramResult "
    "MomentsResult Failures Rollouts Layout CompilationCache Page".split()
)


def test_all_are_checked():
    """All public functions, and all classes that are made by the user from arguments."""
    unchecked = []
    for name, thing in things():
        if inspect.isclass(thing):
            made = not inspect.isabstract(thing) and not name.startswith("Abstract")
            if made and name not in RETURNED and unwrapped(thing.__init__) is None:
                parameters = list(inspect.signature(thing.__init__).parameters)
                unchecked += [name] if parameters[1:] else []
        elif name != "raise_if_failed" and unwrapped(thing) is None:
            unchecked.append(name)
    assert not unchecked
    assert len(ARGUMENTS) > 500


def test_all_arguments_have_names():
    """An editor shows them: no public class or function hides some behind `**`."""
    for name, thing in things():
        made = inspect.isclass(thing) and "__init__" in vars(thing)
        if made or not inspect.isclass(thing):
            parameters = inspect.signature(thing.__init__ if made else thing).parameters.values()
            assert all(p.kind is not p.VAR_KEYWORD for p in parameters), name


def test_arguments_of_joints():
    """Those of the place, the direction and the limits, with their types and defaults."""
    parameters = inspect.signature(mbd.Revolute).parameters
    assert list(parameters) == (
        "name a b point points axis axes orientation frame_a frame_b limits".split()
    )
    optional = list(parameters.values())[3:]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is None for p in optional)
    assert all(p.annotation is not p.empty for p in parameters.values())
    with pytest.raises(TypeError, match='Universal "u" has no argument `axis`: did you mean `ax'):
        universal: Any = mbd.Universal
        universal("u", "a", "b", axis=[0.0, 0.0, 1.0])


def check_value(case, value):
    """Whether the annotation allows it; `None` where it does not say."""
    allowed = allows(case.hint, value)
    if value is inspect.signature(case.call).parameters[case.parameter].default:
        return None
    if allowed is False:
        error = ended(case.call, {case.parameter: value})
        check_message(error, case.label, case.parameter, value)
    elif allowed:
        # Other arguments are missing.
        error = ended(refusing_early(case.call), {case.parameter: value})
        assert error is None, (case, value, error)
    return allowed


def test_every_argument():
    """By the same values."""
    verdicts = [check_value(case, value) for case in ARGUMENTS for value in SPECIAL]
    assert verdicts.count(False) > 10_000 and verdicts.count(True) > 1_000


def refusing_early(call):
    """What is asked of the arguments alone."""
    inner, first = (call.func, call.args) if isinstance(call, functools.partial) else (call, ())

    def only_checks(**options):
        inner.signature_of().checks(first, options)

    return only_checks


def test_unknown_keyword():
    """The nearest name is proposed."""
    for label, parameter, call, _ in {case.label: case for case in ARGUMENTS}.values():
        words = rf"{label} has no argument `\w+x`: did you mean `\w+`\?"
        with pytest.raises(TypeError, match=words):
            call(**{parameter + "x": 1.0})
