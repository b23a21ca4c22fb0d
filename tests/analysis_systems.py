"""Small systems with closed forms for the tests of `jaxmbd.analysis`."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd

gravity = 9.81


class CartPole(mbd.AbstractSystem):
    """A point mass on a rod without mass on a cart that u pushes; q = (x, angle from upright)."""

    cart: Array
    pole: Array
    length: Array

    def mass_matrix(self, q):
        coupled = self.pole * self.length * jnp.cos(q[1])
        return jnp.stack(
            [
                jnp.stack([self.cart + self.pole, coupled]),
                jnp.stack([coupled, self.pole * self.length**2]),
            ]
        )

    def force(self, t, q, v, u):
        s = self.pole * self.length * jnp.sin(q[1])
        return jnp.stack([u[0] + s * v[1] ** 2, s * gravity])


class Springs(mbd.AbstractSystem):
    """M v' = -K q - D v + u, with the velocities' terms of any kind in D."""

    mass: Array
    stiffness: Array
    damping: Array

    def mass_matrix(self, q):
        return self.mass

    def force(self, t, q, v, u):
        f = -self.stiffness @ q - self.damping @ v
        return f if u is None else f + u


def four_bar() -> mbd.Mechanism:
    """A closed loop in space, 20 rows of rank 17, with a motor at the crank."""
    points = np.array([[0.0, 0, 0], [0.3, 0, 0.4], [1.2, 0, 0.5], [1.0, 0, 0]])
    bodies = [
        mbd.Body(f"bar {i}", mbd.Inertia.box(size=[0.5, 0.05, 0.05], mass=1.0), position=place)
        for i, place in enumerate((points[1:] + points[:-1]) / 2)
    ]
    ends, axis = ["ground", *bodies, "ground"], [0.0, 1.0, 0.0]
    hinges = [
        mbd.Revolute(f"hinge {i}", ends[i], ends[i + 1], point=points[i], axis=axis)
        for i in range(4)
    ]
    motor = mbd.Motor("motor", "ground", bodies[0], point=points[0], axis=axis)
    return mbd.Mechanism(bodies, hinges, forces=[motor])
