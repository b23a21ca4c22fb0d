"""A rigid body in maximal coordinates."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._compiler import is_known, to_jax
from .._coordinates import (
    Plain,
    Product,
    QuaternionWorld,
    algebra,
    apply_matrix,
    apply_transpose,
    body_axes,
    dot,
)
from .._inputs import Vector, checked
from .._linalg import BlockRoot
from .._types import RealScalarLike
from .batching import over_leading_axes
from .inertia import Inertia, inverse_root, inverse_tensor, spatial, turned_tensor
from .pose import Pose, Twist, unit_quaternion

# The name by which joints and forces refer to the world.
GROUND = "ground"

# q' = N(q) v of one body: q holds position and unit quaternion, v holds velocity and angular
# velocity, both in world axes.
BODY_COORDINATES = Product(Plain(3), QuaternionWorld())


class Body(eqx.Module):
    """A rigid body with six freedoms,

        m (a + alpha x c + omega x (omega x c)) = F,
        I alpha + m c x a + omega x I omega    = T,

    in world axes. a is the acceleration of the origin of the body's frame, c the vector from there
    to the centre of mass, F the force. The inertia tensor I and the torque T are about the origin.

    **Fields:**

    - `name`: used by joints, forces and results to refer to the body.
    - `inertia`: its `Inertia`, in the frame of the body.
    - `pose`: `Pose` of that frame, at the start of a motion or as the initial guess of assembly.
    - `twist`: `Twist` of that frame, likewise.
    """

    name: str = eqx.field(static=True)
    inertia: Inertia
    pose: Pose
    twist: Twist

    @checked
    def __init__(
        self,
        name: str,
        inertia: Inertia,
        *,
        position: Vector = (0.0, 0.0, 0.0),
        orientation: Any = (1.0, 0.0, 0.0, 0.0),
        velocity: Vector = (0.0, 0.0, 0.0),
        angular_velocity: Vector = (0.0, 0.0, 0.0),
    ):
        """**Arguments:** `name`, `inertia`, and in world axes

        - `position` [m], `orientation` (unit quaternion (w, x, y, z) or rotation matrix);
        - `velocity` [m/s] of the origin of the frame, `angular_velocity` [rad/s].

        **Raises:** `ValueError` for a bad name or shape, for an invalid orientation, and for a body
        without inertia about some axis.
        """
        if not name or name == GROUND:
            raise ValueError(
                f'A body needs a name other than "" and "{GROUND}", which is the world, but '
                f"`name` is {name!r}."
            )
        _check_inertia(name, inertia)
        self.name, self.inertia = name, inertia
        dtype = inertia.mass.dtype
        self.pose = Pose(
            to_jax(position, dtype),
            unit_quaternion(f'`orientation` of body "{name}"', orientation, dtype),
        )
        self.twist = Twist(to_jax(velocity, dtype), to_jax(angular_velocity, dtype))

    # --- dynamics, in world axes at an orientation ----------------------------------------------
    #
    # For one body, or for many. With many, all numbers and arguments have the body axis at the end.
    # Orientations are quaternions or rotation matrices.

    def mass_matrix(self, orientation: Float[Array, "..."]) -> Float[Array, "6 6 *rest"]:
        """Mass matrix M for (velocity, angular velocity)."""
        R = _axes(orientation)
        tensor = turned_tensor(R, self.inertia.tensor)
        return spatial(self.inertia.mass, self._center(R), tensor)

    def root(self, orientation: Float[Array, "..."]) -> BlockRoot:
        """R with R R^T = M^-1: (1, 1, 1) / sqrt(m) for translation, and P of `turning_root`."""
        P, mass = self.turning_root(orientation), self.inertia.mass
        scale = jax.lax.rsqrt(jnp.where(mass > 0, mass, 1.0))
        return BlockRoot(jnp.broadcast_to(scale, (3, *mass.shape)), P)

    def turning_root(self, orientation: Float[Array, "..."]) -> Float[Array, "_rows 3 *rest"]:
        """P, whose columns are (c x w, w), or only w for c = 0. Here c is the centre of mass, and w
        are the columns of a root of the inverse inertia tensor about it."""
        R = _axes(orientation)
        c = self._center(R)
        w = algebra.matrix_product(R, inverse_root(self.inertia.tensor))
        if c is not None:
            w = jnp.concatenate([algebra.cross(c[:, None], w), w])
        return w

    def momentum_of(
        self, orientation: Float[Array, "..."], v: Float[Array, "6 *rest"]
    ) -> Float[Array, "6 *rest"]:
        """M v without matrices: the momentum m (v + omega x c) and the angular momentum about the
        origin of the frame. For accelerations v these are the forces that cause them."""
        R, velocity = _axes(orientation), v[:3]
        c = self._center(R)
        if c is not None:
            velocity = velocity + algebra.cross(v[3:], c)
        p = self.inertia.mass[None] * velocity
        spin = apply_matrix(self.inertia.tensor, apply_transpose(R, v[3:]))
        return _wrench(c, p, apply_matrix(R, spin))

    def acceleration(
        self, orientation: Float[Array, "..."], force: Float[Array, "6 *rest"]
    ) -> Float[Array, "6 *rest"]:
        """M^-1 force without matrices, for a force [N] and a torque [N m] about the origin of the
        frame: the acceleration [m/s^2] of the origin and the angular acceleration [rad/s^2]."""
        F, T = force[:3], force[3:]
        R = _axes(orientation)
        c, a = self._center(R), F / self.inertia.mass[None]
        if c is not None:
            T = T - algebra.cross(c, F)  # about the centre of mass
        inverse = inverse_tensor(self.inertia.tensor)
        alpha = apply_matrix(R, apply_matrix(inverse, apply_transpose(R, T)))
        return jnp.concatenate([a if c is None else a + algebra.cross(c, alpha), alpha])

    def inertial_force(
        self,
        orientation: Float[Array, "..."],
        omega: Float[Array, "3 *rest"],
        gravity: Float[Array, "3"],
    ) -> Float[Array, "6 *rest"]:
        """Weight and inertia forces at constant velocities, (F, c x F - omega x I omega) with
        F = m (g - omega x (omega x c)) and the inertia tensor I about the centre of mass: force [N]
        and torque [N m] about the origin of the frame. Only vectors are rotated."""
        R = _axes(orientation)
        c, force = self._center(R), self._weight(gravity)
        spin = self._spin_torque(R, apply_transpose(R, omega))
        if c is not None:
            centrifugal = algebra.cross(omega, algebra.cross(omega, c))
            force = force - self.inertia.mass[None] * centrifugal
        return _wrench(c, force, spin)

    def mean_inertial_force(
        self,
        orientation: Float[Array, "..."],
        omega: Float[Array, "3 *rest"],
        gravity: Float[Array, "3"],
        h: RealScalarLike,
    ) -> Float[Array, "6 *rest"]:
        """The mean of `inertial_force` over a step h [s] whose velocities are then `carried` on,
        which replaces the centrifugal force: (m g, c x m g - x x I x) with the `middle_spin` x."""
        R = _axes(orientation)
        x = middle_spin(self.inertia.tensor, apply_transpose(R, omega), h)
        return _wrench(self._center(R), self._weight(gravity), self._spin_torque(R, x))

    def _weight(self, gravity: Float[Array, "3"]) -> Float[Array, "3 *rest"]:
        mass = self.inertia.mass
        return mass[None] * gravity.reshape(3, *mass.ndim * (1,))

    def _spin_torque(
        self, R: Float[Array, "3 3 *rest"], omega_body: Float[Array, "3 *rest"]
    ) -> Float[Array, "3 *rest"]:
        """-omega x I omega, in world axes."""
        return apply_matrix(
            R, algebra.cross(apply_matrix(self.inertia.tensor, omega_body), omega_body)
        )

    # --- displacements: q of a body has seven components, v six -----------------------------------

    def retract(
        self,
        q: Float[Array, "7 *rest"],
        dp: Float[Array, "6 *rest"],
        axes: Float[Array, "3 3 *rest"] | None = None,
    ) -> Float[Array, "7 *rest"]:
        """Return q after the displacement dp, along which the centre of mass moves straight.
        `axes` of the body at q, if known.

        The origin then moves on a curve, which dp = h v + h^2 a / 2 gives right only if a leaves
        out the centrifugal acceleration about the centre of mass, as velocities that are `carried`
        do. With the whole a, `BODY_COORDINATES.retract` is right to second order."""
        (position, p), (shift, turn) = jnp.split(q, [3]), jnp.split(dp, [3])
        turned = algebra.quaternion_product(algebra.quaternion_exp(turn), p)
        before, after = self._center(p if axes is None else axes), self._center(turned)
        if before is not None and after is not None:
            shift = shift + algebra.cross(turn, before) - (after - before)
        return jnp.concatenate([position + shift, turned])

    def difference(
        self, q0: Float[Array, "7 *rest"], q1: Float[Array, "7 *rest"]
    ) -> Float[Array, "6 *rest"]:
        """Displacement from q0 to q1."""
        turn = algebra.quaternion_log(
            algebra.quaternion_product(q1[3:], algebra.quaternion_conjugate(q0[3:]))
        )
        before, after = self._center(q0[3:]), self._center(q1[3:])
        shift = q1[:3] - q0[:3]
        if before is not None and after is not None:
            shift = shift + (after - before) - algebra.cross(turn, before)
        return jnp.concatenate([shift, turn])

    def carried(
        self,
        before: Float[Array, "..."],
        after: Float[Array, "..."],
        v: Float[Array, "6 *rest"],
    ) -> Float[Array, "6 *rest"]:
        """Return v after a rotation from one orientation to another, in which the centre of mass
        keeps its velocity, and the body its angular velocity in its own axes, hence its energy.
        After a rotation about the angular velocity these are the same world axes. The velocity of
        the origin changes, since the origin moves round the centre of mass."""
        R, turned = _axes(before), _axes(after)
        linear, angular = jnp.split(v, [3])
        omega = apply_matrix(turned, apply_transpose(R, angular))
        here, there = self._center(R), self._center(turned)
        if there is not None and here is not None:
            linear = linear + algebra.cross(angular, here) - algebra.cross(omega, there)
        return jnp.concatenate([linear, omega])

    @property
    def at_center(self) -> "Body":
        """The same body, for these methods, where the centre of mass is known to be the origin."""
        return eqx.tree_at(lambda body: body.inertia.center, self, None)

    def _center(self, orientation: Float[Array, "..."]) -> Float[Array, "3 *rest"] | None:
        """Centre of mass relative to the origin, in world axes; `None` if it is the origin."""
        center: Array | None = self.inertia.center
        return None if center is None else apply_matrix(_axes(orientation), center)

    # --- energy and momentum --------------------------------------------------------------------

    def kinetic_energy(self, pose: Pose, twist: Twist) -> Float[Array, "*batch"]:
        """Kinetic energy [J]. Leading axes of the pose and the twist are kept."""

        @over_leading_axes
        def energy(pose, twist):
            _, velocity, spin = self._motion(pose, twist)
            return 0.5 * (self.inertia.mass * dot(velocity, velocity) + dot(twist.angular, spin))

        return energy(pose, twist)

    def potential_energy(
        self, pose: Pose, gravity: Float[ArrayLike, "3"]
    ) -> Float[Array, "*batch"]:
        """-m g . r [J] for the gravitational acceleration g [m/s^2] and the position r of the
        centre of mass, 0 at the origin of the world. Leading axes of the pose are kept."""

        @over_leading_axes
        def energy(pose, gravity):
            return -self.inertia.mass * dot(gravity, pose.point(self.inertia.center))

        return energy(pose, gravity)

    def momentum(
        self, pose: Pose, twist: Twist
    ) -> tuple[Float[Array, "*batch 3"], Float[Array, "*batch 3"]]:
        """Linear momentum [kg m/s], and angular momentum [kg m^2/s] about the origin of the world.
        Leading axes of the pose and the twist are kept."""

        @over_leading_axes
        def momenta(pose, twist):
            c, velocity, spin = self._motion(pose, twist)
            momentum = self.inertia.mass * velocity
            return momentum, spin + algebra.cross(pose.position + c, momentum)

        return momenta(pose, twist)

    def _motion(self, pose: Pose, twist: Twist) -> tuple[Array, Array, Array]:
        """Centre of mass relative to the origin, its velocity, and angular momentum about it."""
        c = pose.direction(self.inertia.center)
        spin = apply_matrix(self.inertia.tensor, pose.local_direction(twist.angular))
        return c, twist.at(c), pose.direction(spin)


def _axes(orientation: Array) -> Float[Array, "3 3 *rest"]:
    """Rotation matrix of an orientation, which is that matrix or a quaternion."""
    return orientation if orientation.shape[0] == 3 else body_axes(orientation)


def _wrench(
    c: Float[Array, "3 *rest"] | None, force: Float[Array, "3 *rest"], couple: Array
) -> Float[Array, "6 *rest"]:
    """A force at c, and a couple, as a force and a torque about the origin."""
    torque = couple if c is None else algebra.cross(c, force) + couple
    return jnp.concatenate([force, torque])


def _check_inertia(name: str, inertia: Inertia) -> None:
    if not is_known(inertia.tensor) or inertia.tensor.ndim != 2:
        return
    moments = np.linalg.eigvalsh(np.asarray(inertia.tensor))
    if not moments[0] > 1e-12 * moments[2]:
        raise ValueError(
            f'Body "{name}" has the principal moments {moments}: without inertia about each axis '
            "its motion is not determined. Give points and thin rods an extension, or add them to "
            "another body."
        )


# Number of Newton iterations. Two leave an energy error of rounding where a body rotates by up to a
# tenth of a radian in a step, and of 1e-9 up to three tenths.
_ITERATIONS = 2


@jax.custom_jvp
def middle_spin(
    tensor: Float[Array, "3 3 *rest"], omega: Float[Array, "3 *rest"], h: RealScalarLike
) -> Float[Array, "3 *rest"]:
    """x = (omega + omega+) / 2 of the implicit midpoint rule for a body without torque,

        I (x - omega) + h/2 x x I x = 0,

    in the axes of the body. Products with x and with I x show that omega+ has the same energy and
    the same magnitude of angular momentum as omega, for any h. The torque at the start of the step
    would add energy in each step instead.
    """
    momentum = apply_matrix(tensor, omega)

    def newton(_, x):
        # The next iterate y: A y = A x - (I (x - omega) + h/2 x x I x), with A x = I x + h x x I x.
        y = momentum + 0.5 * h * algebra.cross(x, apply_matrix(tensor, x))
        return apply_matrix(_inverse(tensor, x, h), y)

    return jax.lax.fori_loop(0, _ITERATIONS, newton, omega)


@middle_spin.defjvp
def _middle_spin_jvp(primals, tangents):
    tensor, omega, h = primals
    x = middle_spin(tensor, omega, h)

    def residual(tensor, omega, h):
        Ix = apply_matrix(tensor, x)
        return apply_matrix(tensor, omega) - Ix - 0.5 * h * algebra.cross(x, Ix)

    _, change = jax.jvp(residual, primals, tangents)
    return x, apply_matrix(_inverse(tensor, x, h), change)


def _inverse(tensor, x, h) -> Float[Array, "3 3 *rest"]:
    """A^-1, with A y = I y + h/2 (x x I y - I x x y)."""
    Ix = apply_matrix(tensor, x)
    A = tensor + 0.5 * h * (algebra.cross(x[:, None], tensor) - algebra.skew(Ix))
    # The rows of the adjoint are the vector products of the columns of A.
    after = jnp.concatenate([A[:, 1:], A[:, :1]], axis=1)
    adjoint = algebra.cross(after, jnp.concatenate([after[:, 1:], after[:, :1]], axis=1))
    return jnp.swapaxes(adjoint, 0, 1) / dot(A[:, 0], adjoint[:, 0])[None, None]
