"""The interface of solvers of nonlinear programs."""

import abc

import equinox as eqx
import numpy as np

from ..._extensible import Extensible
from ..status import STATUS
from .program import NonlinearProgram


class NLPSolution(eqx.Module):
    """The result of a solver.

    **Fields:**

    - `x`: the variables, shape `(n,)`.
    - `objective`: the sum of all costs.
    - `violation`: the largest violation of a row or a bound.
    - `iterations`: the number of iterations taken.
    - `status`: a member of `mbd.trajopt.STATUS`. `message`: the solver's verdict in words.
    """

    x: np.ndarray
    objective: float
    violation: float
    iterations: int
    status: STATUS
    message: str


class AbstractNLPSolver(Extensible):
    """A solver of nonlinear programs with sparse first and second derivatives."""

    @abc.abstractmethod
    def solve(self, program: NonlinearProgram, *, progress: bool = False) -> NLPSolution:
        """Find a local optimum of `program`, from its `start`. After a failure, `status` gives the
        reason and x is the last point.

        **Arguments:**

        - `progress`: whether to show a bar, with the objective and violation at each iteration.
        """
