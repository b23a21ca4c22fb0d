"""Operations on single numbers, in C.

The text must do as plain C++, as CUDA, and within a function of Warp, whose CPU compiler knows few
functions of the C library (no `log1p`), and where `float(x)` and `int(x)` are macros, so that types
are converted by `(float)x`.
"""

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .unsupported import Unsupported

CTYPE = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}


@functools.cache  # NumPy takes long to tell the name
def ctype(dtype: np.dtype) -> str:
    return CTYPE[dtype.name]


def literal(value: Any) -> str:
    """A known number in C."""
    dtype = value.dtype
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "u":
        return f"{int(value)}{'ull' if dtype.itemsize == 8 else 'u'}"
    if dtype.kind == "i":
        number, suffix = int(value), "ll" if dtype.itemsize == 8 else ""
        if number == -(2 ** (8 * dtype.itemsize - 1)):  # C has no negative literals
            return f"({number + 1}{suffix} - 1)"
        return f"({number}{suffix})" if number < 0 else f"{number}{suffix}"
    name = "f" if dtype.itemsize == 4 else ""
    number = float(value)
    if math.isnan(number):
        return f"nan{name or 'd'}"
    if math.isinf(number):
        return f"(-inf{name or 'd'})" if number < 0 else f"inf{name or 'd'}"
    text = np.format_float_scientific(value, unique=True, trim="0", exp_digits=1)
    return f"({text}{name})" if text[0] == "-" else text + name


def special_numbers(text: str) -> str:
    """Definitions of infinities and NaN, from their bits."""
    lines = []
    for name, bits, whole, kind in (
        ("inff", "0x7f800000u", "unsigned", "float"),
        ("nanf", "0x7fc00000u", "unsigned", "float"),
        ("infd", "0x7ff0000000000000ull", "unsigned long long", "double"),
        ("nand", "0x7ff8000000000000ull", "unsigned long long", "double"),
    ):
        if re.search(rf"\b{name}\b", text):
            lines.append(f"{kind} {name};")
            lines.append(
                f"{{ const {whole} bits = {bits}; memcpy(&{name}, &bits, sizeof(bits)); }}"
            )
    return "\n".join(lines)


# --- expressions ----------------------------------------------------------------------------------

# Operations by the kinds of their first operand, with {0}, {1} ... for the operands. T is the type
# of the result, U and S the unsigned and the signed integer of its size, W the unsigned one in
# which C computes, whose overflow is defined, and N the number of its bits; F is what functions of
# the C library for the operand end in. `max` and `min` are NaN if there is one.
_TABLE = """
abs f fabsF({0}); i {0} < 0 ? (T)(0 - (W){0}) : {0}; u {0}
add f {0} + {1}; iu (T)((W){0} + (W){1}); b {0} || {1}
and iu (T)({0} & {1}); b {0} && {1}
atan2 f atan2F({0}, {1})
div f {0} / {1}; u {1} == 0 ? (T)-1 : (T)({0} / {1});\
 i {1} == 0 ? (T)-1 : {1} == -1 ? (T)(0 - (W){0}) : (T)({0} / {1})
eq fiub {0} == {1}
ge fiub {0} >= {1}
gt fiub {0} > {1}
high_half u (unsigned)({0} >> 32)
is_finite f {0} - {0} == 0
joined_halves u (unsigned long long){1} << 32 | {0}
le fiub {0} <= {1}
logistic f 1 / (1 + expF(-{0}))
low_half u (unsigned){0}
lt fiub {0} < {1}
max f {0} > {1} || {0} != {0} ? {0} : {1}; iu {0} > {1} ? {0} : {1}; b {0} || {1}
min f {0} < {1} || {0} != {0} ? {0} : {1}; iu {0} < {1} ? {0} : {1}; b {0} && {1}
mul f {0} * {1}; iu (T)((W){0} * (W){1}); b {0} && {1}
ne fiub {0} != {1}
neg f -{0}; iu (T)(0 - (W){0})
not iu (T)~{0}; b !{0}
or iu (T)({0} | {1}); b {0} || {1}
pow f powF({0}, (T){1})
rem f fmodF({0}, {1}); u (T)({1} == 0 ? {0} : {0} % {1});\
 i (T)({1} == 0 ? {0} : {1} == -1 ? 0 : {0} % {1})
rsqrt f 1 / sqrtF({0})
select_n b {0} ? {2} : {1}
shift_left iu (U){1} < Nu ? (T)((U){0} << {1}) : 0
shift_right_arithmetic iu (T)((S){0} >> ((U){1} < Nu ? {1} : N - 1))
shift_right_logical iu (U){1} < Nu ? (T)((U){0} >> {1}) : 0
sign f {0} > 0 ? (T)1 : {0} < 0 ? (T)-1 : {0}; i (T)(({0} > 0) - ({0} < 0)); u (T)({0} > 0)
sub f {0} - {1}; iu (T)((W){0} - (W){1})
xor iu (T)({0} ^ {1}); b {0} != {1}
"""
_LIBRARY = "sin cos tan asin acos atan sinh cosh tanh exp exp2 log sqrt cbrt floor ceil erf erfc"
_TEXTS: dict[str, dict[str, str]] = {
    name: {kinds: text for kinds, _, text in (x.partition(" ") for x in texts.split("; "))}
    for name, texts in (
        *(line.split(" ", 1) for line in _TABLE.strip().splitlines()),
        *((name, f"f {name}F({{0}})") for name in _LIBRARY.split()),
    )
}


def is_elementwise(name: str) -> bool:
    return name in _TEXTS or name in _RULES or name == "round"


def expression(name: str, params: dict[str, Any], dtypes: Sequence[np.dtype], out: np.dtype) -> str:
    """The operation in C, with {0}, {1} ... for its operands, which are names or literals."""
    if name == "round":
        return ("rint" if int(params["rounding_method"]) == 1 else "round") + _end(out) + "({0})"
    if name == "select_n" and dtypes[0].kind != "b":
        others = (f"{{0}} <= {k} ? {{{k + 1}}} : " for k in range(len(dtypes) - 2))
        return "".join(others) + f"{{{len(dtypes) - 1}}}"
    return _RULES[name](dtypes[0], out) if name in _RULES else _text(name, dtypes[0], out)


def _end(dtype: np.dtype) -> str:
    return "f" if dtype.itemsize == 4 else ""


@functools.cache
def _text(name: str, dtype: np.dtype, out: np.dtype) -> str:
    text = next((text for kinds, text in _TEXTS[name].items() if dtype.kind in kinds), None)
    if text is None:
        raise Unsupported(f"{name} of {dtype.name}")
    bits = 8 * out.itemsize
    names = dict(T=ctype(out), N=str(bits), F=_end(dtype))
    if out.kind in "iu":
        whole = (f"int{bits}", f"uint{bits}", f"uint{max(bits, 32)}")
        names |= dict(zip("SUW", map(CTYPE.__getitem__, whole), strict=True))
    return re.sub("[FNSTUW]", lambda found: names[found[0]], text)


def _converted(given: np.dtype, out: np.dtype) -> str:
    kind = ctype(out)
    if out.kind == "b":
        return "{0} != 0"
    if not (given.kind == "f" and out.kind in "iu"):
        return f"({kind}){{0}}"
    # Numbers that do not fit become the nearest that does, NaN 0.
    top, low = np.iinfo(out).max, np.iinfo(out).min
    above, below = literal(given.type(float(top) + 1)), literal(given.type(low))
    ends = literal(out.type(top)), literal(out.type(low))
    inside = f"{{0}} >= {above} ? {ends[0]} : {{0}} <= {below} ? {ends[1]} : ({kind}){{0}}"
    return f"{{0}} != {{0}} ? ({kind})0 : {inside}"


def _same_bits(given: np.dtype, out: np.dtype) -> str:
    if given.itemsize != out.itemsize:
        raise Unsupported("bitcast_convert_type to another size")
    a, b = ctype(given), ctype(out)
    return f"[]({a} x) {{{{ {b} y; memcpy(&y, &x, sizeof(y)); return y; }}}}({{0}})"


_RULES: dict[str, Callable[[np.dtype, np.dtype], str]] = {
    "bitcast_convert_type": _same_bits,
    "convert_element_type": _converted,
}


# --- what needs no operation ----------------------------------------------------------------------


def simplified(name: str, operands: Sequence[Any]) -> Any:
    """One of the operands, if it is the result. Operands are names or known numbers."""
    if name == "select_n":
        which, *cases = operands
        if not isinstance(which, str):
            return cases[min(max(int(which), 0), len(cases) - 1)]
        return cases[0] if all(same(x, cases[0]) for x in cases) else None
    if len(operands) != 2:
        return None
    a, b = operands
    if name in ("max", "min", "and", "or") and same(a, b):
        return a
    neutral = _NEUTRAL.get(name)
    if neutral is None:
        return None
    if _is(b, neutral):
        return a
    return b if name in _SYMMETRIC and _is(a, neutral) else None


_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1, "and": -1, "or": 0, "xor": 0}
_SYMMETRIC = ("add", "mul", "and", "or", "xor")


def _is(x: Any, number: int) -> bool:
    if isinstance(x, str):
        return False
    if number == -1:
        return bool(x) if x.dtype.kind == "b" else False
    return bool(x == number)


def same(a: Any, b: Any) -> bool:
    """Whether two operands are the same name or number."""
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()
