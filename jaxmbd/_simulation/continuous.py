"""Steps of continuous methods: any scheme on the constrained vector field."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._enforcement import AbstractContinuousEnforcement, Dependents, Motion, point
from .._results import RESULTS, first_failure, of_scheme
from .._system import AbstractSystem, writes_own_qdot
from .._types import Coordinates, RealScalarLike, Velocity
from .dependents import solve_dependents
from .schemes import RolledRK4, rolled_rk4
from .state import without_past
from .steps import AbstractSteps, SimulationProblem, Step, at_start


class _AtStart(NamedTuple):
    """What a step computes at its start: the `rates` of (q, v) that correct the drift over it,
    the verdict on the equations, |Phi|, and how dependent variables are found."""

    rates: tuple[Coordinates, Velocity]
    verdict: RESULTS
    phi: Float[Array, " nh"]
    dependents: Dependents | None


def constrained_field(t, y, args):
    """(q', v') of a continuous method, plus the rates of the drift correction, which are constant
    in a step."""
    problem, correction = args
    return _rates(problem.system, motion_at(problem, t, *y), y, correction)


def _rates(system: AbstractSystem, motion: Motion, y, correction):
    q_rate, v_rate = correction
    return system.qdot(y[0], motion.velocity) + q_rate, motion.acceleration + v_rate


@eqx.filter_jit
def motion_at(problem: SimulationProblem, t: RealScalarLike, q: Coordinates, v: Velocity) -> Motion:
    """The constrained motion at (t, q, v)."""
    here = point(problem.equations, problem.control, t, q, v)
    return problem.enforcement.motion(here, problem.enforcement.factorise(here))


def corrected_step(
    problem: SimulationProblem, scheme: diffrax.AbstractSolver, t0, t1, y0, scheme_state
) -> tuple[Any, Any, Any, Any, RESULTS, Float[Array, " nh"]]:
    """`scheme.step` on the constrained field, then the projection. The drift correction is computed
    at the start of the step and constant in it. Returns the values of `step`, and |Phi| at the
    start."""
    system, enforcement = problem.system, problem.enforcement
    h = t1 - t0

    def solved(t, y):
        here = point(problem.equations, problem.control, t, *y)
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
        q, v = y
        return solve_dependents(problem.equations, t, q, v, dependents)

    left: Any = None
    if isinstance(scheme, RolledRK4):
        # The equations are compiled once for all stages, the first one included.
        def stage(t, y, is_first, memory):
            here, factor, motion = solved(t, y)
            start, left = memory
            start = jax.lax.cond(is_first, lambda: at_start(y[0], here, factor), lambda: start)
            k = jax.tree.map(lambda x: h * x, _rates(system, motion, y, start.rates))
            return k, (start, left)

        def resolve(t, y, memory):
            start, _ = memory
            y, left = resolved(t, y, start.dependents)
            return y, (start, left)

        none = _nothing_at_start(problem, t0, y0)
        if none.dependents is None:
            (q1, v1), (start, _) = rolled_rk4(stage, t0, t1, y0, (none, None))
        else:
            memory = (none, jnp.zeros((), y0[0].dtype))
            (q1, v1), (start, left) = rolled_rk4(stage, t0, t1, y0, memory, resolve)
        error, dense, scheme_result = None, dict(y0=y0, y1=(q1, v1)), diffrax.RESULTS.successful
    else:
        here, factor, motion = solved(t0, y0)
        start = at_start(y0[0], here, factor)

        def field(t, y, args):
            # Most schemes evaluate their first stage at (t0, y0), where the motion is known
            # already.
            if t is t0 and y[0] is y0[0] and y[1] is y0[1]:
                return _rates(system, motion, y, args[1])
            if start.dependents is not None:
                y, _ = resolved(t, y, start.dependents)
            return _rates(system, motion_at(problem, t, *y), y, args[1])

        (q1, v1), error, dense, scheme_state, scheme_result = scheme.step(
            diffrax.ODETerm(field), t0, t1, y0, (problem, start.rates), scheme_state, True
        )
        if start.dependents is not None:
            (q1, v1), left = resolved(t1, (q1, v1), start.dependents)
    q1, v1, projected = problem.project(t1, q1, v1)
    verdicts = start.verdict, of_scheme(scheme_result), projected
    result = first_failure(system.result(y0[0]), *verdicts)
    if start.dependents is not None:
        # It is infinite where numbers are NaN, which have a verdict of their own.
        unsolved = (left > start.dependents.tolerance) & jnp.isfinite(left)
        verdict = RESULTS.where(unsolved, RESULTS.dependents_unsolved, RESULTS.successful)
        result = first_failure(result, verdict)
    return (q1, v1), error, dense, scheme_state, result, start.phi


def _nothing_at_start(problem: SimulationProblem, t0: Any, y0: Any) -> _AtStart:
    """In place of what a step computes at its start, before it has been computed."""
    method = problem.enforcement
    # Spares most methods a second trace of their factors.
    integrates_all = type(method).dependents is AbstractContinuousEnforcement.dependents

    def found():
        here = point(problem.equations, problem.control, t0, *y0)
        if integrates_all:
            return here.rows.phi, None
        return here.rows.phi, method.dependents(here, method.factorise(here))

    phi, dependents = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(found)
    )
    return _AtStart(jax.tree.map(jnp.zeros_like, y0), RESULTS.successful, phi, dependents)


class ContinuousSteps(AbstractSteps):
    """The scheme on the constrained field, with the drift correction held through the step."""

    problem: SimulationProblem
    scheme: diffrax.AbstractSolver

    @property
    def checkpoints(self):
        return isinstance(self.scheme, RolledRK4) and self.problem.projection is None

    def init(self, t, q, v):
        return at_start(self.scheme, without_past(t, q, v))

    def step(self, state, t):
        y = (state.q, state.v)
        (q, v), _, _, scheme, result, phi = corrected_step(
            self.problem, self.scheme, state.t, t, y, state.scheme
        )
        return Step(state.replace(t=t, q=q, v=v, scheme=scheme), result, phi)

    def between(self, state, h, t):
        # One shorter step, which is as accurate as the steps of the grid, constraints included.
        del h
        return self.step(at_start(self.scheme, state), t).state

    def multipliers(self, state):
        return motion_at(self.problem, state.t, state.q, state.v).multipliers
