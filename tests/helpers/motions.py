"""Known motions of the systems in NumPy: t -> (q, v), of a time or an array of times."""

from functools import cache

import jax
import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import ellipj, ellipk


def oscillation(m, k, c, x0, v0, t):
    """Damped oscillation of m x'' + c x' + k x = 0, underdamped."""
    decay, omega = c / (2 * m), np.sqrt(k / m - (c / (2 * m)) ** 2)
    slope = (v0 + decay * x0) / omega
    x = np.exp(-decay * t) * (x0 * np.cos(omega * t) + slope * np.sin(omega * t))
    return x, np.exp(-decay * t) * (
        v0 * np.cos(omega * t) - (decay * slope + x0 * omega) * np.sin(omega * t)
    )


def _stack(*x):
    return np.stack(np.broadcast_arrays(*x), axis=-1)


def oscillator_motion(system, x0, v0):
    m, k, c = (float(x) for x in (system.mass, system.stiffness, system.damping))
    return lambda t: tuple(_stack(x) for x in oscillation(m, k, c, x0, v0, t))


def guided_motion(system, r0, w0):
    m, k, c, angle, g = (float(x) for x in jax.tree.leaves(system))
    rest, along = -m * g * np.sin(angle) / k, np.array([np.cos(angle), np.sin(angle)])

    def motion(t):
        r, w = oscillation(m, k, c, r0 - rest, w0, np.asarray(t))
        return (r + rest)[..., None] * along, w[..., None] * along

    return motion


def pendulum_motion(system, angle):
    """From rest at `angle` from the lowest point: Jacobi's elliptic functions."""
    length, frequency = float(system.length), np.sqrt(float(system.gravity) / float(system.length))
    k = np.sin(angle / 2)

    def motion(t):
        sn, cn, dn, _ = ellipj(ellipk(k**2) + frequency * np.asarray(t), k**2)
        rate = 2 * k * frequency * cn  # sin(phi/2) = k sn, cos(phi/2) = dn
        sin, cos = 2 * k * sn * dn, 1 - 2 * (k * sn) ** 2
        return length * _stack(sin, -cos), length * rate[..., None] * _stack(cos, sin)

    return motion


def driven_motion(system, angle, rate):
    """The angle phi from the lowest point, integrated by SciPy to 1e-12."""
    p, w = system.pendulum, float(system.frequency)
    length, gravity = float(p.length), float(p.gravity)
    a, b = np.asarray(system.amplitude)

    def pivot(t):
        s, c = np.sin(w * t), np.cos(w * t)
        return _stack(a * s, b * c), w * _stack(a * c, -b * s), -(w**2) * _stack(a * s, b * c)

    def rates(t, y):
        x, z = pivot(t)[2]
        return y[1], -((gravity + z) * np.sin(y[0]) + x * np.cos(y[0])) / length

    @cache
    def solution():
        options = dict(rtol=1e-13, atol=1e-13, dense_output=True)
        return solve_ivp(rates, (0, 4.0), [angle, rate], "DOP853", **options).sol

    def motion(t):
        phi, omega = solution()(np.asarray(t))
        p, dp, _ = pivot(np.asarray(t))
        q = length * _stack(np.sin(phi), -np.cos(phi))
        v = length * omega[..., None] * _stack(np.cos(phi), np.sin(phi))
        return p + q, dp + v

    return motion


def top_motion(system, tilt, precession):
    """Steady precession of a symmetric top: C spin Omega = A Omega^2 cos(tilt) + m g l."""
    m, g = float(system.mass), float(system.gravity)
    arm, inertia = float(np.asarray(system.arm)[2]), np.asarray(system.inertia)
    A = inertia[0] + m * arm**2
    spin = (A * precession**2 * np.cos(tilt) + m * g * arm) / (inertia[2] * precession)
    own = spin - precession * np.cos(tilt)

    def half_turn(angle, axis):
        p = np.zeros((*np.shape(angle), 4))
        p[..., 0], p[..., 1 + axis] = np.cos(angle / 2), np.sin(angle / 2)
        return p

    def product(a, b):
        w = a[..., :1] * b[..., :1] - np.sum(a[..., 1:] * b[..., 1:], -1, keepdims=True)
        u = a[..., :1] * b[..., 1:] + b[..., :1] * a[..., 1:] + np.cross(a[..., 1:], b[..., 1:])
        return np.concatenate([w, u], -1)

    def motion(t):
        phi = precession * np.asarray(t)
        tilted = product(half_turn(phi, 2), half_turn(tilt, 0))
        p = product(tilted, half_turn(own * np.asarray(t), 2))
        axis = _stack(np.sin(tilt) * np.sin(phi), -np.sin(tilt) * np.cos(phi), np.cos(tilt))
        up = np.array([0.0, 0.0, 1.0])
        omega = precession * up + own * axis
        q = np.concatenate([arm * axis, p], -1)
        return q, np.concatenate([arm * np.cross(omega, axis), omega], -1)

    return motion


def skate_motion(system, turn):
    """From rest while turning at a constant rate: cycloids across the slope.

    Neimark and Fufaev (1972), Dynamics of nonholonomic systems, section II.3."""
    c, s = np.cos(float(system.slope)), np.sin(float(system.slope))
    pull = float(system.gravity) * s

    def motion(t):
        th, speed = turn * np.asarray(t), pull / turn * np.sin(turn * np.asarray(t))
        scale, along = pull / (2 * turn**2), speed * np.cos(th)
        x, y = scale * np.sin(th) ** 2, scale * (th - np.sin(2 * th) / 2)
        return _stack(c * x, y, -s * x, th), _stack(c * along, speed * np.sin(th), -s * along, turn)

    return motion
