"""Each kind of joint: the poses it admits, its freedoms, its rows, its coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Pose

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.0)
LENGTH, PITCH = 0.7, 0.13
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

# Of each kind: its arguments, the pose of frame b in frame a as a function of the freedoms, and
# which of these are its coordinates.
KINDS = {
    mbd.Fixed: ({}, lambda: Pose(slide(), UNTURNED), 0),
    mbd.Spherical: ({}, lambda *w: Pose(slide(), mbd.quaternion_exp(jnp.stack(w))), 0),
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
}
ROWS = {
    mbd.Fixed: 6, mbd.Spherical: 3, mbd.Revolute: 5, mbd.Prismatic: 5, mbd.Cylindrical: 4,
    mbd.Universal: 4, mbd.Planar: 3, mbd.PointOnLine: 2, mbd.PointOnPlane: 1, mbd.Distance: 1,
    mbd.Screw: 5,
}  # fmt: skip


def random_pose(rng):
    p = rng.normal(size=4)
    return Pose(jnp.asarray(rng.normal(size=3)), jnp.asarray(p / np.linalg.norm(p)))


def joint_of(kind, rng):
    return kind("joint", "a", "b", frame_a=random_pose(rng), frame_b=random_pose(rng),
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
    tangents = jax.jacfwd(coordinates)(freedoms)
    J = jax.jit(jax.jacfwd(rows))(q)
    np.testing.assert_allclose(J @ tangents, 0, atol=1e-12)
    N = jax.vmap(lambda v: mechanism.qdot(q, v), out_axes=1)(jnp.eye(12))
    assert np.linalg.matrix_rank(J @ N, tol=1e-9) == ROWS[kind]
    assert np.linalg.matrix_rank(tangents, tol=1e-9) == number
    # Moving both bodies together is free.
    for turned in (slide(), jnp.asarray(rng.normal(size=3))):
        shift = jnp.asarray(rng.normal(size=3))
        table = q.reshape(7, 2)
        linear = shift[:, None] + jnp.cross(turned[:, None], table[:3], axis=0)
        both = jnp.concatenate([linear, jnp.tile(turned[:, None], (1, 2))]).ravel()
        np.testing.assert_allclose(J @ mechanism.qdot(q, both), 0, atol=1e-12)
    found = mechanism.joint_coordinates(q, "joint")
    np.testing.assert_allclose(found, freedoms[: KINDS[kind][2]], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_jacobian_is_that_of_differences(kind):
    """At poses that the joint does not admit, through finite displacements of both bodies."""
    rng = np.random.default_rng(1)
    joint = joint_of(kind, rng)
    bodies = [mbd.Body(name, BOX, **random_pose(rng)._asdict()) for name in "ab"]
    mechanism = mbd.Mechanism(bodies, [joint])
    state = mechanism.state()
    point = jax.jit(lambda q, v: mbd.evaluate(mechanism, None, TIME, q, v).rows.J)

    def moved(dp):
        return mechanism.constraint(mechanism.retract(state.q, dp), TIME)

    step = 1e-5
    plus = jax.jit(jax.vmap(moved))(step * jnp.eye(12))
    minus = jax.jit(jax.vmap(moved))(-step * jnp.eye(12))
    differences = (plus - minus).T / (2 * step)
    np.testing.assert_allclose(point(state.q, state.v), differences, rtol=1e-6, atol=1e-8)


def test_screw_counts_no_turns():
    """The row holds over many turns, and a wrong thread shows."""
    joint = mbd.Screw("s", "a", "b", pitch=PITCH,
                      frame_a=Pose(slide(), UNTURNED), frame_b=Pose(slide(), UNTURNED))  # fmt: skip
    ground = Pose(slide(), UNTURNED)
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


FRAME = Pose(slide(), UNTURNED)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda b: mbd.Revolute("", "ground", b, point=[0, 0, 0]), "Revolute needs a name"),
        (lambda b: mbd.Revolute("j", b, b, point=[0, 0, 0]), 'both are "b"'),
        (lambda b: mbd.Revolute("j", "ground", b), "needs one of `point` and"),
        (lambda b: mbd.Revolute("j", "ground", b, point=[0, 0, 0]), "Revolute \"j\" has an axis"),
        (lambda b: mbd.Spherical("j", "ground", b, point=[0, 0]), '`point` of "j" must have'),
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
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(mbd.Body("b", BOX))
