"""Mechanisms of bodies, joints and forces against minimal coordinates, closed forms and published
motions."""

import json

import diffrax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmbd as mbd
from jaxmbd.mechanism import frame_poses, frame_twists

TIME = jnp.zeros(())
BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
Z = [0.0, 0.0, 1.0]
QUICK = dict(scheme=mbd.RK4(), throw=False)


def simulate(mechanism, solver=None, **options):
    method = mbd.UdwadiaKalaba() if solver is None else mbd.UdwadiaKalaba(solver=solver)
    return mbd.simulate(mechanism, method, mechanism.state(), **QUICK, **options)


def heavy_top():
    """Bruls, Cardona and Arnold (2012), on a ball joint at the origin; the frame of the body lies
    in its centre of mass."""
    omega = np.array([0.0, 150.0, -4.61538])
    top = mbd.Body(
        "top",
        mbd.Inertia(15.0, [0.234375, 0.46875, 0.234375]),
        position=[0, 1, 0],
        velocity=np.cross(omega, [0, 1, 0]),
        angular_velocity=omega,
    )
    return mbd.Mechanism([top], [mbd.Spherical("ball", "ground", top, point=[0, 0, 0])])


@pytest.mark.parametrize("t", [0.2, pytest.param(2.0, marks=pytest.mark.slow)])
def test_heavy_top(shared, t):
    reference = json.loads((shared / "references" / "heavy_top.json").read_text())["reference"]
    (expected,) = [point for point in reference if point["t"] == t]
    mechanism = heavy_top()
    sol = simulate(mechanism, t1=t, dt=1e-4)
    pose, twist = mechanism.pose(sol.q[-1], "top"), mechanism.twist(sol.v[-1], "top")
    np.testing.assert_allclose(pose.position, expected["x_com"], atol=1e-7)
    np.testing.assert_allclose(twist.linear, expected["v_com"], atol=1e-6)
    R = mbd.rotations.quaternion_to_matrix(pose.orientation)
    np.testing.assert_allclose(R, expected["R"], atol=1e-6)
    # The force of the joint on the body, in world axes: the rows of a ball joint on the ground.
    np.testing.assert_allclose(sol.multipliers[-1], expected["reaction_on_body"], rtol=1e-5)
    assert sol.phi_norm[-1] < 1e-12


def slider_crank():
    """The slider-crank of Braun and Goldfarb from hinged bars: crank and rod of length 1, in the
    plane z = 0, driven by 20 N m against a damper of 5 N m s."""
    bar = mbd.Inertia(1.0, [1e-3, 1 / 12, 1 / 12])
    crank = mbd.Body("crank", bar, position=[0.5, 0, 0])
    rod = mbd.Body("rod", bar, position=[1.5, 0, 0])
    slider = mbd.Body("slider", mbd.Inertia(1.0, [1, 1, 1]), position=[2.0, 0, 0])
    joints = [
        mbd.Revolute("base", "ground", crank, point=[0, 0, 0], axis=Z),
        mbd.Revolute("knee", crank, rod, point=[1, 0, 0], axis=Z),
        mbd.Revolute("pin", rod, slider, point=[2, 0, 0], axis=Z),
        mbd.Prismatic("guide", "ground", slider, point=[2, 0, 0], axis=[1, 0, 0]),
    ]
    forces = [
        mbd.Motor("motor", "ground", crank, point=[0, 0, 0], axis=Z),
        mbd.TorsionSpring("damper", "ground", crank, point=[0, 0, 0], axis=Z, stiffness=0.0,
                          damping=5.0),
    ]  # fmt: skip
    return mbd.Mechanism([crank, rod, slider], joints, forces, gravity=[0, -9.81, 0])


def slider_crank_angle(t):
    """From Lagrange's equation in the crank angle."""

    def mass(th):
        s2, c2 = np.sin(th) ** 2, np.cos(th) ** 2
        return 1 / 3 + (2.25 * s2 + 0.25 * c2) + 1 / 12 + 4 * s2

    def field(_, y):
        th, w = y
        slope = 2 * np.sin(th) * np.cos(th) * (2.25 - 0.25 + 4)
        return [w, (20 - 5 * w - 9.81 * np.cos(th) - slope * w * w / 2) / mass(th)]

    return solve_ivp(field, (0, t[-1]), [0.0, 0.0], t_eval=t, rtol=1e-12, atol=1e-12).y[0]


@pytest.mark.slow
def test_slider_crank_through_its_singular_pose():
    """20 rows for 18 velocities with one freedom, and one more where crank and rod stand upright:
    it passes there and keeps its branch."""
    times = np.linspace(0.25, 2.0, 8)
    mechanism = slider_crank()
    sol = simulate(
        mechanism,
        # `Proximal`, the default for so many rows, softens the row that vanishes: 2e-5 then.
        mbd.Pseudoinverse(),
        t1=2.0,
        dt=1e-3,
        control=lambda t, q, v: jnp.array([20.0]),
        saveat=diffrax.SaveAt(ts=times),
    )
    expected = slider_crank_angle(times)
    assert expected[-1] > np.pi / 2
    angles = mechanism.joint_coordinates(sol.q, "base")[:, 0]
    np.testing.assert_allclose(np.exp(1j * np.asarray(angles)), np.exp(1j * expected), atol=1e-7)
    slider = mechanism.pose(sol.q, "slider").position
    np.testing.assert_allclose(slider[:, 0], 2 * np.cos(expected), atol=1e-7)
    np.testing.assert_allclose(slider[:, 1:], 0, atol=1e-12)
    assert np.max(sol.phi_norm) < 1e-10


def parallelogram(m_crank, m_coupler, gravity, radius, start):
    """Two cranks of length `radius` at a distance of 1 hold a coupler that stays level."""
    down = np.array([np.sin(start), -np.cos(start), 0.0])
    crank = mbd.Inertia.box(size=[0.1, 0.1, 0.1], mass=m_crank)
    cranks = [
        mbd.Body(name, crank, position=[x, 0, 0] + radius * down / 2)
        for name, x in (("left", 0.0), ("right", 1.0))
    ]
    level = [0.5, 0, 0] + radius * down
    coupler = mbd.Body("coupler", mbd.Inertia.box(size=[1, 0.1, 0.1], mass=m_coupler),
                       position=level)  # fmt: skip
    left, right = cranks
    joints = [
        mbd.Revolute("A", "ground", left, point=[0, 0, 0], axis=Z),
        mbd.Revolute("B", left, coupler, point=radius * down, axis=Z),
        mbd.Revolute("C", coupler, right, point=[1, 0, 0] + radius * down, axis=Z),
        mbd.Revolute("D", right, "ground", point=[1, 0, 0], axis=Z),
    ]
    return mbd.Mechanism([left, coupler, right], joints, gravity=gravity * jnp.array([0.0, -1, 0]))


def parallelogram_angle(m_crank, m_coupler, gravity, radius, start, t):
    """(2 I + m r^2) th'' = -(m_crank + m_coupler) g r sin(th), with the two cranks' I about their
    pivots."""
    pivot = m_crank * (0.02 / 12 + radius**2 / 4)
    w2 = (m_crank + m_coupler) * gravity * radius / (2 * pivot + m_coupler * radius**2)
    field = lambda _, y: [y[1], -w2 * np.sin(y[0])]  # noqa: E731
    return solve_ivp(field, (0, t), [start, 0.0], rtol=1e-12, atol=1e-12).y[0, -1]


START, RADIUS, DURATION = 1.0, 0.4, 0.5


@jax.jit
def swung(parameters):
    """Angle of the left crank after a while, and what the simulation says of itself."""
    mechanism = parallelogram(*parameters, RADIUS, START)
    sol = simulate(mechanism, t1=DURATION, dt=2e-3)
    coordinate = mechanism.joint_coordinates(sol.q[-1], "A")[0]
    return START + coordinate, (sol.phi_norm[-1], sol.result == mbd.RESULTS.successful)


PARAMETERS = np.array([0.7, 1.9, 9.81])


def test_redundant_four_bar():
    """20 rows of rank 17 on 18 velocities: the motion of the one freedom."""
    angle, (phi, successful) = swung(jnp.asarray(PARAMETERS))
    assert successful and phi < 1e-10
    expected = parallelogram_angle(*PARAMETERS, RADIUS, START, DURATION)
    np.testing.assert_allclose(angle, expected, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacrev, jax.jacfwd], ids=["reverse", "forward"])
def test_derivatives_of_the_redundant_four_bar(mode):
    """With respect to masses and gravity, against differences of the one freedom."""
    gradient = jax.jit(mode(lambda p: swung(p)[0]))(jnp.asarray(PARAMETERS))
    for i, step in enumerate(1e-3 * PARAMETERS):
        at = PARAMETERS + step * np.outer([-2, -1, 1, 2], np.arange(3) == i)
        shifted = [parallelogram_angle(*p, RADIUS, START, DURATION) for p in at]
        difference = np.array([1, -8, 8, -1]) @ shifted / (12 * step)
        np.testing.assert_allclose(gradient[i], difference, rtol=1e-6)


def test_rank_of_the_four_bar():
    mechanism = parallelogram(0.7, 1.9, jnp.asarray(9.81), RADIUS, START)
    state = mechanism.state()
    J = jax.jit(lambda q, v: mbd.evaluate(mechanism, None, TIME, q, v).rows.J)(state.q, state.v)
    assert J.shape == (20, 18) and np.linalg.matrix_rank(J, tol=1e-9) == 17


@pytest.mark.parametrize(
    "tensor, definite",
    [
        pytest.param(
            [[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 2.0]], True, marks=pytest.mark.slow
        ),
        # Here all that is on the diagonal is positive, and there in the inverse.
        ([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 3.0]], False),
        ([[-1.0, 2.0, 0.0], [2.0, -1.0, 0.0], [0.0, 0.0, 3.0]], False),
    ],
)
def test_indefinite_inertia_under_jit(tensor, definite):
    """Numbers that are not known when the body is made are checked by the solver."""

    @jax.jit
    def result(tensor):
        body = mbd.Body("arm", mbd.Inertia(1.0, tensor), position=[0.5, 0, 0])
        hinge = mbd.Revolute("hinge", "ground", body, point=[0.0, 0, 0], axis=Z)
        return simulate(mbd.Mechanism([body], [hinge]), t1=2e-3, dt=1e-3).result

    expected = mbd.RESULTS.successful if definite else mbd.RESULTS.mass_matrix_indefinite
    assert result(jnp.asarray(tensor)) == expected


def test_order_and_names_do_not_matter():
    """Joints of one kind are evaluated together: their rows still come in the order given."""
    mechanism = parallelogram(0.7, 1.9, jnp.asarray(9.81), RADIUS, START)
    sliding = mbd.Prismatic("E", "ground", mechanism.bodies[1], point=[0, 0, 0], axis=[1, 0, 0])
    joints = (mechanism.joints[0], sliding, *mechanism.joints[1:])
    mixed = mbd.Mechanism(mechanism.bodies, joints)
    q = mixed.state().q + 0.01 * jnp.cos(jnp.arange(21.0))
    each = [mbd.Mechanism(mechanism.bodies, [joint]) for joint in joints]
    rows, *apart = jax.jit(lambda q: [m.constraint(q, TIME) for m in (mixed, *each)])(q)
    for joint, alone in zip(joints, apart, strict=True):
        np.testing.assert_allclose(rows[mixed.rows(joint.name)], alone, atol=1e-15)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda b: mbd.Mechanism([]), "needs at least one body"),
        (lambda b: mbd.Mechanism([b, b]), r"Names of bodies must differ, but \['b'\]"),
        (lambda b: mbd.Mechanism([b], gravity=[0, 0]), "`gravity`.* must have shape"),
        (
            lambda b: mbd.Mechanism(
                [b], [mbd.Spherical("ball", b, mbd.Body("c", BOX), point=[0, 0, 0])]
            ),
            'Spherical "ball" connects the body "c", which is not among',
        ),
        (lambda b: mbd.Mechanism([b]).pose(jnp.zeros(7), "x"), 'There is no body "x"'),
        (
            lambda b: mbd.Mechanism([b]).joint_coordinates(jnp.zeros(7), "x"),
            'There is no joint "x"',
        ),
        (
            lambda b: simulate(
                mbd.Mechanism([b], (), [mbd.Motor("m", "ground", b, point=[0, 0, 0], axis=Z)]),
                t1=0.1,
                dt=0.1,
            ),
            'Motor "m" needs a control',
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(mbd.Body("b", BOX))


def test_the_ground_by_name(getkey):
    mechanism = mbd.Mechanism([mbd.Body("a", BOX), mbd.Body("b", BOX, position=[1.0, 2.0, 3.0])])
    q, v = jr.normal(getkey(), (4, 2, 14)), jr.normal(getkey(), (4, 2, 12))
    pose, twist = mechanism.pose(q, "ground"), mechanism.twist(v, "ground")
    np.testing.assert_array_equal(pose.position, np.zeros((4, 2, 3)))
    np.testing.assert_array_equal(pose.orientation, np.tile([1.0, 0, 0, 0], (4, 2, 1)))
    np.testing.assert_array_equal(np.concatenate(twist), np.zeros((8, 2, 3)))
    np.testing.assert_array_equal(mechanism.pose(q, "b").position, q[..., 1:6:2])


def vectors(getkey, kind, lead):
    """A pose, a twist or a vector with leading axes."""
    if kind is mbd.Pose:
        p = jr.normal(getkey(), (*lead, 4))
        p = p / jnp.linalg.norm(p, axis=-1, keepdims=True)
        return mbd.Pose(jr.normal(getkey(), (*lead, 3)), p)
    if kind is mbd.Twist:
        return mbd.Twist(jr.normal(getkey(), (*lead, 3)), jr.normal(getkey(), (*lead, 3)))
    return jr.normal(getkey(), (*lead, kind))


METHODS = [
    *((mbd.Pose, name, 3) for name in ("point", "direction", "local_point", "local_direction")),
    *((mbd.Pose, name, mbd.Pose) for name in ("compose", "relative")),
    (mbd.Pose, "rate", mbd.Twist),
    *((mbd.Twist, name, 3) for name in ("at", "moved")),
    *((kind, "of", size) for kind, size in ((mbd.Pose, 7), (mbd.Twist, 6))),
]


def test_all_methods_of_poses_and_twists_are_listed():
    for kind in (mbd.Pose, mbd.Twist):
        public = {name for name in vars(kind) if not name.startswith("_")}
        listed = {name for owner, name, _ in METHODS if owner is kind}
        assert public - set(kind._fields) - {"identity", "axes"} == listed


def test_axes_of_a_pose(getkey):
    pose = vectors(getkey, mbd.Pose, (2, 3))
    for axis, unit in zip(pose.axes, np.eye(3), strict=True):
        np.testing.assert_allclose(axis, pose.direction(unit), atol=1e-15)


def test_poses_at_work_are_those_that_users_see(getkey):
    """Joints and forces get poses that keep their axes. They must agree with poses that have only
    a quaternion, rates included."""
    frame = vectors(getkey, mbd.Pose, ())
    bodies = [mbd.Body("a", BOX), mbd.Body("b", BOX)]
    joint = mbd.Revolute("hinge", *bodies, frame_a=frame, frame_b=frame)
    body, v = vectors(getkey, mbd.Pose, ()), jr.normal(getkey(), (6,))
    plain = body.compose(frame)
    pose, _ = frame_poses(joint, [jnp.concatenate(body)] * 2)
    twist, _ = frame_twists(joint, [jnp.concatenate(body)] * 2, [v, v])
    r = jr.normal(getkey(), (3,))
    for name in ("point", "direction", "local_point", "local_direction"):
        np.testing.assert_allclose(getattr(pose, name)(r), getattr(plain, name)(r), atol=1e-14)
    others = [
        (pose.relative(frame), plain.relative(frame)),
        (pose.compose(frame), plain.compose(frame)),
    ]
    for own, other in [(pose, plain), (pose.rate(twist), plain.rate(twist)), *others]:
        np.testing.assert_allclose(jnp.concatenate(own), jnp.concatenate(other), atol=1e-14)
    moved = jax.jvp(lambda p: jnp.stack(p.axes), (plain,), (plain.rate(twist),))[1]
    np.testing.assert_allclose(jnp.stack(pose.rate(twist).axes), moved, atol=1e-14)


@pytest.mark.parametrize("leads", [((3,), ()), ((), (3,)), ((4,), (4,)), ((2, 3), (3,))])
@pytest.mark.parametrize("kind, name, other", METHODS)
def test_poses_and_twists_take_leading_axes(getkey, kind, name, other, leads):
    own, its = (vectors(getkey, x, lead) for x, lead in zip((kind, other), leads, strict=True))
    method = getattr(kind, name)
    arguments = (its,) if name == "of" else (own, its)
    shape = np.broadcast_shapes(*(jax.tree.leaves(x)[0].shape[:-1] for x in arguments))
    found = method(*arguments)
    wide = jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, x.shape[-1])), arguments)
    for i in np.ndindex(shape):
        # Of one sample each method is what the dynamics use, and what the references confirm.
        expected = method(*jax.tree.map(lambda x, i=i: x[i], wide))
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert x.shape == (*shape, y.shape[0])
            np.testing.assert_allclose(x[i], y, atol=1e-14)


def test_energy_and_momentum_of_bodies_take_leading_axes(getkey):
    body = mbd.Body("b", BOX.moved([0.1, 0.2, 0.3]))
    pose, twist = vectors(getkey, mbd.Pose, (3,)), vectors(getkey, mbd.Twist, (3,))
    gravity = jnp.array([1.0, 2.0, 3.0])
    found = (
        body.kinetic_energy(pose, twist),
        body.potential_energy(pose, gravity),
        *body.momentum(pose, twist),
    )
    for i in range(3):
        one, moving = jax.tree.map(lambda x, i=i: x[i], (pose, twist))
        v = jnp.concatenate(moving)
        expected = (
            0.5 * v @ body.mass_matrix(one.orientation) @ v,
            -1.3 * gravity @ one.point(body.inertia.center),
            *body.momentum(one, moving),
        )
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x[i], y, rtol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.pose(jnp.zeros(7), "a"),
        lambda m: m.pose(jnp.zeros((3, 12)), "ground"),
        lambda m: m.twist(jnp.zeros(14), "a"),
        lambda m: m.joint_coordinates(jnp.zeros(5), "hinge"),
        lambda m: mbd.reports.violation(m, jnp.zeros(5)),
        lambda m: mbd.reports.singularity(m, jnp.zeros((2, 12))),
        lambda m: mbd.reports.reactions(m, 0.0, jnp.zeros(7), jnp.zeros(5), "hinge"),
        lambda m: mbd.plots.draw(m, jnp.zeros(7)),
        lambda m: m.constraint(jnp.zeros((2, 14)), 0.0),
        lambda m: mbd.reports.total_energy(m, jnp.zeros(7), jnp.zeros(6)),
        lambda m: mbd.reports.joint_rates(m, jnp.zeros(14), jnp.zeros(14), "hinge"),
    ],
)
def test_coordinates_of_another_size_are_refused(call):
    with pytest.raises(ValueError, match="for each of 2 bodies 7 in q and 6 in v"):
        call(hinged_pair())


def hinged_pair():
    bodies = [mbd.Body("a", BOX), mbd.Body("b", BOX)]
    return mbd.Mechanism(bodies, [mbd.Revolute("hinge", *bodies, point=[0, 0, 0], axis=Z)])


def test_multipliers_of_another_size_are_refused():
    mechanism = hinged_pair()
    with pytest.raises(ValueError, match="`multipliers`.* must have 5 entries along the last axis"):
        mbd.reports.reactions(mechanism, 0.0, mechanism.state().q, jnp.zeros(4), "hinge")


def test_where_the_numbers_of_a_body_stand(getkey):
    mechanism = mbd.Mechanism([mbd.Body(name, BOX) for name in ("a", "b", "c")])
    q, v = jr.normal(getkey(), (4, 21)), jr.normal(getkey(), (4, 18))
    names = ("a", "b", "c")
    motions = jax.jit(lambda q, v: [(mechanism.pose(q, n), mechanism.twist(v, n)) for n in names])
    q, v, motions = jax.device_get((q, v, motions(q, v)))
    for name, (pose, twist) in zip(names, motions, strict=True):
        found = mechanism.indices(name)
        np.testing.assert_array_equal(q[:, found.position], pose.position)
        np.testing.assert_array_equal(q[:, found.orientation], pose.orientation)
        np.testing.assert_array_equal(v[:, found.linear], twist.linear)
        np.testing.assert_array_equal(v[:, found.angular], twist.angular)
        np.testing.assert_array_equal(q[:, found.q], np.concatenate(pose, axis=-1))
        np.testing.assert_array_equal(v[:, found.v], np.concatenate(twist, axis=-1))
    with pytest.raises(ValueError, match='"ground" never moves, so it has no numbers'):
        mechanism.indices("ground")
    with pytest.raises(ValueError, match='There is no body "d"'):
        mechanism.indices("d")


def test_a_body_is_held_by_its_indices():
    """Two bodies 0.1 m apart that a ball joint wants together: the other one comes."""
    bodies = [mbd.Body("a", BOX), mbd.Body("b", BOX, position=[0.1, 0, 0])]
    ball = mbd.Spherical("ball", *bodies, points=([0, 0, 0], [0.1, 0, 0]))
    mechanism = mbd.Mechanism(bodies, [ball])
    state = mbd.assemble(mechanism, mechanism.state().q, fixed=mechanism.indices("a").v)
    np.testing.assert_array_equal(mechanism.pose(state.q, "a").position, [0, 0, 0])
    np.testing.assert_allclose(mechanism.pose(state.q, "b").position, [0, 0, 0], atol=1e-10)


def test_a_mechanism_is_printed_by_its_members():
    mechanism = hinged_pair()
    assert str(mechanism).splitlines() == [
        "Mechanism of 2 bodies, 1 joint: 14 coordinates, 12 velocities, 5 rows",
        "bodies:",
        '  "a", 1.3 kg',
        '  "b", 1.3 kg',
        "joints:",
        '  Revolute "hinge": a - b, 5 rows',
    ]
    # Masses are not known while tracing.
    texts = []

    @jax.jit
    def traced(mechanism):
        texts.append(str(mechanism))
        return mechanism.gravity

    traced(mechanism)
    assert texts[0].splitlines()[2] == '  "a"'
    chain = mbd.Mechanism([mbd.Body(str(i), BOX) for i in range(100)])
    assert str(chain).splitlines()[-1] == "  ... and 70 more"
