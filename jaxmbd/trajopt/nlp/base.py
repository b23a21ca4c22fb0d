"""What a solver of nonlinear programs is, and what it returns."""

import abc

import equinox as eqx
import numpy as np

from ..status import STATUS
from .program import NonlinearProgram


class NLPSolution(eqx.Module):
    """Where a solver ended.

    **Fields:**

    - `x`: variables, shape `(n,)`.
    - `objective`: the sum of all costs.
    - `violation`: the largest violation of a row or a bound.
    - `iterations`: taken.
    - `status`: a member of `mbd.trajopt.STATUS`. `message`: what the solver says, in words.
    """

    x: np.ndarray
    objective: float
    violation: float
    iterations: int
    status: STATUS
    message: str


class AbstractNLPSolver(eqx.Module):
    """A solver of nonlinear programs with sparse first and second derivatives."""

    @abc.abstractmethod
    def solve(self, program: NonlinearProgram, *, progress: bool = False) -> NLPSolution:
        """A local optimum of `program`, from its `start`. Failure is told by `status`, and x is
        then the last point.

        **Arguments:**

        - `progress`: show a bar with objective and violation at each iteration.
        """
