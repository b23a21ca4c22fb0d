"""Hermite-Simpson collocation of constrained motion."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ..motion import cost_rate, path_conditions
from ..piecewise_quadratic import PiecewiseQuadratic
from ..problem import Problem
from .base import AbstractTranscription, Equations, Interval
from .dynamics import Dynamics


class HermiteSimpson(AbstractTranscription):
    r"""Hermite-Simpson collocation. In each interval, q and v are cubics that satisfy the equations
    of motion at begin, middle and end (0, c, 1); the control is quadratic:

        q_c = (q_0 + q_1) / 2 + h / 8 (q'_0 - q'_1),     likewise v_c,
        q_1 = q_0 + h / 6 (q'_0 + 4 q'_c + q'_1),        q'_c = N(q_c) (v_c + J_c^T gamma),
        v_1 = v_0 + h / 6 (v'_0 + 4 v'_c + v'_1),        M v'_c = f_c + J_c^T lam_c,

    and Phi = 0, Phi' = 0, Phi'' = 0 (or Psi = 0, Psi' = 0) at the grid points. The cubic cannot
    stay on the manifold, so without the velocity slack gamma there would be more equations than
    unknowns. gamma is as small as the error of the scheme. Both q_c and q_1 are normalised. This
    keeps quaternions at length one without rows for them.

    The multipliers at the grid points and in the middles are unknowns. The cost is integrated by
    Simpson's rule, and bounds and `path` hold in the middles too. The order is four without
    constraints. Choose this method for smooth motions.

    Reference: Posa, Kuindersma and Tedrake (2016), Optimization and stabilization of trajectories
    for constrained dynamical systems, ICRA, section III; Kelly (2017), An introduction to
    trajectory optimization, SIAM Review 59, section 4.
    """

    at_knots: ClassVar[bool] = True
    holds_control: ClassVar[bool] = True

    def own(self, problem: Problem, holonomic: int, rows: int) -> tuple[int, ...]:
        return (problem.nu, rows, holonomic)

    def own_guess(self, u: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, ...]:
        return ((u[1:] + u[:-1]) / 2, (lam[1:] + lam[:-1]) / 2)

    def equations(self, problem: Problem, dynamics: Dynamics, interval: Interval) -> Equations:
        t, h, (q0, v0, u0, _), (q1, v1, u1, _), (u, lam, gamma) = interval
        begin, end = dynamics.ends(interval)
        q = dynamics.system.normalise((q0 + q1) / 2 + h / 8 * (begin.qdot - end.qdot))
        v = (v0 + v1) / 2 + h / 8 * (begin.acceleration - end.acceleration)
        middle = dynamics.at(t + h / 2, q, v, u, lam)
        across = dynamics.normal(middle, gamma)
        qdot = dynamics.system.qdot(q, v + across)
        q_end = q0 + h / 6 * (begin.qdot + 4 * qdot + end.qdot)
        v_end = v0 + h / 6 * (begin.acceleration + 4 * middle.acceleration + end.acceleration)
        defects = jnp.concatenate([q1 - dynamics.system.normalise(q_end), v1 - v_end])
        costs = (
            cost_rate(problem, t, q0, v0, u0),
            cost_rate(problem, t + h / 2, q, v, u),
            cost_rate(problem, t + h, q1, v1, u1),
        )
        cost = h / 6 * (costs[0] + 4 * costs[1] + costs[2])
        return Equations(cost, defects, path_conditions(problem, t + h / 2, q, v, u), across)

    def control(self, t0: Any, dt: Any, knots: Any, own: Any) -> PiecewiseQuadratic:
        return PiecewiseQuadratic(t0, dt, knots, own)
