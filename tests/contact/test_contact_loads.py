"""What contacts do between saved times: impulses against the balance of momentum."""

import diffrax
import helpers
import jax
import numpy as np
import pytest
from contact_systems import moved, point, stepped

import jaxmbd as mbd
from jaxmbd._compiler import to_jax

DT, STEPS = 1e-2, 84
# One that bounces, and one that lands and slides.
POINTS = (
    point([0.0, 0.0, 0.4], [2.0, 0.0, -1.0], restitution=0.6),
    point([0.0, 0.0, 0.05], [0.0, 0.0, 0.5]),
)
TIMES = np.array([0.0, 0.083, 0.0857, 0.0881, 0.2, 0.2, 0.31, 0.3333, 0.6, 0.77, 0.8203])
EVERY_SEVENTH, BETWEEN = diffrax.SaveAt(steps=7), diffrax.SaveAt(ts=to_jax(TIMES), t1=True)


@pytest.mark.parametrize(
    "saveat, impacts",
    helpers.slow_unless(
        lambda saveat, _: saveat.subs.steps == 7, [(EVERY_SEVENTH, 0), (BETWEEN, 0), (BETWEEN, 2)]
    ),
    ids=["every seventh", "between steps", "located"],
)
def test_impulses_balance_momentum_whatever_is_saved(saveat, impacts):
    """And are those of the forces of every step; the peaks are the largest of these."""
    method = mbd.ContactImpulse(impacts=helpers.located(impacts))

    @jax.jit
    @jax.vmap
    def loads(p):
        sol = moved(p, method, soft=False, dt=DT, num_steps=STEPS, saveat=saveat, throw=False)
        return sol.t, sol.v, jax.tree.map(lambda x: x[:, 0], sol.contact_loads)

    found = jax.device_get(loads(jax.tree.map(lambda *x: np.stack(x), *POINTS)))
    for k, p in enumerate(POINTS):
        t, v, (impulse, mean, peak) = jax.tree.map(lambda x, k=k: x[k], found)
        given = p["mass"] * (v - p["v"] - t[:, None] * p["gravity"])
        np.testing.assert_allclose(np.cumsum(impulse, axis=0), given[:, [2, 0, 1]], atol=1e-12)
        np.testing.assert_allclose(mean * np.diff(t, prepend=0)[:, None], impulse, atol=1e-12)
        if saveat is EVERY_SEVENTH:
            force = stepped(p, DT, STEPS)[2].reshape(-1, 7, 3)
            np.testing.assert_allclose(impulse, DT * force.sum(axis=1), atol=1e-10)
            np.testing.assert_allclose(peak[:, 0], force[..., 0].max(axis=1), rtol=1e-10)


def test_plots_draw_all_that_happened():
    """The means since the saved time before, and not the last step's forces."""
    pytest.importorskip("matplotlib").use("Agg")
    ball = mbd.Body("ball", mbd.Inertia.sphere(radius=0.1, mass=1.0), position=[0.0, 0.0, 0.1])
    floor = mbd.Contact("c", "ground", ball, mbd.HalfSpace(), mbd.Sphere(0.1), friction=0.5)
    mechanism = mbd.Mechanism([ball], contacts=[floor], gravity=[0.0] * 3)
    rest, none, mean = mechanism.state(), np.zeros((3, 1, 3)), np.zeros((3, 1, 3))
    mean[1, 0, 0] = 30.0
    q, v = (np.tile(x, (3, 1)) for x in (rest.q, rest.v))
    t, q, v, none, mean = jax.device_put((np.arange(3.0), q, v, none, mean))
    fields = dict(multipliers=None, phi_norm=None, phidot_norm=None, ys=None, stats={})
    loads = mbd.reports.ContactLoads(none, mean, none)
    forces = dict(contact_force=none, contact_loads=loads)
    sol = mbd.Solution(t, q, v, result=mbd.RESULTS.successful, **forces, **fields)
    axes = mbd.plots.contacts(mechanism, sol)
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), [0.0, 30.0, 0.0])
