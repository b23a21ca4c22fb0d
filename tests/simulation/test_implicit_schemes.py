"""Implicit schemes on stiff forces: they are solved, to rounding, and by few Jacobians."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import jaxmbd as mbd
from jaxmbd._simulation.chord import Chord

UK = mbd.UdwadiaKalaba()
START = mbd.State(0.0, np.array([1.0, 0.0]), np.array([0.0, 3.0]))


class Elastic(mbd.AbstractSystem):
    """A mass of 1 kg on a stiff spring and damper of 1 m, which the swinging motion turns."""

    stiffness: jax.Array = h.parameter(8e5)

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        length = jnp.sqrt(q @ q)
        pull = self.stiffness * ((length - 1) + 5e-3 * (q @ v) / length)
        return -pull * q / length + jnp.array([0.0, -9.81])


class Rigid(mbd.AbstractSystem):
    """The same on a rod."""

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81])

    def constraint(self, q, t):
        return (q @ q - 1) / 2


@pytest.mark.parametrize(
    "scheme", [pytest.param(diffrax.Kvaerno5(), marks=pytest.mark.slow), mbd.CrankNicolson()]
)
def test_stiffness_whose_rounding_exceeds_any_tolerance(scheme):
    """At 1e12 N/m a force is known to 1e-4 N. The spring gives way by 1e-11 m, so that the rod is
    the truth, to the first step, in which the spring takes its load: h^2."""
    found = mbd.simulate(Elastic(jnp.array(1e12)), UK, START, t1=0.1, dt=1e-3, scheme=scheme)
    rod = mbd.simulate(Rigid(), UK, START, t1=0.1, dt=1e-3)
    np.testing.assert_allclose(found.q[-1], rod.q[-1], atol=1e-6)


def test_adaptive_steps_are_as_long_as_accuracy_allows():
    """With a single Jacobian for the stages of a step, the iteration failed at any longer than a
    fiftieth: 3139 steps."""
    options = dict(t1=0.2, dt=1e-3)
    control = diffrax.PIDController(rtol=1e-6, atol=1e-6)
    found = mbd.simulate(
        Elastic(), UK, START, scheme=diffrax.Kvaerno5(), stepsize_controller=control, **options
    )
    control = diffrax.PIDController(rtol=1e-10, atol=1e-10)
    explicit = mbd.simulate(
        Elastic(), UK, START, scheme=diffrax.Dopri8(), stepsize_controller=control, **options
    )
    assert int(found.stats["num_steps"]) < 100
    np.testing.assert_allclose(found.q[-1], explicit.q[-1], atol=5e-6)


def test_adaptive_steps_that_are_not_solved():
    """A scheme that fails at the shortest step allowed."""

    class Snap(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.eye(1)

        def force(self, t, q, v, u):
            return -10 * jnp.arctan(1e3 * q)

    sol = mbd.simulate(
        Snap(),
        UK,
        mbd.State(0.0, np.array([1.0]), np.array([0.0])),
        t1=1.0,
        dt=0.5,
        scheme=mbd.CrankNicolson(),
        stepsize_controller=diffrax.PIDController(
            rtol=1e-3, atol=1e-3, dtmin=0.5, force_dtmin=True
        ),
        throw=False,
    )
    assert sol.result == mbd.RESULTS.implicit_scheme_unsolved


@pytest.mark.parametrize("steepness, jacobians", [(0.1, 1), (3.0, 6)])
def test_jacobians(steepness, jacobians):
    """One, where the equations bend little; more, where they bend."""

    def equations(y, target):
        return jax.tree.map(lambda y, c: y + steepness * jnp.tanh(3 * y) - c, y, target)

    y = {"q": jnp.array([0.3, -1.2]), "v": jnp.array([2.0])}
    target = equations(y, jax.tree.map(jnp.zeros_like, y))
    start = jax.tree.map(lambda y: y + 0.2, y)
    found = optx.root_find(equations, Chord(1e-8, 1e-8, goal=1e-4), start, target)
    assert int(found.stats["num_steps"]) <= jacobians
    for name in y:
        np.testing.assert_allclose(found.value[name], y[name], atol=1e-12)


def test_no_root():
    finder = Chord(1e-8, 1e-8, goal=1e-4)
    found = optx.root_find(
        lambda y, _: y**2 + 1, finder, jnp.array([0.7]), throw=False, max_steps=10
    )
    assert found.result != optx.RESULTS.successful


@pytest.mark.parametrize(
    "scheme", [pytest.param(diffrax.Kvaerno3(), marks=pytest.mark.slow), mbd.CrankNicolson()]
)
def test_derivatives(scheme):
    """By the stiffness, against central differences, whose own error is 1e-7 of them."""

    def moved(k):
        sol = mbd.simulate(Elastic(k), UK, START, dt=1e-3, num_steps=5, scheme=scheme)
        return sol.q[-1, 0]

    k, e = jnp.array(8e3), 1.0
    expected = (moved(k + e) - moved(k - e)) / (2 * e)
    np.testing.assert_allclose(jax.jit(jax.grad(moved))(k), expected, rtol=1e-6)
    if not isinstance(scheme, diffrax.Kvaerno3):  # whose loop over stages has reverse mode only
        np.testing.assert_allclose(jax.jit(jax.jacfwd(moved))(k), expected, rtol=1e-6)
