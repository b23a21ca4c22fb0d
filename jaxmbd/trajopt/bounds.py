"""Bounds of the controls in shooting."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._extensible import Extensible
from .controls import PiecewiseConstant, PiecewiseLinear, Squashed
from .problem import Problem

# The largest distance of a squashed guess from the middle, as a share of the distance of a bound
# from there. Closer to a bound the derivative vanishes.
_INSIDE = 0.98


class AbstractBounds(Extensible):
    """A way to keep lower <= u <= upper in a search without bounds."""

    @abc.abstractmethod
    def prepared(self, problem: Problem, control: Any) -> Any:
        """The control to optimise, from the control of the user."""

    @abc.abstractmethod
    def projected(self, problem: Problem, control: Any) -> Any:
        """The control after a step of the optimiser."""


class Projected(AbstractBounds):
    """Clip the values of a table to the bounds after each step. It suits optimisers without a line
    search, like Adam. Controls can reach the bounds exactly."""

    def prepared(self, problem, control):
        if not isinstance(control, PiecewiseConstant | PiecewiseLinear):
            raise ValueError(
                "`Projected` bounds need a table such as `PiecewiseConstant`, but the control is a "
                f"{type(control).__name__}: use `mbd.trajopt.Squash()`."
            )
        return self.projected(problem, control)

    def projected(self, problem, control):
        values = jnp.clip(control.values, problem.lower[None], problem.upper[None])
        return eqx.tree_at(lambda c: c.values, control, values)


class Squash(AbstractBounds):
    """Optimise z, and compute u by a smooth function with values between the bounds, see
    `mbd.trajopt.Squashed`. It suits every optimiser and every policy. Controls do not reach the
    bounds. The values of a table are transformed to z. The output of any other policy is z."""

    def prepared(self, problem, control):
        squashed = Squashed(control, problem.lower, problem.upper)
        if isinstance(control, PiecewiseConstant | PiecewiseLinear):
            z = jax.vmap(squashed.inverse, (0, None))(control.values, _INSIDE)
            squashed = eqx.tree_at(lambda c: c.control.values, squashed, z)
        return squashed

    def projected(self, problem, control):
        del problem
        return control
