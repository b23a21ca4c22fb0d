"""The inputs of a motion: those that made it, the least ones, and the closest motion."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import CartPole, Springs, four_bar, gravity
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import inverse_dynamics


class Lever(mbd.AbstractSystem):
    """A point mass on a circle of radius r, stated twice; u are forces along x and y."""

    mass: Array
    r: Array

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2)

    def force(self, t, q, v, u):
        return u + self.mass * jnp.array([0.0, -gravity])

    def constraint(self, q, t):
        row = q @ q - self.r**2
        return jnp.stack([row, 3 * row])


def test_least_force_on_redundant_rows():
    """At an angle a only the tangential force matters: u = (m r a'' + m g cos a) tangent."""
    m, r, a, rate, rise = 0.8, 1.5, 0.7, 2.0, 3.0
    radial, tangent = np.array([np.cos(a), np.sin(a)]), np.array([-np.sin(a), np.cos(a)])
    state = mbd.State(0.0, r * radial, r * rate * tangent)
    dv = r * rise * tangent - r * rate**2 * radial
    system = Lever(jnp.array(m), jnp.array(r))

    def force(m, rise):
        dv = r * rise * tangent - r * rate**2 * radial
        return inverse_dynamics(Lever(m, r), state, dv, jnp.zeros(2)).u

    found = inverse_dynamics(system, state, dv, jnp.zeros(2))
    size = m * (r * rise + gravity * np.cos(a))
    np.testing.assert_allclose(found.u, size * tangent, rtol=1e-10)
    np.testing.assert_allclose(found.missed, 0.0, atol=1e-10)
    lam = found.multipliers[0] + 3 * found.multipliers[1]
    reaction = -m * r * rate**2 + m * gravity * np.sin(a)
    np.testing.assert_allclose(2 * r * lam, reaction, rtol=1e-10)
    for jac in (jax.jacfwd, jax.jacrev):
        by_m, by_rise = jax.jit(jac(force, argnums=(0, 1)))(m, rise)
        np.testing.assert_allclose(by_m, size / m * tangent, rtol=1e-8)
        np.testing.assert_allclose(by_rise, m * r * tangent, rtol=1e-8)


def test_weights_share_the_load():
    """Three inputs push one mass: shares are as 1 / w."""

    class Shared(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return 2.0 * jnp.eye(1)

        def force(self, t, q, v, u):
            return u["left"] + u["right"].sum(keepdims=True)

    rest, u = mbd.State(0.0, [0.0], [0.0]), {"left": jnp.zeros(1), "right": jnp.zeros(2)}
    found = inverse_dynamics(Shared(), rest, [5.5], u, weights=jnp.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(found.u["left"], [6.0], rtol=1e-12)
    np.testing.assert_allclose(found.u["right"], [3.0, 2.0], rtol=1e-12)


def test_underactuated():
    """The push on a cart cannot hold a pole that leans: it makes the acceleration that is closest
    in the norm of M, and says what is missing."""
    system = CartPole(*jnp.array([1.2, 0.3, 0.7]))
    state = mbd.State(0.0, [0.0, 0.4], [0.0, 0.0])
    found = inverse_dynamics(system, state, [0.0, 0.0], jnp.zeros(1))
    M = np.asarray(system.mass_matrix(state.q))
    assert np.abs(found.missed).max() > 1.0
    # The rest is orthogonal to what u can do: M^-1 (1, 0).
    np.testing.assert_allclose(found.missed[0], 0.0, atol=1e-12)
    made = np.linalg.solve(M, [found.u[0], 0.3 * 0.7 * gravity * np.sin(0.4)])
    np.testing.assert_allclose(found.missed, -made, atol=1e-12)


@pytest.mark.slow
def test_motion_of_a_four_bar_with_one_motor():
    """Forwards with a torque and inverse again: 1e-9, along a motion; without a motor there too
    many rows are no obstacle."""
    mechanism = four_bar()
    method = mbd.UdwadiaKalaba()

    def torque(t, q, v):
        del q, v
        return jnp.sin(3 * t)[None] * 4

    sol = mbd.simulate(
        mechanism,
        method,
        mechanism.state(),
        t1=1.0,
        dt=0.01,
        control=torque,
        saveat=diffrax.SaveAt(steps=True),
        projection=mbd.Projection(),
    )

    def back(t, q, v):
        u = torque(t, q, v)
        at = mbd.evaluate(mechanism, lambda *_: u, t, q, v)
        operator = mbd.solvers.ConstraintOperator(mbd.Pseudoinverse(), at.M, at.rows.J)
        dv, _ = operator.solve(at.f, at.rows.gamma)
        found = inverse_dynamics(mechanism, mbd.State(t, q, v), dv, jnp.zeros(1))
        return found.u - u, found.missed, dv

    found = jax.jit(jax.vmap(back))(sol.t, sol.q, sol.v)
    wrong, missed, dv = (float(jnp.abs(x).max()) for x in found)
    assert wrong < 1e-9 * 4 and missed < 1e-9 * dv


def test_refused():
    system, rest = Springs(*(jnp.eye(1),) * 3), mbd.State(0.0, [0.0], [0.0])
    with pytest.raises(ValueError, match="`dv` must have shape"):
        inverse_dynamics(system, rest, [0.0, 0.0], jnp.zeros(1))
    with pytest.raises(ValueError, match="`weights` must be a scalar or have one value"):
        inverse_dynamics(system, rest, [0.0], jnp.zeros(1), weights=jnp.ones(2))
