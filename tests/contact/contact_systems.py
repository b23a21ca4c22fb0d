"""Systems in contact as a user writes them, and runs of them."""

import diffrax
import equinox as eqx
import helpers
import jax.numpy as jnp
from jaxtyping import Array

import jaxmbd as mbd

G = 9.81


class Ball(mbd.AbstractSystem):
    """Point mass at (x, y) above the ground, which may move."""

    mass: Array
    friction: Array
    restitution: Array
    shake: Array = eqx.field(default_factory=lambda: jnp.zeros(2))  # amplitude, frequency

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


def ball(mass=1.3, friction=0.0, restitution=0.8, **fields):
    return Ball(jnp.asarray(mass), jnp.asarray(friction), jnp.asarray(restitution), **fields)


def flight(system, q, v, ts, dt=1e-2, impacts=3, control=None, **options):
    state = mbd.State(0.0, jnp.asarray(q), jnp.asarray(v))
    return mbd.simulate(
        system,
        mbd.ContactImpulse(impacts=helpers.located(impacts), **options),
        state,
        t0=0.0,
        t1=float(ts[-1]),
        dt=dt,
        control=control,
        saveat=diffrax.SaveAt(ts=jnp.asarray(ts)),
        throw=False,
    )


def bounced(t, height, e):
    """Height at t of a ball dropped at 0, by its closed form, differentiable."""
    landing = jnp.sqrt(2 * height / G)
    v = e * jnp.sqrt(2 * G * height)
    y = jnp.where(t < landing, height - G * t**2 / 2, 0.0)
    for _ in range(12):
        s = t - landing
        y = jnp.where((s >= 0) & (s < 2 * v / G), v * s - G * s**2 / 2, y)
        landing, v = landing + 2 * v / G, e * v
    return y


class Slope(mbd.AbstractSystem):
    """Point mass above a plane with the normal z; gravity is tilted in any direction."""

    mass: Array
    gravity: Array
    law: mbd.ContactLaw

    def mass_matrix(self, q):
        return self.mass * jnp.eye(3, dtype=q.dtype)

    def force(self, t, q, v, u):
        return self.mass * self.gravity + (0.0 if u is None else u)

    def gap(self, q, t):
        return q[2:]

    def slip(self, q, v, t):
        return v[None, :2]

    @property
    def contact_law(self):
        return self.law


def slope(tangent, friction=0.4, direction=0.0, mass=2.0, **law):
    """Inclined by arctan(tangent), downhill in some direction."""
    down = jnp.stack([jnp.cos(direction), jnp.sin(direction)])
    gravity = G * jnp.concatenate([tangent * down, -jnp.ones(1)]) / jnp.sqrt(1 + tangent**2)
    return Slope(jnp.asarray(mass), gravity, mbd.ContactLaw(friction, **law))


class WallPendulum(mbd.AbstractSystem):
    """A pendulum of length 1, its row written twice, that swings against a wall x >= wall."""

    wall: Array
    restitution: Array

    def mass_matrix(self, q):
        return 1.5 * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -1.5 * G])

    def constraint(self, q, t):
        return (q @ q - 1.0) * jnp.array([0.5, 1.0])

    def gap(self, q, t):
        return q[:1] - self.wall

    @property
    def contact_law(self):
        return mbd.ContactLaw(restitution=self.restitution)


class Push(eqx.Module):
    """A constant force."""

    u: Array

    def __call__(self, t, q, v):
        return self.u
