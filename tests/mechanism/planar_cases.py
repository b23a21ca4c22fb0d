"""A linkage in a plane that lies anyhow, built planar or in space."""

import numpy as np
from joint_kinds import exp, product
from scipy.spatial.transform import Rotation

import jaxmbd as mbd

# From the axes of the drawing, x and z in the plane, to those of the world.
TURNED = np.array([0.1, 0.5, -0.7, 0.5])
TURN = Rotation.from_quat(TURNED, scalar_first=True).as_matrix()
NORMAL = -TURN[:, 1]
PLANE = mbd.Plane(NORMAL, TURN[:, 0])
BAR = mbd.Inertia.box(size=[0.3, 0.05, 0.05], mass=1.0)


def placed(x, z):
    """A point of the drawing in the world, away from its origin."""
    return np.array([0.1, 0.2, -0.3]) + TURN[:, 0] * x + TURN[:, 2] * z


def linkage(plane=None):
    """A slider-crank: crank, rod, slider on a guide, with a motor, a spring and dampers."""
    angle, rate = 1.0, 3.0
    a = 0.2 * np.array([np.cos(angle), np.sin(angle)])
    b = np.array([a[0] + np.sqrt(0.25 - a[1] ** 2), 0.0])
    still = np.zeros(2)
    # Velocities that fit the rate of the crank.
    va = rate * np.array([-a[1], a[0]])
    swing = -va[1] / (b[0] - a[0])
    vb = np.array([va[0] + swing * a[1], 0.0])

    def body(name, inertia, at, turn, v, omega):
        rates = dict(velocity=TURN[:, ::2] @ v, angular_velocity=NORMAL * omega)
        p = product(exp(turn * NORMAL), TURNED)
        return mbd.Body(name, inertia, position=placed(*at), orientation=p, **rates)

    # The frame of the rod lies at its end, so that its centre of mass is elsewhere.
    crank = body("crank", BAR, a / 2, angle, va / 2, rate)
    rod = body("rod", BAR.moved([0.2, 0.01, 0.0]), a, np.arctan2(-a[1], b[0] - a[0]), va, swing)
    slider = body("slider", BAR, b, 0.0, vb, 0.0)
    joints = [
        mbd.Revolute("crank", "ground", crank, point=placed(*still), axis=NORMAL),
        mbd.Revolute("rod", crank, rod, point=placed(*a), axis=NORMAL),
        mbd.Revolute("pin", rod, slider, point=placed(*b), axis=NORMAL),
        mbd.Prismatic("guide", "ground", slider, point=placed(*b), axis=TURN[:, 0]),
    ]
    forces = [
        mbd.Spring(
            "spring",
            "ground",
            rod,
            points=[placed(0.3, 0.4), placed(*(a + b) / 2)],
            stiffness=30.0,
            damping=0.4,
            rest_length=0.2,
        ),
        mbd.Motor("motor", "ground", crank, point=placed(*still), axis=NORMAL, rotor_inertia=0.01),
        mbd.TurningFriction.of(joints[1], viscous=0.02),
        mbd.Spring(
            "buffer", crank, slider, points=[placed(*a), placed(*b)], stiffness=5.0, rest_length=0.3
        ),
    ]
    gravity = -9.81 * TURN[:, 2] + 2.0 * NORMAL
    return mbd.Mechanism([crank, rod, slider], joints, forces, gravity=gravity, plane=plane)
