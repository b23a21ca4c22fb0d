"""Orders of the methods with an implicit step of their own on published motions: positions,
velocities and multipliers."""

import jax.numpy as jnp
import numpy as np
import pytest
from mechanism_runs import reference
from test_reactions import START, heavy_top
from test_squeezer import Squeezer

import jaxmbd as mbd

METHODS = {"generalised_alpha": mbd.GeneralisedAlpha(0.8), "variational": mbd.Variational()}


def runs(system, method, state, t1, steps):
    """The motions with so many steps to t1, and twice as many."""
    for refined in (1, 2):
        n = refined * steps
        yield mbd.simulate(system, method, state, dt=t1 / n, num_steps=n)


def check_second_order(coarse, fine, scale):
    """Of errors of several quantities, relative to their scales."""
    coarse, fine = np.asarray(coarse) / scale, np.asarray(fine) / scale
    np.testing.assert_allclose(np.log2(coarse / fine), 2, atol=0.25)
    assert np.max(fine) < 5e-2


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_heavy_top(shared, method):
    """A top that turns by 7.5 rad in 0.05 s, its body frame in the centre of mass."""
    data = reference(shared, "heavy_top")
    point = data["reference"][0]
    start = {**START, **data["initial"]}
    mechanism, errors = heavy_top(start), []
    for sol in runs(mechanism, METHODS[method], mechanism.state(), point["t"], 100):
        lam = mbd.reports.reactions(mechanism, point["t"], sol.q[-1], sol.multipliers[-1], "ball")
        found = sol.q[-1, :3], sol.v[-1, :3], lam.force
        expected = point["x_com"], point["v_com"], point["reaction_on_body"]
        errors.append([np.linalg.norm(x - np.array(y)) for x, y in zip(found, expected)])
        assert sol.phi_norm[-1] < 1e-12 and sol.phidot_norm[-1] < 1e-11
    check_second_order(*errors, scale=[1.0, 4.5, 450.0])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_squeezer(shared, method):
    data = reference(shared, "andrews_squeezer")
    point = next(p for p in data["reference"] if abs(p["t"] - 0.01) < 1e-9)
    system, errors = Squeezer(data["parameters"]), []
    state = mbd.State(0.0, jnp.array(data["initial"]["q"]), jnp.array(data["initial"]["v"]))
    for sol in runs(system, METHODS[method], state, point["t"], 1000):
        found = sol.q[-1], sol.v[-1], -sol.multipliers[-1]  # M a = f - G^T lambda there
        expected = point["q"], point["v"], point["lambda"]
        errors.append([np.linalg.norm(x - np.array(y)) for x, y in zip(found, expected)])
    scale = [np.linalg.norm(point[name]) for name in ("q", "v", "lambda")]
    check_second_order(*errors, scale=scale)
