"""What a joint is: equations between a frame on one body and a frame on another."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike
from ..connector import AbstractConnector
from ..pose import Pose


class AbstractJoint(AbstractConnector):
    """Equations Phi(A, B, t) = 0 between the world poses A and B of a frame on body a and of one on
    body b. The z axis of the frames is the axis of the joint.

    **Fields:**

    - `name`: by which reports know the joint.
    - `body_a`, `body_b`: names of the bodies.
    - `frame_a`, `frame_b`: poses of the frames relative to their bodies.

    A new kind of joint is a subclass that writes `constraint`, and says the number of its `rows`
    and whether it is `directed`.
    """

    rows: eqx.AbstractClassVar[int]

    @abc.abstractmethod
    def constraint(self, a: Pose, b: Pose, t: RealScalarLike) -> Float[Array, " rows"]:
        """Phi at the world poses of the two frames [m, or 1 for angles], pure."""

    def coordinates(self, a: Pose, b: Pose) -> Float[Array, " freedoms"]:
        """Joint coordinates, as far as they have names: displacements [m], then angles [rad]
        within half a turn. Default: none."""
        del b
        return jnp.zeros(0, a.position.dtype)
