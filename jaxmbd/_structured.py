"""Functions by what they do: those that differ only in their numbers are one to the compiler."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ._compiler import any_staged

try:
    from jax.extend.core import gensym
except ImportError:  # before JAX 0.10
    from jax.core import gensym


def by_structure(fn: Any, *args: Any) -> Any:
    """`fn`, a function of pytrees like `args`, arrays or their shapes, as a module whose arrays are
    the numbers that it closes over and those in its text. A program that takes it is compiled for
    its operations only, where JAX compiles one for each function object.

    `fn` is traced anew, so whatever it refers to is up to date. Modules, functions in a program
    that is being traced, and those with operations that cannot be compared are returned as they
    are."""
    if isinstance(fn, eqx.Module | jax.tree_util.Partial) or any_staged(args):
        return fn
    # JAX keeps what it traced for a function object.
    closed, shapes = jax.make_jaxpr(lambda *args: fn(*args), return_shape=True)(*args)
    jaxpr, numbers = _without_numbers(closed.jaxpr)
    structure = jax.tree.structure(shapes)
    key = _key(jaxpr), structure
    try:
        hash(key)
    except TypeError:
        return fn
    return _Structured(_Program(jaxpr, key, structure), [*closed.consts, *numbers])


class _Program:
    """A program without its numbers, equal to others with the same operations."""

    def __init__(self, jaxpr: Jaxpr, key: Any, structure: Any):
        self.jaxpr, self.key, self.structure = jaxpr, key, structure

    def __eq__(self, other):
        return isinstance(other, _Program) and self.key == other.key

    def __hash__(self):
        return hash(self.key)


class _Structured(eqx.Module):
    program: _Program = eqx.field(static=True)
    numbers: list[Any]  # arrays

    def __call__(self, *args):
        out = eval_jaxpr(self.program.jaxpr, self.numbers, *jax.tree.leaves(args))
        return jax.tree.unflatten(self.program.structure, out)


def _without_numbers(jaxpr: Jaxpr) -> tuple[Jaxpr, list[np.ndarray]]:
    """The program with constants in place of its numbers that are not integers, and the numbers."""
    variables, numbers, new = [], [], gensym()

    def of(x):
        aval: Any = x.aval
        if not (isinstance(x, Literal) and jnp.issubdtype(aval.dtype, jnp.inexact)):
            return x
        numbers.append(np.asarray(x.val, aval.dtype))
        variables.append(new(aval))
        return variables[-1]

    eqns = [eqn.replace(invars=list(map(of, eqn.invars))) for eqn in jaxpr.eqns]
    return jaxpr.replace(constvars=[*jaxpr.constvars, *variables], eqns=eqns), numbers


def _key(jaxpr: Jaxpr) -> Any:
    """What the program does, as a value that can be compared."""
    names: dict[Any, int] = {}

    def name(x):
        if isinstance(x, Literal):
            value = np.asarray(x.val)
            return str(x.aval), value.tobytes()
        return names.setdefault(x, len(names)), str(x.aval), x.aval.weak_type

    def param(x):
        if isinstance(x, ClosedJaxpr):
            # The arrays of a program within are the same only if they are the same objects.
            return _key(x.jaxpr), tuple(map(_Same, x.consts))
        if isinstance(x, Jaxpr):
            return _key(x)
        return tuple(map(param, x)) if isinstance(x, tuple | list) else (type(x), x)

    first = tuple(map(name, (*jaxpr.constvars, *jaxpr.invars)))
    eqns = tuple(
        (
            eqn.primitive,
            tuple(map(name, eqn.invars)),
            tuple(map(name, eqn.outvars)),
            tuple((k, param(v)) for k, v in sorted(eqn.params.items())),
        )
        for eqn in jaxpr.eqns
    )
    return first, eqns, tuple(map(name, jaxpr.outvars))


class _Same:
    """Equal to itself only. It keeps the object, so that no other one takes its address."""

    def __init__(self, of: Any):
        self.of = of

    def __eq__(self, other):
        return isinstance(other, _Same) and self.of is other.of

    def __hash__(self):
        return id(self.of)
