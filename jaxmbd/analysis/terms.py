"""The terms of the equations at one point by name, whether they are finite, and whose they are."""

import functools
import pathlib
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jaxtyping import Array, Bool, PyTree

from .._equations import equations, inputs
from .._linalg import dense
from .._mechanism import Mechanism, Stack, frame_poses, frame_twists, linearised
from .._methods import SimulationProblem, free_field, motion_at
from .._system import AbstractSystem
from .._types import Coordinates, RealScalarLike, Velocity

_PACKAGE = str(pathlib.Path(__file__).resolve().parents[1])

JACOBIAN = "the derivative of `constraint`"
SOLUTIONS = (
    "the solution for the acceleration",
    "the solution for the multipliers",
    "the solution for the free acceleration",
)


class At(NamedTuple):
    """The point at which the terms are evaluated."""

    t: RealScalarLike
    q: Coordinates
    v: Velocity


Term = Callable[[SimulationProblem, At], PyTree]


def terms(problem: SimulationProblem) -> dict[str, Term]:
    """The terms as functions (problem, at) by name. Each comes after those that it depends on.
    Names in backticks are functions of the user."""

    def control(p, at):
        return None if p.control is None else p.control(*at)

    found: dict[str, Term] = {
        "`control`": control,
        "`qdot`": lambda p, at: p.system.qdot(at.q, at.v),
        "`mass_matrix`": lambda p, at: p.system.mass_matrix(at.q),
        "`force`": lambda p, at: p.system.force(*at, *inputs(p.control, *at)),
        "`nonideal_force`": lambda p, at: p.system.nonideal_force(at.q, at.v, at.t),
        "`constraint`": lambda p, at: equations(p.system).positions(at.t, at.q),
        "`nonholonomic`": lambda p, at: p.system.nonholonomic(at.q, at.v, at.t),
        JACOBIAN: lambda p, at: (
            equations(p.system).velocities(*at),
            dense(equations(p.system).rows(*at).J),
        ),
        "the second derivative of `constraint`": lambda p, at: equations(p.system).rows(*at).gamma,
    }
    if problem.enforcement.unilateral:
        found["`gap`"] = lambda p, at: p.system.gap(at.q, at.t)
        found["`slip`"] = lambda p, at: p.system.slip(at.q, at.v, at.t)
    if problem.enforcement.continuous:
        found[SOLUTIONS[0]] = lambda p, at: motion_at(p, *at).acceleration
        found[SOLUTIONS[1]] = lambda p, at: motion_at(p, *at).multipliers
    else:
        found[SOLUTIONS[2]] = lambda p, at: free_field(at.t, (at.q, at.v), p)[1]
    return found


def numbers(tree: PyTree) -> PyTree:
    """Keep the floating-point arrays of a pytree, and replace other leaves by `None`."""
    return eqx.filter(tree, eqx.is_inexact_array)


def pulled(fn: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """The derivative of the sum of all outputs of fn with respect to the numbers in `args`."""
    dynamic, static = eqx.partition(args, eqx.is_inexact_array)
    out, pull = jax.vjp(lambda x: numbers(fn(*eqx.combine(x, static))), dynamic)
    return pull(jax.tree.map(jnp.ones_like, out))[0]


def entries_not_finite(
    tree: PyTree, bad: Callable[[np.ndarray], np.ndarray] = lambda x: ~np.isfinite(x)
) -> list[tuple[str, tuple[int, ...]]]:
    """(path, index) of the first `bad` entry of each leaf that has one."""
    found = []
    floats = eqx.filter(tree, eqx.is_inexact_array_like)
    for path, leaf in jax.tree_util.tree_leaves_with_path(floats):
        where = np.argwhere(bad(np.asarray(leaf)))
        if len(where):
            found.append((jax.tree_util.keystr(path), tuple(int(i) for i in where[0])))
    return found


@eqx.filter_jit
def value(problem: SimulationProblem, at: At, names: tuple[str, ...]) -> dict[str, PyTree]:
    """The values of terms."""
    of = terms(problem)
    return {name: numbers(of[name](problem, at)) for name in names}


@eqx.filter_jit
def derivative(problem: SimulationProblem, at: At, names: tuple[str, ...]) -> dict[str, PyTree]:
    """The derivatives of terms with respect to (problem, at)."""
    of = terms(problem)
    return {name: pulled(of[name], problem, at) for name in names}


def first_term(
    fn: Callable[[SimulationProblem, At, tuple[str, ...]], dict[str, PyTree]],
    problem: SimulationProblem,
    points: Sequence[At],
) -> tuple[str, At, list[tuple[str, tuple[int, ...]]]] | None:
    """The first term whose `fn`, `value` or `derivative`, is not finite at one of the points: its
    name, the point, and its `entries_not_finite`."""
    names = tuple(terms(problem))
    own = tuple(name for name in names if name.startswith("`"))
    # Those of the user in one program, the others one at a time, because they take long to compile.
    for some in (own, *((name,) for name in names if name not in own)):
        found = [jax.device_get(fn(problem, at, some)) for at in points]
        for name in some:
            for at, values in zip(points, found, strict=True):
                if bad := entries_not_finite(values[name]):
                    return name, at, bad
    return None


def line_of_nan(fn: Callable[..., PyTree], *args: PyTree) -> str | None:
    """The origin of the first NaN in fn(*args): a line of the user's code, or else a function of a
    library; `None` if the compiled program does not record it."""
    try:
        error, _ = eqx.filter_jit(checkify.checkify(fn, errors=checkify.nan_checks))(*args)
    except Exception:  # checkify is experimental and lacks some operations; this is only a hint
        return None
    try:
        error.throw()
    except Exception as raised:
        source = raised.__cause__ or raised
        frames = traceback.extract_tb(source.__traceback__)
        for frame in reversed(frames):
            name = str(pathlib.Path(frame.filename).resolve())
            if "site-packages" not in name and not name.startswith(_PACKAGE):
                place = f"{frame.filename}:{frame.lineno}, in `{frame.name}`"
                return f"{place}: {frame.line}" if frame.line else place
        return f"in `{frames[0].name}` of {frames[0].filename}" if frames else None
    return None


@functools.singledispatch
def element(
    system: AbstractSystem, problem: SimulationProblem, at: At, term: str, derivative: bool
) -> str:
    """The kind and name of the first element whose part of the term, or of its derivative, is not
    finite; empty if there is none or the system has no elements."""
    del system, problem, at, term, derivative
    return ""


@element.register
def _(system: Mechanism, problem: SimulationProblem, at: At, term: str, derivative: bool) -> str:
    def on_bodies(force, qs, vs):
        u = None if problem.control is None else problem.control(*at)
        poses, twists = frame_poses(force, qs), frame_twists(force, qs, vs)
        return force.wrenches(poses, twists, at.t, u), force.rate(poses, twists)

    def rows(joint, qs, vs):
        moving = [True] * len(qs)
        equations = joint.equations, joint.velocity_equations
        return linearised(joint, *equations, qs, vs, at.t, moving)

    def of_body(body, q, v):
        return body.mass_matrix(q[3:]), body.inertial_force(q[3:], v[3:], system.gravity)

    fn: Any
    if "constraint" in term or "nonholonomic" in term:
        stacks, fn = system.joint_stacks, rows
    elif term == "`force`":
        stacks, fn = system.force_stacks, on_bodies
    else:
        stacks, fn = (), None
    for stack in stacks:
        good = system.tables.map(stack, _all_finite(fn, derivative), at.q, at.v)
        if name := _first(stack, good):
            return name
    if term in ("`mass_matrix`", "`force`"):
        q, v = system.tables.poses(at.q), system.tables.twists(at.v)
        good = system.body_stack.map(_all_finite(of_body, derivative), q, v)
        return _first(system.body_stack, good)
    return ""


def _all_finite(fn, derivative: bool):
    def judged(*args) -> Bool[Array, ""]:
        out = numbers(pulled(fn, *args) if derivative else fn(*args))
        good = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(out)]
        return jnp.all(jnp.stack([jnp.array(True), *good]))

    return judged


def _first(stack: Stack, good: Bool[Array, " elements"]) -> str:
    bad = np.flatnonzero(~np.asarray(good))
    if not len(bad):
        return ""
    return f'{type(stack.outlines()[bad[0]]).__name__} "{stack.names[bad[0]]}"'
