"""Branches of equilibria against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import HIGH, LIMIT, TOP, Truss, Unit, load_at
from helpers import assert_verdicts
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import continuation, equilibria


def loaded(load):
    return Truss(load)


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
    found = [(p.parameter, p.state.q.item()) for p in branch.limit_points]
    np.testing.assert_allclose(found, [(LIMIT, TOP), (-LIMIT, -TOP)], rtol=1e-9)
    np.testing.assert_array_equal(branch.stable, np.abs(y) > TOP)
    assert not branch.branch_points
    assert "limit point" in str(branch)
    bound = branch_of(bounds=[-1.0, 2 * LIMIT])
    np.testing.assert_allclose(np.asarray(bound.parameter)[-1], -1.0)
    short = branch_of(max_points=3, throw=False)
    assert_verdicts(short.result, mbd.RESULTS.continuation_stopped)
    assert short.q.shape == (3, 1)


class Column(Unit):
    """A mass upon a rod, held upright by a torsion spring k at its foot: it buckles under a gravity
    of k / (m l). q = (x, y), with the length of the rod stated twice."""

    gravity: Array

    def force(self, t, q, v, u):
        moment = -6.0 * jnp.atan2(q[0], q[1]) / (q @ q)
        return moment * jnp.stack([q[1], -q[0]]) - jnp.stack([0 * self.gravity, self.gravity])

    def constraint(self, q, t):
        row = q @ q - 0.8**2
        return jnp.stack([row, 2 * row])


def test_pitchfork():
    """The branch point of a column, and the branch that crosses there: g = k a / (m l sin a)."""
    critical = 6.0 / 0.8
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
    expected = critical * angle / np.sin(angle)
    np.testing.assert_allclose(np.asarray(bent.parameter)[1:], expected, rtol=1e-8)
    assert np.all(np.asarray(bent.stable)[1:])
    assert np.abs(angle[-1]) > 1


class OnFloor(Truss):
    def gap(self, q, t):
        return q


class Sticking(Truss):
    def friction_rates(self, q, v, t):
        return v


def traced(q):
    return continuation(loaded, mbd.State(0.0, q, q), 0.0, 1.0).q


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: branch_of(end=0.0), "must differ"),
        (lambda: branch_of(lambda load: load), "must return a system"),
        (lambda: branch_of(lambda load: OnFloor(load, load)), "does not look at contacts"),
        (lambda: branch_of(lambda load: Sticking(load, load)), "1 dry friction,.*rests in many"),
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
    assert np.asarray(found.state.report.stable).all()
