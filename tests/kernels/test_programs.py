"""Whole simulations and their gradients against XLA."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import both, needs_compiler

import jaxmbd as mbd

pytestmark = [pytest.mark.slow, needs_compiler]

BOX = mbd.Inertia.box(size=[0.3, 0.05, 0.05], mass=1.0)


def chain():
    """Three bars on hinges whose axes alternate."""
    bodies = [mbd.Body(f"{k}", BOX, position=[0.15 + 0.3 * k, 0.0, 0.0]) for k in range(3)]
    axes = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    joints = [
        mbd.Revolute(f"{k}", a, b, point=[0.3 * k, 0.0, 0.0], axis=axes[k % 2])
        for k, (a, b) in enumerate(zip(["ground", *bodies], bodies, strict=False))
    ]
    return mbd.Mechanism(bodies, joints)


def loop():
    """Four hinges of which one is redundant: a parallelogram in the plane."""
    turned = np.array([np.cos(np.pi / 4), 0.0, -np.sin(np.pi / 4), 0.0])
    places = [[0.0, 0.0, 0.15], [0.15, 0.0, 0.3], [0.3, 0.0, 0.15]]
    turns = [turned, np.eye(4)[0], turned]
    bodies = [
        mbd.Body(f"{k}", BOX, position=p, orientation=r)
        for k, (p, r) in enumerate(zip(places, turns, strict=True))
    ]
    points = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.3], [0.3, 0.0, 0.3], [0.3, 0.0, 0.0]]
    ends = zip(["ground", *bodies], [*bodies, "ground"], points, strict=True)
    joints = [
        mbd.Revolute(f"{k}", a, b, point=p, axis=[0.0, 1.0, 0.0])
        for k, (a, b, p) in enumerate(ends)
    ]
    return mbd.Mechanism(bodies, joints)


def sliding():
    shape, inertia = [0.2, 0.2, 0.1], mbd.Inertia.box(size=[0.2, 0.2, 0.1], mass=1.0)
    body = mbd.Body("box", inertia, position=[0, 0, 0.05], velocity=[1.0, 0, 0])
    pair = mbd.Contact("floor", "ground", body, mbd.HalfSpace(), mbd.Box(size=shape), friction=0.4)
    return mbd.Mechanism([body], contacts=[pair])


class Pendulum(mbd.AbstractSystem):
    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81], q.dtype) + u

    def constraint(self, q, t):
        return q @ q - 1


class Ball(mbd.AbstractSystem):
    """It bounces between a floor and a wall."""

    contact_law = mbd.ContactLaw(restitution=0.6)

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81], q.dtype)

    def gap(self, q, t):
        return jnp.stack([q[1], 1 - q[0]])


def simulated(mechanism, method, dt, steps):
    start = mechanism.state()

    def end(x):
        gravity = mechanism.gravity * x[0] + jnp.array([x[1], 0.0, 0.0])
        moved = eqx.tree_at(lambda m: m.gravity, mechanism, gravity)
        state = mbd.State(0.0, start.q, start.v)
        sol = mbd.simulate(moved, method, state, dt=dt, num_steps=steps, throw=False)
        return jnp.sum(sol.q[-1] ** 2)

    return end


def stepped(x):
    """A pendulum under feedback and noise, by `Stepper`."""
    stepper = mbd.Stepper(Pendulum(), mbd.UdwadiaKalaba())
    start = stepper.init(mbd.State(0.0, jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]) * x[1]))

    def step(state, key):
        u = -0.5 * x[0] * state.v + 0.1 * jax.random.normal(key, (2,))
        return stepper.step(state, 0.01, u), state.q

    end, path = jax.lax.scan(step, start, jax.random.split(jax.random.key(0), 60))
    return end.q[1] + jnp.sum(path[::7] ** 2)


def adaptive(x):
    state = mbd.State(0.0, jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]) * x[1])
    sol = mbd.simulate(
        Pendulum(),
        mbd.UdwadiaKalaba(),
        state,
        t1=0.5,
        dt=0.01,
        control=lambda t, q, v: -0.5 * x[0] * v,
        stepsize_controller=diffrax.PIDController(rtol=1e-7, atol=1e-9),
        throw=False,
    )
    return sol.q[-1, 1]


def bouncing(x):
    state = mbd.State(0.0, jnp.array([0.5, 0.3]), jnp.array([1.0, 0.0]) * (1 + x[1]))
    method = mbd.ContactImpulse(impacts=mbd.Located(2))
    sol = mbd.simulate(Ball(), method, state, dt=0.01, num_steps=80, throw=False)
    return jnp.sum(sol.q[-1] ** 2) * x[0]


PROGRAMS = {
    "chain": simulated(chain(), mbd.VelocityImpulse(), 2e-3, 100),
    "loop": simulated(loop(), mbd.VelocityImpulse(), 1e-3, 100),
    "box": simulated(sliding(), mbd.ContactImpulse(), 1e-3, 60),
    "stepper": stepped,
    "adaptive": adaptive,
    "bouncing": bouncing,
}
STARTS = np.array([[1.0, 0.0], [0.97, 0.1], [1.05, 0.2]])


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name, lanes):
    found, known = both(jax.value_and_grad(PROGRAMS[name]), STARTS, lanes=lanes, flags=("-O0",))
    np.testing.assert_allclose(found[0], known[0], rtol=1e-12)
    scale = np.abs(known[1]).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found[1] / scale, known[1] / scale, atol=1e-9)
    assert np.all(scale > 0)
