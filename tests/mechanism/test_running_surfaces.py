"""Surfaces that run along their shapes, and layers on them."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

R, MU, G = 0.1, 0.5, 10.0


def ball(surface, *, margin=None, velocity=(0, 0, 0), spin=(0, 0, 0), position=(0, 0, R)):
    """A solid ball on level ground whose surface runs."""
    body = mbd.Body(
        "ball",
        mbd.Inertia.sphere(radius=R, mass=2.0),
        position=position,
        velocity=velocity,
        angular_velocity=spin,
    )
    contact = mbd.Contact(
        "belt",
        "ground",
        body,
        mbd.HalfSpace(),
        mbd.Sphere(R),
        friction=MU,
        margin=margin,
        surface_velocity_a=surface,
    )
    return mbd.Mechanism([body], contacts=[contact], gravity=(0.0, 0.0, -G))


@eqx.filter_jit
def end(mechanism, state, t1, dt):
    sol = mbd.simulate(mechanism, mbd.ContactImpulse(), state, t1=t1, dt=dt)
    return mechanism.pose(sol.q[-1], "ball").position, mechanism.twist(sol.v[-1], "ball")


def test_a_ball_on_a_conveyor_slips_and_then_rolls():
    """It slips until 2 u / (7 mu g), with v = mu g t and omega r = 5/2 mu g t against it, and rolls
    at v = 2/7 u from then on. The derivative by u is 0 before and 2/7 after that."""
    u = 3.5
    rolls = 2 * u / (7 * MU * G)

    @eqx.filter_jit
    def speeds(u):
        mechanism = ball(jnp.array([1.0, 0, 0, 0, 0, 0]) * u)
        every = diffrax.SaveAt(t0=True, steps=10)
        sol = mbd.simulate(
            mechanism, mbd.ContactImpulse(), mechanism.state(), t1=0.4, dt=0.01, saveat=every
        )
        twist = [mechanism.twist(sol.v[i], "ball") for i in (1, 4)]  # after 0.1 and 0.4 s
        return jnp.stack([jnp.stack([x.linear[0], x.angular[1]]) for x in twist])

    found, rate = jax.jvp(speeds, (u,), (1.0,))
    assert 0.1 < rolls < 0.4
    v, omega = MU * G * 0.1, -2.5 * MU * G * 0.1 / R
    expected = np.array([[v, omega], [2 / 7 * u, -5 / 7 * u / R]])
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(rate, [[0, 0], [2 / 7, -5 / 7 / R]], atol=1e-8)


def test_a_ball_rolls_in_a_circle_on_a_turntable():
    """A solid ball that rolls on a table turning at Omega turns its velocity at 2/7 Omega (Weltner,
    Stable circular orbits of freely moving balls on rotating discs, 1979). First order in the
    step."""
    omega, v, x = 2.0, np.array([0.3, 0.0, 0.0]), np.array([0.4, 0.0, R])
    # Without slip v + w x (-R z) = Omega z x.
    slip = v - omega * np.array([-x[1], x[0], 0.0])
    spin = np.array([-slip[1], slip[0], 0.0]) / R
    table = ball([0.0, 0, 0, 0, 0, omega], velocity=v, spin=spin, position=x)
    angle = 2 / 7 * omega * 1.0
    turned = 0.3 * np.array([np.cos(angle), np.sin(angle), 0.0])
    errors = []
    for dt in (0.02, 0.01):
        _, twist = end(table, table.state(), 1.0, dt)
        errors.append(np.abs(twist.linear - turned).max())
    assert errors[1] < 2e-3 and 1.8 < errors[0] / errors[1] < 2.2, errors


@pytest.mark.parametrize("torsional", [None, 0.02])
def test_rows_have_the_velocity_of_both_surfaces(torsional):
    """u = R (w + omega x r) of both, without the part along the normal, at a point off the middle
    of tilted shapes, and the spin about the normal for torsional friction."""
    turned = jnp.array([np.cos(0.2), 0.0, np.sin(0.2), 0.0])
    tilt = mbd.Pose(jnp.array([0.1, 0.2, 0.0]), turned)
    one = mbd.Body("one", mbd.Inertia.sphere(radius=1.0, mass=1.0), position=[0.0, 0.0, 0.0])
    two = mbd.Body("two", mbd.Inertia.sphere(radius=1.0, mass=1.0), position=[0.5, 0.3, 1.9])
    a, b = np.array([1.0, 2, 3, 4, 5, 6]), np.array([-2.0, 1, 0.5, 0.3, 0.2, 0.1])
    contact = mbd.Contact(
        "between",
        one,
        two,
        mbd.Sphere(1.0),
        mbd.Sphere(1.0),
        friction=0.5,
        torsional=torsional,
        frame_a=tilt,
        surface_velocity_a=a,
        surface_velocity_b=b,
    )
    mechanism = mbd.Mechanism([one, two], contacts=[contact])
    rows = mechanism.contact_rows(0.0, mechanism.state().q)
    points = contact.points((tilt, mbd.Pose(jnp.array([0.5, 0.3, 1.9]), jnp.eye(4)[0])))
    x, n = np.asarray(points.position[0]), np.asarray(points.normal[0])
    R_a = np.asarray(mbd.rotations.quaternion_to_matrix(tilt.orientation))
    u_a = R_a @ a[:3] + np.cross(R_a @ a[3:], x - tilt.position)
    u_b = b[:3] + np.cross(b[3:], x - np.array([0.5, 0.3, 1.9]))
    slip = u_b - u_a
    spin = n @ (b[3:] - R_a @ a[3:])
    drift = np.asarray(rows.drift[0])
    assert drift[0] == 0.0
    np.testing.assert_allclose(np.linalg.norm(drift[1:3]), np.linalg.norm(slip - n * (n @ slip)))
    # With a velocity of body b that is opposite to the slip, nothing slips.
    still = mechanism.state().v * 0
    still = still.reshape(6, 2).at[:3, 1].set(-slip).ravel()
    np.testing.assert_allclose(rows.velocities(still)[0, 1:3], 0.0, atol=1e-12)
    if torsional is not None:
        np.testing.assert_allclose(drift[3], spin, rtol=1e-12)


def test_a_ball_rests_at_the_margin():
    """Above ground, and the budget of contacts counts from the margin."""
    mechanism = ball(None, margin=0.03, position=(0, 0, 0.13))
    position, _ = end(mechanism, mechanism.state(), 0.3, 0.01)
    np.testing.assert_allclose(position, [0, 0, 0.13], atol=1e-9)


def two_balls(**options):
    """One high above still ground, and one on a belt."""
    bodies = [
        mbd.Body(name, mbd.Inertia.sphere(radius=R, mass=1.0), position=[x, 0.0, z])
        for name, x, z in (("high", 0.0, 1.0), ("low", 1.0, R))
    ]
    surfaces = (None, [3.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    contacts = [
        mbd.Contact(
            body.name, "ground", body, mbd.HalfSpace(), mbd.Sphere(R), friction=0.5,
            surface_velocity_a=surface,
        )
        for body, surface in zip(bodies, surfaces, strict=True)
    ]  # fmt: skip
    return mbd.Mechanism(
        bodies,
        contacts=contacts,
        contact_budget=options.get("budget"),
        plane=options.get("plane"),
    )


@jax.jit
def slip(mechanism):
    """Relative velocities at rest."""
    return mechanism.contact_rows(0.0, mechanism.state().q).drift


def test_a_budget_keeps_the_velocity_of_the_nearest_surface():
    np.testing.assert_allclose(np.abs(slip(two_balls())), [[0, 0, 0], [0, 3, 0]], atol=1e-15)
    np.testing.assert_allclose(np.abs(slip(two_balls(budget=1))), [[0, 3, 0]], atol=1e-15)


def test_surfaces_run_in_a_plane():
    """Seen along y, where a contact has one tangent."""
    planar = two_balls(plane=mbd.Plane(normal=[0.0, -1.0, 0.0], x_axis=[1.0, 0.0, 0.0]))
    np.testing.assert_allclose(np.abs(slip(planar)), [[0, 0], [0, 3]], atol=1e-15)
