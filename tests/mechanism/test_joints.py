"""Every kind of joint: the poses it admits, its freedoms, its rows and its gradients, against
differences. Bad input is refused."""

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from joint_kinds import (
    BOX,
    EVERY,
    FRAME,
    KINDS,
    OTHERS,
    ROWS,
    TIME,
    UNTURNED,
    WAVE,
    bodies_at,
    bodies_of,
    joint_of,
    motion,
    random_pose,
    slide,
)

import jaxmbd as mbd
from jaxmbd import Pose
from jaxmbd.mechanism.joints.pair import AbstractPair


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_admits_its_freedoms_and_nothing_else(kind):
    rng = np.random.default_rng(0)
    joint, pose_a = joint_of(kind, rng), random_pose(rng)
    number = 6 - ROWS[kind]
    freedoms = jnp.asarray(rng.uniform(-0.9, 0.9, number))

    def coordinates(freedoms):
        return bodies_at(kind, joint, pose_a, freedoms).state().q

    mechanism = bodies_at(kind, joint, pose_a, freedoms)
    q = mechanism.state().q

    def together():
        """Velocities of both bodies, which move as one."""
        for turned in (np.zeros(3), rng.normal(size=3)):
            shift, table = rng.normal(size=3), np.reshape(q, (7, 2))
            linear = shift[:, None] + np.cross(turned[:, None], table[:3], axis=0)
            yield np.concatenate([linear, np.tile(turned[:, None], (1, 2))]).ravel()

    @jax.jit
    def values(freedoms, q, directions):
        def rows(q):
            return mechanism.constraint(q, TIME)

        rates = jax.vmap(mechanism.qdot, (None, 0), 1)(q, directions)
        found = mechanism.joint_coordinates(q, "joint")
        return rows(q), jax.jacfwd(rows)(q), jax.jacfwd(coordinates)(freedoms), rates, found

    directions = np.concatenate([np.eye(12), [*together()]])
    phi, J, tangents, rates, found = jax.device_get(values(freedoms, q, directions))
    assert joint.rows == phi.shape[0] == ROWS[kind]
    np.testing.assert_allclose(phi, 0, atol=1e-12)
    # Along the freedoms the rows stay zero, and what is left of the motions violates them.
    np.testing.assert_allclose(J @ tangents, 0, atol=1e-12)
    assert np.linalg.matrix_rank(J @ rates[:, :12], tol=1e-9) == ROWS[kind]
    assert np.linalg.matrix_rank(tangents, tol=1e-9) == number
    # Moving both bodies together is free.
    np.testing.assert_allclose(J @ rates[:, 12:], 0, atol=1e-12)
    np.testing.assert_allclose(found, freedoms[: KINDS[kind][2]], atol=1e-12)


# Lower pairs are evaluated together, and `test_pairs.py` compares all of them with derivatives.
PAIRS = {kind.__name__ for kind in AbstractPair.__subclasses__()} - {"Revolute"}
LONG = {*OTHERS, "RollingDisc", "RollingSphere", "PrescribedPose"} - {"Constraint", "Gear"}


@pytest.mark.parametrize(
    "kind", helpers.slow_unless(lambda kind: kind not in LONG, [k for k in EVERY if k not in PAIRS])
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
    dp = step * np.concatenate([eye, none, v[None]])
    dv = step * np.concatenate([none, eye, none[:1]])
    dt = step * np.append(np.zeros(2 * n), 1.0)
    plus, minus = (values(s * dp, s * dv, s * dt) for s in (1, -1))
    dphi, dvelocity = ((p - m) / (2 * step) for p, m in zip(plus, minus, strict=True))

    point = jax.jit(lambda: mbd.evaluate(mechanism, None, t, q, v)._replace(equations=None))()
    point = jax.device_get(point)
    found = point.rows
    assert found.phi.shape == (rows,) and found.velocity.shape == (rows + velocity_rows,)
    close = {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(found.J[:rows], dphi[:n].T, **close)
    np.testing.assert_allclose(found.J, dvelocity[n : 2 * n].T, **close)
    np.testing.assert_allclose(found.velocity[:rows], dphi[-1], **close)
    np.testing.assert_allclose(found.gamma, -dvelocity[-1], **close)
    acceleration = np.asarray(eqx.filter_jit(motion)(mechanism, t, q, v)[1])
    np.testing.assert_allclose(found.J @ acceleration, found.gamma, atol=1e-8)
    reaction, J = point.M @ acceleration - point.f, np.asarray(found.J)
    admissible = v - np.linalg.pinv(J) @ J @ v
    np.testing.assert_allclose(reaction @ admissible, 0, atol=1e-9 * np.linalg.norm(reaction))


# Their rows are made as those of others are, of the same distances, directions and coordinates.
ALIKE = (
    "Fixed", "Spherical", "Prismatic", "Cylindrical", "PointOnLine", "PointOnPlane",
    "RackAndPinion", "Coupler of angles", "Coupler of displacements",
    "PrescribedMotion of an angle", "PrescribedMotion of a displacement", "CoordinateConstraint",
)  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    helpers.slow_unless(lambda kind: kind == "Revolute", [k for k in EVERY if k not in ALIKE]),
)
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
        value, change = jax.jvp(values, (x,), (direction,))
        weights = jnp.cos(jnp.arange(change.size, dtype=change.dtype))
        gradient = jax.grad(lambda x: weights @ values(x))(x)
        return value, change, weights @ change, gradient @ direction

    _, change, forward, reverse = derivatives(x, direction)
    step = 1e-6
    around = [derivatives(x + s * direction, direction)[0] for s in (step, -step)]
    scale = np.max(np.abs(change))
    differences = (around[0] - around[1]) / (2 * step)
    np.testing.assert_allclose(change, differences, rtol=1e-5, atol=1e-7 * scale)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-12 * scale)


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

    @jax.jit
    def rows_of_both(q):
        return [mbd.Mechanism(bodies, [joint]).constraint(q, TIME) for joint in (library, own)]

    rows = rows_of_both(q)
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-14)
    # A number is a row, and a body may come twice.

    def rise(poses, t):
        return poses[0].position[2] - poses[2].position[2] + t

    above = Pose(slide(z=1.0), UNTURNED)
    level = mbd.Constraint("level", [bodies[0], "ground", "a"], rise, frames=[None, None, above])
    mechanism = mbd.Mechanism([mbd.Body("a", BOX)], [level])
    q = mechanism.state().q
    np.testing.assert_allclose(eqx.filter_jit(mechanism.constraint)(q, 3.0), [2.0], atol=1e-14)


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
