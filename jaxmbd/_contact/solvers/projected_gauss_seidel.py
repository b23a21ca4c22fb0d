"""Projected Gauss-Seidel: one contact after the other, each projected at once."""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._compiler import entry, materialise, replaced
from ..._inputs import at_least, checked, not_negative
from ..problem import ContactProblem
from ..rows import Impulses
from .base import AbstractContactSolver


@checked
class ProjectedGaussSeidel(AbstractContactSolver):
    """A fixed number of sweeps over the contacts. For each contact the normal impulse is chosen so
    that the contact does not approach, given all other impulses, and set to 0 if it would pull.
    With the new normal impulse each group of friction impulses then moves against its slip and is
    projected on its set. Equality rows take no part: they are eliminated from S and hold exactly
    after any number of sweeps.

    Robust and cheap. Between sweeps the impulses go on in their last direction. Convergence is
    linear, and slow for high stacks, large mass ratios and redundant contacts, for which
    `InteriorPoint` is better. The residual tells the accuracy that was reached.

    **Arguments:** `sweeps`: their number; `tolerance` [m/s] of the residual of a successful result.

    Reference: Algorithm 1 of "MBD presentation logic framework", but projected row by row. The
    printed clamp after the triangular solve has fixed points that do not solve the problem.
    Nesterov (1983), A method of solving a convex programming problem with convergence rate
    O(1/k^2); O'Donoghue and Candes (2015), Adaptive restart for accelerated gradient schemes.
    """

    sweeps: Annotated[int, at_least(1)] = eqx.field(static=True, default=50)
    tolerance: Annotated[float, not_negative] = eqx.field(static=True, default=1e-3)

    def solve(self, problem, guess):
        lam = sweep(problem, guess, self.sweeps)
        return self.solved(problem, lam, jnp.asarray(self.sweeps))


def sweep(
    problem: ContactProblem,
    lam: Impulses,
    sweeps: int | Array,
    among: tuple[Int[Array, " contacts"], Int[Array, ""]] | None = None,
) -> Impulses:
    """Return the impulses after a number of sweeps over all contacts, or over the first ones of a
    list and their number.

    Between them impulses go on in their last direction, further in each sweep (Nesterov 1983). If a
    sweep turns back from there, this starts anew (O'Donoghue and Candes 2015). So news travel
    through a pile in about the square root of the sweeps."""
    groups, S = problem.groups, problem.S
    blocks, (which, count) = S.blocks(), among or (None, jnp.asarray(S.used))
    parts = [slice(i, i + size) for i, size in zip(groups.starts, groups.sizes, strict=True)]
    # The trace bounds the largest eigenvalue of a block, so a step cannot overshoot.
    traces = [jnp.trace(blocks[:, x, x], axis1=1, axis2=2) for x in (slice(1), *parts)]
    per_velocity = [jnp.where(x > 0, 1 / jnp.where(x > 0, x, 1.0), 0.0) for x in traces]

    def change(i, old, sums):
        own = entry(blocks, i)
        z = S.row(i, sums, old) + entry(problem.b, i)
        new = [jnp.maximum(old[0] - entry(per_velocity[0], i) * z[0], 0.0)[None]]
        z = z + own[:, 0] * (new[0][0] - old[0])
        for k, (friction, part) in enumerate(zip(groups.friction, parts, strict=True)):
            step = entry(per_velocity[1 + k], i) * z[part]
            t = friction.project(old[part] - step, problem.mu[i, k] * new[0][0], None)
            z = z + jnp.sum(own[:, part] * (t - old[part])[None], axis=1)
            new.append(t)
        return jnp.concatenate(new) - old

    def one(k, carry):
        at, further, sums, onwards = carry
        i = k if which is None else entry(which, k)
        before, last = entry(at, i)
        start = last + further * (last - before)
        d = change(i, start, sums)
        # In one array, after which nothing reads what is replaced: XLA would copy it.
        found = materialise(
            jnp.concatenate([last, start + d, jnp.sum(d * (start + d - last))[None]])
        )
        here = found[:-1].reshape(2, -1)
        return replaced(at, here, i), further, S.moved(sums, i, d), onwards + found[-1]

    def every(_, at):
        start = at.sums + at.further * (at.sums - at.last_sums)
        lam, _, sums, onwards = jax.lax.fori_loop(0, count, one, (at.lam, at.further, start, none))
        k = jnp.where(onwards < 0, 0.0, at.k + 1)
        return _Sweep(lam, sums, at.sums, k)

    sums, none = S.sums(lam), jnp.zeros((), lam.dtype)
    start = _Sweep(jnp.stack([lam, lam], axis=1), sums, sums, none)
    return jax.lax.fori_loop(0, sweeps, every, start).lam[:, 1]


class _Sweep(NamedTuple):
    """The impulses of a contact before and after a sweep, their sums, and the number of sweeps
    since the last start."""

    lam: Float[Array, "contacts 2 d"]
    sums: Array
    last_sums: Array
    k: Float[Array, ""]

    @property
    def further(self) -> Float[Array, ""]:
        """How far the next sweep goes on in the direction of the last one."""
        return self.k / (self.k + 3)
