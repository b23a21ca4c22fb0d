"""Contacts of systems that a user wrote, against closed forms."""

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.optimize import nnls

import jaxmbd as mbd

G = 9.81


class Ball(mbd.AbstractSystem):
    """Point mass at (x, y) above the ground, which may move."""

    mass: Array
    friction: Array
    restitution: Array
    shake: Array = eqx.field(default_factory=lambda: jnp.zeros(2))  # amplitude, frequency

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        weight = jnp.stack([jnp.zeros_like(self.mass), -G * self.mass])
        return weight if u is None else weight + u

    def gap(self, q, t):
        return q[1:] - self.shake[0] * jnp.sin(self.shake[1] * t)

    def slip(self, q, v, t):
        return v[:1, None]

    @property
    def contact_law(self):
        return mbd.ContactLaw(self.friction, restitution=self.restitution)


def ball(mass=1.3, friction=0.0, restitution=0.8, **fields):
    return Ball(jnp.asarray(mass), jnp.asarray(friction), jnp.asarray(restitution), **fields)


def flight(system, q, v, ts, dt=1e-2, impacts=3, control=None, **options):
    state = mbd.State(0.0, jnp.asarray(q), jnp.asarray(v))
    return mbd.simulate(
        system,
        mbd.ContactImpulse(impacts=helpers.located(impacts), **options),
        state,
        t0=0.0,
        t1=float(ts[-1]),
        dt=dt,
        control=control,
        saveat=diffrax.SaveAt(ts=jnp.asarray(ts)),
        throw=False,
    )


def bounced(t, height, e):
    """Height at t of a ball dropped at 0, by its closed form, differentiable."""
    landing = jnp.sqrt(2 * height / G)
    v = e * jnp.sqrt(2 * G * height)
    y = jnp.where(t < landing, height - G * t**2 / 2, 0.0)
    for _ in range(12):
        s = t - landing
        y = jnp.where((s >= 0) & (s < 2 * v / G), v * s - G * s**2 / 2, y)
        landing, v = landing + 2 * v / G, e * v
    return y


def bounce_times(height, e, count):
    times = [np.sqrt(2 * height / G)]
    for k in range(1, count):
        times.append(times[-1] + 2 * e**k * np.sqrt(2 * height / G))
    return np.array(times)


@pytest.mark.slow
def test_five_bounces():
    """Times and heights to 1e-6, with impacts located."""
    e, height = 0.8, 1.0
    times = bounce_times(height, e, 6)
    tops = (times[1:] + times[:-1]) / 2
    ts = np.sort(np.concatenate([times[:5], tops]))
    sol = flight(ball(restitution=e), [0.0, height], [0.4, 0.0], ts)
    assert sol.result == mbd.RESULTS.successful
    speed = np.sqrt(2 * G * height) * e ** np.arange(5)
    # Off by dt, a bounce would have the height of speed times dt.
    assert np.all(np.abs(sol.q[0::2, 1]) < 1e-6 * speed)
    np.testing.assert_allclose(sol.q[1::2, 1], height * e ** (2 * np.arange(1, 6)), atol=1e-6)
    np.testing.assert_allclose(sol.v[1::2, 1], 0.0, atol=1e-6)
    np.testing.assert_allclose(sol.q[:, 0], 0.4 * ts, rtol=1e-12)


@pytest.mark.slow
def test_derivatives_of_bounces():
    """With respect to height and restitution, the closed form's: also of the number of the step in
    which it lands nothing is left."""
    ts = np.array([0.3, 0.9, 1.9, 2.6])

    def heights(p):
        sol = flight(ball(restitution=p[1]), jnp.stack([0.0 * p[0], p[0]]), [0.0, 0.0], ts)
        return sol.q[:, 1]

    p = jnp.array([1.0, 0.8])
    exact = jax.jacfwd(lambda p: jax.vmap(lambda t: bounced(t, *p))(jnp.asarray(ts)))(p)
    np.testing.assert_allclose(jax.jacfwd(heights)(p), exact, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(jax.jacrev(heights)(p), exact, rtol=1e-6, atol=1e-8)
    # Continuous in the height, over the width of several steps.
    many = jax.vmap(lambda h: heights(jnp.stack([h, 0.8])))(jnp.linspace(1.0, 1.1, 101))
    expected = jax.vmap(lambda h: jax.vmap(lambda t: bounced(t, h, 0.8))(jnp.asarray(ts)))(
        jnp.linspace(1.0, 1.1, 101)
    )
    np.testing.assert_allclose(many, expected, atol=1e-6)


@pytest.mark.slow
def test_first_order_without_locating():
    ts = np.linspace(0.1, 1.5, 57)
    exact = jax.vmap(lambda t: bounced(t, 1.0, 0.8))(jnp.asarray(ts))
    errors = [
        np.abs(flight(ball(), [0.0, 1.0], [0.0, 0.0], ts, dt, 0).q[:, 1] - exact).mean()
        for dt in (4e-3, 2.5e-4)
    ]
    assert 6 < errors[0] / errors[1] < 40


class TwoBalls(mbd.AbstractSystem):
    """On a line, with radius 0.1."""

    restitution: Array

    def mass_matrix(self, q):
        return 0.7 * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)

    def gap(self, q, t):
        return q[1:] - q[:1] - 0.2

    @property
    def contact_law(self):
        return mbd.ContactLaw(restitution=self.restitution)


@pytest.mark.slow
@pytest.mark.parametrize("impact_law", [mbd.Newton(), mbd.Poisson()], ids=repr)
@pytest.mark.parametrize("impacts", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_equal_balls_swap(impacts, impact_law):
    def final(v):
        system = TwoBalls(jnp.ones(()))
        return flight(system, [0.0, 0.55], v, [1.0], 0.013, impacts, impact_law=impact_law).v[-1]

    v = jnp.array([1.0, -0.5])
    np.testing.assert_allclose(final(v), [-0.5, 1.0], atol=1e-14)
    swap = [[0.0, 1.0], [1.0, 0.0]]
    np.testing.assert_allclose(jax.jacfwd(final)(v), swap, atol=1e-12)
    np.testing.assert_allclose(jax.jacrev(final)(v), swap, atol=1e-12)


class Slope(mbd.AbstractSystem):
    """Point mass above a plane with the normal z; gravity is tilted in any direction."""

    mass: Array
    gravity: Array
    law: mbd.ContactLaw

    def mass_matrix(self, q):
        return self.mass * jnp.eye(3, dtype=q.dtype)

    def force(self, t, q, v, u):
        return self.mass * self.gravity + (0.0 if u is None else u)

    def gap(self, q, t):
        return q[2:]

    def slip(self, q, v, t):
        return v[None, :2]

    @property
    def contact_law(self):
        return self.law


def slope(tangent, friction=0.4, direction=0.0, mass=2.0, **law):
    """Inclined by arctan(tangent), downhill in some direction."""
    down = jnp.stack([jnp.cos(direction), jnp.sin(direction)])
    gravity = G * jnp.concatenate([tangent * down, -jnp.ones(1)]) / jnp.sqrt(1 + tangent**2)
    return Slope(jnp.asarray(mass), gravity, mbd.ContactLaw(friction, **law))


@pytest.mark.parametrize(
    "friction, factor",
    [
        (mbd.Cone(), lambda a: np.ones_like(a)),
        # Inscribed: the line between corners at distance 1.
        pytest.param(
            mbd.Pyramid(4),
            lambda a: 1 / (np.abs(np.cos(a)) + np.abs(np.sin(a))),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            mbd.Pyramid(4, circumscribed=True),
            lambda a: np.sqrt(2) / (np.abs(np.cos(a)) + np.abs(np.sin(a))),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_sticks_below_and_slides_above(friction, factor):
    """tan(alpha) = mu in every direction for the cone, at the stated factor for pyramids."""
    directions = np.linspace(0.05, 6.3, 12)

    @jax.vmap
    def final(direction, tangent):
        system = slope(tangent, 0.4, direction)
        return flight(system, jnp.zeros(3), jnp.zeros(3), [0.5], 0.01, 0, friction=friction).v[-1]

    # Against a pyramid the force may turn aside, so it slides as soon as its reach that way ends.
    limit = 0.4 * factor(directions)
    below = final(jnp.asarray(directions), jnp.asarray(0.999 * limit))
    above = final(jnp.asarray(directions), jnp.asarray(1.001 * limit))
    assert np.abs(below).max() < 1e-12
    assert np.all(np.linalg.norm(above[:, :2], axis=1) > 1e-4)


@pytest.mark.slow
def test_slides_down():
    """x = g (sin a - mu cos a) t^2 / 2, in the direction of the slope; exact on a parabola."""
    system = slope(jnp.asarray(0.9), 0.4, jnp.asarray(0.7))
    a = np.arctan(0.9)
    distance = G * (np.sin(a) - 0.4 * np.cos(a)) / 2
    sol = flight(system, jnp.zeros(3), jnp.zeros(3), [1.0], 0.01, 1)
    along = np.array([np.cos(0.7), np.sin(0.7), 0.0])
    np.testing.assert_allclose(sol.q[-1], distance * along, atol=1e-10)
    force = sol.contact_force[-1, 0]
    np.testing.assert_allclose(force[0], 2.0 * G * np.cos(a), rtol=1e-12)
    np.testing.assert_allclose(force[1:], -0.4 * force[0] * along[:2], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("impacts", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_slides_to_rest(impacts):
    """v^2 / (2 mu g), then stays: with positions of first order short by h v / 2, on parabolas
    exact but for the step in which it stops."""
    v, h = 1.7, 1e-3
    system = slope(jnp.asarray(0.0))
    sol = flight(system, jnp.zeros(3), [0.0, v, 0.0], [0.8, 1.6], h, impacts)
    distance = v**2 / (2 * 0.4 * G) - (0 if impacts else h * v / 2)
    np.testing.assert_allclose(sol.q[:, 1], distance, atol=2 * 0.4 * G * h**2)
    np.testing.assert_allclose(sol.q[1], sol.q[0], atol=1e-13)
    np.testing.assert_allclose(sol.v[1], 0.0, atol=1e-13)


@pytest.mark.parametrize("impacts", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_rests_for_a_minute(impacts):
    sol = flight(slope(jnp.asarray(0.39)), jnp.zeros(3), jnp.zeros(3), [60.0], 1e-2, impacts)
    assert np.abs(sol.q[-1]).max() < 1e-8
    assert sol.result == mbd.RESULTS.successful


@pytest.mark.slow
def test_static_and_kinetic_friction():
    """Holds up to the static coefficient, then slides with the kinetic one."""
    push = lambda t, q, v: jnp.stack([6.0 * t, 0.0 * t, 0.0 * t])  # noqa: E731
    system = slope(jnp.asarray(0.0), 0.5, mass=1.0, kinetic=0.3, speed=1e-5)
    start = 0.5 * G / 6.0
    ts = [0.98 * start, start + 0.6]
    sol = flight(system, jnp.zeros(3), jnp.zeros(3), ts, 1e-3, 0, control=push)
    assert np.abs(sol.v[0]).max() < 1e-12
    speed = 3.0 * (ts[1] ** 2 - start**2) - 0.3 * G * 0.6
    np.testing.assert_allclose(sol.v[1, 0], speed, rtol=5e-3)


@pytest.mark.slow
def test_compliant_contact():
    """A mass dropped on a damped spring: oscillates about m g / k as the closed form says, and
    the force never pulls; stiff ones come to rest as rigid ones do."""
    k, d, m = 400.0, 4.0, 1.0
    system = slope(jnp.asarray(0.0), 0.0, mass=m, stiffness=k, damping=d)
    ts = np.array([0.05, 0.12, 0.2, 0.31])
    deflection, rate = m * G / k, d / (2 * m)
    omega = np.sqrt(k / m - rate**2)

    def exact(t):
        swing = np.cos(omega * t) + rate / omega * np.sin(omega * t)
        return -deflection * (1 - np.exp(-rate * t) * swing)

    errors = []
    for dt in (2e-4, 5e-5):
        sol = flight(system, jnp.zeros(3), jnp.zeros(3), ts, dt, 0)
        errors.append(np.abs(sol.q[:, 2] - exact(ts)).max())
        assert np.all(np.asarray(sol.contact_force[..., 0]) >= 0)
    assert errors[1] < 2e-3 * deflection * 10 and 3 < errors[0] / errors[1] < 5
    for stiffness in (1e9, 1e14):
        stiff = slope(jnp.asarray(0.0), 0.0, mass=m, stiffness=stiffness)
        end = flight(stiff, [0.0, 0.0, 0.1], jnp.zeros(3), [1.0], 1e-2, 0)
        np.testing.assert_allclose(end.q[-1, 2], -m * G / stiffness, rtol=1e-3, atol=1e-14)


@pytest.mark.slow
def test_overlap_is_taken_back_without_energy():
    """From an overlap of 1 mm at rest: back on the ground after a step, at rest."""
    system = slope(jnp.asarray(0.0))
    for impacts in (0, 1):
        sol = flight(system, [0.0, 0.0, -1e-3], jnp.zeros(3), [0.01, 0.5], 1e-2, impacts)
        np.testing.assert_allclose(sol.q[:, 2], 0.0, atol=1e-12)
        np.testing.assert_allclose(sol.v, 0.0, atol=1e-12)


class Facets(mbd.AbstractSystem):
    """A point within planes, J q + offset >= 0."""

    J: Array
    offset: Array

    def mass_matrix(self, q):
        return jnp.eye(len(q), dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(q)

    def gap(self, q, t):
        return self.J @ q + self.offset


@pytest.mark.slow
def test_overlaps_are_taken_back_on_the_shortest_way():
    """Twenty planes and a point beyond most of them, and some far away: to the nearest point
    within, by non-negative least squares (Lawson and Hanson 1974, chapter 23)."""
    rng = np.random.default_rng(0)
    J = rng.normal(size=(20, 20, 6))
    offset = 1e-5 * rng.uniform(size=(20, 20)) - J @ (1e-3 * rng.normal(size=6))
    offset[:, 15:] = 1e6
    state = mbd.State(0.0, jnp.zeros(6), jnp.zeros(6))

    @jax.jit
    @jax.vmap
    def moved(J, offset):
        method, system = mbd.ContactImpulse(), Facets(J, offset)
        return mbd.simulate(system, method, state, 1e-2, 1e-2, start_tolerance=1.0, throw=False)

    sol = moved(jnp.asarray(J), jnp.asarray(offset))
    assert np.all(sol.result == mbd.RESULTS.successful)
    np.testing.assert_array_less(sol.contact_residual, 1e-10)
    np.testing.assert_allclose(sol.v, 0.0, atol=1e-12)
    for q, rows, far in zip(sol.q[:, -1], J, offset, strict=True):
        E = np.concatenate([rows[:15], -1e3 * far[:15, None]], axis=1).T
        f = np.eye(7)[6]
        r = E @ nnls(E, f)[0] - f
        np.testing.assert_allclose(q, -1e-3 * r[:6] / r[6], rtol=1e-8, atol=1e-12)


class Squeezed(mbd.AbstractSystem):
    """A point at the height q above the floor and below a ceiling."""

    ceiling: Array

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.array([-G])

    def gap(self, q, t):
        return jnp.concatenate([q, self.ceiling - q])


@pytest.mark.slow
@pytest.mark.parametrize("impacts", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_overlaps_that_contradict_each_other(impacts):
    """A ceiling 0.2 mm below the floor, and a point half-way: each is 0.1 mm too close, and no
    displacement helps, which is 0.01 m/s over the step. With the ceiling above one does."""
    method = mbd.ContactImpulse(impacts=helpers.located(impacts))
    state = mbd.State(0.0, jnp.array([-1e-4]), jnp.zeros(1))

    @jax.jit
    def still(ceiling):
        return mbd.simulate(Squeezed(ceiling), method, state, 0.05, 1e-2, throw=False)

    sol = still(jnp.asarray(-2e-4))
    assert sol.result == mbd.RESULTS.contact_unsolved and sol.stats["num_steps"] == 0
    np.testing.assert_allclose(sol.contact_residual, 1e-2, rtol=1e-6)
    np.testing.assert_allclose(sol.q, -1e-4)
    sol = still(jnp.asarray(2e-4))
    assert sol.result == mbd.RESULTS.successful and sol.contact_residual[-1] < 1e-10
    np.testing.assert_allclose(sol.q, 0.0, atol=1e-15)


@pytest.mark.slow
def test_ground_that_moves():
    """Carried by a table that swings with less than g, at rest relative to it."""
    system = ball(restitution=0.0, shake=jnp.array([0.02, 5.0]))
    sol = flight(system, [0.0, 0.0], [0.0, 0.1], [0.3, 0.7], 1e-3, 0)
    table = 0.02 * np.sin(5.0 * np.array([0.3, 0.7]))
    np.testing.assert_allclose(sol.q[:, 1], table, atol=2e-4)
    np.testing.assert_allclose(sol.v[:, 1], 0.1 * np.cos(5.0 * np.array([0.3, 0.7])), atol=2e-3)


class Rod(mbd.AbstractSystem):
    """A thin rod, (x, y, angle) of its middle, whose lower end touches the ground."""

    friction: Array
    restitution: Array
    length: float = 1.0

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, self.length**2 / 12]))

    def force(self, t, q, v, u):
        return jnp.array([0.0, -G, 0.0])

    def end(self, q):
        return q[:2] - self.length / 2 * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])

    def gap(self, q, t):
        return self.end(q)[1:]

    def slip(self, q, v, t):
        return jax.jvp(self.end, (q,), (v,))[1][None, :1]

    @property
    def contact_law(self):
        return mbd.ContactLaw(self.friction, restitution=self.restitution)


@pytest.mark.slow
def test_poissons_law():
    """The normal impulse is 1 + e times that of compression, unlike Newton's where friction couples
    normal and tangent; neither gains energy here."""
    q = jnp.array([0.0, 0.5 * np.sin(0.9), 0.9])
    v = jnp.array([0.8, -1.0, 0.3])

    def impact(e, law):
        rod = Rod(jnp.asarray(0.3), jnp.asarray(e))
        sol = flight(rod, q, v, [1e-6], 1e-6, 0, impact_law=law)
        return 1e-6 * sol.contact_force[-1, 0], sol.v[-1], rod.mass_matrix(q)

    compression, _, M = impact(0.0, mbd.Poisson())
    poisson, v_poisson, _ = impact(0.6, mbd.Poisson())
    newton, v_newton, _ = impact(0.6, mbd.Newton())
    np.testing.assert_allclose(poisson, 1.6 * compression, rtol=1e-4)
    rod = Rod(jnp.asarray(0.3), jnp.asarray(0.6))
    normal = [jax.jvp(lambda q: rod.gap(q, 0.0), (q,), (w,))[1][0] for w in (v, v_newton)]
    np.testing.assert_allclose(normal[1], -0.6 * normal[0], rtol=1e-4)
    for w in (v_poisson, v_newton):
        assert w @ M @ w < v @ M @ v


@pytest.mark.slow
def test_painleve():
    """The sliding rod with much friction, for which forces have no solution: an impulse has, and
    it is found, or the result says that it was not; never NaN."""
    angles = jnp.linspace(0.7, 1.4, 8)

    @jax.vmap
    def slide(angle):
        rod = Rod(jnp.asarray(3.0), jnp.asarray(0.0))
        q = jnp.stack([0.0 * angle, 0.5 * jnp.sin(angle), angle])
        return flight(rod, q, [-2.0, 0.0, 0.0], [0.05], 1e-3, 0)

    sol = slide(angles)
    assert np.all(np.isfinite(sol.q)) and np.all(np.isfinite(sol.v))
    good = np.asarray(sol.result == mbd.RESULTS.successful)
    assert good.any()
    assert np.all(sol.contact_residual[good] < 1e-9)
    assert np.all(sol.contact_residual[~good] > 1e-10)
    # Somewhere it jams: a normal force far above the weight.
    assert np.asarray(sol.contact_force[:, -1, 0, 0]).max() >= 0
    rod = Rod(jnp.asarray(3.0), jnp.asarray(0.0))
    end = jax.vmap(lambda q: rod.gap(q, 0.0))(sol.q[:, -1])
    assert np.all(np.asarray(end) > -1e-3)


class WallPendulum(mbd.AbstractSystem):
    """A pendulum of length 1, its row written twice, that swings against a wall x >= wall."""

    wall: Array
    restitution: Array

    def mass_matrix(self, q):
        return 1.5 * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -1.5 * G])

    def constraint(self, q, t):
        return (q @ q - 1.0) * jnp.array([0.5, 1.0])

    def gap(self, q, t):
        return q[:1] - self.wall

    @property
    def contact_law(self):
        return mbd.ContactLaw(restitution=self.restitution)


@pytest.mark.slow
@pytest.mark.parametrize("impacts", [0, 2])
def test_equality_rows_hold_in_contact(impacts):
    """A pendulum that bounces off a wall: rows below 1e-9, the wall is not passed, and the speed
    after the first impact is e times that before, by the energy."""
    system = WallPendulum(jnp.asarray(-0.3), jnp.asarray(0.7))
    sol = mbd.simulate(
        system,
        mbd.ContactImpulse(impacts=helpers.located(impacts), solver=mbd.Pseudoinverse()),
        mbd.State(0.0, jnp.array([1.0, 0.0]), jnp.zeros(2)),
        t1=1.2,
        dt=1e-3,
        projection=mbd.Projection(solver=mbd.Pseudoinverse()),
        saveat=diffrax.SaveAt(steps=1),
    )
    assert sol.phi_norm.max() < 1e-9
    assert sol.q[:, 0].min() > -0.3 - 1e-6
    energy = 0.5 * jnp.sum(sol.v**2, axis=1) + G * sol.q[:, 1]
    hit = int(jnp.argmax(sol.contact_force[:, 0, 0] > 0))
    before, after = energy[hit - 2] - G * sol.q[hit, 1], energy[hit + 1] - G * sol.q[hit, 1]
    np.testing.assert_allclose(after / before, 0.49, rtol=2e-2)


CASES = {
    # name: (restitution, friction, q, v, impacts): what the motion passes through.
    "flight and impact": (0.7, 0.3, [0.0, 0.5], [1.0, 0.0], 3),
    "slip": (0.0, 0.3, [0.0, 0.0], [4.0, 0.0], 1),
    "slip, then stick": (0.0, 0.5, [0.0, 0.0], [1.0, 0.0], 0),
    "impact with friction, stick": (0.0, 0.9, [0.0, 0.3], [1.0, -1.0], 0),
    "separation": (0.4, 0.3, [0.0, 0.0], [1.0, 3.0], 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_gradients_through_500_steps(name):
    """With respect to mu, e, mass, the initial state and a control, in both modes, against
    differences."""
    e, mu, q, v, impacts = CASES[name]
    p = dict(
        mass=jnp.asarray(1.3),
        friction=jnp.asarray(mu),
        restitution=jnp.asarray(e),
        q=jnp.asarray(q),
        v=jnp.asarray(v),
        u=jnp.array([0.2, 0.1]),
    )

    @jax.jit
    def value(p):
        system = ball(p["mass"], p["friction"], p["restitution"])
        control = Push(p["u"])
        sol = flight(system, p["q"], p["v"], [0.5], 1e-3, impacts, control=control)
        return jnp.sum(sol.q[-1] * jnp.array([1.0, 0.7]) + sol.v[-1] * jnp.array([0.3, 0.2]))

    gradient = jax.jit(jax.grad(value))(p)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradient))
    directions = {
        key: jnp.full_like(x, 0.7) if key in ("mass", "friction", "u") else 0 * x
        for key, x in p.items()
    }
    directions["v"] = jnp.array([0.4, 0.0])
    if e > 0:
        directions["restitution"] = jnp.ones(())
    if impacts and q[1] > 0:
        directions["q"] = jnp.array([0.1, 0.5])
    _, forward = jax.jit(lambda p, d: jax.jvp(value, (p,), (d,)))(p, directions)
    step = 1e-6
    ends = [value(jax.tree.map(lambda x, d: x + s * d, p, directions)) for s in (step, -step)]
    np.testing.assert_allclose(forward, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6)
    along = sum(
        jnp.sum(a * b)
        for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(directions), strict=True)
    )
    np.testing.assert_allclose(along, forward, rtol=1e-8)


class Count:
    """By identity the same, whatever it has counted."""

    calls = 0

    def __call__(self, x):
        self.calls += 1
        return x


class Counted(mbd.AbstractContactSolver):
    """`InteriorPoint`, with a count of the problems that it solves."""

    count: Count = eqx.field(static=True)
    tolerance: float = eqx.field(static=True, default=1e-8)

    def solve(self, problem, guess):
        solved = mbd.InteriorPoint().solve(problem, guess)
        shape = jax.ShapeDtypeStruct(solved.impulses.shape, solved.impulses.dtype)
        return solved._replace(impulses=jax.pure_callback(self.count, shape, solved.impulses))


@pytest.mark.slow
@pytest.mark.parametrize("impacts", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_reverse_pass_solves_nothing_again(impacts):
    """It recomputes steps from their start, but keeps the impulses that a solver found."""
    steps, state = 40, mbd.State(0.0, jnp.array([0.0, 0.1]), jnp.zeros(2))

    def calls(transform):
        count = Count()
        method = mbd.ContactImpulse(impacts=helpers.located(impacts), contact_solver=Counted(count))

        def height(e):
            sol = mbd.simulate(ball(restitution=e), method, state, dt=1e-2, num_steps=steps)
            return sol.q[-1, 1]

        assert jnp.isfinite(jax.jit(transform(height))(jnp.asarray(0.5)))
        return count.calls

    assert calls(jax.grad) == calls(lambda f: f) >= steps


class Push(eqx.Module):
    """A constant force."""

    u: Array

    def __call__(self, t, q, v):
        return self.u


@pytest.mark.slow
def test_smoothing_gives_derivatives_where_there_are_none():
    """A ball at rest does not feel its friction, and smoothed it does; as smoothing fades, so does
    what it changes."""

    def end(mu, smoothing):
        system = slope(jnp.asarray(0.1), mu)
        return flight(system, jnp.zeros(3), jnp.zeros(3), [0.3], 1e-2, 0, smoothing=smoothing).q[
            -1, 0
        ]

    mu = jnp.asarray(0.5)
    assert abs(jax.grad(end)(mu, 0.0)) < 1e-15
    slopes = [float(jax.grad(end)(mu, s)) for s in (1e-2, 1e-3)]
    assert slopes[0] < 0 and slopes[1] < 0
    ends = [float(end(mu, s)) for s in (0.0, 1e-3, 1e-2)]
    assert abs(ends[1] - ends[0]) < 0.2 * abs(ends[2] - ends[0])
    step = 1e-5
    difference = (end(mu + step, 1e-2) - end(mu - step, 1e-2)) / (2 * step)
    np.testing.assert_allclose(slopes[0], difference, rtol=1e-5)


@pytest.mark.slow
def test_batch():
    """A batch is the same as its samples, and a failure of one is its own."""
    heights = jnp.linspace(0.2, 1.0, 5).at[2].set(-0.1)
    run = lambda h: flight(ball(), jnp.stack([0 * h, h]), [0.3, 0.0], [0.7], 1e-2, 2)  # noqa: E731
    together = jax.vmap(run)(heights)
    one = run(heights[1])
    np.testing.assert_allclose(together.q[1], one.q, rtol=1e-12, atol=1e-14)
    good = together.result == mbd.RESULTS.successful
    np.testing.assert_array_equal(good, [True, True, False, True, True])
    assert (together.result == mbd.RESULTS.overlapping_start)[2]
    assert np.all(np.isfinite(together.q))


@pytest.mark.slow
def test_float32():
    system = jax.tree.map(lambda x: x.astype(jnp.float32), ball(friction=0.3))
    q, v = jnp.array([0.0, 1.0], jnp.float32), jnp.array([0.5, 0.0], jnp.float32)
    for impacts in (0, 3):
        sol = flight(system, q, v, np.array([1.0], np.float32), 1e-2, impacts)
        assert sol.q.dtype == jnp.float32 and sol.result == mbd.RESULTS.successful
        exact = bounced(jnp.asarray(1.0), 1.0, 0.8)
        np.testing.assert_allclose(sol.q[-1, 1], exact, atol=1e-4 if impacts else 8e-2)


def test_unsolved_is_visible():
    """Too few sweeps: the result says so, and the state is held."""
    system = WallPendulum(jnp.asarray(-0.3), jnp.asarray(0.7))

    class Corner(WallPendulum):
        def gap(self, q, t):
            return jnp.stack([q[1] + 0.5, q[1] + q[0] + 0.4, q[0] + 0.8])

        def constraint(self, q, t):
            return jnp.zeros(0)

    system = Corner(jnp.asarray(0.0), jnp.asarray(0.0))
    solver = mbd.ProjectedGaussSeidel(sweeps=1, tolerance=1e-9)
    sol = flight(system, [0.6, -0.4], [-3.0, -2.0], [0.5], 1e-2, 0, contact_solver=solver)
    assert sol.result == mbd.RESULTS.contact_unsolved
    assert sol.contact_residual[-1] > 1e-9 and np.all(np.isfinite(sol.q))
    enough = mbd.ProjectedGaussSeidel(sweeps=300, tolerance=1e-9)
    sol = flight(system, [0.6, -0.4], [-3.0, -2.0], [0.5], 1e-2, 0, contact_solver=enough)
    assert sol.result == mbd.RESULTS.successful and sol.contact_residual[-1] < 1e-9


@pytest.mark.parametrize(
    "law, words",
    [
        (dict(friction=-0.1), "friction.*-0.1"),
        (dict(restitution=1.2), "restitution.*1.2"),
        (dict(restitution=-0.2), "restitution"),
        (dict(friction=0.2, kinetic=0.3), "kinetic.*0.3"),
        (dict(stiffness=0.0), "stiffness"),
        (dict(stiffness=1e3, restitution=0.5), "compliant.*0.5"),
        (dict(damping=3.0), "damping.*stiffness"),
        (dict(friction="much"), "friction.*much"),
    ],
)
def test_bad_laws(law, words):
    with pytest.raises(ValueError, match=words):
        mbd.ContactLaw(**law)


def test_bad_input():
    with pytest.raises(ValueError, match="`directions` of Pyramid.*even.*5"):
        mbd.Pyramid(5)
    with pytest.raises(ValueError, match="sweeps.*0"):
        mbd.ProjectedGaussSeidel(sweeps=0)
    with pytest.raises(ValueError, match="AbstractImpactLaw.*Newton.*bounce"):
        mbd.ContactImpulse(impact_law="bounce")
    with pytest.raises(ValueError, match="impacts.*AtStepStart.*Located.*2"):
        mbd.ContactImpulse(impacts=2)
    with pytest.raises(ValueError, match="max_per_step.*Located.*0"):
        mbd.Located(0)
    with pytest.raises(ValueError, match="smoothing.*-1"):
        mbd.ContactImpulse(smoothing=-1.0)
    with pytest.raises(ValueError, match="smoothing.*Cone"):
        mbd.ContactImpulse(friction=mbd.Pyramid(4), smoothing=1e-3)
    state = mbd.State(0.0, jnp.array([0.0, 1.0]), jnp.zeros(2))
    with pytest.raises(ValueError, match="1 contacts.*UdwadiaKalaba.*ContactImpulse"):
        mbd.simulate(ball(), mbd.UdwadiaKalaba(), state, t1=1.0, dt=0.1)

    class Wrong(Ball):
        def slip(self, q, v, t):
            return v

    wrong = Wrong(jnp.ones(()), jnp.zeros(()), jnp.zeros(()))
    with pytest.raises(ValueError, match="slip.*shape"):
        mbd.simulate(wrong, mbd.ContactImpulse(), state, t1=1.0, dt=0.1)
    soft = slope(jnp.asarray(0.0), stiffness=1e4)
    with pytest.raises(ValueError, match="stiffness.*impacts=Located"):
        flight(soft, jnp.zeros(3), jnp.zeros(3), [0.1], 1e-2, impacts=1)
    deep = mbd.State(0.0, jnp.array([0.0, -0.5]), jnp.zeros(2))
    with pytest.raises(Exception, match="overlap"):
        mbd.simulate(ball(), mbd.ContactImpulse(), deep, t1=1.0, dt=0.1)
