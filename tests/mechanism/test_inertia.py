"""Inertias against the sums over clouds of point masses and integrals over slices."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import quad

import jaxmbd as mbd
from jaxmbd import Inertia

TILTED = np.array([0.5, -0.1, 0.7, 0.3]) / np.linalg.norm([0.5, -0.1, 0.7, 0.3])


class Cloud:
    """Point masses, of which every quantity is a plain sum."""

    def __init__(self, seed, points=7):
        rng = np.random.default_rng(seed)
        self.r, self.m = rng.normal(size=(points, 3)), rng.uniform(0.5, 2.0, points)

    @property
    def mass(self):
        return self.m.sum()

    @property
    def center(self):
        return self.m @ self.r / self.mass

    def tensor(self, about):
        d = self.r - about
        return np.einsum("k,kij->ij", self.m, np.sum(d * d, 1)[:, None, None] * np.eye(3)) - (
            (self.m[:, None] * d).T @ d
        )

    @property
    def inertia(self):
        return Inertia(self.mass, self.tensor(self.center), self.center)


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_reference_points():
    cloud, point = Cloud(0), np.array([0.3, -2.0, 1.1])
    np.testing.assert_allclose(cloud.inertia.about(point), cloud.tensor(point), rtol=1e-12)
    assert_same(Inertia(cloud.mass, cloud.tensor(point), cloud.center, about=point), cloud.inertia)


def test_composites_in_moved_frames():
    a, b, position = Cloud(1), Cloud(2), np.array([1.0, 0.2, -0.4])
    both = Cloud(3)
    R = np.asarray(mbd.rotations.quaternion_to_matrix(jnp.asarray(TILTED)))
    both.r = np.concatenate([a.r, position + b.r @ R.T])
    both.m = np.concatenate([a.m, b.m])
    assert_same(a.inertia + b.inertia.moved(position, TILTED), both.inertia)
    assert_same(a.inertia + b.inertia.moved(position, R), both.inertia)


def test_kinetic_energy_by_the_spatial_matrix():
    cloud = Cloud(4)
    twist = np.array([0.4, -1.0, 0.6, 1.5, -0.3, 0.8])
    speeds = twist[:3] + np.cross(twist[3:], cloud.r)
    expected = 0.5 * cloud.m @ np.sum(speeds**2, axis=1)
    M = cloud.inertia.spatial()
    np.testing.assert_allclose(0.5 * twist @ M @ twist, expected, rtol=1e-13)
    np.testing.assert_allclose(M, M.T, rtol=1e-13)


def test_principal_axes():
    moments = np.array([1.0, 2.0, 2.5])
    turned = Inertia(3.0, moments).moved(orientation=TILTED)
    found, axes = turned.principal()
    np.testing.assert_allclose(found, moments, rtol=1e-13)
    np.testing.assert_allclose(axes @ jnp.diag(found) @ axes.T, turned.tensor, atol=1e-13)
    np.testing.assert_allclose(np.linalg.det(axes), 1.0, rtol=1e-13)


def slices(radius, end):
    """Mass and moments, along and across z, of the body of revolution x^2 + y^2 < radius(z)^2,
    |z| < end, of unit density, as an integral over discs."""

    def integral(moment):
        integrand = lambda z: moment(radius(z) ** 2, z) * np.pi * radius(z) ** 2  # noqa: E731
        return 2 * quad(integrand, 0, end, points=[0.3], epsabs=0, epsrel=1e-12)[0]

    across = integral(lambda r2, z: r2 / 4 + z * z)
    return integral(lambda r2, z: 1.0), np.array([across, across, integral(lambda r2, z: r2 / 2)])


@pytest.mark.parametrize(
    "inertia, radius, end",
    [
        (Inertia.sphere(radius=0.5, density=1.0), lambda z: np.sqrt(0.25 - z * z), 0.5),
        (
            Inertia.ellipsoid(semiaxes=[0.4, 0.4, 0.7], density=1.0),
            lambda z: 0.4 * np.sqrt(1 - (z / 0.7) ** 2),
            0.7,
        ),
        (Inertia.cylinder(radius=0.2, length=1.4, density=1.0), lambda z: 0.2, 0.7),
        (
            Inertia.capsule(radius=0.2, length=0.6, density=1.0),
            lambda z: np.sqrt(0.04 - max(z - 0.3, 0.0) ** 2),
            0.5,
        ),
    ],
    ids=["sphere", "ellipsoid", "cylinder", "capsule"],
)
def test_bodies_of_revolution(inertia, radius, end):
    mass, moments = slices(radius, end)
    np.testing.assert_allclose(inertia.mass, mass, rtol=1e-10)
    np.testing.assert_allclose(inertia.tensor, np.diag(moments), rtol=1e-10, atol=1e-15)


def test_box_and_rod():
    # A box is two halves side by side, for every edge; the same of a rod.
    for axis in range(3):
        size = np.array([0.3, 0.5, 0.8])
        half = size * np.where(np.arange(3) == axis, 0.5, 1.0)
        offset = np.where(np.arange(3) == axis, half / 2, 0.0)
        part = Inertia.box(size=half, density=2.0)
        whole = part.moved(offset) + part.moved(-offset)
        assert_same(whole, Inertia.box(size=size, density=2.0))
    np.testing.assert_allclose(
        Inertia.box(size=[0.3, 0.5, 0.8], mass=12.0).tensor,
        np.diag([0.25 + 0.64, 0.09 + 0.64, 0.09 + 0.25]),
        rtol=1e-14,
    )
    part = Inertia.rod(length=0.5, mass=1.0, axis="y")
    assert_same(
        part.moved([0.0, 0.25, 0.0]) + part.moved([0.0, -0.25, 0.0]),
        Inertia.rod(length=1.0, mass=2.0, axis="y"),
    )


@pytest.mark.parametrize("shape", [Inertia.cylinder, Inertia.capsule])
def test_axis_of_a_shape(shape):
    upright = shape(radius=0.1, length=0.7, mass=2.0)
    quarter = np.sqrt(0.5)
    for axis, p in (("x", [quarter, 0, quarter, 0]), ("y", [quarter, -quarter, 0, 0])):
        assert_same(shape(radius=0.1, length=0.7, mass=2.0, axis=axis), upright.moved((0, 0, 0), p))


def test_pseudo_inertia_is_the_second_moment_of_mass():
    cloud = Cloud(5)
    homogeneous = np.concatenate([cloud.r, np.ones((len(cloud.m), 1))], axis=1)
    expected = (cloud.m[:, None] * homogeneous).T @ homogeneous
    np.testing.assert_allclose(cloud.inertia.pseudo(), expected, rtol=1e-12, atol=1e-12)
    assert_same(Inertia.from_pseudo(expected), cloud.inertia)


def test_log_cholesky():
    cloud = Cloud(6)
    theta = cloud.inertia.log_cholesky()
    assert_same(Inertia.from_log_cholesky(theta), cloud.inertia)
    # The factor as its authors print it.
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = np.asarray(theta)
    U = np.exp(alpha) * np.array(
        [[np.exp(d1), s12, s13, t1], [0, np.exp(d2), s23, t2], [0, 0, np.exp(d3), t3], [0, 0, 0, 1]]
    )
    np.testing.assert_allclose(U @ U.T, cloud.inertia.pseudo(), rtol=1e-12, atol=1e-12)


def test_any_log_cholesky_is_physical():
    """Also far out, and the ten numbers are free: the map has full rank."""
    for theta in 2 * jr.normal(jr.key(0), (20, 10)):
        inertia = Inertia.from_log_cholesky(theta)  # checks itself
        moments = np.asarray(inertia.principal()[0])
        assert inertia.mass > 0 and moments[0] > 0
        assert moments[0] + moments[1] >= moments[2] * (1 - 1e-12)
    jacobian = jax.jit(jax.jacfwd(lambda theta: Inertia.from_log_cholesky(theta).pseudo().ravel()))(
        jnp.linspace(-0.5, 0.5, 10)
    )
    assert np.linalg.matrix_rank(jacobian) == 10


def test_derivatives_and_batches():
    def spin(radius, length):
        inertia = Inertia.capsule(radius=radius, length=length, density=3.0).moved([0.1, 0, 0])
        return inertia.spatial()[4, 4]

    step, x = 1e-6, (jnp.asarray(0.2), jnp.asarray(0.5))
    gradient = jax.jit(jax.grad(spin, argnums=(0, 1)))(*x)
    for i in range(2):
        plus, minus = list(x), list(x)
        plus[i], minus[i] = x[i] + step, x[i] - step
        difference = (spin(*plus) - spin(*minus)) / (2 * step)
        np.testing.assert_allclose(gradient[i], difference, rtol=1e-8)
    radii = jnp.linspace(0.1, 0.4, 4)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(spin, in_axes=(0, None)))(radii, x[1]),
        [spin(r, x[1]) for r in radii],
        rtol=1e-14,
    )


def test_float32():
    part = Inertia.box(size=np.float32([0.3, 0.5, 0.8]), density=2.0)
    whole = part + part.moved([1.0, 0.0, 0.0], TILTED)
    assert {x.dtype for x in jax.tree.leaves(whole)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Inertia(-1.0, [1, 1, 1]), "`mass`.* must be positive and finite, but is -1"),
        (lambda: Inertia(np.nan, [1, 1, 1]), "`mass`.* must be positive"),
        (lambda: Inertia(1.0, [1.0, 1.0, 2.1]), "larger than the sum of the others"),
        (lambda: Inertia(1.0, [1.0, 1.0, -0.1]), "one is negative"),
        (lambda: Inertia(1.0, [[1, 0.1, 0], [0, 1, 0], [0, 0, 1]]), "symmetric"),
        (lambda: Inertia(1.0, np.full(3, np.nan)), "`tensor` of Inertia must be finite"),
        (lambda: Inertia(1.0, [1.0, 1.0]), r"`tensor`.* must have shape \(3, 3\), but has \(2,\)"),
        (lambda: Inertia(1.0, [1, 1, 1], [0, 0]), r"`center`.* must have shape \(3,\)"),
        (lambda: Inertia(1.0, [1, 1, 1], about=[2, 0, 0]), "the point that it refers to"),
        (lambda: Inertia.sphere(radius=-1.0, mass=1.0), "`radius`.* must be positive"),
        (lambda: Inertia.box(size=[1, 0, 1], mass=1.0), "`size`.* must be positive"),
        (lambda: Inertia.sphere(radius=1.0), "either `mass` or `density`"),
        (lambda: Inertia.sphere(radius=1.0, mass=1.0, density=1.0), "either `mass` or `density`"),
        (lambda: Inertia.rod(length=1.0, mass=1.0, axis="w"), '"x", "y" or "z", but is \'w\''),
        (
            lambda: Inertia.rod(length=1.0, mass=1.0).log_cholesky(),
            "Give the thin body a thickness",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_values_unknown_while_tracing_are_not_judged():
    inertia = eqx.filter_jit(lambda m: Inertia(m, jnp.ones(3)))(jnp.asarray(2.0))
    assert inertia.mass == 2.0
