"""The interface of the steps of a family of methods."""

import abc
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._enforcement import AbstractEnforcement, Projection
from .._equations import AbstractEquations, equations
from .._results import RESULTS
from .._system import AbstractSystem
from .._types import Control, Coordinates, RealScalarLike, Rows, Scalar, Velocity
from .state import StepperState, without_past


class SimulationProblem(eqx.Module):
    """The system, the method and the control of a simulation. `active`: which rows of (Phi, Psi)
    act, `None` for all."""

    system: AbstractSystem
    enforcement: Any
    control: Control | None
    projection: Projection | None
    active: Bool[Array, " rows"] | None = None

    @property
    def equations(self) -> AbstractEquations:
        """The equations with the active rows."""
        return equations(self.system, self.active)

    def project(
        self, t: RealScalarLike, q: Coordinates, v: Velocity
    ) -> tuple[Coordinates, Velocity, RESULTS]:
        if self.projection is None:
            return q, v, RESULTS.successful
        return self.projection(self.equations, t, q, v)


class Step(NamedTuple):
    """The state after a step, and the verdict on the step. `start_phi` is |Phi| at the start, which
    the step computes anyway."""

    state: StepperState
    result: RESULTS
    start_phi: Float[Array, " nh"]


class AbstractSteps(eqx.Module):
    """The steps of one family of methods, for one problem and one scheme."""

    problem: eqx.AbstractVar[SimulationProblem]
    scheme: eqx.AbstractVar[diffrax.AbstractSolver]

    @property
    def system(self) -> AbstractSystem:
        return self.problem.system

    @property
    def equations(self) -> AbstractEquations:
        return self.problem.equations

    @property
    def checkpoints(self) -> bool:
        """Whether a step has its own checkpoints for the reverse pass, so that the step as a whole
        need not be recomputed."""
        return False

    @abc.abstractmethod
    def init(self, t: Scalar, q: Coordinates, v: Velocity) -> StepperState:
        """The state at the start of a motion."""

    def with_rows(self, t: Scalar, q: Coordinates, v: Velocity) -> StepperState:
        """`init` of methods whose state has the multipliers, 0 at the start."""
        rows = self.equations.row_count(t, q, v)
        state = without_past(t, q, v).replace(multipliers=jnp.zeros(rows, q.dtype))
        return at_start(self.scheme, state)

    def allowing(self, start: StepperState, tolerance: Float[Array, ""]) -> StepperState:
        """The start, of which the first step judges what the method demands of it apart from the
        equality rows, to this tolerance."""
        del tolerance
        return start

    def start_result(self, start: StepperState) -> RESULTS:
        """This verdict of the first step."""
        del start
        return RESULTS.successful

    @abc.abstractmethod
    def step(self, state: StepperState, t: Scalar) -> Step:
        """The step from a state to the time t."""

    def end_result(self, state: StepperState) -> RESULTS:
        """The verdict on the last state: a failure that would show only in the next step."""
        del state
        return RESULTS.successful

    @abc.abstractmethod
    def between(self, state: StepperState, h: RealScalarLike, t: Scalar) -> StepperState:
        """The state at a time t within a step of length h from `state`, to the order of the
        method."""

    @abc.abstractmethod
    def multipliers(self, state: StepperState) -> Rows:
        """lam at a state."""

    @property
    def keeps_energy(self) -> bool:
        """Whether only the forces of the system change the energy."""
        return self.problem.enforcement.rigid

    def row_energy(self, state: StepperState) -> Scalar:
        """The energy stored in constraints and contacts [J]."""
        enforcement: AbstractEnforcement = self.problem.enforcement
        if enforcement.rigid:
            return jnp.zeros((), state.q.dtype)
        return enforcement.stored_energy(self.equations.positions(state.t, state.q))

    def driving_power(self, state: StepperState) -> Scalar:
        """-lam . Phi_t, the power of constraints that move in time [W]."""
        drift = self.equations.velocities(state.t, state.q, jnp.zeros_like(state.v))
        return -jnp.sum(self.multipliers(state) * drift)


def at_start(scheme: diffrax.AbstractSolver, state: StepperState) -> StepperState:
    """The state with the initial state of the scheme. It holds no value of the vector field, since
    each step reports a jump to the scheme."""
    y = (state.q, state.v)
    terms = diffrax.ODETerm(lambda t, y, args: (jnp.zeros_like(y[0]), jnp.zeros_like(y[1])))
    return state.replace(scheme=scheme.init(terms, state.t, state.t, y, None))
