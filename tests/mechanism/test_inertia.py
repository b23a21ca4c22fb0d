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


class Cloud:
    """Point masses, of which every quantity is a plain sum."""

    def __init__(self, seed, points=7):
        rng = np.random.default_rng(seed)
        self.r, self.m = rng.normal(size=(points, 3)), rng.uniform(0.5, 2.0, points)

    @property
    def center(self):
        return self.m @ self.r / self.m.sum()

    def tensor(self, about):
        d = self.r - about
        return self.m @ np.sum(d * d, 1) * np.eye(3) - (self.m[:, None] * d).T @ d

    @property
    def inertia(self):
        return Inertia(self.m.sum(), self.tensor(self.center), self.center)


def assert_same(a, b):
    """Of inertias, or functions that make them in one program."""
    a, b = (jax.jit(x)() if callable(x) else x for x in (a, b))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_reference_points():
    cloud, point = Cloud(0), np.array([0.3, -2.0, 1.1])
    assert_same(lambda: cloud.inertia.about(point), cloud.tensor(point))
    mass, tensor = cloud.m.sum(), cloud.tensor(point)
    assert_same(lambda: Inertia(mass, tensor, cloud.center, about=point), cloud.inertia)


def test_composites_in_moved_frames():
    a, b, both, position = Cloud(1), Cloud(2), Cloud(3), np.array([1.0, 0.2, -0.4])
    R = Rotation.from_quat(TILTED, scalar_first=True).as_matrix()
    both.r = np.concatenate([a.r, position + b.r @ R.T])
    both.m = np.concatenate([a.m, b.m])
    for turn in (TILTED, R):
        assert_same(lambda turn=turn: a.inertia + b.inertia.moved(position, turn), both.inertia)


def test_kinetic_energy_by_the_spatial_matrix():
    cloud = Cloud(4)
    twist = np.array([0.4, -1.0, 0.6, 1.5, -0.3, 0.8])
    speeds = twist[:3] + np.cross(twist[3:], cloud.r)
    M = np.asarray(eqx.filter_jit(cloud.inertia.spatial)())
    expected = 0.5 * cloud.m @ np.sum(speeds**2, axis=1)
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


@jax.jit
def side_by_side(part, shift):
    return part.moved(shift) + part.moved(-shift)


def test_box_and_rod():
    """A box is two halves side by side, for every edge; the same of a rod."""
    size = np.array([0.3, 0.5, 0.8])
    for axis in np.eye(3):
        part, shift = Inertia.box(size=size * (1 - axis / 2), density=2.0), axis * size / 4
        assert_same(side_by_side(part, shift), Inertia.box(size=size, density=2.0))
    box = Inertia.box(size=size, mass=12.0)
    np.testing.assert_allclose(box.tensor, np.diag([0.89, 0.73, 0.34]), rtol=1e-14)
    part = Inertia.rod(length=0.5, mass=1.0, axis="y")
    shift = np.array([0.0, 0.25, 0.0])
    assert_same(side_by_side(part, shift), Inertia.rod(length=1.0, mass=2.0, axis="y"))


@pytest.mark.parametrize("shape", [Inertia.cylinder, Inertia.capsule])
def test_axis_of_a_shape(shape):
    upright = shape(radius=0.1, length=0.7, mass=2.0)
    quarter = np.sqrt(0.5)
    for axis, p in (("x", [quarter, 0, quarter, 0]), ("y", [quarter, -quarter, 0, 0])):
        lying = shape(radius=0.1, length=0.7, mass=2.0, axis=axis)
        assert_same(lying, lambda p=p: upright.moved((0, 0, 0), p))


def test_pseudo_inertia_and_log_cholesky():
    """The second moment of mass, and its factor as its authors print it."""
    cloud = Cloud(5)
    homogeneous = np.concatenate([cloud.r, np.ones((len(cloud.m), 1))], axis=1)
    expected = (cloud.m[:, None] * homogeneous).T @ homogeneous

    @jax.jit
    def found():
        inertia = cloud.inertia
        theta = inertia.log_cholesky()
        again = Inertia.from_pseudo(expected), Inertia.from_log_cholesky(theta)
        return inertia.pseudo(), theta, again

    pseudo, theta, again = found()
    np.testing.assert_allclose(pseudo, expected, rtol=1e-12, atol=1e-12)
    for inertia in again:
        assert_same(inertia, cloud.inertia)
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


def test_derivatives_and_batches():
    """Of the moment of a capsule about y, the integral of a density 3 over cylinder and ball."""

    def moment(radius, length):
        inertia = Inertia.capsule(radius=radius, length=length, density=3.0).moved([0.1, 0, 0])
        return inertia.spatial()[4, 4]

    def exact(r, x):
        tube, ball = 3 * np.pi * r**2 * x, 4 * np.pi * r**3
        across = tube * (r**2 / 4 + x**2 / 12)
        across += ball * (2 / 5 * r**2 + x**2 / 4 + 3 / 8 * r * x)
        return across + (tube + ball) * 0.01

    r, h = np.linspace(0.1, 0.4, 4), 1e-6
    value, slopes = jax.jit(jax.vmap(jax.value_and_grad(moment, (0, 1)), (0, None)))(r, 0.5)
    np.testing.assert_allclose(value, exact(r, 0.5), rtol=1e-12)
    for slope, (dr, dx) in zip(slopes, np.eye(2) * h):
        difference = (exact(r + dr, 0.5 + dx) - exact(r - dr, 0.5 - dx)) / (2 * h)
        np.testing.assert_allclose(slope, difference, rtol=1e-8)


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
        (lambda: Inertia(1.0, [1, 1, 1], [0, 0]), r"`center`.* must have shape \(3,\)"),
        (lambda: Inertia(1.0, [1, 1, 1], about=[2, 0, 0]), "the point that it refers to"),
        (lambda: Inertia.sphere(radius=1.0), "either `mass` or `density`"),
        (lambda: Inertia.sphere(radius=1.0, mass=1.0, density=1.0), "either `mass` or `density`"),
        (lambda: Inertia.rod(**ROD, axis="w"), '"x", "y" or "z", but is \'w\''),
        (lambda: Inertia.rod(**ROD).log_cholesky(), "Give the thin body a thickness"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_values_unknown_while_tracing_are_not_judged():
    jax.eval_shape(eqx.filter_jit(lambda m: Inertia(m, jnp.ones(3))), jnp.asarray(-2.0))
