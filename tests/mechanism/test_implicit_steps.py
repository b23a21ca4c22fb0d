"""Orders of the methods with an implicit step of their own on published motions: positions,
velocities and multipliers. Their derivatives on mechanisms in space and in a plane."""

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
    """The motions with so many steps to t1, and twice as many."""
    for refined in (1, 2):
        n = refined * steps
        yield mbd.simulate(system, method, state, dt=t1 / n, num_steps=n)


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
    for sol in runs(mechanism, METHODS[method], mechanism.state(), point["t"], 100):
        lam = mbd.reports.reactions(mechanism, point["t"], sol.q[-1], sol.multipliers[-1], "ball")
        found = sol.q[-1, :3], sol.v[-1, :3], lam.force
        expected = point["x_com"], point["v_com"], point["reaction_on_body"]
        errors.append([np.linalg.norm(x - np.array(y)) for x, y in zip(found, expected)])
        assert sol.phi_norm[-1] < 1e-12 and sol.phidot_norm[-1] < 1e-11
    check_second_order(*errors, scale=[1.0, 4.5, 450.0])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_squeezer(shared, method):
    data = reference(shared, "andrews_squeezer")
    point = next(p for p in data["reference"] if abs(p["t"] - 0.01) < 1e-9)
    system, errors = Squeezer(data["parameters"]), []
    state = mbd.State(0.0, jnp.array(data["initial"]["q"]), jnp.array(data["initial"]["v"]))
    for sol in runs(system, METHODS[method], state, point["t"], 1000):
        found = sol.q[-1], sol.v[-1], -sol.multipliers[-1]  # M a = f - G^T lambda there
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


def ends_of(mechanism, method, steps):
    """A number from the end of a motion over 0.24 s, as a function of the factors of gravity, of
    the velocities at the start and of the time."""
    start = mechanism.state()
    weights = np.cos(1.0 + np.arange(start.q.size + start.v.size))

    def end(x):
        scaled = eqx.tree_at(lambda m: m.gravity, mechanism, mechanism.gravity * x[0])
        state, dt = mbd.State(0.0, start.q, start.v * x[1]), 0.24 / steps * x[2]
        sol = mbd.simulate(scaled, method, state, dt=dt, num_steps=steps, throw=False)
        return jnp.concatenate([sol.q[-1], sol.v[-1]]) @ weights

    return end


def gradients_of(mechanism, method, x):
    """Value and gradients as one array, with the gradients scaled as the differences are."""
    end = ends_of(mechanism, method, 24)
    value, gradients, differences = h.derivatives(end, x)
    for gradient in gradients.values():
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)
    return np.append(gradients["forward"], value)


def closer_gradients_of(mechanism, method, steps, x):
    end, scale = ends_of(mechanism, method, steps), np.maximum(np.abs(x), 1.0)
    found = jax.jit(lambda x: (jax.jacfwd(end)(x), end(x)))(x)
    return np.append(found[0] * scale, found[1])


X = np.array([1.1, 0.9, 1.05])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_derivatives_in_a_plane(method):
    """Of a four-bar. In both modes they are the differences. They tend to those of `RK4` with the
    square of the step, as the value does."""
    mechanism, method = four_bar(mbd.Plane()), METHODS[method]
    coarse = gradients_of(mechanism, method, X)
    fine = closer_gradients_of(mechanism, method, 48, X)
    exact = closer_gradients_of(mechanism, mbd.UdwadiaKalaba(), 96, X)
    errors = np.abs(coarse - exact), np.abs(fine - exact)
    np.testing.assert_allclose(np.log2(errors[0] / errors[1]), 2, atol=0.3)
    assert np.max(errors[1]) < 0.02 * np.max(np.abs(exact))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_derivatives_in_space(method):
    """Of a body on a ball joint, with quaternions: the differences, and nearly those of `RK4`."""
    mechanism = pendulum()
    found = gradients_of(mechanism, METHODS[method], X)
    exact = closer_gradients_of(mechanism, mbd.UdwadiaKalaba(), 48, X)
    np.testing.assert_allclose(found, exact, atol=0.02 * np.max(np.abs(exact)))
