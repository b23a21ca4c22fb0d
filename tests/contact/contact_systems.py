"""Systems in contact as a user writes them, and runs of them."""

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
from helpers import Ball, G
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd._concrete import to_jax


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
        saveat=diffrax.SaveAt(ts=to_jax(ts)),
        throw=False,
    )


def bounced(t, height, e, v=0.0):
    """Height at t, before the twelfth bounce, of a ball that is thrown down at 0 with v."""
    speed = np.sqrt(v**2 + 2 * G * height)
    landing = (speed - v) / G
    y = height - v * t - G * t**2 / 2
    for _ in range(12):
        speed, s = e * speed, t - landing
        y = np.where(s >= 0, speed * s - G * s**2 / 2, y)
        landing = landing + 2 * speed / G
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
    gravity = G * np.array([tangent * np.cos(direction), tangent * np.sin(direction), -1.0])
    gravity = jax.device_put(gravity / np.sqrt(1 + tangent**2))
    return Slope(jax.device_put(mass), gravity, mbd.ContactLaw(friction, **law))


class Push(eqx.Module):
    """A constant force."""

    u: Array

    def __call__(self, t, q, v):
        return self.u


def stepped(p, h, steps):
    """q and v of one point above the ground after some steps, by their formulas, and the contact
    force of each."""
    m, q, v, forces = p["mass"], p["q"], p["v"], []
    k, d, e, radius = p["stiffness"], p["damping"], p["restitution"], p["friction"]
    for _ in range(steps):
        free = v + h * (p["gravity"] + p["u"] / m)
        share = np.exp(-((np.linalg.norm(v[:2]) / p["speed"]) ** 2))
        mu = p["kinetic"] + (radius - p["kinetic"]) * share
        bounces = q[2] + h * free[2] < 0 and e * v[2] < 0
        soft, bias = 0.0 if np.isinf(k) else 1 / (h * (h * k + d)), max(q[2], 0.0) / h
        if not np.isinf(k) and q[2] < 0:
            bias = q[2] / (h + d / k)
        approach = free[2] + (e * v[2] if bounces else bias)
        n = max(0.0, -approach / (1 / m + soft))
        stop = -m * free[:2]
        t = stop * min(1.0, mu * n / max(np.linalg.norm(stop), 1e-300))
        v = free + np.array([*t, n]) / m
        q = q + h * v
        if np.isinf(k):  # overlap is taken back without energy
            q[2] = max(q[2], 0.0)
        forces.append(np.array([n, *t]) / h)
    return q, v, np.array(forces)


def point(q, v, *, tangent=0.0, direction=0.7, mass=1.3, friction=0.3, **law):
    down = np.array([np.cos(direction), np.sin(direction)])
    gravity = G * np.array([*(tangent * down), -1.0]) / np.sqrt(1 + tangent**2)
    kinetic = law.pop("kinetic", friction)
    rest = dict(restitution=0.0, speed=0.01, stiffness=np.inf, damping=0.0, u=[0.2, 0.1, 0.0])
    p = dict(q=q, v=v, gravity=gravity, mass=mass, friction=friction, kinetic=kinetic, **rest | law)
    return {key: np.array(x, float) for key, x in p.items()}
