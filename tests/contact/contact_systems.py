"""Systems in contact as a user writes them, and their motions in closed form."""

import jax.numpy as jnp
import numpy as np
from helpers import G
from jaxtyping import Array

import jaxmbd as mbd


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


class Facets(mbd.AbstractSystem):
    """A point of 1 kg within planes, J q + offset >= 0, which falls along all of its axes."""

    J: Array
    offset: Array
    law: mbd.ContactLaw = mbd.ContactLaw()
    gravity: float = 0.0

    def mass_matrix(self, q):
        return jnp.eye(len(q), dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.full_like(q, -self.gravity)

    def gap(self, q, t):
        return self.J @ q + self.offset

    @property
    def contact_law(self):
        return self.law


class Rising(mbd.AbstractSystem):
    """Point mass above ground with the normal z that rises. Gravity has any direction."""

    mass: Array
    gravity: Array
    rate: Array
    law: mbd.ContactLaw

    def mass_matrix(self, q):
        return self.mass * jnp.eye(3, dtype=q.dtype)

    def force(self, t, q, v, u):
        return self.mass * self.gravity

    def gap(self, q, t):
        return q[2:] - self.rate * t

    def slip(self, q, v, t):
        return v[None, :2]

    @property
    def contact_law(self):
        return self.law


def point(q, v, *, tangent=0.015, direction=0.7, **given):
    """Parameters of a point on a slope of this tangent, which falls in this direction."""
    down = np.array([np.cos(direction), np.sin(direction)])
    gravity = G * np.array([*(tangent * down), -1.0]) / np.sqrt(1 + tangent**2)
    law = dict(friction=0.3, restitution=0.0, speed=0.01, stiffness=np.inf, damping=0.0) | given
    p = dict(q=q, v=v, gravity=gravity, mass=1.3, rate=0.0, kinetic=law["friction"]) | law
    return {key: np.array(x, float) for key, x in p.items()}


def moved(p, method=mbd.ContactImpulse(), soft=True, **options):
    """The motion of such a point."""
    names = "restitution", "kinetic", "speed", *(("stiffness", "damping") if soft else ())
    law = mbd.ContactLaw(p["friction"], **{name: p[name] for name in names})
    system = Rising(p["mass"], p["gravity"], p["rate"], law)
    return mbd.simulate(system, method, mbd.State(0.0, p["q"], p["v"]), **options)


def stepped(p, h, steps):
    """Its q and v after some steps, by their formulas, and the contact force of each. Seen from the
    ground it is the same whether that rises or not."""
    up = np.array([0.0, 0.0, p["rate"]])
    m, q, v, forces = p["mass"], p["q"], p["v"] - up, []
    k, d, e, radius = p["stiffness"], p["damping"], p["restitution"], p["friction"]
    for _ in range(steps):
        free = v + h * p["gravity"]
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
    return q + h * steps * up, v + up, np.array(forces)
