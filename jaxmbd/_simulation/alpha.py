"""Steps of the generalised-alpha method."""

from typing import NamedTuple

import diffrax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._enforcement import GeneralisedAlpha, contradiction_of, point
from .._fusion import materialise
from .._results import first_failure
from .._types import Velocity
from .newton import Unknowns, solve_step
from .own import OwnScheme, moved, rounding_of
from .steps import AbstractSteps, SimulationProblem, Step, at_start


class _Memory(NamedTuple):
    """What a step leaves to the next one: the acceleration w at its end, and (a - w) / h, in which
    h is the length of the step. It scales with h, so that steps may differ in length. `begun`:
    whether there was a step."""

    w: Velocity
    slope: Velocity
    begun: Bool[Array, ""]


class AlphaScheme(OwnScheme):
    """The memory of the generalised-alpha method, as the state of a scheme."""

    def init(self, terms, t0, t1, y0, args):
        del terms, t0, t1, args
        rest = jnp.zeros_like(y0[1])
        return _Memory(rest, rest, jnp.array(False))


class AlphaSteps(AbstractSteps):
    """One system of equations a step."""

    problem: SimulationProblem
    scheme: diffrax.AbstractSolver

    def init(self, t, q, v):
        return self.with_rows(t, q, v)

    def step(self, state, t):
        problem, of, system = self.problem, self.equations, self.system
        method: GeneralisedAlpha = problem.enforcement
        t0, q0, v0, memory = state.t, system.normalise(state.q), state.v, state.scheme
        h, begun = t - t0, memory.begun
        m, f, gamma, beta = (
            x.astype(q0.dtype) for x in (method.alpha_m, method.alpha_f, method.gamma, method.beta)
        )

        # J and M near the end of the step, to solve its equations. The first step has no
        # acceleration yet to get there, and takes it from the same equations at its start.
        ahead = moved(system, q0, h * v0 + 0.5 * h**2 * memory.w)
        at = jnp.where(begun, t, t0), jnp.where(begun, ahead, q0), v0 + h * memory.w
        here = point(of, problem.control, *at)
        operator = here.operator(method.solver)
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
            contradiction_of(here, method.solver, operator, here.rows.phi),
            solved,
            projected,
        )
        new = state.replace(t=t, q=q1, v=v1, multipliers=lam, scheme=memory)
        return Step(new, result, jnp.abs(of.positions(t0, q0)))

    def between(self, state, h, t):
        del h
        return self.step(at_start(self.scheme, state), t).state

    def multipliers(self, state):
        # Those of the acceleration at this state. They are known at the start of a motion too.
        here = point(self.equations, self.problem.control, state.t, state.q, state.v)
        operator = here.operator(self.problem.enforcement.solver)
        return operator.solve(here.f, here.rows.gamma)[1]
