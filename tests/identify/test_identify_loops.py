"""Closed loops: parameters are found to 1e-6 from motions without noise, and with noise the 95 %
intervals hold the truth as often as they say.

The motions are made by another scheme, at adaptive steps of 1e-10."""

import functools

import diffrax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import six_r_loop
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd.identify import Parameter, Positive, Record

pytestmark = pytest.mark.slow
GRAVITY = 9.81


def bar(mass):
    """Mass matrix of a uniform bar in the positions of its ends, per component."""
    return mass / 6 * jnp.array([[2.0, 1.0], [1.0, 2.0]])


class FourBar(mbd.AbstractSystem):
    """Crank 0-P1, coupler P1-P2, rocker P3-D; a bushing between P2 and P3. q = (P1, P2, P3)."""

    stiffness: Array
    damping: Array

    def mass_matrix(self, q):
        points = jnp.zeros((3, 3)).at[0, 0].add(0.5 / 3).at[2, 2].add(0.7 / 3)
        return jnp.kron(points.at[:2, :2].add(bar(0.9)), jnp.eye(2))

    def force(self, t, q, v, u):
        weight = -GRAVITY * self.mass_matrix(q) @ jnp.tile(jnp.array([0.0, 1.0]), 3)
        torque = 2.0 / 0.3**2 * jnp.stack([-q[1], q[0]])
        push = self.stiffness * (q[4:] - q[2:4]) + self.damping * (v[4:] - v[2:4])
        return weight + jnp.concatenate([torque, push, -push])

    def constraint(self, q, t):
        crank, joint, rocker = q.reshape(3, 2)
        coupler, arm = joint - crank, rocker - jnp.array([1.0, 0.0])
        return jnp.stack([crank @ crank - 0.09, coupler @ coupler - 0.81, arm @ arm - 0.49])


def four_bar(values):
    return FourBar(values["stiffness"], values["damping"])


class SliderCrank(mbd.AbstractSystem):
    """Crank 0-P, rod P-S, S slides along y = 0 against friction. q = (P, S)."""

    dry: Array
    viscous: Array
    flywheel: Array

    def mass_matrix(self, q):
        points = jnp.zeros((2, 2)).at[0, 0].add(1.0 / 3 + self.flywheel / 0.01).at[1, 1].add(0.7)
        return jnp.kron(points + bar(0.8), jnp.eye(2))

    def force(self, t, q, v, u):
        weight = -GRAVITY * self.mass_matrix(q) @ jnp.array([0.0, 1.0, 0.0, 1.0])
        torque = 1.5 / 0.01 * jnp.stack([-q[1], q[0]])
        friction = -self.viscous * v[2] - self.dry * v[2] / jnp.sqrt(v[2] ** 2 + 0.05**2)
        return weight + jnp.concatenate([torque, jnp.stack([friction, jnp.zeros_like(friction)])])

    def constraint(self, q, t):
        pin, slider = q.reshape(2, 2)
        rod = slider - pin
        return jnp.stack([pin @ pin - 0.01, rod @ rod - 0.09, slider[1]])


def slider_crank(values):
    return SliderCrank(values["dry"], values["viscous"], values["flywheel"])


def on_circles(a, b, la, lb):
    """Where two circles meet, above the line of their centres."""
    d = np.linalg.norm(b - a)
    x = (d**2 + la**2 - lb**2) / (2 * d)
    e = (b - a) / d
    return a + x * e + np.sqrt(la**2 - x**2) * np.array([-e[1], e[0]])


def four_bar_start(system):
    crank = 0.3 * np.array([np.cos(0.6), np.sin(0.6)])
    joint = on_circles(crank, np.array([1.0, 0.0]), 0.9, 0.7)
    return mbd.assemble(system, jnp.concatenate([crank, joint, joint]))


def slider_crank_start(system):
    pin = 0.1 * np.array([np.cos(0.5), np.sin(0.5)])
    slider = np.array([pin[0] + np.sqrt(0.09 - pin[1] ** 2), 0.0])
    v = jnp.array([-pin[1] * 6.0, pin[0] * 6.0, 0.0, 0.0])
    fixed = [0, 1]
    return mbd.assemble(system, jnp.concatenate([pin, slider]), v, fixed_velocities=fixed)


# name: (model, start, truth, guess, sensor, duration, noise)
LOOPS = {
    "four-bar with a bushing": (
        four_bar,
        four_bar_start,
        {"stiffness": 2e3, "damping": 12.0},
        {"stiffness": 1.3e3, "damping": 18.0},
        lambda s: s.q,
        1.0,
        1e-3,
    ),
    "slider-crank with friction": (
        slider_crank,
        slider_crank_start,
        {"dry": 3.0, "viscous": 4.0, "flywheel": 0.02},
        {"dry": 2.0, "viscous": 6.0, "flywheel": 0.03},
        lambda s: s.q[jnp.array([0, 2])],
        0.6,
        3e-4,
    ),
}


@functools.cache
def measured(name):
    """The record of a loop without noise."""
    model, start, truth, _, sensor, duration, noise = LOOPS[name]
    system = model({key: jnp.array(x) for key, x in truth.items()})
    times = np.linspace(0.0, duration, 61)
    sol = mbd.simulate(
        system,
        mbd.LagrangeMultipliers(solver=mbd.Cholesky()),
        start(system),
        t1=duration,
        dt=1e-3,
        scheme=diffrax.Tsit5(),
        stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-12),
        projection=mbd.Projection(),
        saveat=diffrax.SaveAt(ts=times),
    )
    readings = [
        sensor(identify.Sample(system, None, t, q, v)) for t, q, v in zip(sol.t, sol.q, sol.v)
    ]
    return Record(times, np.stack(readings), start(system), weights=np.full(61, 1 / noise))


def fitted(name, record, guess, step=1e-3):
    model, *_, sensor, _, _ = LOOPS[name]
    return identify.fit(
        model,
        {key: Parameter(x, Positive()) for key, x in guess.items()},
        record,
        sensor,
        dt=step,
        enforcement=mbd.UdwadiaKalaba(solver=mbd.Cholesky()),
        progress=False,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_recovered(name):
    """Without noise to 1e-6."""
    _, _, truth, guess, *_ = LOOPS[name]
    found = fitted(name, measured(name), guess)
    assert found.converged
    np.testing.assert_allclose(found.entries, list(truth.values()), rtol=1e-6)


def test_covered():
    """With noise the intervals of 200 repetitions, done in batches, hold the truth in 90 to 99 %:
    binomial, with less than one in a thousand beyond. Motions are made anew with the same steps, so
    that these may be larger."""
    name = "slider-crank with friction"
    exact, truth = measured(name), LOOPS[name][2]
    rng = np.random.default_rng(0)
    noisy = exact.measured + rng.normal(size=exact.measured.shape) / exact.weights
    record = Record(exact.time, noisy, exact.start, weights=exact.weights)
    found = fitted(name, record, truth, step=5e-3)
    many = identify.bootstrap(found, jr.key(0), 200)
    assert many.converged.all()
    coverage = many.coverage()
    assert np.all((coverage >= 0.90) & (coverage <= 0.99)), coverage
    np.testing.assert_allclose(many.entries.std(axis=0), found.sigma, rtol=0.2)


def ring(values):
    """The Bricard ring with another length of all its links, whose masses stay where they are."""
    system = six_r_loop.six_r_loop()
    size = values["length"] / six_r_loop.LENGTH
    lengths = ("pose.position", "frame_a.position", "frame_b.position", "twist.linear")
    return identify.Leaves(system)(
        {path: size * x for path, x in identify.leaves(system).items() if path.endswith(lengths)}
    )


def test_geometry_of_a_ring():
    """The length of the links of a closed ring of six hinges, one of whose rows is redundant, from
    the path of the middle of link 3: by the exact motion, in which only the start depends on the
    length."""
    times = np.linspace(0.0, 0.4, 21)
    theta, phi = six_r_loop.exact_motion(times)
    poses = [six_r_loop.links(jnp.array(angles))[2] for angles in zip(theta, phi)]
    path = np.stack([pose.position for pose in poses])
    found = identify.fit(
        ring,
        {"length": Parameter(0.3, Positive())},
        Record(times, path, lambda system: system.state()),
        identify.BodyPoint("link 3"),
        dt=4e-3,
        progress=False,
        max_steps=20,
    )
    assert found.values["length"] == pytest.approx(0.25, rel=1e-6)
