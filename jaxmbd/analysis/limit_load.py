"""The load at which an equilibrium is lost."""

from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._compiler import need_known, to_jax
from .._inputs import at_least, checked, positive
from .._linalg import AbstractConstraintSolver, Automatic
from .._printed import judged, printed
from .._progress import progress_bar, says_when_compiling
from .._raising import raise_failure
from .._results import RESULTS, succeeded
from .._system import State
from .continuation import Family, SystemFamily, family_of
from .equilibrium import equilibrium


@printed
class LimitLoad(eqx.Module):
    """The result of `limit_load`.

    **Fields:**

    - `parameter`: the largest parameter, counted from the start, at which the equilibrium holds;
      `beyond`: the next one that was tried, at which it is lost. Both are the end if it `holds` up
      to there.
    - `state`: the equilibrium at `parameter`. `state.report.share` is 1 for contacts that are about
      to slip, and `state.report.closed` tells which contacts still carry load.
    - `after`: where the system goes at `beyond`; `after.report.result` tells whether it rests.
    - `holds`: whether the equilibrium holds up to the end.
    - `result`: `RESULTS.successful`; `equilibrium_not_found` if there is none at the start;
      `continuation_stopped` if `max_points` was reached.
    """

    parameter: float
    beyond: float
    state: State
    after: State
    holds: bool
    result: RESULTS

    def __str__(self) -> str:
        found = f"The equilibrium is lost between {self.parameter:.8g} and {self.beyond:.8g}."
        if self.holds:
            found = f"The equilibrium holds up to {self.parameter:.6g}."
        return judged(self.result, found, "no limit load found")


@checked
@says_when_compiling("limit_load")
def limit_load(
    family: SystemFamily,
    state: State,
    start: float,
    end: float,
    u: PyTree = None,
    *,
    step: Annotated[float, positive] = 0.1,
    jump: Annotated[float, positive] = 0.05,
    tolerance: Annotated[float, positive] = 1e-6,
    max_points: Annotated[int, at_least(1)] = 500,
    max_iterations: Annotated[int, at_least(1)] = 500,
    solver: AbstractConstraintSolver = Automatic(),
    progress: bool = True,
    throw: bool = True,
) -> LimitLoad:
    """Find the load at which an equilibrium is lost, with contacts and friction or without: a block
    slips, a ladder slides down, a box tips over, a truss snaps through.

    The parameter grows in steps, and each equilibrium is searched from the one before. The
    equilibrium is lost where there is none, or where the next one is not nearby. The step is then
    halved, until the parameter is known to `tolerance`.

    Equilibria with friction depend on the way to them. Here a load grows
    slowly. A contact that slips and comes to rest nearby, as one with a spring does, is no loss:
    see `state.report.share`.

    **Arguments:**

    - `family`, `u`, `solver`: as in `continuation`; the parameter may be a load, an angle, a place.
    - `state`: an equilibrium at `start`, or a state from which `equilibrium` finds it.
    - `start`, `end`: the range of the parameter, in the order in which it changes.
    - `step`, `tolerance`: the largest step and the accuracy, as shares of the range.
    - `jump`: the change of a coordinate [m or rad] from one parameter to the next, however close
      they are, that counts as a loss.
    - `max_points`: the largest number of equilibria; `max_iterations`: of one search.
    - `throw`: raise if `result` is not successful.

    **Returns:** a `LimitLoad`. The function runs in Python and cannot be traced.

    **Raises:** `ValueError` for arguments of wrong shape; a run-time error if `result` is not
    successful and `throw` is true.
    """
    if start == end:
        raise ValueError(f"`end` of limit_load must differ from `start`, but both are {start}.")
    need_known((state, u), "`limit_load` runs in Python and cannot be traced.")
    problem, state = family_of(family, state, u, solver, "limit_load", contacts=True)

    def settled(x: float, q: Array) -> tuple[State, bool, float]:
        rest, moved = _rest_at(problem, to_jax(x, q.dtype), q, state.v, max_iterations)
        return rest, bool(succeeded(rest.report.result)), float(moved)

    here, found, _ = settled(start, state.q)
    if not found:
        result = RESULTS.equilibrium_not_found
        limit = LimitLoad(start, start, here, here, False, result)
        return raise_failure(limit, result) if throw else limit
    x, lost, after, narrow = start, None, here, tolerance * abs(end - start)
    stride, steps = step * (end - start), 1
    with progress_bar(max_points, "limit_load", progress) as bar:
        while x != end and steps < max_points:
            # Without a parameter at which it is lost, go on; with one, halve the distance to it.
            # What moved too far from the last state may be near this one, so it is tried again.
            final = lost is not None and abs(lost - x) <= narrow
            if lost is None:
                tried = end if abs(end - x) <= abs(stride) else x + stride
            else:
                tried = lost if final else (x + lost) / 2
            new, found, moved = settled(tried, here.q)
            steps += 1
            bar.update(1)
            if found and moved <= jump:
                x, here, lost = tried, new, None if tried == lost else lost
                if lost is not None and _near(after, here, jump):
                    x, here, lost = lost, after, None
            else:
                lost, after = tried, new
                if final:
                    break
    holds = x == end
    if holds:
        lost, after = x, here
    done = holds or (lost is not None and abs(lost - x) <= narrow)
    result = RESULTS.successful if done else RESULTS.continuation_stopped
    limit = LimitLoad(float(x), float(x if lost is None else lost), here, after, holds, result)
    return raise_failure(limit, result) if throw else limit


@eqx.filter_jit
def _rest_at(problem: Family, x, q, v, max_iterations: int):
    """The equilibrium at x from q, and the largest displacement there."""
    system, u = problem.member(x, q.dtype)
    options: Any = dict(max_iterations=max_iterations, solver=problem.solver, throw=False)
    rest = equilibrium(system, State(problem.t, q, v), u, **options)
    return rest, jnp.max(jnp.abs(system.difference(q, rest.q)), initial=0.0)


def _near(after: State, here: State, jump: float) -> bool:
    """Whether the state beyond is an equilibrium near this one, so that only the step was long."""
    if not succeeded(after.report.result):
        return False
    return bool(np.max(np.abs(np.asarray(after.q) - np.asarray(here.q)), initial=0.0) <= jump)
