"""Implicit schemes on stiff forces: they are solved, to rounding, and by few Jacobians."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import jaxmbd as mbd
from jaxmbd._results import code
from jaxmbd._roots import Chord

UK = mbd.UdwadiaKalaba()
START = mbd.State(0.0, np.array([1.0, 0.0]), np.array([0.0, 3.0]))


class Elastic(mbd.AbstractSystem):
    """A mass of 1 kg on a stiff spring and damper of 1 m, which the swinging motion turns."""

    stiffness: jax.Array = h.parameter(8e5)
    rate: jax.Array = h.parameter(1.0)  # of positions by velocities

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        length = jnp.sqrt(q @ q)
        pull = self.stiffness * ((length - 1) + 5e-3 * (q @ v) / length)
        return -pull * q / length + jnp.array([0.0, -9.81])

    def qdot(self, q, v):
        return self.rate * v


@pytest.mark.parametrize(
    "scheme",
    [pytest.param(diffrax.Kvaerno5(), marks=pytest.mark.slow), mbd.methods.CrankNicolson()],
)
def test_stiffness_whose_rounding_exceeds_any_tolerance(scheme):
    """At 1e12 N/m a force is known to 1e-4 N. The spring gives way by 1e-11 m, so that the rod is
    the truth, to the first step, in which the spring takes its load: h^2."""
    found = mbd.simulate(Elastic(np.asarray(1e12)), UK, START, t1=0.1, dt=1e-3, scheme=scheme)
    rod = mbd.simulate(h.Pendulum(length=1.0), UK, START, t1=0.1, dt=1e-3)
    np.testing.assert_allclose(*(np.asarray(x.q)[-1] for x in (found, rod)), atol=1e-6)


def test_adaptive_steps_are_as_long_as_accuracy_allows():
    """With a single Jacobian for the stages of a step, the iteration failed at any longer than a
    fiftieth: 3139 steps."""
    options = dict(t1=0.2, dt=1e-3)
    found, explicit = (
        mbd.simulate(
            Elastic(),
            UK,
            START,
            scheme=scheme,
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            **options,
        )
        for scheme, tolerance in ((diffrax.Kvaerno5(), 1e-6), (diffrax.Bosh3(), 1e-8))
    )
    assert int(found.stats["num_steps"]) < 100
    np.testing.assert_allclose(*(np.asarray(x.q)[-1] for x in (found, explicit)), atol=5e-6)


@pytest.mark.parametrize("steepness, jacobians", [(0.1, 1), (3.0, 6)])
def test_jacobians(steepness, jacobians):
    """One, where the equations bend little; more, where they bend."""

    def equations(y, target):
        return jax.tree.map(lambda y, c: y + steepness * jnp.tanh(3 * y) - c, y, target)

    @jax.jit
    def solved(y):
        target = equations(y, jax.tree.map(jnp.zeros_like, y))
        start = jax.tree.map(lambda y: y + 0.2, y)
        found = optx.root_find(equations, Chord(1e-8, 1e-8, goal=1e-4), start, target)
        return found.value, found.stats["num_steps"]

    y = {"q": np.array([0.3, -1.2]), "v": np.array([2.0])}
    value, steps = solved(y)
    assert int(steps) <= jacobians
    for name in y:
        np.testing.assert_allclose(value[name], y[name], atol=1e-12)


def test_estimate_of_the_trapezoidal_rule():
    """The difference to explicit Euler: of second order, for y' = -y in closed form."""
    h = 0.1

    @jax.jit
    def step(y):
        term = diffrax.ODETerm(lambda t, y, args: -y)
        scheme = mbd.methods.CrankNicolson(root_finder=optx.Newton(1e-12, 1e-12))
        return scheme.step(term, 0.0, h, y, None, None, False)[:2]

    end = (1 - h / 2) / (1 + h / 2)
    np.testing.assert_allclose(step(np.ones(1)), [[end], [end - (1 - h)]], atol=1e-12)


def test_no_root():
    @jax.jit
    def found(y):
        finder = Chord(1e-8, 1e-8, goal=1e-4)
        options = dict(throw=False, max_steps=10)
        return optx.root_find(lambda y, _: y**2 + 1, finder, y, **options).result

    assert int(code(found(np.array([0.7])))) != int(code(optx.RESULTS.successful))


@pytest.mark.parametrize(
    "scheme",
    [pytest.param(diffrax.Kvaerno3(), marks=pytest.mark.slow), mbd.methods.CrankNicolson()],
)
def test_derivatives(scheme):
    """Of the converged stages, not of their iteration: by the stiffness and the kinematic map,
    against differences."""

    def moved(tree):
        options = dict(dt=1e-3, num_steps=5, scheme=scheme)
        return mbd.simulate(Elastic(*tree), UK, START, **options).q[-1] @ np.array([1e3, 1.0])

    # The loop of diffrax's scheme over its stages has reverse mode only.
    modes = ("reverse",) if isinstance(scheme, diffrax.Kvaerno3) else ("reverse", "forward")
    h.check_scalar(moved, (np.asarray(8e3), np.asarray(1.2)), modes=modes)
