"""Planar mechanisms against the same ones in space, and against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import exp, product, rows_of, terms
from refusals import check_refused, refusals
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd._linalg import dense

# A plane that lies anyhow: from the axes of the drawing, x and z in the plane, to those of the
# world.
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
        mbd.Spring("spring", "ground", rod, points=[placed(0.3, 0.4), placed(*(a + b) / 2)],
                   stiffness=30.0, damping=0.4, rest_length=0.2),
        mbd.Motor("motor", "ground", crank, point=placed(*still), axis=NORMAL, rotor_inertia=0.01),
        mbd.forces.JointFriction(joints[1], viscous=0.02),
    ]  # fmt: skip
    gravity = -9.81 * TURN[:, 2] + 2.0 * NORMAL
    return mbd.Mechanism([crank, rod, slider], joints, forces, gravity=gravity, plane=plane)


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
        (mbd.joints.PointOnLine, {"axis": NORMAL}),
        (mbd.joints.PointOnLine, {"axis": y}),
        (mbd.joints.PointOnPlane, {"axis": across}),
        (mbd.joints.PointOnPlane, {"axis": NORMAL}),
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
    """Accelerations and reactions of a slider-crank with spring, damper, friction and motor, in a
    plane that lies anyhow, on bodies and on the ground; multipliers of least norm. In the plane no
    row is redundant."""
    found = []
    for plane in (None, PLANE):
        of = linkage(plane)
        state = of.state()
        M, J, f, gamma = map(np.asarray, terms(of, state, np.array([0.4])))
        assert len(J) - np.linalg.matrix_rank(J, tol=1e-9) == (0 if plane else 3)
        free, E = np.linalg.solve(M, f), np.asarray(PLANE.axes)
        A = J @ np.linalg.solve(M, J.T)
        lam = np.linalg.lstsq(A, gamma - J @ free, rcond=1e-10)[0]
        v = free + np.linalg.solve(M, J.T @ lam)

        @jax.jit
        def reports(q, lam, v, of=of):
            given = dict(on="rod", point=placed(0.1, 0.2))
            pin = mbd.reports.reactions(of, mbd.State(0.0, q, v), "pin", lam, **given)
            crank = mbd.reports.reactions(of, mbd.State(0.0, q, v), "crank", lam, on="ground")
            return of.tables.twists(v), pin, crank

        a, *loads = jax.device_get(reports(state.q, lam, v))
        loads = [(E[:2] @ x, E[2] @ y) for x, y in loads]
        found.append((J @ np.asarray(state.v), E[:2] @ a[:3], E[2] @ a[3:], loads))
    (still, *flat), (also, *space) = found
    np.testing.assert_allclose(np.concatenate([still, also]), 0, atol=1e-12)
    assert all(np.max(np.abs(x)) > 0.1 for x in flat[:2])
    for one, other in zip(*map(jax.tree.leaves, (flat, space)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.slow
def test_places_by_joint_coordinates_are_those_of_space():
    flat, space = linkage(PLANE), linkage()
    found, expected = (mbd.place_bodies(x, {"crank": 0.4}, {"crank": 2.0}) for x in (flat, space))

    @jax.jit
    def apart(q, v):
        between = space.difference(expected.q, flat.pose_table(q).ravel())
        return between, flat.tables.twists(v).ravel() - expected.v

    np.testing.assert_allclose(np.concatenate(apart(found.q, found.v)), 0, atol=1e-9)


FLOOR = mbd.Plane([0.0, -1.0, 0.0])
X, Y, Z = np.eye(3)
STILL, TILTED = (mbd.Pose(np.zeros(3), np.array(p)) for p in ([1.0, 0, 0, 0], [0.8, 0.6, 0, 0]))
AT = dict(point=[0.0, 0.0, 0.0])


def flat(kind=None, moving=(), **place):
    """A body in a plane, with a joint of a kind."""
    body = mbd.Body("body", mbd.Inertia(1.0, [0.1] * 3), **dict(moving))
    joints = [kind("joint", "ground", body, **place)] if kind else []
    return mbd.Mechanism([body], joints, plane=FLOOR)


@refusals(
    ("axis-in-the-plane", '"joint" must have its axis along the normal',
     lambda: flat(mbd.Revolute, **AT, axis=X)),
    ("slide-along-the-normal", "`Fixed` holds", lambda: flat(mbd.Prismatic, **AT, axis=Y)),
    ("cross", "Use `Revolute`", lambda: flat(mbd.Universal, **AT, axes=[X, Y])),
    ("frames-tilted", "aligns", lambda: flat(mbd.Prismatic, frame_a=STILL, frame_b=TILTED)),
    ("other-joint-tilted", "does not fit the plane",
     lambda: flat(mbd.joints.Serial, axes=[Y], frame_a=TILTED, frame_b=STILL)),
    ("velocity-out", "leads out of the plane", lambda: flat(moving=dict(velocity=Y))),
    ("normal-not-unit", "unit vector", lambda: mbd.Plane([0.0, 2.0, 0.0])),
    ("axes-not-normal", "right angles", lambda: mbd.Plane([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])),
    ("normal-traced", "known, and not traced",
     lambda: jax.eval_shape(lambda n: mbd.Plane(n).axes, Y)),
    ("orientation-traced", "traced",
     lambda: jax.eval_shape(lambda p: flat(mbd.Cylindrical, dict(orientation=p), **AT, axis=Y)
                            .state(), np.eye(4)[0])),
)  # fmt: skip
def test_refused(words, call):
    check_refused(call, words)


def test_contact_rows_are_those_of_space():
    """Gaps and relative velocities of a ball on a slope, those along the surface with other axes,
    and of rolling."""
    ball = mbd.Body("ball", mbd.Inertia.sphere(radius=0.1, mass=1.0), position=[0.0, 0.0, 0.15])
    slope = mbd.Pose(np.zeros(3), np.array([np.cos(0.05), 0.0, np.sin(0.05), 0.0]))
    contact = mbd.Contact("c", "ground", ball, mbd.HalfSpace(), mbd.Sphere(0.1), frame_a=slope,
                          friction=0.3, rolling=1e-3, torsional=1e-2)  # fmt: skip
    flat, space = (mbd.Mechanism([ball], contacts=[contact], plane=x) for x in (FLOOR, None))

    @jax.jit
    def rows(q, v):
        Q, V = flat.pose_table(q).ravel(), flat.tables.twists(v).ravel()
        pairs = (flat.contact_rows(0.0, q), v), (space.contact_rows(0.0, Q), V)
        return [(rows.gap, rows.J.rows(v) + rows.drift) for rows, v in pairs]

    q, v = np.random.default_rng(3).normal(size=(2, 3))
    (gap, rates), (expected, RATES) = jax.device_get(rows(q, v))
    np.testing.assert_allclose(gap, expected, atol=1e-14)
    np.testing.assert_allclose(rates[:, 0], RATES[:, 0], atol=1e-14)
    sizes = (np.linalg.norm(x[:, 1:], axis=1) for x in (rates, RATES))
    np.testing.assert_allclose(*sizes, atol=1e-14)


@pytest.mark.parametrize(
    "rows, kind, options",
    [
        (2, mbd.joints.RollingDisc, dict(points=(0 * Z, 0.3 * Z), radius=0.3, axes=(Z, Y))),
        pytest.param(1, mbd.joints.Serial, dict(frame_a=STILL, frame_b=STILL, slides=[X], axes=[Y]),
                     marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_joints_of_several_rows(rows, kind, options):
    """Of other joints the rows that act in the plane are found by their derivatives."""
    of = flat(kind, dict(position=[0.0, 0.0, 0.3]), **options)
    state = of.state()
    J = jax.jit(lambda q, v: dense(of.linearised(0.1, q, v).J))(state.q, state.v)
    assert of.row_count == np.linalg.matrix_rank(np.asarray(J)) == rows
