"""Multiple shooting: intervals are simulated and joined at the grid points."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..._results import RESULTS
from ..._step import Stepper, off_branch
from ..._system import State
from ..controls import Held, PiecewiseConstant
from ..motion import cost_rate, path_conditions
from ..problem import Problem
from .base import AbstractTranscription, Equations, Interval
from .dynamics import Dynamics, solve


class DirectMultipleShooting(AbstractTranscription):
    r"""Multiple shooting. Each interval is simulated from its first grid point, with the
    `enforcement`, `scheme` and `substeps` of the problem, under a constant control of its own. With
    q^, v^ at the end of this simulation,

        q_1 = q^ + h N(q_1) J_1^T gamma,    v_1 = v^ + M^-1 J_1^T mu,

    and Phi = 0, Phi' = 0 (or Psi = 0) at the grid points. Both ends lie on the manifold, so only
    their distance along it must be made zero. In the directions across it, continuity would repeat
    the constraints. The slacks gamma and mu free these directions. They vanish in a solution.

    The motion is as exact as the simulation. It stays on the manifold within the intervals too, and
    includes switches and contacts if the enforcement does. Derivatives go through the simulation.
    The cost is integrated by the trapezoidal rule over the substeps. `path` holds at the grid
    points, with the control of the interval that begins there.

    Reference: Bock and Plitt (1984), A multiple shooting algorithm for direct solution of optimal
    control problems, IFAC World Congress.
    """

    at_knots: ClassVar[bool] = False
    holds_control: ClassVar[bool] = True

    def own(self, problem: Problem, holonomic: int, rows: int) -> tuple[int, ...]:
        return (problem.nu, rows, holonomic)

    def own_guess(self, u: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, ...]:
        del lam
        return (u[:-1],)

    def equations(self, problem: Problem, dynamics: Dynamics, interval: Interval) -> Equations:
        t, h, (q0, v0, *_), (q1, v1, *_), (u, mu, gamma) = interval
        step, n = h / problem.substeps, problem.substeps
        stepper = Stepper(dynamics.system, problem.enforcement, problem.scheme)

        def onwards(state, _):
            state = stepper.step(state, step, Held(u))
            return state, (state.q, state.v)

        # The constraints need not hold during the search.
        start = stepper.init(State(t, q0, v0), start_tolerance=jnp.inf)
        last, later = jax.lax.scan(onwards, start, None, length=n)
        q, v = (jnp.concatenate([x[None], more]) for x, more in zip((q0, v0), later, strict=True))
        end = dynamics.at(t + h, q1, v1, u, jnp.zeros_like(mu))
        across = dynamics.normal(end, gamma)
        back = h * dynamics.system.qdot(q1, across)
        v_end = v[-1] + solve(end.M, end.J.T @ mu)
        defects = jnp.concatenate([q1 - dynamics.system.normalise(q[-1] + back), v1 - v_end])
        # After a failure the state stays constant. That must not count as a motion.
        good = (last.result == RESULTS.successful) & jnp.logical_not(
            off_branch(dynamics.system, last)
        )
        defects = jnp.where(good, defects, jnp.nan)
        rate = jax.vmap(cost_rate, (None, 0, 0, 0, None))
        costs = rate(problem, t + step * jnp.arange(n + 1, dtype=q0.dtype), q, v, u)
        cost = step * jnp.sum((costs[1:] + costs[:-1]) / 2)
        return Equations(cost, defects, path_conditions(problem, t, q0, v0, u), across)

    def control(self, t0: Any, dt: Any, knots: Any, own: Any) -> PiecewiseConstant:
        del knots
        return PiecewiseConstant(t0, dt, own)
