"""Driven mechanisms against closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import dead_point, kinematics


class SliderCrank(mbd.AbstractSystem):
    """q = (angle of the crank, angle of the rod, place of the slider)."""

    crank: Array
    rod: Array

    def mass_matrix(self, q):
        return jnp.eye(3)

    def force(self, t, q, v, u):
        return jnp.zeros(3)

    def constraint(self, q, t):
        across = self.crank * jnp.sin(q[0]) - self.rod * jnp.sin(q[1])
        along = self.crank * jnp.cos(q[0]) + self.rod * jnp.cos(q[1]) - q[2]
        return jnp.stack([across, along, along + 2 * across])


def crank_angle(q):
    return q[0]


def slider(angle, crank=0.3, rod=0.8):
    return crank * jnp.cos(angle) + jnp.sqrt(rod**2 - (crank * jnp.sin(angle)) ** 2)


def test_slider_crank():
    """x, x' and x'' of the slider over two turns, with a redundant row, at given rates of the
    crank; and the derivatives by the lengths, in both modes."""
    angles = np.linspace(0.2, 0.2 + 4 * np.pi, 40)
    rates, bends = 2.0 + np.sin(angles), np.cos(angles)
    state = mbd.State(0.0, [0.2, 0.1, 1.1], np.zeros(3))

    @jax.jit
    def moved(lengths):
        system = SliderCrank(*lengths)
        return kinematics(
            system, state, crank_angle, angles, rate=rates, acceleration=bends, throw=False
        )

    lengths = np.array([0.3, 0.8])
    found = moved(lengths)
    assert np.all(found.ok) and np.all(found.orientation == 1)
    first = jax.jit(jax.vmap(jax.grad(slider)))(angles)
    second = jax.jit(jax.vmap(jax.grad(jax.grad(slider))))(angles)
    np.testing.assert_allclose(found.q[:, 0], angles, atol=1e-10)
    np.testing.assert_allclose(found.q[:, 2], slider(angles), atol=1e-10)
    np.testing.assert_allclose(found.v[:, 2], first * rates, atol=1e-9)
    np.testing.assert_allclose(found.a[:, 2], second * rates**2 + first * bends, atol=1e-9)

    def of_lengths(lengths):
        return slider(angles[7], *lengths)

    def sample(lengths):
        found = moved(lengths)
        return jnp.stack([found.q[7, 2], found.v[7, 2]])

    expected = jax.jit(jax.grad(of_lengths))(lengths)
    by_lengths = lambda a: jax.grad(lambda lengths: slider(a, *lengths))(lengths)  # noqa: E731
    expected = np.stack([expected, rates[7] * jax.jit(jax.jacfwd(by_lengths))(angles[7])])
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(derivative(sample))(lengths), expected, atol=1e-8)


CRANK, COUPLER, ROCKER, GROUND = 0.3, 0.9, 0.6, 1.0


class FourBar(mbd.AbstractSystem):
    """Angles of crank, coupler and rocker to the ground."""

    def mass_matrix(self, q):
        return jnp.eye(3)

    def force(self, t, q, v, u):
        return jnp.zeros(3)

    def constraint(self, q, t):
        x = CRANK * jnp.cos(q[0]) + COUPLER * jnp.cos(q[1]) - ROCKER * jnp.cos(q[2]) - GROUND
        y = CRANK * jnp.sin(q[0]) + COUPLER * jnp.sin(q[1]) - ROCKER * jnp.sin(q[2])
        return jnp.stack([x, y])


def rocker_angles(angle):
    """Both angles of the rocker, solutions of Freudenstein's equation."""
    x, y = GROUND - CRANK * np.cos(angle), -CRANK * np.sin(angle)
    diagonal, direction = np.hypot(x, y), np.arctan2(y, x)
    inner = (ROCKER**2 + diagonal**2 - COUPLER**2) / (2 * ROCKER * diagonal)
    return np.pi + direction + np.array([1, -1]) * np.arccos(inner)


@functools.cache
def posed():
    return mbd.assemble(FourBar(), [0.5, 0.4, 1.5], fixed=[0])


def on_one_turn(angle):
    return np.mod(angle + np.pi, 2 * np.pi) - np.pi


def test_four_bar_and_its_dead_points():
    """A crank-rocker, driven by the crank against Freudenstein's equation; driven by the rocker it
    stops where crank and coupler are in line."""
    angles = np.linspace(0.5, 5.5, 30)
    found = kinematics(FourBar(), posed(), crank_angle, angles, throw=False)
    assert np.all(found.ok)
    candidates = np.stack([rocker_angles(angle) for angle in angles])
    apart = np.abs(on_one_turn(candidates - np.asarray(found.q[:, 2:])))
    assert np.max(np.min(apart, axis=1)) < 1e-9
    coupler, out = np.asarray(found.q[:, 1]), np.asarray(found.q[:, 2])
    ratio = CRANK * np.sin(angles - coupler) / (ROCKER * np.sin(out - coupler))
    np.testing.assert_allclose(found.v[:, 2], ratio, atol=1e-9)

    def rocker(q):
        return q[2]

    # pi - angle at the ground pivot of the rocker, by the law of cosines.
    def stretched(reach):
        cosine = (GROUND**2 + ROCKER**2 - reach**2) / (2 * GROUND * ROCKER)
        return np.pi - np.arccos(cosine)

    first = float(posed().q[2])
    ends = stretched(COUPLER + CRANK), stretched(COUPLER - CRANK)
    least, most = min(ends), max(ends)
    end = dead_point(FourBar(), posed(), rocker)
    assert min(abs(float(end.value) - least), abs(float(end.value) - most)) < 1e-9

    beyond = np.linspace(first, most + 0.2, 25)
    driven = kinematics(FourBar(), posed(), rocker, beyond, throw=False)
    np.testing.assert_array_equal(driven.ok, beyond < most)
    assert np.all((driven.result == mbd.RESULTS.assembly_failed) == ~driven.ok)
    assert np.all(np.isfinite(driven.q))
    last = int(np.sum(driven.ok)) - 1
    near = mbd.State(0.0, driven.q[last], np.zeros(3))
    np.testing.assert_allclose(dead_point(FourBar(), near, rocker).value, most, atol=1e-9)
    with pytest.raises(Exception, match="could not be satisfied"):
        kinematics(FourBar(), posed(), rocker, beyond)


def test_change_of_branch():
    """Samples on the other branch are told, and freedoms that nothing drives."""

    class Arm(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.eye(2)

        def force(self, t, q, v, u):
            return jnp.zeros(2)

        def constraint(self, q, t):
            return (q @ q - 1)[None]

    height = lambda q: q[1]  # noqa: E731
    state = mbd.State(0.0, [0.5, 0.85], [0.0, 0.0])
    values = np.array([0.9, 0.99, 0.999, 0.9, 0.5])
    found = kinematics(Arm(), state, height, values)
    np.testing.assert_array_equal(np.sign(found.q[:, 0]) == found.orientation, True)
    free = kinematics(Arm(), state, values=np.zeros(2), throw=False)
    assert np.all(free.result == mbd.RESULTS.dead_point)

    class Loose(Arm):
        def constraint(self, q, t):
            return jnp.zeros(0)

    loose = kinematics(Loose(), state, height, values, throw=False)
    assert np.all(loose.result == mbd.RESULTS.underdriven)
    with pytest.raises(ValueError, match="column for each of the 1 drives"):
        kinematics(Arm(), state, height, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="needs a Mechanism"):
        kinematics(Arm(), state, "crank", values)


def test_driven_by_time():
    """Rows Phi(q, t) of the system itself, with all terms of time."""

    class Turning(SliderCrank):
        def constraint(self, q, t):
            return jnp.concatenate([super().constraint(q, t), (q[0] - 0.2 - t**2)[None]])

    times = np.linspace(0.1, 2.0, 7)
    state = mbd.State(0.0, [0.2, 0.1, 1.1], np.zeros(3))
    found = kinematics(Turning(jnp.array(0.3), jnp.array(0.8)), state, values=times)
    place = lambda t: slider(0.2 + t**2)  # noqa: E731
    np.testing.assert_allclose(found.q[:, 2], place(times), atol=1e-10)
    np.testing.assert_allclose(found.v[:, 2], jax.jit(jax.vmap(jax.grad(place)))(times), atol=1e-9)
    bend = jax.jit(jax.vmap(jax.grad(jax.grad(place))))(times)
    np.testing.assert_allclose(found.a[:, 2], bend, atol=1e-8)


@pytest.mark.slow
def test_mechanism():
    """A four-bar of bodies in space, with three redundant rows: transmission angle by the law of
    cosines, and the workspace of its coupler."""
    A = CRANK * np.array([np.cos(0.5), 0, np.sin(0.5)])
    angle = float(posed().q[2])
    B = np.array([GROUND, 0, 0]) + ROCKER * np.array([np.cos(angle), 0, np.sin(angle)])
    points = np.array([np.zeros(3), A, B, [GROUND, 0, 0]])
    bodies = [
        mbd.Body(f"bar {i}", mbd.Inertia.box(size=[0.5, 0.05, 0.05], mass=1.0), position=place)
        for i, place in enumerate((points[1:] + points[:-1]) / 2)
    ]
    ends = ["ground", *bodies, "ground"]
    hinges = [
        mbd.Revolute(f"hinge {i}", ends[i], ends[i + 1], point=points[i], axis=[0.0, -1.0, 0.0])
        for i in range(4)
    ]
    bars = mbd.Mechanism(bodies, hinges)
    turns = np.linspace(0.0, 5.0, 20)
    found = kinematics(bars, bars.state(), "hinge 0", turns)
    pins = [f"hinge {i}" for i in (1, 2, 3)]
    transmission = mbd.reports.transmission_angle(bars, found.q, pins)
    square = CRANK**2 + GROUND**2 - 2 * CRANK * GROUND * np.cos(0.5 + turns)
    cosine = (COUPLER**2 + ROCKER**2 - square) / (2 * COUPLER * ROCKER)
    np.testing.assert_allclose(transmission, np.arccos(cosine), atol=1e-9)
    planar = kinematics(FourBar(), posed(), crank_angle, 0.5 + turns)
    rates = mbd.reports.joint_rates(bars, found.q, found.v, "hinge 3")[:, 0]
    np.testing.assert_allclose(np.abs(rates), np.abs(planar.v[:, 2]), atol=1e-9)

    drive = mbd.PrescribedMotion("drive", hinges[0], lambda t: 2 * t)
    timed = mbd.Mechanism(bodies, [*hinges, drive])
    moved = kinematics(timed, bars.state(), values=turns / 2)
    np.testing.assert_allclose(moved.q, found.q, atol=1e-9)
    np.testing.assert_allclose(moved.v, 2 * found.v, atol=1e-8)
    np.testing.assert_allclose(moved.a, 4 * found.a, atol=1e-7)

    pytest.importorskip("matplotlib").use("Agg")
    ax = mbd.plots.workspace(bars, found.q, "bar 1")
    (line,) = ax.lines
    middle = (points[1] + points[2]) / 2
    np.testing.assert_allclose(line.get_xydata()[0], middle[[0, 2]], atol=1e-9)


@pytest.mark.slow
def test_derivative_of_a_dead_point():
    """The end of the stroke of a slider is the sum of both lengths, in both modes and in a batch;
    and two drives of an arm of two bars reach where they should."""
    state = mbd.State(0.0, [0.2, 0.1, 1.1], np.zeros(3))

    def stroke(lengths):
        found = dead_point(SliderCrank(*lengths), state, lambda q: q[2], throw=False)
        return found.value

    many = jnp.array([[0.3, 0.8], [0.35, 0.9]])
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(stroke)))(many)
    np.testing.assert_allclose(value, [1.1, 1.25], rtol=1e-10)
    np.testing.assert_allclose(slope, np.ones((2, 2)), rtol=1e-8)
    forward = jax.jit(jax.jacfwd(stroke))(many[0])
    np.testing.assert_allclose(forward, [1, 1], rtol=1e-8)

    class Arm(SliderCrank):
        def constraint(self, q, t):
            return jnp.zeros(0)

    drives = [lambda q, i=i: (i + 1) * q[i] for i in range(3)]
    values = np.array([[0.1, 0.2, 0.3], [0.2, 0.4, 0.9]])
    found = kinematics(Arm(jnp.array(0.3), jnp.array(0.8)), state, drives, values, rate=values)
    np.testing.assert_allclose(found.q, values / [1, 2, 3], atol=1e-12)
    np.testing.assert_allclose(found.v, values / [1, 2, 3], atol=1e-12)
