"""The generalised-alpha method."""

from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import materialise, to_jax
from .._inputs import checked, within
from .._linalg import AbstractConstraintSolver, Automatic
from .._results import RESULTS, first_failure
from .._roots import Unknowns, solve_step
from .._types import RealScalarLike, Scalar, Velocity
from .base import AbstractEnforcement, SimulationProblem, Step
from .implicit import moved, multipliers_at, rounding_of
from .internal import implicit_stage, with_relative
from .point import contradiction_of, point
from .state import StepperState


class _Memory(NamedTuple):
    """What a step leaves to the next one: the acceleration w at its end, and (a - w) / h, in which
    h is the length of the step. It scales with h, so that steps may differ in length. `begun`:
    whether there was a step. `internal`: of internal states, their mean rate over the step, and h;
    else `None`."""

    w: Velocity
    slope: Velocity
    begun: Bool[Array, ""]
    internal: tuple[Float[Array, " nz"], Float[Array, ""]] | None = None


class GeneralisedAlpha(AbstractEnforcement):
    r"""The generalised-alpha method for stiff systems with constraints. Each step solves

        M(q) w = f(t, q, v, u) + J^T lam    at t(n+1),
        (1 - alpha_m) a(n+1) + alpha_m a(n) = (1 - alpha_f) w(n+1) + alpha_f w(n),
        v(n+1) = v(n) + h [(1 - gamma) a(n) + gamma a(n+1)],
        q(n+1) = q(n) (+) (h v(n) + h^2 [(1/2 - beta) a(n) + beta a(n+1)] + M^-1 J^T mu),
        Phi = 0 and (Phi', Psi) = 0         at t(n+1)

    by Newton's method. Positions, velocities and multipliers are of second order. All forces act at
    the end of the step, so that the method is stable for linear forces of any stiffness, and
    oscillations that the step does not resolve are damped: each step multiplies them by `rho_inf`.
    Those that it resolves are hardly damped. Phi, Phi' and Psi hold to rounding. Rows may be
    redundant.

    The multipliers lam follow from the velocity constraints and mu from the position constraints
    (stabilised index-2 form). a(n) belongs to the time t(n) + (alpha_m - alpha_f) h. A motion
    begins with the a(0) of this time, since a(0) = v'(0) would make the first multipliers wrong by
    O(h).

    Internal states move by the backward differentiation formula of second order, within the same
    equations. So forces may be stiff in v and z together.

    Forces and rows must be smooth. If Newton's method fails, the result is
    `RESULTS.implicit_scheme_unsolved`. There is no `scheme` to choose.

    **Arguments:**

    - `rho_inf`: the spectral radius for h = inf, from 0 (such oscillations vanish in two steps) to
      1 (no damping). The default 0.8 suits most systems; take less if forces or multipliers
      oscillate.
    - `solver`: the constraint solver.

    Reference: Chung and Hulbert (1993), A time integration algorithm for structural dynamics with
    improved numerical dissipation, J. Applied Mechanics 60, equations (25), (29) for the
    parameters; Arnold and Brüls (2007), Convergence of the generalized-alpha scheme for constrained
    mechanical systems, Multibody System Dynamics 18; Brüls, Cardona and Arnold (2012), Lie group
    generalized-alpha time integration of constrained flexible multibody systems, Mechanism and
    Machine Theory 48; Arnold, Brüls and Cardona (2015), Error analysis of generalized-alpha Lie
    group time integration methods for constrained mechanical systems, Numerische Mathematik 129,
    for the stabilised form and a(0).
    """

    rho_inf: Float[Array, ""]
    solver: AbstractConstraintSolver
    rigid: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        rho_inf: Annotated[RealScalarLike, within(0, 1)] = 0.8,
        solver: AbstractConstraintSolver | None = None,
    ):
        self.rho_inf = to_jax(rho_inf, float)
        self.solver = Automatic() if solver is None else solver

    @property
    def alpha_m(self) -> Float[Array, ""]:
        return (2 * self.rho_inf - 1) / (self.rho_inf + 1)

    @property
    def alpha_f(self) -> Float[Array, ""]:
        return self.rho_inf / (self.rho_inf + 1)

    @property
    def gamma(self) -> Float[Array, ""]:
        return 0.5 + self.alpha_f - self.alpha_m

    @property
    def beta(self) -> Float[Array, ""]:
        return (self.gamma + 0.5) ** 2 / 4

    def memory(self, problem, t, q, v):
        del problem, t, q
        rest = jnp.zeros_like(v)
        return _Memory(rest, rest, jnp.array(False))

    def anew(self, problem, state):
        state = super().anew(problem, state)
        if state.z is None:
            return state
        none = jnp.zeros_like(state.z), jnp.ones((), state.z.dtype)
        return state.replace(memory=state.memory._replace(internal=none))

    def advance(self, problem, state, t):
        return self.step(problem, state, t)

    def step(self, problem, state, t):
        of, system = problem.equations, problem.system
        t0, q0, v0, memory = state.t, system.normalise(state.q), state.v, state.memory
        h, begun = t - t0, memory.begun
        m, f, gamma, beta = (
            x.astype(q0.dtype) for x in (self.alpha_m, self.alpha_f, self.gamma, self.beta)
        )

        # J and M near the end of the step, to solve its equations. The first step has no
        # acceleration yet to get there, and takes it from the same equations at its start.
        ahead = moved(system, q0, h * v0 + 0.5 * h**2 * memory.w)
        at = jnp.where(begun, t, t0), jnp.where(begun, ahead, q0), v0 + h * memory.w
        z0, jumped = _internal_start(problem, state, h)
        here = point(of, problem.holding(z0).control, *at)
        operator = here.operator(self.solver)
        w_here, lam_here = operator.solve(here.f, here.rows.gamma)
        w0 = jnp.where(begun, memory.w, w_here)

        # a0 is linear in w, the acceleration at the end: in the first step it is extrapolated to
        # its time from w0 and w.
        part = jnp.where(begun, 0.0, m - f)
        given = w0 + h * memory.slope - part * w0

        def end(w, shift):
            a0 = given + part * w
            a1 = ((1 - f) * w + f * w0 - m * a0) / (1 - m)
            v = materialise(v0 + h * ((1 - gamma) * a0 + gamma * a1))
            displacement = h * v0 + h**2 * ((0.5 - beta) * a0 + beta * a1)
            return moved(system, q0, materialise(displacement + shift)), v, a1

        gain = h * ((1 - gamma) * part + gamma * (1 - f - m * part) / (1 - m))  # dv/dw
        rows_of_phi = here.rows.phi.shape[0]

        # The rates of internal states z follow w among the unknowns.
        z_of, z_rate0 = _internal_end(state, memory, h)

        def parted(unknowns) -> Any:
            return (unknowns,) if z_of is None else jnp.split(unknowns, [v0.shape[0]])

        def residual(x):
            unknowns, (lam, shift, mu) = x
            w, *rate = parted(unknowns)
            q, v, _ = end(w, shift)
            there = of.kinematics(q)
            held = problem if z_of is None else problem.holding(z_of(*rate))
            force = of.force(held.control, t, q, v, here=there)

            def with_internal(w):
                if z_of is None:
                    return w
                left = rate[0] - of.internal(problem.control, t, q, v, z_of(*rate))
                return jnp.concatenate([w, left])

            inertia, _ = of.map(t, there, v).left(w, lam, w)
            phi, velocity = of.violation(t, q, v)
            balance = inertia - force, velocity / gain
            if not rows_of_phi:
                w, lam_left = operator.solve_fixed(*balance)
                rest = lam_left + operator.null(lam), shift, mu
                return Unknowns(with_internal(w), rest)
            # M shift = J^T mu at `here`, and Phi = 0 at the end.
            pull, reached = operator.equations.left(shift, mu, shift)
            apart = pull, jnp.concatenate([phi, reached[rows_of_phi:]])
            (w, lam_left), (shift, mu_left) = operator.solve_fixed_each(balance, apart)
            rest = lam_left + operator.null(lam), shift, mu_left + operator.null(mu)
            return Unknowns(with_internal(w), rest)

        def as_velocities(x):
            return h * parted(x.main)[0], x.rest[1] / h

        assert state.multipliers is not None
        lam0 = jnp.where(begun, state.multipliers, lam_here)
        first = w0 if z_of is None else jnp.concatenate([w0, z_rate0])
        guess = Unknowns(first, (lam0, jnp.zeros_like(v0), jnp.zeros_like(lam0)))
        measure = rounding_of(h, q0, v0, as_velocities)
        if z_of is not None:

            def changes(d, x):
                none, z = z_of(jnp.zeros_like(z_rate0)), z_of(parted(x.main)[1])
                return z_of(parted(d.main)[1]) - none, z, state.z

            measure = with_relative(measure, changes)
        (found, (lam, shift, _)), solved = solve_step(residual, guess, measure)
        w, *rate = parted(found)
        q1, v1, a1 = end(w, shift)
        z1 = None if z_of is None else z_of(*rate)
        behind = None if z1 is None else ((z1 - state.z) / h, h)
        memory = _Memory(w, (a1 - w) / h, jnp.array(True), behind)
        q1, v1, projected = problem.project(t, q1, v1)
        result = first_failure(
            system.result(state.q),
            operator.result(),
            contradiction_of(here, self.solver, operator, here.rows.phi),
            jumped,
            solved,
            projected,
        )
        new = state.replace(t=t, q=q1, v=v1, multipliers=lam, memory=memory, z=z1)
        return Step(new, result, jnp.abs(of.positions(t0, q0)))

    def multipliers(self, problem, state):
        # From the acceleration at this state, so they are known at the start of a motion too.
        return multipliers_at(problem, state, self.solver)


def _internal_start(
    problem: SimulationProblem, state: StepperState, h: Scalar
) -> tuple[Float[Array, " nz"] | None, RESULTS]:
    """z for the acceleration at the start of a motion, where it may be about to jump: after an
    implicit step from there; and the verdict."""
    z = state.z
    if z is None:
        return None, RESULTS.successful

    def jumped():
        at = state.t, state.q, state.v
        return implicit_stage(problem.equations, problem.control, *at, z, h)

    return jax.lax.cond(state.memory.begun, lambda: (z, RESULTS.successful), jumped)


def _internal_end(state: StepperState, memory: _Memory, h: Scalar) -> tuple[Any, Any]:
    """z at the end of a step as a function of its rate there, and a guess of this rate, by the
    backward differentiation formula of second order. It is of first order in the first step."""
    if state.z is None:
        return None, None
    assert memory.internal is not None
    mean, before = memory.internal
    r = jnp.where(memory.begun, h / before, 0.0)
    known, gain = state.z + h * (r / (1 + 2 * r)) * mean, h * (1 + r) / (1 + 2 * r)
    return lambda rate: known + gain * rate, mean
