"""The element of a system that a term that is not finite belongs to."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from .._methods import SimulationProblem
from .._system import AbstractSystem
from ..mechanism import Mechanism, Stack, frame_poses, frame_twists, linearised
from .terms import At, numbers, pulled


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
