"""Rows that begin and cease to act during one compiled motion, against closed forms."""

import diffrax
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from refusals import check_refused, refusals

import jaxmbd as mbd

G, LENGTH, DT = 9.81, 1.0, 1e-3


class Rope(mbd.AbstractSystem):
    """A point mass on a rope that begins to hold when it is taut, and is cut at a time."""

    mass: Float[Array, ""]
    cut: Float[Array, ""]

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.mass * G * jnp.stack([jnp.zeros_like(self.mass), jnp.ones_like(self.mass)])

    def constraint(self, q, t):
        return jnp.sqrt(q @ q) - LENGTH

    def switch(self, q, v, t, active):
        taut = (q @ q >= LENGTH**2) & (q @ v > 0)
        return (active | taut) & (t < self.cut - 0.5 * DT)


def swing(method, speed, t1, cut=10.0, mass=2.0, **options):
    """Thrown along x from inside of the rope's circle."""
    state = mbd.State(0.0, np.array([0.6, -0.3]), np.array([speed, 0.0]))
    options = {"saveat": diffrax.SaveAt(t0=True, steps=1), **options}
    if not isinstance(method, mbd.VelocityImpulse):
        options["scheme"] = helpers.midpoint()
    return mbd.simulate(Rope(mass, cut), method, state, t1=t1, dt=DT, **options)


@pytest.mark.parametrize(
    "method",
    [mbd.LagrangeMultipliers(), pytest.param(mbd.VelocityImpulse(), marks=pytest.mark.slow)],
    ids=["multipliers", "impulse"],
)
def test_rope(method):
    sol = swing(method, 1.5, t1=0.6, cut=0.5)
    taut = np.asarray(sol.active)[:, 0]
    begins, ends = np.flatnonzero(np.diff(taut))
    # Free as a parabola, and without a load, until the first grid point outside of the circle.
    t, q, v = (np.asarray(x) for x in (sol.t, sol.q, sol.v))
    fall = -0.3 - G * t**2 / 2
    outside = np.flatnonzero((0.6 + 1.5 * t) ** 2 + fall**2 >= LENGTH**2)[0]
    assert abs(begins - outside) <= 1
    np.testing.assert_allclose(q[:begins, 0], 0.6 + 1.5 * t[:begins], rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(sol.multipliers)[:begins], 0.0)
    # The impact leaves what is across the rope: in the step after it, but for what a step does.
    e = q[begins] / np.linalg.norm(q[begins])
    across = v[begins] - (v[begins] @ e) * e
    assert v[begins] @ e > 0.5
    np.testing.assert_allclose(v[begins + 1], across, atol=3 * G * DT)
    assert np.max(np.abs(np.linalg.norm(q[begins + 3 : ends], axis=1) - LENGTH)) < 1e-5
    # Then a pendulum, with its energy, to first order or better; and after the cut a parabola.
    energy = 0.5 * np.sum(v**2, axis=1) + G * q[:, 1]
    assert np.ptp(energy[begins + 3 : ends]) < 5e-2
    assert abs(t[ends] - 0.5) < 1e-9
    s = t[ends:] - t[ends]
    np.testing.assert_allclose(q[ends:, 0], q[ends, 0] + s * v[ends, 0], rtol=1e-10)
    np.testing.assert_array_equal(taut[ends + 1 :], False)


def shafts(inertia):
    """Two shafts in line, of which a clutch makes one for some time."""
    bodies = [
        mbd.Body(name, mbd.Inertia(1.0, [0.4, 0.4, moment]), angular_velocity=[0, 0, rate])
        for name, moment, rate in (("a", inertia, 4.0), ("b", 0.1, -2.0))
    ]
    place = dict(point=[0, 0, 0], axis=[0, 0, 1])
    bearings = [mbd.Revolute(f"of {body.name}", "ground", body, **place) for body in bodies]

    def slip(poses, twists, t):
        return twists[0].angular[2:] - twists[1].angular[2:]

    clutch = mbd.Constraint("clutch", ["a", "b"], None, velocity_fn=slip)
    closed = lambda mechanism, q, v, t, active: (t >= 0.295) & (t < 0.595)  # noqa: E731
    return mbd.Mechanism(bodies, [*bearings, clutch], switches={"clutch": closed})


@pytest.mark.slow
def test_clutch():
    """The common rate by the momentum that both have, and its derivative."""

    def rates(inertia):
        mechanism, saveat = shafts(inertia), diffrax.SaveAt(steps=1)
        options = dict(t1=1.0, dt=0.01, saveat=saveat)
        sol = mbd.simulate(mechanism, mbd.ContactImpulse(), mechanism.state(), **options)
        return sol.v.reshape(-1, 6, 2)[:, 5], sol

    along = jax.jit(lambda x: jax.jvp(rates, (x,), (jnp.ones_like(x),), has_aux=True))
    rate, slope, sol = along(np.asarray(0.3))
    row = shafts(0.3).rows("clutch")
    active = np.asarray(sol.active)
    np.testing.assert_array_equal(np.flatnonzero(np.diff(active[:, row[0]])), [29, 59])
    assert np.all(np.delete(active, row, axis=1))  # the bearings
    np.testing.assert_allclose(rate[:29], np.tile([4.0, -2.0], (29, 1)), rtol=1e-12)
    np.testing.assert_allclose(rate[30:], 4.0 - 0.1 * 6.0 / 0.4, rtol=1e-12)
    np.testing.assert_allclose(slope[30:], 0.1 * 6.0 / 0.4**2, rtol=1e-10)
    np.testing.assert_array_equal(sol.multipliers[60:, row], 0.0)


class Coupling(mbd.AbstractSystem):
    """Two masses on springs, which couple when they are a distance apart."""

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([1.0, 2.0]))

    def force(self, t, q, v, u):
        return -0.1 * q

    def constraint(self, q, t):
        return q[:1] - q[1:] - 0.5

    def switch(self, q, v, t, active):
        return active | (q[:1] - q[1:] >= 0.5)


def test_derivatives_where_rows_begin_at_round_numbers():
    """In 60 random cases they are those of the motion on one of the sides, in both modes."""
    rng = np.random.default_rng(0)
    grids = [0.1, 0.2, 0.3, 0.35], [-0.1, 0.0, 0.1], [0.5, 1.0, 2.0], [0.01, 0.02]
    p = np.stack([rng.choice(grid, 60) for grid in grids], axis=1)

    def end(p):
        start = mbd.State(0.0, p[:2], jnp.stack([p[2], 0 * p[2]]))
        sol = mbd.simulate(Coupling(), mbd.VelocityImpulse(), start, dt=p[3], num_steps=40)
        return sol.q[-1] @ jnp.array([1.0, 0.3])

    h = 1e-7

    @jax.jit
    @jax.vmap
    def found(p):
        return helpers.both_modes(end, p)

    at, forward, reverse = map(np.asarray, found(p))
    ends = [np.stack([found(p + s * step)[0] for step in np.eye(4)], 1) for s in (h, -h)]
    ahead, back = (ends[0] - at[:, None]) / h, (at[:, None] - ends[1]) / h
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-12)
    assert np.all((np.abs(reverse - ahead) < 1e-5) | (np.abs(reverse - back) < 1e-5))


class Wrong(Rope):
    def switch(self, q, v, t, active):
        return q


BODY, CLUTCH = mbd.Body("a", mbd.Inertia(1.0, [1.0] * 3)), shafts(0.3)
ADAPTIVE = diffrax.PIDController(rtol=1e-6, atol=1e-6)
ONE, TAUT = np.ones(()), mbd.State(0.0, np.array([1.0, 0.0]), np.zeros(2))


@refusals(
    ("name", 'no joint "brake"', lambda: mbd.Mechanism([BODY], switches={"brake": max})),
    ("function", "clutch.*function.*3",
     lambda: mbd.Mechanism(CLUTCH.bodies, CLUTCH.joints, switches={"clutch": 3})),
    ("adaptive", "switch.*fixed",
     lambda: swing(mbd.UdwadiaKalaba(), 1.0, t1=0.1, saveat=diffrax.SaveAt(t1=True),
                   stepsize_controller=ADAPTIVE)),
    ("rows", "1 truth values",
     lambda: mbd.simulate(Wrong(ONE, ONE), mbd.UdwadiaKalaba(), TAUT, t1=1.0, dt=0.1)),
)  # fmt: skip
def test_bad_input(words, call):
    check_refused(call, words)
