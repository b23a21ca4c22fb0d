"""Small systems with parameters, of all kinds of constraints."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd._compiler import to_jax

G = 9.81


def _as_array(x):
    return x if isinstance(x, jax.Array) else to_jax(np.asarray(x))


def parameter(default):
    return eqx.field(converter=_as_array, default=default)


class Table(eqx.Module):
    """A control in open loop: values (n, 2) at equidistant times 0 ... duration, linear between
    them."""

    values: Array
    duration: Array = parameter(0.5)

    def __call__(self, t, q, v):
        times = jnp.linspace(0, 1, len(self.values), dtype=q.dtype) * self.duration
        return jax.vmap(jnp.interp, (None, None, 1))(jnp.asarray(t, q.dtype), times, self.values)


class Feedback(eqx.Module):
    """The control u = -k q - d v."""

    k: Array = parameter(5.0)
    d: Array = parameter(0.4)

    def __call__(self, t, q, v):
        return -self.k * q - self.d * v


class Oscillator(mbd.AbstractSystem):
    """Mass on a spring and a damper along x, no constraint."""

    mass: Array = parameter(1.3)
    stiffness: Array = parameter(5.0)
    damping: Array = parameter(0.4)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.stiffness * q - self.damping * v


class GuidedMass(mbd.AbstractSystem):
    """Mass at (x, y) under gravity on a straight guide through the origin, inclined by `angle`,
    with a spring to the origin and a damper; a control acts as a force (2,)."""

    mass: Array = parameter(1.3)
    stiffness: Array = parameter(5.0)
    damping: Array = parameter(0.4)
    angle: Array = parameter(0.6)
    gravity: Array = parameter(9.81)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        weight = jnp.stack([jnp.zeros_like(self.mass), -self.mass * self.gravity])
        f = weight - self.stiffness * q - self.damping * v
        return f if u is None else f + u

    def constraint(self, q, t):
        return q[0] * jnp.sin(self.angle) - q[1] * jnp.cos(self.angle)


class Pendulum(mbd.AbstractSystem):
    """Point mass at (x, y), y upwards, on a rod to the origin; a control acts as a force (2,)."""

    mass: Array = parameter(1.2)
    length: Array = parameter(0.9)
    gravity: Array = parameter(9.81)
    damping: Array = parameter(0.0)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        weight = jnp.stack([jnp.zeros_like(self.mass), -self.mass * self.gravity])
        f = weight - self.damping * v
        return f if u is None else f + u

    def constraint(self, q, t):
        return q @ q - self.length**2


class LikeAPendulum(mbd.AbstractSystem):
    """The mass and the forces of a pendulum."""

    pendulum: Pendulum = Pendulum()

    def mass_matrix(self, q):
        return self.pendulum.mass_matrix(q)

    def force(self, t, q, v, u):
        return self.pendulum.force(t, q, v, u)


class RedundantPendulum(LikeAPendulum):
    """A pendulum whose row is written three times, with different scales."""

    scales: Array = parameter((1.0, -2.5, 0.3))

    def constraint(self, q, t):
        return self.scales * self.pendulum.constraint(q, t)


class DrivenPendulum(LikeAPendulum):
    """A pendulum whose pivot moves along (a sin(w t), b cos(w t)): Phi_qt and Phi_tt count."""

    amplitude: Array = parameter((0.2, 0.1))
    frequency: Array = parameter(3.0)

    def pivot(self, t):
        return self.amplitude * jnp.stack(
            [jnp.sin(self.frequency * t), jnp.cos(self.frequency * t)]
        )

    def constraint(self, q, t):
        return self.pendulum.constraint(q - self.pivot(t), t)


class Top(mbd.AbstractSystem):
    """Heavy top: a rigid body on a spherical joint at the origin. q = (centre of mass,
    quaternion), v = (its velocity, angular velocity in world axes)."""

    mass: Array = parameter(1.2)
    inertia: Array = parameter((0.3, 0.3, 0.5))  # principal, about the centre of mass
    arm: Array = parameter((0.0, 0.0, 0.3))  # from joint to centre of mass, body axes
    gravity: Array = parameter(9.81)
    coordinates = mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())

    def inertia_world(self, q):
        R = mbd.rotations.quaternion_to_matrix(q[3:])
        return R @ jnp.diag(self.inertia) @ R.T

    def mass_matrix(self, q):
        return jax.scipy.linalg.block_diag(
            self.mass * jnp.eye(3, dtype=q.dtype), self.inertia_world(q)
        )

    def force(self, t, q, v, u):
        omega = v[3:]
        weight = self.mass * self.gravity * jnp.array([0, 0, -1], q.dtype)
        return jnp.concatenate([weight, -jnp.cross(omega, self.inertia_world(q) @ omega)])

    def constraint(self, q, t):
        return q[:3] - mbd.rotations.quaternion_rotate(q[3:], self.arm)


class SkateInSpace(mbd.AbstractSystem):
    """A blade at (x, y, z), heading th, on a plane that slopes down along x, where a holonomic row
    keeps it: no sideways slip."""

    mass: Array = parameter(1.2)
    inertia: Array = parameter(0.5)
    slope: Array = parameter(0.4)
    gravity: Array = parameter(9.81)

    def downhill(self):
        return jnp.cos(self.slope), -jnp.sin(self.slope)  # components along x and z

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([self.mass, self.mass, self.mass, self.inertia]))

    def force(self, t, q, v, u):
        none = jnp.zeros_like(self.mass)
        return jnp.stack([none, none, -self.mass * self.gravity, none])

    def constraint(self, q, t):
        x, z = self.downhill()
        return q[0] * z - q[2] * x

    def nonholonomic(self, q, v, t):
        x, z = self.downhill()
        return (v[0] * x + v[2] * z) * jnp.sin(q[3]) - v[1] * jnp.cos(q[3])


class TwoFourBars(mbd.AbstractSystem):
    """Three parallel cranks of equal length joined by two couplers: five rows, of which two are
    lost when everything lies horizontal. q = the crank tips. Five uniform bars.

    Braun and Goldfarb (2009), section 5.3."""

    mass: Array = parameter(1.0)
    length: Array = parameter(1.0)
    gravity: Array = parameter(9.81)

    def mass_matrix(self, q):
        bars = np.array([[4, 1, 0], [1, 6, 1], [0, 1, 4]]) / 6
        return self.mass * jnp.asarray(np.kron(bars, np.eye(2)), q.dtype)

    def force(self, t, q, v, u):
        share = jnp.array([0, 1, 0, 1.5, 0, 1], q.dtype)
        return -self.mass * self.gravity * share

    def constraint(self, q, t):
        tips = q.reshape(3, 2)
        pivots = self.length * jnp.array([[0, 0], [1, 0], [2, 0]], q.dtype)
        bars = jnp.concatenate([tips - pivots, tips[1:] - tips[:-1]])
        return jnp.sum(bars**2, axis=1) - self.length**2


def cast(tree, dtype):
    """All floating-point arrays and numbers of `tree` as `dtype`."""

    def one(x):
        is_number = eqx.is_inexact_array(x) or isinstance(x, float | np.floating | np.ndarray)
        return to_jax(np.asarray(x).astype(dtype)) if is_number else x

    return jax.tree.map(one, tree)


class Ball(mbd.AbstractSystem):
    """Point mass at (x, y) above the ground, which may move."""

    mass: Array
    friction: Array
    restitution: Array
    shake: Array = parameter((0.0, 0.0))  # amplitude, frequency

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        weight = jnp.stack([jnp.zeros_like(self.mass), -G * self.mass])
        return weight if u is None else weight + u

    def gap(self, q, t):
        return q[1:] - self.shake[0] * jnp.sin(self.shake[1] * t)

    def slip(self, q, v, t):
        return v[:1, None]

    @property
    def contact_law(self):
        return mbd.ContactLaw(self.friction, restitution=self.restitution)


BOX = mbd.Inertia.box(size=[0.3, 0.05, 0.05], mass=1.0)


def three_bars(closed, axes=None, **options):
    """A chain of three bars in the plane of x and y, or a four-bar. `axes` of the hinges: about z
    by default. `options`: of the `Mechanism`."""
    places = [[0.15, 0.0, 0.0], [0.3, 0.15, 0.0], [0.15, 0.3, 0.0]]
    bodies = [mbd.Body(f"b{i}", BOX, position=place) for i, place in enumerate(places)]
    points = [[0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [0.3, 0.3, 0.0], [0.0, 0.3, 0.0]]
    ends = ["ground", *bodies, "ground"]
    axes = [[0.0, 0.0, 1.0]] * 4 if axes is None else axes
    joints = [
        mbd.Revolute(f"j{i}", ends[i], ends[i + 1], point=points[i], axis=axes[i])
        for i in range(4 if closed else 3)
    ]
    return mbd.Mechanism(bodies, joints, **options)
