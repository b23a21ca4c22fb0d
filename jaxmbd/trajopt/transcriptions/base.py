"""The interface of transcriptions, which turn an interval of the grid into a few equations."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..._extensible import Extensible
from ..._types import RealScalarLike, Scalar, Velocity
from ..controls import AbstractControl
from ..problem import Problem
from .dynamics import Dynamics
from .variables import Knot


class Interval(NamedTuple):
    """One interval of the grid. It begins at `t` [s] and lasts `h` [s]. `begin` and `end` are the
    unknowns at its ends; `own` are the unknowns that belong to it alone."""

    t: RealScalarLike
    h: Scalar
    begin: Knot
    end: Knot
    own: tuple[Any, ...]


class Equations(NamedTuple):
    """The terms of an interval in the program: its share of the cost, rows that must be zero
    (`defects`), and rows that must not be positive (`path`). `across` is the velocity across the
    constraints that keeps the motion on them, since the method alone would leave them."""

    cost: Scalar
    defects: Float[Array, " rows"]
    path: Float[Array, " path"]
    across: Velocity


class AbstractTranscription(Extensible):
    """A method that turns motions and controls into finitely many unknowns and equations."""

    # Whether controls and multipliers are unknowns of the grid points. Then the constraints hold
    # there at all three levels. Otherwise each interval has a control of its own.
    at_knots: eqx.AbstractClassVar[bool]
    # Whether the first of the unknowns `own` is a control.
    holds_control: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def own(self, problem: Problem, holonomic: int, rows: int) -> tuple[int, ...]:
        """The sizes of the unknowns of an interval. If it has a control, that comes first.

        - `holonomic`, `rows`: the numbers of independent rows of Phi and of (Phi, Psi)."""

    @abc.abstractmethod
    def own_guess(self, u: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, ...]:
        """Initial values of the first unknowns `own`, from controls and multipliers at grid points.
        The other unknowns start at 0."""

    @abc.abstractmethod
    def equations(self, problem: Problem, dynamics: Dynamics, interval: Interval) -> Equations:
        """The equations of an interval."""

    @abc.abstractmethod
    def control(self, t0: Any, dt: Any, knots: Any, own: Any) -> AbstractControl:
        """The control of a solution, from its values at grid points (`knots`) and in the intervals
        (`own`)."""
