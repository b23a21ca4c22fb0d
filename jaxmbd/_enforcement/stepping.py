"""One step of a constrained motion, for the two families of methods."""

import abc
import functools
import typing
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._constraints import (
    AbstractStructuredSystem,
    SystemMap,
    mass_matrix,
    placed,
    positions,
    row_count,
    velocities,
)
from .._loop import recomputed
from .._results import RESULTS, first_failure, of_scheme
from .._schemes import recomputes_stages
from .._system import AbstractSystem, writes_own_qdot
from .._types import Control, Coordinates, Force, RealScalarLike, Rows, Scalar, Velocity
from .base import (
    AbstractContinuousEnforcement,
    AbstractEnforcement,
    AbstractSplitEnforcement,
    Motion,
    Point,
    applied_force,
    point,
    point_at,
)
from .penalty import free_operator
from .projection import Projection


class Problem(eqx.Module):
    """What is simulated, apart from the state."""

    system: AbstractSystem
    enforcement: Any
    control: Control | None
    projection: Projection | None

    def project(
        self, t: RealScalarLike, q: Coordinates, v: Velocity
    ) -> tuple[Coordinates, Velocity, RESULTS]:
        if self.projection is None:
            return q, v, RESULTS.successful
        return self.projection(self.system, t, q, v)


class Step(NamedTuple):
    """State y at the end of a step, the scheme's own state, and a verdict. `start_phi` is |Phi|
    at the start, which the step needed anyway."""

    y: Any
    scheme_state: Any
    result: RESULTS
    start_phi: Float[Array, " nh"]


class AbstractStepper(eqx.Module):
    """Advances y, a tuple that begins with (q, v)."""

    problem: eqx.AbstractVar[Problem]
    scheme: eqx.AbstractVar[diffrax.AbstractSolver]

    @property
    def checkpoints(self) -> bool:
        """Whether the parts of a step are recomputed in the reverse pass, so that the step as a
        whole need not be."""
        return False

    @abc.abstractmethod
    def start(
        self, t: RealScalarLike, h: RealScalarLike, q: Coordinates, v: Velocity
    ) -> tuple[Any, Any]:
        """(y, scheme_state) at the start."""

    def start_result(
        self, t: RealScalarLike, q: Coordinates, v: Velocity, tolerance: Float[Array, ""]
    ) -> RESULTS:
        """Whether the method can start there, besides the equality rows."""
        del t, q, v, tolerance
        return RESULTS.successful

    @abc.abstractmethod
    def step(self, t0: RealScalarLike, t1: RealScalarLike, y: Any, scheme_state: Any) -> Step:
        """From t0 to t1."""

    def end_result(self, t: RealScalarLike, y: Any) -> RESULTS:
        """What is wrong with the last state, and would show only in a step from there."""
        del t, y
        return RESULTS.successful

    @abc.abstractmethod
    def between(self, t0: RealScalarLike, h: RealScalarLike, t: RealScalarLike, y: Any) -> Any:
        """y at a time t between the grid points t0 and t0 + h, from y at t0, to the order of the
        method."""

    @abc.abstractmethod
    def multipliers(self, t: RealScalarLike, y: Any) -> Rows:
        """lam at (t, y)."""

    @property
    def keeps_energy(self) -> bool:
        """Whether nothing but the forces of the system takes energy."""
        return self.problem.enforcement.rigid

    def row_energy(self, t: RealScalarLike, y: Any) -> Scalar:
        """What constraints and contacts store [J]."""
        enforcement, q = self.problem.enforcement, y[0]
        if enforcement.rigid:
            return jnp.zeros((), q.dtype)
        return enforcement.stored_energy(positions(self.system(y), t, q))

    def driving_power(self, t: RealScalarLike, y: Any) -> Scalar:
        """-lam . Phi_t, the power of constraints that move in time [W]."""
        drift = velocities(self.system(y), t, y[0], jnp.zeros_like(y[1]))
        return -jnp.sum(self.multipliers(t, y) * drift)

    def system(self, y: Any) -> AbstractSystem:
        """The system, with the rows that act in the state y."""
        del y
        return self.problem.system

    def held(self, good: Bool[Array, ""], new: Any, old: Any) -> Any:
        """`new` after a good step, else `old`."""
        return jax.tree.map(lambda new, old: jnp.where(good, new, old), new, old)

    def active(self, y: Any) -> Any:
        """Which rows act, of a system that switches them; `None` of others."""
        del y
        return None

    def contacts(self, y: Any) -> tuple[Any, Any]:
        """Contact forces and residuals in y, if any."""
        del y
        return None, None

    def tally(self, y: Any) -> Any:
        """What y sums up since the last saved time; `None` if nothing."""
        del y
        return None

    def with_tally(self, y: Any, tally: Any) -> Any:
        """y with another one."""
        del tally
        return y


def constrained_field(t, y, args):
    """(q', v') of a continuous enforcement, plus the held correction rates."""
    problem, _ = args
    return _rates(problem.system, motion_at(problem, t, *y), y, args)


def _rates(system: AbstractSystem, motion: Motion, y, args):
    _, (q_rate, v_rate) = args
    return system.qdot(y[0], motion.velocity) + q_rate, motion.acceleration + v_rate


@eqx.filter_jit
def motion_at(problem: Problem, t: RealScalarLike, q: Coordinates, v: Velocity) -> Motion:
    """The constrained motion at (t, q, v)."""
    here = point(problem.system, problem.control, t, q, v)
    return problem.enforcement.motion(here, problem.enforcement.factorise(here))


def corrected_step(
    problem: Problem, scheme: diffrax.AbstractSolver, t0, t1, y0, scheme_state
) -> tuple[Any, Any, Any, Any, RESULTS, Float[Array, " nh"]]:
    """`scheme.step` on the constrained field with the drift correction of the start of the step
    held through it, then the projection. Returns what `step` does, and |Phi| at the start."""
    system, enforcement = problem.system, problem.enforcement
    h = t1 - t0

    def begin(y):
        q, v = y
        here = point(system, problem.control, t0, q, v)
        factor = enforcement.factorise(here)
        correction = enforcement.correction(here, factor)
        change = system.qdot(q, correction.position)
        if not writes_own_qdot(system):
            change = change + (system.coordinates.normalise(q) - q)
        # The held rates change from step to step: a jump, for schemes that reuse their last stage.
        held = (change / h, correction.velocity / h)
        motion = enforcement.motion(here, factor)
        verdict = enforcement.result(here, factor, correction)
        return motion, held, verdict, jnp.abs(here.rows.phi)

    if recomputes_stages(scheme):
        begin = recomputed(begin)
    motion, rate, verdict, phi = begin(y0)

    def field(t, y, args):
        # Most schemes evaluate their first stage right here, at what is known already.
        first = t is t0 and y[0] is y0[0] and y[1] is y0[1]
        return _rates(system, motion if first else motion_at(problem, t, *y), y, args)

    (q1, v1), error, dense, scheme_state, scheme_result = scheme.step(
        diffrax.ODETerm(field), t0, t1, y0, (problem, rate), scheme_state, True
    )
    q1, v1, projected = problem.project(t1, q1, v1)
    result = first_failure(system.result(y0[0]), verdict, of_scheme(scheme_result), projected)
    return (q1, v1), error, dense, scheme_state, result, phi


class ContinuousStepper(AbstractStepper):
    """Any scheme on the constrained vector field; y = (q, v)."""

    problem: Problem
    scheme: diffrax.AbstractSolver

    @property
    def checkpoints(self):
        return recomputes_stages(self.scheme) and self.problem.projection is None

    def start(self, t, h, q, v):
        y = (q, v)
        terms = diffrax.ODETerm(constrained_field)
        rest = jax.tree.map(jnp.zeros_like, y)
        return y, self.scheme.init(terms, t, t + h, y, (self.problem, rest))

    def step(self, t0, t1, y, scheme_state):
        y, _, _, scheme_state, result, phi = corrected_step(
            self.problem, self.scheme, t0, t1, y, scheme_state
        )
        return Step(y, scheme_state, result, phi)

    def between(self, t0, h, t, y):
        # One shorter step: as accurate as the grid, constraints included.
        del h
        _, scheme_state = self.start(t0, t - t0, *y)
        return self.step(t0, t, y, scheme_state).y

    def multipliers(self, t, y):
        return motion_at(self.problem, t, *y).multipliers


def free_field(t, y, problem: Problem):
    """(q', v') without constraints."""
    return free_rates(problem, t, y, mass_matrix(problem.system, y[0]))


def free_rates(
    problem: Problem, t: RealScalarLike, y, M, inertial: Force | None = None, here: Any = None
) -> tuple[Coordinates, Velocity]:
    """(q', v') without constraints, with M(q) given, and with the forces of inertia if they are
    held, and with q `placed`."""
    q, v = y
    system = problem.system
    f = applied_force(system, problem.control, t, q, v, inertial, here)
    operator = free_operator(M, SystemMap(system, t, q if here is None else here, v))
    return system.qdot(q, v), operator.free(f)


class FreeStep(NamedTuple):
    """A step without constraints: q `placed`, the `point` at (t1, q, v*), Phi(q, t0), the `drift`
    of the rows over the step (see `AbstractSplitEnforcement.impulse`), and what the scheme
    returned."""

    placed: Any
    point: Point
    phi: Float[Array, " nh"]
    drift: Rows
    scheme_state: Any
    result: RESULTS


def free_step(
    problem: Problem,
    scheme: diffrax.AbstractSolver,
    t0: RealScalarLike,
    t1: RealScalarLike,
    q: Coordinates,
    v: Velocity,
    scheme_state: Any,
) -> FreeStep:
    """The scheme on the free motion M v' = f, with M, J and Phi evaluated at q. The forces of
    inertia of a mechanism's bodies are held, at a mean that makes no energy."""
    system, h = problem.system, t1 - t0
    here = placed(system, q)
    M = mass_matrix(system, here)
    structured = isinstance(system, AbstractStructuredSystem)
    inertial = system.inertial_force(here, v, h) if structured else None

    def field(t, y, problem):
        if y[0] is q:
            return free_rates(problem, t, y, M, inertial, here)
        return free_rates(problem, t, y, mass_matrix(system, y[0]), inertial)

    (_, v_free), _, _, scheme_state, result = scheme.step(
        diffrax.ODETerm(field), t0, t1, (q, v), problem, scheme_state, True
    )
    phi = positions(system, t0, here)
    end = point_at(system, t1, here, v_free, jnp.zeros_like(v_free), M)
    rows = end.rows
    drift = (rows.phi - phi) / h
    if rows.velocity.shape != phi.shape:
        nonholonomic = (rows.velocity - rows.J @ v_free)[phi.shape[0] :]
        drift = jnp.concatenate([drift, nonholonomic])
    return FreeStep(here, end, phi, drift, scheme_state, of_scheme(result))


class SplitStepper(AbstractStepper):
    """The scheme on the free motion, then an impulse; y = (q, v, mean multipliers)."""

    problem: Problem
    scheme: diffrax.AbstractSolver

    def start(self, t, h, q, v):
        y = (q, v, jnp.zeros(row_count(self.problem.system, t, q, v), q.dtype))
        terms = diffrax.ODETerm(free_field)
        return y, self.scheme.init(terms, t, t + h, (q, v), self.problem)

    def step(self, t0, t1, y, scheme_state):
        system, h = self.problem.system, t1 - t0
        q, v, _ = y
        free = free_step(self.problem, self.scheme, t0, t1, q, v, scheme_state)
        change, impulse, solved = self.problem.enforcement.impulse(
            free.point, free.phi, free.drift, h
        )
        v = free.point.v + change
        end = system.retract(free.placed, h * v)
        q, v, projected = self.problem.project(t1, end, system.carried(free.placed, end, v))
        result = first_failure(system.result(y[0]), solved, free.result, projected)
        return Step((q, v, impulse / h), free.scheme_state, result, jnp.abs(free.phi))

    def between(self, t0, h, t, y):
        # Along the step itself: position moves with the new velocity, velocity linearly.
        _, scheme_state = self.start(t0, h, y[0], y[1])
        q, v, lam = self.step(t0, t0 + h, y, scheme_state).y
        s = (t - t0) / h
        return (self.problem.system.retract(y[0], s * h * v), y[1] + s * (v - y[1]), lam)

    def multipliers(self, t, y):
        del t
        return y[2]


@functools.singledispatch
def stepper_of(
    enforcement: AbstractEnforcement,
    problem: Problem,
    scheme: diffrax.AbstractSolver | None,
    default: diffrax.AbstractSolver,
) -> AbstractStepper:
    """The stepper of the family that the enforcement belongs to: each family registers its own.

    **Raises:** `ValueError` for anything else."""
    del problem, scheme, default
    raise ValueError(
        "Argument `enforcement` must be an enforcement method such as `mbd.UdwadiaKalaba()`, but "
        f"is {enforcement!r}."
    )


@stepper_of.register
def _(enforcement: AbstractContinuousEnforcement, problem, scheme, default) -> AbstractStepper:
    del enforcement
    return ContinuousStepper(problem, default if scheme is None else scheme)


@stepper_of.register
def _(enforcement: AbstractSplitEnforcement, problem, scheme, default) -> AbstractStepper:
    del enforcement, default
    return SplitStepper(problem, diffrax.Euler() if scheme is None else scheme)


def make_stepper(
    problem: Problem, scheme: diffrax.AbstractSolver | None, default: diffrax.AbstractSolver
) -> AbstractStepper:
    """The stepper of `problem.enforcement`; `default` is the scheme of continuous ones.

    **Raises:** `ValueError` for what is no enforcement, and for schemes of several vector fields.
    """
    structure = None if scheme is None else scheme.term_structure
    if isinstance(structure, tuple) or typing.get_origin(structure) is diffrax.MultiTerm:
        raise ValueError(
            f"Argument `scheme` must be of one vector field, but `{type(scheme).__name__}` splits "
            "it in two or adds noise: use e.g. `mbd.SemiImplicitEuler()` or `mbd.RK4()`."
        )
    return stepper_of(problem.enforcement, problem, scheme, default)
