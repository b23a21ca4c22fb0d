import abc

from jaxtyping import Array, Float

from .._extensible import Extensible
from .._results import RESULTS


class AbstractCoordinates(Extensible):
    """A kinematic map q' = N(q) v, from nv velocities to the rates of nq coordinates."""

    @property
    @abc.abstractmethod
    def nq(self) -> int | None:
        """Number of coordinates; None for any number."""

    @property
    @abc.abstractmethod
    def nv(self) -> int | None:
        """Number of velocities; None for any number."""

    @abc.abstractmethod
    def qdot(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """Coordinate rates N(q) v, linear in v."""

    @abc.abstractmethod
    def retract(self, q: Float[Array, " nq"], dp: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """Coordinates after the finite displacement dp, a constant velocity times a time.

        The derivative at dp = 0 is N(q), and rotations stay rotations whatever the size of dp.
        """

    @abc.abstractmethod
    def difference(self, q0: Float[Array, " nq"], q1: Float[Array, " nq"]) -> Float[Array, " nv"]:
        """The displacement dp that leads from q0 to q1, the shortest one:
        `retract(q0, difference(q0, q1))` is q1."""

    @abc.abstractmethod
    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The valid coordinates nearest to q, e.g. the unit quaternion in its direction."""

    @abc.abstractmethod
    def result(self, q: Float[Array, " nq"]) -> RESULTS:
        """The verdict on the coordinates at q: `RESULTS.successful`, or what is wrong."""
