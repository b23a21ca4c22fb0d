"""Bodies in space."""

import equinox as eqx
import jax.numpy as jnp

from ..._linalg import BlockDiagonal
from ..body import Body
from ..stack import Stack
from ..tables import BodyTables
from .base import AbstractBodyDynamics


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
