"""Steps of velocity-level methods: the scheme on the free motion, then an impulse."""

from typing import Any, NamedTuple

import diffrax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._enforcement import Point, point_at
from .._linalg import without_rows
from .._results import RESULTS, first_failure, of_scheme
from .._types import Coordinates, Force, RealScalarLike, Rows, Velocity
from .state import StepperState
from .steps import AbstractSteps, SimulationProblem, Step, at_start


def free_field(t, y, problem: SimulationProblem):
    """(q', v') without constraints."""
    return free_rates(problem, t, y, problem.equations.mass(y[0]))


def free_rates(
    problem: SimulationProblem,
    t: RealScalarLike,
    y,
    M,
    inertial: Force | None = None,
    here: Any = None,
) -> tuple[Coordinates, Velocity]:
    """(q', v') without constraints, with M(q) given. `inertial`: the forces of inertia, if they are
    constant in the step. `here`: the result of `kinematics(q)`, if it is known."""
    q, v = y
    of = problem.equations
    f = of.force(problem.control, t, q, v, inertial, here)
    operator = without_rows(M, of.map(t, q if here is None else here, v))
    return problem.system.qdot(q, v), operator.free(f)


class FreeStep(NamedTuple):
    """A step without constraints: the `kinematics` of q, the `point` at (t1, q, v*), Phi(q, t0),
    the `drift` of the rows over the step (see `AbstractSplitEnforcement.impulse`), and the state of
    the scheme."""

    kinematics: Any
    point: Point
    phi: Float[Array, " nh"]
    drift: Rows
    scheme: Any
    result: RESULTS


def free_step(
    problem: SimulationProblem, scheme: diffrax.AbstractSolver, t1: RealScalarLike, state: Any
) -> FreeStep:
    """The scheme on the free motion M v' = f, with M, J and Phi evaluated at q. The forces of
    inertia of a mechanism's bodies are constant in the step, with a mean that does no work."""
    t0, q, v = state.t, state.q, state.v
    of, h = problem.equations, t1 - t0
    here = of.kinematics(q)
    M, inertial = of.mass(here), of.mean_inertial_force(here, v, h)

    def field(t, y, problem):
        if y[0] is q:
            return free_rates(problem, t, y, M, inertial, here)
        return free_rates(problem, t, y, of.mass(y[0]), inertial)

    (_, v_free), _, _, remembered, result = scheme.step(
        diffrax.ODETerm(field), t0, t1, (q, v), problem, state.scheme, True
    )
    phi = of.positions(t0, here)
    end = point_at(of, t1, here, v_free, jnp.zeros_like(v_free), M)
    rows = end.rows
    drift = (rows.phi - phi) / h
    if rows.velocity.shape != phi.shape:
        nonholonomic = (rows.velocity - rows.J @ v_free)[phi.shape[0] :]
        drift = jnp.concatenate([drift, nonholonomic])
    return FreeStep(here, end, phi, drift, remembered, of_scheme(result))


class SplitSteps(AbstractSteps):
    """The scheme on the free motion, then the impulse of the method."""

    problem: SimulationProblem
    scheme: diffrax.AbstractSolver

    def init(self, t, q, v):
        return self.with_rows(t, q, v)

    def step(self, state, t):
        system, h = self.system, t - state.t
        free = free_step(self.problem, self.scheme, t, state)
        by_rows, solved = self.problem.enforcement.impulse(free.point, free.phi, free.drift, h)
        v = free.point.v + by_rows.change
        moved = h * v if by_rows.displacement is None else h * v + by_rows.displacement
        end = system.retract(free.kinematics, moved)
        q, v, projected = self.problem.project(t, end, system.carried(free.kinematics, end, v))
        result = first_failure(system.result(state.q), solved, free.result, projected)
        state = state.replace(t=t, q=q, v=v, multipliers=by_rows.impulses / h, scheme=free.scheme)
        return Step(state, result, jnp.abs(free.phi))

    def between(self, state, h, t):
        return along(self, state, h, t)

    def multipliers(self, state):
        assert state.multipliers is not None
        return state.multipliers


def along(steps: AbstractSteps, state: StepperState, h: Any, t: Any) -> StepperState:
    """The state at a time t along the step: position and velocity change linearly in time."""
    state, system = at_start(steps.scheme, state), steps.system
    end, s = steps.step(state, state.t + h).state, (t - state.t) / h
    q = system.retract(state.q, s * system.difference(state.q, end.q))
    return end.replace(t=t, q=q, v=state.v + s * (end.v - state.v))
