"""The solver Uno for sparse nonlinear programs."""

from typing import Annotated, Any, Literal

import numpy as np

from ..._inputs import at_least, checked, positive, positive_or_infinite
from ..._progress import progress_bar
from ..status import STATUS
from .base import AbstractNLPSolver, NLPSolution
from .program import Evaluator, NonlinearProgram

# The verdicts of Uno on the last point, and its reasons to end without success.
_KINDS = {
    "FEASIBLE_KKT_POINT": (STATUS.converged, "Converged: a local optimum to the tolerance."),
    "FEASIBLE_FJ_POINT": (
        STATUS.stuck,
        "Converged to a point where the gradients of the conditions are dependent, such as where a "
        "condition only touches the constraints. It may not be the optimum: state the condition "
        "by another function that vanishes there, with a gradient of its own.",
    ),
    "INFEASIBLE_STATIONARY_POINT": (
        STATUS.infeasible,
        "No point nearby violates the conditions less. They may contradict the bounds or the "
        "dynamics, or the guess is too far away.",
    ),
    "FEASIBLE_SMALL_STEP": (
        STATUS.stuck,
        "Steps became too small, at a point that meets the conditions.",
    ),
    "INFEASIBLE_SMALL_STEP": (
        STATUS.infeasible,
        "Steps became too small, at a point that violates the conditions.",
    ),
    "UNBOUNDED_OBJECTIVE": (
        STATUS.stuck,
        "The cost falls without end: is a bound or a term of it missing?",
    ),
    "NOT_OPTIMAL": (STATUS.stuck, "Ended at a point that is not optimal."),
}
_ENDS = {
    "ITERATION_LIMIT": (
        STATUS.running,
        "Not finished: the limit of iterations was reached first.",
    ),
    "TIME_LIMIT": (STATUS.running, "Not finished: the limit of time was reached first."),
    "EVALUATION_ERROR": (STATUS.stuck, "A cost, a condition or a derivative is not finite."),
    "ALGORITHMIC_ERROR": (STATUS.stuck, "The solver gave up."),
    "USER_TERMINATION": (STATUS.running, "Stopped."),
}


@checked
class Uno(AbstractNLPSolver):
    """The solver Uno, with exact second derivatives. The preset `"ipopt"` is an interior-point
    method with a filter line search, like IPOPT. The preset `"filtersqp"` is sequential quadratic
    programming in a trust region.

    Needs `unopy`: `pip install "jaxmbd[trajopt]"`.

    **Arguments:**

    - `preset`: the preset of Uno's options. `"ipopt"` (default) is the fastest. `"filtersqp"` can
      start from a good plan and then takes few iterations.
    - `tolerance`: the tolerance of conditions and stationarity.
    - `max_iterations`, `max_seconds`: the limits of iterations and time.
    - `options`: other options of Uno, as pairs `(("barrier_initial_parameter", 0.01), ...)`.

    References: Vanaret and Leyffer (2024), Implementing a unified solver for nonlinearly
    constrained optimization; Waechter and Biegler (2006), On the implementation of an
    interior-point filter line-search algorithm, Mathematical Programming 106.
    """

    preset: Literal["ipopt", "filtersqp"] = "ipopt"
    tolerance: Annotated[float, positive] = 1e-8
    max_iterations: Annotated[int, at_least(1)] = 1000
    max_seconds: Annotated[float, positive_or_infinite] = float("inf")
    options: tuple[tuple[str, Any], ...] = ()

    def solve(self, program: NonlinearProgram, *, progress: bool = False) -> NLPSolution:
        unopy = _unopy()
        evaluator = Evaluator(program)
        solver = unopy.UnoSolver()
        solver.set_preset(self.preset)
        for name, value in (
            ("logger", "SILENT"),
            ("primal_tolerance", self.tolerance),
            ("dual_tolerance", self.tolerance),
            ("max_iterations", self.max_iterations),
            ("time_limit", self.max_seconds),
            *self.options,
        ):
            solver.set_option(name, value)
        with progress_bar(self.max_iterations, "Uno", progress) as bar:

            def report(x, _lower, _upper, _lam, _factor, violation, stationarity, _complementarity):
                bar.update()
                bar.set_postfix_str(
                    f"cost {evaluator.objective(x):.6g}, conditions {violation:.1e}, "
                    f"stationarity {stationarity:.1e}"
                )

            if progress:
                solver.set_notify_acceptable_iterate_callback(report)
            found = solver.optimize(_model(unopy, evaluator))
        x = np.clip(found.primal_solution, evaluator.lower, evaluator.upper)
        ended, kind = found.optimization_status.name, found.solution_status.name
        status, message = _KINDS[kind] if ended == "SUCCESS" else _ENDS[ended]
        violation, objective = evaluator.violation(x), evaluator.objective(x)
        return NLPSolution(x, objective, violation, found.number_iterations, status, message)


def _unopy() -> Any:
    try:
        import unopy
    except ImportError as error:
        raise ImportError(
            '`Uno` needs unopy: `pip install "jaxmbd[trajopt]"`. Or use `mbd.trajopt.SciPy()`.'
        ) from error
    return unopy


def _model(unopy: Any, evaluator: Evaluator) -> Any:
    def fill(fn):
        def filling(*arguments):
            arguments[-1][:] = fn(*arguments[:-1])

        return filling

    lower, upper = evaluator.lower.tolist(), evaluator.upper.tolist()
    model = unopy.Model(
        unopy.PROBLEM_NONLINEAR, len(lower), lower, upper, unopy.ZERO_BASED_INDEXING
    )
    model.set_objective(unopy.MINIMIZE, evaluator.objective, fill(evaluator.gradient))
    rows, columns = evaluator.jacobian_places()
    model.set_constraints(
        len(evaluator.row_lower),
        fill(evaluator.rows),
        evaluator.row_lower.tolist(),
        evaluator.row_upper.tolist(),
        len(rows),
        rows.tolist(),
        columns.tolist(),
        fill(evaluator.jacobian),
    )
    rows, columns = evaluator.hessian_places()
    model.set_lagrangian_sign_convention(unopy.MULTIPLIER_POSITIVE)
    model.set_lagrangian_hessian(
        len(rows), unopy.LOWER_TRIANGLE, rows.tolist(), columns.tolist(), fill(evaluator.hessian)
    )
    model.set_initial_primal_iterate(evaluator.start.tolist())
    return model
