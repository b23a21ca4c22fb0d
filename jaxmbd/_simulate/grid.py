"""The time grid and the times to save, from the arguments of `simulate`."""

import math
from collections.abc import Callable
from typing import Annotated, Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._compiler import array_namespace, is_known, need_known, to_jax
from .._equations import specialised
from .._inputs import at_least, conform, finite
from .._sizes import check_fits, check_resolved, check_steps
from .._system import AbstractSystem, State
from .._types import DType, RealScalarLike

# Times within this fraction of a step of a grid point are that grid point.
ON_GRID = 1e-6

# Up to this many saved times, the memory is not checked.
_FEW = 10_000


class Grid(eqx.Module):
    """Times t0, t0 + dt, ... up to t1, which are `whole` steps and, unless `aligned`, a shorter
    last step. Only `aligned` and an integer `whole` are compiled in."""

    t0: RealScalarLike
    t1: RealScalarLike
    dt: RealScalarLike
    whole: Any
    aligned: bool = True

    @property
    def steps(self) -> int:
        return self.whole + (not self.aligned)

    def as_arrays(self, dtype: DType, *, length: bool = False) -> "Grid":
        """The same with arrays, which are not compiled in. With `length` the number of steps is an
        array too."""
        t0, t1, dt = (jnp.asarray(x, dtype) for x in (self.t0, self.t1, self.dt))
        return Grid(t0, t1, dt, jnp.asarray(self.whole) if length else self.whole, self.aligned)


class LoopOptions(eqx.Module):
    """How the loop over the steps is differentiated, how it reports its progress, and after how
    many steps it gives up, if they are adaptive."""

    adjoint: diffrax.AbstractAdjoint
    progress: diffrax.AbstractProgressMeter
    max_steps: int | None = None


def make_grid(
    start: RealScalarLike,
    t1: RealScalarLike | None,
    dt: RealScalarLike | None,
    num_steps: int | None,
    dtype: DType,
    *,
    adaptive: bool = False,
) -> Grid:
    """The grid, from `dt` and either `t1` or `num_steps`, for times of this dtype. For `adaptive`
    integration steps are not counted.

    **Raises:** `ValueError`, which says what to give instead.
    """
    if dt is None or (t1 is None) == (num_steps is None):
        raise ValueError("Give `dt`, and either `t1` or `num_steps`.")
    if np.ndim(start):
        raise ValueError(
            f"`state.t` must be a number, but has shape {np.shape(start)}. Use `jax.vmap` for "
            "batches."
        )
    if num_steps is not None:
        check_steps(num_steps)
        xp = array_namespace(start, dt)
        end = to_jax(xp.asarray(start, dtype) + num_steps * xp.asarray(dt, dtype), dtype)
        check_resolved(start, end, dt, dtype)
        return Grid(start, end, dt, 0 if adaptive else num_steps)
    for name, x, remedy in (
        ("state.t", start, "pass `t0=` as a number, or `num_steps=` instead of `t1`"),
        ("t1", t1, "pass `num_steps=` instead"),
        ("dt", dt, "pass `num_steps=` instead of `t1`"),
    ):
        need_known(
            x, f"`{name}` is traced, so the number of steps is not known when compiling: {remedy}."
        )
    assert t1 is not None
    if not float(t1) > float(start):
        raise ValueError(f"Argument `t1` must be after the start {start}, but is {t1}.")
    steps = (float(t1) - float(start)) / float(dt)
    check_resolved(start, t1, dt, dtype)
    if adaptive:
        return Grid(start, t1, dt, 0)
    check_steps(steps)
    whole = math.floor(steps + ON_GRID)
    return Grid(start, t1, dt, whole, steps - whole <= ON_GRID)


class Saving(eqx.Module):
    """The times to save, and a function of the state whose value is saved in its place."""

    t0: bool
    t1: bool
    ts: Any
    every: int
    fn: Callable | None
    on_grid: bool  # whether all `ts` are times of the grid, known statically
    moving: bool  # whether `ts` or the grid are traced, so that they may have derivatives

    @property
    def ends_only(self) -> bool:
        return self.ts is None and not self.every

    def check_fits(self, state: State, system: AbstractSystem, steps: float | int) -> None:
        """Check that all saved data of this number of steps fit into the memory.

        **Raises:** `ValueError`."""
        given = 0 if self.ts is None else len(self.ts)
        times = self.t0 + self.t1 + given + (steps // self.every if self.every else 0)
        if given:
            check_fits(
                4 * steps,
                f"To find the times `ts` among {steps:.4g} steps takes",
                "save every n-th step by `SaveAt(steps=n)`, or simulate in parts",
            )
        if times < _FEW:
            return
        fn = self.fn

        def at_start(t, q, v, z):
            z = system.initial_internal if z is None else z
            z = None if z is None else jnp.asarray(z, q.dtype)
            return (q, v, z) if fn is None else fn(t, State(t, q, v, z=z), system)

        saved = jax.eval_shape(at_start, state.t, state.q, state.v, state.z)
        one = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(saved))
        check_fits(
            times * (one + state.q.dtype.itemsize),
            f"What is saved at {times:.4g} times takes",
            "save every n-th step by `SaveAt(steps=n)`, only what is of interest by "
            "`SaveAt(fn=...)`, or simulate in parts",
        )

    def output(self, stepper: Any, kept: PyTree) -> Any:
        """(t, the data to save)."""
        state = kept.state
        if self.fn is None:
            return state.t, kept._replace(state=state.bare())
        system = specialised(stepper.problem(state).system, on=False)
        return state.t, self.fn(
            state.t, State(state.t, state.q, state.v, angles=state.angles, z=state.z), system
        )


def make_saving(saveat: diffrax.SaveAt, grid: Grid) -> Saving:
    """The part of `diffrax.SaveAt` that `simulate` supports.

    **Raises:** `ValueError` for the rest, and for times outside of the grid.
    """
    if saveat.dense or saveat.solver_state or saveat.controller_state or saveat.made_jump:
        raise ValueError(
            "Of `diffrax.SaveAt`, simulate supports t0, t1, ts, steps and fn; for dense output "
            "save more times."
        )
    sub = saveat.subs
    if not isinstance(sub, diffrax.SubSaveAt):
        raise ValueError("`saveat` must save something, and not be a tree of `SubSaveAt`.")
    if sub.ts is not None and sub.steps:
        raise ValueError("Give either `ts` or `steps` to `SaveAt`, not both.")
    every = conform("`steps` of SaveAt", sub.steps, Annotated[int, at_least(0)])
    if sub.ts is not None:
        finite("`ts` of SaveAt", sub.ts, shape=("times",))
    on_grid, moving = False, not is_known((sub.ts, grid.t0, grid.t1, grid.dt))
    if sub.ts is not None and not moving:
        steps = (np.asarray(sub.ts, float) - float(grid.t0)) / float(grid.dt)
        on_grid = bool(np.all(np.abs(steps - np.round(steps)) < ON_GRID))
    if sub.ts is not None and is_known((sub.ts, grid.t0, grid.t1)):
        ts, t0, t1 = np.asarray(sub.ts), float(grid.t0), float(grid.t1)
        slack = 1e-6 * (t1 - t0)
        if np.any(np.diff(ts) < 0) or ts[0] < t0 - slack or ts[-1] > t1 + slack:
            raise ValueError(
                f"`SaveAt(ts=...)` must increase within [{t0}, {t1}], but runs from {ts[0]} to "
                f"{ts[-1]}."
            )
    default = diffrax.SubSaveAt(t1=True).fn
    return Saving(
        sub.t0, sub.t1, sub.ts, every, None if sub.fn is default else sub.fn, on_grid, moving
    )
