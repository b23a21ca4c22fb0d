"""How shooting keeps the bounds of the controls."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .controls import PiecewiseConstant, PiecewiseLinear, Squashed
from .problem import Problem

# How near to a bound, as a share of the way from the middle, a guess may be when it is squashed:
# beyond, the derivative vanishes.
_INSIDE = 0.98


class AbstractBounds(eqx.Module):
    """A way to keep lower <= u <= upper in a search without bounds."""

    @abc.abstractmethod
    def prepared(self, problem: Problem, control: Any) -> Any:
        """The control to optimise, from that of the user."""

    @abc.abstractmethod
    def projected(self, problem: Problem, control: Any) -> Any:
        """The control after a step of the optimiser."""


class Projected(AbstractBounds):
    """Cut off the values of a table after each step. For optimisers that need no line search of
    their own, like Adam; the bounds can be reached exactly."""

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
    """Optimise z, from which u follows by a smooth function between the bounds, see
    `mbd.trajopt.Squashed`. For every optimiser and every policy; bounds are approached, not
    reached. Of a table, the guess is transformed back; the output of any other policy is z."""

    def prepared(self, problem, control):
        squashed = Squashed(control, problem.lower, problem.upper)
        if isinstance(control, PiecewiseConstant | PiecewiseLinear):
            z = jax.vmap(squashed.inverse, (0, None))(control.values, _INSIDE)
            squashed = eqx.tree_at(lambda c: c.control.values, squashed, z)
        return squashed

    def projected(self, problem, control):
        del problem
        return control
