"""A variational integrator with constraints."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from .._compiler import materialise
from .._inputs import checked
from .._linalg import AbstractConstraintSolver, Automatic
from .._results import first_failure
from .._roots import Unknowns, solve_step
from .._system import writes_own_qdot
from .base import AbstractEnforcement, Step
from .implicit import multipliers_at, rounding_of
from .point import contradiction_of, point_at


@checked
class Variational(AbstractEnforcement):
    r"""A variational integrator for long motions: RATTLE, for any kinematic map. With the discrete
    action of the kinetic energy T = v . M v / 2 along the motion of constant velocity x,

        S(q(n), q(n+1)) = h T(q(n) (+) h x / 2, x),    q(n+1) = q(n) (+) h x,

    a step solves

        M v(n) + h/2 Q(t(n), q(n), x) + J(n)^T Lam = -D_1 S,        Phi(q(n+1)) = 0,
        M v(n+1) = D_2 S + h/2 Q(t(n+1), q(n+1), x) + J(n+1)^T Lam',    (Phi', Psi) = 0,

    the first line by Newton's method, the second as linear equations. Q are the forces f without
    inertia, which follows from S. The method is of second order, symmetric in time and,
    for conservative forces, symplectic: the energy oscillates and does not drift, however long the
    motion. Momenta that the system conserves are conserved to rounding. Phi, Phi' and Psi hold to
    rounding. Rows may be redundant.

    Nonholonomic rows hold at the middle of a step, Psi(q(n) (+) h x / 2, x) = 0, and at its ends.

    Conservative forces act at the ends of the steps, so stiff springs limit the step as in explicit
    methods, to h < 2 / omega. Damping does not. If Newton's method fails, the result is
    `RESULTS.implicit_scheme_unsolved`. There is no `scheme` to choose. Systems with a `qdot` of
    their own need `coordinates` instead. Systems with internal states need another method.

    **Arguments:**

    - `solver`: the constraint solver.

    Reference: Andersen (1983), RATTLE: a velocity version of the SHAKE algorithm for molecular
    dynamics calculations, J. Computational Physics 52; Marsden and West (2001), Discrete mechanics
    and variational integrators, Acta Numerica 10, sections 3.2 and 3.4; Bobenko and Suris (1999),
    Discrete time Lagrangian mechanics on Lie groups, with an application to the Lagrange top,
    Communications in Mathematical Physics 204.
    """

    solver: AbstractConstraintSolver = Automatic()
    rigid: ClassVar[bool] = True
    takes_internal: ClassVar[bool] = False

    def init(self, problem, t, q, v):
        if writes_own_qdot(problem.system):
            raise ValueError(
                f"`Variational` needs the displacement between two positions, but `qdot` of "
                f"{type(problem.system).__name__} does not tell it: name `coordinates` instead."
            )
        return super().init(problem, t, q, v)

    def step(self, problem, state, t):
        of, system, solver = problem.equations, problem.system, self.solver
        coordinates = system.coordinates
        t0, q0, v0 = state.t, system.normalise(state.q), state.v
        h, rest = t - t0, jnp.zeros_like(v0)

        def retract(q, dp):
            return materialise(coordinates.retract(q, materialise(dp)))

        def energy(q, x):
            return 0.5 * jnp.sum(x * of.inertia(of.kinematics(q), x))

        def force(t, q, v):
            return 0.5 * h * of.applied_force(problem.control, t, q, v)

        here = _point(of, t0, q0, v0)
        start, momentum = here.operator(solver), of.inertia(of.kinematics(q0), v0)
        holonomic = here.rows.phi.shape[0]
        # From forces on displacements at q0 to forces on changes of q.
        _, on_coordinates = jax.vjp(lambda q: coordinates.difference(q0, q), q0)

        def behind(q1, x):
            """The middle and the beginning of a step to q1. Both are compiled as one."""
            shares = jnp.asarray([-0.5, -1.0], q0.dtype)
            return jax.vmap(lambda share: retract(q1, share * h * x))(shares)

        def residual(unknowns):
            x, (impulse, _) = unknowns
            q1 = retract(q0, h * x)
            p0 = momentum + force(t0, q0, x) + start.reaction(impulse)  # -D_1 S, on displacements
            p0 = materialise(on_coordinates(materialise(p0))[0])

            def varied(x, d):
                # Let x vary and q1 stay. Then q0 moves, and with it S by D_1 S:
                # d/dx [h T(q1 (+) -h x / 2, x)] = D_1 S . d/dx (q1 (+) -h x).
                # Let q1 move by d and x stay: D_2 S = d/dd (h T) - D_1 S . dq0/dd.
                middle, begin = behind(q1 + coordinates.qdot(q1, d), x)
                return energy(middle, x) + jnp.sum(p0 * begin) / h

            rows = of.positions(t, q1) / h
            if here.rows.velocity.shape[0] > holonomic:
                middle = retract(q0, 0.5 * h * x)
                rows = jnp.concatenate([rows, of.nonholonomic(t0 + 0.5 * h, middle, x)])
            by_x, by_d = jax.grad(varied, argnums=(0, 1))(x, rest)
            change, found = start.solve_fixed(materialise(by_x), materialise(rows))
            return Unknowns(change, (found + start.null(impulse), unknowns.rest[1] - h * by_d))

        assert state.multipliers is not None
        guess = Unknowns(v0, (0.5 * h * state.multipliers, rest))
        # Also D_2 S is solved for, so that it needs no program of its own.
        (x, (impulse, p1)), solved = solve_step(residual, guess, rounding_of(h, q0, v0))
        q1 = retract(q0, h * x)
        there = _point(of, t, q1, x)
        end = there.operator(solver)
        excess = p1 + force(t, q1, x) - of.inertia(of.kinematics(q1), x)
        change, _ = end.solve(excess, -there.rows.velocity)
        q1, v1, projected = problem.project(t, q1, x + change)
        result = first_failure(
            system.result(state.q),
            start.result(),
            contradiction_of(here, solver, start, here.rows.phi),
            solved,
            end.result(),
            projected,
        )
        new = state.replace(t=t, q=q1, v=v1, multipliers=2 * impulse / h)
        return Step(new, result, jnp.abs(here.rows.phi))

    def multipliers(self, problem, state):
        return multipliers_at(problem, state, self.solver)


def _point(of, t, q, v):
    here = of.kinematics(q)
    return point_at(of, t, here, v, jnp.zeros_like(v), of.mass(here))
