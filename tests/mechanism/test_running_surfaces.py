"""Surfaces that run along their shapes, and layers on them."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd._compiler import to_jax
from jaxmbd._mechanism.contact_rows import basis

R, MU, G = 0.1, 0.5, 10.0
FLAT = mbd.Plane(normal=[0.0, -1.0, 0.0], x_axis=[1.0, 0.0, 0.0])


def ball(surface, name="ball", x=0.0, z=R, **of):
    """A solid ball, and its contact with level ground whose surface runs."""
    body = mbd.Body(name, mbd.Inertia.sphere(radius=R, mass=2.0), position=[x, 0.0, z])
    contact = mbd.Contact(
        name, "ground", body, mbd.HalfSpace(), mbd.Sphere(R), friction=MU,
        surface_velocity_a=surface, **of,
    )  # fmt: skip
    return body, contact


def test_a_ball_on_a_conveyor_slips_and_then_rolls():
    """In a plane. It slips until 2 u / (7 mu g), with v = mu g t and omega r = 5/2 mu g t against
    it, and rolls at v = 2/7 u from then on. The derivative by u is 0 before and 2/7 after that. The
    reports tell what carries it, and when it slips."""
    u = 3.5
    rolls, saveat = 2 * u / (7 * MU * G), diffrax.SaveAt(ts=to_jax([0.1, 0.4]))

    @jax.jit
    def found(u):
        def speeds(u):
            body, contact = ball(jnp.eye(6)[0] * u)
            of = dict(gravity=(0.0, 0.0, -G), plane=FLAT)
            mechanism = mbd.Mechanism([body], contacts=[contact], **of)
            sol = mbd.simulate(
                mechanism, mbd.ContactImpulse(), mechanism.state(), t1=0.4, dt=0.01,
                saveat=saveat, throw=False,
            )  # fmt: skip
            twist = mechanism.twist(sol.v, "ball")
            force = mbd.reports.contact_forces(mechanism, sol)
            states = mbd.reports.contact_states(mechanism, sol).state
            return jnp.stack([twist.linear[:, 0], twist.angular[:, 1]], 1), (force, states)

        return jax.jvp(speeds, (u,), (jnp.ones_like(u),), has_aux=True)

    speeds, rate, (force, states) = jax.device_get(found(u))
    assert 0.1 < rolls < 0.4
    v, omega = MU * G * 0.1, -2.5 * MU * G * 0.1 / R
    expected = np.array([[v, omega], [2 / 7 * u, -5 / 7 * u / R]])
    np.testing.assert_allclose(speeds, expected, atol=1e-9)
    np.testing.assert_allclose(rate, [[0, 0], [2 / 7, -5 / 7 / R]], atol=1e-8)
    np.testing.assert_allclose(force[:, 0], [[MU * 2 * G, 0, 2 * G], [0, 0, 2 * G]], atol=1e-6)
    kinds = mbd.reports.ContactState
    assert states[:, 0].tolist() == [kinds.SLIP, kinds.STICK]


def test_rows_have_the_velocities_of_both_bodies_and_their_surfaces():
    """u = R (w + omega x r) of both surfaces, without the part along the normal, at a point off the
    middle of tilted shapes; the velocity of the bodies there; the spin about the normal for
    torsional friction, and that about the tangents for rolling friction."""
    tilt = mbd.Pose(np.array([0.1, 0.2, 0.0]), np.array([np.cos(0.2), 0.0, np.sin(0.2), 0.0]))
    places = np.array([[0.0, 0.0, 0.0], [0.5, 0.3, 1.9]])
    sphere = mbd.Inertia.sphere(radius=1.0, mass=1.0)
    one, two = (mbd.Body(n, sphere, position=x) for n, x in zip("ab", places, strict=True))
    a, b = np.array([1.0, 2, 3, 4, 5, 6]), np.array([-2.0, 1, 0.5, 0.3, 0.2, 0.1])
    contact = mbd.Contact(
        "between", one, two, mbd.Sphere(1.0), mbd.Sphere(1.0), friction=0.5, torsional=0.02,
        rolling=0.01, frame_a=tilt, surface_velocity_a=a, surface_velocity_b=b,
    )  # fmt: skip
    mechanism = mbd.Mechanism([one, two], contacts=[contact])

    @jax.jit
    def found(q, v):
        rows, points = mechanism.contact_rows(0.0, q), mechanism.contact_points(q)
        return rows.drift[0], rows.velocities(v)[0], points.position[0], points.normal[0]

    v = np.random.default_rng(0).normal(size=12)
    drift, velocities, x, n = map(np.asarray, found(mechanism.state().q, v))
    c, s = np.cos(0.4), np.sin(0.4)
    R_a = np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
    u_a = R_a @ a[:3] + np.cross(R_a @ a[3:], x - [0.1, 0.2, 0.0])
    u_b = b[:3] + np.cross(b[3:], x - places[1])
    axes = np.asarray(jax.jit(basis)(n))
    slip, spin = axes[1:] @ (u_b - u_a), n @ (b[3:] - R_a @ a[3:])
    np.testing.assert_allclose(drift, [0.0, *slip, spin, 0.0, 0.0], rtol=1e-12, atol=1e-12)
    (va, vb), (wa, wb) = (v.reshape(6, 2).T[:, k : k + 3] for k in (0, 3))
    moved = vb + np.cross(wb, x - places[1]) - va - np.cross(wa, x - places[0])
    expected = np.concatenate([axes @ moved, axes @ (wb - wa)])
    np.testing.assert_allclose(velocities - drift, expected, rtol=1e-12, atol=1e-12)


def test_a_budget_keeps_the_velocity_of_the_nearest_surface():
    """Of a ball high above still ground, and of one on a belt, which touches at its margin."""
    high, low = ball(None, "high", z=1.0), ball(3.0 * np.eye(6)[0], "low", x=1.0, margin=0.03)
    bodies, contacts = zip(high, low, strict=True)
    for budget, expected in ((None, [[0, 0, 0], [0, 3, 0]]), (1, [[0, 3, 0]])):
        of = mbd.Mechanism(bodies, contacts=contacts, contact_budget=budget)
        rows = jax.jit(lambda q, of=of: of.contact_rows(0.0, q))(of.state().q)
        np.testing.assert_allclose(np.abs(rows.drift), expected, atol=1e-15)
        np.testing.assert_allclose(np.asarray(rows.gap)[-1], -0.03, rtol=1e-12)
