"""Contacts of systems that a user wrote, against the steps of a point in NumPy and closed forms:
bounces, overlaps, Poisson's law and Painleve's rod. Bad input is refused."""

import functools

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import (
    Ball,
    G,
    Push,
    Slope,
    ball,
    bounced,
    flight,
    point,
    slope,
    stepped,
)
from jaxtyping import Array
from scipy.optimize import nnls

import jaxmbd as mbd

STILL = dict(u=[0.0, 0.0, 0.0])
POINTS = {
    "flight and impact": point([0.0, 0.0, 0.51], [1.0, 0.3, 0.0], restitution=0.7),
    "slip": point([0.0, 0.0, 0.0], [4.0, -2.0, 0.0]),
    "slip, then stick": point([0.0, 0.0, 0.0], [1.0, 0.0, 0.0], friction=0.5),
    "impact with friction, stick": point([0.0, 0.0, 0.3], [1.0, 0.0, -1.0], friction=0.9),
    "separation": point([0.0, 0.0, 0.0], [1.0, 0.0, 3.0], restitution=0.4),
    "sticks on a slope": point([0.0] * 3, [0.0] * 3, tangent=0.2998, direction=2.0, **STILL),
    "slides down a slope": point([0.0] * 3, [0.0] * 3, tangent=0.301, direction=4.0, **STILL),
    "static friction holds": point([0.0] * 3, [0.0] * 3, tangent=0.29, kinetic=0.2, **STILL),
    "kinetic friction": point([0.0] * 3, [0.5, 0.0, 0.0], tangent=0.29, kinetic=0.2),
    "soft": point([0.0, 0.0, 0.02], [0.3, 0.0, -0.5], stiffness=500.0, damping=4.0),
    "small overlap": point([0.0, 0.0, -0.01], [0.3, 0.0, 0.0]),
    "overlap": point([0.0, 0.0, -0.1], [0.0] * 3),
}


@functools.cache
def simulated_points(derivative):
    """All in one program: q, v and forces at the end, and the derivative of a number."""
    h, steps, weights = 1e-2, 60, np.array([1.0, 0.7, 0.4, 0.3, 0.2, 0.5])
    names = "restitution", "kinetic", "speed", "stiffness", "damping"

    def number(p):
        law = mbd.ContactLaw(p["friction"], **{name: p[name] for name in names})
        state = mbd.State(0.0, p["q"], p["v"])
        sol = mbd.simulate(
            Slope(p["mass"], p["gravity"], law), mbd.ContactImpulse(), state, dt=h,
            num_steps=steps, control=Push(p["u"]), start_tolerance=0.05, throw=False,
        )  # fmt: skip
        end = jnp.concatenate([sol.q[0], sol.v[0]])
        return end @ weights, (sol.q[0], sol.v[0], sol.contact_force[0, 0], sol.result)

    moving = {key: POINTS["slip"][key] for key in ("mass", "friction", "q", "v", "u", "gravity")}
    cases = jax.tree.map(lambda *x: np.stack(x), *POINTS.values())
    of = jax.jit(jax.vmap(lambda p, q: derivative(lambda q: number({**p, **q}), has_aux=True)(q)))
    found = of(cases, {key: cases[key] for key in moving})

    def exact(name, change):
        p = POINTS[name]
        q, v, _ = stepped(p | {key: p[key] + x for key, x in change.items()}, h, steps)
        return np.concatenate([q, v]) @ weights

    return jax.device_get(found), [stepped(p, h, steps) for p in POINTS.values()], exact


def test_points_move_as_the_formulas_say():
    """In flight, sliding, sticking and bouncing, whatever the others in the batch do; one that
    starts in the ground is told so, and no other is."""
    (_, (q, v, force, result)), expected, _ = simulated_points(jax.jacrev)
    R = mbd.RESULTS
    verdicts = [R.overlapping_start if x == "overlap" else R.successful for x in POINTS]
    helpers.assert_verdicts(result, verdicts)
    for k, name in enumerate(POINTS):
        if name == "overlap":
            assert np.all(np.isfinite(q[k]))
            continue
        for x, y in zip(
            (q[k], v[k], force[k]), (*expected[k][:2], expected[k][2][-1]), strict=True
        ):
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10, err_msg=name)
    assert np.abs(v[list(POINTS).index("sticks on a slope")]).max() < 1e-12


@pytest.mark.parametrize(
    "derivative", [jax.jacrev, pytest.param(jax.jacfwd, marks=pytest.mark.slow)]
)
def test_derivatives_of_points(derivative):
    (found, _), _, exact = simulated_points(derivative)
    rng, step = np.random.default_rng(0), 1e-6
    for k, name in enumerate(POINTS):
        if name == "overlap" or name.startswith("sticks"):
            continue
        change = {key: step * rng.normal(size=x.shape[1:]) for key, x in found.items()}
        # What starts on the ground and leaves it has a derivative on each side.
        change["q"][2] *= POINTS[name]["q"][2] != 0
        along = sum(np.sum(found[key][k] * x) for key, x in change.items()) / step
        back = {key: -x for key, x in change.items()}
        difference = (exact(name, change) - exact(name, back)) / (2 * step)
        np.testing.assert_allclose(along, difference, rtol=1e-5, atol=1e-6, err_msg=name)


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


class Corner(Facets):
    """A rigid and a soft plane."""

    @property
    def contact_law(self):
        return mbd.ContactLaw(stiffness=jnp.array([jnp.inf, 200.0]))

    def force(self, t, q, v, u):
        return jnp.zeros_like(q)


def test_overlap_with_soft_planes_is_left_to_their_springs():
    """The rigid plane pushes the point out along x. The soft one accelerates it along (1, 1)."""
    planes, h = np.array([[1.0, 0.0], [1.0, 1.0]]), 1e-2
    system = Corner(*map(jax.device_put, (planes, np.zeros(2))))
    start = np.array([-0.01, -0.04])
    state = mbd.State(0.0, start, np.zeros(2))
    sol = mbd.simulate(system, mbd.ContactImpulse(), state, dt=h, num_steps=1, start_tolerance=0.1)
    (q,), (v,) = map(np.asarray, (sol.q, sol.v))
    np.testing.assert_allclose((q - h * v - start)[1], 0.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(q[0], 0.0, rtol=0, atol=1e-12)
    # Its impulse n satisfies (J J^T + 1 / (h^2 k)) n = -gap / h.
    np.testing.assert_allclose(v, 5.0 / (2 + 1 / (h**2 * 200.0)), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("impacts", [0, 1])
def test_overlaps_that_contradict_each_other(impacts):
    """A ceiling 0.2 mm below the floor, and a point half-way: each is 0.1 mm too close, and no
    displacement helps, which is 0.01 m/s over the step. With the ceiling above one does."""
    method = mbd.ContactImpulse(impacts=helpers.located(impacts))
    state = mbd.State(0.0, jnp.array([-1e-4]), jnp.zeros(1))

    @jax.jit
    def still(ceiling):
        walls = Facets(jnp.array([[1.0], [-1.0]]), jnp.stack([0 * ceiling, ceiling]))
        return mbd.simulate(walls, method, state, 0.05, 1e-2, throw=False)

    sol = still(jnp.asarray(-2e-4))
    helpers.assert_verdicts(sol.result, mbd.RESULTS.contact_unsolved)
    assert int(sol.stats["num_steps"]) == 0
    np.testing.assert_allclose(sol.contact_residual, 1e-2, rtol=1e-6)
    np.testing.assert_allclose(sol.q, -1e-4)
    sol = still(jnp.asarray(2e-4))
    helpers.assert_verdicts(sol.result, mbd.RESULTS.successful)
    assert sol.contact_residual[-1] < 1e-10
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
    _, v_newton, _ = impact(0.6, mbd.Newton())
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
        return flight(rod, q, [-2.0, 0.0, 0.0], [1e-3, 0.05], 1e-3, 0)

    sol = slide(angles)
    assert np.all(np.isfinite(sol.q)) and np.all(np.isfinite(sol.v))
    good = np.asarray(sol.result == mbd.RESULTS.successful)
    assert good.any()
    assert np.all(sol.contact_residual[good] < 1e-9)
    assert np.all(sol.contact_residual[~good] > 1e-10)
    # It jams in the first step, with a normal force far above the weight.
    assert np.max(sol.contact_force[:, 0, 0, 0]) > 10 * G
    rod = Rod(jnp.asarray(3.0), jnp.asarray(0.0))
    end = jax.jit(jax.vmap(lambda q: rod.gap(q, 0.0)))(sol.q[:, -1])
    assert np.all(np.asarray(end) > -1e-3)


@pytest.mark.slow
def test_float32():
    system = jax.tree.map(lambda x: x.astype(jnp.float32), ball(friction=0.3))
    q, v = jnp.array([0.0, 1.0], jnp.float32), jnp.array([0.5, 0.0], jnp.float32)
    for impacts in (0, 3):
        sol = flight(system, q, v, np.array([1.0], np.float32), 1e-2, impacts)
        assert sol.q.dtype == jnp.float32
        helpers.assert_verdicts(sol.result, mbd.RESULTS.successful)
        exact = bounced(1.0, 1.0, 0.8)
        np.testing.assert_allclose(sol.q[-1, 1], exact, atol=1e-4 if impacts else 8e-2)


class Count:
    """By identity the same, whatever it has counted."""

    calls = 0

    def __call__(self, x):
        self.calls += 1
        return x


class Counted(mbd.solvers.AbstractContactSolver):
    """`InteriorPoint`, with a count of the problems that it solves."""

    count: Count = eqx.field(static=True)
    tolerance: float = eqx.field(static=True, default=1e-8)

    def solve(self, problem, guess):
        solved = mbd.InteriorPoint().solve(problem, guess)
        shape = jax.ShapeDtypeStruct(solved.impulses.shape, solved.impulses.dtype)
        return solved._replace(impulses=jax.pure_callback(self.count, shape, solved.impulses))


@pytest.mark.slow
def test_reverse_pass_solves_nothing_again():
    """It recomputes steps from their start, but keeps the impulses that a solver found. A ball at
    rest has a problem in every step."""
    steps, state = 40, mbd.State(0.0, jnp.zeros(2), jnp.zeros(2))

    def calls(transform):
        count = Count()
        method = mbd.ContactImpulse(impacts=mbd.Located(1), contact_solver=Counted(count))

        def height(e):
            sol = mbd.simulate(ball(restitution=e), method, state, dt=1e-2, num_steps=steps)
            return sol.q[-1, 1]

        assert jnp.isfinite(jax.jit(transform(height))(jnp.asarray(0.5)))
        return count.calls

    assert calls(jax.grad) == calls(lambda f: f) >= steps


@pytest.mark.slow
def test_smoothing_gives_derivatives_where_there_are_none():
    """A ball at rest does not feel its friction, and smoothed it does; as smoothing fades, so does
    what it changes."""

    @jax.jit
    @jax.value_and_grad
    def end(mu, smoothing):
        system = slope(0.1, mu)
        sol = flight(system, jnp.zeros(3), jnp.zeros(3), [0.3], 1e-2, 0, smoothing=smoothing)
        return sol.q[-1, 0]

    mu, step = jnp.asarray(0.5), 1e-5
    ends, slopes = zip(*(end(mu, s) for s in (0.0, 1e-3, 1e-2)))
    assert abs(slopes[0]) < 1e-15
    assert slopes[1] < 0 and slopes[2] < 0
    assert abs(ends[1] - ends[0]) < 0.2 * abs(ends[2] - ends[0])
    difference = (end(mu + step, 1e-2)[0] - end(mu - step, 1e-2)[0]) / (2 * step)
    np.testing.assert_allclose(slopes[2], difference, rtol=1e-5)


@pytest.mark.parametrize(
    "law, words",
    [
        (dict(restitution=1.2), "restitution.*1.2"),
        (dict(restitution=-0.2), "restitution"),
        (dict(friction=0.2, kinetic=0.3), "kinetic.*0.3"),
        (dict(stiffness=0.0), "stiffness"),
        (dict(stiffness=1e3, restitution=0.5), "compliant.*0.5"),
        (dict(damping=3.0), "damping.*stiffness"),
    ],
)
def test_bad_laws(law, words):
    with pytest.raises(ValueError, match=words):
        mbd.ContactLaw(**law)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: mbd.Pyramid(5), "`directions` of Pyramid.*even.*5"),
        (lambda: mbd.ContactImpulse(impacts=2), "impacts.*AtStepStart.*Located.*2"),
        (lambda: mbd.Located(0), "max_per_step.*Located.*0"),
        (lambda: mbd.ContactImpulse(smoothing=-1.0), "smoothing.*-1"),
        (lambda: mbd.ContactImpulse(friction=mbd.Pyramid(4), smoothing=1e-3), "smoothing.*Cone"),
    ],
)
def test_bad_options(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_bad_input():
    state = mbd.State(0.0, np.array([0.0, 1.0]), np.zeros(2))
    with pytest.raises(ValueError, match="1 contacts.*UdwadiaKalaba.*ContactImpulse"):
        mbd.simulate(ball(), mbd.UdwadiaKalaba(), state, t1=1.0, dt=0.1)

    class Wrong(Ball):
        def slip(self, q, v, t):
            return v

    wrong = Wrong(*map(jax.device_put, np.array([1.0, 0.0, 0.0])))
    with pytest.raises(ValueError, match="slip.*shape"):
        mbd.simulate(wrong, mbd.ContactImpulse(), state, t1=1.0, dt=0.1)
    soft = slope(0.0, stiffness=1e4)
    with pytest.raises(ValueError, match="stiffness.*impacts=Located"):
        flight(soft, np.zeros(3), np.zeros(3), [0.1], 1e-2, impacts=1)
