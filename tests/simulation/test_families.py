"""Each family of steps: its order, a batch, failures, float32, and derivatives in both modes."""

import functools

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import FAMILIES, STEPS, ends
from scipy.spatial.transform import Rotation

import jaxmbd as mbd

R = mbd.RESULTS
VERDICTS = [R.successful, R.successful, R.nonfinite_state, R.inconsistent_start]
all_families = pytest.mark.parametrize("name", FAMILIES)


def batch(family):
    """Twice the step; the step; a velocity that is no number; and a start that violates rows."""
    q, v = (np.tile(x, (4, 1)) for x in family.start)
    v[2, 0] = np.nan
    q[3, 2] += 0.1
    return q, v, family.dt * np.array([2.0, 1.0, 1.0, 1.0])


@functools.cache
def found(name):
    family = FAMILIES[name]
    system, _, control = family.problem
    return ends(system, family.method, control, *batch(family))


@all_families
def test_order(name):
    family, (q, v) = FAMILIES[name], map(np.asarray, found(name)[:2])
    exact = np.concatenate(family.problem[1](STEPS * family.dt))
    coarse, fine = (np.linalg.norm(np.concatenate([q[i, i], v[i, i]]) - exact) for i in (0, 1))
    assert abs(np.log2(coarse / fine) - family.order) < 0.25
    assert fine < (1e-6 if family.order == 4 else 3e-1 if family.order == 1 else 1e-2)


@all_families
def test_failures_of_a_batch(name):
    """Each sample has its own verdict. Those that fail stay where they were."""
    *numbers, result = found(name)
    q, v, lam = map(np.asarray, numbers)
    h.assert_verdicts(result, VERDICTS)
    starts, _, _ = batch(FAMILIES[name])
    np.testing.assert_array_equal(q[2:], np.broadcast_to(starts[2:, None], q[2:].shape))
    for x in (q, lam, v):
        assert np.all(np.isfinite(x[[0, 1, 3]]))


@all_families
def test_float32(name):
    """All numbers stay float32. Where equations are iterated they are solved to its rounding: 6e-8,
    of positions of 1 and velocities of 10."""
    family = FAMILIES[name]
    system, _, control = family.problem
    *given, numbers = h.cast((system, family.method, control, batch(family)), "float32")
    given = *given, *numbers
    if name not in ("independent", "generalised alpha"):
        *single, _ = eqx.filter_eval_shape(ends, *given)
    else:
        *single, result = ends(*given)
        h.assert_verdicts(result, VERDICTS)
        for x, exact, atol in zip(single[:2], found(name)[:2], (3e-5, 3e-4), strict=True):
            x, exact = np.asarray(x), np.asarray(exact)
            np.testing.assert_allclose(x[:2], exact[:2], rtol=0, atol=atol)
    assert {x.dtype for x in single} == {np.dtype("float32")}


# The others are differentiated over a step in enforcement/test_steps.py, and in test_gradients.py.
@pytest.mark.parametrize("name", ["rolled", "independent", "generalised alpha", "variational"])
def test_derivatives(name):
    """By all parameters, also of the control, the start and the step, in both modes."""
    family = FAMILIES[name]
    system, _, control = family.problem
    tree = system, family.method, control, *family.start, np.asarray(0.02)
    tree, fixed = eqx.partition(tree, eqx.is_inexact_array_like)

    def moved(system, method, control, state, dt):
        if name == "rolled":
            options = dict(num_steps=6, control=control, start_tolerance=jnp.inf)
            sol = mbd.simulate(system, method, state, dt=dt, **options)
            return sol.q[-1], sol.v[-1], sol.multipliers[-1]
        stepper = mbd.Stepper(system, method)
        start = stepper.init(state, start_tolerance=jnp.inf)
        end, _ = jax.lax.scan(
            lambda x, _: (stepper.step(x, dt, control), None), start, None, length=3
        )
        return end.q, end.v, end.multipliers

    def loss(tree):
        system, method, control, q, v, dt = eqx.combine(tree, fixed)
        ends = moved(system, method, control, mbd.State(0.0, q, v), dt)
        ends = jnp.concatenate(jax.tree.leaves(ends))
        return jnp.cos(1.0 + jnp.arange(ends.size, dtype=float)) @ ends

    h.check_scalar(loss, tree)


class Tumbling(mbd.AbstractSystem):
    """A ball that turns at a constant rate."""

    coordinates = mbd.QuaternionWorld()

    def mass_matrix(self, q):
        return jnp.eye(3)

    def force(self, t, q, v, u):
        return jnp.zeros(3)


@pytest.mark.parametrize("method", [mbd.UdwadiaKalaba(), mbd.GeneralisedAlpha()])
def test_quaternions_come_back_to_unit_length(method):
    stepper, v = mbd.Stepper(Tumbling(), method), np.array([1.0, -2.0, 0.5])
    end = stepper.step(stepper.init(mbd.State(0.0, np.array([1.01, 0.0, 0.0, 0.0]), v)), 0.01)
    exact = Rotation.from_rotvec(0.01 * v).as_quat(scalar_first=True)
    np.testing.assert_allclose(end.q, exact, rtol=0, atol=1e-4)  # the correction takes a step
