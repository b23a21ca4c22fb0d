"""A system with everything at once, and single steps of the methods written out in NumPy."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from helpers import parameter
from jaxtyping import Array

import jaxmbd as mbd


class Tangle(mbd.AbstractSystem):
    """Four coordinates, of which one is free: a mass matrix and a kinematic map that change, two
    rows of position in time, one of them twice, and one of velocity that is not linear."""

    masses: Array = parameter((1.2, 0.8, 1.5, 0.6))
    coupling: Array = parameter(0.4)
    stretch: Array = parameter(0.3)
    copy: Array = parameter(-1.7)
    offsets: Array = parameter((0.3, -0.2))
    drag: Array = parameter(0.5)

    def mass_matrix(self, q):
        b = jnp.stack([jnp.ones_like(q[0]), 0.3 * q[0], 0.5 - q[1], q[3]])
        return jnp.diag(self.masses) + self.coupling * b[:, None] * b[None]

    def force(self, t, q, v, u):
        return jnp.stack([3 * t, -9.81 * self.masses[1], v[0] * v[3], -4 * q[3]])

    def nonideal_force(self, q, v, t):
        return -self.drag * v

    def qdot(self, q, v):
        return v * jnp.stack([jnp.ones_like(t := q[2]), 1 + self.stretch * q[0], jnp.exp(t), 1 - t])

    def constraint(self, q, t):
        moving = q[0] * q[1] * jnp.sin(t) + t**2 - self.offsets[0]
        return jnp.stack([moving, q[2] - q[0] ** 2 - self.offsets[1], self.copy * moving])

    def nonholonomic(self, q, v, t):
        return q[1] * v[0] ** 2 + t * v[1] + v[3]


TANGLE = Tangle()
T, H = 0.9, 0.02


def state(off):
    """A state that violates the rows, by about so much."""
    q, v = np.array([0.6, -0.9, 0.1, 0.4]), np.array([0.5, -0.3, 0.4, 0.0])
    for _ in range(6):  # onto the rows
        at = point(T, q, v)
        correct = -np.linalg.pinv(at.J, 1e-10)
        q = q + maps(q) @ correct @ padded(at.phi)
        v = v + correct @ at.velocity
    return q + off * np.array([1.0, -0.6, 0.5, 0.8]), v + off * np.array([-0.7, 1.0, 0.4, 0.9])


_evaluate = eqx.filter_jit(mbd.evaluate)
_maps = eqx.filter_jit(lambda q: jnp.stack([TANGLE.qdot(q, e) for e in jnp.eye(4)], 1))


class point:
    """The equations at (t, q, v) as arrays of NumPy."""

    def __init__(self, t, q, v):
        found = _evaluate(TANGLE, None, np.asarray(t), q, v)
        self.M, self.f, self.v = np.asarray(found.M), np.asarray(found.f), v
        self.J, self.gamma = np.asarray(found.rows.J), np.asarray(found.rows.gamma)
        self.phi, self.velocity = np.asarray(found.rows.phi), np.asarray(found.rows.velocity)

    def least(self, r, f=0.0, W=None):
        """x with J x = r in the first rows, the nearest one to W^-1 f in the norm of W (M by
        default), and the multipliers of the least norm."""
        W, J = self.M if W is None else W, self.J[: len(r)]
        free, to = np.linalg.solve(W, f + np.zeros(4)), np.linalg.solve(W, J.T)
        lam = np.linalg.pinv(J @ to, 1e-10) @ (r - J @ free)
        return free + to @ lam, lam


def maps(q):
    return np.asarray(_maps(q))


def padded(phi):
    """phi with the row of velocity."""
    return np.append(phi, 0.0)


# --- continuous methods: (velocity, acceleration, multipliers), and the correction over a step ---


def rigid(feedback=lambda at: 0.0):
    return lambda at: (at.v, *at.least(at.gamma - feedback(at), at.f))


def corrected(at):
    return at.v - at.least(at.velocity)[0], *at.least(at.gamma, at.f)


def both_corrections(at):
    return at.least(-padded(at.phi))[0], at.least(-at.velocity)[0]


def no_corrections(at):
    return np.zeros(4), np.zeros(4)


def springs(K, D):
    def motion(at):
        lam = -(D * at.velocity + padded(K * at.phi))
        return at.v, np.linalg.solve(at.M, at.f + at.J.T @ lam), lam

    return motion


def augmented(penalty, iterations, omega, xi):
    """As printed: (M + J^T a J) x' = M x + J^T a r, lam' = lam + a (r - J x')."""

    def iterated(at, x, r):
        lam, left = np.zeros(4), at.M + penalty * at.J.T @ at.J
        for _ in range(iterations):
            x = np.linalg.solve(left, at.M @ x + penalty * at.J.T @ r)
            lam = lam + penalty * (r - at.J @ x)
        return x, lam

    def motion(at):
        r = at.gamma - 2 * xi * omega * at.velocity - omega**2 * padded(at.phi)
        return at.v, *iterated(at, np.linalg.solve(at.M, at.f), r)

    def correction(at):
        rest = np.zeros(4)
        return iterated(at, rest, -padded(at.phi))[0], iterated(at, rest, -at.velocity)[0]

    return motion, correction


RUNGE_KUTTA = ((0.0, 1 / 6), (0.5, 1 / 3), (0.5, 1 / 3), (1.0, 1 / 6))
MIDPOINT = ((0.0, 0.0), (0.5, 1.0))


def along_rows(at):
    """K of corrections along M^-1 J^T."""
    to = np.linalg.solve(at.M, at.J.T)
    return to @ np.linalg.pinv(at.J @ to, 1e-10)


def beside_the_first(at):
    """K of corrections that leave the first velocity as it is."""
    return np.concatenate([np.zeros((1, 4)), np.linalg.pinv(at.J[:, 1:], 1e-10)])


def dependents(inverse, start):
    """The dependent part of a state solved anew, with K and J of the start of a step."""
    K, J = inverse(start), start.J

    def solved(t, q, v):
        x = np.zeros(4)
        for _ in range(30):
            x = -K @ (padded(point(t, q + maps(q) @ x, v).phi) - J @ x)
        q = q + maps(q) @ x
        for _ in range(6):
            at = point(t, q, v)
            v = v - np.linalg.solve(np.eye(4) + K @ (at.J - J), K @ at.velocity)
        return q, v

    return solved


def continuous_step(motion, correction, q, v, stages, inverse=None):
    """Each stage from the one before, with the correction of the start in all of them, or with its
    dependent part solved anew."""
    start = point(T, q, v)
    by_q, by_v = correction(start)
    by_q = maps(q) @ by_q
    solved = (lambda t, q, v: (q, v)) if inverse is None else dependents(inverse, start)
    end, rate = [q, v], (0.0, 0.0)
    for c, b in stages:
        x, w = q + c * rate[0], v + c * rate[1]
        if c > 0:
            x, w = solved(T + c * H, x, w)
        velocity, acceleration, _ = motion(point(T + c * H, x, w))
        rate = H * maps(x) @ velocity + by_q, H * acceleration + by_v
        end = [x + b * k for x, k in zip(end, rate, strict=True)]
    end = solved(T + H, *end)
    return *end, motion(point(T + H, *end))[2]


# --- velocity-level methods ----------------------------------------------------------------------


def dead_beat(at, phi, drift):
    return *at.least(-(at.J @ at.v + drift + phi / H)), 0.0


def relaxed(tau):
    return lambda at, phi, drift: (*at.least(-(at.J @ at.v + drift + phi / tau)), 0.0)


def passive(at, phi, drift):
    (c, kick), (d, push) = at.least(-(at.J @ at.v + drift)), at.least(-phi)
    taken, given = c @ at.M @ c, d @ at.M @ d / H**2
    s = min(1.0, 2 * taken / (taken + given))
    return c + s / H * d, kick + s / H * push, (1 - s) * d


def implicit_springs(K, D):
    def impulse(at, phi, drift):
        soft, to = 1 / (H * (H * padded(K) + D)), np.linalg.solve(at.M, at.J.T)
        bias = at.J @ at.v + drift + soft * H * padded(K) * phi
        impulse = -np.linalg.solve(at.J @ to + np.diag(soft), bias)
        return to @ impulse, impulse, 0.0

    return impulse


def split_step(impulse, q, v):
    at = point(T, q, v)
    free = v + H * np.linalg.solve(at.M, at.f)
    end = point(T + H, q, free)
    drift = np.append((end.phi - at.phi) / H, (end.velocity - end.J @ free)[-1])
    change, impulses, displacement = impulse(end, padded(at.phi), drift)
    return q + maps(q) @ (H * (free + change) + displacement), free + change, impulses / H


# --- the projection of a state -------------------------------------------------------------------


def projected(q, v, euclidean):
    def metric(at, q):
        return maps(q).T @ maps(q) if euclidean else at.M

    at = point(T + H, q, v)
    q = q + maps(q) @ at.least(-at.phi, W=metric(at, q))[0]
    at = point(T + H, q, v)
    return q, v + at.least(-at.velocity, W=metric(at, q))[0]
