"""Failures as errors: raised after the program, which so can be kept on disk; one line each.
Derivatives of what failed: none is finite without an error, however the transformations are nested,
and that of what succeeded is right."""

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import through
from jax._src.interpreters.partial_eval import dce_jaxpr  # what `jit` does with unused results
from jax.extend.core import jaxprs_in_params

import jaxmbd as mbd
from jaxmbd import analysis

AWAY = "violates the constraints"
PUSHED, STEPS = mbd.State(0.0, [0.9, 0.0], [0.0, 0.3]), {"dt": 0.01, "num_steps": 2}
IMPULSE = mbd.VelocityImpulse()


class Rod(h.Pendulum):
    """Of this module alone, so that nothing of it is compiled before."""


def swing(length, **options):
    """The start fits only a rod of 0.9 m."""
    return mbd.simulate(Rod(length=length), IMPULSE, PUSHED, **STEPS, **options)


def reach(length, **options):
    """The place along x after the swing: its derivative needs no value of the state."""
    return swing(length, **options).q[-1, 0]


def test_programs_hold_no_callback(monkeypatch):
    """Which JAX does not keep on disk. Errors are one line, and name the failure."""
    monkeypatch.setattr(jax, "pure_callback", None)
    _, back = jax.vjp(lambda length: swing(length).q, np.array(0.9))
    assert np.isfinite(back(np.ones((1, 2)))[0])
    with pytest.raises(eqx.EquinoxRuntimeError, match=f"^[^\n]*{AWAY}[^\n]*$"):
        swing(np.array(0.8))
    with pytest.raises(eqx.EquinoxRuntimeError, match=r"^The constraints could not be[^\n]*$"):
        mbd.assemble(Rod(), [1.0, 0.1], fixed=[0])


def test_raise_if_failed():
    """Of a batch that was computed without raising: how many failed, which first, and why."""
    lengths = np.array([0.9, 0.8, 0.9, np.nan])
    batch = jax.jit(jax.vmap(lambda length: swing(length, throw=False)))(lengths)
    with pytest.raises(RuntimeError, match=f"^2 of 4 failed, the first at index 1: .*{AWAY}"):
        mbd.raise_if_failed(batch)
    with pytest.raises(RuntimeError, match="^A state or a parameter became NaN"):
        mbd.raise_if_failed({"one": jax.tree.map(lambda x: np.asarray(x)[3], batch)})
    good = jax.tree.map(lambda x: np.asarray(x)[:1], batch)
    assert mbd.raise_if_failed(good) is good
    assert mbd.raise_if_failed(3.0) == 3.0
    with pytest.raises(RuntimeError, match=AWAY):
        eqx.filter_jit(mbd.raise_if_failed)(batch)


def square(x):
    """x^2, which fails like a start that is away, but at 0.9. Its derivative needs no value."""
    away = jnp.abs(x - 0.9) > 1e-3
    bad, good = mbd.RESULTS.inconsistent_start, mbd.RESULTS.successful
    return mbd.raise_if_failed((x**2, mbd.RESULTS.where(away, bad, good)))[0]


def twice(fn):
    """The sum of fn(x) and fn(x), as a loop."""
    zero = np.zeros(())
    return lambda x: jax.lax.scan(lambda sum, _: (sum + fn(x), None), zero, None, length=2)[0]


def pair(fn):
    """fn beside a sample that succeeds."""
    return lambda x: jax.vmap(fn)(jnp.stack([jnp.full((), 0.9), x]))[1]


def tangent(fn):
    return lambda x: jax.jvp(fn, (x,), (jnp.ones_like(x),))[1]


BOTH = {"f": jax.jacfwd, "r": jax.jacrev}
# How the derivative by x is found within `jit`, and what it is.
NESTINGS = {
    "grad": (jax.grad(square), 1.8),
    "jvp": (tangent(square), 1.8),
    "lanes": (mbd.jacfwd(square), 1.8),
    "grad of jit": (jax.grad(jax.jit(square)), 1.8),
    "grad of checkpoint": (jax.grad(jax.checkpoint(square)), 1.8),
    "grad of scan": (jax.grad(twice(square)), 3.6),
    "scan of grad": (twice(jax.grad(square)), 3.6),
    "vmap of grad": (pair(jax.grad(square)), 1.8),
    "grad of vmap": (jax.grad(pair(square)), 1.8),
    "grad, 0 times": (jax.grad(lambda x: x + 0.0 * square(x)), 1.0),
    **{a + b: (BOTH[a](BOTH[b](square)), 2.0) for a in BOTH for b in BOTH},
}


@pytest.mark.parametrize("name", NESTINGS)
def test_nesting(name):
    fn, expected = NESTINGS[name]
    derivative = jax.jit(fn)
    np.testing.assert_allclose(derivative(np.array(0.9)), expected, rtol=1e-14)
    with pytest.raises(Exception, match=AWAY):
        jax.block_until_ready(derivative(np.array(0.8)))


def test_derivatives_of_a_motion():
    """In both modes against the central difference, of simulations that start beside the circle but
    do not fail."""

    @jax.jit
    def near(lengths):
        return jax.vmap(lambda x: reach(x, start_tolerance=jnp.inf))(lengths)

    slopes = jax.jit(lambda x: h.both_modes(reach, x)[1:])
    low, high = np.asarray(near(0.9 + np.array([-1e-5, 1e-5])))
    np.testing.assert_allclose(slopes(np.array(0.9)), (high - low) / 2e-5, rtol=1e-8)
    with pytest.raises(Exception, match=AWAY):
        jax.block_until_ready(slopes(np.array(0.8)))


def stepped(rod):
    stepper = mbd.Stepper(rod, IMPULSE)
    return mbd.raise_if_failed(stepper.step(stepper.init(PUSHED), 0.01)).q


def closed(rod):
    """A bar of 1 m between two ball joints."""
    rung = mbd.Body("rung", h.BOX, position=[0.1, 0.2, 0])
    far = jnp.stack([rod.length, jnp.zeros(()), jnp.zeros(())])
    joints = [
        mbd.Spherical("left", "ground", rung, points=([0, 0, 0], [-0.4, 0.2, 0])),
        mbd.Spherical("right", "ground", rung, points=(far, [0.6, 0.2, 0])),
    ]
    return mbd.close_joints(mbd.Mechanism([rung], joints)).q


def linear_motion(rod):
    still = through([0.0, 0.01], *[np.tile(x, (2, 1)) for x in (PUSHED.q, PUSHED.v)])
    return analysis.linearise_along(rod, still, jnp.zeros(2), size=2).A


def limit(rod):
    loaded = lambda load: Rod(length=rod.length, gravity=load)  # noqa: E731
    return analysis.limit_point(loaded, PUSHED, 1.0).parameter


ZEROS = np.zeros(2)
FUNCTIONS = {
    "assemble": lambda rod: mbd.assemble(rod, [0.85, 0.1], fixed=[0]).q,
    "close_joints": closed,
    "simulate": lambda rod: mbd.simulate(rod, IMPULSE, PUSHED, **STEPS).q[-1, 0],
    "step": stepped,
    "equilibrium": lambda rod: analysis.equilibrium(rod, PUSHED).q,
    "kinematics": lambda rod: analysis.kinematics(rod, PUSHED, lambda q: q[0], [0.7, 0.9]).v,
    "dead_point": lambda rod: analysis.dead_point(rod, PUSHED, lambda q: q[0] + q[1]).value,
    "accelerations": lambda rod: analysis.accelerations(rod, PUSHED),
    "inverse_dynamics": lambda rod: analysis.inverse_dynamics(rod, PUSHED, ZEROS, ZEROS).u,
    "linearise": lambda rod: analysis.linearise(rod, PUSHED, size=2).A,
    "tangent_growth": lambda rod: analysis.tangent_growth(rod, IMPULSE, PUSHED, **STEPS).log_growth,
    "limit_point": limit,
    "linearise_along": linear_motion,
}


def primitives(jaxpr):
    """The names of all operations."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from primitives(inner)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    """The check of each that raises by itself stays in programs that use only a derivative of what
    it returns."""
    traced = jax.make_jaxpr(tangent(lambda x: FUNCTIONS[name](Rod(length=x))))(0.9).jaxpr
    used, _ = dce_jaxpr(traced, [True] * len(traced.outvars))
    assert any("callback" in x for x in primitives(used))
