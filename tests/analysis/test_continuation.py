"""Branches of equilibria against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import continuation, equilibria, limit_point

FREE = 1.1  # length of the springs of the truss without load, whose ends are 1 aside


class Truss(mbd.AbstractSystem):
    """Von Mises' truss: a mass between two springs, on a vertical guide that is stated twice."""

    stiffness: Array
    load: Array

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        length = jnp.sqrt(1 + q[1] ** 2)
        pull = -2 * self.stiffness * (length - FREE) * q[1] / length
        return jnp.stack([0.3 * pull, pull - self.load])

    def constraint(self, q, t):
        return jnp.stack([q[0], 3 * q[0]])


HIGH = np.sqrt(FREE**2 - 1)
TOP = np.sqrt(FREE ** (2 / 3) - 1)
LIMIT = 200 * (FREE / np.sqrt(1 + TOP**2) - 1) * TOP


def load_at(y):
    return 200 * (FREE / np.sqrt(1 + y**2) - 1) * y


def loaded(load):
    return Truss(jnp.full((), 100.0), load)


def start(y):
    return mbd.State(0.0, [0.0, y], [0.0, 0.0])


def test_snap_through():
    """The branch of a truss from one stable state through both limit loads to the other."""
    branch = continuation(loaded, start(HIGH), 0.0, 2 * LIMIT, progress=False)
    y = branch.q[:, 1]
    np.testing.assert_allclose(branch.parameter, load_at(y), atol=1e-7)
    np.testing.assert_allclose(branch.parameter[-1], 2 * LIMIT, rtol=1e-12)
    found = [(p.parameter, p.state.q[1]) for p in branch.limit_points]
    np.testing.assert_allclose(found, [(LIMIT, TOP), (-LIMIT, -TOP)], rtol=1e-9)
    np.testing.assert_array_equal(branch.stable, np.abs(y) > TOP)
    assert not branch.branch_points
    assert "limit point" in str(branch)


@pytest.mark.slow
def test_derivative_of_the_limit_load():
    """It is proportional to the stiffness; in both modes, in a batch."""

    def most(stiffness):
        near = start(0.9 * TOP)
        found = limit_point(lambda load: Truss(stiffness, load), near, 0.9 * LIMIT, throw=False)
        return found.parameter

    stiffness = jnp.array([100.0, 150.0])
    both = jax.vmap(lambda k: (*jax.jvp(most, (k,), (jnp.ones_like(k),)), jax.grad(most)(k)))
    value, forward, reverse = jax.jit(both)(stiffness)
    np.testing.assert_allclose(value, stiffness / 100 * LIMIT, rtol=1e-9)
    np.testing.assert_allclose(forward, LIMIT / 100, rtol=1e-8)
    np.testing.assert_allclose(reverse, LIMIT / 100, rtol=1e-8)


class Column(mbd.AbstractSystem):
    """A mass m upon a rod, held upright by a torsion spring k at its foot: it buckles under a
    gravity of k / (m l). q = (x, y), with the length of the rod stated twice."""

    gravity: Array

    def mass_matrix(self, q):
        return 0.5 * jnp.eye(2)

    def force(self, t, q, v, u):
        angle = jnp.atan2(q[0], q[1])
        moment = -3.0 * angle / (q @ q)
        return moment * jnp.stack([q[1], -q[0]]) - jnp.stack([0 * self.gravity, 0.5 * self.gravity])

    def constraint(self, q, t):
        row = q @ q - 0.8**2
        return jnp.stack([row, 2 * row])


def test_pitchfork():
    """The branch point of a column, and the branch that crosses there: g = k a / (m l sin a)."""
    critical = 3.0 / (0.5 * 0.8)
    upright = mbd.State(0.0, [0.0, 0.8], [0.0, 0.0])
    straight = continuation(Column, upright, 1.0, 12.0, progress=False)
    (crossing,) = straight.branch_points
    assert not straight.limit_points
    np.testing.assert_allclose(crossing.parameter, critical, rtol=1e-8)
    np.testing.assert_allclose(np.abs(crossing.direction), [1, 0], atol=1e-6)
    np.testing.assert_array_equal(straight.stable, straight.parameter < critical)

    bent = continuation(
        Column,
        crossing.state,
        crossing.parameter,
        12.0,
        direction=crossing.direction,
        progress=False,
    )
    angle = np.arctan2(bent.q[1:, 0], bent.q[1:, 1])
    expected = 3.0 * angle / (0.5 * 0.8 * np.sin(angle))
    np.testing.assert_allclose(bent.parameter[1:], expected, rtol=1e-8)
    assert np.all(bent.stable[1:])
    assert np.abs(angle[-1]) > 1


def test_stops():
    """At a bound, at the largest number of points as a verdict, and for bad arguments."""
    branch = continuation(
        loaded, start(HIGH), 0.0, 2 * LIMIT, bounds=[-1.0, 2 * LIMIT], progress=False
    )
    np.testing.assert_allclose(branch.parameter[-1], -1.0)
    short = continuation(
        loaded, start(HIGH), 0.0, 2 * LIMIT, max_steps=3, progress=False, throw=False
    )
    assert short.result == mbd.RESULTS.continuation_stopped
    assert short.q.shape == (3, 2)
    with pytest.raises(ValueError, match="must differ"):
        continuation(loaded, start(HIGH), 1.0, 1.0, progress=False)
    with pytest.raises(ValueError, match="must return a system"):
        continuation(lambda load: load, start(HIGH), 0.0, 1.0, progress=False)

    class OnFloor(Truss):
        def gap(self, q, t):
            return q[1:]

    with pytest.raises(ValueError, match="does not look at contacts"):
        continuation(lambda load: OnFloor(load, load), start(HIGH), 0.0, 1.0, progress=False)
    with pytest.raises(ValueError, match="cannot be traced"):
        jax.eval_shape(lambda q: continuation(loaded, mbd.State(0.0, q, q), 0.0, 1.0).q, np.ones(2))


def test_equilibria_from_many_starts():
    """Both states of the truss without load, and how many starts led to each."""
    y = np.array([0.3, -0.2, 0.6, -0.9, 0.05])
    starts = mbd.State(0.0, np.stack([0 * y, y], axis=1), np.zeros((5, 2)))
    found = equilibria(Truss(jnp.array(100.0), jnp.array(0.0)), starts)
    np.testing.assert_allclose(found.state.q, [[0, HIGH], [0, -HIGH]], atol=1e-8)
    np.testing.assert_array_equal(found.count, [3, 2])
    np.testing.assert_array_equal(found.of_start, [0, 1, 0, 1, 0])
    assert np.all(found.state.report.stable)


@pytest.mark.slow
def test_mechanism():
    """The same truss as a body on a guide between two springs, under its weight."""

    def family(load):
        body = mbd.Body(
            "mass", mbd.Inertia.box(size=[0.1, 0.1, 0.1], mass=1.0), position=[0, 0, HIGH]
        )
        guide = mbd.Prismatic("guide", "ground", body, point=[0.0, 0, HIGH], axis=[0.0, 0, 1])
        springs = [
            mbd.Spring(
                f"spring {x}",
                "ground",
                body,
                points=([x, 0.0, 0.0], [0.0, 0.0, HIGH]),
                stiffness=100.0,
                rest_length=FREE,
            )
            for x in (-1.0, 1.0)
        ]
        weight = jnp.stack([jnp.zeros_like(load), jnp.zeros_like(load), -load])
        plane = mbd.Plane([0.0, -1.0, 0.0])
        return mbd.Mechanism([body], [guide], springs, gravity=weight, plane=plane)

    start = family(jnp.array(0.0)).state()
    branch = continuation(family, start, 0.0, 2 * LIMIT, progress=False)
    np.testing.assert_allclose(branch.parameter, load_at(branch.q[:, 1]), atol=1e-7)
    loads = [point.parameter for point in branch.limit_points]
    np.testing.assert_allclose(loads, [LIMIT, -LIMIT], rtol=1e-9)
