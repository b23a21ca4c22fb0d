"""A free rigid body against sums over points, and poses against matrices."""

import equinox as eqx
import jax
import numpy as np
from joint_kinds import composed, inverse, random_pose
from refusals import check_refused, refusals
from scipy.spatial.transform import Rotation

import jaxmbd as mbd

MOMENTS = np.array([1.0, 2.0, 3.0])
TILTED = np.array([0.5, -0.1, 0.7, 0.3]) / np.linalg.norm([0.5, -0.1, 0.7, 0.3])


def matrix(pose):
    R = Rotation.from_quat(pose.orientation, scalar_first=True).as_matrix()
    return np.block([[R, np.asarray(pose.position)[:, None]], [np.zeros((1, 3)), 1.0]])


def test_poses():
    """Composition and its inverse, against homogeneous matrices; rates of points."""
    rng = np.random.default_rng(0)
    a, b, r = random_pose(rng), random_pose(rng), rng.normal(size=3)
    twist = mbd.Twist(*rng.normal(size=(2, 3)))

    @jax.jit
    def found(a, b, r, twist):
        rates = (twist.linear, mbd.QuaternionWorld().qdot(a.orientation, twist.angular))
        _, rate = jax.jvp(lambda *p: mbd.Pose(*p).point(r), tuple(a), rates)
        return (a.compose(b), a.relative(b), a.point(r), a.direction(r), a.local_point(r),
                a.local_direction(r), rate, twist.at(a.direction(r)))  # fmt: skip

    both, relative, point, direction, back, turned_back, rate, velocity = jax.device_get(
        found(a, b, r, twist)
    )
    A, B, close = matrix(a), matrix(b), dict(atol=1e-14)
    np.testing.assert_allclose(matrix(mbd.Pose(*both)), A @ B, **close)
    np.testing.assert_allclose(matrix(mbd.Pose(*relative)), np.linalg.inv(A) @ B, **close)
    np.testing.assert_allclose(point, (A @ [*r, 1])[:3], **close)
    np.testing.assert_allclose(direction, A[:3, :3] @ r, **close)
    np.testing.assert_allclose(back, (np.linalg.inv(A) @ [*r, 1])[:3], **close)
    np.testing.assert_allclose(turned_back, A[:3, :3].T @ r, **close)
    np.testing.assert_allclose(rate, velocity, **close)
    # What other tests expect of poses, in NumPy.
    np.testing.assert_allclose(matrix(composed(a, b)), A @ B, **close)
    np.testing.assert_allclose(matrix(inverse(a)), np.linalg.inv(A), **close)


def test_mass_energy_momentum_and_forces_are_sums_over_points():
    """Six equal masses with the body's mass, centre of mass and tensor, which are off its frame."""
    rng = np.random.default_rng(0)
    pose = random_pose(rng)
    inertia = mbd.Inertia(2.0, MOMENTS, [0.3, -0.1, 0.2]).moved(rng.normal(size=3), TILTED)
    v, omega, g, force = rng.normal(size=(4, 3))
    body = mbd.Body("b", inertia, **pose._asdict(), velocity=v, angular_velocity=omega)
    moments, axes = np.linalg.eigh(np.asarray(inertia.tensor))
    m = 2.0 / 6
    reach = np.sqrt((moments.sum() / 2 - moments) / (2 * m)) * axes
    own = np.asarray(inertia.center) + np.concatenate([reach.T, -reach.T])
    r = Rotation.from_quat(pose.orientation, scalar_first=True).apply(own)

    @eqx.filter_jit
    def values(body, g, force):
        p, omega = body.pose.orientation, body.twist.angular
        root = jax.tree.map(lambda x: x[..., None], body.root(p))
        return {
            "kinetic": body.kinetic_energy(body.pose, body.twist),
            "potential": body.potential_energy(body.pose, g),
            "momentum": body.momentum(body.pose, body.twist),
            "M": body.mass_matrix(p),
            "inertial": body.inertial_force(p, omega, g),
            "acceleration": body.acceleration(p, force),
            "W": root.whitener()[:, :, 0],
        }

    force = np.append(force, [0.3, -1.0, 2.0])
    found = jax.device_get(values(body, g, force))
    speeds, at = v + np.cross(omega, r), pose.position + r
    M = sum(m * np.block([[np.eye(3), -skew(x)], [skew(x), -skew(x) @ skew(x)]]) for x in r)
    fall = m * (g - np.cross(omega, np.cross(omega, r)))
    pull = np.concatenate([fall.sum(0), np.cross(r, fall).sum(0)])
    close = dict(rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["kinetic"], 0.5 * m * np.sum(speeds**2), **close)
    np.testing.assert_allclose(found["potential"], -m * (at @ g).sum(), **close)
    momentum = m * speeds.sum(0), m * np.cross(at, speeds).sum(0)
    np.testing.assert_allclose(found["momentum"], momentum, **close)
    np.testing.assert_allclose(found["M"], M, **close)
    np.testing.assert_allclose(found["inertial"], pull, **close)
    np.testing.assert_allclose(found["acceleration"], np.linalg.solve(M, force), **close)
    np.testing.assert_allclose(found["W"].T @ found["W"], np.linalg.inv(M), **close)


def skew(x):
    return np.cross(np.eye(3), x)


BOX = mbd.Inertia.box(size=[1, 2, 3], mass=1.0)


@refusals(
    ("ground", "which is the world, but `name` is 'ground'", lambda: mbd.Body("ground", BOX)),
    ("no-name", "A body needs a name", lambda: mbd.Body("", BOX)),
    ("rod", "Give points and thin rods",
     lambda: mbd.Body("a", mbd.Inertia.rod(length=1, mass=1))),
    ("position", '`position` of Body "a" must have shape',
     lambda: mbd.Body("a", BOX, position=[1, 2])),
    ("left-handed", "right-handed rotation matrix",
     lambda: mbd.Body("a", BOX, orientation=-np.eye(3))),
    ("matrix", r"shape \(3, 3\), but has shape", lambda: mbd.Body("a", BOX, orientation=np.eye(2))),
)  # fmt: skip
def test_bad_input(words, call):
    check_refused(call, words)
