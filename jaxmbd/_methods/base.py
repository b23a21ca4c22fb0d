"""The interface of enforcement methods: the start of a motion, and its step."""

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._checks import one_each
from .._equations import AbstractEquations, carrying, equations
from .._extensible import Extensible
from .._results import RESULTS, first_failure
from .._system import AbstractSystem
from .._types import Control, Coordinates, RealScalarLike, Rows, Scalar, Velocity
from .internal import implicit_stage
from .projection import Projection
from .state import StepperState, without_past


class SimulationProblem(eqx.Module):
    """A system, the method and the scheme by which it moves, and its control. `active`: which rows
    of (Phi, Psi) act, `None` for all."""

    system: AbstractSystem
    enforcement: Any
    control: Control | None
    projection: Projection | None = None
    scheme: diffrax.AbstractSolver | None = None
    active: Bool[Array, " rows"] | None = None

    @property
    def equations(self) -> AbstractEquations:
        """The equations with the active rows."""
        return equations(self.system, self.active)

    def holding(self, z: Float[Array, " nz"] | None) -> "SimulationProblem":
        """The problem whose forces read these internal states; itself for `None`."""
        if z is None:
            return self
        return dataclasses.replace(self, control=carrying(self.control, z))

    def project(
        self, t: RealScalarLike, q: Coordinates, v: Velocity
    ) -> tuple[Coordinates, Velocity, RESULTS]:
        """(q, v) on the constraints if there is a projection, and its verdict."""
        if self.projection is None:
            return q, v, RESULTS.successful
        return self.projection(self.equations, t, q, v)


class Step(NamedTuple):
    """The state after a step, and the verdict on the step. `start_phi` is |Phi| at the start, which
    the step computes anyway."""

    state: StepperState
    result: RESULTS
    start_phi: Float[Array, " nh"]


class AbstractEnforcement(Extensible):
    """How the constraints are enforced. A method is continuous (a vector field that any scheme
    integrates), split (a free step, then an impulse) or has a step of its own, such as the solution
    of a system of equations.

    A method of its own writes `step`. `step` may keep numbers for the next step in the `memory` of
    the state, which then begins as `memory(problem, t, q, v)`.
    """

    # Whether the constraints hold exactly in the limit of small steps. Then a start that violates
    # them is an error. The rows of a compliant method deflect by design.
    rigid: eqx.AbstractClassVar[bool]

    # Whether the method handles contacts (gaps).
    unilateral: ClassVar[bool] = False

    # Whether the method is a vector field, which has accelerations at each instant.
    continuous: ClassVar[bool] = False

    # Whether the method moves systems with internal states.
    takes_internal: ClassVar[bool] = True

    # The scheme that the method uses unless another one is given; `None` if it takes none.
    default_scheme: ClassVar[diffrax.AbstractSolver | None] = None

    @abc.abstractmethod
    def step(self, problem: SimulationProblem, state: StepperState, t: Scalar) -> Step:
        """The step from a state to the time t.

        - `problem`: has the `system`, its `equations`, the `control`, and `project(t, q, v)` for
          the end of the step. Internal states of the system are constant in it; see `advance`.
        - `state`: t, q, v, the `multipliers` of the step before, 0 at first, and the `memory`.

        Return `mbd.methods.Step(state.replace(t=t, q=q, v=v, multipliers=lam), result, phi)` with
        |Phi| at the start of the step.
        """

    def advance(self, problem: SimulationProblem, state: StepperState, t: Scalar) -> Step:
        """The step, with the internal states z of the system if there are any. Default: `step` with
        the forces for z at its start, then z(n+1) = z(n) + h z' at the end of the step. This is of
        first order, and stable however fast z decays."""
        if state.z is None:
            return self.step(problem, state, t)
        step = self.step(problem.holding(state.z), state, t)
        new, h = step.state, t - state.t
        z, solved = implicit_stage(problem.equations, problem.control, t, new.q, new.v, state.z, h)
        result = first_failure(step.result, solved)
        return Step(new.replace(z=z), result, step.start_phi)

    def init(
        self, problem: SimulationProblem, t: Scalar, q: Coordinates, v: Velocity
    ) -> StepperState:
        """The state at the start of a motion, with multipliers that are 0."""
        rows = problem.equations.row_count(t, q, v)
        state = without_past(t, q, v).replace(multipliers=jnp.zeros(rows, q.dtype))
        return self.anew(problem, state)

    def memory(self, problem: SimulationProblem, t: Scalar, q: Coordinates, v: Velocity) -> Any:
        """What the first step finds in `state.memory`: the state of the scheme. It holds no value
        of the vector field, since each step reports a jump to the scheme."""
        return scheme_memory(problem.scheme, t, (q, v))

    def anew(self, problem: SimulationProblem, state: StepperState) -> StepperState:
        """The state with the memory of a start."""
        return state.replace(memory=self.memory(problem, state.t, state.q, state.v))

    def with_start_tolerance(self, start: StepperState, tolerance: Scalar) -> StepperState:
        """The start with the tolerance for a bad start in it. The stepper checks the equality rows
        itself; the first step reads this for whatever else the method demands."""
        del tolerance
        return start

    def start_result(self, problem: SimulationProblem, start: StepperState) -> RESULTS:
        """The verdict of the first step on what the method demands of the start."""
        del problem, start
        return RESULTS.successful

    def end_result(self, problem: SimulationProblem, state: StepperState) -> RESULTS:
        """The verdict on the last state: a failure that would show only in the next step."""
        del problem, state
        return RESULTS.successful

    def between(
        self, problem: SimulationProblem, state: StepperState, h: RealScalarLike, t: Scalar
    ) -> StepperState:
        """The state at a time t within a step of length h from `state`, to the order of the method:
        by default one shorter step."""
        del h
        return self.advance(problem, self.anew(problem, state), t).state

    def multipliers(self, problem: SimulationProblem, state: StepperState) -> Rows:
        """lam at a state: by default the mean over the step before."""
        del problem
        assert state.multipliers is not None
        return state.multipliers

    def has_checkpoints(self, problem: SimulationProblem) -> bool:
        """Whether a step has its own checkpoints for the reverse pass, so that the step as a whole
        need not be recomputed."""
        del problem
        return False

    @property
    def keeps_energy(self) -> bool:
        """Whether only the forces of the system change the energy."""
        return self.rigid

    def stored_energy(self, phi: Float[Array, " nh"]) -> Scalar:
        """The energy stored in compliant rows with the violation phi [J]."""
        return jnp.zeros((), phi.dtype)

    def row_energy(self, problem: SimulationProblem, state: StepperState) -> Scalar:
        """The energy stored in constraints and contacts [J]."""
        if self.rigid:
            return jnp.zeros((), state.q.dtype)
        return self.stored_energy(problem.equations.positions(state.t, state.q))

    def driving_power(self, problem: SimulationProblem, state: StepperState) -> Scalar:
        """-lam . Phi_t, the power of constraints that move in time [W]."""
        drift = problem.equations.velocities(state.t, state.q, jnp.zeros_like(state.v))
        return -jnp.sum(self.multipliers(problem, state) * drift)


def spring_energy(stiffness: Array, phi: Float[Array, " nh"]) -> Scalar:
    """phi . K phi / 2 of the rows that are not rigid [J]."""
    K = one_each(stiffness, phi.shape[0], "stiffness")
    return jnp.sum(jnp.where(jnp.isinf(K), 0.0, K) * phi**2) / 2


def scheme_memory(scheme: diffrax.AbstractSolver | None, t: Scalar, y: Any) -> Any:
    """The state of a scheme at the start from y; `None` without a scheme."""
    if scheme is None:
        return None
    terms = diffrax.ODETerm(lambda t, y, args: jax.tree.map(jnp.zeros_like, y))
    return scheme.init(terms, t, t, y, None)
