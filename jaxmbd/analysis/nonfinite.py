"""The origin of the first NaN in a motion or in its derivative."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import check_no_internal, with_dtype
from .._compiler import need_known, picked, to_jax
from .._inputs import at_least, checked, not_negative_or_infinite, positive
from .._methods import (
    AbstractEnforcement,
    Projection,
    SimulationProblem,
    StepperState,
    finite,
    without_past,
)
from .._printed import printed
from .._results import RESULTS, succeeded
from .._simulate import LoopOptions, Saved, Saving, Solution, integrate_fixed, make_grid, observed
from .._sizes import check_fits
from .._step import Stepper, checked_start
from .._system import AbstractSystem, State
from .._types import Control, RealScalarLike
from .terms import (
    JACOBIAN,
    SOLUTIONS,
    At,
    derivative,
    element,
    entries_not_finite,
    first_term,
    line_of_nan,
    numbers,
    pulled,
    terms,
    value,
)

_EVERY_STEP = Saving(t0=True, t1=True, ts=None, every=1, fn=None, on_grid=False, moving=False)


class StepwiseMotion(NamedTuple):
    """All states of a motion, the number of good steps (`done`), and the verdict."""

    stepper: Stepper
    control: Control | None
    saved: Saved
    done: Int[Array, ""] | None
    result: RESULTS

    @property
    def states(self) -> StepperState:
        return self.saved.state

    def at(self, i: int) -> StepperState:
        return jax.tree.map(lambda x: picked(x, i), self.states)

    def problem(self, i: int) -> SimulationProblem:
        """The problem with the rows that act in state i."""
        return self.stepper.problem(self.at(i), self.control)

    def points(self, visited: "VisitedPoints", i: int) -> list[At]:
        """The points at which step i evaluates the equations, its start first."""
        visited.points.clear()
        state = self.at(i)
        if i + 1 < len(self.states.t):
            t = np.asarray(self.states.t)
            h = to_jax(t[i + 1] - t[i])
            watched = Watched(self.control, visited)
            jax.block_until_ready(_stepped(self.stepper, watched, state, h))
            jax.effects_barrier()
        start = At(state.t, state.q, state.v)
        later = sorted(visited.points, key=lambda at: float(at.t))
        return [start, *(at for at in later if not entries_not_finite((at.q, at.v)))]


class VisitedPoints:
    """A list of points. It equals only itself, so no compiled step writes into another call's."""

    def __init__(self):
        self.points: list[At] = []


class Watched(eqx.Module):
    """A control that records the points at which it is evaluated: the stages of each step."""

    control: Control | None
    visited: VisitedPoints = eqx.field(static=True)

    def __call__(self, t, q, v):
        jax.debug.callback(lambda *at: self.visited.points.append(At(*at)), t, q, v)
        return None if self.control is None else self.control(t, q, v)


@eqx.filter_jit
def run(stepper: Stepper, control: Control | None, q, v, grid, tolerance) -> StepwiseMotion:
    _, saved, result, stats = integrate_fixed(
        stepper,
        control,
        checked_start(stepper, grid.t0, q, v, tolerance),
        grid,
        _EVERY_STEP,
        None,
        LoopOptions(diffrax.ForwardMode(), diffrax.NoProgressMeter()),
    )
    return StepwiseMotion(stepper, control, saved, stats["num_steps"], result)


@eqx.filter_jit
def _stepped(stepper, control, state, h) -> StepperState:
    """Take the step from a saved state."""
    begun = without_past(state.t, state.q, state.v)
    problem = stepper.problem(state, control)
    state = problem.enforcement.anew(problem, state)
    state = state.replace(lost=begun.lost, result=begun.result)
    return stepper.step(state, h, control).bare()


@eqx.filter_jit
def solution_of(motion: StepwiseMotion) -> Solution:
    stats = {"num_steps": motion.done}
    return observed(motion.stepper, motion.control, motion.saved, stats, motion.result)


@eqx.filter_jit
def seeds_of(motion: StepwiseMotion, loss) -> tuple[Array, StepwiseMotion]:
    """The loss, and its derivative with respect to the numbers of the motion."""

    def fn(motion):
        return loss(solution_of(motion))

    return fn(motion), pulled(fn, motion)[0]


@eqx.filter_jit
def reversed_sweep(
    motion: StepwiseMotion, seeds: StepwiseMotion
) -> tuple[Array, Array, StepwiseMotion]:
    """Differentiate in reverse, step by step. Return for each step whether the derivatives are
    finite after its reverse pass and how large they were before it; and the derivatives with
    respect to the stepper, the control and the state at the start."""
    parts, rest = eqx.partition((motion.stepper, motion.control), eqx.is_inexact_array)
    before = jax.tree.map(lambda x: x[:-1], motion.states)
    moving, fixed = eqx.partition(before, eqx.is_inexact_array)

    def back(carry, given):
        by_end, by_parts = carry
        h, moving, fixed, seed = given

        def step(parts, moving):
            stepper, control = eqx.combine(parts, rest)
            return numbers(_stepped(stepper, control, eqx.combine(moving, fixed), h))

        _, pull = jax.vjp(step, parts, moving)
        more, by_start = pull(by_end)
        by_start, by_parts = jax.tree.map(jnp.add, (by_start, by_parts), (seed, more))
        size = jnp.max(jnp.abs(jnp.concatenate([by_end.q, by_end.v])))
        return (by_start, by_parts), (finite((by_start, more)), size)

    last = jax.tree.map(lambda x: x[-1], seeds.states)
    earlier = jax.tree.map(lambda x: x[:-1], seeds.states)
    given = (jnp.diff(motion.states.t), moving, fixed, earlier)
    carry = (last, (seeds.stepper, seeds.control))
    (by_start, (stepper, control)), (good, sizes) = jax.lax.scan(back, carry, given, reverse=True)
    total = StepwiseMotion(stepper, control, Saved(by_start, None), None, motion.result)
    return good, sizes, total


# A motion has blown up if its state is so many times larger than the velocities at the start.
# Derivatives of the second size are about to overflow. At most so many leaves are listed.
_GROWN, _HUGE, _LISTED = 1e6, 1e30, 6


@printed
class NonfiniteOrigin(NamedTuple):
    """The result of `first_nonfinite`; `print` it.

    **Fields:**

    - `quantity`: the first quantity that is not finite; empty if everything is finite.
    - `derivative`: whether the quantity is finite, but its derivative is not.
    - `element`: the body, joint or force of a mechanism that it belongs to; empty if there is none.
    - `entry`: the index of its first entry that is not finite; `None` for derivatives.
    - `leaves`: for a derivative, the numbers with respect to which it is not finite: leaves of
      `.system`, `.control`, ..., and `.q`, `.v` of the state.
    - `step`: the number of the step, from 0. `state`: the state at its start, which is the last
      good one. Both are `None` if no step is to blame.
    - `line`: the line of your code that the first NaN comes from, if it is known.
    - `result`: the verdict on the motion.
    - `remark`: anything else that is known.
    """

    quantity: str = ""
    derivative: bool = False
    element: str = ""
    entry: tuple[int, ...] | None = None
    leaves: tuple[str, ...] = ()
    step: int | None = None
    state: State | None = None
    line: str | None = None
    result: RESULTS = RESULTS.successful
    remark: str = ""

    @property
    def found(self) -> bool:
        """Whether something is not finite, or the motion failed."""
        return bool(self.quantity)

    def __str__(self) -> str:
        if not self.found:
            return f"All numbers are finite. {self.remark}".rstrip()
        what = self.quantity if not self.element else f"{self.quantity}, {self.element},"
        by = ""
        if self.derivative:
            head = f"the derivative of {what} is not finite"
            by = f", by {', '.join(self.leaves)}" if self.leaves else ""
        elif self.entry is None:
            head = f"{what} failed"
        else:
            head = f"{what} is not finite"
            by = f", first in entry {list(self.entry)}" if self.entry else ""
        if self.step is not None and self.state is not None:
            head = f"step {self.step}, from t = {float(self.state.t):.8g} s: {head}"
        lines = [head + by]
        lines += [f"  {self.line}"] if self.line else []
        lines += [f"  {self.remark}"] if self.remark else []
        return "\n".join(lines)


@checked
def first_nonfinite(
    system: AbstractSystem,
    enforcement: AbstractEnforcement,
    state: State,
    t1: RealScalarLike | None = None,
    dt: Annotated[RealScalarLike | None, positive] = None,
    *,
    t0: float | None = None,
    num_steps: Annotated[int | None, at_least(1)] = None,
    scheme: diffrax.AbstractSolver | None = None,
    control: Control | None = None,
    projection: Projection | None = None,
    loss: Callable[[Solution], Float[Array, ""]] | None = None,
    start_tolerance: Annotated[RealScalarLike, not_negative_or_infinite] = 1e-3,
) -> NonfiniteOrigin:
    """Find the origin of the first NaN or infinity in a motion or in a gradient.

    Call it in place of `simulate`, with the arguments of a call that fails, at fixed steps. It
    takes the same steps and examines the one that fails. At each point at which the scheme
    evaluates the equations, it checks their terms one after the other, in a mechanism element by
    element.

    **Arguments:** as in `simulate`, and

    - `loss`: a function of the `Solution` with the states of all steps, from the start on. If the
      motion is finite, its derivative is checked, with respect to the system, the control, the
      enforcement and the state. The derivative is computed step by step from the end to the start,
      as in reverse mode. The first failing step in this order is reported. Unless your loss itself
      fails, any loss that depends on the end will do, such as `lambda sol: jnp.sum(sol.q[-1])`.

    **Returns:** a `NonfiniteOrigin`. A motion that fails does not raise. All states are kept in
    memory.

    **Raises:** `ValueError` inside of `jax.jit`, `jax.vmap` or `jax.grad`, and for input of wrong
    shape.
    """
    inputs = {"system": system, "control": control, "enforcement": enforcement, "state": state}
    need_known(
        (inputs, t1, dt),
        "`first_nonfinite` looks at values: call it outside of `jax.jit`, `jax.vmap` and "
        "`jax.grad`, with the numbers for which the simulation fails.",
    )
    for name, tree in inputs.items():
        if bad := entries_not_finite(tree, np.isnan):
            path, entry = bad[0]
            return NonfiniteOrigin(f"the given `{name}{path}`", entry=entry)

    check_no_internal(system)
    dtype = state.q.dtype
    stepper = Stepper(system, enforcement, scheme, projection)
    stepper, control = with_dtype((stepper, control), dtype)
    grid = make_grid(state.t if t0 is None else t0, t1, dt, num_steps, dtype)
    check_fits(
        grid.steps * (1 + state.q.size + state.v.size) * dtype.itemsize,
        f"All states of {grid.steps:.4g} steps take",
        "look at a later part, from a state shortly before the failure, in fewer `num_steps`",
    )
    tolerance = to_jax(np.asarray(start_tolerance, dtype))
    q, v = with_dtype((state.q, state.v), dtype)
    motion = run(stepper, control, q, v, grid.as_arrays(dtype), tolerance)
    if not succeeded(motion.result):
        return _in_motion(motion)
    if loss is None:
        return NonfiniteOrigin(remark="For derivatives give `loss`.")
    return _in_derivative(motion, loss)


def _in_motion(motion: StepwiseMotion) -> NonfiniteOrigin:
    i = int(np.asarray(motion.done))
    here, problem = motion.at(i), motion.problem(i)
    t, q, v = here.t, here.q, here.v
    origin = NonfiniteOrigin("the step", step=i, state=State(t, q, v), result=motion.result)
    verdict, grown = str(RESULTS[motion.result]), ""
    largest = np.max(np.abs(np.concatenate([q, v])))
    if largest > _GROWN * (1 + np.max(np.abs(np.asarray(motion.states.v)[0]))):
        grown = f"The motion blew up before: q and v are up to {largest:.1e}. "
    if found := first_term(value, problem, motion.points(VisitedPoints(), i)):
        name, at, bad = found
        singular = _conditioning(problem, at) + verdict if name in SOLUTIONS else ""
        return origin._replace(
            quantity=name,
            element=element(problem.system, problem, at, name, False),
            entry=bad[0][1],
            line=line_of_nan(lambda at: terms(problem)[name](problem, at), at),
            remark=(grown + singular).strip(),
        )
    start = At(t, q, v)
    return origin._replace(remark=grown + _conditioning(problem, start) + verdict)


def _conditioning(problem: SimulationProblem, at: At) -> str:
    """Why the equations are singular, in words."""
    found = value(problem, at, ("`mass_matrix`", JACOBIAN))
    M, (_, J) = found["`mass_matrix`"], found[JACOBIAN]
    text = ""
    if not entries_not_finite(M):
        eigenvalues = np.linalg.eigvalsh(np.asarray(M))
        if eigenvalues[0] <= len(eigenvalues) * np.finfo(M.dtype).eps * eigenvalues[-1]:
            text += f"The mass matrix has eigenvalues from {eigenvalues[0]:.2g} to "
            text += f"{eigenvalues[-1]:.2g}. "
    if not entries_not_finite(J) and J.size:
        rank = np.linalg.matrix_rank(np.asarray(J))
        if rank < len(J):
            text += f"The {len(J)} rows of constraints have rank {rank}. "
    return text


def _in_derivative(motion: StepwiseMotion, loss) -> NonfiniteOrigin:
    height, seeds = seeds_of(motion, loss)
    if bad := entries_not_finite(height):
        line = line_of_nan(loss, solution_of(motion))
        return NonfiniteOrigin("`loss`", entry=bad[0][1], line=line)
    if bad := entries_not_finite(seeds.states):
        line = line_of_nan(lambda sol: pulled(loss, sol), solution_of(motion))
        (path, (step, *entry)) = bad[0]
        which = f"sol{path}{[step, *entry]}"
        return NonfiniteOrigin("`loss`", derivative=True, leaves=(which,), line=line)
    good, sizes, total = reversed_sweep(motion, seeds)
    bad = np.flatnonzero(~np.asarray(good))
    if not len(bad):
        return NonfiniteOrigin(remark="So are the derivatives of the loss.")
    i = int(bad[-1])
    by = [path for path, _ in entries_not_finite(total.stepper)]
    by += [".control" + path for path, _ in entries_not_finite(total.control)]
    by += ["the start"] if entries_not_finite(total.states) else []
    remark = f"Not finite in the end are those of the loss by {', '.join(by[-_LISTED:])}."
    size = np.asarray(sizes)[i]
    if size > _HUGE:
        remark = (
            f"Derivatives had grown to {size:.1e} on the way back from the end: "
            f"`tangent_growth` tells how far they reach. {remark}"
        )
    origin = NonfiniteOrigin(
        "the step",
        derivative=True,
        step=i,
        state=State(*(picked(x, i) for x in (motion.states.t, motion.states.q, motion.states.v))),
        remark=remark,
    )
    problem = motion.problem(i)
    if found := first_term(derivative, problem, motion.points(VisitedPoints(), i)):
        name, at, bad = found
        return origin._replace(
            quantity=name,
            element=element(problem.system, problem, at, name, True),
            leaves=tuple(_named(path) for path, _ in bad[:_LISTED]),
            line=line_of_nan(lambda at: pulled(terms(problem)[name], problem, at), at),
        )
    return origin


def _named(path: str) -> str:
    """Strip the index of the argument from the path of a leaf: `.system.length`, `.q`."""
    return path[3:]
