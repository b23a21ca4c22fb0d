"""Searches that begin with smoothed laws of contact and friction."""

from typing import Annotated, Any

import equinox as eqx
import numpy as np

from .._compiler import to_jax
from .._inputs import at_least, checked, positive
from .problem import FitProblem
from .shooting import AbstractShooting


@checked
class GraduatedSmoothing(AbstractShooting):
    """One simulation of each record, at first with smoothed laws of contact and friction. Each
    stage begins with the parameters of the one before and has a smaller width; the last one, with
    the laws of the enforcement itself, is single shooting. So the result has no error by smoothing,
    unless the enforcement smooths too; `check_model` then tells how much.

    Where all contacts stick, derivatives by their friction are 0, and a search does not begin.
    A smoothed contact creeps, by more the more force it holds, and so shows its friction. Use it
    where sensors cannot pull (`GuidedShooting`), or where what sticks would have to slide.

    **Fields:**

    - `widest`, `narrowest`: the `smoothing` of the first and of the last of these stages [m/s],
      with equal ratios between them. Take the speeds that were measured as the widest; the
      narrowest is by default a thousandth of it.
    - `stages`: their number. `max_iterations`: the limit in each of them.

    Reference: Blake and Zisserman (1987), Visual Reconstruction (graduated non-convexity).
    """

    widest: Annotated[float, positive] = eqx.field(static=True)
    narrowest: Annotated[float | None, positive] = eqx.field(static=True, default=None)
    stages: Annotated[int, at_least(1)] = eqx.field(static=True, default=4)
    max_iterations: Annotated[int, at_least(1)] = eqx.field(static=True, default=30)
    starts: None = None

    def cuts(self, record):
        return [0]

    @property
    def widths(self) -> np.ndarray:
        """The widths of the stages [m/s]."""
        last = 1e-3 * self.widest if self.narrowest is None else self.narrowest
        return np.geomspace(self.widest, last, self.stages)


def width_of(problem: FitProblem):
    """The width by which the simulations of a problem smooth."""
    enforcement: Any = problem.residuals.simulation.enforcement
    return enforcement.smoothing


def with_smoothing(problem: FitProblem) -> FitProblem:
    """The same problem, with laws that are smoothed.

    **Raises:** `ValueError` for an enforcement that cannot."""
    enforcement = problem.residuals.simulation.enforcement
    if not hasattr(enforcement, "smoothing"):
        raise ValueError(
            "`GraduatedSmoothing` needs an enforcement with a `smoothing`, such as "
            f"`ContactImpulse()`, but it is {type(enforcement).__name__}."
        )
    width = to_jax(np.zeros((), problem.data.parts.measured.dtype))
    return eqx.tree_at(width_of, problem, width, is_leaf=lambda x: x is None)
