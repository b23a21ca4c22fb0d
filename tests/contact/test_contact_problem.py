"""Contact problems and their solvers, against their conditions written in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import slow_unless

import jaxmbd as mbd
from jaxmbd._contact import newton
from jaxmbd._contact.delassus import DenseDelassus, FactoredDelassus
from jaxmbd._contact.friction import Cone, Pyramid
from jaxmbd._contact.problem import ContactProblem, Groups
from jaxmbd._contact.rows import DenseContactJacobian
from jaxmbd._contact.solvers import interior_point
from jaxmbd._contact.solvers.projected_gauss_seidel import sweep
from jaxmbd._linalg import ConstraintOperator
from jaxmbd._methods import ContactProblems, Given


def problem_of(seed, contacts, nv, equalities, groups, ratio, *, twice=True):
    """M, J, J_c, v, mu of a random problem: masses over `ratio`, the last equality row redundant,
    and one contact `twice`."""
    rng = np.random.default_rng(seed)
    masses = ratio ** -rng.uniform(size=nv)
    J, Jc = rng.normal(size=(equalities, nv)), rng.normal(size=(contacts, groups.d, nv))
    if equalities > 1:
        J[-1] = 2 * J[0]
    if twice:
        Jc[-1] = Jc[0]
    v = rng.normal(size=nv)
    v = v - np.linalg.pinv(J) @ (J @ v) if equalities else v
    # Three out of four contacts approach.
    approach = np.where(np.arange(contacts) % 4 == 3, 1.0, -1.0)
    Jc = Jc * (approach * np.sign(Jc[:, 0] @ v))[:, None, None]
    return np.diag(masses), J, Jc, v, rng.uniform(size=(contacts, len(groups.sizes)))


def resolved(solver, groups, M, J, Jc, v, mu):
    """v+, impulses and the verdict."""
    operator = ConstraintOperator(mbd.Pseudoinverse(), M, J)
    contacts = DenseContactJacobian(Jc)
    free = v + operator.solve(jnp.zeros_like(v), -(J @ v))[0]
    zero = jnp.zeros(Jc.shape[0])
    problems = ContactProblems(solver, None, operator, J.shape[0], contacts, groups)
    guess = jnp.zeros(Jc.shape[:2])
    found = problems.resolve(Given(contacts.rows(free), mu, zero, guess, jnp.array(True)))
    return free + found.change, found.impulses, found.residual, found.result


solved = eqx.filter_jit(resolved)


@eqx.filter_jit
def with_slopes(solver, groups, given, direction, weights):
    """What is resolved, and in both modes the derivative of a sum of v+ along a direction."""

    def value(given):
        found = resolved(solver, groups, *given)
        return weights @ found[0], found

    _, along, found = jax.linearize(value, given, has_aux=True)
    forward = along(direction)
    (gradient,) = jax.linear_transpose(along, given)(jnp.ones_like(forward))
    back = sum(jnp.vdot(a, b) for a, b in zip(gradient, direction, strict=True))
    return found, forward, back


def violation(groups, M, J, Jc, v, mu, v_new, lam):
    """The worst of all conditions, in NumPy, from impulses and velocities: momentum, equality rows,
    no approach, no pull, one of the two zero, friction in its set, and against the slip."""
    M, J, Jc, v, mu, v_new, lam = (np.asarray(x) for x in (M, J, Jc, v, mu, v_new, lam))
    change = M @ (v_new - v) - np.einsum("cd,cdn->n", lam, Jc)
    reaction = np.linalg.lstsq(J.T, change, rcond=None)[0] if len(J) else np.zeros(0)
    worst = [np.abs(change - J.T @ reaction).max(), np.abs(J @ v_new).max(initial=0.0)]
    return max(*worst, broken_laws(groups, Jc @ v_new, lam, mu))


def broken_laws(groups, z, lam, mu):
    """The worst of the conditions on impulses and relative velocities, in NumPy."""
    n = lam[:, 0]
    worst = [max(-z[:, 0].min(), 0), max(-n.min(), 0), np.abs(np.minimum(n, z[:, 0])).max()]
    start = 1
    for i, (size, friction) in enumerate(zip(groups.sizes, groups.friction, strict=True)):
        t, slip = lam[:, start : start + size], z[:, start : start + size]
        start += size
        facets = friction.facets(size)
        if facets is None:
            reach = np.linalg.norm(t, axis=1)
            power = np.linalg.norm(slip, axis=1)
        else:
            c, normals = facets[:, 0], -facets[:, 1:]
            reach = (t @ normals.T / c).max(axis=1)
            corners = vertices(friction)
            power = (-slip @ corners.T).max(axis=1) if size == 2 else np.abs(slip[:, 0])
        worst.append((reach - mu[:, i] * n).max())
        # Most power: mu n times the support of the set in the direction of -slip.
        worst.append(np.abs(np.sum(-t * slip, axis=1) - mu[:, i] * n * power).max())
    return max(worst)


def vertices(pyramid):
    m = pyramid.directions
    size = 1 / np.cos(np.pi / m) if pyramid.circumscribed else 1.0
    angles = 2 * np.pi * np.arange(m) / m
    return size * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def coulomb(k, friction=Cone()):
    """Friction in k tangents."""
    return Groups((k,), (friction,))


KINDS = {
    "frictionless": Groups((), ()),
    "planar": coulomb(1),
    "cone": coulomb(2),
    "inscribed": coulomb(2, Pyramid(4)),
    "circumscribed": coulomb(2, Pyramid(8, circumscribed=True)),
    "rolling": Groups((2, 1, 2), (Cone(), Cone(), Cone())),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, ratio, nv", [*((kind, 1e4, 14) for kind in KINDS), ("cone", 1.0, 14), ("cone", 1e4, 48)]
)
def test_random_problems_are_solved(kind, ratio, nv):
    """With equalities, friction and redundant rows; by systems of the size of the contacts where
    there are 48 velocities."""
    groups = KINDS[kind]
    given = [problem_of(seed, 5, nv, 3, groups, ratio) for seed in range(80)]
    solve = jax.vmap(lambda *x: solved(mbd.solvers.InteriorPoint(), groups, *x))
    *found, result = solve(*map(np.stack, zip(*given, strict=True)))
    v_new, lam, residual = map(np.asarray, found)
    good = residual < 1e-8
    assert good.mean() >= 0.97  # 2 of 1008 failed, with rolling
    np.testing.assert_array_equal(result == mbd.RESULTS.successful, good)
    worst = [violation(groups, *given[i], v_new[i], lam[i]) for i in np.flatnonzero(good)]
    assert max(worst) < 1e-7 * max(1.0, np.abs(lam).max())


def of_dense(S, b, mu):
    return ContactProblem.scaled(DenseDelassus(S), b, mu, coulomb(2), None)


@jax.jit
@jax.vmap
def swept_often(S, b, mu):
    """Impulses, velocities and the residual after 1000 sweeps."""
    problem = of_dense(S, b, mu)
    lam, scale = sweep(problem, jnp.zeros_like(b), 1000), problem.scale[:, None]
    return lam * scale, problem.velocities(lam) / scale, problem.residual(lam)


TOWER = 40


def tower(moving=None):
    """40 stacked masses of 1 kg, which 1 m/s presses on the ground, and which may be `moving` apart
    at the start of the step."""
    S = 2 * np.eye(TOWER) - np.eye(TOWER, k=1) - np.eye(TOWER, k=-1)
    S[0, 0] = 1.0
    b = jnp.zeros((TOWER, 1)).at[0].set(-1.0)
    none = jnp.zeros((TOWER, 0))
    operator = DenseDelassus(jnp.asarray(S)[:, None, :, None])
    b = b if moving is None else b + moving
    return ContactProblem.scaled(operator, b, none, Groups((), ()), None, moving)


def error_in_a_tower(problem, scaled):
    """The largest error of the impulses at rest, over the largest of them."""
    lam = scaled * problem.scale[:, None]
    return jnp.max(jnp.abs(lam[:, 0] - jnp.arange(TOWER, 0, -1.0))) / TOWER


@jax.jit
def in_a_tower(sweeps):
    problem = tower()
    return error_in_a_tower(problem, sweep(problem, jnp.zeros_like(problem.b), sweeps))


@jax.jit
def errors_of_a_step(moving):
    """Of the impulses of a step, and of those that are expected of the next one."""
    problem = tower(moving)
    guess = jnp.arange(TOWER, 0, -1.0)[:, None] / problem.scale[:, None]
    found = mbd.solvers.InteriorPoint().solve(problem, guess)
    return [error_in_a_tower(problem, lam) for lam in (found.impulses, found.expected)]


@pytest.mark.slow
def test_news_travel_through_a_tower():
    """Without going on in the last direction, a sweep leaves cos^2(pi / 81) of the error."""
    assert in_a_tower(120) < 1e-3 < np.cos(np.pi / 81) ** 240


@pytest.mark.slow
def test_the_next_guess_leaves_out_what_passes():
    """Impulses remove velocities of the size of rounding once, and the next step starts from the
    impulses at rest. Larger velocities, as of bodies that roll, come back in each step."""
    moving = np.random.default_rng(0).normal(size=(TOWER, 1))
    own, expected = errors_of_a_step(1e-10 * moving)
    assert expected < 1e-2 * own
    own, expected = errors_of_a_step(1e-6 * moving)
    np.testing.assert_allclose(expected, own, rtol=1e-4)


def test_methods_alone(monkeypatch):
    """Eight steps of the interior-point method, and proximal problems, without Newton's method,
    which would hide faults: with a wrong predictor or corrector a residual above 1e-2 [m/s] is
    left. Gauss-Seidel goes round in circles in one, which its residual tells."""
    problems = []
    for seed in range(8):
        _, J, Jc, v, mu = problem_of(seed, 5, 14, 3, coulomb(2), 1.0, twice=False)
        Y = Jc @ (np.eye(14) - np.linalg.pinv(J) @ J)  # M = 1
        problems.append((np.einsum("cdn,ekn->cdek", Y, Y), Jc @ v, mu))
    given = tuple(map(np.array, zip(*problems, strict=True)))
    for before, solver, share, bound in [
        (0, mbd.solvers.InteriorPoint(0.0, newton_steps=0, steps=8, restarts=1), 0.5, 1e-3),
        (400, mbd.solvers.InteriorPoint(1e-11, newton_steps=0), 1.0, 1e-11),
    ]:
        monkeypatch.setattr(interior_point, "_BEFORE", before)  # proximal problems
        solve = jax.vmap(lambda S, b, mu: solver.solve(of_dense(S, b, mu), jnp.zeros_like(b))[1])  # noqa: B023
        assert np.quantile(jax.jit(solve)(*given), share) < bound
    swept = [np.asarray(x) for x in swept_often(*given)]
    laws = [
        broken_laws(coulomb(2), z, lam, mu)
        for lam, z, (*_, mu) in zip(*swept[:2], problems, strict=True)
    ]
    assert np.sum(swept[2] < 1e-12) == 7
    np.testing.assert_array_equal(swept[2] < 1e-12, np.array(laws) < 1e-10)


@eqx.filter_jit
def scaled(S, b, mu, smoothing):
    """One contact."""
    S = DenseDelassus(S[None, :, None, :])
    return ContactProblem.scaled(S, b[None], jnp.reshape(mu, (1, 1)), coulomb(2), smoothing)


@jax.jit
def alone(problem):
    found = mbd.solvers.InteriorPoint().solve(problem, jnp.zeros_like(problem.b))
    return found.accepted, found.impulses * problem.scale[:, None]


@pytest.mark.slow
def test_a_path_goes_through_folds():
    """Painleve's rod: friction mu = 2 and a coupling of 0.9 turn the mobility 1 of a slipping
    contact into 1 - 1.8 < 0. Open, it approaches; slipping, it pulls. Newton's full steps go from
    one to the other and back. The contact sticks, with -S^-1 b."""
    S, b = jnp.array([[1.0, -0.9], [-0.9, 1.0]]), jnp.array([[-1.0, -3.0]])
    groups = Groups((1,), (Cone(),))
    dense = DenseDelassus(S[None, :, None])
    one = jnp.ones(1)
    problem = ContactProblem(dense, b, jnp.array([[2.0]]), one, None, jnp.zeros((1, 1, 1)), groups)

    @jax.jit
    def step(lam, last, sign):
        z = problem.velocities(lam)
        r = problem.natural(lam, z)
        C, D = newton.natural_derivative(problem, lam, z)
        d = jnp.linalg.solve(C[0] + D[0] @ S, -r[0])[None]
        lam_next, sign = newton.followed(problem, lam, z, d, dense.times(d), last, sign)
        return lam + d, lam_next, lam - z, sign, problem.norm(r)

    lam = jnp.zeros_like(b)
    for _ in range(20):
        lam, *_, residual = step(lam, lam, 1.0)
        assert residual > 0.1
    # There the slipping contact has the determinant of the other sign.
    lam, last, sign, signs = jnp.zeros_like(b), -b, -1.0, []
    for _ in range(8):
        _, lam, last, sign, residual = step(lam, last, sign)
        signs.append(float(sign))
    assert residual < 1e-12
    np.testing.assert_allclose(lam[0], np.linalg.solve(S, -b[0]), rtol=1e-12)
    assert signs[0] == -1.0
    assert signs[-1] == 1.0


def test_rounding_in_a_held_direction_leaves_friction_to_the_others():
    """Equality rows hold the second tangent, where they leave a slip of rounding. Coulomb's law by
    the letter would spend all friction on it, and the first tangent would slide."""
    S, b, none = np.diag([1.0, 1.0, 1e-17]), np.array([-1.0, 0.3, 1e-9]), np.zeros(())
    accepted, impulses = alone(scaled(S, b, np.array(0.5), none))
    assert accepted
    np.testing.assert_allclose(impulses, [[1.0, -0.3, 0.0]], atol=2e-3)
    assert np.max(np.abs(scaled(np.eye(3), b, np.array(0.5), none).held)) < 1e-40


def test_what_nothing_can_move_is_not_accepted():
    """Two shapes on the ground that approach each other."""
    accepted, _ = alone(
        scaled(np.zeros((3, 3)), np.array([-1.0, 0.0, 0.0]), np.array(0.5), np.zeros(()))
    )
    assert not accepted


@pytest.mark.parametrize(
    "friction, factor",
    [
        (Cone(), lambda a: 1.0),
        (Pyramid(4), lambda a: np.cos(np.pi / 4) / np.cos(a % (np.pi / 2) - np.pi / 4)),
        (Pyramid(4, circumscribed=True), lambda a: 1 / np.cos(a % (np.pi / 2) - np.pi / 4)),
    ],
)
def test_reach_in_every_direction(friction, factor):
    """How far the set reaches: the projection of a far point along a ray on which friction acts
    against a slip in that direction lies on the edge, and inside nothing changes."""
    zero, one = np.zeros(()), np.ones(())
    project, support = jax.jit(friction.project), jax.jit(friction.support)
    for a in np.linspace(0.1, 6.2, 13):
        d = np.array([np.cos(a), np.sin(a)])
        reach = float(factor(a))
        inside = 0.999 * reach * d
        np.testing.assert_allclose(project(inside, one, zero), inside, atol=1e-15)
        outside = np.asarray(project(1.001 * reach * d, one, zero))
        assert np.linalg.norm(outside - 1.001 * reach * d) > 1e-4
        far = np.asarray(project(100.0 * d, one, zero))
        np.testing.assert_allclose(far @ d, support(-d), rtol=1e-2)


@pytest.mark.parametrize("friction", [Cone(), Pyramid(4)], ids=str)
def test_contacts_at_rest_without_tangential_impulse_stick(friction):
    """In their derivatives too: friction holds any small pull."""
    slope = jax.jit(jax.jacfwd(lambda t: friction.project(t, jnp.asarray(0.4), None)))
    np.testing.assert_allclose(slope(np.zeros(2)), np.eye(2), atol=1e-15)


@pytest.mark.parametrize("friction", [Cone(), Pyramid(4)], ids=str)
@pytest.mark.parametrize("k", [1, 2])
def test_contacts_between_two_states_have_the_derivative_of_one(friction, k):
    """At the limit of friction they stick, and without load or slip they are open."""
    groups = Groups((k,), (friction,))
    slope = jax.jit(jax.jacfwd(lambda y: groups.project(y, jnp.asarray([0.5]), None)))
    edge = np.array([2.0, 1.0, 0.0])[: 1 + k]
    np.testing.assert_allclose(slope(edge), np.eye(1 + k), atol=1e-15)
    np.testing.assert_array_equal(slope(np.zeros(1 + k)), 0.0)


def test_smoothing_follows_the_central_path():
    """lam_n z_n = s^2 / S_nn, and Coulomb's law within O(s)."""
    s, b = 1e-3, np.array([-1.0, 0.5, 0.2])
    accepted, lam = jax.device_get(alone(scaled(2.0 * np.eye(3), b, np.array(0.3), np.array(s))))
    z = 2.0 * lam[0] + b
    assert accepted
    np.testing.assert_allclose(lam[0, 0] * z[0], s**2 / 2.0, rtol=1e-6)
    np.testing.assert_allclose(lam[0, 0], 0.5, rtol=5 * s)
    np.testing.assert_allclose(np.linalg.norm(lam[0, 1:]), 0.3 * lam[0, 0], rtol=20 * s)


SLOPES = [
    ("cone", mbd.solvers.InteriorPoint(), 12),
    *((kind, mbd.solvers.InteriorPoint(), 12) for kind in ("frictionless", "planar", "rolling")),
    # Systems of the size of the contacts, and another solver: the derivatives know no friction.
    ("cone", mbd.solvers.InteriorPoint(), 48),
    ("cone", mbd.solvers.ProjectedGaussSeidel(300), 12),
]


@pytest.mark.parametrize("kind, solver, nv", slow_unless(lambda *case: case == SLOPES[0], SLOPES))
def test_derivatives_at_the_solution(kind, solver, nv):
    """Of v+ with respect to masses, velocities, rows and coefficients, in both modes, against
    differences; contacts of all states are among them."""
    groups, rng = KINDS[kind], np.random.default_rng(5)
    given = problem_of(21, 5, nv, 2, groups, 3.0, twice=False)
    direction = [rng.normal(size=x.shape) for x in given]
    direction = (np.diag(np.diagonal(direction[0])), 0 * given[1], *direction[2:])
    weights = rng.normal(size=nv)

    def along(s):
        moved = tuple(x + s * d for x, d in zip(given, direction, strict=True))
        return with_slopes(solver, groups, moved, direction, weights)

    found, forward, back = jax.device_get(along(0.0))
    v_new, lam, residual, _ = found
    if isinstance(solver, mbd.solvers.InteriorPoint):
        assert violation(groups, *given, v_new, lam) < 1e-9 and residual < 1e-9
    step = 1e-6
    ends = [weights @ np.asarray(along(s)[0][0]) for s in (step, -step)]
    np.testing.assert_allclose(forward, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(back, forward, rtol=1e-7, atol=1e-12)
    if kind != "frictionless":
        sliding = np.linalg.norm((given[2] @ np.asarray(v_new))[:, 1:], axis=1) > 1e-6
        assert np.any(sliding & (lam[:, 0] > 1e-6))
        assert np.any(lam[:, 0] == 0) or nv == 48


@pytest.mark.slow
def test_second_derivatives():
    """Forward over reverse, against differences of the gradient, of independent contacts."""
    groups = coulomb(2)
    M, J, Jc, v, mu = problem_of(22, 3, 10, 1, groups, 1.0, twice=False)

    def value(m):
        return jnp.sum(
            solved(mbd.solvers.InteriorPoint(), groups, jnp.diag(m), J, Jc, v, mu)[0] ** 2
        )

    d, step = np.random.default_rng(1).normal(size=10), 1e-5
    both = jax.jit(lambda m: jax.jvp(jax.grad(value), (m,), (d,)))
    m = np.diagonal(M)
    ends = [both(m + s * d)[0] for s in (step, -step)]
    np.testing.assert_allclose(both(m)[1], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6)


def tilted_faces(count, friction, dtype):
    """Boxes on a face, tilted by 1e-6 to 1e-3, with their gaps as biases: where more corners stick
    than may, by that little, some have to slip. On the pyramid a rod that slides along the normal
    of one edge of the polygon, on which friction is undetermined but for the rod's small spin."""
    rng = np.random.default_rng(8)
    rod = isinstance(friction, Pyramid)
    half = np.array([0.3, 0.02, 0.02] if rod else [0.1, 0.1, 0.1])
    M = np.concatenate([np.ones(3), (half @ half - half**2) / 3])
    x, y, z = (half * np.array([[-1, -1, -1], [1, -1, -1], [-1, 1, -1], [1, 1, -1]])).T
    tilt = 10.0 ** rng.uniform(-6, -3, (count, 1)) * rng.normal(size=(count, 2))
    z = z + tilt[:, :1] * y + tilt[:, 1:] * x
    turn = np.pi / 4 + 1e-4 * rng.normal(size=count) if rod else rng.uniform(0, 6, count)
    c, s = np.cos(turn)[:, None], np.sin(turn)[:, None]
    arms = np.stack([c * x - s * y, s * x + c * y, z], axis=-1)
    axes = np.broadcast_to([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]], (count, 4, 3, 3))
    J = np.concatenate([axes, np.cross(arms[:, :, None], axes)], axis=-1)
    speed = 10.0 ** rng.uniform(-4, -1, (count, 1)) * [1, 1, 1, 10, 10, 10]
    v = speed * rng.normal(size=(count, 6))
    v[:, 2] -= 0.025
    bias = (z - z.min(axis=1, keepdims=True)) / 2.5e-3
    mu = rng.uniform(0.1, 1.0, count)
    root = np.sqrt(M).astype(dtype)[None, None]

    def problem(J, v, bias, mu):
        S = FactoredDelassus(DenseContactJacobian(J / root), jnp.zeros((4, 3, 3), dtype))
        b = (J @ v).at[:, 0].add(bias)
        mu = jnp.full((4, 1), mu)
        return ContactProblem.scaled(S, b, mu, coulomb(2, friction), jnp.zeros((), dtype))

    problems = jax.jit(jax.vmap(problem))(*(np.asarray(x, dtype) for x in (J, v, bias, mu)))
    return problems, M, J, v, bias, mu


# By default each law in one precision.
FRICTION = {"cone": Cone(), "pyramid": Pyramid(4)}
PRECISIONS = slow_unless(
    lambda name, dtype: (name == "cone") == (dtype == "float64"),
    [(name, dtype) for name in FRICTION for dtype in ("float64", "float32")],
)


@jax.jit
def solved_in_turn(problems):
    def solve(problem):
        return mbd.solvers.InteriorPoint().solve(problem, jnp.zeros_like(problem.b))

    return jax.lax.map(solve, problems)


@pytest.mark.parametrize("name, dtype", PRECISIONS)
def test_faces_that_nearly_stick(name, dtype):
    """Where Newton's method ends at 1e-8 to 1e-4 m/s."""
    friction, bound = FRICTION[name], max(1e-8, 1e3 * float(np.finfo(dtype).eps))
    given, M, J, v, bias, mu = tilted_faces(1000, friction, dtype)
    found = jax.device_get(solved_in_turn(given))
    assert np.all(found.accepted)
    # Not by a bound that impulses without limit have loosened.
    assert np.all(found.residual < bound)
    lam = np.asarray(found.impulses, float) * np.asarray(given.scale, float)[:, :, None]
    z = np.einsum("kcdn,kn->kcd", J, v + np.einsum("kcd,kcdn->kn", lam, J) / M)
    z[:, :, 0] += bias
    laws = [
        broken_laws(coulomb(2, friction), *x) for x in zip(z, lam, mu[:, None, None], strict=True)
    ]
    assert max(laws) < 2 * bound
