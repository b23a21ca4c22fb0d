"""Generalised forces in joint coordinates against the derivatives of energies and the power."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reported import BOX, X, Y, Z, four_bar

import jaxmbd as mbd
from jaxmbd.analysis import static_inputs
from jaxmbd.reports import generalised_forces, gravitational_energies, stored_energies


def arm():
    """A universal and a prismatic joint about oblique axes, with springs and a driven hinge."""
    upper = mbd.Body("upper", BOX.moved([0.1, 0.2, 0.0]), position=[0.3, 0.0, 0.1])
    lower = mbd.Body("lower", BOX, position=[0.5, 0.4, 0.0])
    joints = [
        mbd.Universal("shoulder", "ground", upper, point=np.zeros(3), axes=[X, Y]),
        mbd.Prismatic("slide", upper, lower, point=[0.4, 0.2, 0.0], axis=[0.6, 0.0, 0.8]),
    ]
    forces = [
        mbd.Spring(
            "spring", "ground", lower, points=[[0.0, 1.0, 0.0], [0.6, 0.4, 0.1]],
            stiffness=40.0, damping=1.5, rest_length=0.3,
        ),
        mbd.LinearActuator("push", upper, lower, point=[0.4, 0.2, 0.0], axis=[0.6, 0.0, 0.8]),
    ]  # fmt: skip
    return mbd.Mechanism([upper, lower], joints, forces)


def test_open_chain():
    """Q = -dV/dx of gravity and springs, for joints of several coordinates. A force along the slide
    is its own generalised force. The power of all is Q . x'."""
    mechanism, at = arm(), {"shoulder": np.array([0.4, -0.7]), "slide": np.array([0.2])}
    rates = {"shoulder": np.array([1.0, 2.0]), "slide": np.array([-0.5])}
    u = jnp.array([7.0])

    @jax.jit
    def slopes(at):
        def energy(at, of):
            q = mbd.place_bodies(mechanism, at).q
            return sum(of(mechanism, q).values())

        return [jax.jacfwd(energy)(at, of) for of in (gravitational_energies, stored_energies)]

    still = generalised_forces(mechanism, mbd.place_bodies(mechanism, at), u=u)
    gravity, stored = slopes(at)
    for name in at:
        np.testing.assert_allclose(still.gravity[name], -gravity[name], rtol=1e-10)
        np.testing.assert_allclose(still.elements["spring"][name], -stored[name], rtol=1e-10)
        parts = still.gravity[name] + sum(own[name] for own in still.elements.values())
        np.testing.assert_allclose(still.total[name], parts, rtol=1e-12)
    np.testing.assert_allclose(still.elements["push"]["shoulder"], 0.0, atol=1e-12)
    np.testing.assert_allclose(still.elements["push"]["slide"], 7.0, rtol=1e-12)

    state = mbd.place_bodies(mechanism, at, rates)
    moving = generalised_forces(mechanism, state, u=u)
    for name, given in mbd.reports.powers(mechanism, state.q, state.v, u=u).items():
        power = sum(moving.elements[name][joint] @ rates[joint] for joint in rates)
        np.testing.assert_allclose(power, given.power, rtol=1e-10)
    B = np.asarray(moving.partial_velocities)
    np.testing.assert_allclose(B @ np.concatenate(list(rates.values())), state.v, atol=1e-12)


def test_loop():
    """The coordinate of the crank carries the weights of all bars, and a wrench on the rocker:
    Q = -dV/dx along closed poses, and Q x' is the power. The torque -Q at the crank holds it."""
    bars = four_bar(coupler=None)
    drive = mbd.Motor("drive", "ground", bars.body("crank"), point=np.zeros(3), axis=Z)
    pull = mbd.Spring(
        "pull", "ground", bars.body("rocker"), points=[[2.0, 0.5, 0.0], [1.1, 0.6, 0.0]],
        stiffness=60.0, rest_length=0.2,
    )  # fmt: skip
    options = dict(gravity=np.array([0.0, -9.81, 0.0]))
    mechanism = mbd.Mechanism(bars.bodies, bars.joints, [drive, pull], **options)
    push = {"rocker": mbd.Wrench(np.array([3.0, -2.0, 1.0]), np.array([0.5, 0.2, 4.0]))}

    def closed(angle, rate=0.0):
        return mbd.close_joints(
            mechanism, mbd.place_bodies(mechanism, {"A": angle}, rates={"A": rate})
        )

    def energy(angle):
        q = closed(angle).q
        parts = gravitational_energies(mechanism, q), stored_energies(mechanism, q)
        return sum(float(x) for part in parts for x in part.values())

    u, state = jnp.zeros(1), closed(0.2, 1.7)
    found = generalised_forces(mechanism, state, ["A"], u=u, wrenches=push)
    slope = (energy(0.2 + 1e-4) - energy(0.2 - 1e-4)) / 2e-4
    Q = found.gravity["A"] + found.elements["pull"]["A"]
    np.testing.assert_allclose(Q, -slope, rtol=1e-6)
    twist, wrench = mechanism.twist(state.v, "rocker"), push["rocker"]
    power = wrench.force @ twist.linear + wrench.torque @ twist.angular
    np.testing.assert_allclose(found.given["rocker"]["A"] * 1.7, power, rtol=1e-9)
    np.testing.assert_allclose(found.total["A"], Q + found.given["rocker"]["A"], rtol=1e-12)
    hold = static_inputs(mechanism, closed(0.2), u).u
    np.testing.assert_allclose(hold, -Q, rtol=1e-8)
    assert '"pull": ' in str(found) and 'wrench on "rocker"' in str(found)

    with pytest.raises(RuntimeError, match="do not describe the motion"):
        generalised_forces(mechanism, state, u=u)
    failed = generalised_forces(mechanism, state, [], u=u, throw=False)
    assert failed.result == mbd.RESULTS.joints_not_independent
    batch = mbd.State(jnp.zeros(2), jnp.stack([state.q] * 2), jnp.stack([state.v] * 2))
    several = generalised_forces(mechanism, batch, ["D"], u=u, wrenches=push)
    rate = mbd.reports.joint_rates(mechanism, state.q, state.v, "D")
    np.testing.assert_allclose(
        several.total["D"] * rate[None], [found.total["A"] * 1.7] * 2, rtol=1e-9
    )
    with pytest.raises(ValueError, match="nobody"):
        generalised_forces(mechanism, state, ["A"], wrenches={"nobody": push["rocker"]})
