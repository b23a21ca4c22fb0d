"""Rows, energies and coordinates of the system layer against formulas written by hand."""

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES
from jaxtyping import Array

import jaxmbd as mbd


class Moving(mbd.AbstractSystem):
    """Phi = x y sin(t) + t^2 with N = diag(1, 2 + x), to count every term by hand."""

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)

    def qdot(self, q, v):
        return jnp.stack([v[0], (2 + q[0]) * v[1]])

    def constraint(self, q, t):
        return q[0] * q[1] * jnp.sin(t) + t**2

    def nonholonomic(self, q, v, t):
        return q[1] * v[0] ** 2 + t * v[1]


def test_every_term_of_the_rows():
    x, y, a, b, t = 0.3, -0.7, 1.1, 0.4, 0.9
    rows = mbd.evaluate(Moving(), None, jnp.asarray(t), jnp.array([x, y]), jnp.array([a, b])).rows
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


@pytest.mark.parametrize("name", list(CASES))
def test_rows_vanish_along_the_exact_motion(name):
    case = CASES[name]
    q, v = (jnp.asarray(x) for x in case.motion(0.7))
    point = mbd.evaluate(case.system, case.control, jnp.asarray(0.7), q, v)
    np.testing.assert_allclose(point.rows.phi, 0, atol=1e-10)
    np.testing.assert_allclose(point.rows.velocity, 0, atol=1e-9)
    assert np.linalg.matrix_rank(point.rows.J) == case.rank


class BodyByEnergy(mbd.LagrangianSystem):
    """The heavy body of `helpers.Top` by its energies: quasi-velocities, so the bracket counts."""

    top: helpers.Top
    coordinates = mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())

    def kinetic_energy(self, q, v):
        return v @ self.top.mass_matrix(q) @ v / 2

    def potential_energy(self, q):
        return self.top.mass * self.top.gravity * q[2]


class BodyInItsOwnAxes(mbd.LagrangianSystem):
    """The same rotation with the angular velocity in body axes: Euler's equations."""

    inertia: Array = helpers.parameter((0.3, 0.5, 0.9))
    coordinates = mbd.QuaternionBody()

    def kinetic_energy(self, q, v):
        return self.inertia @ v**2 / 2


def test_energies_give_newton_and_euler(getkey):
    top = helpers.Top()
    q = jax.random.normal(getkey(), (7,))
    q = top.coordinates.normalise(q)
    v = jax.random.normal(getkey(), (6,))
    system = BodyByEnergy(top)

    def equations(system):
        return jax.jit(lambda q, v: (system.mass_matrix(q), system.force(0.0, q, v, None)))

    for found, expected, atol in zip(equations(system)(q, v), equations(top)(q, v), (1e-13, 1e-12)):
        np.testing.assert_allclose(found, expected, atol=atol)
    body = BodyInItsOwnAxes()
    omega = v[3:]
    expected = -np.cross(omega, np.asarray(body.inertia) * omega)
    np.testing.assert_allclose(equations(body)(q[3:], omega)[1], expected, atol=1e-13)


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
    q, v = jnp.array([r, 0.2]), jnp.array([rd, w])
    system = PolarMass()
    np.testing.assert_allclose(system.mass_matrix(q), np.diag([1.5, 1.5 * r**2]), atol=1e-14)
    expected = [1.5 * r * w**2 - 4.0 * (r - 1) - 0.3 * rd, u - 2 * 1.5 * r * rd * w]
    np.testing.assert_allclose(system.force(0.0, q, v, jnp.asarray(u)), expected, rtol=1e-13)
