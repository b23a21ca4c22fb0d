"""Natural modes against closed forms, and derivatives of simple and repeated eigenvalues."""

import jax
import jax.numpy as jnp
import numpy as np
from analysis_systems import Springs

import jaxmbd as mbd
from jaxmbd.analysis import linearise, modes


@jax.jit
def modes_of(mass, stiffness, damping, along):
    """Of M v' = -K q - D v; with the slopes of the eigenvalues along a change of (K, D), and
    whether reverse mode has the same."""
    n = mass.shape[0]
    at_rest = mbd.State(0.0, np.zeros(n), np.zeros(n))
    weights = jnp.cos(jnp.arange(4.0 * n))

    def poles(stiffness, damping):
        found = modes(linearise(Springs(mass, stiffness, damping), at_rest, size=2 * n))
        return jnp.concatenate([found.s.real, found.s.imag]), found

    values = stiffness, damping
    _, slopes, found = jax.jvp(poles, values, along, has_aux=True)
    _, pull, _ = jax.vjp(poles, *values, has_aux=True)
    back = sum(jnp.vdot(x, dx) for x, dx in zip(pull(weights), along))
    return found, (slopes[: 2 * n], slopes[2 * n :]), back - weights @ slopes


def found_of(mass, stiffness, damping=None, dK=None, dD=None):
    none = np.zeros_like(mass)
    parts = [none if x is None else np.asarray(x, float) for x in (damping, dK, dD)]
    mass = np.asarray(mass, float)
    found, slopes, off = jax.device_get(modes_of(mass, stiffness, parts[0], tuple(parts[1:])))
    np.testing.assert_allclose(off, 0.0, atol=1e-8)
    return found, slopes


ONE, THREE = np.eye(2), np.eye(3)


def test_chain_of_masses():
    """w_j = 2 sqrt(k/m) sin(j pi / (2 n + 2)), shapes sin(i j pi / (n + 1)); a derivative of a
    frequency by k is w / (2 k)."""
    n, k, m = 3, 40.0, 0.5
    K = 2 * THREE - np.eye(n, k=1) - np.eye(n, k=-1)
    found, (_, slopes) = found_of(m * THREE, k * K, dK=K)
    j = np.arange(1, n + 1)
    w = 2 * np.sqrt(k / m) * np.sin(j * np.pi / (2 * n + 2))
    s, shapes = found.s, found.shapes
    np.testing.assert_allclose(s, np.ravel(np.outer(w, [1j, -1j])), atol=1e-11)
    np.testing.assert_allclose(found.frequency, np.repeat(w, 2) / (2 * np.pi), rtol=1e-12)
    np.testing.assert_allclose(found.damping_ratio, 0.0, atol=1e-12)
    assert found.stable
    expected = np.sin(np.outer(j, j) * np.pi / (n + 1)) * np.sqrt(2 / (n + 1))
    alike = np.abs(np.sum(expected * shapes[:n, ::2], axis=0))
    np.testing.assert_allclose(alike, 1.0, rtol=1e-10)
    dp, dv = np.split(shapes, 2)
    np.testing.assert_allclose(dv, s * dp, atol=1e-12)
    np.testing.assert_allclose(slopes[::2], w / (2 * k), rtol=1e-9)


def test_damped_and_unstable():
    """s = -z w +- i w sqrt(1 - z^2); overdamped and negative damping too."""
    k, d = np.array([9.0, 4.0, 1.0]), np.array([0.6, 10.0, -0.2])
    found, _ = found_of(THREE, np.diag(k), np.diag(d))
    root = np.sqrt((d / 2) ** 2 - k + 0j)
    expected = np.concatenate([-d / 2 + root, -d / 2 - root])
    np.testing.assert_allclose(np.sort_complex(found.s), np.sort_complex(expected), rtol=1e-11)
    ratio = np.asarray(found.damping_ratio)[np.abs(found.s - expected[0]) < 1e-9]
    np.testing.assert_allclose(ratio, d[0] / (2 * np.sqrt(k[0])), rtol=1e-10)
    assert not found.stable
    assert "0.477465" in str(found) and "0.1" in str(found)  # 3 rad/s, 0.6 / (2 * 3)


def test_repeated_eigenvalues():
    """Two equal pairs: both have the derivative of their mean. Of K = 9 + e [[a, b], [b, c]] the
    squares of the frequencies move by eigenvalues of that matrix, on the average (a + c) / 2."""
    change = np.array([[3.0, 5.0], [5.0, -1.0]])
    _, (_, slopes) = found_of(ONE, 9 * ONE, dK=change)
    mean = 1.0 / (2 * 3.0)  # dw = d(w^2) / (2 w), d(w^2) = (3 - 1) / 2
    np.testing.assert_allclose(np.sort(slopes), [-mean, -mean, mean, mean], rtol=1e-9)
    near = [np.sort(found_of(ONE, 9 * ONE + e * change)[0].s.imag) for e in (1e-5, -1e-5)]
    np.testing.assert_allclose((near[0] - near[1])[2:].mean() / 2e-5, mean, rtol=1e-6)


def test_rigid_body_modes():
    """Two masses and a spring, free to drift: s = 0 twice, and the frequency of the spring with the
    reduced mass; finite derivatives, which are right of the frequency."""
    K = np.array([[1.0, -1.0], [-1.0, 1.0]])
    found, (_, slopes) = found_of(np.diag([2.0, 3.0]), 30 * K, dK=K)
    w = np.sqrt(30.0 / (6.0 / 5.0))
    np.testing.assert_allclose(found.s, [0, 0, 1j * w, -1j * w], atol=1e-6)
    np.testing.assert_allclose(slopes, [0, 0, w / 60, -w / 60], atol=1e-9)


def test_critical_damping():
    """s = -d / 2 twice with one eigenvector: their mean has the derivative -1/2 by d, none by k."""
    k, d, first = np.diag([9.0, 90.0]), np.diag([6.0, 0.0]), np.diag([1.0, 0.0])
    found, (by_d, _) = found_of(ONE, k, d, dD=first)
    _, (by_k, _) = found_of(ONE, k, d, dK=first)
    critical = np.abs(found.s.imag) < 1.0
    np.testing.assert_allclose(by_d[critical], [-0.5, -0.5], atol=1e-9)
    np.testing.assert_allclose(by_k[critical], [0.0, 0.0], atol=1e-9)
