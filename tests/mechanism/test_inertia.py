"""Inertias against the sums over clouds of point masses and integrals over slices."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.spatial.transform import Rotation

from jaxmbd import Inertia

TILTED = np.array([0.5, -0.1, 0.7, 0.3]) / np.linalg.norm([0.5, -0.1, 0.7, 0.3])


def cloud(seed):
    """Places and masses of some points."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(7, 3)), rng.uniform(0.5, 2.0, 7)


def tensor_of(r, m, about):
    d = r - about
    return m @ np.sum(d * d, 1) * np.eye(3) - (m[:, None] * d).T @ d


def inertia_of(r, m):
    center = m @ r / m.sum()
    return Inertia(m.sum(), tensor_of(r, m, center), center)


def assert_same(a, b):
    """Of inertias, or functions that make them in one program."""
    a, b = (jax.jit(x)() if callable(x) else x for x in (a, b))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_reference_points():
    r, m = cloud(0)
    whole, point = inertia_of(r, m), np.array([0.3, -2.0, 1.1])
    tensor = tensor_of(r, m, point)
    assert_same(lambda: whole.about(point), tensor)
    assert_same(lambda: Inertia(whole.mass, tensor, whole.center, about=point), whole)


def test_composites_in_moved_frames():
    (r, m), (other, n), position = cloud(1), cloud(2), np.array([1.0, 0.2, -0.4])
    R = Rotation.from_quat(TILTED, scalar_first=True).as_matrix()
    both = inertia_of(np.concatenate([r, position + other @ R.T]), np.concatenate([m, n]))
    for turn in (TILTED, R):
        assert_same(lambda p=turn: inertia_of(r, m) + inertia_of(other, n).moved(position, p), both)


def test_kinetic_energy_by_the_spatial_matrix():
    r, m = cloud(4)
    twist = np.array([0.4, -1.0, 0.6, 1.5, -0.3, 0.8])
    speeds = twist[:3] + np.cross(twist[3:], r)
    M = np.asarray(eqx.filter_jit(inertia_of(r, m).spatial)())
    expected = 0.5 * m @ np.sum(speeds**2, axis=1)
    np.testing.assert_allclose(0.5 * twist @ M @ twist, expected, rtol=1e-13)
    np.testing.assert_allclose(M, M.T, rtol=1e-13)


def test_principal_axes():
    moments = np.array([1.0, 2.0, 2.5])

    @jax.jit
    def principal():
        turned = Inertia(3.0, moments).moved(orientation=TILTED)
        return turned.tensor, *turned.principal()

    tensor, found, axes = map(np.asarray, principal())
    np.testing.assert_allclose(found, moments, rtol=1e-13)
    np.testing.assert_allclose(axes * found @ axes.T, tensor, atol=1e-13)
    np.testing.assert_allclose(np.linalg.det(axes), 1.0, rtol=1e-13)


@pytest.mark.parametrize(
    "shape, size, radius, end",
    [
        (Inertia.sphere, dict(radius=0.5), lambda z: np.sqrt(0.25 - z * z), 0.5),
        (Inertia.ellipsoid, dict(semiaxes=[0.4, 0.4, 0.7]),
         lambda z: 0.4 * np.sqrt(1 - (z / 0.7) ** 2), 0.7),
        (Inertia.cylinder, dict(radius=0.2, length=1.4), lambda z: 0.2, 0.7),
        (Inertia.capsule, dict(radius=0.2, length=0.6),
         lambda z: np.sqrt(0.04 - max(z - 0.3, 0.0) ** 2), 0.5),
    ],
)  # fmt: skip
def test_bodies_of_revolution(shape, size, radius, end):
    """Of unit density, as an integral over discs."""
    found = shape(**size, density=1.0)

    def integral(moment):
        integrand = lambda z: moment(radius(z) ** 2, z) * np.pi * radius(z) ** 2  # noqa: E731
        return 2 * quad(integrand, 0, end, points=[0.3], epsabs=0, epsrel=1e-12)[0]

    across = integral(lambda r2, z: r2 / 4 + z * z)
    moments = [across, across, integral(lambda r2, z: r2 / 2)]
    np.testing.assert_allclose(found.mass, integral(lambda r2, z: 1.0), rtol=1e-10)
    np.testing.assert_allclose(found.tensor, np.diag(moments), rtol=1e-10, atol=1e-15)


def test_box_and_rod():
    box = Inertia.box(size=[0.3, 0.5, 0.8], density=100.0)
    assert_same(box, Inertia(12.0, [0.89, 0.73, 0.34]))
    assert_same(Inertia.rod(length=0.5, mass=12.0, axis="y"), Inertia(12.0, [0.25, 0.0, 0.25]))


@pytest.mark.parametrize("shape", [Inertia.cylinder, Inertia.capsule])
def test_axis_of_a_shape(shape):
    size = dict(radius=0.1, length=0.7, mass=2.0)
    across, _, along = np.diagonal(shape(**size).tensor)
    assert_same(shape(**size, axis="x"), Inertia(2.0, [along, across, across]))
    assert_same(shape(**size, axis="y"), Inertia(2.0, [across, along, across]))


def test_pseudo_inertia_and_log_cholesky():
    """The second moment of mass, and its factor as its authors print it."""
    r, m = cloud(5)
    homogeneous = np.concatenate([r, np.ones((len(m), 1))], axis=1)
    expected = (m[:, None] * homogeneous).T @ homogeneous

    @jax.jit
    def found():
        inertia = inertia_of(r, m)
        theta = inertia.log_cholesky()
        return inertia.pseudo(), theta, Inertia.from_log_cholesky(theta)

    pseudo, theta, again = found()
    np.testing.assert_allclose(pseudo, expected, rtol=1e-12, atol=1e-12)
    assert_same(again, inertia_of(r, m))
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = np.asarray(theta)
    U = np.exp(alpha) * np.array(
        [[np.exp(d1), s12, s13, t1], [0, np.exp(d2), s23, t2], [0, 0, np.exp(d3), t3], [0, 0, 0, 1]]
    )
    np.testing.assert_allclose(U @ U.T, expected, rtol=1e-12, atol=1e-12)


def test_any_log_cholesky_is_physical():
    """Also far out, and the ten numbers are free: the map has full rank."""
    thetas = 2 * np.random.default_rng(0).normal(size=(20, 10))

    @jax.jit
    @jax.vmap
    def found(theta):
        inertia = Inertia.from_log_cholesky(theta)
        pseudo = lambda x: Inertia.from_log_cholesky(x).pseudo().ravel()  # noqa: E731
        return inertia.mass, inertia.principal()[0], jax.jacfwd(pseudo)(theta / 4)

    for mass, moments, jacobian in zip(*map(np.asarray, found(thetas)), strict=True):
        assert mass > 0 and moments[0] > 0
        assert moments[0] + moments[1] >= moments[2] * (1 - 1e-12)
        assert np.linalg.matrix_rank(jacobian) == 10


def test_derivatives_by_sizes():
    """Of masses and moments of unit density, against the derivatives of their closed forms."""

    @jax.jit
    def found(sizes):
        def numbers(sizes):
            box, (r, x), (s, y) = sizes
            shapes = (Inertia.box(size=box, density=1.0),
                      Inertia.cylinder(radius=r, length=x, density=1.0),
                      Inertia.capsule(radius=s, length=y, density=1.0))  # fmt: skip
            return [jnp.append(jnp.diagonal(shape.tensor), shape.mass) for shape in shapes]

        forward, reverse = jax.jacfwd(numbers)(sizes), jax.jacrev(numbers)(sizes)
        return [[of[i][i] for i in range(3)] for of in (forward, reverse)]

    def box(size):
        mass = np.prod(size)
        return [*(mass / 12 * (size @ size - size**2)), mass]

    def cylinder(size):
        r, x = size
        mass = np.pi * r**2 * x
        across = mass * (r**2 / 4 + x**2 / 12)
        return [across, across, mass * r**2 / 2, mass]

    def capsule(size):
        r, x = size
        ball = 4 / 3 * np.pi * r**3
        across = ball * (2 / 5 * r**2 + x**2 / 4 + 3 / 8 * r * x)
        ends = np.array([across, across, 2 / 5 * ball * r**2, ball])
        return cylinder(size) + ends

    sizes = [np.array(x) for x in ([0.3, 0.5, 0.8], [0.2, 0.7], [0.3, 0.4])]
    for slopes in found(sizes):
        for slope, exact, size in zip(slopes, (box, cylinder, capsule), sizes, strict=True):
            ends = ([exact(size + sign * 1e-5 * e) for e in np.eye(len(size))] for sign in (1, -1))
            expected = np.subtract(*map(np.array, ends)).T / 2e-5
            np.testing.assert_allclose(slope, expected, rtol=1e-8, atol=1e-10)


def test_float32():
    part = Inertia.box(size=np.float32([0.3, 0.5, 0.8]), density=2.0)
    whole = jax.eval_shape(lambda: part + part.moved([1.0, 0.0, 0.0], TILTED))
    assert {x.dtype for x in jax.tree.leaves(whole)} == {jnp.dtype(jnp.float32)}


ROD = dict(length=1.0, mass=1.0)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Inertia(1.0, [1.0, 1.0, 2.1]), "larger than the sum of the others"),
        (lambda: Inertia(1.0, [1.0, 1.0, -0.1]), "one is negative"),
        (lambda: Inertia(1.0, [[1, 0.1, 0], [0, 1, 0], [0, 0, 1]]), "symmetric"),
        (lambda: Inertia(1.0, [1.0, 1.0]), r"`tensor`.* must have shape \(3, 3\), but has \(2,\)"),
        (lambda: Inertia(1.0, [1, 1, 1], about=[2, 0, 0]), "the point that it refers to"),
        (lambda: Inertia.sphere(radius=1.0), "either `mass` or `density`"),
        (lambda: Inertia.rod(**ROD, axis="w"), '"x", "y" or "z", but is \'w\''),
        (lambda: Inertia.rod(**ROD).log_cholesky(), "Give the thin body a thickness"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_values_unknown_while_tracing_are_not_judged():
    jax.eval_shape(eqx.filter_jit(lambda m: Inertia(m, jnp.ones(3))), jnp.asarray(-2.0))
