"""A free rigid body against closed forms, conservation laws and the other convention."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ellipj

import jaxmbd as mbd

MOMENTS = np.array([1.0, 2.0, 3.0])
TILTED = np.array([0.5, -0.1, 0.7, 0.3]) / np.linalg.norm([0.5, -0.1, 0.7, 0.3])


class Free(mbd.AbstractSystem):
    """One free body, in the convention of mechanisms: angular velocity in world axes."""

    body: mbd.Body
    gravity: jax.Array = eqx.field(converter=jnp.asarray, default=(0.0, 0.0, 0.0))
    coordinates = mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())

    def mass_matrix(self, q):
        return self.body.mass_matrix(q[3:])

    def force(self, t, q, v, u):
        weight = self.mass_matrix(q)[:, :3] @ self.gravity
        return self.body.gyroscopic_force(q[3:], v[3:]) + weight


class FreeInBodyAxes(mbd.AbstractSystem):
    """The same about its centre of mass with the angular velocity in body axes: Euler's
    equations."""

    tensor: jax.Array
    coordinates = mbd.QuaternionBody()

    def mass_matrix(self, q):
        return self.tensor

    def force(self, t, q, v, u):
        return -mbd.rotations.cross(v, self.tensor @ v)


def motion(system, **options):
    body = system.body
    state = mbd.State(0.0, jnp.concatenate(body.pose), jnp.concatenate(body.twist))
    return mbd.simulate(system, mbd.UdwadiaKalaba(), state, **options)


# Twice the kinetic energy and the squared angular momentum: close to M2 = 2 E2, where the body
# turns about its intermediate axis.
E2, M2 = 4.5, 9.0 + 1e-3


def spin(t):
    """Angular velocity in body axes, (3,) or (3, times), of a body that spins freely.

    Landau and Lifshitz, Mechanics, equations (37.8) to (37.12), for M^2 > 2 E I2.
    """
    A, B, C = MOMENTS
    rate = np.sqrt((C - B) * (M2 - E2 * A) / (A * B * C))
    k2 = (B - A) * (E2 * C - M2) / ((C - B) * (M2 - E2 * A))
    sn, cn, dn, _ = ellipj(rate * t, k2)
    return np.stack(
        [
            np.sqrt((E2 * C - M2) / (A * (C - A))) * cn,
            np.sqrt((E2 * C - M2) / (B * (C - B))) * sn,
            np.sqrt((M2 - E2 * A) / (C * (C - A))) * dn,
        ]
    )


@pytest.fixture(scope="module")
def flipping():
    """100 s near the intermediate axis, with the centre of mass, at rest, away from the origin."""
    center = np.array([0.1, -0.2, 0.3])
    R = np.asarray(mbd.rotations.quaternion_to_matrix(jnp.asarray(TILTED)))
    omega = R @ spin(0.0)
    body = mbd.Body(
        "racket",
        mbd.Inertia(2.0, MOMENTS, center),
        orientation=TILTED,
        velocity=-np.cross(omega, R @ center),
        angular_velocity=omega,
    )
    saveat = diffrax.SaveAt(ts=jnp.linspace(0, 100, 401))
    return body, motion(Free(body), t1=100.0, dt=1e-3, scheme=mbd.RK4(), saveat=saveat)


def test_flips_about_the_intermediate_axis(flipping):
    _, sol = flipping
    inverse = jax.jit(jax.vmap(mbd.rotations.quaternion_conjugate))(sol.q[:, 3:])
    omega = np.asarray(jax.jit(jax.vmap(mbd.rotations.quaternion_rotate))(inverse, sol.v[:, 3:]))
    expected = spin(np.asarray(sol.t))
    flips = np.count_nonzero(np.diff(np.sign(expected[1])))
    assert flips >= 5
    np.testing.assert_allclose(omega.T, expected, atol=1e-7)


def test_free_body_keeps_its_momenta(flipping):
    body, sol = flipping
    poses, twists = mbd.Pose(sol.q[:, :3], sol.q[:, 3:]), mbd.Twist(sol.v[:, :3], sol.v[:, 3:])
    linear, angular = map(np.asarray, jax.jit(jax.vmap(body.momentum))(poses, twists))
    energy = np.asarray(jax.jit(jax.vmap(body.kinetic_energy))(poses, twists))
    np.testing.assert_allclose(angular, np.tile(angular[0], (len(angular), 1)), atol=1e-10)
    np.testing.assert_allclose(np.sum(angular[0] ** 2), M2, rtol=1e-12)
    np.testing.assert_allclose(linear, 0, atol=1e-10)
    np.testing.assert_allclose(energy, E2 / 2, rtol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(sol.q[:, 3:], axis=1), 1, atol=1e-12)
    center = poses.position + jax.jit(jax.vmap(mbd.rotations.quaternion_rotate))(
        poses.orientation, jnp.tile(body.inertia.center, (len(angular), 1))
    )
    np.testing.assert_allclose(center, np.tile(center[0], (len(angular), 1)), atol=1e-9)


def test_world_and_body_axes_agree():
    omega = np.array([0.7, -1.2, 0.4])
    body = mbd.Body("body", mbd.Inertia(2.0, MOMENTS), orientation=TILTED, angular_velocity=omega)
    inverse = mbd.rotations.quaternion_conjugate(jnp.asarray(TILTED))
    options = dict(t1=2.0, dt=1e-3, scheme=mbd.RK4())
    world = motion(Free(body), **options)
    own = mbd.simulate(
        FreeInBodyAxes(body.inertia.tensor),
        mbd.UdwadiaKalaba(),
        mbd.State(0.0, TILTED, mbd.rotations.quaternion_rotate(inverse, jnp.asarray(omega))),
        **options,
    )
    np.testing.assert_allclose(world.q[-1, 3:], own.q[-1], atol=1e-10)
    turned = mbd.rotations.quaternion_rotate(own.q[-1], own.v[-1])
    np.testing.assert_allclose(world.v[-1, 3:], turned, atol=1e-10)


def test_center_of_mass_of_a_thrown_body_flies_a_parabola():
    g, v0 = np.array([0.0, 0.0, -9.81]), np.array([1.0, 2.0, 3.0])
    omega, center = np.array([2.0, -1.0, 0.5]), np.array([0.3, 0.1, -0.2])
    body = mbd.Body(
        "club",
        mbd.Inertia(2.0, MOMENTS, center),
        velocity=v0 - np.cross(omega, center),
        angular_velocity=omega,
    )
    sol = motion(Free(body, jnp.asarray(g)), t1=1.0, dt=1e-3, scheme=mbd.RK4())
    pose = mbd.Pose(sol.q[-1, :3], sol.q[-1, 3:])
    np.testing.assert_allclose(pose.point(jnp.asarray(center)), center + v0 + g / 2, atol=1e-10)


def test_poses():
    """Composition and its inverse, against homogeneous matrices."""
    rng = np.random.default_rng(0)

    def random_pose():
        p = rng.normal(size=4)
        return mbd.Pose(jnp.asarray(rng.normal(size=3)), jnp.asarray(p / np.linalg.norm(p)))

    def matrix(pose):
        R = mbd.rotations.quaternion_to_matrix(pose.orientation)
        return np.block([[R, pose.position[:, None]], [np.zeros((1, 3)), 1.0]])

    a, b, r = random_pose(), random_pose(), jnp.asarray(rng.normal(size=3))
    np.testing.assert_allclose(matrix(a.compose(b)), matrix(a) @ matrix(b), atol=1e-14)
    np.testing.assert_allclose(matrix(a.relative(a.compose(b))), matrix(b), atol=1e-14)
    np.testing.assert_allclose(a.point(r), (matrix(a) @ [*r, 1])[:3], atol=1e-14)
    np.testing.assert_allclose(a.local_point(a.point(r)), r, atol=1e-14)
    np.testing.assert_allclose(a.local_direction(a.direction(r)), r, atol=1e-14)
    # The velocity of a point is the derivative of its position.
    twist = mbd.Twist(jnp.asarray(rng.normal(size=3)), jnp.asarray(rng.normal(size=3)))
    qdot = mbd.QuaternionWorld().qdot(a.orientation, twist.angular)
    _, rate = jax.jvp(lambda *p: mbd.Pose(*p).point(r), tuple(a), (twist.linear, qdot))
    np.testing.assert_allclose(rate, twist.at(a.direction(r)), atol=1e-14)


def random_body(seed=0):
    """With its centre of mass and principal axes off the frame's, and its inertia as an array."""
    rng = np.random.default_rng(seed)
    p = rng.normal(size=4)
    inertia = mbd.Inertia(2.0, MOMENTS, [0.3, -0.1, 0.2]).moved(rng.normal(size=3), TILTED)
    body = mbd.Body(
        "body",
        inertia,
        position=rng.normal(size=3),
        orientation=p / np.linalg.norm(p),
        velocity=rng.normal(size=3),
        angular_velocity=rng.normal(size=3),
    )
    R = np.asarray(mbd.rotations.quaternion_to_matrix(body.pose.orientation))
    return body, R


def points_of(body, R):
    """Six equal masses with the body's mass, centre of mass and tensor: positions from the origin
    in world axes, and the mass of each."""
    moments, axes = np.linalg.eigh(np.asarray(body.inertia.tensor))
    m = float(body.inertia.mass) / 6
    reach = np.sqrt((moments.sum() / 2 - moments) / (2 * m)) * axes
    r = np.asarray(body.inertia.center) + np.concatenate([reach.T, -reach.T])
    return r @ R.T, m


def test_mass_energy_and_momentum_are_sums_over_points():
    body, R = random_body()
    r, m = points_of(body, R)
    v, omega = map(np.asarray, body.twist)
    speeds = v + np.cross(omega, r)
    at = np.asarray(body.pose.position) + r
    energy = 0.5 * m * np.sum(speeds**2)
    np.testing.assert_allclose(body.kinetic_energy(body.pose, body.twist), energy, rtol=1e-13)
    twist = np.concatenate([v, omega])
    M = body.mass_matrix(body.pose.orientation)
    np.testing.assert_allclose(0.5 * twist @ M @ twist, energy, rtol=1e-13)
    linear, angular = body.momentum(body.pose, body.twist)
    np.testing.assert_allclose(linear, m * speeds.sum(0), rtol=1e-12)
    np.testing.assert_allclose(angular, m * np.cross(at, speeds).sum(0), rtol=1e-12)
    g = np.array([0.3, -9.0, 2.0])
    potential = body.potential_energy(body.pose, jnp.asarray(g))
    np.testing.assert_allclose(potential, -m * (at @ g).sum(), rtol=1e-12)


def test_inertial_force_is_a_sum_over_points():
    """Weight and centrifugal force of each, and their moments."""
    body, R = random_body(1)
    r, m = points_of(body, R)
    g, omega = np.array([0.3, -9.0, 2.0]), np.asarray(body.twist.angular)
    forces = m * (g - np.cross(omega, np.cross(omega, r)))
    expected = np.concatenate([forces.sum(0), np.cross(r, forces).sum(0)])
    p = body.pose.orientation
    found = body.inertial_force(p, body.twist.angular, jnp.asarray(g))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    weight = np.asarray(body.mass_matrix(p))[:, :3] @ g
    np.testing.assert_allclose(
        body.gyroscopic_force(p, body.twist.angular), expected - weight, rtol=1e-12, atol=1e-12
    )


def test_inverse_mass_matrix():
    body, _ = random_body(2)
    p = body.pose.orientation
    expected = np.linalg.inv(np.asarray(body.mass_matrix(p)))
    root = jax.tree.map(lambda x: x[..., None], body.root(p))
    W = np.asarray(root.whitener())[:, :, 0]
    np.testing.assert_allclose(W.T @ W, expected, rtol=1e-12, atol=1e-14)
    force = np.random.default_rng(3).normal(size=6)
    np.testing.assert_allclose(body.acceleration(p, jnp.asarray(force)), expected @ force,
                               rtol=1e-12, atol=1e-14)  # fmt: skip


BOX = mbd.Inertia.box(size=[1, 2, 3], mass=1.0)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: mbd.Body("ground", BOX), "which is the world, but `name` is 'ground'"),
        (lambda: mbd.Body("", BOX), "A body needs a name"),
        (lambda: mbd.Body("a", mbd.Inertia.rod(length=1, mass=1)), "Give points and thin rods"),
        (lambda: mbd.Body("a", BOX, position=[1, 2]), '`position` of Body "a" must have shape'),
        (lambda: mbd.Body("a", BOX, orientation=[1, 1, 0, 0]), '"a" must be a unit quaternion'),
        (lambda: mbd.Body("a", BOX, orientation=-np.eye(3)), "right-handed rotation matrix"),
        (lambda: mbd.Body("a", BOX, orientation=np.eye(2)), r"shape \(3, 3\), but has shape"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
