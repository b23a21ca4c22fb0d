"""One step of a constrained motion, for the two families of methods."""

import abc
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraints import mass_matrix, positions, row_count
from .._results import RESULTS, first_failure
from .._system import AbstractSystem, writes_own_qdot
from .._types import Control, Coordinates, RealScalarLike, Rows, Velocity
from .base import (
    AbstractContinuousEnforcement,
    AbstractSplitEnforcement,
    Motion,
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

    @abc.abstractmethod
    def start(
        self, t: RealScalarLike, h: RealScalarLike, q: Coordinates, v: Velocity
    ) -> tuple[Any, Any]:
        """(y, scheme_state) at the start."""

    @abc.abstractmethod
    def step(self, t0: RealScalarLike, t1: RealScalarLike, y: Any, scheme_state: Any) -> Step:
        """From t0 to t1."""

    @abc.abstractmethod
    def between(self, t0: RealScalarLike, h: RealScalarLike, t: RealScalarLike, y: Any) -> Any:
        """y at a time t between the grid points t0 and t0 + h, from y at t0, to the order of the
        method."""

    @abc.abstractmethod
    def multipliers(self, t: RealScalarLike, y: Any) -> Rows:
        """lam at (t, y)."""


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
    q, v = y0
    h = t1 - t0
    here = point(system, problem.control, t0, q, v)
    factor = enforcement.factorise(here)
    correction = enforcement.correction(here, factor)
    change = system.qdot(q, correction.position)
    if not writes_own_qdot(system):
        change = change + (system.coordinates.normalise(q) - q)
    rate = (change / h, correction.velocity / h)

    def field(t, y, args):
        # Most schemes evaluate their first stage right here, at what is known already.
        first = t is t0 and y[0] is q and y[1] is v
        motion = enforcement.motion(here, factor) if first else motion_at(problem, t, *y)
        return _rates(system, motion, y, args)

    # The held rates change from step to step: a jump, for schemes that reuse their last stage.
    (q1, v1), error, dense, scheme_state, scheme_result = scheme.step(
        diffrax.ODETerm(field), t0, t1, y0, (problem, rate), scheme_state, True
    )
    q1, v1, projected = problem.project(t1, q1, v1)
    result = first_failure(
        system.result(q),
        enforcement.result(factor),
        RESULTS.promote(scheme_result),
        projected,
    )
    return (q1, v1), error, dense, scheme_state, result, jnp.abs(here.rows.phi)


class ContinuousStepper(AbstractStepper):
    """Any scheme on the constrained vector field; y = (q, v)."""

    problem: Problem
    scheme: diffrax.AbstractSolver

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


def free_rates(problem: Problem, t: RealScalarLike, y, M) -> tuple[Coordinates, Velocity]:
    """(q', v') without constraints, with M(q) given."""
    q, v = y
    f = applied_force(problem.system, problem.control, t, q, v)
    return problem.system.qdot(q, v), free_operator(M).free(f)


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
        M = mass_matrix(system, q)

        def field(t, y, problem):
            return free_rates(problem, t, y, M if y[0] is q else mass_matrix(system, y[0]))

        (_, v_free), _, _, scheme_state, scheme_result = self.scheme.step(
            diffrax.ODETerm(field), t0, t1, (q, v), self.problem, scheme_state, True
        )
        phi = positions(system, t0, q)
        here = point_at(system, t1, q, v_free, jnp.zeros_like(v_free), M)
        rows = here.rows
        secant = (rows.phi - phi) / h
        drift = secant
        if rows.velocity.shape != phi.shape:
            nonholonomic = (rows.velocity - rows.J @ v_free)[phi.shape[0] :]
            drift = jnp.concatenate([secant, nonholonomic])
        change, impulse, solved = self.problem.enforcement.impulse(here, phi, drift, h)
        v = v_free + change
        q, v, projected = self.problem.project(t1, system.retract(q, h * v), v)
        result = first_failure(
            system.result(y[0]), solved, RESULTS.promote(scheme_result), projected
        )
        return Step((q, v, impulse / h), scheme_state, result, jnp.abs(phi))

    def between(self, t0, h, t, y):
        # Along the step itself: position moves with the new velocity, velocity linearly.
        _, scheme_state = self.start(t0, h, y[0], y[1])
        q, v, lam = self.step(t0, t0 + h, y, scheme_state).y
        s = (t - t0) / h
        return (self.problem.system.retract(y[0], s * h * v), y[1] + s * (v - y[1]), lam)

    def multipliers(self, t, y):
        del t
        return y[2]


def make_stepper(
    problem: Problem, scheme: diffrax.AbstractSolver | None, default: diffrax.AbstractSolver
) -> AbstractStepper:
    """The stepper of the family that `problem.enforcement` belongs to; `default` is the scheme of
    continuous ones.

    **Raises:** `ValueError` for anything else, and for schemes of several vector fields.
    """
    if scheme is not None and isinstance(scheme.term_structure, tuple):
        raise ValueError(
            f"`{type(scheme).__name__}` splits the vector field in two, which constrained motion "
            "does not allow: use a scheme of one field, e.g. `mbd.SemiImplicitEuler()`."
        )
    match problem.enforcement:
        case AbstractContinuousEnforcement():
            return ContinuousStepper(problem, default if scheme is None else scheme)
        case AbstractSplitEnforcement():
            return SplitStepper(problem, diffrax.Euler() if scheme is None else scheme)
        case other:
            raise ValueError(
                "Argument `enforcement` must be an enforcement method such as "
                f"`mbd.UdwadiaKalaba()`, but is {other!r}."
            )
