"""What a transcription is: how an interval between two grid points becomes a few equations."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..._types import RealScalarLike, Scalar, Velocity
from ..controls import AbstractControl
from ..problem import Problem
from .dynamics import Dynamics
from .variables import Knot


class Interval(NamedTuple):
    """One interval of the grid: it begins at `t` [s], lasts `h` [s]; `begin` and `end` are the
    unknowns at its ends, and `own` those that belong to it alone."""

    t: RealScalarLike
    h: Scalar
    begin: Knot
    end: Knot
    own: tuple[Any, ...]


class Equations(NamedTuple):
    """What an interval adds to the program: its share of the cost, rows that must be zero, and
    rows that must not be positive. `across`: the velocity across the constraints that keeps the
    motion on them, where the method alone would leave them."""

    cost: Scalar
    defects: Float[Array, " rows"]
    path: Float[Array, " path"]
    across: Velocity


class AbstractTranscription(eqx.Module):
    """How motions and controls become finitely many unknowns and equations."""

    # Whether controls and multipliers are unknowns of the grid points, where the constraints hold
    # at all three levels; otherwise each interval has a control of its own.
    at_knots: eqx.AbstractClassVar[bool]
    # Whether the first of `own` is a control.
    holds_control: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def own(self, problem: Problem, holonomic: int, rows: int) -> tuple[int, ...]:
        """Sizes of the unknowns of an interval; a control comes first if it has one.

        - `holonomic`, `rows`: numbers of independent rows of Phi, and of (Phi, Psi)."""

    @abc.abstractmethod
    def own_guess(self, u: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, ...]:
        """The first of `own` from controls and multipliers at grid points; others begin at 0."""

    @abc.abstractmethod
    def equations(self, problem: Problem, dynamics: Dynamics, interval: Interval) -> Equations:
        """The equations of an interval."""

    @abc.abstractmethod
    def control(self, t0: Any, dt: Any, knots: Any, own: Any) -> AbstractControl:
        """The control of a solution. `knots`: its values at grid points; `own`: those of the
        intervals."""
