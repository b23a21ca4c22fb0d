"""What contacts do between saved times: impulses against the balance of momentum."""

import diffrax
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import point, stepped
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd._concrete import to_jax

G, MASS, DT, STEPS = 9.81, 1.3, 1e-2, 84


class Pucks(mbd.AbstractSystem):
    """Two points (x, y) above a rough ground."""

    friction: Array
    restitution: Array

    def mass_matrix(self, q):
        return MASS * jnp.eye(4, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -G * MASS * jnp.array([0.0, 1.0, 0.0, 1.0])

    def gap(self, q, t):
        return q[1::2]

    def slip(self, q, v, t):
        return v[0::2, None]

    @property
    def contact_law(self):
        return mbd.ContactLaw(self.friction, restitution=self.restitution)


START, RESTITUTION = (np.array([0.0, 0.4, 0.0, 0.05]), np.array([2.0, 0.0, -1.0, 0.5])), (0.6, 0.0)


def thrown(saveat, impacts=0, friction=0.3):
    """One that bounces, and one that lands and slides."""
    system = Pucks(*map(jax.device_put, (np.asarray(friction), np.array(RESTITUTION))))
    state = mbd.State(0.0, *START)
    method = mbd.ContactImpulse(impacts=helpers.located(impacts))
    return mbd.simulate(system, method, state, dt=DT, num_steps=STEPS, saveat=saveat)


def of_each_step():
    """Forces (normal, along) of both in each step, by its formulas."""
    forces = []
    for k, e in enumerate(RESTITUTION):
        (x, y), (vx, vy) = (z[2 * k : 2 * k + 2] for z in START)
        p = dict(mass=MASS, friction=0.3, restitution=e, u=[0.0] * 3)
        forces.append(stepped(point([x, 0.0, y], [vx, 0.0, vy], **p), DT, STEPS)[2][:, :2])
    return np.stack(forces, axis=1)


def given(v, t):
    """Impulses (normal, along) of both until t: m (v - v(0)), and what the weight took."""
    change = MASS * (np.asarray(v) - START[1]).reshape(-1, 2, 2)
    change[..., 1] += MASS * G * np.asarray(t)[:, None]
    return change[..., ::-1]


TIMES = np.array([0.0, 0.083, 0.0857, 0.0881, 0.2, 0.2, 0.31, 0.3333, 0.6, 0.77, 0.8203])


@pytest.mark.parametrize(
    "saveat",
    [
        diffrax.SaveAt(steps=7),
        *(
            pytest.param(saveat, marks=pytest.mark.slow)
            for saveat in (
                diffrax.SaveAt(t1=True),
                diffrax.SaveAt(t0=True, steps=9, t1=True),
                diffrax.SaveAt(ts=to_jax(TIMES), t1=True),
                diffrax.SaveAt(t0=True, ts=to_jax(DT * np.array([3.0, 20.0, 20.0, 50.0]))),
            )
        ),
    ],
    ids=["every seventh", "end", "every ninth and ends", "between steps", "at steps"],
)
def test_impulses_balance_momentum_whatever_is_saved(saveat):
    """And are those of the forces of every step; the peaks are the largest of these."""
    force = of_each_step()
    assert np.max(force[:, 0, 0]) > 20 * MASS * G  # an impact in one step
    sol = thrown(saveat)
    impulse, mean, peak = (np.asarray(x) for x in sol.contact_loads)
    np.testing.assert_allclose(np.cumsum(impulse, axis=0), given(sol.v, sol.t), atol=1e-12)
    t = np.asarray(sol.t)
    before = np.concatenate([[0.0], t[:-1]])
    np.testing.assert_allclose(mean * (t - before)[:, None, None], impulse, atol=1e-12)
    if np.allclose(t, DT * np.round(t / DT)):
        for i, (a, b) in enumerate(zip(before, t, strict=True)):
            steps = force[round(a / DT) : round(b / DT)]
            np.testing.assert_allclose(impulse[i], DT * np.sum(steps, axis=0), atol=1e-10)
            expected = np.max(steps[:, :, 0], axis=0, initial=0.0)
            np.testing.assert_allclose(peak[i, :, 0], expected, rtol=1e-10)


@pytest.mark.slow
def test_located_impulses_balance_momentum():
    sol = thrown(diffrax.SaveAt(ts=to_jax(TIMES), t1=True), 2)
    impulse = np.cumsum(sol.contact_loads.impulse, axis=0)
    np.testing.assert_allclose(impulse, given(sol.v, sol.t), atol=1e-12)


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
    loads = mbd.ContactLoads(none, mean, none)
    result = mbd.RESULTS.successful
    forces = dict(contact_force=none, contact_loads=loads)
    sol = mbd.Solution(t, q, v, result=result, **forces, **fields)
    axes = mbd.plots.contacts(mechanism, sol)
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), [0.0, 30.0, 0.0])
