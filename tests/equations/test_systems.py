"""Rows, energies and coordinates of the system layer against formulas written by hand."""

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES

import jaxmbd as mbd
from jaxmbd._equations import equations

evaluate = eqx.filter_jit(mbd.evaluate)


class Moving(mbd.AbstractSystem):
    """Phi = x y sin(t) + t^2 with N = diag(1, 2 + x), to count every term by hand."""

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.stack([t, 2 * q[1]])

    def nonideal_force(self, q, v, t):
        return -0.3 * v

    def qdot(self, q, v):
        return jnp.stack([v[0], (2 + q[0]) * v[1]])

    def constraint(self, q, t):
        return q[0] * q[1] * jnp.sin(t) + t**2

    def nonholonomic(self, q, v, t):
        return q[1] * v[0] ** 2 + t * v[1]


def test_every_term_of_the_rows():
    x, y, a, b, t = 0.3, -0.7, 1.1, 0.4, 0.9
    point = evaluate(Moving(), None, np.asarray(t), np.array([x, y]), np.array([a, b]))
    rows = point.rows
    np.testing.assert_allclose(point.f, [t - 0.3 * a, 2 * y - 0.3 * b], rtol=1e-14)
    s, c = np.sin(t), np.cos(t)
    xd, yd = a, (2 + x) * b
    np.testing.assert_allclose(rows.phi, [x * y * s + t**2], rtol=1e-14)
    np.testing.assert_allclose(
        rows.velocity, [(y * xd + x * yd) * s + x * y * c + 2 * t, y * a**2 + t * b], rtol=1e-14
    )
    np.testing.assert_allclose(rows.J, [[y * s, x * (2 + x) * s], [2 * y * a, t]], rtol=1e-14)
    # At constant v: x'' = 0 and y'' = x' b (the term of N').
    second = (2 * xd * yd + x * xd * b) * s + 2 * (y * xd + x * yd) * c - x * y * s + 2
    np.testing.assert_allclose(rows.gamma, [-second, -(yd * a**2 + b)], rtol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_rows_and_accelerations_of_exact_motions(name):
    """At twelve times rows vanish, and M v' = f + J^T lam with the exact v' and some lam."""
    case, t, e = CASES[name], np.linspace(0.1, 1.2, 12), 1e-3
    states = [np.stack(x) for x in zip(*map(case.motion, t), strict=True)]
    each = eqx.filter_jit(jax.vmap(lambda *x: mbd.evaluate(case.system, case.control, *x)))
    point = each(t, *states)
    np.testing.assert_allclose(point.rows.phi, 0, atol=1e-10)
    np.testing.assert_allclose(point.rows.velocity, 0, atol=1e-9)
    v = [np.stack([case.motion(x + k * e)[1] for x in t]) for k in (-2, -1, 1, 2)]
    acceleration = (v[0] - 8 * v[1] + 8 * v[2] - v[3]) / (12 * e)
    for M, f, J, gamma, a in zip(
        *map(np.asarray, (point.M, point.f, point.rows.J, point.rows.gamma)), acceleration
    ):
        assert np.linalg.matrix_rank(J) == case.rank
        np.testing.assert_allclose(J @ a, gamma, atol=1e-6)
        admissible = np.linalg.svd(J)[2][case.rank :]
        np.testing.assert_allclose(admissible @ (M @ a - f), 0, atol=1e-6)


class BodyByEnergy(mbd.LagrangianSystem):
    """The heavy body of `helpers.Top` by its energies: quasi-velocities, so the bracket counts."""

    top: helpers.Top
    coordinates = mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())

    def kinetic_energy(self, q, v):
        return v @ self.top.mass_matrix(q) @ v / 2

    def potential_energy(self, q):
        return self.top.mass * self.top.gravity * q[2]


def equations_of(system, *given):
    return jax.jit(lambda q, v, u: (system.mass_matrix(q), system.force(0.0, q, v, u)))(*given)


def test_energies_give_newton_and_euler():
    top, rng = helpers.Top(), np.random.default_rng(0)
    q, v = (rng.normal(size=n) for n in (7, 6))
    q[3:] /= np.linalg.norm(q[3:])
    given = q, v, None
    for found, expected in zip(equations_of(BodyByEnergy(top), *given), equations_of(top, *given)):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_applied_forces_are_without_inertia():
    """In quasi-velocities: the weight of a top."""
    case = CASES["top"]
    of = equations(case.system)
    found = jax.jit(lambda q, v: of.applied_force(None, 0.3, q, v))(*case.motion(0.3))
    np.testing.assert_allclose(found, [0, 0, -1.2 * 9.81, 0, 0, 0], atol=1e-12)


class PolarMass(mbd.LagrangianSystem):
    """A mass in polar coordinates (r, th), with a spring, a damper on r' and a control torque."""

    def kinetic_energy(self, q, v):
        return 1.5 * (v[0] ** 2 + (q[0] * v[1]) ** 2) / 2

    def potential_energy(self, q):
        return 4.0 * (q[0] - 1) ** 2 / 2

    def dissipation(self, q, v):
        return 0.3 * v[0] ** 2 / 2

    def generalised_force(self, t, q, v, u):
        return jnp.stack([jnp.zeros_like(u), u])


def test_lagrange_equations_in_polar_coordinates():
    r, w, rd, u = 1.4, 0.8, -0.6, 0.25
    M, f = equations_of(PolarMass(), np.array([r, 0.2]), np.array([rd, w]), np.asarray(u))
    np.testing.assert_allclose(M, np.diag([1.5, 1.5 * r**2]), atol=1e-14)
    expected = [1.5 * r * w**2 - 4.0 * (r - 1) - 0.3 * rd, u - 2 * 1.5 * r * rd * w]
    np.testing.assert_allclose(f, expected, rtol=1e-13)
