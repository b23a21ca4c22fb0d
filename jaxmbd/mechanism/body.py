"""A rigid body in maximal coordinates."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import is_concrete
from .._coordinates import Plain, Product, QuaternionWorld, cross, quaternion_to_matrix
from .inertia import Inertia
from .pose import Pose, Twist, unit_quaternion

# The body that is not one: joints and forces may name it.
GROUND = "ground"

# q' = N(q) v of one body: position and unit quaternion; velocity and angular velocity, both in
# world axes.
BODY_COORDINATES = Product(Plain(3), QuaternionWorld())


class Body(eqx.Module):
    """A rigid body with all its six freedoms,

        m (a + alpha x c + omega x (omega x c)) = F,
        I alpha + m c x a + omega x I omega    = T,

    in world axes: a is the acceleration of the origin of the body's frame, c the vector from there
    to the centre of mass, I the inertia tensor and T the torque about the origin, F the force.

    **Fields:**

    - `name`: by which joints, forces and results know the body.
    - `inertia`: its `Inertia`, in the frame of the body.
    - `pose`: `Pose` of that frame, at the start of motions or where assembly starts to search.
    - `twist`: `Twist` of that frame, likewise.
    """

    name: str = eqx.field(static=True)
    inertia: Inertia
    pose: Pose
    twist: Twist

    def __init__(
        self,
        name: str,
        inertia: Inertia,
        *,
        position: Any = (0.0, 0.0, 0.0),
        orientation: Any = (1.0, 0.0, 0.0, 0.0),
        velocity: Any = (0.0, 0.0, 0.0),
        angular_velocity: Any = (0.0, 0.0, 0.0),
    ):
        """**Arguments:** `name`, `inertia`, and in world axes

        - `position` [m], `orientation` (unit quaternion (w, x, y, z) or rotation matrix);
        - `velocity` [m/s] of the origin of the frame, `angular_velocity` [rad/s].

        **Raises:** `ValueError` for a bad name or shape, for an orientation that is not one, and
        for a body without inertia in some direction.
        """
        if not isinstance(name, str) or not name or name == GROUND:
            raise ValueError(
                f'A body needs a name other than "" and "{GROUND}", which is the world, but '
                f"`name` is {name!r}."
            )
        if not isinstance(inertia, Inertia):
            raise ValueError(f'`inertia` of body "{name}" must be an `Inertia`, but is {inertia}.')
        _check_inertia(name, inertia)
        self.name, self.inertia = name, inertia
        dtype = inertia.mass.dtype

        def vector(argument, value):
            value = jnp.asarray(value, dtype)
            if value.shape != (3,):
                raise ValueError(
                    f'`{argument}` of body "{name}" must have shape (3,), but has {value.shape}.'
                )
            return value

        self.pose = Pose(
            vector("position", position),
            unit_quaternion(f'`orientation` of body "{name}"', orientation, dtype),
        )
        self.twist = Twist(
            vector("velocity", velocity), vector("angular_velocity", angular_velocity)
        )

    def mass_matrix(self, orientation: Float[Array, "4"]) -> Float[Array, "6 6"]:
        """M for (velocity, angular velocity) in world axes, at an orientation."""
        return self.inertia.turned(quaternion_to_matrix(orientation)).spatial()

    def gyroscopic_force(
        self, orientation: Float[Array, "4"], omega: Float[Array, "3"]
    ) -> Float[Array, "6"]:
        """-(m omega x (omega x c), omega x I omega): force [N] and torque [N m] of inertia at
        constant velocities, in world axes."""
        turned = self.inertia.turned(quaternion_to_matrix(orientation))
        centripetal = turned.mass * cross(omega, cross(omega, turned.center))
        spin = turned.about(jnp.zeros_like(turned.center)) @ omega
        return -jnp.concatenate([centripetal, cross(omega, spin)])

    def kinetic_energy(self, pose: Pose, twist: Twist) -> Float[Array, ""]:
        """Kinetic energy [J]."""
        v = jnp.concatenate([twist.linear, twist.angular])
        return 0.5 * v @ self.mass_matrix(pose.orientation) @ v

    def momentum(self, pose: Pose, twist: Twist) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
        """Linear momentum [kg m/s], and angular momentum [kg m^2/s] about the origin of the
        world."""
        v = jnp.concatenate([twist.linear, twist.angular])
        momentum = self.mass_matrix(pose.orientation) @ v
        return momentum[:3], momentum[3:] + cross(pose.position, momentum[:3])


def _check_inertia(name: str, inertia: Inertia) -> None:
    if not is_concrete(inertia.tensor) or inertia.tensor.ndim != 2:
        return
    moments = np.linalg.eigvalsh(np.asarray(inertia.tensor))
    if not moments[0] > 1e-12 * moments[2]:
        raise ValueError(
            f'Body "{name}" has the principal moments {moments}: without inertia about each axis '
            "its motion is not determined. Give points and thin rods an extension, or add them to "
            "another body."
        )
