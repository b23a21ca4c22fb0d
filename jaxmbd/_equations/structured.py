"""Systems that know the structure of their equations."""

import abc
from collections.abc import Callable
from typing import Any, TypeAlias

from jaxtyping import Array, Float

from .._linalg import BlockDiagonal, BlockRows, CoupledBlocks
from .._system import AbstractSystem
from .._types import Coordinates, Force, RealScalarLike, Rows, Velocity
from .rows import ConstraintRows

# q, or what a structured system has made of it: see `placed`.
Configuration: TypeAlias = Coordinates | Any


class AbstractStructuredSystem(AbstractSystem):
    """A system that knows how sparse its equations are, and linearises them itself: M is block
    diagonal, but for inertia that few blocks share, and each row touches few of its blocks.

    Methods take q, or what `placed` makes of it."""

    @abc.abstractmethod
    def placed(self, q: Configuration) -> Any:
        """q with what they all need of it, derived once."""

    @abc.abstractmethod
    def mass_blocks(self, q: Configuration) -> BlockDiagonal | CoupledBlocks:
        """M(q)."""

    @abc.abstractmethod
    def inertia(self, q: Configuration, a: Velocity) -> Force:
        """M(q) a, without M."""

    @abc.abstractmethod
    def inertial_force(
        self, q: Configuration, v: Velocity, h: RealScalarLike | None = None
    ) -> Force:
        """The part of f that weight and inertia make: at (q, v), or its mean over a step `h` from
        there, such that inertia by itself neither makes nor takes energy in it."""

    @abc.abstractmethod
    def external_force(self, t: RealScalarLike, q: Configuration, v: Velocity, u: Any) -> Force:
        """The rest of f."""

    @abc.abstractmethod
    def linearised(self, t: RealScalarLike, q: Configuration, v: Velocity) -> ConstraintRows:
        """All rows at (t, q, v), with J as `BlockRows`, those of Phi first."""

    @abc.abstractmethod
    def reach(self, J: BlockRows) -> Rows:
        """By how much a turn of its blocks by 1 changes each row, at most [Phi's unit / rad]."""

    @abc.abstractmethod
    def contact_rows(self, t: RealScalarLike, q: Configuration) -> Any:
        """The contacts, as `ContactRows`."""

    @abc.abstractmethod
    def row_map(
        self, t: RealScalarLike, q: Configuration, v: Velocity
    ) -> Callable[[Velocity], Float[Array, " nc"]]:
        """The linear function x -> J x of all rows, without J."""
