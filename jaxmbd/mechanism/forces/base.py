"""What a force element is: a force and a torque between a frame on one body and one on another."""

import abc
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from ..._types import RealScalarLike
from ..connector import AbstractConnector
from ..pose import Pose, Twist


class Wrench(NamedTuple):
    """Force [N] and torque [N m] on the frame of body b, about its origin, in world axes. The
    opposite wrench acts on body a, at the same point."""

    force: Float[Array, "3"]
    torque: Float[Array, "3"]


class AbstractForce(AbstractConnector):
    """A force element. Its frames are given as those of joints; a is often "ground".

    A new kind is a subclass that writes `wrench` and says whether it is `directed`.
    """

    @abc.abstractmethod
    def wrench(
        self, a: Pose, b: Pose, twist_a: Twist, twist_b: Twist, t: RealScalarLike, u: Any
    ) -> Wrench:
        """What acts on frame b, given the world poses and twists of both frames, the time and
        the control (`None` without one); pure."""
