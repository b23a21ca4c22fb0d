"""The solver of SciPy for sparse nonlinear programs."""

from typing import Annotated, Any

import numpy as np
import scipy.optimize
from scipy import sparse

from ..._inputs import at_least, checked, positive
from ..._progress import progress_bar
from ..status import STATUS
from .base import AbstractNLPSolver, NLPSolution
from .program import Evaluator, NonlinearProgram

# Its stubs lack Jacobians and bounds that are arrays.
optimize: Any = scipy.optimize

# The first barrier parameter, as in SciPy.
_BARRIER = 0.1
# The violation and stationarity up to which a search that ends by small steps has converged.
_FEASIBLE, _STATIONARY = 1e-6, 1e-4


@checked
class SciPy(AbstractNLPSolver):
    """The method `trust-constr` of `scipy.optimize.minimize`, with sparse exact first and second
    derivatives. It is a trust-region method with an interior point for inequalities. It needs only
    SciPy, and takes several times longer than `Uno`.

    **Arguments:**

    - `tolerance`: that of the gradient of the Lagrangian. `max_iterations`: the limit.

    Reference: Byrd, Hribar and Nocedal (1999), An interior point algorithm for large-scale
    nonlinear programming, SIAM Journal on Optimization 9.
    """

    tolerance: Annotated[float, positive] = 1e-8
    max_iterations: Annotated[int, at_least(1)] = 2000

    def solve(self, program: NonlinearProgram, *, progress: bool = False) -> NLPSolution:
        evaluator = Evaluator(program)
        n, m = len(evaluator.start), len(evaluator.row_lower)
        # The method does not allow variables with equal bounds.
        free = np.flatnonzero(evaluator.lower < evaluator.upper)
        jacobian_places, hessian_places = evaluator.jacobian_places(), evaluator.hessian_places()

        def all_of(y):
            x = evaluator.start.copy()
            x[free] = y
            return x

        def jacobian(y):
            J = sparse.coo_array((evaluator.jacobian(all_of(y)), jacobian_places), (m, n))
            return J.tocsc()[:, free].tocsr()

        def hessian(y, factor, lam):
            values = evaluator.hessian(all_of(y), factor, lam)
            lower = sparse.coo_array((values, hessian_places), (n, n)).tocsr()[free][:, free]
            return lower + sparse.tril(lower, -1).T

        rows = optimize.NonlinearConstraint(
            lambda y: evaluator.rows(all_of(y)),
            evaluator.row_lower,
            evaluator.row_upper,
            jac=jacobian,
            hess=lambda y, lam: hessian(y, 0.0, lam),
        )
        bounds = optimize.Bounds(evaluator.lower[free], evaluator.upper[free])
        with progress_bar(self.max_iterations, "SciPy", progress) as bar:

            def report(intermediate_result):
                bar.update()
                bar.set_postfix_str(
                    f"cost {intermediate_result.fun:.6g}, "
                    f"conditions {intermediate_result.constr_violation:.1e}"
                )

            def search(y, barrier, iterations):
                return optimize.minimize(
                    lambda y: evaluator.objective(all_of(y)),
                    y,
                    jac=lambda y: evaluator.gradient(all_of(y))[free],
                    hess=lambda y: hessian(y, 1.0, np.zeros(m)),
                    constraints=[rows] if m else [],
                    bounds=bounds,
                    method="trust-constr",
                    callback=report if progress else None,
                    options={
                        "gtol": self.tolerance,
                        "xtol": 1e-12,
                        "initial_barrier_parameter": barrier,
                        "initial_barrier_tolerance": barrier,
                        "maxiter": iterations,
                    },
                )

            # If the search ends with a barrier that keeps it off the bounds, lower it and go on.
            barrier, iterations = _BARRIER, 0
            found = search(evaluator.start[free], barrier, self.max_iterations)
            while getattr(found, "barrier_parameter", 0.0) > self.tolerance:
                iterations += found.nit
                if iterations >= self.max_iterations:
                    break
                barrier = max(min(barrier, found.barrier_parameter) / 100, self.tolerance)
                found = search(found.x, barrier, self.max_iterations - iterations)
        x = all_of(np.clip(found.x, bounds.lb, bounds.ub))
        violation, objective = evaluator.violation(x), evaluator.objective(x)
        return NLPSolution(
            x, objective, violation, iterations + found.nit, *_verdict(found, violation)
        )


def _verdict(found: Any, violation: float) -> tuple[STATUS, str]:
    if found.status == 0:
        return STATUS.running, "Not finished: the limit of iterations was reached first."
    if violation > _FEASIBLE:
        return STATUS.infeasible, "Steps became too small, at a point that violates the conditions."
    if found.status == 2 and found.optimality > _STATIONARY:
        return STATUS.stuck, "Steps became too small, at a point that meets the conditions."
    return STATUS.converged, "Converged: a local optimum to the tolerance."
