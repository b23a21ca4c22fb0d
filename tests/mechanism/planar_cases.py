"""A linkage in a plane that lies anyhow, built planar or in space."""

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd

# From the axes of the drawing, x and z in the plane, to those of the world.
TURN = np.asarray(mbd.rotations.quaternion_to_matrix(jnp.array([0.1, 0.5, -0.7, 0.5])))
NORMAL = -TURN[:, 1]
PLANE = mbd.Plane(NORMAL, TURN[:, 0])
BAR = dict(size=[0.3, 0.05, 0.05])


def placed(x, z):
    """A point of the drawing in the world, away from its origin."""
    x, z = jnp.asarray(x), jnp.asarray(z)
    return jnp.array([0.1, 0.2, -0.3]) + TURN[:, 0] * x + TURN[:, 2] * z


def linkage(plane=None, x=None):
    """A slider-crank: crank, rod, slider on a guide, with a motor, a spring and dampers. x: lengths
    of crank and rod [m], stiffness of the spring [N/m], mass of the rod [kg], rate of the crank
    [rad/s]."""
    r, length, k, m, rate = jnp.array([0.2, 0.5, 30.0, 1.0, 3.0]) if x is None else x
    angle = 1.0
    a = (r * jnp.cos(angle), r * jnp.sin(angle))
    b = (a[0] + jnp.sqrt(length**2 - a[1] ** 2), 0.0)
    # Velocities that fit the rate of the crank.
    va = (-rate * a[1], rate * a[0])
    swing = -va[1] / (b[0] - a[0])
    vb = (va[0] + swing * a[1], 0.0)
    rod_turn = jnp.arctan2(-a[1], b[0] - a[0])
    along = lambda v: TURN[:, 0] * v[0] + TURN[:, 2] * v[1]  # noqa: E731
    middle = lambda p, q: ((p[0] + q[0]) / 2, (p[1] + q[1]) / 2)  # noqa: E731
    still = (0.0, 0.0)
    inertia = mbd.Inertia.box(**BAR, mass=1.0)

    def body(name, inertia, at, turn, v, omega):
        half = turn / 2
        p = jnp.concatenate([jnp.cos(half)[None], jnp.sin(half) * NORMAL])
        p = mbd.rotations.quaternion_product(p, jnp.array([0.1, 0.5, -0.7, 0.5]))
        rates = dict(velocity=along(v), angular_velocity=NORMAL * omega)
        return mbd.Body(name, inertia, position=placed(*at), orientation=p, **rates)

    # The frame of the rod lies at its end, so that its centre of mass is elsewhere.
    heavy = mbd.Inertia.box(**BAR, mass=1.0).moved([0.2, 0.01, 0.0]).with_mass(m)
    o = jnp.zeros(())
    crank = body("crank", inertia, middle(still, a), o + angle, middle(still, va), rate)
    rod = body("rod", heavy, a, rod_turn, va, swing)
    slider = body("slider", inertia, b, o, vb, o)
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
            points=[placed(0.3, 0.4), placed(*middle(a, b))],
            stiffness=k,
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


def motion(x, plane, method, steps=150):
    """A number from the end of a motion, and the poses and velocities there."""
    of = linkage(plane, x)

    def control(t, q, v):
        return 0.5 * jnp.cos(5.0 * t)[None]

    sol = mbd.simulate(
        of, method, of.state(), dt=2e-3, num_steps=steps, control=control, throw=False
    )
    q, v = sol.q[-1], sol.v[-1]
    poses = of.pose_table(q)
    ends = [of.pose(q, name).point(jnp.array([0.3, 0.2, 0.1])) for name in ("crank", "rod")]
    twists = [of.twist(v, body.name) for body in of.bodies]
    return jnp.sum(ends[0] * jnp.arange(1.0, 4.0)) + jnp.sum(ends[1] ** 2), (
        ends,
        poses[:3],
        twists,
    )
