"""Static equilibria against closed forms, in both modes of differentiation."""

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from analysis_systems import four_bar
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import equilibrium


class Hanging(mbd.AbstractSystem):
    """A point mass on a spring of no free length from (0, 0), which a rail, stated twice, keeps at
    x = reach, and a force in u."""

    mass: Array
    stiffness: Array
    reach: Array

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2)

    def force(self, t, q, v, u):
        weight = jnp.stack([jnp.zeros_like(self.mass), -9.81 * self.mass])
        return weight - self.stiffness * q + u

    def constraint(self, q, t):
        row = q[0] - self.reach
        return jnp.stack([row, 2 * row])


VALUES = np.array([0.7, 35.0, 0.4, 2.0])


def hanging(values):
    """Where it hangs and the reaction, from a start that violates the rows."""
    mass, stiffness, reach, push = values
    start = mbd.State(0.0, [0.0, 3.0], [0.0, 0.0])
    u = jnp.stack([jnp.zeros_like(push), push])
    state = equilibrium(Hanging(mass, stiffness, reach), start, u)
    lam = state.report.multipliers
    return jnp.stack([state.q[0], state.q[1], lam[0] + 2 * lam[1]])


def test_hanging_mass_and_its_derivatives():
    """y = (u_y - m g) / k and the reaction k reach - u_x, with redundant rows."""
    m, k, x, u = VALUES
    many = jax.jit(jax.vmap(hanging))(jnp.array([VALUES, 2 * VALUES]))
    np.testing.assert_allclose(many[0], [x, (u - m * 9.81) / k, k * x], rtol=1e-9)
    np.testing.assert_allclose(many[:, 1], np.full(2, (u - m * 9.81) / k))
    expected = [[0, 0, 1, 0], [-9.81 / k, -(u - m * 9.81) / k**2, 0, 1 / k], [0, x, k, 0]]
    for jacobian in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(jacobian(hanging))(VALUES), expected, atol=1e-8)


@pytest.mark.slow
def test_second_derivative_of_where_a_mass_hangs():
    m, k, _, u = VALUES
    along_k = jnp.array([0.0, 1.0, 0.0, 0.0])
    _, second = jax.jit(lambda x: jax.jvp(jax.jacfwd(hanging), (x,), (along_k,)))(VALUES)
    np.testing.assert_allclose(second[1, 1], 2 * (u - m * 9.81) / k**3, rtol=1e-6)


def test_stiffness_and_stability():
    """Stiffness k / m along the rail; a pendulum ends hanging from beside its upper rest, at which
    it stays if it starts there."""
    system = Hanging(*jnp.array([0.5, 8.0, 0.1]))
    found = equilibrium(system, mbd.State(0.0, [0.1, 0.0], [0.0, 0.0]), jnp.zeros(2))
    np.testing.assert_allclose(found.report.stiffness, [16.0, np.inf], rtol=1e-9)
    assert found.report.stable

    pendulum = h.Pendulum(length=0.8)
    hangs = equilibrium(pendulum, mbd.State(0.0, [0.01, 0.8], [0.0, 0.0]))
    np.testing.assert_allclose(hangs.q, [0.0, -0.8], atol=1e-8)
    assert hangs.report.stable
    upright = equilibrium(pendulum, mbd.State(0.0, [0.0, 0.8], [0.0, 0.0]))
    np.testing.assert_allclose(upright.q, [0.0, 0.8], atol=1e-12)
    assert not upright.report.stable
    np.testing.assert_allclose(upright.report.stiffness[0], -float(pendulum.gravity) / 0.8)


class Truss(mbd.AbstractSystem):
    """Von Mises' truss: a mass at height y between two springs whose other ends are 1 away, of free
    length 1.1, under a load."""

    load: Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        length = jnp.sqrt(1 + q**2)
        return -2 * 100 * (length - 1.1) * q / length - self.load


def test_both_states_of_a_bistable_truss():
    """Which one depends on the start; the flat one between them is unstable. Beyond the load at
    which it snaps through only the lower one is left."""
    y = np.sqrt(1.1**2 - 1)
    for start, rest in ((0.3, y), (-0.01, -y), (1e-9, y), (-3.0, -y)):
        found = equilibrium(Truss(jnp.array(0.0)), mbd.State(0.0, [start], [0.0]))
        np.testing.assert_allclose(found.q, [rest], rtol=1e-7)
    # At the top of the curve of load over y: d/dy [200 (1 - 1.1 / sqrt(1 + y^2)) y] = 0.
    top = np.sqrt(1.1 ** (2 / 3) - 1)
    most = -200 * (1 - 1.1 / np.sqrt(1 + top**2)) * top
    for load, above in ((0.99 * most, True), (1.01 * most, False)):
        found = equilibrium(Truss(jnp.array(load)), mbd.State(0.0, [y], [0.0]))
        assert (found.q[0] > 0) == above
        assert found.report.stable


@jax.jit
def newton_from(start):
    return equilibrium(Truss(jnp.array(1.0)), mbd.State(0.0, start, jnp.zeros(1)), first=1e3)


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
            found = newton_from(jnp.array([root + offset]))
            np.testing.assert_allclose(found.q, [root], atol=1e-14)
            assert found.report.stable == (abs(root) > 0.3)


def test_accuracy_does_not_depend_on_the_start():
    """A pendulum of two point masses hangs to rounding, from beside and from far, and however weak
    gravity is."""

    @jax.jit
    def hangs(start, gravity):
        chain = HangingChain(gravity)
        return equilibrium(chain, mbd.State(0.0, start, jnp.zeros(4)), throw=False)

    for gravity in (9.81, 1e-12):
        for start in ([1e-3, -1, 0, -2], [0.9, 0.2, 1.3, -0.6], [30.0, 10.0, -50.0, 80.0]):
            found = hangs(jnp.array(start, float), gravity)
            assert found.report.result == mbd.RESULTS.successful
            np.testing.assert_allclose(found.q, [0, -1, 0, -2], atol=1e-13)


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


def test_tolerance_that_rounding_does_not_allow():
    """The spring and the weight are known to 16 digits only: one at a place where they differ by
    rounding is found for a tolerance of 1e-10, and not for 1e-20."""
    system = Hanging(*jnp.array([0.7, 35.0, 0.4]))
    start = mbd.State(0.0, [0.4, 3.0], [0.0, 0.0])
    found = [
        equilibrium(system, start, 0.123 * np.ones(2), tolerance=tolerance, throw=False)
        for tolerance in (1e-10, 1e-20)
    ]
    assert found[0].report.result == mbd.RESULTS.successful
    np.testing.assert_allclose(found[1].q, found[0].q, rtol=1e-15)
    if found[1].report.residual > 0:
        assert found[1].report.result == mbd.RESULTS.tolerance_out_of_reach


def test_none():
    """A force that nothing holds, as a verdict and as an error."""

    class Pushed(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.eye(1)

        def force(self, t, q, v, u):
            return jnp.ones(1)

    start = mbd.State(0.0, [0.0], [0.0])
    found = equilibrium(Pushed(), start, throw=False)
    assert found.report.result == mbd.RESULTS.equilibrium_not_found
    assert np.all(np.isfinite(found.q))
    with pytest.raises(Exception, match="No equilibrium"):
        equilibrium(Pushed(), start)


@pytest.mark.slow
def test_four_bar():
    """Closed loop in space, 20 rows of rank 17: energy is least, and the torque of gravity on the
    crank is none."""
    mechanism = four_bar()
    found = equilibrium(mechanism, mechanism.state(), jnp.zeros(1))
    assert found.report.stable
    assert np.sum(np.isfinite(found.report.stiffness)) == 1

    def height(state):
        return sum(
            float(mechanism.pose(state.q, body.name).position[2]) for body in mechanism.bodies
        )

    for turn in (-1e-2, 1e-2):
        crank = state_near(mechanism, found, turn)
        assert height(crank) > height(found)


def state_near(mechanism, state, turn):
    # The angular velocity of the crank about y: components first, then bodies.
    v = jnp.zeros(18).at[12].set(1.0)
    drift = mbd.assemble(mechanism, state.q, v, fixed_velocities=[12]).v
    return mbd.assemble(mechanism, mechanism.retract(state.q, turn * drift))


@pytest.mark.slow
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


class Chain(mbd.AbstractSystem):
    """Point masses joined by rigid rods, hanging from (0, 0) and (span, 0); the total length is 1.5
    and the total mass 1, with half a rod's mass at each end."""

    count: int = eqx.field(static=True)
    span: Array

    def mass_matrix(self, q):
        return jnp.eye(2 * self.count - 2) / self.count

    def force(self, t, q, v, u):
        return jnp.tile(jnp.array([0.0, -9.81 / self.count]), self.count - 1)

    def constraint(self, q, t):
        inner = q.reshape(-1, 2)
        ends = jnp.stack([jnp.zeros(2), jnp.stack([self.span, 0 * self.span])])
        places = jnp.concatenate([ends[:1], inner, ends[1:]])
        rods = jnp.diff(places, axis=0)
        return jnp.sum(rods**2, axis=1) - (1.5 / self.count) ** 2


class UnevenChain(Chain):
    """The same with rods of these lengths."""

    lengths: Array

    def constraint(self, q, t):
        even = super().constraint(q, t) + (1.5 / self.count) ** 2
        return even - self.lengths**2


@pytest.mark.slow
def test_start_far_off_the_constraints():
    """Rods of up to nine times the length of others, from masses at equal distances. In the
    equilibrium the horizontal force is the same in all rods. So from each rod to the next the slope
    grows by the same amount, the weight of a mass over this force."""
    lengths = np.random.default_rng(0).uniform(0.2, 1.8, 24)
    lengths *= 1.5 / np.sum(lengths)
    x = np.linspace(0, 1, 25)[1:-1]
    start = np.stack([x, -2 * x * (1 - x)], axis=1)
    found = equilibrium(
        UnevenChain(24, jnp.array(1.0), jnp.asarray(lengths)),
        mbd.State(0.0, start.ravel(), np.zeros(46)),
    )
    places = np.concatenate([np.zeros((1, 2)), found.q.reshape(-1, 2), [[1.0, 0.0]]])
    rods = np.diff(places, axis=0)
    np.testing.assert_allclose(np.linalg.norm(rods, axis=1), lengths, rtol=1e-8)
    growth = np.diff(rods[:, 1] / rods[:, 0])
    np.testing.assert_allclose(growth, growth[0], rtol=1e-6)
    assert growth[0] > 0.1 and found.report.stable


@pytest.mark.slow
def test_chain_tends_to_the_catenary():
    """The sag converges to that of the catenary with the second order; so does its derivative by
    the span."""

    def sag(span, count):
        x = np.linspace(0, 1, count + 1)[1:-1]
        start = np.stack([x, -2 * x * (1 - x)], axis=1).ravel()
        found = equilibrium(Chain(count, span), mbd.State(0.0, start, np.zeros(2 * count - 2)))
        return found.q[count - 1]

    # span = 2 a arsinh(L / (2 a)), sag = a (cosh(span / (2 a)) - 1)
    def catenary(span):
        low, high = 0.01, 10.0
        for _ in range(200):
            a = (low + high) / 2
            low, high = (a, high) if 2 * a * np.arcsinh(1.5 / (2 * a)) < span else (low, a)
        return -a * (np.cosh(span / (2 * a)) - 1)

    exact = np.array([catenary(1.0), (catenary(1.0 + 1e-5) - catenary(1.0 - 1e-5)) / 2e-5])
    errors = []
    for count in (12, 24):
        along = lambda x, count=count: jax.jvp(lambda x: sag(x, count), (x,), (x,))  # noqa: E731
        errors.append(np.abs(np.array(jax.jit(along)(1.0)) - exact))
    np.testing.assert_allclose(np.log2(errors[0] / errors[1]), 2.0, atol=0.1)
