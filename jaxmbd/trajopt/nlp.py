"""Nonlinear programs, which are sums of many similar small parts, and their solvers."""

import abc
import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float, Int, PyTree
from scipy import sparse

from .._extensible import Extensible
from .._inputs import at_least, checked, number, positive, positive_or_infinite, unjudged
from .._printed import counted, judged, printed
from .._progress import progress_bar
from .._results import RESULTS


@checked
class Term(eqx.Module):
    """`count` similar parts of a program, each of which depends on `size` of the variables:

        cost_i, rows_i = fn(x[index[i]], data[i]),    lower <= rows_i <= upper.

    The Jacobian and Hessian are `count` small dense blocks, all computed by one `vmap`. So the cost
    of exact derivatives per part does not depend on the number of parts.

    **Arguments:**

    - `fn`: `(x, data) -> (cost, rows)`, with x of shape `(size,)`, a scalar, and `(rows,)`.
    - `index`: the variables of each part, shape `(count, size)`; no variable twice in a part.
    - `data`: a pytree of arrays with leading axis `count`, or `None`.
    - `lower`, `upper`: the bounds of the rows, shape `(rows,)`, the same in each part.
    """

    fn: Callable[[Array, PyTree], tuple[Array, Array]]
    index: Int[Array, "count size"] = eqx.field(converter=jnp.asarray)
    data: PyTree = None
    lower: Annotated[Float[Array, "..."], number] = eqx.field(converter=jnp.asarray, default=0.0)
    upper: Annotated[Float[Array, "..."], number] = eqx.field(converter=jnp.asarray, default=0.0)

    @property
    def count(self) -> int:
        return self.index.shape[0]

    def values(
        self, x: Float[Array, " n"]
    ) -> tuple[Float[Array, " count"], Float[Array, "count rows"]]:
        """The costs and rows of all parts."""
        return jax.vmap(self.fn)(x[self.index], self.data)

    def jacobians(self, x: Float[Array, " n"]) -> Float[Array, "count rows size"]:
        """The derivatives d rows / d x of all parts."""
        return jax.vmap(jax.jacfwd(lambda x, data: self.fn(x, data)[1]))(x[self.index], self.data)

    def hessians(
        self, x, factor, lam: Float[Array, "count rows"]
    ) -> Float[Array, "count size size"]:
        """The second derivatives d2 (factor cost + lam . rows) / d x2 of all parts."""

        def lagrangian(x, data, lam):
            cost, rows = self.fn(x, data)
            return factor * cost + lam @ rows

        return jax.vmap(jax.hessian(lagrangian))(x[self.index], self.data, lam)


@checked
class NonlinearProgram(eqx.Module):
    """The nonlinear program

        min  sum of the costs of all terms   over x,
        subject to  lower <= rows of each term <= upper,   lower <= x <= upper.

    Equal bounds give an equality. An infinite bound does not act.

    **Arguments:**

    - `terms`: a tuple of `Term`.
    - `start`: the start of the search, shape `(n,)`.
    - `lower`, `upper`: the bounds of the variables, shape `(n,)`.
    """

    terms: tuple[Term, ...]
    start: Annotated[Float[Array, " n"], unjudged] = eqx.field(converter=jnp.asarray)
    lower: Annotated[Float[Array, " n"], number] = eqx.field(converter=jnp.asarray)
    upper: Annotated[Float[Array, " n"], number] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        if not self.start.shape == self.lower.shape == self.upper.shape:
            raise ValueError(
                "`start`, `lower` and `upper` of a program must have one shape, but have "
                f"{self.start.shape}, {self.lower.shape} and {self.upper.shape}."
            )
        crossed = np.flatnonzero(np.asarray(self.lower) > np.asarray(self.upper))
        if crossed.size:
            raise ValueError(
                f"Lower bounds must not exceed upper ones, but do for variables {crossed[:5]}."
            )


@eqx.filter_jit
def _objective(program: NonlinearProgram, x):
    return functools.reduce(jnp.add, (jnp.sum(term.values(x)[0]) for term in program.terms))


@eqx.filter_jit
def _gradient(program: NonlinearProgram, x):
    return jax.grad(lambda x: _objective(program, x))(x)


@eqx.filter_jit
def _rows(program: NonlinearProgram, x):
    return jnp.concatenate([term.values(x)[1].ravel() for term in program.terms])


@eqx.filter_jit
def _jacobian(program: NonlinearProgram, x):
    return jnp.concatenate([term.jacobians(x).ravel() for term in program.terms])


@eqx.filter_jit
def _hessian(program: NonlinearProgram, x, factor, lam):
    values, first = [], 0
    for term in program.terms:
        rows = term.lower.shape[0]
        own = jax.lax.dynamic_slice_in_dim(lam, first, term.count * rows)
        H = term.hessians(x, factor, own.reshape(term.count, rows))
        values.append(H[:, *np.tril_indices(H.shape[1])].ravel())
        first += term.count * rows
    return jnp.concatenate(values)


class Evaluator:
    """A program as NumPy functions, in the form that solvers need. Sparse matrices are given by
    their values, at places that are known beforehand. At repeated places the values are added. Each
    function is compiled once for programs of the same functions and shapes."""

    def __init__(self, program: NonlinearProgram):
        self.program = program
        self.start = np.array(program.start, float)
        self.lower, self.upper = np.array(program.lower, float), np.array(program.upper, float)
        terms = program.terms
        self.row_lower = np.concatenate([np.tile(np.asarray(x.lower), x.count) for x in terms])
        self.row_upper = np.concatenate([np.tile(np.asarray(x.upper), x.count) for x in terms])

    def objective(self, x) -> float:
        return float(_objective(self.program, x))

    def gradient(self, x) -> np.ndarray:
        return np.asarray(_gradient(self.program, x))

    def rows(self, x) -> np.ndarray:
        return np.asarray(_rows(self.program, x))

    def jacobian(self, x) -> np.ndarray:
        return np.asarray(_jacobian(self.program, x))

    def hessian(self, x, factor, lam) -> np.ndarray:
        """The Hessian of factor * objective + lam . rows, as values of the lower triangle."""
        return np.asarray(_hessian(self.program, x, np.asarray(factor, float), lam))

    def jacobian_places(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) of the values of `jacobian`."""
        places, first = [], 0
        for term in self.program.terms:
            index, rows = np.asarray(term.index), term.lower.shape[0]
            row = first + np.arange(term.count * rows).reshape(term.count, rows, 1)
            places.append(np.broadcast_arrays(row, index[:, None, :]))
            first += term.count * rows
        return _joined(places)

    def hessian_places(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) of the values of `hessian`."""
        places = []
        for term in self.program.terms:
            index = np.asarray(term.index)
            a, b = (index[:, i] for i in np.tril_indices(index.shape[1]))
            places.append((np.maximum(a, b), np.minimum(a, b)))
        return _joined(places)

    def violation(self, x) -> float:
        """The largest violation of a row or a bound."""
        rows = self.rows(x)
        return float(
            max(
                np.max(np.maximum(self.row_lower - rows, rows - self.row_upper), initial=0.0),
                np.max(np.maximum(self.lower - x, x - self.upper), initial=0.0),
            )
        )

    def solution(self, x, iterations: int, result: RESULTS, message="") -> "NLPSolution":
        """The result of a search that ended at x."""
        violation = self.violation(x)
        return NLPSolution(x, self.objective(x), violation, iterations, result, message)


def _joined(places) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = zip(*places, strict=True)
    return tuple(np.concatenate([x.ravel() for x in part]) for part in (rows, columns))  # pyright: ignore[reportReturnType]


@printed
class NLPSolution(eqx.Module):
    """The result of a solver.

    **Fields:**

    - `x`: the variables, shape `(n,)`.
    - `objective`: the sum of all costs.
    - `violation`: the largest violation of a row or a bound.
    - `iterations`: the number of iterations taken.
    - `result`: a member of `mbd.RESULTS`. `message`: what the solver says beyond that.
    """

    x: np.ndarray
    objective: float
    violation: float
    iterations: int
    result: RESULTS
    message: str = ""

    def __str__(self) -> str:
        return (
            f"{self.message or judged(self.result, 'converged', 'not converged')}\n"
            f"objective {self.objective:.9g}, violation {self.violation:.1e}, after "
            f"{counted(self.iterations, 'iteration')}"
        )


class AbstractNLPSolver(Extensible):
    """A solver of nonlinear programs with sparse first and second derivatives."""

    @abc.abstractmethod
    def solve(self, program: NonlinearProgram, *, progress: bool = False) -> NLPSolution:
        """Find a local optimum of `program`, from its `start`. After a failure, `result` gives the
        reason and x is the last point.

        **Arguments:**

        - `progress`: whether to show a bar, with the objective and violation at each iteration.
        """


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

    - `tolerance` for the gradient of the Lagrangian. `max_iterations`: the limit.

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
        x = np.clip(all_of(found.x), evaluator.lower, evaluator.upper)
        result = _verdict(found, evaluator.violation(x))
        return evaluator.solution(x, iterations + found.nit, result)


def _verdict(found: Any, violation: float) -> RESULTS:
    if found.status == 0:
        return RESULTS.max_iterations_reached
    if violation > _FEASIBLE:
        return RESULTS.infeasible
    stuck = found.status == 2 and found.optimality > _STATIONARY
    return RESULTS.stuck if stuck else RESULTS.successful


_STOPPED = RESULTS.max_iterations_reached
# The verdicts of Uno on the last point, and its reasons to end without success, in words where they
# say more.
_KINDS = {
    "FEASIBLE_KKT_POINT": (RESULTS.successful, ""),
    "FEASIBLE_FJ_POINT": (
        RESULTS.stuck,
        "Converged to a point where the gradients of the conditions are dependent, such as where a "
        "condition only touches the constraints. It may not be the optimum: state the condition "
        "by another function that vanishes there, with a gradient of its own.",
    ),
    "INFEASIBLE_STATIONARY_POINT": (RESULTS.infeasible, ""),
    "FEASIBLE_SMALL_STEP": (RESULTS.stuck, ""),
    "INFEASIBLE_SMALL_STEP": (RESULTS.infeasible, ""),
    "UNBOUNDED_OBJECTIVE": (
        RESULTS.stuck,
        "The cost falls without end: is a bound or a term of it missing?",
    ),
    "NOT_OPTIMAL": (RESULTS.stuck, ""),
}
_ENDS = {
    "ITERATION_LIMIT": (_STOPPED, ""),
    "TIME_LIMIT": (_STOPPED, "Not finished: the limit of time was reached first."),
    "EVALUATION_ERROR": (RESULTS.stuck, "A cost, a condition or a derivative is not finite."),
    "ALGORITHMIC_ERROR": (RESULTS.stuck, "The solver gave up."),
    "USER_TERMINATION": (_STOPPED, "Stopped."),
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
        ended, kind = found.optimization_status.name, found.solution_status.name
        result, message = _KINDS[kind] if ended == "SUCCESS" else _ENDS[ended]
        x = np.clip(found.primal_solution, evaluator.lower, evaluator.upper)
        return evaluator.solution(x, found.number_iterations, result, message)


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
