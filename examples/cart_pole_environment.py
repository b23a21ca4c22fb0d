"""A pole on a cart between two walls, as an environment for reinforcement learning: 1024 at once.

A policy learns to balance the pole in two ways: by derivatives through the motion, and by a plain policy
gradient that sees rewards alone. Run it without arguments; `--picture FILE` draws the rewards.
"""

import argparse
import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from tqdm import trange

import jaxmbd as mbd

BATCH, DT, WALL, LENGTH = 1024, 0.02, 0.6, 0.5  # walls at +-0.6 m, a massless pole of 0.5 m


class CartPole(mbd.AbstractSystem):
    """q = (x of the cart, angle of the pole from above); u pushes the cart [10 N]."""

    def mass_matrix(self, q):
        c = 0.1 * LENGTH * jnp.cos(q[1])
        return jnp.stack([jnp.stack([1.1 * jnp.ones_like(c), c]), jnp.stack([c, 0.1 * LENGTH**2 * jnp.ones_like(c)])])

    def force(self, t, q, v, u):
        push = 10.0 * u[0] + 0.1 * LENGTH * jnp.sin(q[1]) * v[1] ** 2
        return jnp.stack([push, 0.1 * 9.81 * LENGTH * jnp.sin(q[1])])

    def gap(self, q, t):
        tip = q[0] + LENGTH * jnp.sin(q[1])
        return jnp.stack([WALL - tip, WALL + tip])

    @property
    def contact_law(self):
        return mbd.ContactLaw(restitution=0.5)


class Environment(eqx.Module):
    """`reset` and `step` of one sample; `jax.vmap` makes them those of a batch."""

    stepper: mbd.Stepper = mbd.Stepper(CartPole(), mbd.ContactImpulse())

    def reset(self, key):
        q, v = jax.random.uniform(key, (2, 2), minval=-0.2, maxval=0.2)
        return self.stepper.init(mbd.State(0.0, q, v))

    def step(self, state, u, key):
        """The next state, the reward for this one, and whether a new episode began."""
        state = self.stepper.step(state, DT, jnp.tanh(u))
        reward = 1.0 - state.q[1] ** 2 - 0.5 * state.q[0] ** 2 - 0.01 * jnp.sum(state.v**2)
        fallen = (jnp.abs(state.q[1]) > 1.0) | (state.t > 5.0) | (state.result != mbd.RESULTS.successful)
        fresh = self.reset(key)
        return jax.tree.map(lambda new, old: jnp.where(fallen, new, old), fresh, state), reward, fallen


def observed(state):
    return jnp.concatenate([state.q, state.v])
