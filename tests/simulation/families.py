"""One method and one system with a known motion for each family of steps."""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.integrate import solve_ivp

import jaxmbd as mbd


class LiftedSkate(h.SkateInSpace):
    """The skate on a slope that moves up and down, with a thrust along its heading: a row in time,
    and one of velocity."""

    lift: Array = h.parameter((0.2, 3.0))  # amplitude and rate

    def force(self, t, q, v, u):
        return super().force(t, q, v, u) + u * self.heading(q)

    def heading(self, q):
        x, z = self.downhill()
        return jnp.stack([x * jnp.cos(q[3]), jnp.sin(q[3]), z * jnp.cos(q[3]), 0 * q[3]])

    def height(self, t):
        return self.lift[0] * jnp.sin(self.lift[1] * t)

    def constraint(self, q, t):
        x, z = self.downhill()
        return q[0] * z - (q[2] - self.height(t)) * x

    def nonholonomic(self, q, v, t):
        x, z = self.downhill()
        along = v[0] * x + (v[2] - jax.grad(self.height)(t)) * z
        return along * jnp.sin(q[3]) - v[1] * jnp.cos(q[3])


class Thrust(eqx.Module):
    """A control that depends on all it may depend on."""

    size: Array = h.parameter(2.0)
    drag: Array = h.parameter(0.7)

    def __call__(self, t, q, v):
        return self.size * t - self.drag * v[2] - 0.3 * q[3]


def lifted_motion(turn, slope=0.4, gravity=9.81, a=0.2, w=3.0, mass=1.2):
    """From rest on the slope, turning at a constant rate: what the slope takes along acts as
    weight."""

    def rates(t, y):
        pull = (gravity - a * w**2 * np.sin(w * t)) * np.sin(slope)
        along = np.cos(turn * t)
        rise = a * w * np.cos(w * t) - np.sin(slope) * y[0] * along
        thrust = 2.0 * t - 0.7 * rise - 0.3 * turn * t
        return pull * along + thrust / mass, y[0] * along, y[0] * np.sin(turn * t)

    solution = solve_ivp(
        rates, (0, 2), [0, 0, 0], "DOP853", rtol=1e-13, atol=1e-13, dense_output=True
    ).sol

    def motion(t):
        speed, x, y = solution(t)
        c, s, dx = np.cos(slope), np.sin(slope), speed * np.cos(turn * t)
        q = [c * x, y, -s * x + a * np.sin(w * t), turn * t]
        v = [c * dx, speed * np.sin(turn * t), -s * dx + a * w * np.cos(w * t), turn]
        return np.array(q), np.array(v)

    return motion


SKATE = LiftedSkate(), lifted_motion(1.5), Thrust()
TOP = h.CASES["top"].system, h.CASES["top"].motion, None


@dataclasses.dataclass(frozen=True)
class Family:
    """A method on a system with a known motion and a control, of an order for steps of `dt`."""

    problem: tuple[mbd.AbstractSystem, Callable, Any]
    method: mbd.methods.AbstractEnforcement
    order: int
    dt: float

    @property
    def start(self):
        return tuple(map(np.asarray, self.problem[1](0.0)))


RIGID = mbd.Cholesky()  # compiles fast; redundant rows are met by single steps
FAMILIES = {
    "rolled": Family(SKATE, mbd.UdwadiaKalaba(), 4, 1e-2),
    "turning": Family(TOP, mbd.UdwadiaKalaba(RIGID), 4, 5e-3),
    "split": Family(SKATE, mbd.VelocityImpulse(RIGID), 1, 5e-3),
    "independent": Family(SKATE, mbd.IndependentCoordinates(RIGID), 4, 1e-2),
    "generalised alpha": Family(SKATE, mbd.GeneralisedAlpha(0.7, RIGID), 2, 5e-3),
    "variational": Family(SKATE, mbd.Variational(RIGID), 2, 5e-3),
}
STEPS = 64


@eqx.filter_jit
def ends(system, method, control, q, v, dt):
    """The states after half the steps and all, with verdicts, of a batch of starts and steps."""

    def one(q, v, dt):
        sol = mbd.simulate(
            system,
            method,
            mbd.State(0.0, q, v),
            dt=dt,
            num_steps=STEPS,
            control=control,
            saveat=diffrax.SaveAt(steps=STEPS // 2),
            throw=False,
        )
        return sol.q, sol.v, sol.multipliers, sol.result

    return jax.vmap(one)(q, v, dt)
