"""Lower pairs, whose rows `test_joints.py` tests: the axes of their bodies, what their derivatives
must not contain, and kinds of the user."""

import helpers
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd._coordinates import body_axes

BALL = mbd.Inertia.sphere(radius=0.1, mass=1.0)
HINGE = {"point": [0.0, 0.0, 0.0], "axis": [0.0, 0.0, 1.0]}


def test_axes_of_a_body():
    """A rotation matrix whatever the length of p, whose second derivatives are right too."""
    p, h = np.array([0.9, -0.4, 0.3, 0.7]), 1e-4

    @jax.jit
    def found(p):
        def first(p):
            return jax.jacrev(body_axes)(p), (body_axes(p), jax.jacfwd(body_axes)(p))

        second, (R, forward) = jax.jacfwd(first, has_aux=True)(p)
        return R, forward, first(p)[0], second

    def exact(p):
        w, x, y, z = p / np.linalg.norm(p)
        return np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )

    def differences(fn):
        return np.stack([(fn(p + h * e) - fn(p - h * e)) / (2 * h) for e in np.eye(4)], axis=-1)

    R, forward, reverse, second = found(p)
    np.testing.assert_allclose(R, exact(p), atol=1e-15)
    np.testing.assert_allclose(forward, differences(exact), atol=1e-7)
    np.testing.assert_allclose(reverse, forward, atol=1e-14)
    bends = differences(lambda p: np.asarray(found(p)[1]))
    np.testing.assert_allclose(second, bends, atol=1e-7)


def test_no_scatter_in_derivatives():
    a, b = mbd.Body("a", BALL), mbd.Body("b", BALL, position=[0.3, 0.0, 0.0])
    joints = [
        mbd.Revolute("h", "ground", a, **HINGE),
        mbd.Universal("u", a, b, point=[0.1, 0.0, 0.0], axes=np.eye(3)[:2]),
        mbd.Fixed("f", "ground", b, point=[0.0, 0.0, 0.0]),
    ]
    of = mbd.Mechanism([a, b], joints)
    state = of.state()
    loss = jax.jit(jax.grad(lambda q: jnp.sum(of.row_map(0.0, q, state.v)(state.v) ** 2)))
    assert helpers.in_the_way(loss.lower(state.q)) == {}


def test_subclasses_keep_their_own_rows():
    class Lifted(mbd.Revolute):
        """A hinge whose origin is held 0.1 m above."""

        def constraint(self, a, b, t):
            return super().constraint(a, b, t) - jnp.array([0.0, 0.0, 0.1, 0.0, 0.0])

    body = mbd.Body("b", BALL, position=[0.3, 0.0, 0.0])
    of = mbd.Mechanism([body], [Lifted("j", "ground", body, **HINGE)])

    @jax.jit
    def rows(q, v):
        return of.linearised(0.0, q, v).phi, of.constraint(q, 0.0)

    for phi in rows(of.state().q, of.state().v):
        np.testing.assert_allclose(phi, [0.0, 0.0, -0.1, 0.0, 0.0], atol=1e-15)
