"""Direct single shooting, where the controls are the unknowns and the motion follows from them."""

from typing import Annotated, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import ArrayLike

from .._inputs import at_least, checked, not_negative, positive
from .._progress import says_when_compiling
from .bounds import AbstractBounds
from .plan import Plan
from .problem import Problem
from .shooting_rounds import BATCH, SINGLE, Setting, over_starts, search
from .status import STATUS


@checked
@says_when_compiling("shooting")
def shooting(
    problem: Problem,
    guess: Any = None,
    optimiser: Any = None,
    *,
    bounds: AbstractBounds | None = None,
    max_iterations: Annotated[int, at_least(1)] = 1000,
    max_rounds: Annotated[int, at_least(1)] = 12,
    tolerance: Annotated[ArrayLike, not_negative] = 1e-6,
    condition_tolerance: Annotated[ArrayLike, not_negative] = 1e-4,
    penalty: Annotated[ArrayLike, positive] = 10.0,
    progress: bool = True,
) -> Plan:
    """Minimise the cost of a `Problem` over the numbers in a control, with gradients by reverse
    mode through the simulation. Few states are stored and the others are recomputed, so it needs
    little memory.

    The control may be a table in time or a policy with parameters, such as a neural network: any
    pytree that is callable as (t, q, v) -> u. Its floating-point arrays are the unknowns.

    `bounds` keeps u within its bounds. The conditions `final` and `path` become terms of the cost
    by the method of multipliers: each round minimises the cost with these terms, then adjusts them;
    see `mbd.trajopt.Multipliers`.

    The method needs only gradients and works with every policy. For controls in a table,
    `mbd.trajopt.ilqr` takes far fewer iterations.

    **Arguments:**

    - `problem`: the problem to solve.
    - `guess`: controls of shape `(steps, nu)` or `(nu,)`, or a callable (t, q, v) -> u; default
      zero.
    - `optimiser`: one of optax, such as `optax.adam(1e-2)` or `optax.lbfgs()`, or a minimiser of
      optimistix; default `optimistix.BFGS(rtol=1e-8, atol=1e-8)`.
    - `bounds`: `mbd.trajopt.Squash()` (default) or `Projected()`.
    - `max_iterations`: the limit in each round. `max_rounds`: that of the method of multipliers.
    - `tolerance`: an optimiser of optax stops when a step along the gradient would change no
      unknown by more than this. Those of optimistix have their own.
    - `condition_tolerance`: the tolerance of |final| and of positive entries of `path`.
    - `penalty`: rho of the first round. It grows tenfold after each round that gains little.
    - `progress`: whether to show a bar.

    **Returns:** a `Plan` whose `control` is the optimised one, with its bounds.

    **Raises:** `ValueError` for a guess of the wrong shape, an optimiser of no known kind, or
    bounds that do not suit the control.

    Reference: Nocedal and Wright (2006), Numerical Optimization, chapters 6, 7 and 17.
    """
    numbers = tolerance, condition_tolerance, penalty
    setting = Setting.of(problem, optimiser, bounds, numbers)
    limits = max_iterations, max_rounds
    return search(setting, setting.control(guess), limits, progress, SINGLE)


@checked
@says_when_compiling("shooting")
def multi_start(
    problem: Problem,
    guesses: Any,
    optimiser: Any = None,
    *,
    bounds: AbstractBounds | None = None,
    max_iterations: Annotated[int, at_least(1)] = 1000,
    max_rounds: Annotated[int, at_least(1)] = 12,
    tolerance: Annotated[ArrayLike, not_negative] = 1e-6,
    condition_tolerance: Annotated[ArrayLike, not_negative] = 1e-4,
    penalty: Annotated[ArrayLike, positive] = 10.0,
    progress: bool = True,
) -> Plan:
    """Run `shooting` from a batch of guesses at once. `mbd.trajopt.best` selects the best plan.

    **Arguments:** as for `shooting`, but

    - `guesses`: controls of shape `(starts, steps, nu)`, or a callable whose arrays all have a
      leading axis of starts, as made by `eqx.filter_vmap` of its constructor.

    **Returns:** a `Plan` in which every field has the leading axis.
    """
    if callable(guesses):
        leaves = jax.tree.leaves(eqx.filter(guesses, eqx.is_array))
        sizes = {x.shape[0] if x.ndim else None for x in leaves}
        if len(sizes) != 1 or None in sizes:
            raise ValueError(
                "Arrays of a callable in `guesses` must all have one leading axis of starts, but "
                f"have shapes {[x.shape for x in leaves]}."
            )
    elif np.ndim(guesses) != 3:
        raise ValueError(
            f"Argument `guesses` must have shape (starts, {problem.steps}, {problem.nu}), but has "
            f"{np.shape(guesses)}."
        )

    numbers = tolerance, condition_tolerance, penalty
    setting = Setting.of(problem, optimiser, bounds, numbers)
    controls = over_starts(Setting.control)(setting, guesses)
    return search(setting, controls, (max_iterations, max_rounds), progress, BATCH)


@checked
def best(plans: Plan) -> Plan:
    """Select the plan of lowest cost among those of a batch that converged. If none converged,
    select the one with the smallest violation of the conditions."""
    if np.ndim(plans.cost) != 1:
        raise ValueError(
            "Argument `plans` of best must be a batch of plans, as `mbd.trajopt.multi_start` makes "
            f"it, but its costs have shape {np.shape(plans.cost)}."
        )
    wrong = np.maximum(np.asarray(plans.final_violation), np.asarray(plans.path_violation))
    converged = np.asarray(plans.status == STATUS.converged)
    costs = np.asarray(plans.cost)
    wrong, costs = (np.where(np.isfinite(x), x, np.inf) for x in (wrong, costs))
    if converged.any():
        index = int(np.argmin(np.where(converged, costs, np.inf)))
    else:
        index = int(np.lexsort((costs, wrong))[0])
    return jax.tree.map(lambda x: x[index], plans)
