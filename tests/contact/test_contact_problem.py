"""Contact problems and their solvers, against conditions and enumerations written in NumPy."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import slow_unless

import jaxmbd as mbd
from jaxmbd._contact.contact_impulse import ContactProblems, Given
from jaxmbd._contact.delassus import DenseDelassus, FactoredDelassus
from jaxmbd._contact.friction import Cone, Pyramid
from jaxmbd._contact.problem import ContactProblem, Groups, coulomb, frictionless
from jaxmbd._contact.problem import residuals as problem_residuals
from jaxmbd._contact.rows import DenseContactJacobian
from jaxmbd._contact.solvers.projected_gauss_seidel import sweep
from jaxmbd._linalg import ConstraintOperator


@eqx.filter_jit
def problem_of(key, contacts, nv, equalities, groups, ratio):
    """M, J, J_c, v, mu of a random problem: masses over `ratio`, the last equality row redundant,
    and one contact twice."""
    keys = jr.split(key, 6)
    masses = ratio ** (-jr.uniform(keys[0], (nv,)))
    J = jr.normal(keys[1], (equalities, nv))
    if equalities > 1:
        J = J.at[-1].set(2 * J[0])
    Jc = jr.normal(keys[2], (contacts, groups.d, nv)).at[-1].set(0.0)
    Jc = Jc.at[-1].set(Jc[0])
    v = jr.normal(keys[3], (nv,))
    v = v - jnp.linalg.pinv(J) @ (J @ v) if equalities else v
    # Three out of four contacts approach.
    approach = jnp.where(jnp.arange(contacts) % 4 == 3, 1.0, -1.0)
    Jc = Jc * (approach * jnp.sign(Jc[:, 0] @ v))[:, None, None]
    mu = jr.uniform(keys[4], (contacts, len(groups.sizes)))
    return jnp.diag(masses), J, Jc, v, mu


@eqx.filter_jit
def solved(solver, groups, M, J, Jc, v, mu):
    """v+, impulses and the verdict."""
    operator = ConstraintOperator(mbd.Pseudoinverse(), M, J)
    contacts = DenseContactJacobian(Jc)
    free = v + operator.solve(jnp.zeros_like(v), -(J @ v))[0]
    zero = jnp.zeros(Jc.shape[0])
    enforcement = mbd.ContactImpulse(contact_solver=solver)
    problems = ContactProblems(enforcement, operator, J.shape[0], contacts, groups)
    guess = jnp.zeros(Jc.shape[:2])
    found = problems.resolve(Given(contacts.rows(free), mu, zero, guess, jnp.array(True)))
    return free + found.change, found.impulses, found.residual, found.result


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


KINDS = {
    "frictionless": frictionless(),
    "planar": coulomb(1),
    "cone": coulomb(2),
    "inscribed": coulomb(2, Pyramid(4)),
    "circumscribed": coulomb(2, Pyramid(8, circumscribed=True)),
    "rolling": Groups((2, 1, 2), (Cone(), Cone(), Cone())),
}


@pytest.mark.slow
@pytest.mark.parametrize("nv", [14, 48])
@pytest.mark.parametrize("ratio", [1.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_random_problems_are_solved(kind, ratio, nv):
    """Of 1000 (42 for each kind, ratio and size) with equalities, friction and redundant rows; by
    systems of the size of the contacts where there are 48 velocities."""
    groups, count = KINDS[kind], 42
    keys = jr.split(jr.key(7), count)
    make = jax.vmap(lambda key: problem_of(key, 5, nv, 3, groups, ratio))
    M, J, Jc, v, mu = make(keys)
    solve = jax.vmap(lambda *x: solved(mbd.InteriorPoint(), groups, *x))
    v_new, lam, residual, result = solve(M, J, Jc, v, mu)
    good = np.asarray(residual) < 1e-8
    assert good.mean() >= 0.97  # 2 of all 1008 fail, with rolling
    np.testing.assert_array_equal(result == mbd.RESULTS.successful, good)
    worst = [
        violation(groups, M[i], J[i], Jc[i], v[i], mu[i], v_new[i], lam[i])
        for i in np.flatnonzero(good)
    ]
    scale = max(1.0, float(jnp.max(jnp.abs(lam))))
    assert max(worst) < 1e-7 * scale


@pytest.mark.parametrize(("kind", "bound"), [("frictionless", 1e-8), ("cone", 1e-3)])
def test_interior_point_method_alone(kind, bound):
    """Eight iterations without Newton's method, which would hide faults: a wrong predictor or
    corrector leaves a residual above 1e-2 [m/s]. With friction, the redundant contact and the slip
    that is not smooth at rest stop it earlier."""
    groups, solver = KINDS[kind], mbd.InteriorPoint(newton_steps=0, restarts=0, steps=8)
    make = jax.vmap(lambda key: problem_of(key, 5, 14, 3, groups, 1.0))
    problems = make(jr.split(jr.key(3), 8))
    residual = jax.vmap(lambda *x: solved(solver, groups, *x))(*problems)[2]
    assert np.max(residual) < bound


# What has no friction is enumerated below.
@pytest.mark.parametrize(
    "kind",
    slow_unless(
        lambda kind: kind in ("cone", "inscribed"), ["frictionless", "planar", "cone", "inscribed"]
    ),
)
def test_conditions_hold(kind, getkey):
    groups = KINDS[kind]
    problem = problem_of(getkey(), 4, 9, 2, groups, 10.0)
    M, J, Jc, v, mu = problem
    for solver, bound in ((mbd.InteriorPoint(), 1e-9), (mbd.ProjectedGaussSeidel(2000), 1e-6)):
        v_new, lam, residual, result = solved(solver, groups, *problem)
        assert violation(groups, M, J, Jc, v, mu, v_new, lam) < bound
        assert residual < bound
        assert result == mbd.RESULTS.successful
    # The conditions see what is not a solution.
    assert violation(groups, M, J, Jc, v, mu, v_new, 1.01 * lam) > 1e-4
    assert violation(groups, M, J, Jc, v, mu, v, 0 * lam) > 1e-2


@pytest.mark.parametrize("seed", range(4))
def test_enumeration_without_friction(seed):
    M, J, Jc, v, mu = problem_of(jr.key(seed), 5, 8, 1, frictionless(), 3.0)
    v_new, *_ = solved(mbd.InteriorPoint(), frictionless(), M, J, Jc, v, mu)
    found = []
    for active in itertools.product([False, True], repeat=4):  # the fifth is the first once more
        rows = np.concatenate([J, Jc[:4, 0][np.array(active)]])
        K = np.block([[M, -rows.T], [rows, np.zeros((len(rows), len(rows)))]])
        x = np.linalg.lstsq(K, np.concatenate([M @ v, np.zeros(len(rows))]), rcond=None)[0]
        n, z = x[len(v) + len(J) :], Jc[:, 0] @ x[: len(v)]
        if n.min(initial=0) >= -1e-12 and z.min() >= -1e-9:
            found.append(x[: len(v)])
    assert found  # exactly one velocity, by Gauss's principle
    for x in found:
        np.testing.assert_allclose(v_new, x, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_enumeration_with_friction_in_the_plane(seed):
    groups, k = coulomb(1), 3
    M, J, Jc, v, mu = problem_of(jr.key(10 + seed), k, 8, 1, groups, 1.0)
    Jc = Jc.at[-1].set(jr.normal(jr.key(99 + seed), Jc[-1].shape))
    v_new, *_ = solved(mbd.InteriorPoint(), groups, M, J, Jc, v, mu)
    M_, J_, Jc_, v_, mu_ = (np.asarray(x) for x in (M, J, Jc, v, mu))
    nv, found = len(v_), []
    for state in itertools.product(["open", "stick", "right", "left"], repeat=k):
        # Unknown v+, reactions, (n, t) of each contact; two equations for each contact.
        size = nv + len(J_) + 2 * k
        A, r = np.zeros((size, size)), np.zeros(size)
        A[:nv, :nv], r[:nv] = M_, M_ @ v_
        A[:nv, nv : nv + 1], A[nv : nv + 1, :nv] = -J_.T, J_
        for i, s in enumerate(state):
            n = nv + 1 + 2 * i
            A[:nv, n], A[:nv, n + 1] = -Jc_[i, 0], -Jc_[i, 1]
            if s == "open":
                A[n, n] = A[n + 1, n + 1] = 1.0
                continue
            A[n, :nv] = Jc_[i, 0]
            if s == "stick":
                A[n + 1, :nv] = Jc_[i, 1]
            else:
                A[n + 1, n + 1], A[n + 1, n] = 1.0, mu_[i, 0] * (1 if s == "right" else -1)
        x = np.linalg.solve(A, r)
        lam, z = x[nv + 1 :].reshape(k, 2), Jc_ @ x[:nv]
        slip = {"open": 0, "stick": 0, "right": 1, "left": -1}
        if (
            lam[:, 0].min() >= -1e-12
            and z[:, 0].min() >= -1e-9
            and np.all(np.abs(lam[:, 1]) <= mu_[:, 0] * lam[:, 0] + 1e-9)
            and all(z[i, 1] * slip[s] >= -1e-9 for i, s in enumerate(state))
        ):
            found.append(x[:nv])
    assert found
    assert min(np.abs(np.asarray(v_new) - x).max() for x in found) < 1e-8


def test_gauss_seidel_projects_row_by_row():
    """One sweep by hand; a clamp after the substitution, as printed, would leave n_2 < 0 in n_1."""
    S = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    b = jnp.array([[-1.0], [0.75]])
    problem = ContactProblem(
        DenseDelassus(S[:, None, :, None]),
        b,
        jnp.zeros((2, 0)),
        jnp.ones(2),
        jnp.zeros(2),
        jnp.zeros((2, 0, 0)),
        frictionless(),
    )
    # n_1 = 1/2; n_2 = max(0, -(0.75 + 0.5) / 2) = 0; the next sweep changes nothing.
    lam = sweep(problem, jnp.zeros((2, 1)), 1)
    np.testing.assert_allclose(lam[:, 0], [0.5, 0.0], atol=1e-15)
    assert problem.residual(lam) < 1e-15


def of_one_contact(S):
    return DenseDelassus(S[None, :, None, :])


scaled = eqx.filter_jit(ContactProblem.scaled)


@jax.jit
def alone(problem):
    return mbd.InteriorPoint().solve(problem, jnp.zeros_like(problem.b))


def test_rounding_in_a_held_direction_leaves_friction_to_the_others():
    """Equality rows hold the second tangent, where they leave a slip of rounding. Coulomb's law by
    the letter would spend all friction on it, and the first tangent would slide."""
    S, b = jnp.diag(jnp.array([1.0, 1.0, 1e-17])), jnp.array([[-1.0, 0.3, 1e-9]])
    mu, none = jnp.array([[0.5]]), jnp.zeros(())
    problem = scaled(of_one_contact(S), b, mu, coulomb(2), none)
    found = alone(problem)
    assert found.accepted
    physical = found.impulses * problem.scale[:, None]
    np.testing.assert_allclose(physical, [[1.0, -0.3, 0.0]], atol=2e-3)
    free = scaled(of_one_contact(jnp.eye(3)), b, mu, coulomb(2), none)
    assert jnp.max(jnp.abs(free.held)) < 1e-40


@pytest.mark.slow
def test_gauss_seidel_converges_linearly():
    M, J, Jc, v, mu = problem_of(jr.key(3), 4, 12, 2, coulomb(2), 1.0)
    of = [
        float(solved(mbd.ProjectedGaussSeidel(n), coulomb(2), M, J, Jc, v, mu)[2])
        for n in (5, 20, 80)
    ]
    assert of[0] > 10 * of[1] > 100 * of[2]


def test_residuals_tell_apart():
    """A ball on the ground: each wrong impulse shows in its own residual."""
    groups, S = coulomb(2), jnp.eye(3)
    problem = scaled(
        of_one_contact(S),
        jnp.array([[-1.0, 0.5, 0.0]]),
        jnp.array([[0.3]]),
        groups,
        jnp.zeros(()),
    )
    residuals = jax.jit(partial(problem_residuals, problem))
    right = jnp.array([[1.0, -0.3, 0.0]])
    np.testing.assert_allclose(residuals(right), 0.0, atol=1e-15)
    small = residuals(jnp.array([[0.8, -0.24, 0.0]]))
    np.testing.assert_allclose([small.penetration, small.complementarity], 0.2, rtol=1e-12)
    np.testing.assert_allclose(small.cone, 0.0, atol=1e-15)
    strong = residuals(jnp.array([[1.0, -0.4, 0.0]]))
    np.testing.assert_allclose(strong.cone, 0.1, rtol=1e-12)
    weak = residuals(jnp.array([[1.0, -0.1, 0.0]]))
    np.testing.assert_allclose([weak.cone, weak.slip], [0.0, 0.2], atol=1e-12)


@pytest.mark.parametrize(
    "friction, factor",
    [
        (Cone(), lambda a: 1.0),
        (Pyramid(4), lambda a: np.cos(np.pi / 4) / np.cos(a % (np.pi / 2) - np.pi / 4)),
        (Pyramid(4, circumscribed=True), lambda a: 1 / np.cos(a % (np.pi / 2) - np.pi / 4)),
        (Pyramid(8), lambda a: np.cos(np.pi / 8) / np.cos(a % (np.pi / 4) - np.pi / 8)),
    ],
)
def test_reach_in_every_direction(friction, factor):
    """How far the set reaches: the projection of a far point along a ray on which friction acts
    against a slip in that direction lies on the edge, and inside nothing changes."""
    zero = jnp.zeros(())
    project, support = jax.jit(friction.project), jax.jit(friction.support)
    for a in np.linspace(0.1, 6.2, 13):
        d = np.array([np.cos(a), np.sin(a)])
        reach = float(factor(a))
        inside = jnp.asarray(0.999 * reach * d)
        np.testing.assert_allclose(project(inside, jnp.ones(()), zero), inside, atol=1e-15)
        outside = project(jnp.asarray(1.001 * reach * d), jnp.ones(()), zero)
        assert np.linalg.norm(outside - 1.001 * reach * d) > 1e-4
        far = np.asarray(project(jnp.asarray(100.0 * d), jnp.ones(()), zero))
        np.testing.assert_allclose(far @ d, support(jnp.asarray(-d)), rtol=1e-2)


def test_smoothing_follows_the_central_path():
    """lam_n z_n = s^2 / S_nn, and Coulomb's law within O(s)."""
    groups, s = coulomb(2), 1e-3
    S, b = 2.0 * jnp.eye(3), jnp.array([[-1.0, 0.5, 0.2]])
    problem = scaled(of_one_contact(S), b, jnp.array([[0.3]]), groups, jnp.asarray(s))
    found = alone(problem)
    lam = found.impulses * problem.scale[:, None]
    z = S @ lam[0] + b[0]
    assert found.accepted
    np.testing.assert_allclose(lam[0, 0] * z[0], s**2 / 2.0, rtol=1e-6)
    np.testing.assert_allclose(lam[0, 0], 0.5, rtol=5 * s)
    np.testing.assert_allclose(jnp.linalg.norm(lam[0, 1:]), 0.3 * lam[0, 0], rtol=20 * s)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, solver, nv",
    [
        *((kind, mbd.InteriorPoint(), 12) for kind in ("frictionless", "planar", "rolling")),
        # Systems of the size of the contacts, and another solver: the derivatives know no friction.
        ("cone", mbd.InteriorPoint(), 48),
        ("cone", mbd.ProjectedGaussSeidel(300), 12),
    ],
)
def test_derivatives_at_the_solution(kind, solver, nv):
    """Of v+ with respect to masses, velocities, rows and coefficients, in both modes, against
    differences; contacts of all states are among them."""
    groups = KINDS[kind]
    M, J, Jc, v, mu = problem_of(jr.key(21), 5, nv, 2, groups, 3.0)
    Jc = Jc.at[-1].set(jr.normal(jr.key(5), Jc[-1].shape))
    weights = jr.normal(jr.key(6), v.shape)

    @jax.jit
    def value(p):
        m, J, Jc, v, mu = p
        v_new, *_ = solved(solver, groups, jnp.diag(m), J, Jc, v, mu)
        return jnp.sum(weights * v_new)

    p = (jnp.diagonal(M), J, Jc, v, mu)
    direction = jax.tree.map(lambda x: jr.normal(jr.key(x.size), x.shape), p)
    direction = (direction[0], 0 * J, direction[2], direction[3], direction[4])

    @jax.jit
    def slopes(p):
        return jax.grad(value)(p), jax.jvp(value, (p,), (direction,))[1]

    reverse, forward = slopes(p)
    along = sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(reverse), direction, strict=True))
    step = 1e-6
    ends = [value(jax.tree.map(lambda x, d, s=s: x + s * d, p, direction)) for s in (step, -step)]
    np.testing.assert_allclose(forward, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)
    # Where all contacts stick, all derivatives vanish.
    np.testing.assert_allclose(along, forward, rtol=1e-7, atol=1e-12)


@pytest.mark.slow
def test_second_derivatives():
    """Forward over reverse, against differences of the gradient, of independent contacts."""
    groups = coulomb(2)
    M, J, Jc, v, mu = problem_of(jr.key(22), 3, 10, 1, groups, 1.0)
    Jc = Jc.at[-1].set(jr.normal(jr.key(5), Jc[-1].shape))

    def value(m):
        return jnp.sum(solved(mbd.InteriorPoint(), groups, jnp.diag(m), J, Jc, v, mu)[0] ** 2)

    m, d, step = jnp.diagonal(M), jr.normal(jr.key(1), (10,)), 1e-5
    slope = jax.jit(jax.grad(value))
    second = jax.jit(lambda m: jax.jvp(jax.grad(value), (m,), (d,))[1])(m)
    ends = [slope(m + s * d) for s in (step, -step)]
    np.testing.assert_allclose(second, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_heavy_on_light():
    """Mass ratio 1:10^4, redundant: where Gauss-Seidel is far off and says so."""
    boxes = [stack_problem(n, 1e4) for n in (2, 4)]
    for M, Jc, v, mu in boxes:
        none = jnp.zeros((0, v.shape[0]))
        v_new, lam, residual, result = solved(mbd.InteriorPoint(), coulomb(2), M, none, Jc, v, mu)
        assert result == mbd.RESULTS.successful and residual < 1e-8
        scale = float(jnp.max(lam))
        assert violation(coulomb(2), M, none, Jc, v, mu, v_new, lam) < 1e-9 * scale
        *_, residual, result = solved(mbd.ProjectedGaussSeidel(100), coulomb(2), M, none, Jc, v, mu)
        assert residual > 1e-3
        assert result == mbd.RESULTS.contact_unsolved


def stack_problem(n, ratio):
    """Boxes on top of each other, the last one `ratio` times as heavy as the first, with four
    corners between neighbours, falling and drifting apart."""
    axes = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], float)
    corners = [(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)]
    rows = np.zeros((4 * n, 3, 6 * n))
    for i in range(n):
        for k, (x, y) in enumerate(corners):
            for body, z, sign in ((i, -0.5, 1.0), (i - 1, 0.5, -1.0)):
                if body >= 0:
                    arm = np.cross(np.array([x, y, z]), axes)
                    rows[4 * i + k, :, 6 * body : 6 * body + 6] = sign * np.hstack([axes, arm])
    masses = ratio ** (np.arange(n) / (n - 1))
    M = np.diag(np.concatenate([np.r_[m * np.ones(3), m / 6 * np.ones(3)] for m in masses]))
    v = np.random.default_rng(n).normal(size=6 * n) * 0.3 - np.tile([0, 0, 1.0, 0, 0, 0], n)
    return jnp.asarray(M), jnp.asarray(rows), jnp.asarray(v), jnp.full((4 * n, 1), 0.5)


def corner_problems(count, friction, dtype):
    """Cubes that land on a face, slide and spin. Their four corners are off a plane by 1e-9 to 1e-5
    m/s, as the square of the turn in a step makes them, so that not all of them can press, and what
    lets go is found only across a valley that friction bends. With them M, J_c, v and the biases.
    """
    rng = np.random.default_rng(3)
    M = np.diag([1.0, 1, 1, 1 / 150, 1 / 150, 1 / 150])
    axes = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], float)
    arms = 0.1 * np.array([[-1, -1, -1], [1, -1, -1], [-1, 1, -1], [1, 1, -1]])
    J = np.stack([np.hstack([axes, np.cross(arm, axes)]) for arm in arms])
    v = np.concatenate([rng.normal(size=(count, 3)), 4 * rng.normal(size=(count, 3))], axis=1)
    v[:, 2:5] *= [0.01, 0.02, 0.02]
    v[:, 2] -= 0.03
    off = 10.0 ** rng.uniform(-9, -5, count) * rng.choice([-1, 1], count)
    mu = rng.uniform(0.1, 1.0, count)
    bias = off[:, None] * np.array([1, 0, 0, 0])
    Y = DenseContactJacobian(jnp.asarray(J / np.sqrt(np.diagonal(M)), dtype))
    S = FactoredDelassus(Y, jnp.zeros((4, 3, 3), dtype))

    def problem(v, bias, mu):
        b = jnp.asarray(J, dtype) @ v
        b = b.at[:, 0].add(bias)
        mu = jnp.full((4, 1), mu)
        return ContactProblem.scaled(S, b, mu, coulomb(2, friction), jnp.zeros((), dtype))

    given = (jnp.asarray(x, dtype) for x in (v, bias, mu))
    return jax.jit(jax.vmap(problem))(*given), M, J, v, bias, mu


# By default each law in each precision by one of two tests.
FRICTION = {"cone": Cone(), "pyramid": Pyramid(4)}
PRECISIONS = [(name, dtype) for name in FRICTION for dtype in ("float64", "float32")]


@pytest.mark.parametrize(
    "name, dtype",
    slow_unless(lambda name, dtype: (name == "cone") == (dtype == "float64"), PRECISIONS),
)
def test_corners_that_do_not_agree(name, dtype):
    friction = FRICTION[name]
    problems, M, J, v, bias, mu = corner_problems(500, friction, dtype)
    solve = jax.jit(jax.vmap(lambda p: mbd.InteriorPoint().solve(p, jnp.zeros_like(p.b))))
    found = solve(problems)
    assert np.all(found.accepted)
    lam = np.asarray(found.impulses * problems.scale[:, :, None], float)
    u = v + np.einsum("kcd,cdn->kn", lam, J) / np.diagonal(M)
    z = np.einsum("cdn,kn->kcd", J, u)
    z[:, :, 0] += bias
    bound = max(1e-8, 16 * float(jnp.finfo(dtype).eps) * np.abs(z).max())  # rounding
    laws = [
        broken_laws(coulomb(2, friction), *x) for x in zip(z, lam, mu[:, None, None], strict=True)
    ]
    assert max(laws) < bound


def tilted_faces(count, friction, dtype):
    """Boxes on a face, tilted by 1e-6 to 1e-3, with their gaps as biases: where more corners stick
    than may, by that little, some have to slip. On the pyramid a rod that slides along the normal
    of one edge of the polygon, on which friction is undetermined but for the rod's small spin."""
    rng = np.random.default_rng(8)
    rod = isinstance(friction, Pyramid)
    half = np.array([0.3, 0.02, 0.02] if rod else [0.1, 0.1, 0.1])
    M = np.concatenate([np.ones(3), (half @ half - half**2) / 3])
    root = jnp.asarray(np.sqrt(M), dtype)[None, None]
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

    def problem(J, v, bias, mu):
        S = FactoredDelassus(DenseContactJacobian(J / root), jnp.zeros((4, 3, 3), dtype))
        b = (J @ v).at[:, 0].add(bias)
        mu = jnp.full((4, 1), mu)
        return ContactProblem.scaled(S, b, mu, coulomb(2, friction), jnp.zeros((), dtype))

    return jax.jit(jax.vmap(problem))(*(jnp.asarray(x, dtype) for x in (J, v, bias, mu)))


@pytest.mark.parametrize(
    "name, dtype",
    slow_unless(lambda name, dtype: (name == "cone") == (dtype == "float32"), PRECISIONS),
)
def test_faces_that_nearly_stick(name, dtype):
    """Where Newton's method and the interior point end at 1e-8 to 1e-4 m/s, one time in 500."""
    problems = tilted_faces(2000, FRICTION[name], dtype)
    solve = lambda p: mbd.InteriorPoint().solve(p, jnp.zeros_like(p.b))  # noqa: E731
    found = jax.jit(lambda problems: jax.lax.map(solve, problems))(problems)
    assert np.all(found.accepted)
    # Not by a bound that impulses without limit have loosened.
    assert np.all(found.residual < max(1e-8, 1e3 * float(jnp.finfo(dtype).eps)))
