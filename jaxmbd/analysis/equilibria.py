"""Several equilibria of a system, from many starts."""

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._checks import with_dtype
from .._compiler import need_known, picked, to_jax
from .._inputs import at_least, checked, positive
from .._linalg import AbstractConstraintSolver, Automatic
from .._printed import counted, in_a_line, printed
from .._results import succeeded
from .._system import AbstractSystem, State
from .._types import RealScalarLike
from .equilibrium import equilibrium


@printed
class Equilibria(eqx.Module):
    """The result of `equilibria`: k distinct equilibria from n starts.

    **Fields:**

    - `state`: a batch of k states with their reports, in the order in which starts found them.
    - `count`: how many starts led to each, `(k,)`.
    - `of_start`: the index of the equilibrium that each start led to, `(n,)`; -1 if it led to none.
    """

    state: State
    count: Int[Array, " k"]
    of_start: Int[Array, " n"]

    def __str__(self) -> str:
        k, n = len(np.asarray(self.count)), self.of_start.shape[0]
        lost = int(np.sum(np.asarray(self.of_start) < 0))
        rows = [f"{k} distinct {'equilibrium' if k == 1 else 'equilibria'} found from {n} starts"]
        if lost:
            rows[0] += f", of which {lost} led to none"
        stable, q = np.asarray(self.state.report.stable), np.asarray(self.state.q)
        for i, (firm, pose, starts) in enumerate(
            zip(stable, q, np.asarray(self.count), strict=True)
        ):
            kind = "stable" if firm else "unstable"
            rows.append(
                f"  {i}: {kind}, from {counted(int(starts), 'start')}, q = {in_a_line(pose)}"
            )
        return "\n".join(rows)


@checked
def equilibria(
    system: AbstractSystem,
    states: State,
    u: PyTree = None,
    *,
    distance: Annotated[float, positive] = 1e-5,
    first: Annotated[RealScalarLike | None, positive] = None,
    tolerance: Annotated[float | None, positive] = None,
    max_iterations: Annotated[int, at_least(1)] = 500,
    solver: AbstractConstraintSolver = Automatic(),
) -> Equilibria:
    """Find the equilibria that several starts lead to, all starts in one `jax.vmap`.

    Small `first`, as by default, finds the stable equilibria into whose basins the starts fall.
    With large `first`, such as 1e3, each start leads by Newton's method to an equilibrium close by,
    stable or not.

    **Arguments:**

    - `states`: a batch of starts: q of shape `(n, nq)` and v of shape `(n, nv)`.
    - `distance`: the largest component of the displacement up to which two equilibria are the same.
    - The others as in `equilibrium`.

    **Returns:** `Equilibria`. Starts that fail are counted out, not raised. The function cannot be
    traced, since the number of equilibria is not known.

    **Raises:** `ValueError` for traced numbers and for states without a leading axis.
    """
    need_known(
        (system, states, u),
        "`equilibria` counts what it finds, which needs concrete numbers. Inside `jax.jit`, use "
        "`jax.vmap` of `equilibrium` with `throw=False`.",
    )
    if states.q.ndim != 2 or states.v.ndim != 2:
        raise ValueError(
            "`states` of equilibria needs q of shape (n, nq) and v of shape (n, nv), but they have "
            f"{states.q.shape} and {states.v.shape}."
        )
    system, u = with_dtype((system, u), states.q.dtype)
    t = to_jax(np.broadcast_to(np.asarray(states.t, states.q.dtype), states.q.shape[:1]))
    found = _all(system, t, states, u, first, tolerance, max_iterations, solver)
    good = succeeded(found.report.result)
    near = np.asarray(_distances(system, found.q)) <= distance
    which, firsts = np.full(len(good), -1), []
    for i in np.flatnonzero(good):
        same = [k for k, j in enumerate(firsts) if near[j, i]]
        if not same:
            firsts.append(i)
        which[i] = same[0] if same else len(firsts) - 1
    different = jax.tree.map(lambda x: picked(x, np.array(firsts, int)), found)
    count = np.bincount(which[which >= 0], minlength=len(firsts))
    return Equilibria(different, to_jax(count), to_jax(which))


@eqx.filter_jit
def _all(system, t, states, u, first, tolerance, max_iterations, solver):
    options: Any = dict(first=first, tolerance=tolerance, max_iterations=max_iterations)
    options |= dict(solver=solver, throw=False)
    starts = State(t, states.q, states.v)
    return jax.vmap(lambda start: equilibrium(system, start, u, **options))(starts)


@eqx.filter_jit
def _distances(system: AbstractSystem, q: Float[Array, "n nq"]) -> Float[Array, "n n"]:
    def apart(q0, q1):
        return jnp.max(jnp.abs(system.difference(q0, q1)), initial=0.0)

    return jax.vmap(lambda q0: jax.vmap(lambda q1: apart(q0, q1))(q))(q)
