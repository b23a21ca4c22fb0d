"""The generalised-alpha method."""

from typing import Annotated, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import materialise, to_jax
from .._inputs import checked, within
from .._linalg import AbstractConstraintSolver, Automatic
from .._results import first_failure
from .._roots import Unknowns, solve_step
from .._types import RealScalarLike, Velocity
from .base import AbstractEnforcement, Step
from .implicit import moved, multipliers_at, rounding_of
from .point import contradiction_of, point


class _Memory(NamedTuple):
    """What a step leaves to the next one: the acceleration w at its end, and (a - w) / h, in which
    h is the length of the step. It scales with h, so that steps may differ in length. `begun`:
    whether there was a step."""

    w: Velocity
    slope: Velocity
    begun: Bool[Array, ""]


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
        here = point(of, problem.control, *at)
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

        def residual(x):
            w, (lam, shift, mu) = x
            q, v, _ = end(w, shift)
            there = of.kinematics(q)
            force = of.force(problem.control, t, q, v, here=there)
            inertia, _ = of.map(t, there, v).left(w, lam, w)
            phi, velocity = of.violation(t, q, v)
            balance = inertia - force, velocity / gain
            if not rows_of_phi:
                w, lam_left = operator.solve_fixed(*balance)
                return Unknowns(w, (lam_left + operator.null(lam), shift, mu))
            # M shift = J^T mu at `here`, and Phi = 0 at the end.
            pull, reached = operator.equations.left(shift, mu, shift)
            apart = pull, jnp.concatenate([phi, reached[rows_of_phi:]])
            (w, lam_left), (shift, mu_left) = operator.solve_fixed_each(balance, apart)
            return Unknowns(w, (lam_left + operator.null(lam), shift, mu_left + operator.null(mu)))

        def as_velocities(x):
            return h * x.main, x.rest[1] / h

        assert state.multipliers is not None
        lam0 = jnp.where(begun, state.multipliers, lam_here)
        guess = Unknowns(w0, (lam0, jnp.zeros_like(v0), jnp.zeros_like(lam0)))
        (w, (lam, shift, _)), solved = solve_step(
            residual, guess, rounding_of(h, q0, v0, as_velocities)
        )
        q1, v1, a1 = end(w, shift)
        memory = _Memory(w, (a1 - w) / h, jnp.array(True))
        q1, v1, projected = problem.project(t, q1, v1)
        result = first_failure(
            system.result(state.q),
            operator.result(),
            contradiction_of(here, self.solver, operator, here.rows.phi),
            solved,
            projected,
        )
        new = state.replace(t=t, q=q1, v=v1, multipliers=lam, memory=memory)
        return Step(new, result, jnp.abs(of.positions(t0, q0)))

    def multipliers(self, problem, state):
        # From the acceleration at this state, so they are known at the start of a motion too.
        return multipliers_at(problem, state, self.solver)
