"""Motions in closed form with parameters to identify."""

import jax.numpy as jnp
import numpy as np
from helpers import oscillation
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd._compiler import to_jax
from jaxmbd.identify import Positive

QUIET = dict(progress=False)


class Oscillator(mbd.AbstractSystem):
    """m q'' + c q' + k q = f."""

    mass: Array
    damping: Array
    stiffness: Array

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1)

    def force(self, t, q, v, u):
        push = 0.0 if u is None else u[0]
        return push - self.damping * v - self.stiffness * q


def oscillator(mass=1.0, damping=0.4, stiffness=9.0):
    return Oscillator(*map(to_jax, (mass, damping, stiffness)))


TIMES = np.linspace(0.0, 4.0, 41)
BOTH = {"damping": Positive(), "stiffness": Positive()}


def decay(t, q0=1.0, v0=0.0, mass=1.0, damping=0.4, stiffness=9.0):
    """q(t) of the free oscillator."""
    return oscillation(mass, stiffness, damping, q0, v0, t)[0]


class Falling(mbd.AbstractSystem):
    """q'' = -g: a motion that is linear in g and in its start, and exact by RK4."""

    gravity: Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return -jnp.reshape(self.gravity, 1)


def state(q=1.0, v=0.0, t=0.0):
    return mbd.State(t, np.array([q]), np.array([v]))


def position(sample):
    return sample.q
