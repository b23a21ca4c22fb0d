"""Whether all samples of a program take the same steps.

Samples can be computed side by side at no extra cost if no branch and no number of iterations
depends on the sample. Contacts, adaptive steps and refinements until convergence do depend on it.
Then samples are faster one after the other. A branch that does nothing in some samples is taken for
all if it is for one: mostly the samples agree.
"""

import enum
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr

# Operations that only call another program, and the parameter that holds it.
_CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "eval_jaxpr": "jaxpr",
    "remat2": "jaxpr",
    "one_by_one": "jaxpr",
}

LOOPS = ("scan", "while")


class Call(NamedTuple):
    """A program and its operands."""

    program: ClosedJaxpr | Jaxpr
    operands: list[Any]


def call_of(equation, operands: list[Any]) -> Call | None:
    """The program that `equation` calls, or `None` if it calls none, or loops or branches."""
    name, parameters = equation.primitive.name, equation.params
    if name in _CALLS:
        return Call(parameters[_CALLS[name]], operands)
    if name == "custom_linear_solve":
        lengths, programs = parameters["const_lengths"], parameters["jaxprs"]
        first = lengths.matvec + lengths.vecmat
        last = first + lengths.solve + lengths.transpose_solve
        return Call(programs.solve, operands[first : first + lengths.solve] + operands[last:])
    return None


def opened(program: ClosedJaxpr | Jaxpr, operands: list[Any], constant: Callable) -> Iterator:
    """Pairs of the variables of a program and their values. `constant` makes a value of a
    constant of the program, unless constants come first among the operands."""
    jaxpr = equations_of(program)
    # Not by the type of the program: from JAX 0.11 on it is the same with and without constants.
    if len(operands) == len(jaxpr.invars):
        constants = map(constant, getattr(program, "consts", ()))
        yield from zip(jaxpr.constvars, constants, strict=True)
        yield from zip(jaxpr.invars, operands, strict=True)
    else:
        yield from zip([*jaxpr.constvars, *jaxpr.invars], operands, strict=True)


def equations_of(program: ClosedJaxpr | Jaxpr) -> Jaxpr:
    return program.jaxpr if isinstance(program, ClosedJaxpr) else program


def is_literal(variable) -> bool:
    return hasattr(variable, "val")


class Place(enum.Enum):
    """Where an operation stands. An innermost loop goes over its arrays again and again."""

    OUTSIDE = enum.auto()
    LOOP = enum.auto()
    INNERMOST = enum.auto()


Visit = Callable[[Any, list[bool], Place], None]

# What is known of programs. Each loop asks for its body until the carry stays the same, and so do
# the loops around it: without this table the work grows exponentially with the depth.
_FOUND = weakref.WeakKeyDictionary()


def varying(
    program: ClosedJaxpr | Jaxpr,
    given: list[bool],
    visit: Visit | None = None,
    place: Place = Place.OUTSIDE,
) -> list[bool]:
    """Which outputs differ between samples if the `given` operands do. `visit(equation, varies,
    place)` is called for each equation that is no call."""
    if visit is not None:
        return _walked(program, given, visit, place)
    found, key = _FOUND.setdefault(program, {}), tuple(given)
    if key not in found:
        found[key] = _walked(program, given, None, place)
    return found[key]


def _walked(program, given, visit, place):
    known = dict(opened(program, given, lambda _: False))
    read = lambda v: not is_literal(v) and known[v]  # noqa: E731
    jaxpr = equations_of(program)
    for equation in jaxpr.eqns:
        operands = list(map(read, equation.invars))
        call = call_of(equation, operands)
        if call is not None:
            found = varying(*call, visit, place)
        else:
            found = _of_equation(equation, operands, visit, place)
            if visit is not None:
                visit(equation, operands, place)
        known.update(zip(equation.outvars, found, strict=True))
    return list(map(read, jaxpr.outvars))


def _of_equation(equation, operands, visit, place):
    name, parameters = equation.primitive.name, equation.params
    if name in LOOPS:
        inside = parameters["jaxpr" if name == "scan" else "body_jaxpr"]
        place = Place.LOOP if _has_loops(inside) else Place.INNERMOST
    if name == "scan":
        constants, carry, over = scan_parts(equation, operands)
        carry = scan_carry(equation, operands)
        return varying(parameters["jaxpr"], [*constants, *carry, *over], visit, place)
    if name == "while":
        of_condition, of_body, _ = while_parts(equation, operands)
        carry = while_carry(equation, operands)
        varying(parameters["cond_jaxpr"], [*of_condition, *carry], visit, place)
        return varying(parameters["body_jaxpr"], [*of_body, *carry], visit, place)
    if name == "cond":
        branches = [varying(b, operands[1:], visit, place) for b in parameters["branches"]]
        return [operands[0] or any(x) for x in zip(*branches, strict=True)]
    return [any(operands)] * len(equation.outvars)


def scan_parts(equation, operands: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Constants, carry and arrays that a scan goes over."""
    parameters = equation.params
    if "num_consts" in parameters:
        first, count = parameters["num_consts"], parameters["num_carry"]
    else:  # from JAX 0.11 on
        first, count, _ = map(len, parameters["ft_in"].unpack())
    return operands[:first], operands[first : first + count], operands[first + count :]


def while_parts(equation, operands: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Constants of the condition, constants of the body, and carry."""
    first = equation.params["cond_nconsts"]
    last = first + equation.params["body_nconsts"]
    return operands[:first], operands[first:last], operands[last:]


def scan_carry(equation, operands: list[bool]) -> list[bool]:
    """Which parts of the carry differ between samples."""
    constants, carry, over = scan_parts(equation, operands)

    def after(carry):
        found = varying(equation.params["jaxpr"], [*constants, *carry, *over])
        return found[: len(carry)]

    return _settled(after, carry)


def while_carry(equation, operands: list[bool]) -> list[bool]:
    _, constants, carry = while_parts(equation, operands)
    return _settled(
        lambda carry: varying(equation.params["body_jaxpr"], [*constants, *carry]), carry
    )


def _settled(after: Callable, carry: list[bool]) -> list[bool]:
    while True:
        more = [a or b for a, b in zip(carry, after(carry), strict=True)]
        if more == carry:
            return carry
        carry = more


def busy_branch(equation) -> int | None:
    """Of two branches of which one makes nothing of its operands, the number of the other."""
    idle = []
    for branch in equation.params["branches"]:
        read = [v for inner in branch.jaxpr.eqns for v in inner.invars if not is_literal(v)]
        idle.append(set(branch.jaxpr.invars).isdisjoint(read))
    return idle.index(False) if len(idle) == 2 and idle.count(False) == 1 else None


class _NotUniform(Exception):
    pass


def is_uniform(
    program: ClosedJaxpr | Jaxpr,
    operands: list[bool],
    can_be_computed: Callable[[Any, list[bool], Place], bool],
) -> bool:
    """Whether the program has loops, and no condition in it depends on the sample, except for
    branches that may be idle. Of each operation on numbers that differ between samples,
    `can_be_computed(equation, varies, place)` must be true."""
    loops = False

    def visit(equation, varies, place):
        nonlocal loops
        name = equation.primitive.name
        loops = loops or name in LOOPS
        if not any(varies) or name == "scan":
            return
        if name == "while":
            of_condition, _, _ = while_parts(equation, varies)
            condition = [*of_condition, *while_carry(equation, varies)]
            good = not any(varying(equation.params["cond_jaxpr"], condition))
        elif name == "cond":
            good = not varies[0] or busy_branch(equation) is not None
        else:
            good = not _calls_python(equation) and can_be_computed(equation, varies, place)
        if not good:
            raise _NotUniform

    if program.effects:
        return False
    try:
        varying(program, operands, visit)
    except _NotUniform:
        return False
    return loops


def _calls_python(equation) -> bool:
    return "callback" in equation.primitive.name


def _programs(equation) -> Iterator[ClosedJaxpr | Jaxpr]:
    for parameter in equation.params.values():
        for x in parameter if isinstance(parameter, tuple | list) else [parameter]:
            if isinstance(x, ClosedJaxpr | Jaxpr):
                yield x


def holds_programs(equation) -> bool:
    return any(True for _ in _programs(equation))


def _has_loops(program: ClosedJaxpr | Jaxpr) -> bool:
    return any(
        equation.primitive.name in LOOPS or any(map(_has_loops, _programs(equation)))
        for equation in equations_of(program).eqns
    )
