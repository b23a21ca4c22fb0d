"""Gears, cams and rolling without slip, against closed forms."""

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import BOX, FRAME, RADIUS, TIME, UNTURNED, motion, rates_of, slide, turn

import jaxmbd as mbd
from jaxmbd import Pose


def shaft(name, x, a="ground"):
    body = mbd.Body(name, BOX, position=[x, 0, 0])
    return body, mbd.Revolute(f"bearing of {name}", a, body, point=[x, 0, 0], axis=[0, 0, 1.0])


@pytest.mark.slow
def test_gear_train():
    """External meshing turns the sense, an internal one does not; ratios of teeth and radii."""
    (first, b1), (second, b2), (third, b3) = (
        shaft(n, x) for n, x in (("1", 0.0), ("2", 1.0), ("3", 2.0))
    )
    rack = mbd.Body("rack", BOX)
    guide = mbd.Prismatic("guide", "ground", rack, point=[0, 0, 0], axis=[1.0, 0, 0])
    belt = mbd.Body("pulley", BOX)
    b4 = mbd.Revolute("bearing of pulley", "ground", belt, point=[0, 0, 0], axis=[0, 0, 1.0])
    lever = mbd.Body("lever", BOX)
    slider = mbd.Prismatic("slider", "ground", lever, point=[0, 0, 0], axis=[0, 1.0, 0])
    joints = [b1, b2, b3, b4, guide, slider,
              mbd.Gear("outside", b1, b2, teeth=(20, 35)),
              mbd.Gear("inside", b2, b3, teeth=(17, -51)),
              mbd.RackAndPinion("rack and pinion", guide, b1, radius=0.15),
              mbd.Coupler("belt", b4, b1, ratio=2.3),
              mbd.Coupler("lever", slider, guide, ratio=-0.5)]  # fmt: skip
    mechanism = mbd.Mechanism([first, second, third, belt, rack, lever], joints)
    names = [f"bearing of {n}" for n in ("1", "2", "3", "pulley")] + ["guide", "slider"]
    rates = rates_of(mechanism, names)
    expected = [1.0, -20 / 35, -20 / 35 * 17 / 51, 2.3, 0.15, -0.075]
    np.testing.assert_allclose(np.divide(rates, rates[0]), expected, rtol=1e-10)
    # Both gears are one kind, evaluated together.
    assert sum(isinstance(stack[0], mbd.Gear) for stack in mechanism.joint_stacks) == 1


def test_planetary_gear():
    """Willis: with the ring held, carrier / sun = N_sun / (N_sun + N_ring)."""
    (sun, on_sun), (carrier, on_carrier) = shaft("sun", 0.0), shaft("carrier", 0.0)
    planet, on_planet = shaft("planet", 1.0, carrier)
    # Bearings that are only read: of the sun and of the ring on the carrier.
    read = {"point": [0, 0, 0], "axis": [0, 0, 1.0]}
    joints = [
        on_sun, on_carrier, on_planet,
        mbd.Gear("sun", mbd.Revolute("s", carrier, sun, **read), on_planet, teeth=(24, 18)),
        mbd.Gear("ring", mbd.Revolute("r", carrier, "ground", **read), on_planet, teeth=(60, -18)),
    ]  # fmt: skip
    mechanism = mbd.Mechanism([sun, carrier, planet], joints)
    of_sun, of_carrier = rates_of(mechanism, ["bearing of sun", "bearing of carrier"])
    np.testing.assert_allclose(of_carrier / of_sun, 24 / (24 + 60), rtol=1e-10)


@pytest.mark.slow
def test_eccentric_cam():
    """A circle of radius R about a point at e from the axis: rho = e cos + sqrt(R^2 - e^2 sin^2);
    the spline is of fourth order, and the follower has the speed of the closed form."""
    e, R = 0.2, 0.7

    def circle(phi):
        return e * jnp.cos(phi) + jnp.sqrt(R**2 - e**2 * jnp.sin(phi) ** 2)

    def spline(n):
        angles = 2 * np.pi * np.arange(n) / n - 0.3
        return mbd.PeriodicSpline(angles, circle(angles))

    everywhere = jnp.linspace(-4.0, 9.0, 301)
    errors = [
        np.max(np.abs(jax.jit(jax.vmap(spline(n)))(everywhere) - circle(everywhere)))
        for n in (24, 48)
    ]
    assert errors[0] < 1e-4 and 13 < errors[0] / errors[1] < 19
    turned = 0.8
    cam = mbd.Body("cam", BOX, orientation=turn(2, turned))
    lift = circle(-turned)
    follower = mbd.Body("follower", BOX, position=slide(lift))
    bearing = mbd.Revolute("bearing", "ground", cam, frame_a=FRAME, frame_b=FRAME)
    guide = mbd.Prismatic("guide", "ground", follower, point=[0, 0, 0], axis=[1.0, 0, 0])
    contact = mbd.Cam("contact", cam, follower, profile=circle, frame_a=FRAME, frame_b=FRAME)
    mechanism = mbd.Mechanism([cam, follower], [bearing, guide, contact])
    np.testing.assert_allclose(mechanism.constraint(mechanism.state().q, TIME), 0, atol=1e-12)
    of_cam, of_follower = rates_of(mechanism, ["bearing", "guide"])
    np.testing.assert_allclose(
        of_follower / of_cam, -jax.jit(jax.grad(circle))(-turned), rtol=1e-10
    )


@pytest.mark.slow
def test_sphere_down_an_incline():
    """a = 5/7 g sin(slope) for a solid sphere, without side motion and with the spin that rolls."""
    slope, g = 0.3, 9.81
    ball = mbd.Body("ball", mbd.Inertia.sphere(radius=RADIUS, mass=2.0), position=[0, 0, RADIUS])
    rolling = mbd.RollingSphere("roll", "ground", ball, axis=[0, 0, 1.0], radius=RADIUS,
                                points=([0, 0, 0], [0, 0, RADIUS]))  # fmt: skip
    gravity = [g * np.sin(slope), 0, -g * np.cos(slope)]
    mechanism = mbd.Mechanism([ball], [rolling], gravity=gravity)
    state = mechanism.state()
    _, a = motion(mechanism, TIME, state.q, state.v)
    down = 5 / 7 * g * np.sin(slope)
    np.testing.assert_allclose(a, [down, 0, 0, 0, down / RADIUS, 0], atol=1e-12)


def steady_disc(tilt, turning):
    """A uniform disc in steady circular rolling, and the accelerations that keep it so. With the
    axis e = cos(tilt) n + sin(tilt) h, h horizontal, omega = turning n + sigma e, and
    w = turning cos(tilt) + sigma, the balance of moments about the centre reads
    turning s w (C + m r^2) - A turning^2 s c + m r c g = 0."""
    g, m, r = 9.81, 1.5, RADIUS
    A, C = m * r**2 / 4, m * r**2 / 2
    s, c = np.sin(tilt), np.cos(tilt)
    w = (A * turning**2 * s * c - m * g * r * c) / (turning * s * (C + m * r**2))
    sigma = w - turning * c
    n, h = np.array([0, 0, 1.0]), np.array([1.0, 0, 0])
    k = np.cross(n, h)
    e = c * n + s * h
    disc = mbd.Body(
        "disc", mbd.Inertia(mass=m, tensor=np.diag([A, A, C])), position=[0, 0, r * s],
        orientation=turn(1, tilt), velocity=-r * w * k, angular_velocity=turning * n + sigma * e,
    )  # fmt: skip
    rolling = mbd.RollingDisc("roll", "ground", disc, points=([0, 0, 0], [0, 0, r * s]),
                              axes=(n, e), radius=r)  # fmt: skip
    mechanism = mbd.Mechanism([disc], [rolling], gravity=[0, 0, -g])
    return mechanism, np.concatenate([r * turning * w * h, turning * sigma * s * k])


@pytest.mark.parametrize(
    "tilt, turning",
    helpers.slow_unless(lambda tilt, _: tilt < 0.1, [(0.6, 3.0), (1.2, -0.7), (0.02, 9.0)]),
)
def test_disc_rolls_in_circles(tilt, turning):
    mechanism, expected = steady_disc(tilt, turning)
    state = mechanism.state()
    rows, a = eqx.filter_jit(motion)(mechanism, TIME, state.q, state.v)
    np.testing.assert_allclose(rows, 0, atol=1e-12)
    np.testing.assert_allclose(a, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_disc_closes_its_circle():
    """After a turn about the vertical the disc is where it was, and rolls as it did."""
    mechanism, _ = steady_disc(1.0, 4.0)
    start = mechanism.state()
    end = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), start, t1=np.pi / 2, dt=np.pi / 800)
    np.testing.assert_allclose(end.q[-1, :3], start.q[:3], atol=1e-6)
    np.testing.assert_allclose(end.v[-1], start.v, atol=1e-5)


@pytest.mark.parametrize("tilt", [0.0, 1e-9, 1e-4])
def test_flat_disc_has_finite_gradients(tilt):
    frame = Pose(slide(), UNTURNED)
    joint = mbd.RollingDisc("roll", "ground", "b", radius=RADIUS, frame_a=frame, frame_b=frame)
    still = mbd.Twist(slide(0.1), slide(y=0.3))

    def rows(pose):
        psi = joint.nonholonomic(frame, pose, mbd.Twist(slide(), slide()), still, TIME)
        return jnp.concatenate([joint.constraint(frame, pose, TIME), psi])

    at = Pose(slide(), turn(0, tilt))
    for derivative in (jax.jacfwd, jax.jacrev):
        J = jax.jit(derivative(rows))(at)
        assert all(np.all(np.isfinite(x)) for x in J)
        np.testing.assert_allclose(J.position[0], [0, 0, 1.0], atol=1e-12)
