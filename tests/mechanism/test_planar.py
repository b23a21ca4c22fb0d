"""Planar mechanisms against the same ones in space, and against closed forms."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planar_cases import NORMAL, PLANE, TURN, linkage, motion, placed

import jaxmbd as mbd
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
        (mbd.Fixed, {"orientation": jnp.array([0.5, -0.5, 0.5, 0.5])}),
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
    q = jnp.asarray(np.asarray(start.q) + 0.3 * random.standard_normal(start.q.size))
    return flat, space, q, jnp.asarray(random.standard_normal(start.v.size))


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
    Q = flat.pose_table(q).ravel()
    V = jnp.asarray(E @ v)

    @jax.jit
    def jacobians(q, Q):
        v, V = jnp.zeros(flat.coordinates.nv), jnp.zeros(space.coordinates.nv)
        return dense(flat.linearised(0.0, q, v).J), dense(space.linearised(0.0, Q, V).J)

    J, S = map(np.asarray, jacobians(q, Q))
    S = S @ E
    np.testing.assert_allclose(flat.tables.twists(v).ravel(), V, atol=1e-14)
    rank = lambda *x: np.linalg.matrix_rank(np.concatenate(x), tol=1e-10)  # noqa: E731
    assert len(J) == 21
    for joint in flat.joints:
        own, other = J[flat.rows(joint.name)], S[space.rows(joint.name)]
        assert len(own) == rank(own) == rank(other) == rank(own, other), joint.name


def test_free_motion_is_that_of_space(anyhow):
    """M, forces and displacements of bodies with any inertia."""
    flat, space, q, v = anyhow
    E = planar_velocities(flat)
    dp = jnp.asarray(np.random.default_rng(2).standard_normal(v.size))

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


X = jnp.array([0.2, 0.5, 30.0, 1.0, 3.0])


def assert_alike(runs):
    """The two results agree to ten digits of the largest number of each array."""
    for one, other in zip(*map(jax.tree.leaves, runs), strict=True):
        scale = np.abs(np.asarray(one)).max()
        np.testing.assert_allclose(one, other, atol=1e-10 * max(scale, 1.0))


def test_moves_as_in_space():
    """A slider-crank with springs, damper, friction and motor, in a plane that lies anyhow."""
    runs = [
        jax.jit(lambda x, plane=plane: motion(x, plane, mbd.VelocityImpulse()))(X)
        for plane in (None, PLANE)
    ]
    assert_alike(runs)


@pytest.mark.slow
def test_derivatives_are_those_of_space():
    """With respect to lengths, stiffness, mass and start."""
    loss = lambda x, plane: motion(x, plane, mbd.VelocityImpulse())[0]  # noqa: E731
    found = [
        jax.jit(jax.value_and_grad(loss), static_argnums=1)(X, plane) for plane in (None, PLANE)
    ]
    assert_alike(found)


def test_double_pendulum():
    """Accelerations against Lagrange's equations of two thin rods, one end of each at a hinge."""
    m, L, g = (1.3, 0.7), (0.5, 0.8), 9.81
    a, da = np.array([0.4, -0.9]), np.array([1.5, -2.0])
    bodies, joints, end, before = [], [], np.zeros(3), "ground"
    velocity = np.zeros(3)
    for i in range(2):
        along = np.array([np.sin(a[i]), 0.0, -np.cos(a[i])])
        turning = L[i] * da[i] * np.array([np.cos(a[i]), 0.0, np.sin(a[i])])
        moment = m[i] * L[i] ** 2 / 12
        body = mbd.Body(
            f"rod {i}",
            mbd.Inertia(m[i], [moment, moment, moment]),
            position=end + L[i] / 2 * along,
            velocity=velocity + turning / 2,
            angular_velocity=[0.0, -da[i], 0.0],
        )
        joints.append(mbd.Revolute(f"hinge {i}", before, body, point=end, axis=[0.0, 1.0, 0.0]))
        bodies.append(body)
        end, velocity, before = end + L[i] * along, velocity + turning, body
    of = mbd.Mechanism(bodies, joints, plane=mbd.Plane([0.0, -1.0, 0.0]))
    c, s = np.cos(a[0] - a[1]), np.sin(a[0] - a[1])
    M = np.array(
        [
            [(m[0] / 3 + m[1]) * L[0] ** 2, m[1] * L[0] * L[1] * c / 2],
            [m[1] * L[0] * L[1] * c / 2, m[1] * L[1] ** 2 / 3],
        ]
    )
    f = np.array(
        [
            -m[1] * L[0] * L[1] * s / 2 * da[1] ** 2 - (m[0] / 2 + m[1]) * g * L[0] * np.sin(a[0]),
            m[1] * L[0] * L[1] * s / 2 * da[0] ** 2 - m[1] * g * L[1] / 2 * np.sin(a[1]),
        ]
    )
    state = of.state()
    rows = of.linearised(0.0, state.q, state.v)
    J, free = np.asarray(dense(rows.J)), np.asarray(of.force(0.0, state.q, state.v, None))
    KKT = np.block([[np.asarray(of.mass_matrix(state.q)), J.T], [J, np.zeros((4, 4))]])
    found = np.linalg.solve(KKT, np.concatenate([free, rows.gamma]))
    np.testing.assert_allclose(J @ np.asarray(state.v), 0.0, atol=1e-14)
    np.testing.assert_allclose(found[4:6], np.linalg.solve(M, f), rtol=1e-12)


def test_four_bar_has_no_redundant_rows():
    flat, space = linkage(PLANE), linkage()
    of = mbd.reports.mobility(flat)
    assert (of.freedoms, of.velocities, of.rows, of.rank) == (1, 9, 8, 8)
    assert of.redundant == () and of.indeterminate == ()
    assert mbd.reports.mobility(space).freedoms == 1
    assert mbd.reports.mobility(space).rows - mbd.reports.mobility(space).rank > 0


def test_states_and_reports():
    """Places by joint coordinates, a closed loop, and energies, against the closed form."""
    flat, angle, rate = linkage(PLANE), 0.4, 2.0
    state = mbd.close_joints(flat, mbd.place_bodies(flat, {"crank": angle}, {"crank": rate}))
    q, v = state.q, state.v
    # The crank was given at 1 rad, where its coordinate is 0.
    a = 1.0 + angle
    lift = 0.2 * np.sin(a)
    reach = 0.2 * np.cos(a) + np.sqrt(0.25 - lift**2)
    np.testing.assert_allclose(flat.pose(q, "slider").position, placed(reach, 0.0), atol=1e-9)
    speed = -0.2 * rate * np.sin(a) - lift * 0.2 * rate * np.cos(a) / np.sqrt(0.25 - lift**2)
    np.testing.assert_allclose(flat.twist(v, "slider").linear, speed * TURN[:, 0], atol=1e-8)
    np.testing.assert_allclose(flat.joint_coordinates(q[None], "crank"), [[angle]], atol=1e-9)
    rates = mbd.reports.joint_rates(flat, q, v, "guide")
    np.testing.assert_allclose(rates, [speed], atol=1e-8)
    energy = mbd.reports.kinetic_energies(flat, q, v)
    np.testing.assert_allclose(energy["slider"], speed**2 / 2, rtol=1e-7)


def test_turns_are_counted():
    """The angle of a body grows beyond a turn; its pose does not."""
    flat = linkage(PLANE)
    q = flat.state().q
    entry = flat.indices("crank").orientation
    turned = q.at[entry].add(4 * jnp.pi)
    values = jax.jit(lambda q: (flat.pose_table(q), flat.constraint(q, 0.0)))
    for found, expected in zip(values(turned), values(q), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-14)


def test_refused():
    body = mbd.Body("body", mbd.Inertia(1.0, [0.1, 0.1, 0.1]))

    def build(joint=None, body=body):
        joints = [] if joint is None else [joint]
        return mbd.Mechanism([body], joints, plane=mbd.Plane([0.0, -1.0, 0.0]))

    def at(kind, **place):
        return kind("joint", "ground", body, point=[0.0, 0.0, 0.0], **place)

    x, y, z = np.eye(3)
    oblique = (y + z) / np.sqrt(2)
    for joint, words in (
        (at(mbd.Revolute, axis=x), '"joint" must have its axis along the normal'),
        (at(mbd.Revolute, axis=oblique), "45 degrees off the normal"),
        (at(mbd.Prismatic, axis=y), "`Fixed` holds"),
        (at(mbd.Universal, axes=[x, y]), "Use `Revolute`"),
        (at(mbd.ConstantVelocity, axis=y), "Use `Revolute`"),
        (at(mbd.Prismatic, axes=[x, z]), "aligns"),
    ):
        if "aligns" in words:
            joint = eqx.tree_at(lambda j: j.frame_b, joint, turned_out(joint.frame_b))
        with pytest.raises(ValueError, match=words.replace("(", r"\(")):
            build(joint)
    moving = mbd.Body("body", body.inertia, velocity=[0.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="leads out of the plane"):
        build(body=moving)
    with pytest.raises(ValueError, match="unit vector"):
        mbd.Plane([0.0, 2.0, 0.0])
    with pytest.raises(ValueError, match="right angles"):
        mbd.Plane([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="known, and not traced"):
        jax.jit(lambda n: mbd.Plane(n).axes)(jnp.array([0.0, 1.0, 0.0]))

    def traced(p):
        free = mbd.Body("body", body.inertia, orientation=p)
        return build(mbd.Cylindrical("joint", "ground", free, point=[0.0] * 3, axis=y), free)

    with pytest.raises(ValueError, match="traced"):
        jax.eval_shape(traced, jnp.array([1.0, 0.0, 0.0, 0.0]))


def turned_out(frame):
    """A frame tilted about its x axis."""
    p = mbd.rotations.quaternion_product(frame.orientation, jnp.array([0.8, 0.6, 0.0, 0.0]))
    return mbd.Pose(frame.position, p)


def things(plane):
    """A ball and a box are thrown onto a slope."""
    ball = mbd.Body(
        "ball", mbd.Inertia.sphere(radius=0.1, mass=1.0), position=[0.0, 0.0, 0.15],
        velocity=[1.0, 0.0, 0.0],
    )  # fmt: skip
    sizes = [0.2, 0.2, 0.1]
    inertia = mbd.Inertia.box(size=sizes, mass=1.0)
    box = mbd.Body("box", inertia, position=[1.0, 0.0, 0.2], velocity=[0.5, 0.0, 0.0])
    slope = mbd.Pose(jnp.zeros(3), mbd.rotations.quaternion_exp(jnp.array([0.0, 0.1, 0.0])))
    on = dict(frame_a=slope, friction=0.3)
    floor, more = mbd.HalfSpace(), dict(rolling=1e-3, torsional=1e-2)
    contacts = [
        mbd.Contact("ball", "ground", ball, floor, mbd.Sphere(0.1), **on, **more),
        mbd.Contact("box", "ground", box, floor, mbd.Box(sizes), **on),
    ]
    return mbd.Mechanism([ball, box], contacts=contacts, plane=plane)


def thrown(plane):
    of = things(plane)
    sol = mbd.simulate(
        of, mbd.ContactImpulse(), of.state(), dt=2e-3, num_steps=150, throw=False
    )  # fmt: skip
    force = mbd.reports.contact_forces(of, sol.q, sol.contact_force)
    ends = [of.pose(sol.q[-1], name) for name in ("ball", "box")]
    return jnp.sum(ends[0].position + 2 * ends[1].position), (ends, jnp.sum(force[-1], axis=0))


@pytest.mark.slow
def test_contacts_are_those_of_space():
    """Motion and forces of a ball and a box with sliding and rolling friction. The solver of
    contacts leaves 1e-9 of the forces."""
    run = jax.jit(thrown, static_argnums=0)
    one, other = (run(plane) for plane in (None, mbd.Plane([0.0, -1.0, 0.0])))
    np.testing.assert_allclose(one[0], other[0], atol=1e-9)
    for a, b in zip(*map(jax.tree.leaves, (one[1], other[1])), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_ball_begins_to_roll():
    """It slides with friction, and then rolls with 5/7 of its speed."""
    inertia = mbd.Inertia.sphere(radius=0.1, mass=2.0)
    ball = mbd.Body("ball", inertia, position=[0.0, 0.0, 0.1], velocity=[2.0, 0.0, 0.0])
    floor = mbd.Contact("floor", "ground", ball, mbd.HalfSpace(), mbd.Sphere(0.1), friction=0.5)
    of = mbd.Mechanism([ball], contacts=[floor], plane=mbd.Plane([0.0, -1.0, 0.0]))
    sol = mbd.simulate(
        of, mbd.ContactImpulse(), of.state(), dt=2e-3, t1=0.2,
        saveat=diffrax.SaveAt(ts=[0.1, 0.2]),
    )  # fmt: skip
    assert sol.contact_force.shape == (2, 1, 2)
    moving = of.twist(sol.v, "ball")
    np.testing.assert_allclose(moving.linear[:, 0], [2 - 0.5 * 9.81 * 0.1, 10 / 7], rtol=1e-7)
    np.testing.assert_allclose(moving.angular[1, 1], 100 / 7, rtol=1e-7)
    force = mbd.reports.contact_forces(of, sol.q, sol.contact_force)
    np.testing.assert_allclose(force[0, 0], [-9.81, 0.0, 19.62], atol=1e-6)
    states = mbd.reports.contact_states(of, sol).state
    assert states[:, 0].tolist() == [mbd.reports.ContactState.SLIP, mbd.reports.ContactState.STICK]


def multipliers(of):
    """Those of least norm at the start, from the whole equations of motion."""

    @jax.jit
    def equations(q, v):
        rows = of.linearised(0.0, q, v)
        f = of.force(0.0, q, v, jnp.zeros(1))
        return of.mass_matrix(q), dense(rows.J), f, rows.gamma

    state = of.state()
    M, J, f, gamma = map(np.asarray, equations(state.q, state.v))
    free = np.linalg.solve(M, f)
    lam = np.linalg.lstsq(J @ np.linalg.solve(M, J.T), gamma - J @ free, rcond=1e-10)[0]
    return state, jnp.asarray(lam)


@pytest.mark.slow
def test_reactions():
    """Forces and torques in the plane are those of space, on bodies and on the ground."""
    found = {}
    for plane in (None, PLANE):
        of = linkage(plane)
        state, lam = multipliers(of)
        loads = [
            mbd.reports.reactions(of, 0.0, state.q, lam, name, on=on, point=point)
            for name, on, point in (
                ("pin", "rod", placed(0.1, 0.2)),
                ("guide", "ground", None),
                ("crank", "ground", None),
            )
        ]
        E = PLANE.axes
        found[plane] = [(E[:2] @ load.force, E[2] @ load.torque) for load in loads]
    for one, other in zip(*map(jax.tree.leaves, found.values()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    unique = mbd.reports.unique_reactions(of, state, "pin")
    assert np.all(unique.force) and np.all(unique.torque)


@pytest.mark.slow
def test_joints_of_several_rows():
    """Of other joints the rows that act in the plane are found by their derivatives."""
    body = mbd.Body("body", mbd.Inertia(1.0, [0.1] * 3), position=[0.0, 0.0, 0.3])
    still = mbd.Pose(jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0]))
    tilted = mbd.Pose(jnp.zeros(3), jnp.array([0.8, 0.6, 0.0, 0.0]))
    on = dict(frame_a=still, frame_b=still)
    slides, axes = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0]]

    def follow(t):
        half = jnp.stack([jnp.cos(t), 0 * t, jnp.sin(t), 0 * t])
        return mbd.Pose(jnp.stack([t, 0 * t, t * t]), half)

    disc = mbd.RollingDisc(
        "j", "ground", body, points=([0.0] * 3, [0.0, 0.0, 0.3]), radius=0.3,
        axes=([0.0, 0.0, 1.0], [0.0, 1.0, 0.0]),
    )  # fmt: skip
    for joint, rows in (
        (mbd.Serial("j", "ground", body, slides=slides[:1], axes=axes, **on), 1),
        (mbd.Serial("j", "ground", body, slides=slides, axes=axes, **on), 0),
        (mbd.PrescribedPose("j", "ground", body, motion=follow, **on), 3),
        (disc, 2),
    ):
        of = mbd.Mechanism([body], [joint], plane=mbd.Plane([0.0, -1.0, 0.0]))
        assert of.row_count == rows, joint
        if rows:
            state = of.state()
            J = jax.jit(lambda q, v, of=of: dense(of.linearised(0.1, q, v).J))(state.q, state.v)
            assert np.linalg.matrix_rank(J) == rows
    with pytest.raises(ValueError, match="does not fit the plane"):
        wrong = mbd.Serial("j", "ground", body, axes=axes, frame_a=tilted, frame_b=still)
        mbd.Mechanism([body], [wrong], plane=mbd.Plane([0.0, -1.0, 0.0]))
