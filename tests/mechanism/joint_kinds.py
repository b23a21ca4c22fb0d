"""Joints of every kind between two bodies, at poses that they admit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import Pose

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.0)
LENGTH, PITCH, RADIUS = 0.7, 0.13, 0.4
TIME = jnp.zeros(())


def turn(axis, angle):
    """Rotation by `angle` about the coordinate axis number `axis`."""
    return mbd.rotations.quaternion_exp(angle * jnp.eye(3)[axis])


def slide(x=0.0, y=0.0, z=0.0):
    return jnp.stack([jnp.asarray(c, float) for c in (x, y, z)])


def product(*rotations):
    p = rotations[0]
    for other in rotations[1:]:
        p = mbd.rotations.quaternion_product(p, other)
    return p


UNTURNED = jnp.array([1.0, 0.0, 0.0, 0.0])
FRAME = Pose(slide(), UNTURNED)

ANGLES = np.linspace(-np.pi, np.pi, 12, endpoint=False)
PROFILE = mbd.PeriodicSpline(ANGLES, 1.0 + 0.3 * np.cos(ANGLES) + 0.1 * np.sin(2 * ANGLES))


class Wave(eqx.Module):
    """Some motion with parameters."""

    a: jax.Array
    b: jax.Array

    def __call__(self, t):
        return self.a + self.b * jnp.sin(3.0 * t)


class Carousel(eqx.Module):
    """Some motion of a frame."""

    radius: jax.Array
    speed: jax.Array

    def __call__(self, t):
        turned = turn(2, self.speed * t)
        return Pose(mbd.rotations.quaternion_rotate(turned, slide(self.radius, 0.1, t)), turned)


class Cubic(eqx.Module):
    """The curve y = c x^2, z = x^3."""

    c: jax.Array

    def __call__(self, r):
        return jnp.stack([r[1] - self.c * r[0] ** 2, r[2] - r[0] ** 3])


WAVE = Wave(jnp.asarray(0.3), jnp.asarray(0.5))
CAROUSEL = Carousel(jnp.asarray(0.6), jnp.asarray(1.3))
CUBIC = Cubic(jnp.asarray(0.8))
ANCHOR = jnp.asarray([0.2, 0.0, 0.1])


def on_rim(x, y, heading, tilt, roll):
    """Pose of a disc that touches at (x, y)."""
    lean = product(turn(2, heading), turn(0, tilt))
    # The lowest point is down the slope of the disc, along its y axis before it rolled.
    down = -jnp.sign(tilt) * mbd.rotations.quaternion_rotate(lean, slide(y=RADIUS))
    return Pose(slide(x, y) - down, product(lean, turn(2, roll)))


# Of each kind: its arguments, the pose of frame b in frame a as a function of the freedoms, and
# which of these are its coordinates.
KINDS = {
    mbd.Fixed: ({}, lambda: Pose(slide(), UNTURNED), 0),
    mbd.Spherical: ({}, lambda *w: Pose(slide(), product(*map(turn, range(3), w))), 3),
    mbd.Revolute: ({}, lambda w: Pose(slide(), turn(2, w)), 1),
    mbd.Prismatic: ({}, lambda z: Pose(slide(z=z), UNTURNED), 1),
    mbd.Cylindrical: ({}, lambda z, w: Pose(slide(z=z), turn(2, w)), 2),
    mbd.Universal: ({}, lambda w1, w2: Pose(slide(), product(turn(0, w1), turn(1, w2))), 2),
    mbd.Planar: ({}, lambda x, y, w: Pose(slide(x, y), turn(2, w)), 3),
    mbd.Serial: (
        {
            "slides": [[1.0, 0.0, 0.0]],
            "axes": [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
            "anchors": [[0.0, 0.0, 0.0], [0.2, 0.0, 0.1]],
        },
        lambda x, w1, w2: Pose(
            slide(x)
            + mbd.rotations.quaternion_rotate(
                turn(2, w1), ANCHOR - mbd.rotations.quaternion_rotate(turn(1, w2), ANCHOR)
            ),
            product(turn(2, w1), turn(1, w2)),
        ),
        3,
    ),
    mbd.PointOnLine: (
        {},
        lambda z, *w: Pose(slide(z=z), mbd.rotations.quaternion_exp(jnp.stack(w))),
        1,
    ),
    mbd.PointOnPlane: (
        {},
        lambda x, y, *w: Pose(slide(x, y), mbd.rotations.quaternion_exp(jnp.stack(w))),
        2,
    ),
    mbd.Distance: (
        {"length": LENGTH},
        lambda w1, w2, *w: Pose(
            mbd.rotations.quaternion_rotate(product(turn(0, w1), turn(1, w2)), slide(z=LENGTH)),
            mbd.rotations.quaternion_exp(jnp.stack(w)),
        ),
        0,
    ),
    mbd.Screw: (
        {"pitch": PITCH},
        lambda z: Pose(slide(z=z), turn(2, 2 * np.pi * z / PITCH)),
        1,
    ),
    mbd.ConstantVelocity: (
        {},
        lambda w1, w2: Pose(slide(), mbd.rotations.quaternion_exp(jnp.stack([w1, w2, 0.0 * w1]))),
        2,
    ),
    mbd.PrescribedPose: ({"motion": CAROUSEL}, lambda: CAROUSEL(TIME), 0),
    mbd.PointOnCurve: (
        {"surfaces": CUBIC},
        lambda x, *w: Pose(
            slide(x, CUBIC.c * x**2, x**3), mbd.rotations.quaternion_exp(jnp.stack(w))
        ),
        0,
    ),
    mbd.Cam: (
        {"profile": PROFILE},
        lambda z, phi, *w: Pose(
            slide(PROFILE(phi) * jnp.cos(phi), PROFILE(phi) * jnp.sin(phi), z),
            mbd.rotations.quaternion_exp(jnp.stack(w)),
        ),
        2,
    ),
    mbd.RollingSphere: (
        {"radius": RADIUS},
        lambda x, y, *w: Pose(slide(x, y, RADIUS), mbd.rotations.quaternion_exp(jnp.stack(w))),
        2,
    ),
    mbd.RollingDisc: ({"radius": RADIUS}, on_rim, 2),
}
ROWS = {
    mbd.Fixed: 6, mbd.Spherical: 3, mbd.Revolute: 5, mbd.Prismatic: 5, mbd.Cylindrical: 4,
    mbd.Universal: 4, mbd.Planar: 3, mbd.PointOnLine: 2, mbd.PointOnPlane: 1, mbd.Distance: 1,
    mbd.Screw: 5, mbd.ConstantVelocity: 4, mbd.PrescribedPose: 6, mbd.PointOnCurve: 2,
    mbd.Cam: 1, mbd.RollingSphere: 1, mbd.RollingDisc: 1, mbd.Serial: 3,
}  # fmt: skip


def random_pose(rng):
    p = rng.normal(size=4)
    return Pose(jnp.asarray(rng.normal(size=3)), jnp.asarray(p / np.linalg.norm(p)))


def joint_of(kind, rng, a="a", b="b"):
    return kind("joint", a, b, frame_a=random_pose(rng), frame_b=random_pose(rng),
                **KINDS[kind][0])  # fmt: skip


def bodies_at(kind, joint, pose_a, freedoms):
    """A mechanism of two bodies that the joint admits, with the pose of the first given."""
    frame_b = pose_a.compose(joint.frame_a).compose(KINDS[kind][1](*freedoms))
    identity = Pose(slide(), UNTURNED)
    pose_b = frame_b.compose(joint.frame_b.relative(identity))
    bodies = [
        mbd.Body(name, BOX, position=pose.position, orientation=pose.orientation)
        for name, pose in (("a", pose_a), ("b", pose_b))
    ]
    return mbd.Mechanism(bodies, [joint])


def mass_at_the_middle(poses, t):
    a, b, c = poses
    return a.position + b.position - (2.0 + t) * c.position


class Unequal(eqx.Module):
    """Speeds in a ratio that is a parameter."""

    ratio: jax.Array

    def __call__(self, poses, twists, t):
        a, _, b = twists
        return b.linear - a.linear - self.ratio * b.angular


def hinge(rng, a, b):
    return mbd.Revolute("hinge", a, b, frame_a=random_pose(rng), frame_b=random_pose(rng))


def sleeve(rng, a, b):
    return mbd.Cylindrical("sleeve", a, b, frame_a=random_pose(rng), frame_b=random_pose(rng))


# Constraints that are no `AbstractJoint`, with the numbers of their rows.
OTHERS = {
    "Gear": (
        lambda r, a, b: mbd.Gear("g", hinge(r, a, b), sleeve(r, b, a), teeth=(3, -2), phase=0.4),
        1, 0),
    "Coupler of displacements": (
        lambda r, a, b: mbd.Coupler("k", sleeve(r, a, b), sleeve(r, b, a), ratio=0.7, offset=0.2,
                                    coordinates=(0, 0)), 1, 0),
    "Coupler of angles": (
        lambda r, a, b: mbd.Coupler("k", hinge(r, a, b), hinge(r, "ground", b), ratio=0.7), 0, 1),
    "RackAndPinion": (
        lambda r, a, b: mbd.RackAndPinion("p", sleeve(r, a, b), hinge(r, b, a), radius=-0.3,
                                          offset=0.1), 1, 0),
    "PrescribedMotion of an angle": (
        lambda r, a, b: mbd.PrescribedMotion("d", hinge(r, a, b), WAVE), 1, 0),
    "PrescribedMotion of a displacement": (
        lambda r, a, b: mbd.PrescribedMotion("d", sleeve(r, a, b), WAVE, coordinate=0), 1, 0),
    "CoordinateConstraint": (
        lambda r, a, b: mbd.CoordinateConstraint(
            "c", mbd.OfJoint(sleeve(r, a, b), 0), mbd.OfJoint(hinge(r, b, a), middle=0.5),
            coefficients=[0.1, 0.4, -0.3], zero=0.2, zero_of=0.1), 1, 0),
    "Constraint": (
        lambda r, a, b: mbd.Constraint("u", [a, "ground", b], mass_at_the_middle,
                                       velocity_fn=Unequal(jnp.asarray(0.3)),
                                       frames=[random_pose(r), random_pose(r), None]), 3, 3),
}  # fmt: skip
EVERY = {
    **{kind.__name__: (lambda r, a, b, kind=kind: joint_of(kind, r, a, b), ROWS[kind],
                       kind.velocity_rows)
       for kind in KINDS},
    **OTHERS,
}  # fmt: skip


def bodies_of(element, rng):
    names = sorted(set(element.bodies) - {"ground"})
    return [
        mbd.Body(name, BOX, velocity=rng.normal(size=3), angular_velocity=rng.normal(size=3),
                 **random_pose(rng)._asdict())
        for name in names
    ]  # fmt: skip


def row_rates(mechanism, t, q, v):
    """(Phi', Psi), and Phi."""
    moving = (mechanism.qdot(q, v), jnp.ones_like(t))
    phi, phidot = jax.jvp(mechanism.constraint, (q, t), moving)
    return jnp.concatenate([phidot, mechanism.nonholonomic(q, v, t)]), phi


def jacobian(mechanism, t, q, v):
    """J, and Phi."""
    return jax.jacfwd(lambda v: row_rates(mechanism, t, q, v), has_aux=True)(v)


def motion(mechanism, t, q, v):
    """(Phi, Phi', Psi) and the acceleration, by the definition: small enough to compile its
    derivatives for every kind of joint."""
    J, phi = jacobian(mechanism, t, q, v)
    moving = (mechanism.qdot(q, v), jnp.ones_like(t))
    velocity, drift = jax.jvp(lambda q, t: row_rates(mechanism, t, q, v)[0], (q, t), moving)
    M, f = mechanism.mass_matrix(q), mechanism.force(t, q, v, None)
    K = jnp.block([[M, -J.T], [J, jnp.zeros((len(drift), len(drift)))]])
    solution = jnp.linalg.solve(K, jnp.concatenate([f, -drift]))
    return jnp.concatenate([phi, velocity]), solution[: len(v)]


def rates_of(mechanism, names):
    """Rates of joint coordinates in the only motion that the joints admit."""
    state = mechanism.state()
    J = jax.jit(lambda: jacobian(mechanism, TIME, state.q, state.v)[0])()
    _, s, vt = np.linalg.svd(np.asarray(J))
    assert np.sum(s > 1e-9) == state.v.size - 1
    v = jnp.asarray(vt[-1])
    return [float(mbd.reports.joint_rates(mechanism, state.q, v, name)[0]) for name in names]
