"""What a joint is: equations between frames on bodies."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike
from ..connector import AbstractConnector
from ..element import AbstractElement
from ..pose import Pose, Twist


class AbstractConstraint(AbstractElement):
    """Equations between frames on any number of bodies: all that a `Mechanism` takes among its
    joints. For two bodies `AbstractJoint` is the simpler base."""

    @abc.abstractmethod
    def equations(self, poses: tuple[Pose, ...], t: RealScalarLike) -> Float[Array, " rows"]:
        """Phi = 0 at the world poses of the frames, pure [m, or 1 for angles]."""

    def velocity_equations(
        self, poses: tuple[Pose, ...], twists: tuple[Twist, ...], t: RealScalarLike
    ) -> Float[Array, " rows"]:
        """Nonholonomic Psi = 0 at the world poses and twists of the frames, pure [m/s, rad/s].
        Default: none."""
        del twists, t
        return jnp.zeros(0, poses[0].position.dtype)


class AbstractJoint(AbstractConnector, AbstractConstraint):
    """Equations Phi(A, B, t) = 0 between the world poses A and B of a frame on body a and of one on
    body b. The z axis of the frames is the axis of the joint. Fields and constructor are those of
    `AbstractConnector`.

    A new kind of joint is a subclass that writes `constraint`, and says the number of its `rows`
    and whether it is `directed`. The equations are written for one joint over components (`dot`,
    `cross`, sums of products, not `@`): then one vectorised evaluation serves all joints of the
    kind at the speed of hand-written code.
    """

    rows: eqx.AbstractClassVar[int]

    @abc.abstractmethod
    def constraint(self, a: Pose, b: Pose, t: RealScalarLike) -> Float[Array, " rows"]:
        """Phi at the world poses of the two frames [m, or 1 for angles], pure."""

    def nonholonomic(
        self, a: Pose, b: Pose, twist_a: Twist, twist_b: Twist, t: RealScalarLike
    ) -> Float[Array, " rows"]:
        """Psi at the world poses and twists of the two frames [m/s, rad/s], pure. Default: none."""
        del b, twist_a, twist_b, t
        return jnp.zeros(0, a.position.dtype)

    def coordinates(self, a: Pose, b: Pose) -> Float[Array, " freedoms"]:
        """Joint coordinates, as far as they have names: displacements [m], then angles [rad]
        within half a turn. Default: none."""
        del b
        return jnp.zeros(0, a.position.dtype)

    def equations(self, poses, t):
        a, b = poses
        return self.constraint(a, b, t)

    def velocity_equations(self, poses, twists, t):
        (a, b), (twist_a, twist_b) = poses, twists
        return self.nonholonomic(a, b, twist_a, twist_b, t)
