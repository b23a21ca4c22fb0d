"""Where the first NaN of a motion, or of its derivative, comes from."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._checks import is_concrete
from .._enforcement.base import AbstractEnforcement
from .._enforcement.projection import Projection
from .._enforcement.stepping import AbstractStepper, Problem
from .._fixed import finite, integrate_fixed
from .._results import RESULTS
from .._saving import Saving, make_grid
from .._setup import judged_start, ready_stepper
from .._simulate import observed
from .._solution import Solution
from .._system import AbstractSystem, State
from .._types import Control, RealScalarLike
from .elements import element
from .terms import (
    JACOBIAN,
    SOLUTIONS,
    At,
    derivative,
    entries_not_finite,
    first_term,
    line_of_nan,
    numbers,
    pulled,
    terms,
    value,
)

_EVERY_STEP = Saving(t0=True, t1=True, ts=None, every=1, fn=None, on_grid=False)

# Names of parts of the state in a solution.
_PARTS = {"[0]": "sol.q", "[1]": "sol.v"}
# States that are so many times larger than the velocities of the start have blown up; derivatives
# of the other size are about to overflow. How many leaves are named.
_GROWN, _HUGE, _LISTED = 1e6, 1e30, 6


class NonfiniteOrigin(NamedTuple):
    """What `first_nonfinite` found; `print` it.

    **Fields:**

    - `quantity`: what is not finite first; empty if everything is finite.
    - `derivative`: whether it is finite itself, but its derivative is not.
    - `element`: which body, joint or force of a mechanism that is; empty if it is none.
    - `entry`: index of the first entry of the quantity that is not finite; `None` for derivatives.
    - `leaves`: of a derivative, by which numbers it is not finite: of `.system`, `.control`, ...,
      and `.q`, `.v` of the state.
    - `step`: number of the step, from 0; `state`: at its start, the last good one. `None` if no
      step is to blame.
    - `line`: the line of your code that the first NaN comes from, as far as it can be told.
    - `result`: the verdict on the motion.
    - `remark`: what else is known.
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


def first_nonfinite(
    system: AbstractSystem,
    enforcement: AbstractEnforcement,
    state: State,
    t1: RealScalarLike | None = None,
    dt: RealScalarLike | None = None,
    *,
    t0: float | None = None,
    num_steps: int | None = None,
    scheme: diffrax.AbstractSolver | None = None,
    control: Control | None = None,
    projection: Projection | None = None,
    loss: Callable[[Solution], Float[Array, ""]] | None = None,
    start_tolerance: ArrayLike = 1e-3,
) -> NonfiniteOrigin:
    """Find where the first NaN or infinity of a motion comes from, or that of a gradient.

    Write it in place of `simulate`, with the arguments of a call that fails, at fixed steps. The
    same steps are taken, and the one that fails is taken apart: at each point at which its scheme
    evaluates the equations, their terms are looked at one after the other, in a mechanism element
    by element.

    **Arguments:** those of `simulate`, and

    - `loss`: to look at its derivative, if the motion is finite; a function of the `Solution` with
      the states of all steps, from the start on. The derivative is taken step by step from the end
      to the start as reverse mode does, by everything: the system, the control, the enforcement and
      the state. Reported is the step that comes first in this order. Any loss that depends on the
      end will do, such as `lambda sol: jnp.sum(sol.q[-1])`, unless it is the loss itself.

    **Returns:** a `NonfiniteOrigin`; nothing is raised for a motion that fails. All states are kept
    in memory.

    **Raises:** `ValueError` inside of `jax.jit`, `jax.vmap` or `jax.grad`, and for input of wrong
    shape.
    """
    inputs = {"system": system, "control": control, "enforcement": enforcement, "state": state}
    if not all(map(is_concrete, jax.tree.leaves((inputs, t1, dt)))):
        raise ValueError(
            "`first_nonfinite` looks at values: call it outside of `jax.jit`, `jax.vmap` and "
            "`jax.grad`, with the numbers for which the simulation fails."
        )
    for name, tree in inputs.items():
        if bad := entries_not_finite(tree, jnp.isnan):
            path, entry = bad[0]
            return NonfiniteOrigin(f"the given `{name}{path}`", entry=entry)

    def stepper_with(control):
        return ready_stepper(system, enforcement, state, scheme, control, projection)

    grid = make_grid(state.t if t0 is None else t0, t1, dt, num_steps).as_arrays(state.q.dtype)
    tolerance = jnp.asarray(start_tolerance, state.q.dtype)
    motion = _motion(stepper_with(control), state.q, state.v, grid, tolerance)
    watching = stepper_with(_Watched(control, _Record()))
    if motion.result != RESULTS.successful:
        return _in_motion(motion, watching)
    if loss is None:
        return NonfiniteOrigin(remark="For derivatives give `loss`.")
    return _in_derivative(motion, watching, loss)


class _Motion(NamedTuple):
    """All states, the number of good steps, and the verdict."""

    stepper: AbstractStepper
    t: Float[Array, " ns"]
    ys: Any
    done: Any
    result: RESULTS

    def at(self, i: int) -> Any:
        return jax.tree.map(lambda x: x[i], self.ys)

    def problem(self, i: int) -> Problem:
        """With the rows that act in the state i."""
        system = self.stepper.system(self.at(i))
        return eqx.tree_at(lambda p: p.system, self.stepper.problem, system)

    def points(self, watching: AbstractStepper, i: int) -> list[At]:
        """At which the step i evaluates the equations, its start first."""
        watched = watching.problem.control.record.points  # pyright: ignore
        watched.clear()
        y = self.at(i)
        if i + 1 < len(self.t):
            jax.block_until_ready(_step(watching, self.t[i], self.t[i + 1], y))
            jax.effects_barrier()
        start = At(self.t[i], y[0], y[1])
        later = sorted(watched, key=lambda at: float(at.t))
        return [start, *(at for at in later if not entries_not_finite((at.q, at.v)))]


class _Record:
    """Equal to itself only, so that no compiled step writes into the record of another call."""

    def __init__(self):
        self.points: list[At] = []


class _Watched(eqx.Module):
    """A control that writes down where it is asked: at the stages of each step."""

    control: Control | None
    record: _Record = eqx.field(static=True)

    def __call__(self, t, q, v):
        jax.debug.callback(lambda *at: self.record.points.append(At(*at)), t, q, v)
        return None if self.control is None else self.control(t, q, v)


@eqx.filter_jit
def _motion(stepper, q, v, grid, tolerance) -> _Motion:
    y, scheme_state = stepper.start(grid.t0, grid.dt, q, v)
    t, ys, result, stats = integrate_fixed(
        stepper,
        y,
        scheme_state,
        judged_start(stepper, y, grid.t0, tolerance),
        grid,
        jnp.asarray(jnp.inf, q.dtype),
        _EVERY_STEP,
        diffrax.ForwardMode(),
        diffrax.NoProgressMeter(),
    )
    return _Motion(stepper, t, ys, stats["num_steps"], result)


@eqx.filter_jit
def _step(stepper, t, t_next, y):
    _, scheme_state = stepper.start(t, t_next - t, y[0], y[1])
    return stepper.step(t, t_next, y, scheme_state).y


def _in_motion(motion: _Motion, watching: AbstractStepper) -> NonfiniteOrigin:
    i = int(motion.done)
    q, v, problem = motion.ys[0][i], motion.ys[1][i], motion.problem(i)
    origin = NonfiniteOrigin(
        "the step", step=i, state=State(motion.t[i], q, v), result=motion.result
    )
    verdict, grown = str(RESULTS[motion.result]), ""
    largest = float(jnp.max(jnp.abs(jnp.concatenate([q, v]))))
    if largest > _GROWN * (1 + float(jnp.max(jnp.abs(motion.ys[1][0])))):
        grown = f"The motion blew up before: q and v are up to {largest:.1e}. "
    if found := first_term(value, problem, motion.points(watching, i)):
        name, at, bad = found
        singular = _conditioning(problem, at) + verdict if name in SOLUTIONS else ""
        return origin._replace(
            quantity=name,
            element=element(problem.system, problem, at, name, False),
            entry=bad[0][1],
            line=line_of_nan(lambda at: terms(problem)[name](problem, at), at),
            remark=(grown + singular).strip(),
        )
    start = At(motion.t[i], q, v)
    return origin._replace(remark=grown + _conditioning(problem, start) + verdict)


def _conditioning(problem: Problem, at: At) -> str:
    """What makes the equations singular, in words."""
    M, (_, J) = value(problem, at, "`mass_matrix`"), value(problem, at, JACOBIAN)
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


def _in_derivative(motion: _Motion, watching: AbstractStepper, loss) -> NonfiniteOrigin:
    height, seeds = _seeds(motion, loss)
    if bad := entries_not_finite(height):
        return NonfiniteOrigin("`loss`", entry=bad[0][1], line=line_of_nan(loss, _solution(motion)))
    if bad := entries_not_finite(seeds.ys):
        line = line_of_nan(lambda sol: pulled(loss, sol), _solution(motion))
        (path, (step, *entry)) = bad[0]
        which = f"{_PARTS.get(path, 'ys' + path)}{[step, *entry]}"
        return NonfiniteOrigin("`loss`", derivative=True, leaves=(which,), line=line)
    good, sizes, total = _sweep(motion, seeds)
    bad = np.flatnonzero(~np.asarray(good))
    if not len(bad):
        return NonfiniteOrigin(remark="So are the derivatives of the loss.")
    i = int(bad[-1])
    by = [_named(path) for path, _ in entries_not_finite(total.stepper)]
    by += ["the start"] if entries_not_finite(total.ys) else []
    remark = f"Not finite in the end are those of the loss by {', '.join(by[-_LISTED:])}."
    if float(sizes[i]) > _HUGE:
        remark = (
            f"Derivatives had grown to {float(sizes[i]):.1e} on the way back from the end: "
            f"`tangent_growth` tells how far they reach. {remark}"
        )
    origin = NonfiniteOrigin(
        "the step",
        derivative=True,
        step=i,
        state=State(motion.t[i], motion.ys[0][i], motion.ys[1][i]),
        remark=remark,
    )
    problem = motion.problem(i)
    if found := first_term(derivative, problem, motion.points(watching, i)):
        name, at, bad = found
        return origin._replace(
            quantity=name,
            element=element(problem.system, problem, at, name, True),
            leaves=tuple(_named(path) for path, _ in bad[:_LISTED]),
            line=line_of_nan(lambda at: pulled(terms(problem)[name], problem, at), at),
        )
    return origin


def _named(path: str) -> str:
    """`.system.length`, `.q`, from where it stands in the arguments or in a stepper."""
    for start in (".problem", "[0]", "[1]"):
        path = path.split(start, 1)[-1]
    return path


def _solution(motion: _Motion) -> Solution:
    stats = {"num_steps": motion.done}
    return observed(motion.stepper, motion.t, motion.ys, stats, motion.result)


@eqx.filter_jit
def _seeds(motion: _Motion, loss) -> tuple[Any, _Motion]:
    """The loss, and its derivative by the numbers of the motion."""

    def fn(motion):
        return loss(_solution(motion))

    return fn(motion), pulled(fn, motion)[0]


@eqx.filter_jit
def _sweep(motion: _Motion, seeds: _Motion) -> tuple[Any, Any, _Motion]:
    """Reverse mode, step by step: whether derivatives are finite after each step, how large they
    were before, and those by the stepper and by the state at the start."""
    parts, rest = eqx.partition(motion.stepper, eqx.is_inexact_array)
    before = jax.tree.map(lambda x: x[:-1], motion.ys)
    moving, fixed = eqx.partition(before, eqx.is_inexact_array)

    def back(carry, given):
        by_end, by_parts = carry
        t, t_next, moving, fixed, seed = given

        def step(parts, moving):
            stepper = eqx.combine(parts, rest)
            return numbers(_step(stepper, t, t_next, eqx.combine(moving, fixed)))

        _, pull = jax.vjp(step, parts, moving)
        more, by_start = pull(by_end)
        by_start, by_parts = jax.tree.map(jnp.add, (by_start, by_parts), (seed, more))
        size = jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x in jax.tree.leaves(by_end[:2])]))
        return (by_start, by_parts), (finite((by_start, more)), size)

    last = jax.tree.map(lambda x: x[-1], seeds.ys)
    earlier = jax.tree.map(lambda x: x[:-1], seeds.ys)
    given = (motion.t[:-1], motion.t[1:], moving, fixed, earlier)
    end, (good, sizes) = jax.lax.scan(back, (last, seeds.stepper), given, reverse=True)
    return good, sizes, _Motion(end[1], seeds.t, end[0], None, motion.result)
