"""What the equations of a mechanism ask of its bodies."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ..._linalg import BlockDiagonal
from ..._types import Coordinates, RealScalarLike, Velocity
from ..body import Body
from ..placed import Configuration
from ..stack import Stack
from ..tables import BodyTables


class AbstractBodyDynamics(eqx.Module):
    """Free motion of the bodies of a `stack`. Methods take q, or what `tables.kinematics` makes of
    it. `centred`: whether the centres of mass of all bodies are known to be the origins of their
    frames."""

    stack: eqx.AbstractVar[Stack[Body]]
    tables: eqx.AbstractVar[BodyTables]
    centred: eqx.AbstractVar[bool]

    @property
    def bodies(self) -> Body:
        """All bodies as one, with the body axis last."""
        together = self.stack.together
        return together.at_center if self.centred else together

    @abc.abstractmethod
    def retract(self, q: Configuration, dp: Velocity) -> Coordinates:
        """q after the displacement dp, along which the centres of mass move straight."""

    @abc.abstractmethod
    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """The displacement from q0 to q1."""

    @abc.abstractmethod
    def carried(self, q0: Configuration, q1: Coordinates, v: Velocity) -> Velocity:
        """v after a move from q0 to q1, in which the centres of mass keep their velocities and the
        bodies their angular velocities."""

    @abc.abstractmethod
    def mass_blocks(self, q: Configuration) -> BlockDiagonal:
        """M(q), with its root."""

    @abc.abstractmethod
    def momentum_of(self, q: Configuration, v: Velocity) -> Velocity:
        """M(q) v, without M."""

    @abc.abstractmethod
    def inertial_force(
        self,
        q: Configuration,
        v: Velocity,
        gravity: Float[Array, "3"],
        h: RealScalarLike | None = None,
    ) -> Velocity:
        """Weight and inertia forces at constant velocities; with a step `h`, their mean over a step
        whose velocities are then `carried` on."""

    @abc.abstractmethod
    def reach_weights(self) -> Float[Array, "size bodies"]:
        """Squares of the displacements and rotations that count as a rotation by 1 rad: the radius
        of gyration, and 1."""
