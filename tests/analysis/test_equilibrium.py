"""Static equilibria against closed forms, in both modes of differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from analysis_systems import HIGH, LIMIT, Springs, Truss, Unit, all_are, load_at
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import equilibrium

GRAVITY = 9.81


class Hanging(Unit):
    """A point mass on a spring of no free length from (0, 0), which a rail, stated twice, keeps at
    x = reach, and a force in u."""

    mass: Array
    stiffness: Array
    reach: Array

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2)

    def force(self, t, q, v, u):
        weight = jnp.stack([jnp.zeros_like(self.mass), -GRAVITY * self.mass])
        return weight - self.stiffness * q + u

    def constraint(self, q, t):
        row = q[0] - self.reach
        return jnp.stack([row, 2 * row])


VALUES = np.array([0.7, 35.0, 0.4, 2.0])


def hanging(values):
    """Where it hangs and the reaction, from a start that violates the rows; and the report."""
    mass, stiffness, reach, push = values
    start = mbd.State(0.0, [0.0, 3.0], [0.0, 0.0])
    u = jnp.stack([jnp.zeros_like(push), push])
    state = equilibrium(Hanging(mass, stiffness, reach), start, u, throw=False)
    lam = state.report.multipliers
    return jnp.stack([state.q[0], state.q[1], lam[0] + 2 * lam[1]]), state.report


def test_hanging_mass_and_its_derivatives():
    """y = (u_y - m g) / k, the reaction k reach - u_x and the stiffness k / m along the rail, with
    redundant rows, in a batch, and derivatives."""
    m, k, x, u = VALUES

    def with_value(values):
        numbers, report = hanging(values)
        return numbers, (numbers, report)

    @jax.jit
    def found(values):
        many = jnp.stack([values, 2 * values])
        reverse, others = jax.vmap(jax.jacrev(with_value, has_aux=True))(many)
        return *others, reverse[0]

    many, report, reverse = found(VALUES)
    expected = np.array([x, (u - m * GRAVITY) / k, k * x])
    np.testing.assert_allclose(many, [expected, expected * [2, 1, 4]], rtol=1e-9)
    np.testing.assert_allclose(report.stiffness, [[k / m, np.inf]] * 2, rtol=1e-9)
    assert np.asarray(report.stable).all()
    slopes = [[0, 0, 1, 0], [-GRAVITY / k, -(u - m * GRAVITY) / k**2, 0, 1 / k], [0, x, k, 0]]
    np.testing.assert_allclose(reverse, slopes, atol=1e-8)


class HangingChain(Unit):
    """Two point masses of 1 kg on rods of 1 m."""

    gravity: Array

    def force(self, t, q, v, u):
        return -self.gravity * jnp.array([0.0, 1.0, 0.0, 1.0])

    def constraint(self, q, t):
        a, b = q[:2], q[2:] - q[:2]
        return jnp.stack([a @ a - 1, b @ b - 1])


def test_accuracy_does_not_depend_on_the_start():
    """A pendulum of two point masses hangs to rounding, from beside and from far, and however weak
    gravity is. It stays upright if it starts there, with a negative stiffness."""

    @jax.jit
    def rests(start, gravity):
        chain = HangingChain(gravity)
        found = equilibrium(chain, mbd.State(0.0, start, np.zeros(4)), throw=False)
        report = found.report
        return found.q, report.stable, report.stiffness, report.result == mbd.RESULTS.successful

    starts = [1e-3, -1, 0, -2], [0.9, 0.2, 1.3, -0.6], [30.0, 10.0, -50.0, 80.0], [0.01, 1, 0, 2]
    for gravity in (9.81, 1e-12):
        for start in starts:
            q, stable, _, good = rests(np.array(start, float), gravity)
            np.testing.assert_allclose(q, [0, -1, 0, -2], atol=1e-13)
            assert stable and good
    q, stable, stiffness, _ = rests(np.array([0.0, 1, 0, 2]), 9.81)
    np.testing.assert_allclose(q, [0, 1, 0, 2], atol=1e-12)
    # l^2 [[2, 1], [1, 1]] a'' = g l [[2, 0], [0, 1]] a.
    squares = -9.81 * np.array([2 + np.sqrt(2), 2 - np.sqrt(2)])
    np.testing.assert_allclose(np.asarray(stiffness)[:2], squares, rtol=1e-9)
    assert not stable


@jax.jit
def truss(load, start, first):
    state = mbd.State(0.0, start[None], np.zeros(1))
    found = equilibrium(Truss(load), state, first=first, throw=False)
    return found.q[0], found.report.stable


def test_both_states_of_a_bistable_truss():
    """Which one depends on the start; the flat one between them is unstable. Beyond the load at
    which it snaps through only the lower one is left."""
    for start, rest in ((0.3, HIGH), (-0.01, -HIGH), (1e-9, HIGH), (-3.0, -HIGH)):
        np.testing.assert_allclose(truss(0.0, start, 1e-3)[0], rest, rtol=1e-7)
    for share, above in ((0.99, True), (1.01, False)):
        found, stable = truss(share * LIMIT, HIGH, 1e-3)
        assert (float(found) > 0) == above and stable


def test_newton_steps_find_the_unstable_state_of_a_truss():
    """The three roots of 200 (1.1 / sqrt(1 + y^2) - 1) y = 1 are y = -0.4598, 0.0501 and 0.4518, of
    which the middle one is unstable. From beside each of them, the search ends there."""
    for low, high, offsets in (
        (-0.6, -0.3, (-0.1, 0.08)),
        (0.0, 0.2, (-0.02, 0.02, 0.08)),
        (0.3, 0.6, (-0.05, 0.2)),
    ):
        root = scipy.optimize.brentq(lambda y: load_at(y) - 1, low, high, xtol=1e-15, rtol=1e-15)
        for offset in offsets:
            found, stable = truss(1.0, root + offset, 1e3)
            np.testing.assert_allclose(found, root, atol=1e-14)
            assert bool(stable) == (abs(root) > 0.3)


def test_verdicts():
    """Of a force that nothing holds, also as an error. A place where spring and push differ by
    rounding is found for a tolerance of 1e-10, and not for 1e-20."""

    def found(stiffness, push, **options):
        start, one = mbd.State(0.0, [3.0], [0.0]), np.eye(1)
        return equilibrium(
            Springs(one, stiffness * one, 0 * one), start, np.array([push]), **options
        )

    none = found(0.0, 1.0, throw=False)
    assert all_are(none.report.result, mbd.RESULTS.equilibrium_not_found)
    assert np.all(np.isfinite(none.q))
    with pytest.raises(Exception, match="No equilibrium"):
        found(0.0, 1.0)
    near = found(35.0, 0.123)
    exact = found(35.0, 0.123, tolerance=1e-20, throw=False)
    np.testing.assert_allclose([near.q, exact.q], [[0.123 / 35]] * 2, rtol=1e-15)
    if np.asarray(exact.report.residual) > 0:
        assert all_are(exact.report.result, mbd.RESULTS.tolerance_out_of_reach)


def test_rolling():
    """A wheel that rolls without slipping until its spring balances the push, q = (place, angle):
    k angle = F r, and the place follows by r."""

    class Wheel(Unit):
        def mass_matrix(self, q):
            return jnp.diag(jnp.array([2.0, 0.3]))

        def force(self, t, q, v, u):
            return jnp.stack([jnp.full((), 3.0), -7.0 * q[1]])

        def nonholonomic(self, q, v, t):
            return (v[0] - 0.4 * v[1])[None]

    found = equilibrium(Wheel(), mbd.State(0.0, [0.5, 0.1], [0.0, 0.0]))
    angle = 3.0 * 0.4 / 7.0
    np.testing.assert_allclose(found.q, [0.5 + 0.4 * (angle - 0.1), angle], rtol=1e-9)
