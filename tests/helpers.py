"""Small systems and all methods: the tests are their products.

A `Case` is a system with a consistent start and what is known of its motion. A `Method` is an
enforcement with whatever it needs beside it. A new one is one more item of `CASES` or `METHODS`.
"""

import collections
import contextlib
import dataclasses
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from scipy.integrate import solve_ivp
from scipy.special import ellipj, ellipk

import jaxmbd as mbd


def parameter(default):
    return eqx.field(converter=jnp.asarray, default=default)


# --- systems ------------------------------------------------------------------------------------


class Oscillator(mbd.AbstractSystem):
    """Mass on a spring and a damper along x, no constraint."""

    mass: Array = parameter(1.3)
    stiffness: Array = parameter(5.0)
    damping: Array = parameter(0.4)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.stiffness * q - self.damping * v


class GuidedMass(mbd.AbstractSystem):
    """Mass at (x, y) under gravity on a straight guide through the origin, inclined by `angle`,
    with a spring to the origin and a damper; a control acts as a force (2,)."""

    mass: Array = parameter(1.3)
    stiffness: Array = parameter(5.0)
    damping: Array = parameter(0.4)
    angle: Array = parameter(0.6)
    gravity: Array = parameter(9.81)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        weight = jnp.stack([jnp.zeros_like(self.mass), -self.mass * self.gravity])
        f = weight - self.stiffness * q - self.damping * v
        return f if u is None else f + u

    def constraint(self, q, t):
        return q[0] * jnp.sin(self.angle) - q[1] * jnp.cos(self.angle)


class Pendulum(mbd.AbstractSystem):
    """Point mass at (x, y), y upwards, on a rod to the origin; a control acts as a force (2,)."""

    mass: Array = parameter(1.2)
    length: Array = parameter(0.9)
    gravity: Array = parameter(9.81)
    damping: Array = parameter(0.0)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        weight = jnp.stack([jnp.zeros_like(self.mass), -self.mass * self.gravity])
        f = weight - self.damping * v
        return f if u is None else f + u

    def constraint(self, q, t):
        return q @ q - self.length**2


class RedundantPendulum(mbd.AbstractSystem):
    """A pendulum whose row is written three times, with different scales."""

    pendulum: Pendulum = Pendulum()
    scales: Array = parameter((1.0, -2.5, 0.3))

    def mass_matrix(self, q):
        return self.pendulum.mass_matrix(q)

    def force(self, t, q, v, u):
        return self.pendulum.force(t, q, v, u)

    def constraint(self, q, t):
        return self.scales * self.pendulum.constraint(q, t)


class DrivenPendulum(mbd.AbstractSystem):
    """A pendulum whose pivot moves along (a sin(w t), b cos(w t)): Phi_qt and Phi_tt count."""

    pendulum: Pendulum = Pendulum()
    amplitude: Array = parameter((0.2, 0.1))
    frequency: Array = parameter(3.0)

    def pivot(self, t):
        return self.amplitude * jnp.stack(
            [jnp.sin(self.frequency * t), jnp.cos(self.frequency * t)]
        )

    def mass_matrix(self, q):
        return self.pendulum.mass_matrix(q)

    def force(self, t, q, v, u):
        return self.pendulum.force(t, q, v, u)

    def constraint(self, q, t):
        return self.pendulum.constraint(q - self.pivot(t), t)


class RotatingGuide(mbd.AbstractSystem):
    """A bead under gravity on a straight guide that turns at a given rate about the origin."""

    mass: Array = parameter(1.2)
    rate: Array = parameter(2.0)
    gravity: Array = parameter(9.81)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.stack([jnp.zeros_like(self.mass), -self.mass * self.gravity])

    def constraint(self, q, t):
        return q[0] * jnp.sin(self.rate * t) - q[1] * jnp.cos(self.rate * t)


class Top(mbd.AbstractSystem):
    """Heavy top: a rigid body on a spherical joint at the origin. q = (centre of mass,
    quaternion), v = (its velocity, angular velocity in world axes)."""

    mass: Array = parameter(1.2)
    inertia: Array = parameter((0.3, 0.3, 0.5))  # principal, about the centre of mass
    arm: Array = parameter((0.0, 0.0, 0.3))  # from joint to centre of mass, body axes
    gravity: Array = parameter(9.81)
    coordinates = mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())

    def inertia_world(self, q):
        R = mbd.quaternion_to_matrix(q[3:])
        return R @ jnp.diag(self.inertia) @ R.T

    def mass_matrix(self, q):
        return jax.scipy.linalg.block_diag(
            self.mass * jnp.eye(3, dtype=q.dtype), self.inertia_world(q)
        )

    def force(self, t, q, v, u):
        omega = v[3:]
        weight = self.mass * self.gravity * jnp.array([0, 0, -1], q.dtype)
        return jnp.concatenate([weight, -jnp.cross(omega, self.inertia_world(q) @ omega)])

    def constraint(self, q, t):
        return q[:3] - mbd.quaternion_rotate(q[3:], self.arm)


class Skate(mbd.AbstractSystem):
    """A blade at (x, y), heading th, on a plane that slopes down along x: no sideways slip."""

    mass: Array = parameter(1.2)
    inertia: Array = parameter(0.5)
    slope: Array = parameter(0.4)
    gravity: Array = parameter(9.81)

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([self.mass, self.mass, self.inertia]))

    def force(self, t, q, v, u):
        pull = self.mass * self.gravity * jnp.sin(self.slope)
        return jnp.stack([pull, jnp.zeros_like(pull), jnp.zeros_like(pull)])

    def nonholonomic(self, q, v, t):
        return v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])


class SkateInSpace(mbd.AbstractSystem):
    """The same blade at (x, y, z) in space, heading th, kept on the slope by a holonomic row."""

    mass: Array = parameter(1.2)
    inertia: Array = parameter(0.5)
    slope: Array = parameter(0.4)
    gravity: Array = parameter(9.81)

    def downhill(self):
        return jnp.cos(self.slope), -jnp.sin(self.slope)  # components along x and z

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([self.mass, self.mass, self.mass, self.inertia]))

    def force(self, t, q, v, u):
        none = jnp.zeros_like(self.mass)
        return jnp.stack([none, none, -self.mass * self.gravity, none])

    def constraint(self, q, t):
        x, z = self.downhill()
        return q[0] * z - q[2] * x

    def nonholonomic(self, q, v, t):
        x, z = self.downhill()
        return (v[0] * x + v[2] * z) * jnp.sin(q[3]) - v[1] * jnp.cos(q[3])


class SupportedSliderCrank(mbd.LagrangianSystem):
    """Slider-crank whose crank bearing slides along x against a spring and a damper.

    q = (s, x, a, b): bearing and slider on the x axis, angles of crank and rod to it. Point
    masses at the bearing, the crank's tip, the middle of the rod, and the slider."""

    masses: Array = parameter((0.8, 0.5, 0.6, 1.0))
    lengths: Array = parameter((0.5, 1.1))
    stiffness: Array = parameter(30.0)
    damping: Array = parameter(0.7)
    torque: Array = parameter(2.0)
    gravity: Array = parameter(9.81)

    def points(self, q):
        s, x, a, b = q
        none = jnp.zeros_like(s)
        bearing, slider = jnp.stack([s, none]), jnp.stack([x, none])
        tip = bearing + self.lengths[0] * jnp.stack([jnp.cos(a), jnp.sin(a)])
        middle = tip + self.lengths[1] / 2 * jnp.stack([jnp.cos(b), jnp.sin(b)])
        return jnp.stack([bearing, tip, middle, slider])

    def kinetic_energy(self, q, v):
        _, velocity = jax.jvp(self.points, (q,), (v,))
        return self.masses @ jnp.sum(velocity**2, axis=1) / 2

    def potential_energy(self, q):
        heights = self.points(q)[:, 1]
        return self.gravity * (self.masses @ heights) + self.stiffness * q[0] ** 2 / 2

    def dissipation(self, q, v):
        return self.damping * v[0] ** 2 / 2

    def generalised_force(self, t, q, v, u):
        return self.torque * jnp.array([0, 0, 1, 0], q.dtype)

    def constraint(self, q, t):
        s, x, a, b = q
        crank, rod = self.lengths
        reach = s + crank * jnp.cos(a) + rod * jnp.cos(b) - x
        return jnp.stack([reach, crank * jnp.sin(a) + rod * jnp.sin(b)])


class EqualSliderCrank(mbd.LagrangianSystem):
    """Slider-crank with equal links, whose rows lose a rank at (pi/2, -pi/2).

    q = (x, y, a, b): support point, and angles of crank and rod from the horizontal; uniform bars.
    Braun and Goldfarb (2009), section 5.2."""

    mass: Array = parameter(1.0)
    slider_mass: Array = parameter(1.0)
    length: Array = parameter(1.0)
    torque: Array = parameter(20.0)
    damping: Array = parameter(5.0)
    gravity: Array = parameter(9.81)

    def points(self, q):
        crank, rod = (self.length * jnp.stack([jnp.cos(x), jnp.sin(x)]) for x in q[2:])
        return jnp.stack([q[:2] + crank / 2, q[:2] + crank + rod / 2, q[:2] + crank + rod])

    def masses(self):
        return jnp.stack([self.mass, self.mass, self.slider_mass])

    def kinetic_energy(self, q, v):
        _, velocity = jax.jvp(self.points, (q,), (v,))
        spin = self.mass * self.length**2 / 12 * (v[2:] @ v[2:])
        return (self.masses() @ jnp.sum(velocity**2, axis=1) + spin) / 2

    def potential_energy(self, q):
        return self.gravity * self.masses() @ self.points(q)[:, 1]

    def generalised_force(self, t, q, v, u):
        none = jnp.zeros_like(self.torque)
        return jnp.stack([none, none, self.torque - self.damping * v[2], none])

    def constraint(self, q, t):
        return jnp.stack([q[0], q[1], self.points(q)[2, 1]])


class TwoFourBars(mbd.AbstractSystem):
    """Three parallel cranks of equal length joined by two couplers: five rows, of which two are
    lost when everything lies horizontal. q = the crank tips. Five uniform bars.

    Braun and Goldfarb (2009), section 5.3."""

    mass: Array = parameter(1.0)
    length: Array = parameter(1.0)
    gravity: Array = parameter(9.81)

    def mass_matrix(self, q):
        bars = np.array([[4, 1, 0], [1, 6, 1], [0, 1, 4]]) / 6
        return self.mass * jnp.asarray(np.kron(bars, np.eye(2)), q.dtype)

    def force(self, t, q, v, u):
        share = jnp.array([0, 1, 0, 1.5, 0, 1], q.dtype)
        return -self.mass * self.gravity * share

    def constraint(self, q, t):
        tips = q.reshape(3, 2)
        pivots = self.length * jnp.array([[0, 0], [1, 0], [2, 0]], q.dtype)
        bars = jnp.concatenate([tips - pivots, tips[1:] - tips[:-1]])
        return jnp.sum(bars**2, axis=1) - self.length**2


# --- controls: u = control(t, q, v) -------------------------------------------------------------


class Table(eqx.Module):
    """Open loop: values (n, 2) at equidistant times 0 ... duration, linear between them."""

    values: Array
    duration: Array = parameter(0.5)

    def __call__(self, t, q, v):
        times = jnp.linspace(0, 1, len(self.values), dtype=q.dtype) * self.duration
        return jax.vmap(jnp.interp, (None, None, 1))(jnp.asarray(t, q.dtype), times, self.values)


class Feedback(eqx.Module):
    """u = -k q - d v."""

    k: Array = parameter(5.0)
    d: Array = parameter(0.4)

    def __call__(self, t, q, v):
        return -self.k * q - self.d * v


class Neural(eqx.Module):
    """A multilayer perceptron of (q, v)."""

    mlp: eqx.nn.MLP

    def __call__(self, t, q, v):
        return self.mlp(jnp.concatenate([q, v]))


def neural(key):
    mlp = eqx.nn.MLP(4, 2, width_size=4, depth=1, activation=jnp.tanh, key=key)
    return Neural(mlp)


# --- known motions, in NumPy: t -> (q, v), of a time or an array of times -----------------------


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


def oscillator_motion(system: Oscillator, x0, v0):
    m, k, c = (float(x) for x in (system.mass, system.stiffness, system.damping))
    return lambda t: tuple(_stack(x) for x in oscillation(m, k, c, x0, v0, t))


def guided_motion(system: GuidedMass, r0, w0):
    m, k, c, angle, g = (float(x) for x in jax.tree.leaves(system))
    rest, along = -m * g * np.sin(angle) / k, np.array([np.cos(angle), np.sin(angle)])

    def motion(t):
        r, w = oscillation(m, k, c, r0 - rest, w0, np.asarray(t))
        return (r + rest)[..., None] * along, w[..., None] * along

    return motion


def pendulum_motion(system: Pendulum, angle):
    """From rest at `angle` from the lowest point: Jacobi's elliptic functions."""
    length, frequency = float(system.length), np.sqrt(float(system.gravity / system.length))
    k = np.sin(angle / 2)

    def motion(t):
        sn, cn, dn, _ = ellipj(ellipk(k**2) + frequency * np.asarray(t), k**2)
        half_cos = dn  # cos(phi/2) with sin(phi/2) = k sn
        rate = 2 * k * frequency * cn
        sin, cos = 2 * k * sn * half_cos, 1 - 2 * (k * sn) ** 2
        return length * _stack(sin, -cos), length * rate[..., None] * _stack(cos, sin)

    return motion


def driven_motion(system: DrivenPendulum, angle, rate):
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

    solution = _integrate(rates, [angle, rate])

    def motion(t):
        phi, omega = solution(t)
        p, dp, _ = pivot(np.asarray(t))
        q = length * _stack(np.sin(phi), -np.cos(phi))
        v = length * omega[..., None] * _stack(np.cos(phi), np.sin(phi))
        return p + q, dp + v

    return motion


def _integrate(rates, start, duration=4.0):
    """Solved when first asked for."""

    @cache
    def solve():
        return solve_ivp(
            rates, (0, duration), start, "DOP853", rtol=1e-13, atol=1e-13, dense_output=True
        ).sol

    return lambda t: solve()(np.asarray(t))


def guide_motion(system: RotatingGuide, r0, w0):
    """r'' = rate^2 r - g sin(rate t)."""
    w, g = float(system.rate), float(system.gravity)
    lift = g / (2 * w**2)
    slope = w0 / w - lift

    def motion(t):
        t = w * np.asarray(t)
        r = r0 * np.cosh(t) + slope * np.sinh(t) + lift * np.sin(t)
        dr = w * (r0 * np.sinh(t) + slope * np.cosh(t) + lift * np.cos(t))
        along, across = _stack(np.cos(t), np.sin(t)), _stack(-np.sin(t), np.cos(t))
        r, dr = r[..., None], dr[..., None]
        return r * along, dr * along + w * r * across

    return motion


def top_motion(system: Top, tilt, precession):
    """Steady precession of a symmetric top: C spin Omega = A Omega^2 cos(tilt) + m g l."""
    m, g = float(system.mass), float(system.gravity)
    arm, inertia = float(system.arm[2]), np.asarray(system.inertia)
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


def skate_motion(system: Skate, turn):
    """From rest while turning at a constant rate: cycloids across the slope.

    Neimark and Fufaev (1972), Dynamics of nonholonomic systems, section II.3."""
    pull = float(system.gravity * jnp.sin(system.slope))

    def motion(t):
        t = np.asarray(t)
        th, speed = turn * t, pull / turn * np.sin(turn * t)
        scale = pull / (2 * turn**2)
        q = _stack(scale * np.sin(th) ** 2, scale * (th - np.sin(2 * th) / 2), th)
        return q, _stack(speed * np.cos(th), speed * np.sin(th), turn)

    return motion


def skate_in_space_motion(system: SkateInSpace, turn):
    flat = skate_motion(system, turn)
    c, s = np.cos(float(system.slope)), np.sin(float(system.slope))

    def raise_(x):
        return _stack(c * x[..., 0], x[..., 1], -s * x[..., 0], x[..., 2])

    return lambda t: tuple(map(raise_, flat(t)))


def slider_crank_motion(system: SupportedSliderCrank, start):
    """In the coordinates z = (s, a), integrated by SciPy to 1e-12: each point mass at p(z) has
    p'' = D z'' + e, and M z'' = sum m D^T (gravity - e) + spring, damper, torque."""
    masses, (l1, l2) = np.asarray(system.masses), np.asarray(system.lengths)
    k, c, torque, g = (
        float(x) for x in (system.stiffness, system.damping, system.torque, system.gravity)
    )

    def rod(a, da):
        """Angle b, b' / a', and b'' without its part from a''."""
        b = -np.arcsin(l1 * np.sin(a) / l2)
        ratio = -l1 * np.cos(a) / (l2 * np.cos(b))
        rest = (l1 * np.sin(a) * da**2 + l2 * np.sin(b) * (ratio * da) ** 2) / (l2 * np.cos(b))
        return b, ratio, rest

    def rates(t, y):
        s, a, ds, da = y
        b, ratio, rest = rod(a, da)
        crank, rod_ = l1 * np.array([-np.sin(a), np.cos(a)]), l2 * np.array([-np.sin(b), np.cos(b)])
        crank_in, rod_in = (
            -l1 * np.array([np.cos(a), np.sin(a)]),
            -l2 * np.array([np.cos(b), np.sin(b)]),
        )
        M, f = np.zeros((2, 2)), np.array([-k * s - c * ds, torque])
        for m, (n_crank, n_rod) in zip(masses, [(0, 0), (1, 0), (1, 0.5), (1, 1)]):
            D = np.stack([[1.0, 0.0], n_crank * crank + n_rod * ratio * rod_], axis=1)
            e = n_crank * crank_in * da**2 + n_rod * (rod_in * (ratio * da) ** 2 + rod_ * rest)
            M += m * D.T @ D
            f += m * D.T @ (np.array([0.0, -g]) - e)
        return [ds, da, *np.linalg.solve(M, f)]

    solution = _integrate(rates, start)

    def motion(t):
        s, a, ds, da = solution(t)
        b, ratio, _ = rod(a, da)
        db = ratio * da
        x = s + l1 * np.cos(a) + l2 * np.cos(b)
        dx = ds - l1 * np.sin(a) * da - l2 * np.sin(b) * db
        return _stack(s, x, a, b), _stack(ds, dx, da, db)

    return motion


# --- the lists ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """A system, its start at t = 0, and its motion t -> (q, v) up to t = 4, exact or to 1e-11."""

    system: mbd.AbstractSystem
    motion: Callable[[Any], tuple[np.ndarray, np.ndarray]]
    control: Any = None
    independent: bool = True  # whether the rows are
    rank: int = 1  # of the rows
    conserved: Callable[[Any, Any], Any] | None = None  # energy (q, v) -> scalar

    @property
    def state(self) -> mbd.State:
        return mbd.State(0.0, *self.motion(0.0))


def _mechanical_energy(system):
    """Of a system whose only force is gravity along the last of its position coordinates."""

    def energy(q, v):
        height = q[1] if q.shape[0] == 2 else q[2]
        return v @ system.mass_matrix(q) @ v / 2 + system.mass * system.gravity * height

    return energy


def _cases():
    pendulum, driven = Pendulum(), DrivenPendulum()
    guided = GuidedMass()
    free = GuidedMass(stiffness=0.0, damping=0.0)
    top, skate, space, crank = Top(), Skate(), SkateInSpace(), SupportedSliderCrank()
    swing = pendulum_motion(pendulum, 2.0)
    return {
        "oscillator": Case(Oscillator(), oscillator_motion(Oscillator(), 0.7, -0.4), rank=0),
        "guided_mass": Case(guided, guided_motion(guided, 0.7, -0.4)),
        "controlled_mass": Case(free, guided_motion(guided, 0.7, -0.4), control=Feedback()),
        "pendulum": Case(pendulum, swing, conserved=_mechanical_energy(pendulum)),
        "redundant_pendulum": Case(
            RedundantPendulum(pendulum),
            swing,
            independent=False,
            conserved=_mechanical_energy(pendulum),
        ),
        "driven_pendulum": Case(driven, driven_motion(driven, 0.8, 0.5)),
        "rotating_guide": Case(RotatingGuide(), guide_motion(RotatingGuide(), 0.4, 1.0)),
        "top": Case(top, top_motion(top, 0.6, 3.0), rank=3, conserved=_mechanical_energy(top)),
        "skate": Case(skate, skate_motion(skate, 1.5)),
        "skate_in_space": Case(
            space,
            skate_in_space_motion(space, 1.5),
            rank=2,
            conserved=_mechanical_energy(space),
        ),
        "slider_crank": Case(crank, slider_crank_motion(crank, [0.1, 0.8, -0.2, 1.5]), rank=2),
    }


CASES: dict[str, Case] = _cases()


SOLVERS: dict[str, mbd.AbstractConstraintSolver] = {
    "automatic": mbd.Automatic(),
    "pseudoinverse": mbd.Pseudoinverse(),
    "proximal": mbd.Proximal(),
    "cholesky": mbd.Cholesky(),
    "kkt": mbd.KKT(),
}
INDEPENDENT_ONLY = {"cholesky", "kkt"}  # these solvers report dependent rows


@dataclasses.dataclass(frozen=True)
class Method:
    """An enforcement and what it needs beside it. `drifts`: whether Phi grows with time."""

    enforcement: mbd.AbstractEnforcement
    projection: mbd.Projection | None = None
    drifts: bool = False

    @property
    def split(self) -> bool:
        return isinstance(self.enforcement, mbd.AbstractSplitEnforcement)

    def simulate(self, system, state, *args, **kwargs) -> mbd.Solution:
        kwargs = {"projection": self.projection, **kwargs}
        return mbd.simulate(system, self.enforcement, state, *args, **kwargs)


METHODS: dict[str, Callable[[mbd.AbstractConstraintSolver], Method]] = {
    "udwadia_kalaba": lambda s: Method(mbd.UdwadiaKalaba(s)),
    "uncorrected": lambda s: Method(mbd.UdwadiaKalaba(s, correct=False), drifts=True),
    "multipliers": lambda s: Method(mbd.LagrangeMultipliers(s), drifts=True),
    "baumgarte": lambda s: Method(mbd.LagrangeMultipliers(s, alpha=8.0, beta=9.0)),
    "impulse": lambda s: Method(mbd.VelocityImpulse(s, mbd.NoStabilisation()), drifts=True),
    "impulse_dead_beat": lambda s: Method(mbd.VelocityImpulse(s, mbd.DeadBeat())),
    "impulse_relaxed": lambda s: Method(mbd.VelocityImpulse(s, mbd.Relaxation(0.05))),
    "dual_penalty": lambda s: Method(mbd.ImplicitPenalty(4e4, 30.0, mbd.Dual(s))),
    "projected": lambda s: Method(mbd.LagrangeMultipliers(s), mbd.Projection(s)),
    "projected_euclidean": lambda s: Method(
        mbd.LagrangeMultipliers(s), mbd.Projection(s, mbd.Euclidean())
    ),
    "projected_impulse": lambda s: Method(
        mbd.VelocityImpulse(s, mbd.NoStabilisation()), mbd.Projection(s)
    ),
    # These do not solve for the rows, so they take no solver.
    "primal_penalty": lambda s: Method(mbd.ImplicitPenalty(4e4, 30.0, mbd.Primal())),
    "explicit_penalty": lambda s: Method(mbd.ExplicitPenalty(400.0, 10.0)),
    "augmented_lagrangian": lambda s: Method(mbd.AugmentedLagrangian(2e3)),
    "augmented_stabilised": lambda s: Method(mbd.AugmentedLagrangian(2e3, omega=9.0, xi=0.9)),
}
WITHOUT_SOLVER = {
    "primal_penalty",
    "explicit_penalty",
    "augmented_lagrangian",
    "augmented_stabilised",
}
SOFT = {"dual_penalty", "primal_penalty", "explicit_penalty"}  # deflect under load
# Methods that differ from others in one option.
VARIANTS = [
    "augmented_stabilised", "impulse_dead_beat", "impulse_relaxed", "projected_euclidean",
    "projected_impulse",
]  # fmt: skip


def slow_unless(quick, items):
    """Cases of a parametrised test, those for which `quick` is false with the slow tests."""

    def marked(item):
        values = item if isinstance(item, tuple) else (item,)
        return item if quick(*values) else pytest.param(*values, marks=pytest.mark.slow)

    return [marked(item) for item in items]


def pairs() -> list[tuple[str, str]]:
    """All (method, solver), once with "automatic" for methods that take no solver."""
    return [
        (method, solver)
        for method in METHODS
        for solver in SOLVERS
        if solver == "automatic" or method not in WITHOUT_SOLVER
    ]


def method(name: str, solver: str = "automatic") -> Method:
    return METHODS[name](SOLVERS[solver])


def allowed(case: str, solver: str) -> bool:
    return CASES[case].independent or solver not in INDEPENDENT_ONLY


def midpoint() -> diffrax.AbstractSolver:
    """Two stages, the cheapest scheme to compile that has more than one."""
    return diffrax.Midpoint(scan_kind="bounded")


# --- derivatives --------------------------------------------------------------------------------


def cast(tree, dtype):
    """All floating-point arrays and numbers of `tree` as `dtype`."""

    def one(x):
        is_number = eqx.is_inexact_array(x) or isinstance(x, float | np.floating | np.ndarray)
        return jnp.asarray(x, dtype) if is_number else x

    return jax.tree.map(one, tree)


def derivatives(fn, tree, step=1e-3, modes=("reverse", "forward")):
    """(value, {mode: gradient}, differences) of the scalar `fn(tree)`, all scaled: derivatives with
    respect to x / max(|x|, 1), as flat vectors, from one compilation.

    The central differences of sixth order have an error of f'''''' step^6 / 140 and a rounding
    error of about 1e-16 |fn| / step.
    """
    flat, unravel = ravel_pytree(tree)
    scale = jnp.maximum(jnp.abs(flat), 1.0)

    def scaled(s):
        return fn(unravel(flat + scale * s))

    weights = np.array([3 / 4, -3 / 20, 1 / 60])
    jacobians = {"reverse": jax.jacrev, "forward": jax.jacfwd}

    def everything(zero):
        shifts = step * np.array([1.0, 2.0, 3.0, -1.0, -2.0, -3.0])
        points = shifts[:, None, None] * np.eye(flat.size) + zero[None, None]
        values = jax.vmap(scaled)(points.reshape(-1, flat.size)).reshape(6, flat.size)
        differences = weights @ (values[:3] - values[3:]) / step
        return scaled(zero), {m: jacobians[m](scaled)(zero) for m in modes}, differences

    return jax.jit(everything)(jnp.zeros_like(flat))


def located(count: int) -> mbd.AtStepStart | mbd.Located:
    """When impacts act: located within a step, up to so many, or at its start for none."""
    return mbd.Located(count) if count else mbd.AtStepStart()


def in_the_way(lowered: Any) -> dict[str, int]:
    """What keeps XLA from compiling the loops of a program whole, with how many there are."""
    text = lowered.compile().as_text()
    # A custom fusion is a product or a sum that XLA leaves to a library.
    found = re.findall(r" (custom-call|scatter|sort|fft)\(|kind=(kCustom)", text)
    entry = text[text.index("\nENTRY") :]
    loops = re.findall(r" (while)\(", entry[: entry.index("\n}")])
    return dict(collections.Counter(["".join(x) for x in found] + loops))


COMPILING = "/jax/core/compile/"
COMPILED = "backend_compile_duration"


@contextlib.contextmanager
def compilation_events():
    """What JAX does within it to compile, names with counts: tracing, lowering, compiling."""
    events = collections.Counter()

    def count(name, *_, **__):
        if name.startswith(COMPILING):
            events[name.removeprefix(COMPILING)] += 1

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
