"""Where the search for a plan begins."""

from typing import NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._assemble import assemble
from .._simulate import simulate
from .._system import writes_own_qdot
from .._types import Control
from .problem import Problem


class Guess(NamedTuple):
    """A motion and its controls at the grid points, not necessarily a possible one.

    **Fields:**

    - `q`, `v`: shapes `(steps + 1, nq)`, `(steps + 1, nv)`. `u`: shape `(steps + 1, nu)`.
    """

    q: Float[Array, "points nq"]
    v: Float[Array, "points nv"]
    u: Float[Array, "points nu"]


def interpolated(
    problem: Problem,
    q: ArrayLike | None = None,
    v: ArrayLike | None = None,
    u: ArrayLike | None = None,
) -> Guess:
    """Straight from the start to another state, each point taken to the constraints by `assemble`
    as far as it goes.

    **Arguments:**

    - `q`, `v`: at the end, shapes `(nq,)`, `(nv,)`; those of the start if left out.
    - `u`: throughout, shape `(nu,)`; by default zero, or the bound nearest to it.
    """
    start, system = problem.state, problem.system
    dtype = start.q.dtype
    q_end = start.q if q is None else jnp.asarray(q, dtype)
    v_end = start.v if v is None else jnp.asarray(v, dtype)
    for name, given, own in (("q", q_end, start.q), ("v", v_end, start.v)):
        if given.shape != own.shape:
            raise ValueError(f"Argument `{name}` must have shape {own.shape}, not {given.shape}.")
    u = jnp.zeros(problem.nu, dtype) if u is None else jnp.asarray(u, dtype)
    u = jnp.clip(jnp.broadcast_to(u, (problem.nu,)), problem.lower, problem.upper)

    def point(t, s):
        between = start.q + s * (q_end - start.q)
        if not writes_own_qdot(system):
            between = system.coordinates.normalise(between)
        state = assemble(system, between, start.v + s * (v_end - start.v), t, throw=False)
        return state.q, state.v

    share = jnp.linspace(0, 1, problem.steps + 1, dtype=dtype)
    q_all, v_all = jax.vmap(point)(problem.times, share)
    return Guess(q_all, v_all, jnp.broadcast_to(u, (problem.steps + 1, problem.nu)))


def simulated(problem: Problem, control: Control) -> Guess:
    """The motion under a control, by the enforcement, scheme and substeps of the problem.

    **Arguments:**

    - `control`: u(t, q, v), clipped to the bounds.
    """

    def clipped(t, q, v):
        u = jnp.broadcast_to(jnp.asarray(control(t, q, v), q.dtype), (problem.nu,))
        return jnp.clip(u, problem.lower, problem.upper)

    motion = simulate(
        problem.system,
        problem.enforcement,
        problem.state,
        dt=problem.dt / problem.substeps,
        num_steps=problem.steps * problem.substeps,
        scheme=problem.scheme,
        control=clipped,
        saveat=diffrax.SaveAt(t0=True, steps=problem.substeps),
        throw=False,
    )
    return Guess(motion.q, motion.v, jax.vmap(clipped)(motion.t, motion.q, motion.v))
