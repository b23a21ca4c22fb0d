"""Each kind of joint: the poses it admits, its freedoms, its rows, its coordinates."""

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd
from jaxmbd import Pose

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.0)
LENGTH, PITCH, RADIUS = 0.7, 0.13, 0.4
TIME = jnp.zeros(())


def turn(axis, angle):
    """Rotation by `angle` about the coordinate axis number `axis`."""
    return mbd.quaternion_exp(angle * jnp.eye(3)[axis])


def slide(x=0.0, y=0.0, z=0.0):
    return jnp.stack([jnp.asarray(c, float) for c in (x, y, z)])


def product(*rotations):
    p = rotations[0]
    for other in rotations[1:]:
        p = mbd.quaternion_product(p, other)
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
        return Pose(mbd.quaternion_rotate(turned, slide(self.radius, 0.1, t)), turned)


class Cubic(eqx.Module):
    """The curve y = c x^2, z = x^3."""

    c: jax.Array

    def __call__(self, r):
        return jnp.stack([r[1] - self.c * r[0] ** 2, r[2] - r[0] ** 3])


WAVE = Wave(jnp.asarray(0.3), jnp.asarray(0.5))
CAROUSEL = Carousel(jnp.asarray(0.6), jnp.asarray(1.3))
CUBIC = Cubic(jnp.asarray(0.8))


def on_rim(x, y, heading, tilt, roll):
    """Pose of a disc that touches at (x, y)."""
    lean = product(turn(2, heading), turn(0, tilt))
    # The lowest point is down the slope of the disc, along its y axis before it rolled.
    down = -jnp.sign(tilt) * mbd.quaternion_rotate(lean, slide(y=RADIUS))
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
    mbd.PointOnLine: ({}, lambda z, *w: Pose(slide(z=z), mbd.quaternion_exp(jnp.stack(w))), 1),
    mbd.PointOnPlane: (
        {},
        lambda x, y, *w: Pose(slide(x, y), mbd.quaternion_exp(jnp.stack(w))),
        2,
    ),
    mbd.Distance: (
        {"length": LENGTH},
        lambda w1, w2, *w: Pose(
            mbd.quaternion_rotate(product(turn(0, w1), turn(1, w2)), slide(z=LENGTH)),
            mbd.quaternion_exp(jnp.stack(w)),
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
        lambda w1, w2: Pose(slide(), mbd.quaternion_exp(jnp.stack([w1, w2, 0.0 * w1]))),
        2,
    ),
    mbd.PrescribedPose: ({"motion": CAROUSEL}, lambda: CAROUSEL(TIME), 0),
    mbd.PointOnCurve: (
        {"surfaces": CUBIC},
        lambda x, *w: Pose(slide(x, CUBIC.c * x**2, x**3), mbd.quaternion_exp(jnp.stack(w))),
        0,
    ),
    mbd.Cam: (
        {"profile": PROFILE},
        lambda z, phi, *w: Pose(
            slide(PROFILE(phi) * jnp.cos(phi), PROFILE(phi) * jnp.sin(phi), z),
            mbd.quaternion_exp(jnp.stack(w)),
        ),
        2,
    ),
    mbd.RollingSphere: (
        {"radius": RADIUS},
        lambda x, y, *w: Pose(slide(x, y, RADIUS), mbd.quaternion_exp(jnp.stack(w))),
        2,
    ),
    mbd.RollingDisc: ({"radius": RADIUS}, on_rim, 2),
}
ROWS = {
    mbd.Fixed: 6, mbd.Spherical: 3, mbd.Revolute: 5, mbd.Prismatic: 5, mbd.Cylindrical: 4,
    mbd.Universal: 4, mbd.Planar: 3, mbd.PointOnLine: 2, mbd.PointOnPlane: 1, mbd.Distance: 1,
    mbd.Screw: 5, mbd.ConstantVelocity: 4, mbd.PrescribedPose: 6, mbd.PointOnCurve: 2,
    mbd.Cam: 1, mbd.RollingSphere: 1, mbd.RollingDisc: 1,
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


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_admits_its_freedoms_and_nothing_else(kind):
    rng = np.random.default_rng(0)
    joint, pose_a = joint_of(kind, rng), random_pose(rng)
    number = 6 - ROWS[kind]
    freedoms = jnp.asarray(rng.uniform(-0.9, 0.9, number))

    def coordinates(freedoms):
        return bodies_at(kind, joint, pose_a, freedoms).state().q

    mechanism, q = bodies_at(kind, joint, pose_a, freedoms), coordinates(freedoms)
    rows = jax.jit(lambda q: mechanism.constraint(q, TIME))
    assert joint.rows == rows(q).shape[0] == ROWS[kind]
    np.testing.assert_allclose(rows(q), 0, atol=1e-12)
    # Along the freedoms the rows stay zero, and what is left of the motions violates them.
    tangents = jax.jit(jax.jacfwd(coordinates))(freedoms)
    J = jax.jit(jax.jacfwd(rows))(q)
    np.testing.assert_allclose(J @ tangents, 0, atol=1e-12)
    qdot = jax.jit(lambda q, v: mechanism.qdot(q, v))
    N = jax.vmap(lambda v: qdot(q, v), out_axes=1)(jnp.eye(12))
    assert np.linalg.matrix_rank(J @ N, tol=1e-9) == ROWS[kind]
    assert np.linalg.matrix_rank(tangents, tol=1e-9) == number
    # Moving both bodies together is free.
    for turned in (np.zeros(3), rng.normal(size=3)):
        shift, table = rng.normal(size=3), np.reshape(q, (7, 2))
        linear = shift[:, None] + np.cross(turned[:, None], table[:3], axis=0)
        both = np.concatenate([linear, np.tile(turned[:, None], (1, 2))]).ravel()
        np.testing.assert_allclose(J @ qdot(q, jnp.asarray(both, float)), 0, atol=1e-12)
    found = mechanism.joint_coordinates(q, "joint")
    np.testing.assert_allclose(found, freedoms[: KINDS[kind][2]], atol=1e-12)


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
    "Constraint": (
        lambda r, a, b: mbd.Constraint("u", [a, "ground", b], mass_at_the_middle,
                                       velocity_fn=Unequal(jnp.asarray(0.3)),
                                       frames=[random_pose(r), random_pose(r), None]), 3, 3),
}  # fmt: skip
EVERY = {
    **{kind.__name__: (lambda r, a, b, kind=kind: joint_of(kind, r, a, b), kind.rows,
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


QUICK_OTHERS = ("Constraint", "Gear")


@pytest.mark.parametrize(
    "kind",
    helpers.slow_unless(
        lambda kind: (
            (kind not in OTHERS or kind in QUICK_OTHERS)
            and "Rolling" not in kind
            and kind != "PrescribedPose"
        ),
        EVERY,
    ),
)
def test_rows_are_those_of_differences(kind):
    """Velocities, Jacobian and right side, at poses that the joint does not admit; the reaction is
    orthogonal to the admissible velocities."""
    rng = np.random.default_rng(1)
    make, rows, velocity_rows = EVERY[kind]
    element = make(rng, "a", "b")
    mechanism = mbd.Mechanism(bodies_of(element, rng), [element])
    state = mechanism.state()
    q, v, n = state.q, state.v, state.v.size
    t, step = jnp.asarray(0.2), 1e-5

    @jax.jit
    def values(dp, dv, dt):
        """Phi and (Phi', Psi) after displacements, changes of velocity and times."""
        at, v_at = jax.vmap(mechanism.retract, (None, 0))(q, dp), v[None] + dv
        phi = jax.vmap(mechanism.constraint)(at, t + dt)
        rates = jax.vmap(mechanism.qdot)(at, v_at)
        phidot = jax.jvp(jax.vmap(mechanism.constraint), (at, t + dt), (rates, jnp.ones_like(dt)))
        psi = jax.vmap(mechanism.nonholonomic)(at, v_at, t + dt)
        return phi, jnp.concatenate([phidot[1], psi], axis=1)

    # Displacements, then velocities, then the motion with these velocities.
    eye, none = np.eye(n), np.zeros((n, n))
    dp = jnp.asarray(step * np.concatenate([eye, none, v[None]]))
    dv = jnp.asarray(step * np.concatenate([none, eye, 0 * v[None]]))
    dt = jnp.asarray(step * np.append(np.zeros(2 * n), 1.0))
    plus, minus = values(dp, dv, dt), values(-dp, -dv, -dt)
    dphi, dvelocity = ((p - m) / (2 * step) for p, m in zip(plus, minus, strict=True))
    point = jax.jit(lambda: mbd.evaluate(mechanism, None, t, q, v)._replace(equations=None))()
    found = point.rows
    assert found.phi.shape == (rows,) and found.velocity.shape == (rows + velocity_rows,)
    close = {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(found.J[:rows], dphi[:n].T, **close)
    np.testing.assert_allclose(found.J, dvelocity[n : 2 * n].T, **close)
    np.testing.assert_allclose(found.velocity[:rows], dphi[-1], **close)
    np.testing.assert_allclose(found.gamma, -dvelocity[-1], **close)
    acceleration = eqx.filter_jit(motion)(mechanism, t, q, v)[1]
    np.testing.assert_allclose(found.J @ acceleration, found.gamma, atol=1e-8)
    reaction, J = point.M @ acceleration - point.f, np.asarray(found.J)
    admissible = v - np.linalg.pinv(J) @ J @ v
    np.testing.assert_allclose(reaction @ admissible, 0, atol=1e-9 * np.linalg.norm(reaction))


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


# The others take as long, 10 to 20 s of compilation each.
@pytest.mark.parametrize("kind", helpers.slow_unless(lambda kind: kind == "Revolute", EVERY))
def test_gradients(kind):
    """Of rows and of the constrained acceleration, with respect to every number of the joint, in
    both modes."""
    rng = np.random.default_rng(3)
    element = EVERY[kind][0](rng, "ground", "b")
    bodies = bodies_of(element, rng)
    numbers, rest = eqx.partition(element, eqx.is_inexact_array)
    x, unravel = ravel_pytree(numbers)
    state = mbd.Mechanism(bodies, [element]).state()
    direction = jnp.asarray(rng.normal(size=x.shape))

    def values(x):
        mechanism = mbd.Mechanism(bodies, [eqx.combine(unravel(x), rest)])
        return jnp.concatenate(motion(mechanism, jnp.asarray(0.2), state.q, state.v))

    @jax.jit
    def derivatives(x, direction):
        change = jax.jvp(values, (x,), (direction,))[1]
        weights = jnp.cos(jnp.arange(change.size, dtype=change.dtype))
        gradient = jax.grad(lambda x: weights @ values(x))(x)
        return change, weights @ change, gradient @ direction

    change, forward, reverse = derivatives(x, direction)
    step = 1e-6
    around = jax.jit(jax.vmap(lambda s: values(x + s * direction)))(jnp.asarray([step, -step]))
    scale = np.max(np.abs(change))
    differences = (around[0] - around[1]) / (2 * step)
    np.testing.assert_allclose(change, differences, rtol=1e-5, atol=1e-7 * scale)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-12 * scale)


COORDINATES = [kind for kind in KINDS if KINDS[kind][2]]


@pytest.mark.parametrize("kind", COORDINATES, ids=lambda kind: kind.__name__)
def test_rates_are_those_of_differences(kind):
    rng = np.random.default_rng(4)
    joint = joint_of(kind, rng)
    mechanism = mbd.Mechanism(bodies_of(joint, rng), [joint])
    state = mechanism.state()
    step = 1e-5
    moved = jnp.stack([mechanism.retract(state.q, s * step * state.v) for s in (1, -1)])
    x = mechanism.joint_coordinates(moved, "joint")
    rates = jax.jit(lambda q, v: mbd.joint_rates(mechanism, q, v, "joint"))(state.q, state.v)
    assert rates.shape == (joint.count(),)
    np.testing.assert_allclose(rates, (x[0] - x[1]) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("bend", [0.1, 0.7])
def test_shafts_that_are_bent(bend):
    """With both shafts held, a constant-velocity joint turns them alike, and a universal joint by
    tan(second) = tan(first) / cos(bend)."""
    frames = {"frame_a": FRAME, "frame_b": FRAME}
    even, cross = (
        mbd.ConstantVelocity("e", "a", "b", **frames),
        mbd.Universal("c", "a", "b", **frames),
    )
    for first in np.linspace(-3.0, 3.0, 7):
        a = Pose(slide(), turn(2, first))
        second = np.arctan2(np.sin(first), np.cos(first) * np.cos(bend))
        for joint, angle in ((even, first), (cross, second)):
            b = Pose(slide(), product(turn(1, bend), turn(2, angle)))
            np.testing.assert_allclose(joint.constraint(a, b, TIME), 0, atol=1e-12)
            off = Pose(slide(), product(turn(1, bend), turn(2, angle + 0.01)))
            assert abs(joint.constraint(a, off, TIME)[3]) > 1e-3


def rates_of(mechanism, names):
    """Rates of joint coordinates in the only motion that the joints admit."""
    state = mechanism.state()
    J = jax.jit(lambda: jacobian(mechanism, TIME, state.q, state.v)[0])()
    _, s, vt = np.linalg.svd(np.asarray(J))
    assert np.sum(s > 1e-9) == state.v.size - 1
    v = jnp.asarray(vt[-1])
    return [float(mbd.joint_rates(mechanism, state.q, v, name)[0]) for name in names]


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


def test_gear_counts_no_turns():
    frames = {"frame_a": FRAME, "frame_b": FRAME}
    first, second = (mbd.Revolute(n, "ground", n, **frames) for n in "ab")
    gear = mbd.Gear("gear", first, second, teeth=(20, 35), phase=0.3)
    rack = mbd.RackAndPinion("rack", mbd.Prismatic("x", "ground", "a", **frames), second,
                             radius=0.15, offset=0.4)  # fmt: skip
    here = FRAME
    for phi in (-31.0, 0.2, 500.0):
        for error in (0.0, 0.001):
            a = Pose(slide(), turn(2, phi + error))
            b = Pose(slide(), turn(2, (0.3 - 20 * phi) / 35))
            row = gear.equations((here, a, here, b), TIME)
            np.testing.assert_allclose(row, [error], atol=1e-12)
            a = Pose(slide(z=0.15 * phi + 0.4 + error), UNTURNED)
            row = rack.equations((here, a, here, Pose(slide(), turn(2, phi))), TIME)
            np.testing.assert_allclose(row, [error], atol=1e-12)


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
        np.max(np.abs(jax.vmap(spline(n))(everywhere) - circle(everywhere))) for n in (24, 48)
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
    np.testing.assert_allclose(of_follower / of_cam, -jax.grad(circle)(-turned), rtol=1e-10)


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


class Ramp(eqx.Module):
    speed: jax.Array

    def __call__(self, t):
        return self.speed * t + 0.3 * jnp.sin(2.0 * t)


def follows(body, joints):
    """A motion of one driven body, from its state at t = 0."""
    mechanism = mbd.Mechanism([body], joints)
    ts = jnp.linspace(0.0, 1.0, 6)
    sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=1.0, dt=1e-2,
                       projection=mbd.Projection(), saveat=diffrax.SaveAt(steps=20))  # fmt: skip
    np.testing.assert_allclose(sol.t, ts[1:], atol=1e-12)
    return mechanism, sol


@pytest.mark.slow
def test_driven_joint_follows():
    """To 1e-10: an angle over several turns."""
    ramp = Ramp(jnp.asarray(15.0))
    body = mbd.Body("b", BOX, angular_velocity=[0, 0, 15.6])
    hinge = mbd.Revolute("hinge", "ground", body, point=[0, 0, 0], axis=[0, 0, 1.0])
    mechanism, sol = follows(body, [hinge, mbd.PrescribedMotion("turn", hinge, ramp)])
    expected = jax.vmap(ramp)(sol.t)
    path = mbd.joint_path(mechanism, "hinge", sol.t, sol.q, sol.v)[:, 0]
    path = path + jnp.round((expected[0] - path[0]) / (2 * np.pi)) * 2 * np.pi
    np.testing.assert_allclose(path, expected, atol=1e-10)
    rates = mbd.joint_rates(mechanism, sol.q, sol.v, "hinge")[:, 0]
    np.testing.assert_allclose(rates, jax.vmap(jax.grad(ramp))(sol.t), atol=1e-10)


@pytest.mark.slow
def test_driven_pose_follows():
    """To 1e-10."""
    at, rate = jax.jvp(CAROUSEL, (TIME,), (jnp.ones(()),))
    body = mbd.Body("b", BOX, **at._asdict(), velocity=rate.position,
                    angular_velocity=[0, 0, CAROUSEL.speed])  # fmt: skip
    lead = mbd.PrescribedPose("lead", "ground", body, motion=CAROUSEL, frame_a=FRAME, frame_b=FRAME)
    mechanism, sol = follows(body, [lead])
    pose, expected = mechanism.pose(sol.q, "b"), jax.vmap(CAROUSEL)(sol.t)
    np.testing.assert_allclose(pose.position, expected.position, atol=1e-10)
    np.testing.assert_allclose(pose.orientation, expected.orientation, atol=1e-10)


@pytest.mark.slow
def test_turns_are_counted():
    """With the rates however many turns pass between samples; without, below half a turn each."""
    body = mbd.Body("b", BOX)
    joint = mbd.Cylindrical(
        "j", "ground", body, point=[0, 0, 0], axis=[0, 0, 1.0], limits=[(-1.0, 1.0), (-5.0, 40.0)]
    )
    mechanism = mbd.Mechanism([body], [joint])

    def exact(t):
        return jnp.stack([0.2 * t, 30.0 * t + 8.0 * jnp.sin(t)])

    def state(t):
        (z, phi), (dz, dphi) = exact(t), jax.jacfwd(exact)(t)
        q = jnp.concatenate([slide(z=z), turn(2, phi)])
        return q, jnp.concatenate([slide(z=dz), slide(z=dphi)])

    for ts, with_rates in (
        (jnp.linspace(0.0, 8.0, 17), True),
        (jnp.linspace(0.0, 8.0, 120), False),
    ):
        q, v = jax.vmap(state)(ts)
        path = mbd.joint_path(mechanism, "j", ts, q, v if with_rates else None)
        np.testing.assert_allclose(path, jax.vmap(exact)(ts), atol=1e-10)
    beyond = joint.limit_violation(path)
    np.testing.assert_allclose(beyond[-1], [0.6, path[-1, 1] - 40.0], atol=1e-10)
    np.testing.assert_allclose(beyond[0], 0, atol=0)


@pytest.mark.parametrize("joint", [mbd.Revolute, mbd.Universal])
def test_angles_without_meaning_have_finite_derivatives(joint):
    """As of a hinge that is torn open until the x axis of b lies along the axis of a."""
    identity = mbd.Pose(jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0]))
    hinge = joint("hinge", "a", "b", frame_a=identity, frame_b=identity)

    def first_angle(p):
        return hinge.coordinates(identity, mbd.Pose(jnp.zeros(3), p))[0]

    # Turns x into z and y into x, without rounding.
    value, slope = jax.value_and_grad(first_angle)(jnp.array([0.5, -0.5, -0.5, -0.5]))
    np.testing.assert_array_equal(value, 0.0)
    assert np.all(np.isfinite(slope))


@pytest.mark.parametrize("beta", [np.pi / 2, -np.pi / 2, 1.2])
def test_angles_of_a_ball_joint_give_its_rotation(beta):
    """Where the first and the last have one axis too: there the sum or the difference is right."""
    identity = mbd.Pose(jnp.zeros(3), UNTURNED)
    ball = mbd.Spherical("ball", "a", "b", frame_a=identity, frame_b=identity)
    p = product(turn(0, 0.4), turn(1, beta), turn(2, -2.3))
    angles = ball.coordinates(identity, mbd.Pose(jnp.zeros(3), p))
    again = product(*map(turn, range(3), angles))
    np.testing.assert_allclose(
        mbd.quaternion_to_matrix(again), mbd.quaternion_to_matrix(p), atol=1e-14
    )
    for slopes in (jax.jacfwd, jax.jacrev):
        J = slopes(lambda p: ball.coordinates(identity, mbd.Pose(jnp.zeros(3), p)))(p)
        assert np.all(np.isfinite(J))


def test_angles_of_a_ball_joint_locked_without_rounding():
    identity = mbd.Pose(jnp.zeros(3), UNTURNED)
    ball = mbd.Spherical("ball", "a", "b", frame_a=identity, frame_b=identity)
    angles = lambda p: ball.coordinates(identity, mbd.Pose(jnp.zeros(3), p))  # noqa: E731
    locked = jnp.array([0.5, 0.5, 0.5, 0.5])  # y into z, z into x
    found = angles(locked)
    np.testing.assert_allclose(found, [0.0, np.pi / 2, np.pi / 2], atol=1e-15)
    for slopes in (jax.jacfwd, jax.jacrev):
        assert np.all(np.isfinite(slopes(angles)(locked)))
    # At the identity the rates of the angles are the angular velocity.
    at_rest = jax.jvp(angles, (UNTURNED,), (jnp.array([0.0, 0.1, 0.2, 0.3]),))[1]
    np.testing.assert_allclose(at_rest, [0.2, 0.4, 0.6], atol=1e-15)


def test_universal_by_its_axes():
    """The cross turns in a about the first axis, b on the cross about the second."""
    first, second = np.array([0.6, 0.8, 0.0]), np.array([0.0, 0.0, -1.0])
    body = mbd.Body("b", BOX)
    joint = mbd.Universal("u", "ground", body, point=[0.1, 0.2, 0.3], axes=[first, second])
    mechanism = mbd.Mechanism([body], [joint])
    np.testing.assert_allclose(
        mechanism.joint_coordinates(mechanism.state().q, "u"), [0.0, 0.0], atol=1e-15
    )
    p = product(mbd.quaternion_exp(0.5 * first), mbd.quaternion_exp(-1.1 * second))
    arm = mbd.quaternion_rotate(p, jnp.array([-0.1, -0.2, -0.3]))
    q = jnp.concatenate([jnp.array([0.1, 0.2, 0.3]) + arm, p])
    np.testing.assert_allclose(mechanism.constraint(q, TIME), 0, atol=1e-15)
    np.testing.assert_allclose(mechanism.joint_coordinates(q, "u"), [0.5, -1.1], atol=1e-14)


def test_limits():
    body = mbd.Body("b", BOX)
    joint = mbd.Revolute("j", "ground", body, point=[0, 0, 0], axis=[0, 0, 1.0], limits=(2.5, 3.5))
    mechanism = mbd.Mechanism(
        [body],
        [
            joint,
        ],
    )
    angles = np.array([2.4, 2.6, -3.0, -2.7, 3.6])
    q = jnp.stack([jnp.concatenate([slide(), turn(2, phi)]) for phi in angles])
    expected = [[-0.1], [0], [0], [2 * np.pi - 2.7 - 3.5], [0.1]]
    np.testing.assert_allclose(mbd.limit_violation(mechanism, q, "j"), expected, atol=1e-12)
    free = mbd.Mechanism(
        [body], [mbd.Revolute("j", "ground", body, point=[0, 0, 0], axis=[0, 0, 1.0])]
    )
    np.testing.assert_allclose(mbd.limit_violation(free, q, "j"), 0, atol=0)


def test_constraint_of_the_user():
    """Written by hand it is the joint of the library; between any bodies; with parameters."""
    rng = np.random.default_rng(5)
    frames = [random_pose(rng), random_pose(rng)]
    library = mbd.Revolute("hinge", "a", "b", frame_a=frames[0], frame_b=frames[1])
    own = mbd.Constraint(
        "own", ["a", "b"], lambda poses, t: library.constraint(*poses, t), frames=frames
    )
    bodies = [mbd.Body(name, BOX, **random_pose(rng)._asdict()) for name in "ab"]
    q = mbd.Mechanism(bodies, [library]).state().q
    rows = [mbd.Mechanism(bodies, [joint]).constraint(q, TIME) for joint in (library, own)]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-14)
    # A number is a row, and a body may come twice.

    def rise(poses, t):
        return poses[0].position[2] - poses[2].position[2] + t

    above = Pose(slide(z=1.0), UNTURNED)
    level = mbd.Constraint("level", [bodies[0], "ground", "a"], rise, frames=[None, None, above])
    mechanism = mbd.Mechanism([mbd.Body("a", BOX)], [level])
    q = mechanism.state().q
    np.testing.assert_allclose(mechanism.constraint(q, TIME + 3.0), [2.0], atol=1e-14)


def test_screw_counts_no_turns():
    """The row holds over many turns, and a wrong thread shows."""
    joint = mbd.Screw("s", "a", "b", pitch=PITCH,
                      frame_a=Pose(slide(), UNTURNED), frame_b=Pose(slide(), UNTURNED))  # fmt: skip
    ground = FRAME
    for z in (-3.7, 0.02, 11.1):
        there = Pose(slide(z=z), turn(2, 2 * np.pi * z / PITCH))
        np.testing.assert_allclose(joint.constraint(ground, there, TIME), 0, atol=1e-12)
        left = Pose(slide(z=z), turn(2, 2 * np.pi * (z + 0.01) / PITCH))
        np.testing.assert_allclose(joint.constraint(ground, left, TIME)[4], 0.01, rtol=1e-9)


@pytest.mark.parametrize(
    "axis", [[0.0, 0, 1], [0, 0, -1], [1, 0, 0], [0.6, 0, -0.8], [0, 0.8, 0.6]]
)
def test_frames_from_the_world(axis):
    rng = np.random.default_rng(2)
    body = mbd.Body("b", BOX, **random_pose(rng)._asdict())
    joint = mbd.Revolute("hinge", "ground", body, point=[0.1, 0.2, 0.3], axis=axis)
    for pose, frame in ((Pose(slide(), UNTURNED), joint.frame_a), (body.pose, joint.frame_b)):
        world = pose.compose(frame)
        np.testing.assert_allclose(world.position, [0.1, 0.2, 0.3], atol=1e-14)
        np.testing.assert_allclose(world.direction(slide(z=1.0)), axis, atol=1e-14)


def hinge_of(b, **limits):
    return mbd.Revolute("h", "ground", b, point=[0, 0, 0], axis=[0, 0, 1], **limits)


def guide_of(b):
    return mbd.Prismatic("x", "ground", b, point=[0, 0, 0], axis=[0, 0, 1])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda b: mbd.Revolute("", "ground", b, point=[0, 0, 0]), "Revolute needs a name"),
        (lambda b: mbd.Revolute("j", b, b, point=[0, 0, 0]), 'both are "b"'),
        (lambda b: mbd.Revolute("j", "ground", b), "needs one of `point` and"),
        (lambda b: mbd.Revolute("j", "ground", b, point=[0, 0, 0]), "Revolute \"j\" has an axis"),
        (lambda b: mbd.Spherical("j", "ground", b, point=[0, 0]), '`point` of Spherical.*shape'),
        (lambda b: mbd.Revolute("j", "ground", b, point=[0, 0, 0], axis=[0, 0, 2]), "has length 2"),
        (lambda b: mbd.Revolute("j", "ground", "b", point=[0, 0, 0], axis=[0, 0, 1]),
         'where "b" is must be known'),
        (lambda b: mbd.Revolute("j", "ground", b, frame_a=FRAME), "both `frame_a` and `frame_b`"),
        (lambda b: mbd.Revolute("j", "ground", b, frame_a=FRAME, frame_b=FRAME, axis=[0, 0, 1]),
         "say it twice"),
        (lambda b: mbd.Distance("j", "ground", b, point=[0, 0, 0], length=0.0),
         '`length` of Distance "j" must be positive and finite, but is 0.0'),
        (lambda b: mbd.Distance("j", "ground", b, point=[0, 0, 0], length=float("nan")),
         '`length` of Distance "j" must be positive and finite, but is nan'),
        (lambda b: mbd.Screw("j", "ground", b, point=[0, 0, 0], axis=[0, 0, 1], pitch=0.0),
         '`pitch` of Screw "j" must be finite and not 0'),
        (lambda b: mbd.Revolute("j", "ground", b, point=[0, 0, float("nan")], axis=[0, 0, 1]),
         '`point` of Revolute "j" must be finite'),
        (lambda b: mbd.Revolute("j", "ground", b, point=[0, 0, 0], axes=[[0, 0, 1]]),
         '`axes` of "j" must be two'),
        (lambda b: hinge_of(b, limits=(1.0, -1.0)), '`limits` of Revolute "h" must be lower <= '),
        (lambda b: hinge_of(b, limits=[(0.0, 1.0)] * 2), "for each of its 1 joint coordinates"),
        (lambda b: mbd.Universal("u", "ground", b, point=[0, 0, 0]), "turns about two axes"),
        (lambda b: mbd.Universal("u", "ground", b, point=[0, 0, 0],
                                 axes=[[1, 0, 0], [0.6, 0.8, 0]]),
         "must be at right angles, as the arms of the cross are, but are at 53.1301 degrees"),
        (lambda b: mbd.Gear("g", hinge_of(b), hinge_of(b), teeth=(2, 2.5)), "must be whole"),
        (lambda b: mbd.Gear("g", hinge_of(b), hinge_of(b), teeth=(0, 2)), '`teeth` of Gear "g"'),
        (lambda b: mbd.Gear("g", hinge_of(b), guide_of(b), teeth=(1, 2)),
         'Gear "g" needs a joint with an angle, but Prismatic "x" has none'),
        (lambda b: mbd.Coupler("k", guide_of(b), hinge_of(b), ratio=2.0), "Use `RackAndPinion`"),
        (lambda b: mbd.Coupler("k", hinge_of(b), hinge_of(b), ratio=2.0, offset=1.0), "`offset`"),
        (lambda b: mbd.RackAndPinion("r", hinge_of(b), hinge_of(b), radius=1.0),
         "needs a joint with a displacement"),
        (lambda b: mbd.RackAndPinion("r", guide_of(b), hinge_of(b), radius=0.0), "`radius` of R"),
        (lambda b: mbd.PrescribedMotion("d", hinge_of(b), lambda t: jnp.stack([t, t])),
         "must give a number"),
        (lambda b: mbd.PrescribedMotion(
            "d", mbd.Universal("u", "ground", b, point=[0, 0, 0], orientation=UNTURNED), WAVE),
         r"give one of the indices \[0, 1\]"),
        (lambda b: mbd.PrescribedPose("d", "ground", b, point=[0, 0, 0], motion=WAVE),
         "must give a `Pose`"),
        (lambda b: mbd.RollingSphere("r", "ground", b, frame_a=FRAME, frame_b=FRAME, radius=-1.0),
         '`radius` of RollingSphere "r" must be positive and finite, but is -1.0'),
        (lambda b: mbd.PointOnCurve("c", "ground", b, point=[0, 0, 0], surfaces=lambda r: r),
         "must give two numbers"),
        (lambda b: mbd.PeriodicSpline([0.0, 2.0, 1.0], [1.0, 1.0, 1.0]), "must increase within"),
        (lambda b: mbd.PeriodicSpline([0.0, 2.0], [1.0, 1.0]), "at least 3 points"),
        (lambda b: mbd.Constraint("c", [b], lambda poses, t: None), "must return one float"),
        (lambda b: mbd.Constraint("c", [b], None), "needs `fn`, `velocity_fn`, or both"),
        (lambda b: mbd.Constraint("c", ["ground"], lambda p, t: t), "needs a body that can move"),
        (lambda b: mbd.Constraint("c", [b], lambda p, t: t, frames=[None] * 2), "one frame for"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(mbd.Body("b", BOX))
