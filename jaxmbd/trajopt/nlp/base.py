"""The interface of solvers of nonlinear programs."""

import abc

import equinox as eqx
import numpy as np

from ..._extensible import Extensible
from ..._printed import counted, printed
from ..status import STATUS
from .program import NonlinearProgram


@printed
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

    def __str__(self) -> str:
        return (
            f"{self.message or STATUS[self.status]}\nobjective {self.objective:.9g}, violation "
            f"{self.violation:.1e}, after {counted(self.iterations, 'iteration')}"
        )


class AbstractNLPSolver(Extensible):
    """A solver of nonlinear programs with sparse first and second derivatives."""

    @abc.abstractmethod
    def solve(self, program: NonlinearProgram, *, progress: bool = False) -> NLPSolution:
        """Find a local optimum of `program`, from its `start`. After a failure, `status` gives the
        reason and x is the last point.

        **Arguments:**

        - `progress`: whether to show a bar, with the objective and violation at each iteration.
        """
