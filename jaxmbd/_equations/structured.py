"""Systems that know the structure of their equations."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._linalg import BlockDiagonal, BlockRows, CoupledBlocks
from .._system import AbstractSystem
from .._types import Coordinates, Force, RealScalarLike, Rows, Velocity


class ConstraintRows(NamedTuple):
    """All rows at one (t, q, v), holonomic ones first.

    - `phi`: Phi, shape `(nh,)`; nonholonomic rows have no position level.
    - `velocity`: (Phi', Psi) = (J v + Phi_t, Psi), shape `(nc,)`.
    - `J`: (Phi_q N, dPsi/dv), shape `(nc, nv)`; `BlockRows` of a structured system.
    - `gamma`: right side of J v' = gamma, shape `(nc,)`: minus the time derivative of `velocity` at
      constant v. It includes all terms of J' v, Phi_qt, Phi_tt and N'.
    """

    phi: Float[Array, " nh"]
    velocity: Rows
    J: Any
    gamma: Rows

    def position(self, holonomic: Float[Array, " nh"]) -> Rows:
        """Extend values of the holonomic rows by zeros for the nonholonomic ones."""
        missing = self.velocity.shape[0] - self.phi.shape[0]
        return jnp.concatenate([holonomic, jnp.zeros(missing, holonomic.dtype)])


# q, or the result of `kinematics(q)`.
Configuration: TypeAlias = Coordinates | Any


class Turning(NamedTuple):
    """Angles that q gives up to whole turns.

    **Fields:** `angle` [rad]; `rate` [rad/s]; `needed`: whether a whole turn makes a difference.
    """

    angle: Float[Array, " angles"]
    rate: Float[Array, " angles"]
    needed: Bool[Array, " angles"]


class AbstractStructuredSystem(AbstractSystem):
    """A system that knows the sparsity of its equations and linearises them itself. M is block
    diagonal, except for inertia that a few blocks share, and each row depends on few blocks.

    Methods take q, or the result of `kinematics(q)`."""

    @abc.abstractmethod
    def specialised(self, on: bool = True) -> "AbstractStructuredSystem":
        """The same system, which does not compute what vanishes for its concrete numbers. They must
        not be replaced after this. Without `on`, the system that computes everything."""

    def turning(self, q: Coordinates, v: Velocity) -> Turning | None:
        """The angles whose turns the simulation counts. Default: `None`, no angles."""
        del q, v
        return None

    def near(self, angles: Float[Array, " angles"]) -> "AbstractStructuredSystem":
        """The system whose counted angles are within half a turn of these. Default: the system."""
        del angles
        return self

    def among(self, pairs: Int[Array, "contacts 3"]) -> "AbstractStructuredSystem":
        """The system whose contacts without a fixed place are of these pairs, wherever the pieces
        are. Default: the system."""
        del pairs
        return self

    def pieces_of(self, pairs: Int[Array, "contacts 3"]) -> tuple[Int[Array, "contacts 2"], int]:
        """The two pieces that each of these contacts without a fixed place is between, numbered
        through all lists of pieces; and the number of pieces, which also stands for none."""
        return jnp.zeros((pairs.shape[0], 2), jnp.int32), 0

    @abc.abstractmethod
    def kinematics(self, q: Configuration) -> Any:
        """q together with quantities that several methods derive from it."""

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
        """The part of f due to weight and inertia, at (q, v) or as its mean over a step `h` from
        there. The mean is such that the forces of inertia alone do no work over the step."""

    @abc.abstractmethod
    def external_force(
        self,
        t: RealScalarLike,
        q: Configuration,
        v: Velocity,
        u: PyTree,
        z: Float[Array, " nz"] | None = None,
    ) -> Force:
        """The rest of f."""

    @abc.abstractmethod
    def linearised(self, t: RealScalarLike, q: Configuration, v: Velocity) -> ConstraintRows:
        """All rows at (t, q, v), with J as `BlockRows`, Phi first."""

    @abc.abstractmethod
    def reach(self, J: BlockRows) -> Rows:
        """An upper bound on the change of each row by a rotation of its blocks by 1 rad [unit of
        Phi / rad]."""

    @abc.abstractmethod
    def contact_rows(self, t: RealScalarLike, q: Configuration) -> Any:
        """The contacts, as `ContactRows`."""

    @abc.abstractmethod
    def row_map(
        self, t: RealScalarLike, q: Configuration, v: Velocity
    ) -> Callable[[Velocity], Float[Array, " nc"]]:
        """The linear function x -> J x of all rows, without J."""
