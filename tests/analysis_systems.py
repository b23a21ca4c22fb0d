"""Small systems with closed forms for the tests of `jaxmbd.analysis`."""

import jax.numpy as jnp
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
