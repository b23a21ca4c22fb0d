"""Andrews' squeezing mechanism, in seven angles and from bodies, against published and reference
solutions.

Schiehlen (1990), Multibody Systems Handbook; Hairer and Wanner, Solving Ordinary Differential
Equations II, section VII.7: seven plane bodies in three loops, driven by a constant torque
against a spring, beta turning two and a half times in 0.03 s."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanism_runs import Z, reference, simulate

import jaxmbd as mbd


def along(angle):
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def across(angle):
    return jnp.stack([jnp.sin(angle), -jnp.cos(angle)])


class Squeezer(mbd.AbstractSystem):
    """q = (beta, Theta, gamma, Phi, delta, Omega, epsilon); three loops closed at the point E."""

    p: SimpleNamespace = eqx.field(static=True)

    def __init__(self, parameters):
        self.p = SimpleNamespace(**parameters)

    def orientations(self, q):
        """Angles of the bodies 1 to 7."""
        be, th, ga, ph, de, om, ep = q
        return jnp.stack([be, be + th, ga, ph + de, de, om + ep, ep])

    def fixed(self):
        """The points A, B and C of the ground."""
        p = self.p
        return (jnp.array(x) for x in ([p.xa, p.ya], [p.xb, p.yb], [p.xc, p.yc]))

    def centers(self, q):
        """Of mass, shape (7, 2)."""
        p, (k1, k2, k3, k4, k5, k6, k7) = self.p, self.orientations(q)
        A, B, _ = self.fixed()
        return jnp.stack(
            [
                p.ra * along(k1),
                p.rr * along(k1) - p.da * along(k2),
                B + p.sb * along(k3) + p.sa * across(k3),
                A + p.zt * along(k5) + (p.e - p.ea) * across(k4),
                A + p.ta * along(k5) - p.tb * across(k5),
                A + p.u * across(k7) + (p.zf - p.fa) * along(k6),
                A + p.ua * across(k7) - p.ub * along(k7),
            ]
        )

    def spring_end(self, q):
        _, B, _ = self.fixed()
        return B + self.p.sd * along(q[2]) + self.p.sc * across(q[2])

    def elongation(self, q):
        _, _, C = self.fixed()
        return jnp.linalg.norm(self.spring_end(q) - C) - self.p.l0

    def masses(self):
        numbers = [[getattr(self.p, f"{x}{i}") for i in range(1, 8)] for x in "mI"]
        return jnp.array(numbers)

    def mass_matrix(self, q):
        m, inertia = self.masses()
        J, T = jax.jacfwd(self.centers)(q), jax.jacfwd(self.orientations)(q)
        return jnp.einsum("i,ikr,iks->rs", m, J, J) + jnp.einsum("i,ir,is->rs", inertia, T, T)

    def force(self, t, q, v, u):
        del t, u
        m, _ = self.masses()

        def velocities(q):
            return jax.jvp(self.centers, (q,), (v,))[1]

        _, bias = jax.jvp(velocities, (q,), (v,))
        inertial = jnp.einsum("i,ikr,ik->r", m, jax.jacfwd(self.centers)(q), bias)
        drive = jnp.zeros(7).at[0].set(self.p.mom)
        return drive - inertial - jax.grad(self.spring_energy)(q)

    def spring_energy(self, q):
        return self.p.c0 * self.elongation(q) ** 2 / 2

    def energy(self, q, v):
        """With that of the torque."""
        return v @ self.mass_matrix(q) @ v / 2 + self.spring_energy(q) - self.p.mom * q[0]

    def constraint(self, q, t):
        del t
        p, (k1, k2, k3, k4, k5, k6, k7) = self.p, self.orientations(q)
        A, B, _ = self.fixed()
        E = p.rr * along(k1) - p.d * along(k2)
        return jnp.concatenate(
            [
                E - B - p.ss * across(k3),
                E - A - p.e * across(k4) - p.zt * along(k5),
                E - A - p.zf * along(k6) - p.u * across(k7),
            ]
        )


def squeezer_from_bodies(parameters, q):
    """Seven bodies in space, ten hinges: 50 rows for 42 velocities, nine of them redundant. The
    frames of the bodies lie in their centres of mass."""
    plane = Squeezer(parameters)
    p, q = plane.p, jnp.asarray(q)
    A, B, C = plane.fixed()
    angles, centers = plane.orientations(q), plane.centers(q)
    k1, k2, _, _, k5, _, k7 = angles

    def space(point):
        return jnp.append(point, 0.0)

    m, inertia = plane.masses()
    bodies = [
        mbd.Body(
            f"K{i + 1}",
            # The motion is plane: any moments about the other axes will do.
            mbd.Inertia(m[i], inertia[i] * jnp.ones(3)),
            position=space(centers[i]),
            orientation=[np.cos(angles[i] / 2), 0, 0, np.sin(angles[i] / 2)],
        )
        for i in range(7)
    ]
    K1, K2, K3, K4, K5, K6, K7 = bodies
    E = p.rr * along(k1) - p.d * along(k2)
    places = [
        ("O", "ground", K1, jnp.zeros(2)),
        ("F", K1, K2, p.rr * along(k1)),
        ("B", "ground", K3, B),
        ("A5", "ground", K5, A),
        ("A7", "ground", K7, A),
        ("G", K5, K4, A + p.zt * along(k5)),
        ("H", K7, K6, A + p.u * across(k7)),
        ("E3", K2, K3, E),
        ("E4", K2, K4, E),
        ("E6", K2, K6, E),
    ]
    joints = [mbd.Revolute(name, a, b, point=space(point), axis=Z) for name, a, b, point in places]
    ends = (space(C), space(plane.spring_end(q)))
    forces = [
        mbd.Spring("spring", "ground", K3, points=ends, stiffness=p.c0, rest_length=p.l0),
        mbd.Torque("drive", K1, torque_world=[0, 0, p.mom]),
    ]
    return mbd.Mechanism(bodies, joints, forces, gravity=[0, 0, 0])


# The reference asks for steps of 1e-6 s. The order is four, and the error is small enough with ten
# times larger ones.
DT = 1e-5


def squeezer_reference(shared):
    data = reference(shared, "andrews_squeezer")
    points = [point for point in data["reference"] if 0 < point["t"] <= 0.03]
    return data, points, [point["t"] for point in points]


@pytest.mark.slow
def test_squeezer_in_seven_angles(shared):
    data, points, times = squeezer_reference(shared)
    system = Squeezer(data["parameters"])
    start = mbd.State(0.0, data["initial"]["q"], data["initial"]["v"])
    sol = simulate(system, start, dt=DT, t1=0.03, times=times)
    for i, point in enumerate(points):
        np.testing.assert_allclose(sol.q[i], point["q"], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(sol.v[i], point["v"], rtol=1e-6, atol=1e-4)
        # M a = f - G^T lambda there.
        np.testing.assert_allclose(-sol.multipliers[i], point["lambda"], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(sol.q[-1], data["published"]["q"], rtol=1e-6)
    energies = jax.jit(jax.vmap(system.energy))(sol.q, sol.v)
    np.testing.assert_allclose(energies, system.energy(start.q, start.v), rtol=1e-7)
    assert np.max(sol.phi_norm) < 1e-12


@pytest.mark.slow
def test_squeezer_from_bodies(shared):
    data, points, times = squeezer_reference(shared)
    mechanism = squeezer_from_bodies(data["parameters"], data["initial"]["q"])
    state = mechanism.state()
    found = mbd.reports.mobility(mechanism)
    assert (found.freedoms, found.rows, found.rank) == (1, 50, 41)
    sol = simulate(mechanism, state, dt=DT, t1=0.03, times=times)
    plane = Squeezer(data["parameters"])
    expected = jnp.array([point["q"] for point in points])
    angles = np.asarray(jax.jit(jax.vmap(plane.orientations))(expected))
    turned = []
    for i in range(7):
        pose = mechanism.pose(sol.q, f"K{i + 1}")
        w, x, y, z = pose.orientation.T
        np.testing.assert_allclose([x, y], np.zeros_like([x, y]), atol=1e-12)
        half = np.asarray(angles[:, i] / 2)
        # Of the angle between where it is and where it should be, whole turns aside.
        turned.append(2 * np.arctan(np.tan(np.arctan2(z, w) - half)))
        np.testing.assert_allclose(pose.position[:, 2], 0, atol=1e-14)
    # Relative to angles of size 1 at the least.
    assert np.abs(turned / np.maximum(1, np.abs(angles.T))).max() < 1e-6
    centers = jax.jit(jax.vmap(plane.centers))(expected)
    for i in range(7):
        found = mechanism.pose(sol.q, f"K{i + 1}").position[:, :2]
        np.testing.assert_allclose(found, centers[:, i], atol=1e-8)  # of a mechanism of 0.1 m
    rates = mechanism.twist(sol.v, "K1").angular[:, 2]
    np.testing.assert_allclose(rates, [point["v"][0] for point in points], rtol=1e-6)
    work = plane.p.mom * (expected[:, 0] - data["initial"]["q"][0])
    energies = jax.jit(jax.vmap(lambda q, v: mbd.reports.total_energy(mechanism, q, v)))(
        sol.q, sol.v
    )
    at_start = mbd.reports.total_energy(mechanism, state.q, state.v)
    np.testing.assert_allclose(energies - work, at_start * np.ones(len(points)), rtol=1e-6)
    assert np.max(sol.phi_norm) < 1e-12
