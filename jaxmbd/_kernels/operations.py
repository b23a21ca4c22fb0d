"""Operations on single numbers, in C.

The text must do as plain C++, as CUDA, and within a function of Warp, whose CPU compiler knows few
functions of the C library (no `log1p`), and where `float(x)` and `int(x)` are macros. So types are
converted by `(float)x`, and helpers are lambdas in the function itself.
"""

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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


# Functions of the C library with one operand. Those of float end in f.
_LIBRARY = (
    "sin cos tan asin acos atan sinh cosh tanh exp exp2 log sqrt cbrt floor ceil erf erfc"
).split()

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_LOGIC = {"and": ("&&", "&"), "or": ("||", "|"), "xor": ("!=", "^")}

# Lambdas by name. `auto` is float or double. A line may call those above it.
_HELPERS = {
    "log1p_": """[=](auto x) {
  const auto u = 1 + x;
  return u == 1 ? x : u - 1 == x ? log_(u) : log_(u) * (x / (u - 1));
}""",
    "expm1_": """[=](auto x) {
  const auto u = exp_(x), d = u - 1;
  return u == 1 ? x : d == -1 || d == u ? d : d * (x / log_(u));
}""",
    "asinh_": """[=](auto x) {
  const auto a = fabs_(x), y = log1p_(a + a * (a / (1 + sqrt_(a * a + 1))));
  const auto z = a > 1e9f ? log_(a) + (decltype(x))0.6931471805599453 : y;
  return x < 0 ? -z : x == 0 ? x : z;
}""",
    "acosh_": """[=](auto x) {
  const auto d = x - 1;
  return x > 1e9f ? log_(x) + (decltype(x))0.6931471805599453 : log1p_(d + sqrt_(d * (x + 1)));
}""",
    "atanh_": """[=](auto x) {
  const auto a = fabs_(x), y = log1p_(2 * (a / (1 - a))) / 2;
  return x < 0 ? -y : x == 0 ? x : y;
}""",
    "nextafter_": """[=](auto x, auto y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  long long bits = 0;
  memcpy(&bits, &x, sizeof(x));
  const long long sign = (long long)(1ull << (8 * sizeof(x) - 1));
  bits = x == 0 ? 1 | (y < 0 ? sign : 0) : bits + ((x < y) == (x > 0) ? 1 : -1);
  memcpy(&x, &bits, sizeof(x));
  return x;
}""",
    # Giles, Approximating the erfinv function, 2010, table 5.
    "erf_inv_f": """[=](float x) {
  const float w = -log1p_((-x) * x);
  float p, u;
  if (w < 5) {
    u = w - 2.5f;
    p = 2.81022636e-08f;
    p = 3.43273939e-07f + p * u;
    p = -3.5233877e-06f + p * u;
    p = -4.39150654e-06f + p * u;
    p = 0.00021858087f + p * u;
    p = -0.00125372503f + p * u;
    p = -0.00417768164f + p * u;
    p = 0.246640727f + p * u;
    p = 1.50140941f + p * u;
  } else {
    u = sqrtf(w) - 3;
    p = -0.000200214257f;
    p = 0.000100950558f + p * u;
    p = 0.00134934322f + p * u;
    p = -0.00367342844f + p * u;
    p = 0.00573950773f + p * u;
    p = -0.0076224613f + p * u;
    p = 0.00943887047f + p * u;
    p = 1.00167406f + p * u;
    p = 2.83297682f + p * u;
  }
  return x == 1 || x == -1 ? x / 0.0f : p * x;
}""",
    # From there by steps of Halley's method, for the small one of erf and 1 - erf.
    "erf_inv_d": """[=](double y) {
  const double a = fabs(y);
  if (!(a < 1)) return a == 1 ? y / 0.0 : (a - a) / (a - a);
  double x = erf_inv_f((float)(a < 0.9999999 ? a : 0.9999999));
  if (a > 0.9999999) x = sqrt(-log((1 - a) * (1 + a)));
  for (int k = 0; k < (a > 0.9999999 ? 8 : 2); ++k) {
    const double e = a > 0.5 ? (1 - a) - erfc(x) : erf(x) - a;
    const double r = e / (1.1283791670955126 * exp(-x * x));
    x -= r / (1 + x * r);
  }
  return y < 0 ? -x : y == 0 ? y : x;
}""",
}
# The names of the C library for float and double.
_OVERLOADED = ("log", "exp", "sqrt", "fabs")


def helpers(text: str) -> str:
    """The lambdas that `text` calls."""
    found, wanted = [], set(re.findall(r"\w+_(?:[fd])?(?=\()", text))
    for name, body in reversed(_HELPERS.items()):
        if name in wanted:
            found.append(f"auto {name} = {body};")
            wanted.update(re.findall(r"\w+_(?:[fd])?(?=\()", body))
    for name in _OVERLOADED:
        if f"{name}_" in wanted:
            choice = f"if constexpr (sizeof(x) == 4) return {name}f(x); else return {name}(x);"
            found.append(f"auto {name}_ = [](auto x) {{ {choice} }};")
    return "\n".join(reversed(found))


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


class _Operation(NamedTuple):
    """An operation on numbers of `dtypes` with a result of type `out`."""

    name: str
    params: dict[str, Any]
    dtypes: Sequence[np.dtype]
    out: np.dtype


def is_elementwise(name: str) -> bool:
    return name in _RULES


def expression(name: str, params: dict[str, Any], dtypes: Sequence[np.dtype], out: np.dtype) -> str:
    """The operation in C, with {0}, {1} ... for its operands, which are names or literals."""
    return _RULES[name](_Operation(name, params, dtypes, out))


def _library(op: _Operation) -> str:
    return f"{_of_type(op.name, op.out)}({{0}})"


def _of_type(function: str, dtype: np.dtype) -> str:
    return function + ("f" if dtype.itemsize == 4 else "")


def _unsigned(dtype: np.dtype) -> str:
    return CTYPE[f"uint{8 * dtype.itemsize}"]


def _wrapped(text: str, out: np.dtype) -> str:
    """Integers of C are computed as unsigned ones, whose overflow is defined."""
    if out.kind == "i":
        whole = _unsigned(out) if out.itemsize >= 4 else "unsigned"
        text = re.sub(r"\{(\d)\}", rf"({whole}){{\1}}", text)
    return f"({ctype(out)})({text})"


def _arithmetic(op: _Operation) -> str:
    if op.out.kind == "b":
        return {"add": "{0} || {1}", "mul": "{0} && {1}", "sub": "{0} != {1}"}[op.name]
    text = f"{{0}} {_ARITHMETIC[op.name]} {{1}}"
    return text if op.out.kind == "f" else _wrapped(text, op.out)


def _negative(op: _Operation) -> str:
    return "-{0}" if op.out.kind == "f" else _wrapped("0 - {0}", op.out)


def _quotient(op: _Operation) -> str:
    if op.out.kind == "f":
        return "{0} / {1}"
    negated = _wrapped("0 - {0}", op.out)
    by_one = f"{{1}} == -1 ? {negated} : " if op.out.kind == "i" else ""
    return f"{{1}} == 0 ? ({ctype(op.out)})-1 : {by_one}({ctype(op.out)})({{0}} / {{1}})"


def _remainder(op: _Operation) -> str:
    if op.out.kind == "f":
        return f"{_of_type('fmod', op.out)}({{0}}, {{1}})"
    by_one = "{1} == -1 ? 0 : " if op.out.kind == "i" else ""
    return f"({ctype(op.out)})({{1}} == 0 ? {{0}} : {by_one}{{0}} % {{1}})"


def _extreme(op: _Operation) -> str:
    """NaN, if there is one."""
    if op.out.kind == "b":
        return "{0} || {1}" if op.name == "max" else "{0} && {1}"
    test = f"{{0}} {'>' if op.name == 'max' else '<'} {{1}}"
    return (
        f"{test} || {{0}} != {{0}} ? {{0}} : {{1}}"
        if op.out.kind == "f"
        else f"{test} ? {{0}} : {{1}}"
    )


def _absolute(op: _Operation) -> str:
    if op.out.kind == "f":
        return f"{_of_type('fabs', op.out)}({{0}})"
    return "{0} < 0 ? " + _wrapped("0 - {0}", op.out) + " : {0}" if op.out.kind == "i" else "{0}"


def _sign(op: _Operation) -> str:
    kind = ctype(op.out)
    if op.out.kind == "f":
        return f"{{0}} > 0 ? ({kind})1 : {{0}} < 0 ? ({kind})-1 : {{0}}"
    return f"({kind})(({{0}} > 0)" + (" - ({0} < 0))" if op.out.kind == "i" else ")")


def _logic(op: _Operation) -> str:
    logical, bitwise = _LOGIC[op.name]
    return (
        f"{{0}} {logical} {{1}}"
        if op.out.kind == "b"
        else f"({ctype(op.out)})({{0}} {bitwise} {{1}})"
    )


def _inverted(op: _Operation) -> str:
    return "!{0}" if op.out.kind == "b" else f"({ctype(op.out)})~{{0}}"


def _shift(op: _Operation) -> str:
    bits, whole = 8 * op.out.itemsize, _unsigned(op.out)
    given = f"({_unsigned(op.dtypes[1])}){{1}} < {bits}u"
    if op.name == "shift_left":
        return f"{given} ? ({ctype(op.out)})(({whole}){{0}} << {{1}}) : 0"
    if op.name == "shift_right_logical":
        return f"{given} ? ({ctype(op.out)})(({whole}){{0}} >> {{1}}) : 0"
    signed = CTYPE[f"int{bits}"]
    return f"({ctype(op.out)})(({signed}){{0}} >> ({given} ? {{1}} : {bits - 1}))"


def _converted(op: _Operation) -> str:
    (given,), kind = op.dtypes, ctype(op.out)
    if op.out.kind == "b":
        return "{0} != 0"
    if not (given.kind == "f" and op.out.kind in "iu"):
        return f"({kind}){{0}}"
    # Numbers that do not fit become the nearest that does, NaN 0.
    top, low = np.iinfo(op.out).max, np.iinfo(op.out).min
    above, below = literal(given.type(float(top) + 1)), literal(given.type(low))
    ends = literal(op.out.type(top)), literal(op.out.type(low))
    inside = f"{{0}} >= {above} ? {ends[0]} : {{0}} <= {below} ? {ends[1]} : ({kind}){{0}}"
    return f"{{0}} != {{0}} ? ({kind})0 : {inside}"


def _same_bits(op: _Operation) -> str:
    (given,) = op.dtypes
    if given.itemsize != op.out.itemsize:
        raise Unsupported("bitcast_convert_type to another size")
    a, b = ctype(given), ctype(op.out)
    return f"[]({a} x) {{{{ {b} y; memcpy(&y, &x, sizeof(y)); return y; }}}}({{0}})"


def _power(op: _Operation) -> str:
    if op.out.kind != "f":
        raise Unsupported("pow of integers")
    return f"{_of_type('pow', op.out)}({{0}}, ({ctype(op.out)}){{1}})"


def _rounded(op: _Operation) -> str:
    even = int(op.params["rounding_method"]) == 1
    return f"{_of_type('rint' if even else 'round', op.out)}({{0}})"


def _chosen(op: _Operation) -> str:
    *others, last = (f"{{{k + 1}}}" for k in range(len(op.dtypes) - 1))
    if not others:
        return last
    if op.dtypes[0].kind == "b":
        return f"{{0}} ? {last} : {others[0]}"
    return "".join(f"{{0}} <= {k} ? {x} : " for k, x in enumerate(others)) + last


def _fixed(text: str) -> Callable:
    return lambda op: text


def _helper(op: _Operation) -> str:
    return f"{op.name}_({{0}})"


_RULES: dict[str, Callable[..., str]] = {
    **dict.fromkeys(_LIBRARY, _library),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_LOGIC, _logic),
    **{name: _fixed(f"{{0}} {sign} {{1}}") for name, sign in _COMPARISONS.items()},
    **dict.fromkeys(("log1p", "expm1", "asinh", "acosh", "atanh"), _helper),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("shift_left", "shift_right_logical", "shift_right_arithmetic"), _shift),
    "abs": _absolute,
    "atan2": lambda op: f"{_of_type('atan2', op.out)}({{0}}, {{1}})",
    "bitcast_convert_type": _same_bits,
    "convert_element_type": _converted,
    "div": _quotient,
    "erf_inv": lambda op: f"erf_inv_{'fd'[op.out.itemsize > 4]}({{0}})",
    "high_half": _fixed("(unsigned)({0} >> 32)"),
    "is_finite": _fixed("{0} - {0} == 0"),
    "joined_halves": _fixed("(unsigned long long){1} << 32 | {0}"),
    "logistic": lambda op: f"1 / (1 + {_of_type('exp', op.out)}(-{{0}}))",
    "low_half": _fixed("(unsigned){0}"),
    "neg": _negative,
    "nextafter": _fixed("nextafter_({0}, {1})"),
    "not": _inverted,
    "pow": _power,
    "rem": _remainder,
    "round": _rounded,
    "rsqrt": lambda op: f"1 / {_of_type('sqrt', op.out)}({{0}})",
    "select_n": _chosen,
    "sign": _sign,
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
