"""Continuous methods: any scheme on the constrained vector field."""

import abc
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._results import RESULTS, first_failure, of_scheme
from .._system import writes_own_qdot
from .._types import Coordinates, RealScalarLike, Rows, Velocity
from .additive import AdditiveRungeKutta, additive_step
from .base import AbstractEnforcement, SimulationProblem, Step, scheme_memory
from .dependents import Dependents, solve_dependents
from .internal import implicit_stage
from .point import Point, point
from .schemes import RK4, RolledRK4, rolled_rk4
from .state import StepperState, without_past


class Motion(NamedTuple):
    """The constrained motion at a point: q' = N(q) velocity, v' = acceleration."""

    velocity: Velocity
    acceleration: Velocity
    multipliers: Rows


class Correction(NamedTuple):
    """A change of the state, q (+) N position and v + velocity, made over one step."""

    position: Velocity
    velocity: Velocity


def no_correction(point: Point) -> Correction:
    """The correction of methods that do not change the state."""
    return Correction(jnp.zeros_like(point.v), jnp.zeros_like(point.v))


class AbstractContinuousEnforcement(AbstractEnforcement):
    """A constrained vector field (q', v') = (N velocity, acceleration), for any scheme. The drift
    correction is held through the step."""

    continuous: ClassVar[bool] = True
    default_scheme: ClassVar = RK4()

    @abc.abstractmethod
    def factorise(self, point: Point) -> Any:
        """The factors that the methods below need, computed once."""

    @abc.abstractmethod
    def motion(self, point: Point, factor: PyTree) -> Motion:
        """Velocity, acceleration and multipliers at a point."""

    @abc.abstractmethod
    def correction(self, point: Point, factor: PyTree) -> Correction:
        """The drift correction, computed at the start of a step and constant through its stages. As
        a feedback in every stage it would reduce the order of accuracy, since stages violate the
        constraints by O(h^2) by construction."""

    @abc.abstractmethod
    def result(self, point: Point, factor: PyTree, correction: Correction) -> RESULTS:
        """The verdict on the solution of the equations at the start of a step, where `correction`
        is to remove the drift."""

    def dependents(self, point: Point, factor: PyTree) -> Dependents | None:
        """How the dependent variables are found within a step, chosen at its start. `None`, the
        default, if all variables are integrated."""
        del point, factor
        return None

    def init(self, problem, t, q, v):
        return self.anew(problem, without_past(t, q, v))

    def step(self, problem, state, t):
        scheme, y = problem.scheme, _of_state(state)
        assert scheme is not None
        (q, v, *z), _, _, memory, result, phi = corrected_step(
            problem, scheme, state.t, t, y, state.memory
        )
        new = state.replace(t=t, q=q, v=v, memory=memory)
        return Step(new.replace(z=z[0]) if z else new, result, phi)

    def advance(self, problem, state, t):
        return self.step(problem, state, t)

    def anew(self, problem, state):
        memory = scheme_memory(problem.scheme, state.t, _of_state(state))
        return state.replace(memory=memory)

    def multipliers(self, problem, state):
        return motion_at(problem, state.t, state.q, state.v).multipliers

    def has_checkpoints(self, problem):
        return isinstance(problem.scheme, RolledRK4) and problem.projection is None


class _AtStart(NamedTuple):
    """What a step computes at its start: the `rates` of (q, v) that correct the drift over it,
    the verdict on the equations, |Phi|, and how dependent variables are found."""

    rates: tuple[Coordinates, Velocity]
    verdict: RESULTS
    phi: Float[Array, " nh"]
    dependents: Dependents | None


def constrained_field(t, y, args):
    """(q', v'), and z' of internal states, of a continuous method, plus the rates of the drift
    correction, which are constant in a step."""
    problem, correction = args
    return _rates(problem, t, _motion(problem, t, y), y, correction)


def _holding(problem: SimulationProblem, y) -> tuple[SimulationProblem, Coordinates, Velocity]:
    q, v, *z = y
    return problem.holding(*z) if z else problem, q, v


def _motion(problem: SimulationProblem, t, y) -> Motion:
    problem, q, v = _holding(problem, y)
    return motion_at(problem, t, q, v)


def _rates(problem: SimulationProblem, t, motion: Motion, y, correction):
    system, (q, v, *z), (q_rate, v_rate) = problem.system, y, correction
    moving = system.qdot(q, motion.velocity) + q_rate, motion.acceleration + v_rate
    return *moving, *(problem.equations.internal(problem.control, t, q, v, x) for x in z)


def _point(problem: SimulationProblem, t, y) -> Point:
    problem, q, v = _holding(problem, y)
    return point(problem.equations, problem.control, t, q, v)


def _of_state(state: StepperState):
    return (state.q, state.v) if state.z is None else (state.q, state.v, state.z)


@eqx.filter_jit
def motion_at(problem: SimulationProblem, t: RealScalarLike, q: Coordinates, v: Velocity) -> Motion:
    """The constrained motion at (t, q, v)."""
    here = point(problem.equations, problem.control, t, q, v)
    return problem.enforcement.motion(here, problem.enforcement.factorise(here))


def corrected_step(
    problem: SimulationProblem, scheme: diffrax.AbstractSolver, t0, t1, y0, scheme_state
) -> tuple[Any, Any, Any, Any, RESULTS, Float[Array, " nh"]]:
    """`scheme.step` on the constrained field, then the projection. The drift correction is computed
    at the start of the step and constant in it. y0: (q, v), or (q, v, z). Returns the values of
    `step`, and |Phi| at the start."""
    system, enforcement = problem.system, problem.enforcement
    h = t1 - t0

    def solved(t, y):
        here = _point(problem, t, y)
        factor = enforcement.factorise(here)
        return here, factor, enforcement.motion(here, factor)

    def at_start(q, here, factor):
        correction = enforcement.correction(here, factor)
        change = system.qdot(q, correction.position)
        if not writes_own_qdot(system):
            change = change + (system.coordinates.normalise(q) - q)
        # The correction rates change from step to step. Schemes that reuse their last stage must be
        # told of this jump.
        rates = (change / h, correction.velocity / h)
        verdict = enforcement.result(here, factor, correction)
        dependents = enforcement.dependents(here, factor)
        if dependents is not None:
            verdict = first_failure(verdict, dependents.result)
        return _AtStart(rates, verdict, jnp.abs(here.rows.phi), dependents)

    def resolved(t, y, dependents):
        """The state with its dependent variables solved anew, and the largest |Phi|."""
        q, v, *z = y
        (q, v), left = solve_dependents(problem.equations, t, q, v, dependents)
        return (q, v, *z), left

    left: Any = None
    internal = RESULTS.successful
    if isinstance(scheme, RolledRK4):
        # The equations are compiled once for all stages, the first one included.
        def stage(t, y, is_first, memory):
            here, factor, motion = solved(t, y)
            start, left = memory
            start = jax.lax.cond(is_first, lambda: at_start(y[0], here, factor), lambda: start)
            k = jax.tree.map(lambda x: h * x, _rates(problem, t, motion, y, start.rates))
            return k, (start, left)

        def resolve(t, y, memory):
            start, _ = memory
            y, left = resolved(t, y, start.dependents)
            return y, (start, left)

        none = _nothing_at_start(problem, t0, y0)
        if none.dependents is None:
            (q1, v1, *z1), (start, _) = rolled_rk4(stage, t0, t1, y0, (none, None))
        else:
            memory = (none, jnp.zeros((), y0[0].dtype))
            (q1, v1, *z1), (start, left) = rolled_rk4(stage, t0, t1, y0, memory, resolve)
        error, dense = None, dict(y0=y0, y1=(q1, v1, *z1))
        scheme_result = diffrax.RESULTS.successful
    elif isinstance(scheme, AdditiveRungeKutta):
        # As above, and the internal states are solved for in each stage.
        def implicit(t, y, known, gain, is_first, memory):
            start, left, verdict = memory
            if start.dependents is not None:
                y, left = resolved(t, y, start.dependents)
            q, v = y
            z, unsolved = implicit_stage(problem.equations, problem.control, t, q, v, known, gain)
            y = (q, v, z)
            here, factor, motion = solved(t, y)
            start = jax.lax.cond(is_first, lambda: at_start(y[0], here, factor), lambda: start)
            *k, rate = _rates(problem, t, motion, y, start.rates)
            # Of a fast z the rate itself is mostly rounding.
            rate = jnp.where(is_first, rate, (z - known) / jnp.where(is_first, 1.0, gain))
            return (*k, rate), (start, left, first_failure(verdict, unsolved))

        nothing = jnp.zeros((), y0[0].dtype)
        memory = (_nothing_at_start(problem, t0, y0), nothing, RESULTS.successful)
        (q1, v1, *z1), error, dense, memory = additive_step(implicit, t0, t1, y0, memory)
        start, left, internal = memory
        if start.dependents is not None:
            (q1, v1), left = resolved(t1, (q1, v1), start.dependents)
        scheme_result = diffrax.RESULTS.successful
    else:
        here, factor, motion = solved(t0, y0)
        start = at_start(y0[0], here, factor)

        def field(t, y, args):
            # Most schemes evaluate their first stage at (t0, y0), where the motion is known
            # already.
            if t is t0 and all(a is b for a, b in zip(y, y0, strict=True)):
                return _rates(problem, t, motion, y, args[1])
            if start.dependents is not None:
                y, _ = resolved(t, y, start.dependents)
            return _rates(problem, t, _motion(problem, t, y), y, args[1])

        (q1, v1, *z1), error, dense, scheme_state, scheme_result = scheme.step(
            diffrax.ODETerm(field), t0, t1, y0, (problem, start.rates), scheme_state, True
        )
        if start.dependents is not None:
            (q1, v1, *z1), left = resolved(t1, (q1, v1, *z1), start.dependents)
    q1, v1, projected = problem.project(t1, q1, v1)
    verdicts = start.verdict, of_scheme(scheme_result), internal, projected
    result = first_failure(system.result(y0[0]), *verdicts)
    if start.dependents is not None:
        # It is infinite where numbers are NaN, which have a verdict of their own.
        unsolved = (left > start.dependents.tolerance) & jnp.isfinite(left)
        verdict = RESULTS.where(unsolved, RESULTS.dependents_unsolved, RESULTS.successful)
        result = first_failure(result, verdict)
    return (q1, v1, *z1), error, dense, scheme_state, result, start.phi


def _nothing_at_start(problem: SimulationProblem, t0: RealScalarLike, y0: Any) -> _AtStart:
    """In place of what a step computes at its start, before it has been computed."""
    method = problem.enforcement
    # Spares most methods a second trace of their factors.
    integrates_all = type(method).dependents is AbstractContinuousEnforcement.dependents

    def found():
        here = _point(problem, t0, y0)
        if integrates_all:
            return here.rows.phi, None
        return here.rows.phi, method.dependents(here, method.factorise(here))

    phi, dependents = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(found)
    )
    return _AtStart(jax.tree.map(jnp.zeros_like, y0[:2]), RESULTS.successful, phi, dependents)
