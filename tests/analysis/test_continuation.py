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
    """Von Mises' truss: a mass at a height between two springs, under a load."""

    stiffness: Array
    load: Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        length = jnp.sqrt(1 + q**2)
        return -2 * self.stiffness * (length - FREE) * q / length - self.load


HIGH = np.sqrt(FREE**2 - 1)
TOP = np.sqrt(FREE ** (2 / 3) - 1)
LIMIT = 200 * (FREE / np.sqrt(1 + TOP**2) - 1) * TOP


def load_at(y):
    return 200 * (FREE / np.sqrt(1 + y**2) - 1) * y


def loaded(load):
    return Truss(jnp.full((), 100.0), load)


def start(y):
    return mbd.State(0.0, [y], [0.0])


def branch_of(family=loaded, end=2 * LIMIT, **options):
    return continuation(family, start(HIGH), 0.0, end, progress=False, **options)


def test_snap_through():
    """The branch of a truss from one stable state through both limit loads to the other. It stops
    at a bound, and at the largest number of points as a verdict."""
    branch = branch_of()
    y = np.asarray(branch.q)[:, 0]
    np.testing.assert_allclose(branch.parameter, load_at(y), atol=1e-7)
    np.testing.assert_allclose(np.asarray(branch.parameter)[-1], 2 * LIMIT, rtol=1e-12)
    found = [(float(p.parameter), float(p.state.q.item())) for p in branch.limit_points]
    np.testing.assert_allclose(found, [(LIMIT, TOP), (-LIMIT, -TOP)], rtol=1e-9)
    np.testing.assert_array_equal(branch.stable, np.abs(y) > TOP)
    assert not branch.branch_points
    assert "limit point" in str(branch)
    bound = branch_of(bounds=[-1.0, 2 * LIMIT])
    np.testing.assert_allclose(np.asarray(bound.parameter)[-1], -1.0)
    short = branch_of(max_steps=3, throw=False)
    assert short.result == mbd.RESULTS.continuation_stopped and short.q.shape == (3, 1)


@pytest.mark.slow
def test_derivative_of_the_limit_load():
    """It is proportional to the stiffness; in both modes, in a batch."""

    def most(stiffness):
        near = start(0.9 * TOP)
        found = limit_point(lambda load: Truss(stiffness, load), near, 0.9 * LIMIT, throw=False)
        return found.parameter

    both = jax.vmap(lambda k: (*jax.jvp(most, (k,), (jnp.ones_like(k),)), jax.grad(most)(k)))
    value, forward, reverse = jax.jit(both)(np.array([100.0, 150.0]))
    np.testing.assert_allclose(value, np.array([1.0, 1.5]) * LIMIT, rtol=1e-9)
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
    stable = np.asarray(straight.parameter) < critical
    np.testing.assert_array_equal(straight.stable, stable)

    place, sideways = (crossing.state, crossing.parameter), dict(direction=crossing.direction)
    bent = continuation(Column, *place, 12.0, **sideways, progress=False)
    x, y = np.asarray(bent.q)[1:].T
    angle = np.arctan2(x, y)
    expected = 3.0 * angle / (0.5 * 0.8 * np.sin(angle))
    np.testing.assert_allclose(np.asarray(bent.parameter)[1:], expected, rtol=1e-8)
    assert np.all(np.asarray(bent.stable)[1:])
    assert np.abs(angle[-1]) > 1


class OnFloor(Truss):
    def gap(self, q, t):
        return q


def traced(q):
    return continuation(loaded, mbd.State(0.0, q, q), 0.0, 1.0).q


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: branch_of(end=0.0), "must differ"),
        (lambda: branch_of(lambda load: load), "must return a system"),
        (lambda: branch_of(lambda load: OnFloor(load, load)), "does not look at contacts"),
        (lambda: jax.eval_shape(traced, jax.ShapeDtypeStruct((1,), float)), "cannot be traced"),
    ],
)
def test_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_equilibria_from_many_starts():
    """Both states of the truss without load, and how many starts led to each."""
    y = np.array([0.3, -0.2, 0.6, -0.9, 0.05])[:, None]
    found = equilibria(loaded(jnp.array(0.0)), mbd.State(0.0, y, np.zeros((5, 1))))
    np.testing.assert_allclose(found.state.q, [[HIGH], [-HIGH]], atol=1e-8)
    np.testing.assert_array_equal(found.count, [3, 2])
    np.testing.assert_array_equal(found.of_start, [0, 1, 0, 1, 0])
    assert np.all(found.state.report.stable)
