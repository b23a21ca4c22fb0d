"""Joints of every kind, each between two bodies of its own in one mechanism, so that few programs
evaluate all; and the poses that joints admit, in NumPy."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import CubicSpline

import jaxmbd as mbd
from jaxmbd import Pose

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.0)
LENGTH, PITCH, RADIUS = 0.7, 0.13, 0.4
TIME = 0.2

# --- poses in NumPy -------------------------------------------------------------------------------

UNTURNED = np.array([1.0, 0.0, 0.0, 0.0])


def product(*rotations):
    p = UNTURNED
    for q in rotations:
        p = np.append(
            p[0] * q[0] - p[1:] @ q[1:], p[0] * q[1:] + q[0] * p[1:] + np.cross(p[1:], q[1:])
        )
    return p


def turned(p, r):
    """r turned by the unit quaternion p."""
    return r + 2 * np.cross(p[1:], np.cross(p[1:], r) + p[0] * np.asarray(r))


def exp(w):
    """Rotation by the vector w."""
    half = np.linalg.norm(w) / 2
    return np.append(np.cos(half), np.sinc(half / np.pi) / 2 * np.asarray(w))


def turn(axis, angle):
    """Rotation by `angle` about the coordinate axis number `axis`."""
    return exp(angle * np.eye(3)[axis])


def slide(x=0.0, y=0.0, z=0.0):
    return np.array([x, y, z])


def composed(a, b):
    return Pose(a.position + turned(a.orientation, b.position), product(a[1], b.orientation))


def inverse(a):
    back = a.orientation * [1, -1, -1, -1]
    return Pose(-turned(back, a.position), back)


def random_pose(rng):
    p = rng.normal(size=4)
    return Pose(rng.normal(size=3), p / np.linalg.norm(p))


FRAME = Pose(slide(), UNTURNED)

# --- joints and the poses that they admit ---------------------------------------------------------

ANGLES = np.linspace(-np.pi, np.pi, 12, endpoint=False)
RADII = 1.0 + 0.3 * np.cos(ANGLES) + 0.1 * np.sin(2 * ANGLES)
PROFILE = jax.jit(lambda: mbd.joints.PeriodicSpline(ANGLES, RADII))()  # one program
TRUE_PROFILE = CubicSpline(np.append(ANGLES, np.pi), np.append(RADII, RADII[0]), bc_type="periodic")
ANCHOR = np.array([0.2, 0.0, 0.1])


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
        c, s, o = jnp.cos(self.speed * t / 2), jnp.sin(self.speed * t / 2), jnp.zeros_like(t)
        p = jnp.stack([c, o, o, s])
        at = jnp.stack([self.radius, jnp.full_like(t, 0.1), t])
        return Pose(mbd.rotations.quaternion_rotate(p, at), p)


class Cubic(eqx.Module):
    """The curve y = c x^2, z = x^3."""

    c: jax.Array

    def __call__(self, r):
        return jnp.stack([r[1] - self.c * r[0] ** 2, r[2] - r[0] ** 3])


WAVE = Wave(*jax.device_put((np.array(0.3), np.array(0.5))))
CAROUSEL = Carousel(*jax.device_put((np.array(0.6), np.array(1.3))))


def on_rim(x, y, heading, tilt, roll):
    """Pose of a disc that touches at (x, y)."""
    lean = product(turn(2, heading), turn(0, tilt))
    # The lowest point is down the slope of the disc, along its y axis before it rolled.
    down = -np.sign(tilt) * turned(lean, slide(y=RADIUS))
    return Pose(slide(x, y) - down, product(lean, turn(2, roll)))


def on_cam(profile):
    def pose(z, phi, *w):
        rho = profile(phi)
        return Pose(slide(rho * np.cos(phi), rho * np.sin(phi), z), exp(w))

    return pose


def carried():
    p = turn(2, 1.3 * TIME)
    return Pose(turned(p, [0.6, 0.1, TIME]), p)


def in_series(x, w1, w2):
    swung = turned(turn(2, w1), ANCHOR - turned(turn(1, w2), ANCHOR))
    return Pose(slide(x) + swung, product(turn(2, w1), turn(1, w2)))


SERIES = {"slides": [[1.0, 0.0, 0.0]], "axes": [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
          "anchors": [[0.0, 0.0, 0.0], ANCHOR]}  # fmt: skip

# Of each kind: its arguments, the number of its holonomic rows, the pose of frame b in frame a as a
# function of the freedoms, and how many of these are its coordinates.
KINDS = {
    mbd.Fixed: ({}, 6, lambda: FRAME, 0),
    mbd.Spherical: ({}, 3, lambda *w: Pose(slide(), product(*map(turn, range(3), w))), 3),
    mbd.Revolute: ({}, 5, lambda w: Pose(slide(), turn(2, w)), 1),
    mbd.Prismatic: ({}, 5, lambda z: Pose(slide(z=z), UNTURNED), 1),
    mbd.Cylindrical: ({}, 4, lambda z, w: Pose(slide(z=z), turn(2, w)), 2),
    mbd.Universal: ({}, 4, lambda v, w: Pose(slide(), product(turn(0, v), turn(1, w))), 2),
    mbd.Planar: ({}, 3, lambda x, y, w: Pose(slide(x, y), turn(2, w)), 3),
    mbd.joints.PointOnLine: ({}, 2, lambda z, *w: Pose(slide(z=z), exp(w)), 1),
    mbd.joints.PointOnPlane: ({}, 1, lambda x, y, *w: Pose(slide(x, y), exp(w)), 2),
    mbd.joints.ConstantVelocity: ({}, 4, lambda v, w: Pose(slide(), exp([v, w, 0])), 2),
    mbd.joints.Serial: (SERIES, 3, in_series, 3),
    mbd.Distance: (
        {"length": LENGTH}, 1,
        lambda v, w, *x: Pose(turned(product(turn(0, v), turn(1, w)), slide(z=LENGTH)), exp(x)),
        0,
    ),
    mbd.Screw: (
        {"pitch": PITCH}, 5, lambda z: Pose(slide(z=z), turn(2, 2 * np.pi * z / PITCH)), 1
    ),
    mbd.joints.PrescribedPose: ({"motion": CAROUSEL}, 6, carried, 0),
    mbd.joints.PointOnCurve: (
        {"surfaces": Cubic(jax.device_put(np.array(0.8)))}, 2,
        lambda x, *w: Pose(slide(x, 0.8 * x**2, x**3), exp(w)), 0,
    ),
    mbd.joints.Cam: ({"profile": PROFILE}, 1, on_cam(TRUE_PROFILE), 2),
    mbd.joints.RollingSphere: (
        {"radius": RADIUS}, 1, lambda x, y, *w: Pose(slide(x, y, RADIUS), exp(w)), 2
    ),
    mbd.joints.RollingDisc: ({"radius": RADIUS}, 1, on_rim, 2),
}  # fmt: skip


def joint_of(kind, rng, name="joint", a="a", b="b"):
    return kind(name, a, b, frame_a=random_pose(rng), frame_b=random_pose(rng), **KINDS[kind][0])


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
    return joint_of(mbd.Revolute, rng, f"hinge {a} {b}", a, b)


def sleeve(rng, a, b):
    return joint_of(mbd.Cylindrical, rng, f"sleeve {a} {b}", a, b)


# Constraints of other forms: how they are made of a name and two bodies, and the numbers of their
# rows. Joints with the ground, and two of a kind, are here too.
OTHERS = {
    "Gear": (
        lambda r, n, a, b: mbd.Gear(n, hinge(r, a, b), sleeve(r, b, a), teeth=(3, -2), phase=0.4),
        1, 0),
    "Coupler of displacements": (
        lambda r, n, a, b: mbd.joints.Coupler(n, sleeve(r, a, b), sleeve(r, b, a), ratio=0.7,
                                              offset=0.2, coordinates=(0, 0)), 1, 0),
    "Coupler of angles": (
        lambda r, n, a, b: mbd.joints.Coupler(n, hinge(r, a, b), hinge(r, "ground", b), ratio=0.7),
        0, 1),
    "RackAndPinion": (
        lambda r, n, a, b: mbd.joints.RackAndPinion(n, sleeve(r, a, b), hinge(r, b, a), radius=-0.3,
                                                    offset=0.1), 1, 0),
    "PrescribedMotion of an angle": (
        lambda r, n, a, b: mbd.PrescribedMotion(n, hinge(r, a, b), WAVE), 1, 0),
    "PrescribedMotion of a displacement": (
        lambda r, n, a, b: mbd.PrescribedMotion(n, sleeve(r, a, b), WAVE, coordinate=0), 1, 0),
    "CoordinateConstraint": (
        lambda r, n, a, b: mbd.joints.CoordinateConstraint(
            n, mbd.OfJoint(sleeve(r, a, b), 0), mbd.OfJoint(hinge(r, b, a), middle=0.5),
            coefficients=[0.1, 0.4, -0.3], zero=0.2, zero_of=0.1), 1, 0),
    "Constraint": (
        lambda r, n, a, b: mbd.Constraint(n, [a, "ground", b], mass_at_the_middle,
                                          velocity_fn=Unequal(jax.device_put(np.array(0.3))),
                                          frames=[random_pose(r), random_pose(r), None]), 3, 3),
    "Serial whose axes meet": (
        lambda r, n, a, b: mbd.joints.Serial(n, a, b, frame_a=random_pose(r),
                                             frame_b=random_pose(r),
                                      slides=[[0, 0.6, 0.8], [1, 0, 0], [0.6, 0, 0.8]],
                                      axes=[[1, 0, 0], [0, 1, 0], [0, 0, 1]]), 0, 0),
    "Revolute on the ground": (
        lambda r, n, a, b: joint_of(mbd.Revolute, r, n, "ground", b), 5, 0),
    "Universal on the ground": (
        lambda r, n, a, b: joint_of(mbd.Universal, r, n, b, "ground"), 4, 0),
    "RollingSphere on the ground": (
        lambda r, n, a, b: joint_of(mbd.joints.RollingSphere, r, n, "ground", b), 1, 2),
}  # fmt: skip
EVERY = {
    **{kind.__name__: (lambda r, n, a, b, kind=kind: joint_of(kind, r, n, a, b), KINDS[kind][1],
                       kind.velocity_rows)
       for kind in KINDS},
    **OTHERS,
}  # fmt: skip


@functools.cache
@eqx.filter_jit
def mechanism_of(names):
    """An element of each of these kinds, between the bodies "a of" and "b of" it, which stand and
    move anyhow."""
    bodies, elements = [], []
    for name in names:
        rng = np.random.default_rng(len(name) + ord(name[-1]))
        ends = [f"{x} of {name}" for x in "ab"]
        elements.append(EVERY[name][0](rng, name, *ends))
        bodies += [
            mbd.Body(end, BOX, velocity=rng.normal(size=3), angular_velocity=rng.normal(size=3),
                     **random_pose(rng)._asdict())
            for end in ends
        ]  # fmt: skip
    return mbd.Mechanism(bodies, elements)


def rows_of(mechanism):
    """The rows of each element, as `Mechanism.rows` gives them one by one."""
    found, start = {}, 0
    for joints, rows in mechanism.row_counts():
        for i, name in enumerate(joints.names):
            own = start + i + len(joints) * np.arange(rows)
            found[name] = np.concatenate([found.get(name, np.zeros(0, int)), own])
        start += rows * len(joints)
    return found


# --- motions --------------------------------------------------------------------------------------


@eqx.filter_jit
def jacobian(mechanism):
    state = mechanism.state()
    return mechanism.linearised(0.0, state.q, state.v).J.dense()


@eqx.filter_jit
def terms(mechanism, state, u):
    rows = mechanism.linearised(0.0, state.q, state.v)
    f = mechanism.force(0.0, state.q, state.v, u)
    return mechanism.mass_matrix(state.q), rows.J.dense(), f, rows.gamma


def motion(mechanism, u=None, state=None):
    """Accelerations, and multipliers of least norm, from the rows, which may be redundant, and the
    equations of motion, by NumPy."""
    state = mechanism.state() if state is None else state
    M, J, f, gamma = map(np.asarray, terms(mechanism, state, u))
    W = np.linalg.inv(np.linalg.cholesky(M)).T
    free = W.T @ f
    held = np.linalg.pinv(J @ W, rtol=1e-9)
    change = held @ (gamma - J @ W @ free)
    return W @ (free + change), held.T @ change


def acceleration(mechanism, u=None, state=None):
    return motion(mechanism, u, state)[0]


def free_motion(mechanism):
    """Velocities of the only motion that the joints admit."""
    _, s, vt = np.linalg.svd(np.asarray(jacobian(mechanism)))
    assert np.sum(s > 1e-9) == len(vt) - 1
    return vt[-1].reshape(6, -1)
