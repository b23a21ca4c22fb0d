"""Trapezoidal collocation of constrained motion."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ..controls import PiecewiseLinear
from ..motion import cost_rate
from ..problem import Problem
from .base import AbstractTranscription, Equations, Interval
from .dynamics import Dynamics, solve


class Trapezoidal(AbstractTranscription):
    r"""Trapezoidal collocation. Each interval (0 to 1) is a step of the rule; u is linear in it:

        q_1 = q_0 + h / 2 (q'_0 + q'_1) + h N(q_1) J_1^T gamma,
        v_1 = v_0 + h / 2 (v'_0 + v'_1) + h M^-1 J_1^T mu,

    and Phi = 0, Phi' = 0, Phi'' = 0 (or Psi = 0, Psi' = 0) at the grid points. The rule alone
    leaves the manifold by its error, and the slacks gamma and mu take the end back to it. Without
    them there would be more equations than unknowns (as in the stabilised index-2 form of Gear,
    Gupta and Leimkuhler, 1985). q_1 is normalised, which keeps quaternions at length one.

    The cost is integrated by the trapezoidal rule. The order is two. The method is robust, and
    cheap for rough first plans, from which `HermiteSimpson` can then start.

    Reference: Betts (2010), Practical methods for optimal control, section 4.
    """

    at_knots: ClassVar[bool] = True
    holds_control: ClassVar[bool] = False

    def own(self, problem: Problem, holonomic: int, rows: int) -> tuple[int, ...]:
        return (rows, holonomic)

    def own_guess(self, u: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, ...]:
        del lam
        return (np.zeros((len(u) - 1, 0)),)

    def equations(self, problem: Problem, dynamics: Dynamics, interval: Interval) -> Equations:
        t, h, (q0, v0, u0, _), (q1, v1, u1, _), (mu, gamma) = interval
        begin, end = dynamics.ends(interval)
        qdot = begin.qdot + end.qdot
        across = dynamics.normal(end, gamma)
        q_end = q0 + h / 2 * qdot + h * dynamics.system.qdot(q1, across)
        a = begin.acceleration + end.acceleration
        v_end = v0 + h / 2 * a + h * solve(end.M, end.J.T @ mu)
        defects = jnp.concatenate([q1 - dynamics.system.normalise(q_end), v1 - v_end])
        costs = cost_rate(problem, t, q0, v0, u0) + cost_rate(problem, t + h, q1, v1, u1)
        return Equations(h / 2 * costs, defects, jnp.zeros(0, q0.dtype), across)

    def control(self, t0: Any, dt: Any, knots: Any, own: Any) -> PiecewiseLinear:
        del own
        return PiecewiseLinear(t0, dt, knots)
