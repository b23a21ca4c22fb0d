"""The interface of force elements: forces and torques on frames of bodies."""

import abc
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._coordinates import cross, dot
from ..._types import RealScalarLike
from ..connector import AbstractConnector
from ..element import AbstractElement
from ..pose import Pose, Twist


class Wrench(NamedTuple):
    """Force [N] and torque [N m] on a frame, about its origin, in world axes."""

    force: Float[Array, "3"]
    torque: Float[Array, "3"]

    @classmethod
    def of_torque(cls, torque: Float[Array, "3"]) -> "Wrench":
        """A pure torque. Its force is zero already at trace time, so no moment is computed."""
        return cls(np.zeros(3, torque.dtype), torque)  # type: ignore[arg-type]

    def torque_about(self, arm: Float[Array, "3"]) -> Float[Array, "3"]:
        """The torque about another point, with `arm` from that point to the origin of the frame."""
        if isinstance(self.force, np.ndarray) and not self.force.any():
            return self.torque
        return self.torque + cross(arm, self.force)


class AbstractForceElement(AbstractElement):
    """Forces and torques on frames of any number of bodies, the base of all forces of a
    `Mechanism`. For action and reaction between two bodies, `AbstractForce` is the simpler base."""

    @abc.abstractmethod
    def wrenches(
        self, poses: tuple[Pose, ...], twists: tuple[Twist, ...], t: RealScalarLike, u: Any
    ) -> tuple[Wrench, ...]:
        """A `Wrench` for each frame, at the world poses and twists of all frames, the time and the
        control (`None` without one). A pure function."""

    @property
    def inertance(self) -> Float[Array, ""] | None:
        """The inertia w >= 0 [kg or kg m^2] that resists changes of `rate`. Its kinetic energy is
        w rate^2 / 2. With rate = R v, it adds w R^T R to M. Default: `None`, no inertia."""
        return None

    def rate(self, poses: tuple[Pose, ...], twists: tuple[Twist, ...]) -> Float[Array, ""]:
        """The velocity [m/s or rad/s] that `inertance` belongs to, linear in the twists."""
        del twists
        return jnp.zeros_like(poses[0].position[0])

    def power(
        self, poses: tuple[Pose, ...], twists: tuple[Twist, ...], t: RealScalarLike, u: Any = None
    ) -> Float[Array, ""]:
        """The power sum_i F_i . v_i + T_i . omega_i of the element on the bodies [W]."""
        wrenches = self.wrenches(poses, twists, t, u)
        parts = [
            dot(w.force, twist.linear) + dot(w.torque, twist.angular)
            for w, twist in zip(wrenches, twists, strict=True)
        ]
        return sum(parts, jnp.zeros_like(poses[0].position[0]))

    def energy(self, poses: tuple[Pose, ...], t: RealScalarLike) -> Float[Array, ""]:
        """The potential energy that the element stores [J]. Default: 0, so that all its power is
        supplied or dissipated."""
        del t
        return jnp.zeros_like(poses[0].position[0])


class AbstractForce(AbstractConnector, AbstractForceElement):
    """A force between two bodies. Its frames are given like those of joints; a is often "ground".

    For a new kind, write a subclass with `wrench` and with `directed`, whether it has an axis. If
    it stores energy, write `energy` too.
    """

    @abc.abstractmethod
    def wrench(
        self, a: Pose, b: Pose, twist_a: Twist, twist_b: Twist, t: RealScalarLike, u: Any
    ) -> Wrench:
        """The wrench on frame b, at the world poses and twists of both frames, the time and the
        control (`None` without one). A pure function. The opposite wrench acts on body a, at the
        same point."""

    def wrenches(self, poses, twists, t, u):
        (a, b), (twist_a, twist_b) = poses, twists
        on_b = self.wrench(a, b, twist_a, twist_b, t, u)
        arm = b.position - a.position
        return Wrench(-on_b.force, -on_b.torque_about(arm)), on_b
