"""Lower pairs, evaluated together, against the derivatives of what each of them says alone."""

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._coordinates import body_axes
from jaxmbd.mechanism.joints.pair import AbstractPair
from jaxmbd.mechanism.linearise import frame_poses
from jaxmbd.mechanism.pairs import NAMES

KINDS = sorted(AbstractPair.__subclasses__(), key=lambda kind: kind.__name__)


def mechanism(axis=jnp.array([0.0, 0.6, 0.8])):
    """All pairs in a row, twice, and another joint between them."""
    inertia = mbd.Inertia.box(size=[0.3, 0.05, 0.1], mass=1.0)
    bodies = [
        mbd.Body(f"b{i}", inertia, position=[0.3 * i, 0.1 * i, 0.0]) for i in range(2 * len(KINDS))
    ]
    joints = []
    for i, body in enumerate(bodies):
        kind, before = KINDS[i % len(KINDS)], bodies[i - 1] if i else "ground"
        place = {"axis": axis} if kind.directed else {}
        if kind is mbd.Universal:
            place = {"axes": [jnp.array([1.0, 0.0, 0.0]), axis]}
        joints.append(kind(f"j{i}", before, body, point=[0.3 * i - 0.1, 0.05, 0.02], **place))
    joints.insert(
        3,
        mbd.Distance("rod", bodies[0], bodies[4], points=[[0.0] * 3, [1.0, 0.0, 0.3]], length=1.0),
    )
    return mbd.Mechanism(bodies, joints)


@pytest.fixture(scope="module")
def case():
    """A mechanism whose bodies stand and move anyhow."""
    rng = np.random.default_rng(0)
    of = mechanism()
    q = np.array(of.state().q).reshape(7, -1)
    q = q + 0.3 * rng.standard_normal(q.shape)
    q[3:] /= np.linalg.norm(q[3:], axis=0)
    return of, jnp.asarray(q.ravel()), jnp.asarray(rng.standard_normal(of.state().v.shape))


def alone(of, q):
    """Phi as each joint says it, of the poses of its frames."""

    def rows(joints):
        def one(joint, qs):
            return joint.equations(frame_poses(joint, qs), 0.0)

        return of.tables.map(joints, one, q).ravel()

    return jnp.concatenate([rows(joints) for joints in of.joint_stacks])


def test_every_pair_is_there():
    assert len(KINDS) == 10
    assert {name for kind in KINDS for name in kind.holds} == set(NAMES)
    assert all(len(kind.holds) == kind.rows for kind in KINDS)


def test_rows_and_derivatives(case):
    """Values, J, J v, and the right side of J v' = gamma with all that depends on velocities."""
    of, q, v = case

    @eqx.filter_jit
    def ours(of, q, v):
        rows = of.linearised(0.0, q, v)
        return rows, rows.J.dense()

    @eqx.filter_jit
    def by_derivatives(of, q, v):
        phi = lambda q: alone(of, q)  # noqa: E731
        along = lambda v: lambda q: jax.jvp(phi, (q,), (of.qdot(q, v),))[1]  # noqa: E731
        J = jax.vmap(lambda e: along(e)(q))(jnp.eye(v.size)).T
        return phi(q), J, jax.jvp(along(v), (q,), (of.qdot(q, v),))[1]

    rows, found = ours(of, q, v)
    phi, J, bias = by_derivatives(of, q, v)
    np.testing.assert_allclose(rows.phi, phi, atol=1e-14)
    np.testing.assert_allclose(found, J, atol=1e-13)
    np.testing.assert_allclose(rows.velocity, J @ v, atol=1e-12)
    np.testing.assert_allclose(rows.gamma, -bias, atol=1e-11)


def test_derivatives_of_rates(case):
    """By q along motions of the bodies, in both modes, of the function J v and of the matrix J."""
    of, q, v = case
    weights = jnp.asarray(np.random.default_rng(1).standard_normal(of.row_count))
    expected = lambda q: weights @ jax.jvp(lambda q: alone(of, q), (q,), (of.qdot(q, v),))[1]  # noqa: E731
    turns = jax.jit(jax.vmap(lambda e: of.qdot(q, e)))(jnp.eye(v.size))
    slope = turns @ jax.jit(jax.grad(expected))(q)
    for rates in (
        lambda q: of.row_map(0.0, q, v)(v),
        lambda q: of.linearised(0.0, q, v).J @ v,
    ):
        found = lambda q, rates=rates: weights @ rates(q)  # noqa: E731
        np.testing.assert_allclose(turns @ jax.jit(jax.grad(found))(q), slope, atol=1e-11)
        forward = jax.jit(jax.vmap(lambda d, f=found: jax.jvp(f, (q,), (d,))[1]))(turns)
        np.testing.assert_allclose(forward, slope, atol=1e-11)


@pytest.mark.slow
def test_derivatives_by_frames(case):
    """Where a joint is on its bodies, and how it is turned."""
    _, q, v = case

    def by_axis(evaluate):
        rates = lambda axis: evaluate(mechanism(axis / jnp.linalg.norm(axis)))  # noqa: E731
        return jax.jit(jax.jacfwd(rates))(jnp.array([0.0, 0.6, 0.8]))

    J = by_axis(lambda of: of.row_map(0.0, q, v)(v))
    expected = by_axis(lambda of: jax.jvp(lambda q: alone(of, q), (q,), (of.qdot(q, v),))[1])
    np.testing.assert_allclose(J, expected, atol=1e-12)


def test_axes_of_a_body():
    """A rotation matrix whatever the length of p, whose second derivatives are right too."""
    p = jnp.array([0.9, -0.4, 0.3, 0.7])
    R = body_axes(p)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(
        R, mbd.rotations.quaternion_to_matrix(p / jnp.linalg.norm(p)), atol=1e-15
    )
    exact = lambda p: mbd.rotations.quaternion_to_matrix(p / jnp.linalg.norm(p))  # noqa: E731
    for derivative, atol in (
        (jax.jacfwd, 1e-14),
        (lambda f: jax.jacfwd(jax.jacrev(f)), 1e-13),
    ):
        found, expected = (jax.jit(derivative(f))(p) for f in (body_axes, exact))
        np.testing.assert_allclose(found, expected, atol=atol)


def test_no_scatter_in_derivatives(case):
    of, q, v = case
    loss = jax.jit(jax.grad(lambda q: jnp.sum(of.row_map(0.0, q, v)(v) ** 2)))
    assert helpers.in_the_way(loss.lower(q)) == {}


def test_subclasses_keep_their_own_rows():
    class Lifted(mbd.Revolute):
        """A hinge whose origin is held 0.1 m above."""

        def constraint(self, a, b, t):
            return super().constraint(a, b, t) - jnp.array([0.0, 0.0, 0.1, 0.0, 0.0])

    inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0)
    body = mbd.Body("b", inertia, position=[0.3, 0.0, 0.0])
    hinge = {"point": [0.0, 0.0, 0.0], "axis": [0.0, 0.0, 1.0]}
    of = mbd.Mechanism([body], [Lifted("j", "ground", body, **hinge)])

    @jax.jit
    def rows(q, v):
        return of.linearised(0.0, q, v).phi, of.constraint(q, 0.0)

    phi, constraint = rows(of.state().q, of.state().v)
    np.testing.assert_allclose(phi, [0.0, 0.0, -0.1, 0.0, 0.0], atol=1e-15)
    assert constraint[2] == -0.1
