"""Projected Gauss-Seidel: one contact after the other, each projected at once."""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._compiler import entry, replaced
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

    def change(i, lam, sums):
        old, own = entry(lam, i), entry(blocks, i)
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
        lam, sums = carry
        i = k if which is None else entry(which, k)
        d = change(i, lam, sums)
        return replaced(lam, entry(lam, i) + d, i), S.moved(sums, i, d)

    def every(_, at):
        lam, sums = jax.lax.fori_loop(0, count, one, (at.start, at.start_sums))
        turns_back = jnp.sum((at.start - lam) * (lam - at.lam)) > 0
        k = jnp.where(turns_back, 0.0, at.k + 1)
        further = k / (k + 3)
        start = lam + further * (lam - at.lam)
        return _Sweep(lam, sums, start, sums + further * (sums - at.sums), k)

    sums, none = S.sums(lam), jnp.zeros((), lam.dtype)
    return jax.lax.fori_loop(0, sweeps, every, _Sweep(lam, sums, lam, sums, none)).lam


class _Sweep(NamedTuple):
    """The impulses after a sweep and their sums, those from which the next one starts, and the
    number of sweeps since the last start."""

    lam: Impulses
    sums: Array
    start: Impulses
    start_sums: Array
    k: Float[Array, ""]
