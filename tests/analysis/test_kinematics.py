"""Driven mechanisms against closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import Unit, all_are, four_bar
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import dead_point, kinematics


class SliderCrank(Unit):
    """q = (angle of the crank, angle of the rod, place of the slider)."""

    crank: Array
    rod: Array

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

    def moved(lengths):
        found = kinematics(
            SliderCrank(*lengths), state, crank_angle, angles, rate=rates, acceleration=bends,
            throw=False,
        )  # fmt: skip
        return jnp.stack([found.q[7, 2], found.v[7, 2]]), found

    def places(lengths):
        place = lambda angle: slider(angle, *lengths)  # noqa: E731
        first = jax.grad(place)
        curve = lambda angle: (place(angle), first(angle), jax.grad(first)(angle))  # noqa: E731
        x, slope, bend = jax.vmap(curve)(angles)
        return jnp.stack([x[7], rates[7] * slope[7]]), (x, slope, bend)

    @jax.jit
    def all_of_them(lengths):
        forward, found = jax.jacfwd(moved, has_aux=True)(lengths)
        reverse = jax.jacrev(lambda x: moved(x)[0])(lengths)
        return found, forward, reverse, jax.jacfwd(places, has_aux=True)(lengths)

    found, forward, reverse, (by_lengths, (x, first, second)) = all_of_them(np.array([0.3, 0.8]))
    assert np.asarray(found.ok).all() and np.all(np.asarray(found.orientation) == 1)
    q, v, a = map(np.asarray, (found.q, found.v, found.a))
    np.testing.assert_allclose(q[:, 0], angles, atol=1e-10)
    np.testing.assert_allclose(q[:, 2], x, atol=1e-10)
    first, second = map(np.asarray, (first, second))
    np.testing.assert_allclose(v[:, 2], first * rates, atol=1e-9)
    np.testing.assert_allclose(a[:, 2], second * rates**2 + first * bends, atol=1e-9)
    for slopes in (forward, reverse):
        np.testing.assert_allclose(slopes, by_lengths, atol=1e-8)


CRANK, COUPLER, ROCKER, GROUND = 0.3, 0.9, 0.6, 1.0


class FourBar(Unit):
    """Angles of crank, coupler and rocker to the ground."""

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
    """Crank at 0.5, closed by the cosine rule on one of the branches."""
    rocker = min(rocker_angles(0.5), key=lambda angle: abs(angle - 1.5))
    tip = CRANK * np.exp(0.5j)
    coupler = np.angle(GROUND + ROCKER * np.exp(1j * rocker) - tip)
    return mbd.State(0.0, np.array([0.5, coupler, rocker]), np.zeros(3))


def on_one_turn(angle):
    return np.mod(angle + np.pi, 2 * np.pi) - np.pi


def test_four_bar_and_its_dead_points():
    """A crank-rocker, driven by the crank against Freudenstein's equation; driven by the rocker it
    stops where crank and coupler are in line."""
    angles = np.linspace(0.5, 5.5, 30)
    found = kinematics(FourBar(), posed(), crank_angle, angles, throw=False)
    assert np.asarray(found.ok).all()
    q, v = np.asarray(found.q), np.asarray(found.v)
    candidates = np.stack([rocker_angles(angle) for angle in angles])
    apart = np.abs(on_one_turn(candidates - q[:, 2:]))
    assert np.max(np.min(apart, axis=1)) < 1e-9
    coupler, out = q[:, 1], q[:, 2]
    ratio = CRANK * np.sin(angles - coupler) / (ROCKER * np.sin(out - coupler))
    np.testing.assert_allclose(v[:, 2], ratio, atol=1e-9)

    def rocker(q):
        return q[2]

    # pi - angle at the ground pivot of the rocker, by the law of cosines.
    reach = COUPLER + CRANK * np.array([1, -1])
    cosine = (GROUND**2 + ROCKER**2 - reach**2) / (2 * GROUND * ROCKER)
    least, most = sorted(np.pi - np.arccos(cosine))
    beyond = np.linspace(posed().q.tolist()[2], most + 0.2, 25)
    driven = kinematics(FourBar(), posed(), rocker, beyond, throw=False)
    ok = np.asarray(driven.ok)
    np.testing.assert_array_equal(ok, beyond < most)
    failed = jax.tree.map(lambda x: np.asarray(x)[~ok], driven.result)
    assert all_are(failed, mbd.RESULTS.assembly_failed)
    assert np.all(np.isfinite(driven.q))
    near = mbd.State(0.0, np.asarray(driven.q)[np.sum(ok) - 1], np.zeros(3))
    np.testing.assert_allclose(dead_point(FourBar(), near, rocker).value, most, atol=1e-9)
    end = float(dead_point(FourBar(), posed(), rocker).value)
    assert min(abs(end - least), abs(end - most)) < 1e-9
    with pytest.raises(Exception, match="could not be satisfied"):
        kinematics(FourBar(), posed(), rocker, beyond)


def test_change_of_branch():
    """Samples on the other branch are told, and freedoms that nothing drives."""

    class Arm(Unit):
        def constraint(self, q, t):
            return (q @ q - 1)[None]

    height = lambda q: q[1]  # noqa: E731
    state = mbd.State(0.0, [0.5, 0.85], [0.0, 0.0])
    values = np.array([0.9, 0.99, 0.999, 0.9, 0.5])
    found = kinematics(Arm(), state, height, values)
    np.testing.assert_array_equal(np.sign(np.asarray(found.q)[:, 0]), found.orientation)
    free = kinematics(Arm(), state, values=np.zeros(2), throw=False)
    assert all_are(free.result, mbd.RESULTS.dead_point)

    loose = kinematics(Unit(), state, height, values, throw=False)
    assert all_are(loose.result, mbd.RESULTS.underdriven)
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
    x, first, second = jax.jit(
        jax.vmap(lambda t: (place(t), jax.grad(place)(t), jax.grad(jax.grad(place))(t)))
    )(times)
    np.testing.assert_allclose(np.asarray(found.q)[:, 2], x, atol=1e-10)
    np.testing.assert_allclose(np.asarray(found.v)[:, 2], first, atol=1e-9)
    np.testing.assert_allclose(np.asarray(found.a)[:, 2], second, atol=1e-8)


def test_several_drives():
    """Of three freedoms, each a multiple of a coordinate."""

    drives = [lambda q, i=i: (i + 1) * q[i] for i in range(3)]
    values = np.array([[0.1, 0.2, 0.3], [0.2, 0.4, 0.9]])
    start = mbd.State(0.0, np.ones(3), np.zeros(3))
    found = kinematics(Unit(), start, drives, values, rate=values)
    np.testing.assert_allclose(found.q, values / [1, 2, 3], atol=1e-12)
    np.testing.assert_allclose(found.v, values / [1, 2, 3], atol=1e-12)


@pytest.mark.slow
def test_mechanism():
    """A four-bar of bodies in space, with three redundant rows: transmission angle by the law of
    cosines, and the workspace of its coupler."""
    A = CRANK * np.array([np.cos(0.5), 0, np.sin(0.5)])
    angle = posed().q.tolist()[2]
    B = np.array([GROUND, 0, 0]) + ROCKER * np.array([np.cos(angle), 0, np.sin(angle)])
    points = np.array([np.zeros(3), A, B, [GROUND, 0, 0]])
    bars, turns = four_bar(points), np.linspace(0.0, 5.0, 20)
    found = kinematics(bars, bars.state(), "hinge 0", -turns)
    pins = [f"hinge {i}" for i in (1, 2, 3)]
    transmission = mbd.reports.transmission_angle(bars, found, pins)
    square = CRANK**2 + GROUND**2 - 2 * CRANK * GROUND * np.cos(0.5 + turns)
    cosine = (COUPLER**2 + ROCKER**2 - square) / (2 * COUPLER * ROCKER)
    np.testing.assert_allclose(transmission, np.arccos(cosine), atol=1e-9)
    pytest.importorskip("matplotlib").use("Agg")
    ax = mbd.plots.workspace(bars, found.q, "bar 1")
    (line,) = ax.lines
    middle = (points[1] + points[2]) / 2
    np.testing.assert_allclose(line.get_xydata()[0], middle[[0, 2]], atol=1e-9)
