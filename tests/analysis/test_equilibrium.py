"""Static equilibria against closed forms, in both modes of differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import equilibrium

GRAVITY = 9.81


class Hanging(mbd.AbstractSystem):
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
    assert np.all(report.stable)
    slopes = [[0, 0, 1, 0], [-GRAVITY / k, -(u - m * GRAVITY) / k**2, 0, 1 / k], [0, x, k, 0]]
    np.testing.assert_allclose(reverse, slopes, atol=1e-8)


@pytest.mark.slow
def test_derivatives_in_forward_mode():
    """The first and the second by the stiffness."""
    m, k, _, u = VALUES
    along_k, place = np.array([0.0, 1.0, 0.0, 0.0]), lambda values: hanging(values)[0]
    twice = jax.jit(lambda x: jax.jvp(jax.jacfwd(place), (x,), (along_k,)))
    first, second = (np.asarray(x)[1] for x in twice(VALUES))
    lift = u - m * GRAVITY
    np.testing.assert_allclose(first, [-GRAVITY / k, -lift / k**2, 0, 1 / k], atol=1e-8)
    np.testing.assert_allclose(second[1], 2 * lift / k**3, rtol=1e-6)


class HangingChain(mbd.AbstractSystem):
    """Two point masses of 1 kg on rods of 1 m."""

    gravity: Array

    def mass_matrix(self, q):
        return jnp.eye(4)

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
        return equilibrium(chain, mbd.State(0.0, start, np.zeros(4)), throw=False)

    starts = [1e-3, -1, 0, -2], [0.9, 0.2, 1.3, -0.6], [30.0, 10.0, -50.0, 80.0], [0.01, 1, 0, 2]
    for gravity in (9.81, 1e-12):
        for start in starts:
            found = rests(np.array(start, float), gravity)
            assert found.report.result == mbd.RESULTS.successful and found.report.stable
            np.testing.assert_allclose(found.q, [0, -1, 0, -2], atol=1e-13)
    upright = rests(np.array([0.0, 1, 0, 2]), 9.81)
    np.testing.assert_allclose(upright.q, [0, 1, 0, 2], atol=1e-12)
    assert not upright.report.stable
    # l^2 [[2, 1], [1, 1]] a'' = g l [[2, 0], [0, 1]] a.
    squares = -9.81 * np.array([2 + np.sqrt(2), 2 - np.sqrt(2)])
    np.testing.assert_allclose(upright.report.stiffness[:2], squares, rtol=1e-9)


class Truss(mbd.AbstractSystem):
    """Von Mises' truss: a mass at height y between two springs whose other ends are 1 away, of free
    length 1.1, under a load."""

    load: Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        length = jnp.sqrt(1 + q**2)
        return -2 * 100 * (length - 1.1) * q / length - self.load


@jax.jit
def truss(load, start, first):
    state = mbd.State(0.0, start[None], np.zeros(1))
    found = equilibrium(Truss(load), state, first=first, throw=False)
    return found.q[0], found.report.stable, found.report.result


def test_both_states_of_a_bistable_truss():
    """Which one depends on the start; the flat one between them is unstable. Beyond the load at
    which it snaps through only the lower one is left."""
    y = np.sqrt(1.1**2 - 1)
    for start, rest in ((0.3, y), (-0.01, -y), (1e-9, y), (-3.0, -y)):
        np.testing.assert_allclose(truss(0.0, start, 1e-3)[0], rest, rtol=1e-7)
    # At the top of the curve of load over y: d/dy [200 (1 - 1.1 / sqrt(1 + y^2)) y] = 0.
    top = np.sqrt(1.1 ** (2 / 3) - 1)
    most = -200 * (1 - 1.1 / np.sqrt(1 + top**2)) * top
    for load, above in ((0.99 * most, True), (1.01 * most, False)):
        found, stable, _ = truss(load, y, 1e-3)
        assert (found > 0) == above and stable


def test_newton_steps_find_the_unstable_state_of_a_truss():
    """The three roots of 200 (1.1 / sqrt(1 + y^2) - 1) y = 1 are y = -0.4598, 0.0501 and 0.4518, of
    which the middle one is unstable. From beside each of them, the search ends there."""
    load = lambda y: 200 * (1.1 / np.sqrt(1 + y**2) - 1) * y - 1.0  # noqa: E731
    for low, high, offsets in (
        (-0.6, -0.3, (-0.1, 0.08)),
        (0.0, 0.2, (-0.02, 0.02, 0.08)),
        (0.3, 0.6, (-0.05, 0.2)),
    ):
        root = scipy.optimize.brentq(load, low, high, xtol=1e-15, rtol=1e-15)
        for offset in offsets:
            found, stable, _ = truss(1.0, root + offset, 1e3)
            np.testing.assert_allclose(found, root, atol=1e-14)
            assert stable == (abs(root) > 0.3)


class Spring(mbd.AbstractSystem):
    """A mass on a spring, under a push."""

    stiffness: Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return u - self.stiffness * q


def test_verdicts():
    """Of a force that nothing holds, also as an error. A place where spring and push differ by
    rounding is found for a tolerance of 1e-10, and not for 1e-20."""

    def found(stiffness, push, **options):
        start = mbd.State(0.0, [3.0], [0.0])
        return equilibrium(Spring(jnp.array(stiffness)), start, np.array([push]), **options)

    none = found(0.0, 1.0, throw=False)
    assert none.report.result == mbd.RESULTS.equilibrium_not_found
    assert np.all(np.isfinite(none.q))
    with pytest.raises(Exception, match="No equilibrium"):
        found(0.0, 1.0)
    near = found(35.0, 0.123)
    exact = found(35.0, 0.123, tolerance=1e-20, throw=False)
    np.testing.assert_allclose([near.q, exact.q], [[0.123 / 35]] * 2, rtol=1e-15)
    if exact.report.residual > 0:
        assert exact.report.result == mbd.RESULTS.tolerance_out_of_reach


def test_rolling():
    """A wheel that rolls without slipping until its spring balances the push, q = (place, angle):
    k angle = F r, and the place follows by r."""

    class Wheel(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.diag(jnp.array([2.0, 0.3]))

        def force(self, t, q, v, u):
            return jnp.stack([jnp.full((), 3.0), -7.0 * q[1]])

        def nonholonomic(self, q, v, t):
            return (v[0] - 0.4 * v[1])[None]

    found = equilibrium(Wheel(), mbd.State(0.0, [0.5, 0.1], [0.0, 0.0]))
    angle = 3.0 * 0.4 / 7.0
    np.testing.assert_allclose(found.q, [0.5 + 0.4 * (angle - 0.1), angle], rtol=1e-9)
