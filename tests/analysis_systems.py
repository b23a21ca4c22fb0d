"""Small systems with closed forms for the tests of `jaxmbd.analysis`."""

import jax.numpy as jnp
import numpy as np
from helpers import parameter
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd._compiler import to_jax
from jaxmbd._results import code

gravity = 9.81


class Unit(mbd.AbstractSystem):
    """Masses of 1 in the axes of q, without forces."""

    def mass_matrix(self, q):
        return jnp.eye(q.size)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)


def through(t, q, v) -> mbd.Solution:
    """A motion through these points."""
    none = dict.fromkeys(["multipliers", "phi_norm", "phidot_norm", "ys"])
    points = [to_jax(np.asarray(x)) for x in (t, q, v)]
    return mbd.Solution(*points, stats={}, result=mbd.RESULTS.successful, **none)


class Truss(Unit):
    """Von Mises' truss: a mass at a height between two springs, whose other ends are 1 away, of
    free length FREE, under a load."""

    load: Array
    stiffness: Array = parameter(100.0)

    def force(self, t, q, v, u):
        length = jnp.sqrt(1 + q**2)
        return -2 * self.stiffness * (length - FREE) * q / length - self.load


def load_at(y):
    """The load that holds the truss at this height."""
    return 200 * (FREE / np.sqrt(1 + y**2) - 1) * y


# Its free length, its height without load, that of its largest load, and this load.
FREE = 1.1
HIGH, TOP = np.sqrt(FREE**2 - 1), np.sqrt(FREE ** (2 / 3) - 1)
LIMIT = load_at(TOP)


def all_are(result, verdict) -> bool:
    """Whether a verdict, or each of a batch, is this one."""
    return bool(np.all(np.asarray(code(result)) == code(verdict)))


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


def four_bar(points=((0.0, 0, 0), (0.3, 0, 0.4), (1.2, 0, 0.5), (1.0, 0, 0))) -> mbd.Mechanism:
    """A closed loop in space with hinges at these points about y, 20 rows of rank 17, with a motor
    at the crank."""
    points = np.array(points)
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
