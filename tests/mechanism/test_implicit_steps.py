"""Orders of the methods with an implicit step of their own on published motions: positions,
velocities and multipliers. Their derivatives on mechanisms in space and in a plane."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanism_runs import reference
from test_reactions import START, heavy_top
from test_squeezer import Squeezer

import jaxmbd as mbd

METHODS = {"generalised_alpha": mbd.GeneralisedAlpha(0.8), "variational": mbd.Variational()}


def runs(system, method, state, t1, steps):
    """The motions at t1, reached by so many steps and by twice as many, from one program. The one
    with large steps goes on to 2 t1."""

    @jax.jit
    @jax.vmap
    def run(dt):
        saveat = diffrax.SaveAt(steps=steps)
        return mbd.simulate(system, method, state, dt=dt, num_steps=2 * steps, saveat=saveat)

    sol = run(t1 / steps / jnp.array([1.0, 2.0]))
    assert np.all(sol.result == mbd.RESULTS.successful)
    assert np.max(sol.phi_norm) < 1e-12 and np.max(sol.phidot_norm) < 1e-11
    return [(sol.q[i, i], sol.v[i, i], sol.multipliers[i, i]) for i in (0, 1)]


def check_second_order(coarse, fine, scale):
    """Of errors of several quantities, relative to their scales."""
    coarse, fine = np.asarray(coarse) / scale, np.asarray(fine) / scale
    np.testing.assert_allclose(np.log2(coarse / fine), 2, atol=0.25)
    assert np.max(fine) < 5e-2


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_heavy_top(shared, method):
    """A top that turns by 7.5 rad in 0.05 s, its body frame in the centre of mass."""
    data = reference(shared, "heavy_top")
    point = data["reference"][0]
    start = {**START, **data["initial"]}
    mechanism, errors = heavy_top(start), []
    for q, v, lam in runs(mechanism, METHODS[method], mechanism.state(), point["t"], 100):
        reaction = mbd.reports.reactions(mechanism, point["t"], q, lam, "ball")
        found = q[:3], v[:3], reaction.force
        expected = point["x_com"], point["v_com"], point["reaction_on_body"]
        errors.append([np.linalg.norm(x - np.array(y)) for x, y in zip(found, expected)])
    check_second_order(*errors, scale=[1.0, 4.5, 450.0])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_squeezer(shared, method):
    data = reference(shared, "andrews_squeezer")
    point = next(p for p in data["reference"] if abs(p["t"] - 0.01) < 1e-9)
    system, errors = Squeezer(data["parameters"]), []
    state = mbd.State(0.0, jnp.array(data["initial"]["q"]), jnp.array(data["initial"]["v"]))
    for q, v, lam in runs(system, METHODS[method], state, point["t"], 1000):
        found = q, v, -lam  # M a = f - G^T lambda there
        expected = point["q"], point["v"], point["lambda"]
        errors.append([np.linalg.norm(x - np.array(y)) for x, y in zip(found, expected)])
    scale = [np.linalg.norm(point[name]) for name in ("q", "v", "lambda")]
    check_second_order(*errors, scale=scale)


def four_bar(plane=None):
    """A four-bar whose crank turns at 4 rad/s. The frame of the coupler lies at its end, so that
    its centre of mass is elsewhere."""
    a, d, b = np.zeros(2), np.array([1.0, 0.0]), 0.3 * np.array([np.cos(1.0), np.sin(1.0)])
    turned = lambda r: np.array([-r[1], r[0]])  # noqa: E731
    r = np.linalg.norm(d - b)
    x, e = (0.9**2 - 0.7**2 + r**2) / (2 * r), (d - b) / r
    c = b + x * e + np.sqrt(0.9**2 - x**2) * turned(e)
    vb = 4.0 * turned(b)
    rates = np.linalg.solve(np.stack([turned(c - b), -turned(c - d)], axis=1), -vb)
    bodies = []
    for name, begin, end, v, rate, share in (
        ("crank", a, b, 0 * a, 4.0, 0.5),
        ("coupler", b, c, vb, rates[0], 0.0),
        ("rocker", d, c, 0 * a, rates[1], 0.5),
    ):
        bar = np.append(end - begin, 0.0)
        length = np.linalg.norm(bar)
        tensor = length / 12 * (length**2 * np.eye(3) - np.outer(bar, bar)) + 1e-3 * np.eye(3)
        inertia = mbd.Inertia(length, tensor).moved((0.5 - share) * bar)
        at, velocity = begin + share * bar[:2], v + rate * share * turned(bar)
        body = mbd.Body(
            name,
            inertia,
            position=np.append(at, 0.0),
            velocity=np.append(velocity, 0.0),
            angular_velocity=[0.0, 0.0, rate],
        )
        bodies.append(body)
    ends = ["ground", *bodies, "ground"]
    joints = [
        mbd.Revolute(f"j{i}", ends[i], ends[i + 1], point=np.append(p, 0.0), axis=[0.0, 0.0, 1.0])
        for i, p in enumerate((a, b, c, d))
    ]
    return mbd.Mechanism(bodies, joints, gravity=[0.0, -9.81, 0.0], plane=plane)


def pendulum():
    """A body on a ball joint that swings and spins."""
    inertia = mbd.Inertia(1.5, [0.02, 0.05, 0.04], center=[0.1, 0.02, -0.03])
    omega, arm = np.array([1.0, 2.0, -3.0]), np.array([0.3, 0.1, 0.2])
    body = mbd.Body("body", inertia, velocity=np.cross(omega, arm), angular_velocity=omega)
    return mbd.Mechanism([body], [mbd.Spherical("ball", "ground", body, point=-arm)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, mechanism",
    [("variational", four_bar(mbd.Plane())), ("generalised_alpha", pendulum())],
    ids=["plane", "space"],
)
def test_derivatives(method, mechanism):
    """Of a number from the end of a motion over 0.24 s, by the factors of gravity, of the
    velocities at the start and of the time: in both modes the differences."""
    start = mechanism.state()
    weights = np.cos(1.0 + np.arange(start.q.size + start.v.size))

    def end(x):
        scaled = eqx.tree_at(lambda m: m.gravity, mechanism, mechanism.gravity * x[0])
        state, dt = mbd.State(0.0, start.q, start.v * x[1]), 0.01 * x[2]
        sol = mbd.simulate(scaled, METHODS[method], state, dt=dt, num_steps=24, throw=False)
        return jnp.concatenate([sol.q[-1], sol.v[-1]]) @ weights

    _, gradients, differences = h.derivatives(end, np.array([1.1, 0.9, 1.05]))
    for gradient in gradients.values():
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)
