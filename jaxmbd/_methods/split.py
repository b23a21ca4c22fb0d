"""Methods at velocity level: the scheme on the free motion, then an impulse."""

import abc
from typing import Any, ClassVar, NamedTuple

import diffrax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._linalg import without_rows
from .._results import RESULTS, first_failure, of_scheme
from .._types import Coordinates, Force, RealScalarLike, Rows, Velocity
from .base import AbstractEnforcement, SimulationProblem, Step
from .point import Point, point_at
from .state import StepperState


class RowImpulse(NamedTuple):
    """The impulses of the rows, the change v(n+1) - v* by them, and the displacement of the step
    beyond h v(n+1), `None` for none."""

    change: Velocity
    impulses: Rows
    displacement: Velocity | None = None


class AbstractSplitEnforcement(AbstractEnforcement):
    """A step at velocity level: v* from the scheme on the free motion M v' = f, an impulse that
    gives v(n+1), then q(n+1) = q(n) (+) N [h v(n+1) + displacement]. Of first order."""

    default_scheme: ClassVar = diffrax.Euler()

    @abc.abstractmethod
    def impulse(
        self, point: Point, phi: Float[Array, " nh"], drift: Rows, h: RealScalarLike
    ) -> tuple[RowImpulse, RESULTS]:
        """The impulses of the rows with their effect, and the verdict.

        - `point`: at (t(n+1), q(n), v*).
        - `phi`: Phi(q(n), t(n)).
        - `drift`: the part of the row velocities J v(n+1) + drift that does not depend on v. For
          holonomic rows it is the secant [Phi(q, t + h) - Phi(q, t)] / h in place of Phi_t, so that
          they meet the prescribed motion at t(n+1) exactly. It is Psi(v*) - J v* for nonholonomic
          rows.
        """

    def step(self, problem, state, t):
        system, h = problem.system, t - state.t
        free = free_step(problem, t, state)
        by_rows, solved = self.impulse(free.point, free.phi, free.drift, h)
        v = free.point.v + by_rows.change
        moved = h * v if by_rows.displacement is None else h * v + by_rows.displacement
        end = system.retract(free.kinematics, moved)
        q, v, projected = problem.project(t, end, system.carried(free.kinematics, end, v))
        result = first_failure(system.result(state.q), solved, free.result, projected)
        state = state.replace(t=t, q=q, v=v, multipliers=by_rows.impulses / h, memory=free.memory)
        return Step(state, result, jnp.abs(free.phi))

    def between(self, problem, state, h, t):
        return along(problem, state, h, t)


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
    the `drift` of the rows over the step (see `AbstractSplitEnforcement.impulse`), and the memory
    of the scheme."""

    kinematics: Any
    point: Point
    phi: Float[Array, " nh"]
    drift: Rows
    memory: PyTree
    result: RESULTS


def free_step(problem: SimulationProblem, t1: RealScalarLike, state: PyTree) -> FreeStep:
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

    assert problem.scheme is not None
    (_, v_free), _, _, memory, result = problem.scheme.step(
        diffrax.ODETerm(field), t0, t1, (q, v), problem, state.memory, True
    )
    phi = of.positions(t0, here)
    end = point_at(of, t1, here, v_free, jnp.zeros_like(v_free), M)
    rows = end.rows
    drift = (rows.phi - phi) / h
    if rows.velocity.shape != phi.shape:
        nonholonomic = (rows.velocity - rows.J @ v_free)[phi.shape[0] :]
        drift = jnp.concatenate([drift, nonholonomic])
    return FreeStep(here, end, phi, drift, memory, of_scheme(result))


def along(
    problem: SimulationProblem, state: StepperState, h: RealScalarLike, t: RealScalarLike
) -> StepperState:
    """The state at a time t along the step: position and velocity change linearly in time."""
    method, system = problem.enforcement, problem.system
    state = method.anew(problem, state)
    end, s = method.advance(problem, state, state.t + h).state, (t - state.t) / h
    q = system.retract(state.q, s * system.difference(state.q, end.q))
    z = None if state.z is None else state.z + s * (end.z - state.z)
    return end.replace(t=t, q=q, v=state.v + s * (end.v - state.v), z=z)
