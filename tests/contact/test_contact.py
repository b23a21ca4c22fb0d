"""Contacts of systems that a user wrote, against the steps of a point in NumPy and closed forms:
bounces, overlaps, Poisson's law and Painleve's rod. Bad input is refused."""

import functools

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import Facets, bounced, moved, point, stepped
from helpers import Ball, G
from jaxtyping import Array
from refusals import Plane, check_refused, refusals
from scipy.optimize import brentq, nnls

import jaxmbd as mbd

POINTS = {
    "flight and impact": point([0.0, 0.0, 0.51], [1.0, 0.3, 0.0], restitution=0.7),
    "slip": point([0.0, 0.0, 0.0], [4.0, -2.0, 0.0]),
    "slip, then stick": point([0.0, 0.0, 0.0], [1.0, 0.0, 0.0], friction=0.5),
    "impact with friction, stick": point([0.0, 0.0, 0.3], [1.0, 0.0, -1.0], friction=0.9),
    "separation": point([0.0, 0.0, 0.0], [1.0, 0.0, 3.0], restitution=0.4),
    "sticks on a slope": point([0.0] * 3, [0.0] * 3, tangent=0.2998, direction=2.0),
    "slides down a slope": point([0.0] * 3, [0.0] * 3, tangent=0.301, direction=4.0),
    "static friction holds": point([0.0] * 3, [0.0] * 3, tangent=0.29, kinetic=0.2),
    "kinetic friction": point([0.0] * 3, [0.5, 0.0, 0.0], tangent=0.29, kinetic=0.2),
    "soft": point([0.0, 0.0, 0.02], [0.3, 0.0, -0.5], stiffness=500.0, damping=4.0),
    "small overlap": point([0.0, 0.0, -0.01], [0.3, 0.0, 0.0]),
    "overlap": point([0.0, 0.0, -0.1], [0.0] * 3),
    "carried": point([0.0, 0.0, 0.0], [1.0, 0.0, 0.0], rate=0.4),
    "struck by the ground": point([0.0, 0.0, 0.13], [1.0, 0.3, 0.1], rate=2.0, restitution=0.6),
}
DT, STEPS, WEIGHTS = 1e-2, 60, np.array([1.0, 0.7, 0.4, 0.3, 0.2, 0.5])
BY = "mass", "friction", "q", "v", "gravity", "rate"


@functools.cache
def simulated_points():
    """All in one program: q, v and forces at the end, and the derivative of a number."""

    def number(q, p):
        options = dict(dt=DT, num_steps=STEPS, start_tolerance=0.05, throw=False)
        sol = moved({**p, **q}, **options)
        end = jnp.concatenate([sol.q[0], sol.v[0]])
        return end @ WEIGHTS, (sol.q[0], sol.v[0], sol.contact_force[0, 0], sol.result)

    cases = jax.tree.map(lambda *x: np.stack(x), *POINTS.values())
    slopes = jax.jit(jax.vmap(jax.jacrev(number, has_aux=True)))
    return jax.device_get(slopes({key: cases[key] for key in BY}, cases))


def test_points_move_as_the_formulas_say():
    """In flight, sliding, sticking and bouncing, whatever the others in the batch do; one that
    starts in the ground is told so, and no other is."""
    _, (*found, result) = simulated_points()
    R = mbd.RESULTS
    verdicts = [R.overlapping_start if x == "overlap" else R.successful for x in POINTS]
    helpers.assert_verdicts(result, verdicts)
    for k, (name, p) in enumerate(POINTS.items()):
        q, v, force = stepped(p, DT, STEPS)
        if name == "overlap":
            assert np.all(np.isfinite(found[0][k]))
            continue
        for x, y in zip(found, (q, v, force[-1]), strict=True):
            np.testing.assert_allclose(x[k], y, rtol=1e-10, atol=1e-10, err_msg=name)
    assert np.abs(found[1][list(POINTS).index("sticks on a slope")]).max() < 1e-12


def test_derivatives_of_points():
    slopes, rng, step = simulated_points()[0], np.random.default_rng(0), 1e-6
    for k, (name, p) in enumerate(POINTS.items()):
        if name == "overlap" or name.startswith("sticks"):
            continue
        change = {key: rng.normal(size=p[key].shape) for key in BY}
        if p["q"][2] == 0:
            # What starts on the ground and leaves it has a derivative on each side.
            change["q"][2] = 0
        along = sum(np.sum(slopes[key][k] * x) for key, x in change.items())
        ends = [
            np.concatenate(stepped(p | {y: p[y] + s * x for y, x in change.items()}, DT, STEPS)[:2])
            for s in (step, -step)
        ]
        difference = (ends[0] - ends[1]) @ WEIGHTS / (2 * step)
        np.testing.assert_allclose(along, difference, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_overlaps_are_taken_back_on_the_shortest_way():
    """Twenty planes and a point beyond most of them, and some far away: to the nearest point
    within, by non-negative least squares (Lawson and Hanson 1974, chapter 23)."""
    rng = np.random.default_rng(0)
    J = rng.normal(size=(20, 20, 6))
    offset = 1e-5 * rng.uniform(size=(20, 20)) - J @ (1e-3 * rng.normal(size=6))
    offset[:, 15:] = 1e6
    state = mbd.State(0.0, np.zeros(6), np.zeros(6))

    @jax.jit
    @jax.vmap
    def pushed(J, offset):
        method, system = mbd.ContactImpulse(), Facets(J, offset)
        return mbd.simulate(system, method, state, 1e-2, 1e-2, start_tolerance=1.0, throw=False)

    sol = pushed(J, offset)
    helpers.assert_verdicts(sol.result, mbd.RESULTS.successful)
    np.testing.assert_array_less(sol.contact_residual, 1e-10)
    np.testing.assert_allclose(sol.v, 0.0, atol=1e-12)
    for q, rows, far in zip(sol.q[:, -1], J, offset, strict=True):
        E, f = np.concatenate([rows[:15], -1e3 * far[:15, None]], axis=1).T, np.eye(7)[6]
        r = E @ nnls(E, f)[0] - f
        np.testing.assert_allclose(q, -1e-3 * r[:6] / r[6], rtol=1e-8, atol=1e-12)


def test_overlap_with_soft_planes_is_left_to_their_springs():
    """The rigid plane pushes the point out along x. The soft one accelerates it along (1, 1)."""
    planes, h, start = np.array([[1.0, 0.0], [1.0, 1.0]]), 1e-2, np.array([-0.01, -0.04])
    law = mbd.ContactLaw(stiffness=np.array([np.inf, 200.0]))
    system = Facets(*jax.device_put((planes, np.zeros(2))), law)
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
    displacement helps, which is 0.01 m/s over the step."""
    walls = Facets(*jax.device_put((np.array([[1.0], [-1.0]]), np.array([0.0, -2e-4]))))
    method = mbd.ContactImpulse(impacts=helpers.located(impacts))
    state = mbd.State(0.0, np.array([-1e-4]), np.zeros(1))
    sol = mbd.simulate(walls, method, state, 0.05, 1e-2, throw=False)
    helpers.assert_verdicts(sol.result, mbd.RESULTS.contact_unsolved)
    assert int(sol.stats["num_steps"]) == 0
    np.testing.assert_allclose(sol.contact_residual, 1e-2, rtol=1e-6)
    np.testing.assert_allclose(sol.q, -1e-4)


@pytest.mark.slow
def test_rounding_of_a_closed_gap_moves_nothing():
    """A point at rest on ground whose height is a parameter. It stays where the gap is rounding,
    closes a larger one, and follows the ground in both cases."""
    h, gap = 1e-2, np.array([0.0, 6e-13, -6e-13, 3e-9])

    def end(height, gap):
        """The height of the point, which starts above the ground at 0, and its velocity."""
        ground = Facets(jnp.eye(1), -height[None], gravity=G)
        start = mbd.State(0.0, gap[None], jnp.zeros(1))
        sol = mbd.simulate(ground, mbd.ContactImpulse(), start, dt=h, num_steps=1)
        return sol.q[0, 0], sol.v[0, 0]

    each = lambda fn: jax.jit(jax.vmap(fn))(np.zeros(4), gap)  # noqa: E731
    _, v = each(end)
    np.testing.assert_allclose(v, [0.0, 0.0, 0.0, -3e-9 / h], rtol=1e-9, atol=1e-15)
    for mode in (jax.jacfwd, jax.grad):
        np.testing.assert_allclose(each(mode(lambda *x: end(*x)[0])), 1.0, rtol=1e-12)


def table(t):
    """Its height and its velocity."""
    return 0.02 * np.sin(5 * t), 0.1 * np.cos(5 * t)


@eqx.filter_jit
def on_table(method, e, height):
    """Balls over or on it, at first at rest relative to it, for 0.3 s."""

    def one(e, height):
        ball = Ball(*np.array([1.3, 0.0]), e, np.array([0.02, 5.0]))
        state = mbd.State(0.0, jnp.stack([0 * height, height]), [0.0, 0.1])
        options = dict(t0=0.0, dt=5e-3, num_steps=60, saveat=diffrax.SaveAt(steps=1))
        return mbd.simulate(ball, method, state, **options)

    return jax.vmap(one)(e, height)


def carried(sol, atol):
    """The first, by a table that swings with less than g: place, of second order, and load."""
    t, q, force = (np.asarray(x)[0] for x in (sol.t, sol.q, sol.contact_force))
    height, _ = table(t)
    np.testing.assert_allclose(q[:, 1], height, rtol=0, atol=atol)
    np.testing.assert_allclose(force[3:, 0, 0], 1.3 * (G - 25 * height[3:]), atol=2e-2)


@pytest.mark.slow
def test_ground_that_accelerates():
    carried(on_table(mbd.ContactImpulse(), np.zeros(1), np.zeros(1)), 1.25e-5)


@pytest.mark.slow
def test_impacts_on_ground_that_accelerates():
    """Two of a ball, which end its parabolas at roots that SciPy finds; another is carried."""
    method = mbd.ContactImpulse(impacts=mbd.Located(2))
    e, height = np.array([0.0, 0.8]), np.array([0.0, 0.05])
    sol = on_table(method, e, height)
    carried(sol, 2.51e-5)
    times, bounces = np.asarray(sol.t)[1], np.asarray(sol.q)[1, :, 1]
    begin, y, v = 0.0, 0.05, 0.1
    for until in (0.2, 0.35):
        of = lambda s, y=y, v=v: y + v * s - G / 2 * s**2  # noqa: E731
        hit = brentq(lambda t, begin=begin, of=of: of(t - begin) - table(t)[0], begin + 0.05, until)
        between = (times > begin) & (times < hit)
        assert between.sum() > 10
        expected = of(times[between] - begin)
        np.testing.assert_allclose(bounces[between], expected, rtol=0, atol=1e-12)
        surface, rate = table(hit)
        begin, y, v = hit, surface, rate - 0.8 * (v - G * (hit - begin) - rate)
    s = times[times > begin] - begin
    assert len(s) > 2
    expected = y + v * s - G / 2 * s**2
    np.testing.assert_allclose(bounces[times > begin], expected, rtol=0, atol=1e-12)


class Rod(mbd.AbstractSystem):
    """A thin rod of 1 kg and 1 m, (x, y, angle) of its middle, whose lower end touches the
    ground."""

    friction: Array
    restitution: Array

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 1 / 12]))

    def force(self, t, q, v, u):
        return jnp.array([0.0, -G, 0.0])

    def end(self, q):
        return q[:2] - jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])]) / 2

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
    q, v = np.array([0.0, 0.5 * np.sin(0.9), 0.9]), np.array([0.8, -1.0, 0.3])

    def impact(e, law):
        system = Rod(*jax.device_put((np.array(0.3), np.array(e))))
        method, state = mbd.ContactImpulse(impact_law=law), mbd.State(0.0, q, v)
        sol = mbd.simulate(system, method, state, dt=1e-6, num_steps=1)
        return float(sol.contact_force[0, 0, 0]), np.asarray(sol.v[0])

    compression, _ = impact(0.0, mbd.contacts.Poisson())
    cases = [impact(0.6, law) for law in (mbd.contacts.Poisson(), mbd.contacts.Newton())]
    np.testing.assert_allclose(cases[0][0], 1.6 * compression, rtol=1e-4)
    assert abs(cases[1][0] / compression - 1.6) > 1e-2
    for _, after in cases:
        assert after**2 @ [1, 1, 1 / 12] < v**2 @ [1, 1, 1 / 12]


@pytest.mark.slow
def test_painleve():
    """The sliding rod with much friction, for which forces have no solution: an impulse has, and
    it is found, or the result says that it was not; never NaN."""

    @jax.jit
    @jax.vmap
    def slide(angle):
        state = mbd.State(0.0, jnp.stack([0.0 * angle, 0.5 * jnp.sin(angle), angle]), [-2.0, 0, 0])
        system, method = Rod(jnp.array(3.0), jnp.array(0.0)), mbd.ContactImpulse()
        return mbd.simulate(system, method, state, dt=1e-3, num_steps=50, throw=False)

    sol = slide(np.linspace(0.7, 1.4, 8))
    assert np.all(np.isfinite(sol.q)) and np.all(np.isfinite(sol.v))
    good = np.asarray(sol.result == mbd.RESULTS.successful)
    assert good.any()
    assert np.all(sol.contact_residual[good] < 1e-9)
    assert np.all(sol.contact_residual[~good] > 1e-10)
    # It jams in the first step, with a normal force far above the weight.
    assert np.max(sol.contact_loads.peak[:, 0, 0, 0]) > 10 * G
    end = np.asarray(sol.q[:, -1, 1] - jnp.sin(sol.q[:, -1, 2]) / 2)
    assert np.all(end > -1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("impacts, atol", [(0, 8e-2), (3, 1e-4)])
def test_float32(impacts, atol):
    ball, state = Ball(*np.array([1.3, 0.3, 0.8])), mbd.State(0.0, [0.0, 1.0], [0.5, 0.0])
    given = helpers.cast((ball, state), "float32")
    method = mbd.ContactImpulse(impacts=helpers.located(impacts))
    sol = mbd.simulate(given[0], method, given[1], t0=0.0, t1=1.0, dt=1e-2)
    assert sol.q.dtype == jnp.float32
    np.testing.assert_allclose(sol.q[-1, 1], bounced(1.0, 1.0, 0.8), atol=atol)


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
        solved = mbd.solvers.InteriorPoint().solve(problem, guess)
        shape = jax.ShapeDtypeStruct(solved.impulses.shape, solved.impulses.dtype)
        return solved._replace(impulses=jax.pure_callback(self.count, shape, solved.impulses))


@pytest.mark.slow
def test_reverse_pass_solves_nothing_again():
    """It recomputes steps from their start, but keeps the impulses that a solver found. A ball at
    rest has a problem in every step."""
    count = Count()
    method, state = (
        mbd.ContactImpulse(contact_solver=Counted(count)),
        mbd.State(0.0, [0, 0], [0, 0]),
    )

    def height(mass):
        ball = Ball(mass, jnp.array(0.3), jnp.array(0.5))
        return mbd.simulate(ball, method, state, dt=1e-2, num_steps=40).q[-1, 1]

    jax.block_until_ready(jax.jit(jax.value_and_grad(height))(np.array(1.3)))
    assert count.calls == 40


class Wrong(Ball):
    def slip(self, q, v, t):
        return v


def refused(system, **options):
    state = mbd.State(0.0, np.array([0.0, 1.0]), np.zeros(2))
    mbd.simulate(system, mbd.ContactImpulse(**options), state, t1=1.0, dt=0.1)


@refusals(
    ("kinetic", "kinetic.*0.3", lambda: mbd.ContactLaw(friction=0.2, kinetic=0.3)),
    ("bouncing spring", "compliant.*0.5",
     lambda: mbd.ContactLaw(stiffness=1e3, restitution=0.5)),
    ("damper alone", "damping.*stiffness", lambda: mbd.ContactLaw(damping=3.0)),
    ("smooth pyramid", "smoothing.*Cone",
     lambda: mbd.ContactImpulse(friction=mbd.contacts.Pyramid(4), smoothing=1e-3)),
    ("slip of no contact", "slip.*shape", lambda: refused(Wrong(*np.array([1.0, 0.0, 0.0])))),
    ("located springs", "stiffness.*impacts=Located",
     lambda: refused(Plane(law=mbd.ContactLaw(stiffness=1e4)), impacts=mbd.Located(1))),
)  # fmt: skip
def test_bad_input(words, call):
    check_refused(call, words)
