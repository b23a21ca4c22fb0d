"""Steps of the variational integrator."""

import diffrax
import jax
import jax.numpy as jnp

from .._enforcement import contradiction_of, point, point_at
from .._fusion import materialise
from .._results import first_failure
from .._system import writes_own_qdot
from .newton import Unknowns, solve_step
from .own import OwnScheme, rounding_of
from .steps import AbstractSteps, SimulationProblem, Step


class VariationalScheme(OwnScheme):
    """A step leaves nothing to the next one."""

    def init(self, terms, t0, t1, y0, args):
        del terms, t0, t1, y0, args


class VariationalSteps(AbstractSteps):
    """Newton's method for the position, then linear equations for the velocity."""

    problem: SimulationProblem
    scheme: diffrax.AbstractSolver

    def init(self, t, q, v):
        if writes_own_qdot(self.system):
            raise ValueError(
                f"`Variational` needs the displacement between two positions, but `qdot` of "
                f"{type(self.system).__name__} does not tell it: name `coordinates` instead."
            )
        return self.with_rows(t, q, v)

    def step(self, state, t):
        problem, of, system = self.problem, self.equations, self.system
        coordinates, solver = system.coordinates, problem.enforcement.solver
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

    def between(self, state, h, t):
        del h
        return self.step(state, t).state

    def multipliers(self, state):
        here = point(self.equations, self.problem.control, state.t, state.q, state.v)
        operator = here.operator(self.problem.enforcement.solver)
        return operator.solve(here.f, here.rows.gamma)[1]


def _point(of, t, q, v):
    here = of.kinematics(q)
    return point_at(of, t, here, v, jnp.zeros_like(v), of.mass(here))
