"""Gears and rolling without slip, against closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import BOX, FRAME, RADIUS, acceleration, free_motion, jacobian, slide, turn

import jaxmbd as mbd
from jaxmbd import Pose

Z = [0.0, 0.0, 1.0]


def shaft(name, x, a="ground"):
    body = mbd.Body(name, BOX, position=[x, 0, 0])
    return body, mbd.Revolute(f"bearing of {name}", a, body, point=[x, 0, 0], axis=Z)


def slider(name, axis):
    body = mbd.Body(name, BOX)
    return body, mbd.Prismatic(name, "ground", body, point=[0, 0, 0], axis=axis)


def test_trains_of_gears():
    """External meshing turns the sense, an internal one does not; ratios of teeth and radii. Of a
    planetary gear whose ring is held, carrier / sun = N_sun / (N_sun + N_ring) (Willis)."""
    (first, b1), (second, b2), (third, b3), (sun, on_sun), (carrier, on_carrier) = (
        shaft(n, x) for n, x in (("1", 0.0), ("2", 1.0), ("3", 2.0), ("sun", 0.0), ("carrier", 0.0))
    )
    pulley, b4 = shaft("pulley", 0.0)
    (rack, guide), (lever, pivot) = slider("rack", [1.0, 0, 0]), slider("lever", [0, 1.0, 0])
    planet, on_planet = shaft("planet", 1.0, carrier)
    # Bearings that are only read: of the sun and of the ring on the carrier.
    read = {"point": [0, 0, 0], "axis": Z}
    sun_on_carrier = mbd.Revolute("s", carrier, sun, **read)
    ring_on_carrier = mbd.Revolute("r", carrier, "ground", **read)
    joints = [b1, b2, b3, b4, guide, pivot, on_sun, on_carrier, on_planet,
              mbd.Gear("outside", b1, b2, teeth=(20, 35)),
              mbd.Gear("inside", b2, b3, teeth=(17, -51)),
              mbd.Gear("sun", sun_on_carrier, on_planet, teeth=(24, 18)),
              mbd.Gear("ring", ring_on_carrier, on_planet, teeth=(60, -18)),
              mbd.joints.RackAndPinion("rack and pinion", guide, b1, radius=0.15),
              mbd.joints.Coupler("belt", b4, b1, ratio=2.3),
              mbd.joints.Coupler("coupling", on_sun, b1, ratio=1.0),
              mbd.joints.Coupler("link", pivot, guide, ratio=-0.5)]  # fmt: skip
    bodies = [first, second, third, pulley, rack, lever, sun, carrier, planet]
    mechanism = mbd.Mechanism(bodies, joints)
    v = free_motion(mechanism)
    rates = np.array([*v[5, [0, 1, 2, 3, 7]], v[0, 4], v[1, 5]])  # of 1, 2, 3, pulley, carrier, ...
    expected = [1.0, -20 / 35, -20 / 35 * 17 / 51, 2.3, 24 / (24 + 60), 0.15, -0.075]
    np.testing.assert_allclose(rates / rates[0], expected, rtol=1e-10)
    # Four gears are one kind, evaluated together, and so are the belt and the coupling.
    kinds = [k for k in mechanism.joint_stacks if isinstance(k[0], mbd.joints.CoordinateConstraint)]
    assert sorted(map(len, kinds)) == [1, 1, 2, 4]


def test_sphere_down_an_incline():
    """a = 5/7 g sin(slope) for a solid sphere, without side motion and with the spin that rolls."""
    slope, g = 0.3, 9.81
    ball = mbd.Body("ball", mbd.Inertia.sphere(radius=RADIUS, mass=2.0), position=[0, 0, RADIUS])
    rolling = mbd.joints.RollingSphere("roll", "ground", ball, axis=Z, radius=RADIUS,
                                points=([0, 0, 0], [0, 0, RADIUS]))  # fmt: skip
    gravity = [g * np.sin(slope), 0, -g * np.cos(slope)]
    down = 5 / 7 * g * np.sin(slope)
    np.testing.assert_allclose(
        acceleration(mbd.Mechanism([ball], [rolling], gravity=gravity)),
        [down, 0, 0, 0, down / RADIUS, 0], atol=1e-12,
    )  # fmt: skip


@pytest.mark.parametrize("tilt, turning", [(0.6, 3.0), (1.2, -0.7), (0.02, 9.0)])
def test_disc_rolls_in_circles(tilt, turning):
    """A uniform disc in steady circular rolling, and the accelerations that keep it so. With the
    axis e = cos(tilt) n + sin(tilt) h, h horizontal, omega = turning n + sigma e, and
    w = turning cos(tilt) + sigma, the balance of moments about the centre reads
    turning s w (C + m r^2) - A turning^2 s c + m r c g = 0."""
    g, m, r = 9.81, 1.5, RADIUS
    A, C = m * r**2 / 4, m * r**2 / 2
    s, c = np.sin(tilt), np.cos(tilt)
    w = (A * turning**2 * s * c - m * g * r * c) / (turning * s * (C + m * r**2))
    sigma = w - turning * c
    n, h = np.array(Z), np.array([1.0, 0, 0])
    k, e = np.cross(n, h), c * n + s * h
    disc = mbd.Body(
        "disc", mbd.Inertia(mass=m, tensor=np.diag([A, A, C])), position=[0, 0, r * s],
        orientation=turn(1, tilt), velocity=-r * w * k, angular_velocity=turning * n + sigma * e,
    )  # fmt: skip
    rolling = mbd.joints.RollingDisc("roll", "ground", disc, points=([0, 0, 0], [0, 0, r * s]),
                              axes=(n, e), radius=r)  # fmt: skip
    mechanism = mbd.Mechanism([disc], [rolling], gravity=[0, 0, -g])
    J = np.asarray(jacobian(mechanism))
    np.testing.assert_allclose(J @ np.asarray(mechanism.state().v), 0, atol=1e-12)
    expected = np.append(r * turning * w * h, turning * sigma * s * k)
    np.testing.assert_allclose(acceleration(mechanism), expected, rtol=1e-9, atol=1e-9)


def test_flat_disc_has_finite_gradients():
    joint = mbd.joints.RollingDisc(
        "roll", "ground", "b", radius=RADIUS, frame_a=FRAME, frame_b=FRAME
    )
    still, moving = (mbd.Twist(slide(x), slide(y=y)) for x, y in ((0.0, 0.0), (0.1, 0.3)))

    def rows(pose):
        psi = joint.nonholonomic(FRAME, pose, still, moving, 0.0)
        return jnp.concatenate([joint.constraint(FRAME, pose, 0.0), psi])

    both = eqx.filter_jit(jax.vmap(lambda p: (jax.jacfwd(rows)(p), jax.jacrev(rows)(p))))
    at = np.stack([turn(0, tilt) for tilt in (0.0, 1e-9, 1e-4)])
    for J in jax.device_get(both(Pose(np.zeros((3, 3)), at))):
        assert all(np.all(np.isfinite(x)) for x in J)
        np.testing.assert_allclose(J.position[:, 0], np.tile(Z, (3, 1)), atol=1e-12)
