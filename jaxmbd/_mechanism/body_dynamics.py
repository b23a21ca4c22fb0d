"""Coordinates, inertia and weight of the bodies of a mechanism, in space or in a plane."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import apply_matrix, components, dot
from .._linalg import BlockDiagonal, BlockRoot
from .._types import Coordinates, RealScalarLike, Velocity
from .body import Body
from .coordinates import Configuration
from .plane import Flat
from .stack import Stack
from .tables import BodyTables


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


class SpatialDynamics(AbstractBodyDynamics):
    """Bodies with six freedoms each: the methods of `Body` on tables."""

    stack: Stack[Body]
    tables: BodyTables
    centred: bool = eqx.field(static=True)

    def retract(self, q, dp):
        here = self.tables.kinematics(q)
        return self.bodies.retract(here.table, self.tables.table(dp), here.axes).ravel()

    def difference(self, q0, q1):
        return self.bodies.difference(self.tables.table(q0), self.tables.table(q1)).ravel()

    def carried(self, q0, q1, v):
        axes = self.tables.kinematics(q0).axes, self.tables.kinematics(q1).axes
        return self.bodies.carried(*axes, self.tables.table(v)).ravel()

    def mass_blocks(self, q):
        bodies, axes = self.bodies, self.tables.kinematics(q).axes
        return BlockDiagonal(
            bodies.mass_matrix(axes), bodies.root(axes), bodies.inertia.positive_definite
        )

    def momentum_of(self, q, v):
        return self.bodies.momentum_of(self.tables.kinematics(q).axes, self.tables.table(v)).ravel()

    def inertial_force(self, q, v, gravity, h=None):
        axes, omega = self.tables.kinematics(q).axes, self.tables.table(v)[3:]
        if h is None:
            return self.bodies.inertial_force(axes, omega, gravity).ravel()
        return self.bodies.mean_inertial_force(axes, omega, gravity, h).ravel()

    def reach_weights(self):
        def gyration(body):
            return jnp.trace(body.inertia.tensor) / (2 * body.inertia.mass)

        square = self.stack.map(gyration)
        return jnp.stack([square] * 3 + [jnp.ones_like(square)] * 3)


class PlanarDynamics(AbstractBodyDynamics):
    """Bodies with three freedoms each,

        m (a_x - alpha c_y - omega^2 c_x) = F_x,
        m (a_y + alpha c_x - omega^2 c_y) = F_y,
        I alpha + m (c_x a_y - c_y a_x)   = T,

    the equations of `Body` along the axes of the plane and about its normal. I is about the origin.
    The other three hold by forces that the plane carries, whatever they are: products of inertia
    with the normal only load the plane.
    """

    stack: Stack[Body]
    tables: BodyTables
    centred: bool = eqx.field(static=True)

    def retract(self, q, dp):
        here, change = self.tables.kinematics(q), self.tables.table(dp)
        if self.centred:
            return (here.table + change).ravel()
        dx, dy, turn = components(change)
        x, y, angle = components(here.table)
        cx, cy = components(self._center(here))
        ax, ay = components(self._center_at(angle + turn))
        moved = x + dx - turn * cy - (ax - cx), y + dy + turn * cx - (ay - cy)
        return jnp.concatenate([*moved, angle + turn])

    def difference(self, q0, q1):
        here, there = self.tables.kinematics(q0), self.tables.kinematics(q1)
        if self.centred:
            return (there.table - here.table).ravel()
        dx, dy, turn = components(there.table - here.table)
        (cx, cy), (ax, ay) = components(self._center(here)), components(self._center(there))
        return jnp.concatenate([dx + (ax - cx) + turn * cy, dy + (ay - cy) - turn * cx, turn])

    def carried(self, q0, q1, v):
        if self.centred:
            return v
        x, y, omega = components(self.tables.table(v))
        before, after = (self._center(self.tables.kinematics(q)) for q in (q0, q1))
        cx, cy = components(after - before)
        return jnp.concatenate([x + omega * cy, y - omega * cx, omega])

    def mass_blocks(self, q):
        m, moment = self._inertia
        o = jnp.zeros_like(m)
        scale, turn = (jax.lax.rsqrt(jnp.where(x > 0, x, 1.0)) for x in (m, moment))
        if self.centred:
            M = [[m, o, o], [o, m, o], [o, o, moment]]
            P = turn[None]
        else:
            cx, cy = components(self._center(q))
            about_origin = moment + m * (cx * cx + cy * cy)
            M = [[m, o, -m * cy], [o, m, m * cx], [-m * cy, m * cx, about_origin]]
            P = jnp.stack([cy * turn, -cx * turn, turn])
        return BlockDiagonal(
            jnp.stack([jnp.stack(row) for row in M]),
            BlockRoot(jnp.stack([scale, scale]), P[:, None]),
            jnp.all((m > 0) & (moment > 0)),
        )

    def momentum_of(self, q, v):
        (m, moment), (x, y, omega) = self._inertia, components(self.tables.table(v))
        if self.centred:
            return jnp.concatenate([m * x, m * y, moment * omega])
        cx, cy = components(self._center(q))
        px, py = m * (x - omega * cy), m * (y + omega * cx)
        return jnp.concatenate([px, py, moment * omega + cx * py - cy * px])

    def inertial_force(self, q, v, gravity, h=None):
        m, _ = self._inertia
        g = [dot(jnp.asarray(axis, gravity.dtype), gravity) for axis in self._plane.axes[:2]]
        fx, fy = m * g[0], m * g[1]
        if self.centred:
            return jnp.concatenate([fx, fy, jnp.zeros_like(fx)])
        cx, cy = components(self._center(q))
        torque = cx * fy - cy * fx
        if h is None:
            # In the mean over a step, `carried` stands for the centrifugal force.
            square = m * self.tables.table(v)[2] ** 2
            fx, fy = fx + square * cx, fy + square * cy
        return jnp.concatenate([fx, fy, torque])

    def reach_weights(self):
        m, moment = self._inertia
        square = moment / m
        return jnp.stack([square, square, jnp.ones_like(square)])

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _flat(self) -> Flat:
        assert self.tables.flat is not None
        return self.tables.flat

    @property
    def _plane(self):
        return self._flat.plane

    @property
    def _inertia(self) -> tuple[Float[Array, " bodies"], Float[Array, " bodies"]]:
        """Mass, and moment of inertia about the normal through the centre of mass."""
        inertia, normal = self.bodies.inertia, self._flat.own[2]
        return inertia.mass, dot(normal, apply_matrix(inertia.tensor, normal))

    def _center(self, q: Configuration) -> Float[Array, "2 bodies"]:
        """Centre of mass relative to the origin, along the axes of the plane."""
        return self._turned(*self.tables.kinematics(q).cos_sin)

    def _center_at(self, angle: Float[Array, " bodies"]) -> Float[Array, "2 bodies"]:
        return self._turned(jnp.cos(angle), jnp.sin(angle))

    def _turned(self, cos: Array, sin: Array) -> Float[Array, "2 bodies"]:
        x, y = components(apply_matrix(self._flat.own[:2], self.bodies.inertia.center))
        return jnp.stack([cos * x - sin * y, sin * x + cos * y])
