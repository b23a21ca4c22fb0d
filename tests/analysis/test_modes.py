"""Natural modes against closed forms, and derivatives of simple and repeated eigenvalues."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import Springs

import jaxmbd as mbd
from jaxmbd.analysis import linearise, modes


@eqx.filter_jit
def modes_of(mass, stiffness, damping):
    n = mass.shape[0]
    at_rest = mbd.State(0.0, jnp.zeros(n), jnp.zeros(n))
    return modes(linearise(Springs(mass, stiffness, damping), at_rest, size=2 * n))


def chain(n, k, m):
    """n masses between walls, by springs."""
    K = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    return m * jnp.eye(n), k * jnp.asarray(K), jnp.zeros((n, n))


def test_chain_of_masses():
    """w_j = 2 sqrt(k/m) sin(j pi / (2 n + 2)), shapes sin(i j pi / (n + 1)); a derivative of a
    frequency by k is w / (2 k)."""
    n, k, m = 6, 40.0, 0.5
    found = modes_of(*chain(n, k, m))
    j = np.arange(1, n + 1)
    w = 2 * np.sqrt(k / m) * np.sin(j * np.pi / (2 * n + 2))
    np.testing.assert_allclose(found.s[::2], 1j * w, atol=1e-11)
    np.testing.assert_allclose(found.s[1::2], -1j * w, atol=1e-11)
    np.testing.assert_allclose(found.frequency[::2], w / (2 * np.pi), rtol=1e-12)
    np.testing.assert_allclose(found.damping_ratio, 0.0, atol=1e-12)
    assert found.stable
    shapes = np.sin(np.outer(j, j) * np.pi / (n + 1)) * np.sqrt(2 / (n + 1))
    alike = np.abs(np.sum(shapes * np.asarray(found.shapes[:n, ::2]), axis=0))
    np.testing.assert_allclose(alike, 1.0, rtol=1e-10)
    dp, dv = np.split(np.asarray(found.shapes), 2)
    np.testing.assert_allclose(dv, np.asarray(found.s) * dp, atol=1e-12)

    def frequency(k):
        mass, stiffness, damping = chain(n, 1.0, m)
        return modes_of(mass, k * stiffness, damping).frequency

    for derivative in (jax.jacfwd(frequency), jax.jacrev(frequency)):
        found = jax.jit(derivative)(k)
        np.testing.assert_allclose(found[::2], w / (2 * np.pi) / (2 * k), rtol=1e-9)


def test_damped_and_unstable():
    """s = -z w +- i w sqrt(1 - z^2); overdamped and negative damping too."""
    k, d = np.array([9.0, 4.0, 1.0]), np.array([0.6, 10.0, -0.2])
    found = modes_of(jnp.eye(3), jnp.diag(k), jnp.diag(d))
    root = np.sqrt((d / 2) ** 2 - k + 0j)
    expected = np.concatenate([-d / 2 + root, -d / 2 - root])
    np.testing.assert_allclose(np.sort_complex(found.s), np.sort_complex(expected), rtol=1e-11)
    ratio = d[0] / (2 * np.sqrt(k[0]))
    oscillates = np.abs(np.asarray(found.s) - expected[0]) < 1e-9
    np.testing.assert_allclose(found.damping_ratio[oscillates], ratio, rtol=1e-10)
    assert not found.stable


def test_gyroscopic():
    """A mass on springs in a frame that turns at W: w = w0 +- W, whichever way."""
    w0, W = 7.0, 2.0
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    # In the frame: x'' = -w0^2 x + W^2 x - 2 W (e x v).
    found = modes_of(jnp.eye(2), jnp.eye(2) * (w0**2 - W**2), jnp.asarray(2 * W * turn))
    np.testing.assert_allclose(found.s[::2], [1j * (w0 - W), 1j * (w0 + W)], atol=1e-12)


def test_repeated_eigenvalues():
    """Two equal pairs: both have the derivative of their mean. Of K = 9 + e [[a, b], [b, c]] the
    squares of the frequencies move by eigenvalues of that matrix, on the average (a + c) / 2."""
    change = jnp.array([[3.0, 5.0], [5.0, -1.0]])

    def pair(e):
        return modes_of(jnp.eye(2), 9 * jnp.eye(2) + e * change, jnp.zeros((2, 2))).s.imag

    for derivative in (jax.jacfwd(pair), jax.jacrev(pair)):
        mean = 1.0 / (2 * 3.0)  # dw = d(w^2) / (2 w), d(w^2) = (3 - 1) / 2
        found = np.sort(jax.jit(derivative)(0.0))
        np.testing.assert_allclose(found, [-mean, -mean, mean, mean], rtol=1e-9)
    h = 1e-5
    difference = (np.sort(pair(h)) - np.sort(pair(-h)))[2:].mean() / (2 * h)
    np.testing.assert_allclose(difference, mean, rtol=1e-6)


def test_rigid_body_modes():
    """Two masses and a spring, free to drift: s = 0 twice, and the frequency of the spring with the
    reduced mass; finite derivatives, which are right of the frequency."""

    def found(k):
        K = k * jnp.array([[1.0, -1.0], [-1.0, 1.0]])
        return modes_of(jnp.diag(jnp.array([2.0, 3.0])), K, jnp.zeros((2, 2)))

    reduced = 6.0 / 5.0
    w = np.sqrt(30.0 / reduced)
    s = found(30.0).s
    np.testing.assert_allclose(s[:2], 0.0, atol=1e-6)
    np.testing.assert_allclose(s[2:], [1j * w, -1j * w], rtol=1e-10)
    slope = jax.jit(jax.jacfwd(lambda k: found(k).s.imag))(30.0)
    np.testing.assert_allclose(slope, [0, 0, w / 60, -w / 60], atol=1e-9)


@pytest.mark.slow
def test_spherical_pendulum_on_a_quaternion():
    """A rigid body that hangs from a ball joint: two pendulum modes and one free spin, with
    redundant coordinates and rows."""
    inertia = mbd.Inertia.box(size=[0.1, 0.2, 1.0], mass=1.0)
    body = mbd.Body("bar", inertia, position=[0.0, 0.0, -0.5])
    joint = mbd.Spherical("ball", "ground", body, point=[0.0] * 3)
    mechanism = mbd.Mechanism([body], [joint])
    found = modes(linearise(mechanism, mechanism.state()))
    assert found.s.shape == (6,)
    about_y = (0.1**2 + 1.0) / 12 + 0.25
    about_x = (0.2**2 + 1.0) / 12 + 0.25
    w = np.sqrt(9.81 * 0.5 / np.array([about_x, about_y]))
    np.testing.assert_allclose(found.s[:2], 0.0, atol=1e-6)
    np.testing.assert_allclose(found.s[2::2], 1j * w, rtol=1e-9)


def test_critical_damping():
    """s = -d / 2 twice with one eigenvector: their mean has the derivative -1/2 by d, none by k."""

    def pair(k, d):
        return modes_of(jnp.eye(1), k * jnp.eye(1), d * jnp.eye(1)).s.real

    by_k, by_d = jax.jit(jax.jacfwd(pair, argnums=(0, 1)))(9.0, 6.0)
    np.testing.assert_allclose(by_d, [-0.5, -0.5], atol=1e-9)
    np.testing.assert_allclose(by_k, [0.0, 0.0], atol=1e-9)


def test_printed():
    found = str(modes_of(jnp.eye(1), 9 * jnp.eye(1), 0.6 * jnp.eye(1)))
    assert "0.477465" in found and "0.1" in found  # 3 rad/s, 0.6 / (2 * 3)
