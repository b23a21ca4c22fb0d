"""Planar mechanisms against the same ones in space, and against closed forms."""

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import rows_of, terms
from planar_cases import NORMAL, PLANE, TURN, linkage, placed
from refusals import check_refused, refusals

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._linalg import dense


def planar_velocities(mechanism):
    """The matrix from v of a planar mechanism to v of the same one in space."""
    count = len(mechanism.bodies)
    E = np.zeros((6, 3))
    E[:3, 0], E[:3, 1], E[3:, 2] = mechanism.plane.axes
    return np.kron(E, np.eye(count))


def pairs():
    """All pairs that fit the plane, on bodies that lie anyhow."""
    random = np.random.default_rng(1)
    x, y, across = TURN.T[0], TURN.T[2], (TURN.T[0] + TURN.T[2]) / np.sqrt(2)
    kinds = [
        (mbd.Revolute, {"axis": -NORMAL}),
        (mbd.Prismatic, {"axis": x}),
        (mbd.Prismatic, {"axis": across}),
        (mbd.Fixed, {"orientation": np.array([0.5, -0.5, 0.5, 0.5])}),
        (mbd.Spherical, {}),
        (mbd.Cylindrical, {"axis": NORMAL}),
        (mbd.Cylindrical, {"axis": across}),
        (mbd.PointOnLine, {"axis": NORMAL}),
        (mbd.PointOnLine, {"axis": y}),
        (mbd.PointOnPlane, {"axis": across}),
        (mbd.PointOnPlane, {"axis": NORMAL}),
        (mbd.Planar, {"axis": x}),
        (mbd.Planar, {"axis": NORMAL}),
    ]
    bodies, joints, before = [], [], "ground"
    for i, (kind, place) in enumerate(kinds):
        p = random.standard_normal(4)
        position = random.uniform(-1, 1, 3)
        inertia = mbd.Inertia(1.0 + i, [0.3, 0.2, 0.25], random.uniform(-0.1, 0.1, 3))
        body = mbd.Body(f"b{i}", inertia, position=position, orientation=p / np.linalg.norm(p))
        joints.append(kind(f"j{i}", before, body, point=random.uniform(-1, 1, 3), **place))
        bodies.append(body)
        before = body
    return mbd.Mechanism(bodies, joints, plane=PLANE), mbd.Mechanism(bodies, joints)


@pytest.fixture(scope="module")
def anyhow():
    """Such a chain, with bodies that stand and move anyhow in the plane."""
    flat, space = pairs()
    random = np.random.default_rng(0)
    start = flat.state()
    q = np.asarray(start.q) + 0.3 * random.standard_normal(start.q.size)
    return flat, space, q, random.standard_normal(start.v.size)


def test_rows_and_derivatives(anyhow):
    """Values, J, J v, and the right side of J v' = gamma, by differentiation."""
    flat, _, q, v = anyhow

    @jax.jit
    def both(q, v):
        rows = flat.linearised(0.0, q, v)
        phi = lambda q: flat.constraint(q, 0.0)  # noqa: E731
        rate = lambda q: jax.jvp(phi, (q,), (v,))[1]  # noqa: E731
        velocity, drift = jax.jvp(rate, (q,), (v,))
        ours = rows.phi, rows.velocity, rows.gamma, dense(rows.J), flat.row_map(0.0, q, v)(v)
        return ours, (phi(q), velocity, -drift, jax.jacfwd(phi)(q), velocity)

    for one, other in zip(*both(q, v), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_rows_are_those_of_space(anyhow):
    """At any pose the rows span what the spatial ones do, and are independent, joint by joint."""
    flat, space, q, v = anyhow
    E = planar_velocities(flat)

    @jax.jit
    def jacobians(q, v):
        Q, V = flat.pose_table(q).ravel(), flat.tables.twists(v).ravel()
        return dense(flat.linearised(0.0, q, v).J), dense(space.linearised(0.0, Q, V).J), V

    J, S, V = map(np.asarray, jacobians(q, v))
    S = S @ E
    np.testing.assert_allclose(V, E @ v, atol=1e-14)
    rank = lambda *x: np.linalg.matrix_rank(np.concatenate(x), tol=1e-10)  # noqa: E731
    assert len(J) == 21
    ours, theirs = rows_of(flat), rows_of(space)
    for name in ours:
        own, other = J[ours[name]], S[theirs[name]]
        assert len(own) == rank(own) == rank(other) == rank(own, other), name


def test_free_motion_is_that_of_space(anyhow):
    """M, forces and displacements of bodies with any inertia."""
    flat, space, q, v = anyhow
    E = planar_velocities(flat)
    dp = np.random.default_rng(2).standard_normal(v.size)

    @jax.jit
    def found(q, v, dp):
        Q, V, DP = flat.pose_table(q).ravel(), E @ v, E @ dp
        there, THERE = flat.retract(q, dp), space.retract(Q, DP)
        M = flat.mass_blocks(q)
        unit = jax.vmap(lambda x: M.root @ (x @ M.root))(M.dense())
        return (
            (M.dense(), E.T @ space.mass_matrix(Q) @ E),
            (unit, jnp.eye(v.size)),
            (flat.inertia(q, v), flat.mass_matrix(q) @ v),
            (flat.inertial_force(q, v), E.T @ space.inertial_force(Q, V)),
            (flat.inertial_force(q, v, 0.01), flat.inertial_force(q, 0 * v)),
            (flat.pose_table(there).ravel()[: V.size // 2], THERE[: V.size // 2]),
            (flat.difference(q, there), dp),
            (E @ flat.carried(q, there, v), space.carried(Q, THERE, V)),
            (flat.mechanical_energy(0.0, q, v), space.mechanical_energy(0.0, Q, V)),
        )

    for i, (one, other) in enumerate(found(q, v, dp)):
        np.testing.assert_allclose(one, other, atol=1e-11, err_msg=str(i))


def test_a_linkage_is_that_of_space():
    """Accelerations and reactions of a slider-crank with springs, damper, friction and motor, in a
    plane that lies anyhow, on bodies and on the ground; multipliers of least norm."""
    found = []
    for plane in (None, PLANE):
        of = linkage(plane)
        state = of.state()
        M, J, f, gamma = map(np.asarray, terms(of, state, np.array([0.4])))
        free, E = np.linalg.solve(M, f), np.asarray(PLANE.axes)
        A = J @ np.linalg.solve(M, J.T)
        lam = np.linalg.lstsq(A, gamma - J @ free, rcond=1e-10)[0]
        v = free + np.linalg.solve(M, J.T @ lam)

        @jax.jit
        def reports(q, lam, v, of=of):
            pin = mbd.reports.reactions(of, 0.0, q, lam, "pin", on="rod", point=placed(0.1, 0.2))
            crank = mbd.reports.reactions(of, 0.0, q, lam, "crank", on="ground")
            return of.tables.twists(v), pin, crank

        a, *loads = jax.device_get(reports(state.q, lam, v))
        loads = [(E[:2] @ x, E[2] @ y) for x, y in loads]
        found.append((J @ np.asarray(state.v), E[:2] @ a[:3], E[2] @ a[3:], loads))
    (still, *flat), (also, *space) = found
    np.testing.assert_allclose(np.concatenate([still, also]), 0, atol=1e-12)
    assert all(np.max(np.abs(x)) > 0.1 for x in flat[:2])
    for one, other in zip(*map(jax.tree.leaves, (flat, space)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_four_bar_has_no_redundant_rows():
    flat, space = linkage(PLANE), linkage()
    of = mbd.reports.mobility(flat)
    assert (of.freedoms, of.velocities, of.rows, of.rank) == (1, 9, 8, 8)
    assert of.redundant == () and of.indeterminate == ()
    assert mbd.reports.mobility(space).freedoms == 1
    assert mbd.reports.mobility(space).rows - mbd.reports.mobility(space).rank > 0


@pytest.mark.slow
def test_states_and_reports():
    """Places by joint coordinates, a closed loop, and energies, against the closed form."""
    flat, angle, rate = linkage(PLANE), 0.4, 2.0
    state = mbd.close_joints(flat, mbd.place_bodies(flat, {"crank": angle}, {"crank": rate}))

    @jax.jit
    def found(q, v):
        return (
            flat.pose(q, "slider").position,
            flat.twist(v, "slider").linear,
            flat.joint_coordinates(q[None], "crank"),
            mbd.reports.joint_rates(flat, q, v, "guide"),
            mbd.reports.kinetic_energies(flat, q, v)["slider"],
        )

    # The crank was given at 1 rad, where its coordinate is 0.
    a = 1.0 + angle
    lift = 0.2 * np.sin(a)
    reach = 0.2 * np.cos(a) + np.sqrt(0.25 - lift**2)
    speed = -0.2 * rate * np.sin(a) - lift * 0.2 * rate * np.cos(a) / np.sqrt(0.25 - lift**2)
    expected = placed(reach, 0.0), speed * TURN[:, 0], [[angle]], [speed], speed**2 / 2
    for one, other in zip(found(state.q, state.v), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


POINT = [0.1, 0.2, 0.3]
SENSORS = [
    identify.JointPosition("rod"),
    identify.JointRate("guide"),
    identify.BodyPoint("rod", POINT),
    identify.Gyroscope("rod"),
    identify.Accelerometer("rod", POINT),
    identify.JointForce("pin"),
    identify.JointForce("guide"),
]


def torque(t, q, v):
    del t, q, v
    return jnp.array([0.7])


@pytest.mark.slow
def test_sensors_are_those_of_space():
    """In a moving state. The frame of the rod lies outside of its centre of mass. Of forces and
    torques at joints only those of the plane: bearings carry the others."""

    def readings(plane):
        mechanism = linkage(plane)
        state = mechanism.state()

        @jax.jit
        def read(q, v):
            sample = identify.Sample(mechanism, torque, 0.0, q, v)
            return [jnp.atleast_1d(sensor(sample)) for sensor in SENSORS]

        return [np.asarray(x) for x in read(state.q, state.v)]

    across = np.eye(3) - np.outer(NORMAL, NORMAL)
    for sensor, flat, space in zip(SENSORS, readings(PLANE), readings(None), strict=True):
        if isinstance(sensor, identify.JointForce):
            flat, space = (np.append(across @ x[:3], NORMAL @ x[3:]) for x in (flat, space))
        assert np.max(np.abs(space)) > 1e-3 or sensor is SENSORS[0]
        np.testing.assert_allclose(flat, space, atol=1e-11 * max(np.max(np.abs(space)), 1.0))


FLOOR = mbd.Plane([0.0, -1.0, 0.0])
X, Y, Z = np.eye(3)
STILL, TILTED = (mbd.Pose(np.zeros(3), np.array(p)) for p in ([1.0, 0, 0, 0], [0.8, 0.6, 0, 0]))
ON = dict(frame_a=STILL, frame_b=STILL)


def flat(joint=None, **options):
    """A body in a plane, with a joint of a kind at its origin."""
    body = mbd.Body("body", mbd.Inertia(1.0, [0.1, 0.1, 0.1]), **options)
    joints = []
    if joint is not None:
        kind, place = joint
        joints.append(kind("joint", "ground", body, point=[0.0, 0.0, 0.0], **place))
    return mbd.Mechanism([body], joints, plane=FLOOR)


def tilted(kind, **options):
    """A joint one of whose frames is tilted about the x axis."""
    joint = kind("joint", "ground", "body", **options)
    body = mbd.Body("body", mbd.Inertia(1.0, [0.1, 0.1, 0.1]))
    return mbd.Mechanism([body], [joint], plane=FLOOR)


@refusals(
    ("axis-in-the-plane", '"joint" must have its axis along the normal',
     lambda: flat((mbd.Revolute, dict(axis=X)))),
    ("axis-oblique", "45 degrees off the normal",
     lambda: flat((mbd.Revolute, dict(axis=(Y + Z) / np.sqrt(2))))),
    ("slide-along-the-normal", "`Fixed` holds", lambda: flat((mbd.Prismatic, dict(axis=Y)))),
    ("cross", "Use `Revolute`", lambda: flat((mbd.Universal, dict(axes=[X, Y])))),
    ("shafts", "Use `Revolute`", lambda: flat((mbd.ConstantVelocity, dict(axis=Y)))),
    ("frames-tilted", "aligns", lambda: tilted(mbd.Prismatic, frame_a=STILL, frame_b=TILTED)),
    ("other-joint-tilted", "does not fit the plane",
     lambda: tilted(mbd.Serial, axes=[Y], frame_a=TILTED, frame_b=STILL)),
    ("velocity-out", "leads out of the plane", lambda: flat(velocity=[0.0, 1.0, 0.0])),
    ("normal-not-unit", "unit vector", lambda: mbd.Plane([0.0, 2.0, 0.0])),
    ("axes-not-normal", "right angles", lambda: mbd.Plane([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])),
    ("normal-traced", "known, and not traced",
     lambda: jax.eval_shape(lambda n: mbd.Plane(n).axes, Y)),
    ("orientation-traced", "traced",
     lambda: jax.eval_shape(lambda p: flat((mbd.Cylindrical, dict(axis=Y)), orientation=p).state(),
                            np.eye(4)[0])),
)  # fmt: skip
def test_refused(words, call):
    check_refused(call, words)


def things(plane):
    """A ball and a box are thrown onto a slope."""
    ball = mbd.Body(
        "ball", mbd.Inertia.sphere(radius=0.1, mass=1.0), position=[0.0, 0.0, 0.15],
        velocity=[1.0, 0.0, 0.0],
    )  # fmt: skip
    sizes = [0.2, 0.2, 0.1]
    inertia = mbd.Inertia.box(size=sizes, mass=1.0)
    box = mbd.Body("box", inertia, position=[1.0, 0.0, 0.2], velocity=[0.5, 0.0, 0.0])
    slope = mbd.Pose(np.zeros(3), np.array([np.cos(0.05), 0.0, np.sin(0.05), 0.0]))
    on = dict(frame_a=slope, friction=0.3)
    floor, more = mbd.HalfSpace(), dict(rolling=1e-3, torsional=1e-2)
    contacts = [
        mbd.Contact("ball", "ground", ball, floor, mbd.Sphere(0.1), **on, **more),
        mbd.Contact("box", "ground", box, floor, mbd.Box(sizes), **on),
    ]
    return mbd.Mechanism([ball, box], contacts=contacts, plane=plane)


def test_contact_rows_are_those_of_space():
    """Gaps and relative velocities, of which those along the surface have other axes."""
    flat, space = things(FLOOR), things(None)
    rng, q = np.random.default_rng(3), np.asarray(flat.state().q)

    @jax.jit
    def rows(q, v):
        Q, V = flat.pose_table(q).ravel(), flat.tables.twists(v).ravel()
        pairs = (flat.contact_rows(0.0, q), v), (space.contact_rows(0.0, Q), V)
        return [(rows.gap, rows.J.rows(v) + rows.drift) for rows, v in pairs]

    q = q + 0.1 * rng.normal(size=6)
    (gap, rates), (expected, RATES) = jax.device_get(rows(q, rng.normal(size=6)))
    np.testing.assert_allclose(gap, expected, atol=1e-14)
    np.testing.assert_allclose(rates[:, 0], RATES[:, 0], atol=1e-14)
    sizes = (np.linalg.norm(x[:, 1:], axis=1) for x in (rates, RATES))
    np.testing.assert_allclose(*sizes, atol=1e-14)


def follow(t):
    half = jnp.stack([jnp.cos(t), 0 * t, jnp.sin(t), 0 * t])
    return mbd.Pose(jnp.stack([t, 0 * t, t * t]), half)


OTHERS = [
    (mbd.RollingDisc, dict(points=(0 * Z, 0.3 * Z), radius=0.3, axes=(Z, Y)), 2),
    (mbd.Serial, dict(slides=[X], axes=[Y], **ON), 1),
    (mbd.Serial, dict(slides=[X, Z], axes=[Y], **ON), 0),
    (mbd.PrescribedPose, dict(motion=follow, **ON), 3),
]


@pytest.mark.parametrize(
    "kind, options, rows",
    helpers.slow_unless(lambda kind, *_: kind is mbd.RollingDisc, OTHERS),
)
def test_joints_of_several_rows(kind, options, rows):
    """Of other joints the rows that act in the plane are found by their derivatives."""
    body = mbd.Body("body", mbd.Inertia(1.0, [0.1] * 3), position=[0.0, 0.0, 0.3])
    of = mbd.Mechanism([body], [kind("j", "ground", body, **options)], plane=FLOOR)
    assert of.row_count == rows
    if rows:
        state = of.state()
        J = jax.jit(lambda q, v: dense(of.linearised(0.1, q, v).J))(state.q, state.v)
        assert np.linalg.matrix_rank(np.asarray(J)) == rows
