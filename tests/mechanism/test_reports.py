"""Reports on mechanisms: mobility, violations, reactions, energies, against closed forms and
published values."""

import json

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.mechanism.reports.rows import dense_jacobian

TIME = jnp.zeros(())
BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
X, Y, Z = np.eye(3)
G = 9.81


def multipliers(mechanism, state=None, solver=mbd.Cholesky()):
    """Of the constrained motion at one state."""
    state = mechanism.state() if state is None else state
    method = mbd.UdwadiaKalaba(solver=solver)
    point = mbd.evaluate(mechanism, None, TIME, state.q, state.v)
    return method.motion(point, method.factorise(point)).multipliers


# --- mobility -----------------------------------------------------------------------------------


def four_bar(crank=0.4, rocker=0.7, coupler=None):
    """Bars of revolutes about z, in the plane z = 0; a parallelogram if `coupler` is not given."""
    a, d = np.zeros(3), np.array([1.0, 0, 0])
    b = crank * np.array([np.cos(1.1), np.sin(1.1), 0])
    c = d + rocker * np.array([np.cos(1.4), np.sin(1.4), 0])
    bodies = [
        mbd.Body(name, BOX, position=(start + end) / 2)
        for name, start, end in (("crank", a, b), ("coupler", b, c), ("rocker", d, c))
    ]
    first, middle, last = bodies
    joints = [
        mbd.Revolute("A", "ground", first, point=a, axis=Z),
        mbd.Revolute("B", first, middle, point=b, axis=Z),
        mbd.Revolute("C", middle, last, point=c, axis=Z),
        mbd.Revolute("D", last, "ground", point=d, axis=Z),
    ]
    return mbd.Mechanism(bodies, joints)


def test_mobility_of_the_four_bar():
    """One freedom, and three rows too many: those across the plane, of which any one joint has
    three, its position along the axis and its two tilts."""
    found = mbd.mobility(four_bar())
    assert (found.freedoms, found.velocities, found.rows, found.rank) == (1, 18, 20, 17)
    assert found.grubler == -2
    assert found.redundant == (("D", 2), ("D", 3), ("D", 4))
    (dependency,) = found.dependencies
    assert dependency.count == 3 and list(dependency.parts) == ["A", "B", "C", "D"]
    np.testing.assert_allclose(sum(dependency.parts.values()), 3)
    assert found.indeterminate == ("A", "B", "C", "D")
    text = str(found)
    assert "1 freedom: 18 velocities - rank 17" in text and '"D" 2, 3, 4' in text
    # The motion that is left: all turn about z, at the rates of the plane four-bar.
    angular = found.motions.reshape(1, 6, 3)[0, 3:]
    np.testing.assert_allclose(angular[:2], 0, atol=1e-12)
    assert np.all(np.abs(angular[2]) > 1e-3)


def test_what_is_said_to_be_redundant_can_be_dropped():
    mechanism = four_bar()
    state = mechanism.state()
    J = np.asarray(dense_jacobian(mechanism, TIME, state.q, state.v))
    found = mbd.mobility(mechanism)
    dropped = [mechanism.rows(name)[row] for name, row in found.redundant]
    assert np.linalg.matrix_rank(np.delete(J, dropped, axis=0), tol=1e-9) == found.rank


def nearly_closed(offset=0.0, tilt=0.0):
    """The four-bar with the last hinge in the ground off along its axis, or tilted."""
    right = four_bar()
    *joints, last = right.joints
    place = np.array([1.0, 0, 0])
    axis = np.array([np.sin(tilt), 0.0, np.cos(tilt)])
    points, axes = (place, place + offset * Z), (Z, axis)
    last = mbd.Revolute("D", right.body("rocker"), "ground", points=points, axes=axes)
    return mbd.Mechanism(right.bodies, [*joints, last])


@pytest.mark.parametrize("offset, tilt", [(1e-4, 0.0), (0.0, 1e-4), (0.0, 1e-5), (1e-4, 1e-4)])
def test_mobility_of_a_loop_that_is_nearly_closed(offset, tilt):
    """Where it is tilted, a count at 1e-9 gives no freedom and one at 1e-3 one, as it moves in a
    simulation; what does not fit is the residual of the least squares |J dp + Phi|."""
    mechanism = nearly_closed(offset, tilt)
    found = mbd.mobility(mechanism)
    assert found.freedoms + found.doubtful == 1 and found.rank - found.doubtful == 17
    assert found.doubtful == (1 if tilt else 0)
    state = mechanism.state()
    J = np.asarray(dense_jacobian(mechanism, TIME, state.q, state.v))
    phi = np.asarray(mechanism.constraint(state.q, TIME))
    for rcond, groups in (
        (1e-9, found.dependencies),
        (1e-3, (*found.dependencies, *found.nearly)),
    ):
        dp = np.linalg.lstsq(J, -phi, rcond=rcond)[0]
        misfit = np.sqrt(sum(group.misfit**2 for group in groups))
        np.testing.assert_allclose(misfit, np.linalg.norm(J @ dp + phi), rtol=1e-5)
    text = str(found)
    assert "do not fit together by" in text
    assert ("in doubt" in text and "with 1 freedom\n" in text) == bool(tilt)
    if tilt:
        # The singular value is that of the tilt, to first order.
        (group,) = found.nearly
        assert group.count == 1 and list(group.parts) == ["A", "B", "C", "D"]
        other = mbd.mobility(nearly_closed(offset, tilt / 10))
        np.testing.assert_allclose(found.ratio / other.ratio, 10.0, rtol=1e-3)
    else:
        assert not found.nearly


def test_mobility_of_a_closed_loop_is_not_in_doubt():
    found = mbd.mobility(four_bar())
    assert found.doubtful == 0 and not found.nearly and found.ratio > 0.01
    assert all(group.misfit < 1e-14 for group in found.dependencies)
    assert "doubt" not in str(found) and "fit" not in str(found)


@pytest.mark.slow
def test_a_loop_that_is_nearly_closed_moves_as_mobility_says():
    """Not as long as rows contradict each other; and in the freedom that is in doubt, as the one
    that is closed does, if the solver is told that they are dependent."""
    angles = []
    for tilt in (0.0, 1e-5):
        mechanism = nearly_closed(tilt=tilt)
        (v,) = mbd.mobility(mechanism, tolerance=1e-3).motions
        v = 3.0 * v / v[mechanism.indices("crank").angular[2]]  # the crank at 3 rad/s
        start = mbd.State(0.0, mechanism.state().q, v)
        results = []
        for solver in (mbd.Pseudoinverse(), mbd.Pseudoinverse(rtol=1e-3)):
            method = mbd.UdwadiaKalaba(solver)
            sol = mbd.simulate(mechanism, method, start, t1=0.1, dt=2e-3, throw=False)
            results.append(sol.result)
        first = mbd.RESULTS.contradicting_rows if tilt else mbd.RESULTS.successful
        assert results[0] == first and results[1] == mbd.RESULTS.successful
        angles.append(float(mechanism.joint_coordinates(sol.q[-1], "A")[0]))
    assert abs(angles[0]) > 0.05
    np.testing.assert_allclose(angles[1], angles[0], rtol=1e-4)


def test_mobility_of_separate_parts():
    """Two hinges of one door are redundant together; a pendulum and a free body beside them are
    not."""
    door = mbd.Body("door", BOX, position=[0.5, 0, 0])
    bob = mbd.Body("bob", BOX, position=[3, 0, 0])
    free = mbd.Body("free", BOX, position=[5, 0, 0])
    joints = [
        mbd.Revolute("upper", "ground", door, point=[0, 0, 1], axis=Z),
        mbd.Spherical("ball", "ground", bob, point=[3, 0, 1]),
        mbd.Revolute("lower", "ground", door, point=[0, 0, -1], axis=Z),
    ]
    found = mbd.mobility(mbd.Mechanism([door, bob, free], joints))
    assert found.freedoms == 1 + 3 + 6 and found.grubler == 18 - 13
    (dependency,) = found.dependencies
    assert dependency.count == 5 and list(dependency.parts) == ["upper", "lower"]
    assert {name for name, _ in found.redundant} == {"lower"}
    assert found.indeterminate == ("upper", "lower")


def test_mobility_without_joints_and_inside_of_jit():
    found = mbd.mobility(mbd.Mechanism([mbd.Body("b", BOX)]))
    assert found.freedoms == found.grubler == 6 and not found.redundant
    assert "6 freedoms" in str(found)
    with pytest.raises(ValueError, match="outside of `jax.jit`"):
        jax.jit(lambda x: mbd.mobility(four_bar(), mbd.State(0.0, x, x)).freedoms)(jnp.zeros(21))


# --- violation ----------------------------------------------------------------------------------


def test_violation_by_joint():
    """A body that is 1 mm too low and moves, on a batch of poses."""
    mechanism = four_bar()
    state = mechanism.state()
    q = jnp.stack([state.q, state.q.reshape(7, 3).at[2, 2].add(-1e-3).ravel()])
    v = state.v.reshape(6, 3).at[0, 0].set(0.2).ravel()
    found = mbd.violation(mechanism, q, v=v)
    for name, expected in (("A", 0), ("B", 0), ("C", 1e-3), ("D", 1e-3)):
        np.testing.assert_allclose(found.position[name], [0, expected], atol=1e-15)
    for name, expected in (("A", 0.2), ("B", 0.2), ("C", 0), ("D", 0)):
        np.testing.assert_allclose(found.velocity[name], [expected, expected], atol=1e-15)
    assert "1.0e-03   0.0e+00" in str(found)


# --- reactions ----------------------------------------------------------------------------------


def heavy_top(point):
    """The top of the reference in one of its states, its body frame in the centre of mass."""
    R = np.array(point["R"])
    top = mbd.Body(
        "top",
        mbd.Inertia(15.0, [0.234375, 0.46875, 0.234375]),
        position=point["x_com"],
        orientation=R,
        velocity=point["v_com"],
        angular_velocity=R @ point["W_body"],
    )
    return mbd.Mechanism([top], [mbd.Spherical("ball", "ground", top, point=[0, 0, 0])])


START = dict(R=np.eye(3), x_com=[0, 1, 0], v_com=[0, 0, 0], W_body=[0, 0, 0])


@pytest.mark.slow
def test_reaction_of_the_heavy_top(shared):
    """Force of the joint on the body at published states, as one batch; in the axes of the body,
    on the ground, and about the centre of mass."""
    reference = json.loads((shared / "references" / "heavy_top.json").read_text())["reference"]
    points = reference[:4]
    mechanism = heavy_top(START)
    states = [heavy_top(point).state() for point in points]
    q, v = jnp.stack([s.q for s in states]), jnp.stack([s.v for s in states])
    lam = jax.vmap(lambda q, v: multipliers(mechanism, mbd.State(0.0, q, v)))(q, v)
    expected = np.array([point["reaction_on_body"] for point in points])
    found = mbd.reactions(mechanism, 0.0, q, lam, "ball")
    np.testing.assert_allclose(found.force, expected, rtol=1e-7)
    np.testing.assert_allclose(found.torque, 0, atol=1e-9)
    ground = mbd.reactions(mechanism, 0.0, q, lam, "ball", on="ground")
    np.testing.assert_allclose(ground.force, -expected, rtol=1e-7)
    R = np.array([point["R"] for point in points])
    local = mbd.reactions(mechanism, 0.0, q, lam, "ball", frame="top")
    np.testing.assert_allclose(local.force, np.einsum("kij,ki->kj", R, expected), rtol=1e-6)
    x_com = np.array([point["x_com"] for point in points])
    about = mbd.reactions(mechanism, 0.0, q, lam, "ball", point=x_com)
    np.testing.assert_allclose(about.torque, np.cross(-x_com, expected), rtol=1e-6, atol=1e-6)


def beam(load=0.3):
    """A beam of 2 m at rest on a hinge and a roller, its centre of mass off its middle."""
    body = mbd.Body("beam", mbd.Inertia(4.0, np.diag([0.1, 1.0, 1.0])), position=[load, 0, 0])
    hinge = mbd.Revolute("hinge", "ground", body, point=[-1, 0, 0], axis=Y)
    roller = mbd.PointOnPlane("roller", "ground", body, point=[1, 0, 0], axis=Z)
    return mbd.Mechanism([body], [hinge, roller])


@pytest.mark.slow
def test_reactions_of_a_beam():
    mechanism = beam()
    q, lam = mechanism.state().q, multipliers(mechanism)
    assert mbd.mobility(mechanism).indeterminate == ()
    left, right = (mbd.reactions(mechanism, 0.0, q, lam, name) for name in ("hinge", "roller"))
    np.testing.assert_allclose(left.force, [0, 0, 4 * G * 0.7 / 2], atol=1e-10)
    np.testing.assert_allclose(right.force, [0, 0, 4 * G * 1.3 / 2], atol=1e-10)
    np.testing.assert_allclose(left.torque, 0, atol=1e-10)
    # About the other support the force has its arm.
    moved = mbd.reactions(mechanism, 0.0, q, lam, "hinge", point=[1.0, 0, 0])
    np.testing.assert_allclose(moved.torque, [0, 2 * 4 * G * 0.7 / 2, 0], atol=1e-10)


@pytest.mark.slow
def test_derivative_of_a_static_reaction():
    """m g (1 + load) / 2 on the roller, with respect to the place of the load."""

    def roller(load):
        mechanism = beam(load)
        q, lam = mechanism.state().q, multipliers(mechanism)
        return mbd.reactions(mechanism, 0.0, q, lam, "roller").force[2]

    np.testing.assert_allclose(jax.jit(jax.grad(roller))(jnp.array(0.3)), 4 * G / 2, rtol=1e-10)


@pytest.mark.parametrize("mode", [jax.jacrev, jax.jacfwd], ids=["reverse", "forward"])
def test_derivative_of_a_reaction(mode):
    """With respect to the pose at given multipliers, in the axes of the beam, against
    differences."""
    mechanism = beam()
    rng = np.random.default_rng(3)
    q, lam = mechanism.state().q, jnp.asarray(rng.normal(size=6))

    def roller(q):
        wrench = mbd.reactions(mechanism, 0.0, q, lam, "hinge", frame="beam", point=np.ones(3))
        return jnp.concatenate(wrench)

    d, h = jnp.asarray(rng.normal(size=7)), 1e-5
    expected = (roller(q + h * d) - roller(q - h * d)) / (2 * h)
    np.testing.assert_allclose(mode(roller)(q) @ d, expected, atol=1e-8)


def test_all_reactions_hold_the_bodies():
    """J^T lam is the sum of the reactions, whatever the joints and the pose are."""
    mechanism = four_bar()
    rng = np.random.default_rng(0)
    q = mechanism.state().q + 0.05 * rng.normal(size=21)
    q = mechanism.coordinates.normalise(q)
    lam = jnp.asarray(rng.normal(size=20))
    J = dense_jacobian(mechanism, TIME, q, jnp.zeros(18))
    total = np.zeros((6, 3))
    for joint in mechanism.joints:
        for name in joint.bodies:
            if name != "ground":
                column = [body.name for body in mechanism.bodies].index(name)
                origin = mechanism.pose(q, name).position
                wrench = mbd.reactions(mechanism, 0.0, q, lam, joint.name, on=name, point=origin)
                total[:, column] += np.concatenate(wrench)
    np.testing.assert_allclose(total.ravel(), J.T @ lam, atol=1e-12)


class Skate(mbd.AbstractJoint):
    """A blade along the x axis of b: no velocity across it, v_y = 0."""

    rows = 0
    directed = False

    def constraint(self, a, b, t):
        return jnp.zeros(0, a.position.dtype)

    def nonholonomic(self, a, b, twist_a, twist_b, t):
        return b.local_direction(twist_b.linear)[1:2]


def test_reaction_of_a_nonholonomic_joint():
    """The side force of a blade in the centre of a sled that turns at a constant rate is
    m v omega."""
    speed, omega = 2.0, 0.7
    sled = mbd.Body("sled", BOX, velocity=[speed, 0, 0], angular_velocity=[0, 0, omega])
    mechanism = mbd.Mechanism([sled], [Skate("skate", "ground", sled, point=[0, 0, 0])],
                              gravity=[0, 0, 0])  # fmt: skip
    state, lam = mechanism.state(), multipliers(mechanism)
    found = mbd.reactions(mechanism, 0.0, state.q, lam, "skate", v=state.v)
    np.testing.assert_allclose(found.force, [0, 1.3 * speed * omega, 0], atol=1e-12)
    np.testing.assert_allclose(found.torque, 0, atol=1e-12)
    with pytest.raises(ValueError, match='"skate" has nonholonomic rows: its reaction needs `v`'):
        mbd.reactions(mechanism, 0.0, state.q, lam, "skate")


@pytest.mark.slow
def test_unique_parts_of_reactions():
    """Loads in the plane of the four-bar are unique; those across it are not, and other
    multipliers of the same motion change them alone."""
    mechanism = four_bar()
    state = mechanism.state()
    lam = multipliers(mechanism, solver=mbd.Pseudoinverse())
    unique = mbd.unique_reactions(mechanism, state, "B", frame="crank")
    np.testing.assert_array_equal(unique.force, [True, True, False])
    np.testing.assert_array_equal(unique.torque, [False, False, True])
    J = np.asarray(dense_jacobian(mechanism, TIME, state.q, state.v))
    null = np.linalg.svd(J)[0][:, 17:]
    other = lam + 10 * null @ np.array([1.0, 2.0, -1.0])
    first, second = (
        mbd.reactions(mechanism, 0.0, state.q, x, "B", frame="crank") for x in (lam, other)
    )
    for x, y, same in zip(first, second, unique, strict=True):
        np.testing.assert_array_equal(np.abs(x - y) < 1e-9, same)


def test_what_reactions_refuse():
    mechanism = beam()
    q, lam = mechanism.state().q, jnp.zeros(6)
    with pytest.raises(ValueError, match='There is no joint "x"'):
        mbd.reactions(mechanism, 0.0, q, lam, "x")
    with pytest.raises(ValueError, match='`frame`.* be a body of "hinge", which are "ground", '):
        mbd.reactions(mechanism, 0.0, q, lam, "hinge", frame="rod")


# --- audit --------------------------------------------------------------------------------------


def double_pendulum():
    """Two boxes on ball joints, and a spring from the end to the ground."""
    upper = mbd.Body("upper", BOX, position=[0.5, 0, 0])
    lower = mbd.Body("lower", BOX, position=[1.5, 0, 0], velocity=[0, 0, 0])
    joints = [
        mbd.Spherical("shoulder", "ground", upper, point=[0, 0, 0]),
        mbd.Spherical("elbow", upper, lower, point=[1, 0, 0]),
    ]
    spring = mbd.Spring("spring", "ground", lower, points=([2, 1, 0], [2, 0, 0]), stiffness=20.0,
                        rest_length=0.5)  # fmt: skip
    damper = mbd.Spring("damper", "ground", lower, points=([2, -1, 0], [2, 0, 0]), stiffness=0.0,
                        damping=3.0, rest_length=0.0)  # fmt: skip
    return mbd.Mechanism([upper, lower], joints, [spring, damper])


@pytest.fixture(scope="module")
def swing():
    mechanism = double_pendulum()
    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        mechanism.state(),
        t1=0.3,
        dt=2e-3,
        saveat=diffrax.SaveAt(t0=True, steps=1),
    )
    return mechanism, sol


def test_audit_of_a_pendulum(swing):
    """What the damper takes is missing in the energy; gravity, springs and joints take nothing."""
    mechanism, sol = swing
    found = mbd.audit(mechanism, sol)
    np.testing.assert_allclose(found.imbalance, 0, atol=1e-5)
    assert abs(found.work[-1]) > 0.1  # so that the balance is no coincidence
    assert np.all(found.powers["damper"] <= 0)
    np.testing.assert_allclose(found.constraint_power, 0, atol=1e-7)
    # d(momentum)/dt is all of the forces from outside.
    shoulder = mbd.reactions(mechanism, sol.t, sol.q, sol.multipliers, "shoulder").force
    ends = mechanism.pose(sol.q, "lower").position
    assert shoulder.shape == (151, 3) and ends.shape == (151, 3)
    weight = np.array([0, 0, -2 * 1.3 * G])
    rate = np.gradient(np.asarray(found.momentum), np.asarray(sol.t), axis=0)[1:-1]
    spring, damper = mechanism.forces

    def outside(q, v):
        pulls = [
            e.wrenches(mechanism.frames(e, q), mechanism.frame_twists(e, q, v), TIME, None)[1].force
            for e in (spring, damper)
        ]
        return sum(pulls)

    pull = np.asarray(jax.vmap(outside)(sol.q, sol.v))
    np.testing.assert_allclose(rate, (np.asarray(shoulder) + pull + weight)[1:-1], atol=0.05)
    assert "imbalance" in str(found)


def test_order_of_the_work():
    """The rule for the integral is of fourth order, also for uneven times."""
    from jaxmbd.mechanism.reports.audit import _integral

    errors = []
    for n in (20, 40):
        t = jnp.linspace(0, 1, n + 1) ** 1.2 * 2
        errors.append(np.max(np.abs(_integral(t, jnp.cos(3 * t)) - jnp.sin(3 * t) / 3)))
    assert errors[1] < errors[0] / 11


def test_audit_of_a_free_pair():
    """Momenta of two bodies in closed form, a batch of two solutions."""
    rng = np.random.default_rng(1)
    bodies = [
        mbd.Body(name, BOX, position=rng.normal(size=3), velocity=rng.normal(size=3),
                 angular_velocity=rng.normal(size=3))
        for name in "ab"
    ]  # fmt: skip
    mechanism = mbd.Mechanism(bodies)
    state = mechanism.state()
    zero = jnp.zeros((2, 1))
    sol = mbd.Solution(
        t=zero,
        q=jnp.broadcast_to(state.q, (2, 1, 14)),
        v=jnp.broadcast_to(state.v, (2, 1, 12)),
        multipliers=jnp.zeros((2, 1, 0)),
        phi_norm=zero,
        phidot_norm=zero,
        ys=None,
        stats={},
        result=mbd.RESULTS.successful,
    )
    found = mbd.audit(mechanism, sol)
    linear = sum(1.3 * b.twist.linear for b in bodies)
    angular = sum(
        1.3 * np.cross(b.pose.position, b.twist.linear) + BOX.tensor @ b.twist.angular
        for b in bodies
    )
    kinetic = sum(
        0.65 * b.twist.linear @ b.twist.linear
        + 0.5 * b.twist.angular @ BOX.tensor @ b.twist.angular
        for b in bodies
    )
    weight = sum(1.3 * G * b.pose.position[2] for b in bodies)
    middle = sum(b.pose.position for b in bodies) / 2
    for value, expected in (
        (found.momentum, linear),
        (found.angular_momentum, angular),
        (found.center, middle),
    ):
        np.testing.assert_allclose(value, np.broadcast_to(expected, (2, 1, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.total, np.full((2, 1), kinetic + weight), rtol=1e-12)
    np.testing.assert_array_equal(found.work, np.zeros((2, 1)))


# --- singular poses -----------------------------------------------------------------------------


def slider_crank(theta=0.3):
    """Crank and rod of one length, at a crank angle: singular upright, where the slider lies on the
    pivot and the rod can turn with the crank."""
    c, s = jnp.cos(theta), jnp.sin(theta)
    o = jnp.zeros_like(c)

    def turned(angle):
        return mbd.quaternion_exp(jnp.stack([o, o, angle]))

    places = [(0.5 * c, 0.5 * s, theta), (1.5 * c, 0.5 * s, -theta), (2 * c, o, o)]
    crank, rod, slider = (
        mbd.Body(name, BOX, position=jnp.stack([x, y, o]), orientation=turned(angle))
        for name, (x, y, angle) in zip(("crank", "rod", "slider"), places, strict=True)
    )
    joints = [
        mbd.Revolute("base", "ground", crank, point=[0, 0, 0], axis=Z),
        mbd.Revolute("knee", crank, rod, point=jnp.stack([c, s, o]), axis=Z),
        mbd.Revolute("pin", rod, slider, point=jnp.stack([2 * c, o, o]), axis=Z),
        mbd.Prismatic("guide", "ground", slider, point=jnp.stack([2 * c, o, o]), axis=X),
    ]
    return mbd.Mechanism([crank, rod, slider], joints)


def test_singular_pose_of_the_slider_crank():
    """The ratio falls in proportion to the distance from the upright pose and is 0 there."""
    mechanism = slider_crank(jnp.array(0.3))
    beside = np.array([0.5, 0.02, 0.01, 0.0])
    angles = jnp.asarray(np.pi / 2 - beside)
    q = jax.vmap(lambda theta: slider_crank(theta).state().q)(angles)
    found = mbd.singularity(mechanism, q)
    assert int(found.general) == 17
    np.testing.assert_array_equal(found.rank, [17, 17, 17, 16])
    np.testing.assert_allclose(found.ratio[1] / found.ratio[2], 2, rtol=1e-3)
    assert found.ratio[3] < 1e-15 and found.ratio[0] > 0.05
    np.testing.assert_allclose(sum(x[2] for x in found.parts.values()), 1)
    moving = {name: float(x[2]) for name, x in found.moving.items()}
    assert moving["slider"] < 0.05 and moving["crank"] > 0.1 and moving["rod"] > 0.1
    assert "pose 3 of 4; rank 16, in general 17" in str(found)


@pytest.mark.slow
def test_derivative_of_the_ratio():
    mechanism = slider_crank(jnp.array(0.3))

    def ratio(theta):
        return mbd.singularity(mechanism, slider_crank(theta).state().q, rank=17).ratio

    theta, h = jnp.array(1.2), 1e-5
    ratio = jax.jit(ratio)
    expected = (ratio(theta + h) - ratio(theta - h)) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.grad(ratio))(theta), expected, rtol=1e-8)


# --- assembly -----------------------------------------------------------------------------------


def ladder(span):
    """A body held by two ball joints 1 m apart, at points of the ground `span` apart, and a
    third body that is well hinged."""
    rung = mbd.Body("rung", BOX, position=[0.1, 0.2, 0])
    other = mbd.Body("other", BOX, position=[0, 3, 0])
    joints = [
        mbd.Spherical("left", "ground", rung, points=([0, 0, 0], [-0.4, 0.2, 0])),
        mbd.Spherical("right", "ground", rung, points=([span, 0, 0], [0.6, 0.2, 0])),
        mbd.Revolute("hinge", "ground", other, point=[0, 3, 0], axis=Z),
    ]
    return mbd.Mechanism([rung, other], joints)


@pytest.mark.slow
def test_assembly_by_name():
    state = mbd.close_joints(ladder(1.0))
    pose = ladder(1.0).pose(state.q, "rung")
    np.testing.assert_allclose(pose.position, [0.5, 0, 0], atol=1e-9)
    found = mbd.joint_closure(ladder(1.0), state.report)
    assert found.successful and not found.open and found.rows == 11 and found.rank == 10
    assert str(found).startswith("assembled: moved by")
    # 20 cm that are missing stay between the two ball joints.
    with pytest.raises(ValueError, match='The joints "left", "right" cannot be closed together'):
        mbd.close_joints(ladder(1.2))
    failed = mbd.close_joints(ladder(1.2), throw=False)
    found = mbd.joint_closure(ladder(1.2), failed.report)
    assert list(found.open) == ["left", "right"]
    np.testing.assert_allclose(sum(found.open.values()), 0.2, atol=1e-3)
    assert '"left" remained open: |Phi| = ' in str(found)


@pytest.mark.slow
def test_assembly_by_name_inside_of_jit():
    @jax.jit
    def closed(span):
        return mbd.close_joints(ladder(span)).q

    with pytest.raises(Exception, match='Joint "(left|right)" cannot be closed'):
        closed(jnp.array(1.2))
    mechanism = ladder(1.0)
    np.testing.assert_allclose(
        mechanism.pose(closed(jnp.array(1.0)), "rung").position, [0.5, 0, 0], atol=1e-9
    )


def closed_four_bar(rate, **options):
    """The crank 0.3 rad from where it was drawn, at the given rate, and the loop closed."""
    mechanism = four_bar()
    placed = mbd.place_bodies(mechanism, {"A": 0.3}, {"A": rate})
    return mechanism, mbd.close_joints(mechanism, placed, **options)


@pytest.mark.slow
def test_closing_keeps_what_was_asked_for():
    """The rates of the other joints are those of the closed loop, which differences tell."""
    mechanism, state = closed_four_bar(6.0)
    np.testing.assert_allclose(mechanism.joint_coordinates(state.q, "A"), [0.3], atol=1e-12)
    np.testing.assert_allclose(mbd.joint_rates(mechanism, state.q, state.v, "A"), [6.0], atol=1e-11)
    assert np.max(np.abs(mechanism.constraint(state.q, TIME))) < 1e-11
    found = mbd.joint_closure(mechanism, state.report)
    assert found.successful and found.displacement > 1e-3 and found.change > 0.1
    assert (found.rows, found.rank) == (20, 17)

    # Without anything to keep the nearest pose and motion are others.
    _, free = closed_four_bar(6.0, keep=())
    assert abs(mechanism.joint_coordinates(free.q, "A")[0] - 0.3) > 1e-3
    assert abs(mbd.joint_rates(mechanism, free.q, free.v, "A")[0] - 6.0) > 1e-2


@pytest.mark.slow
def test_closing_keeps_joints_by_name():
    """A joint of a state that was made by hand; the derivative of what is kept is exact."""
    mechanism, state = closed_four_bar(6.0)
    x = mechanism.joint_coordinates(state.q, "C")

    def kept(bend):
        q = state.q.reshape(7, 3).at[:2, 2].add(bend).ravel()  # the rocker, off its place
        found = mbd.close_joints(mechanism, mbd.State(0.0, q, state.v), keep=["A"])
        return mechanism.joint_coordinates(found.q, "A")[0], found.q

    (angle, q), (slope, _) = jax.jvp(kept, (jnp.array(0.01),), (jnp.array(1.0),))
    np.testing.assert_allclose(angle, 0.3, atol=1e-12)
    np.testing.assert_allclose(slope, 0.0, atol=1e-9)
    # One freedom: the crank alone says where all are.
    np.testing.assert_allclose(mechanism.joint_coordinates(q, "C"), x, atol=1e-8)


@pytest.mark.slow
def test_closing_keeps_a_coordinate_and_the_rate_of_another_joint():
    mechanism = four_bar()
    state = mbd.close_joints(mechanism, mbd.place_bodies(mechanism, {"A": 0.3}, {"B": 2.0}))
    np.testing.assert_allclose(mechanism.joint_coordinates(state.q, "A"), [0.3], atol=1e-12)
    np.testing.assert_allclose(mbd.joint_rates(mechanism, state.q, state.v, "B"), [2.0], atol=1e-11)
    rate = jax.grad(
        lambda rate: mbd.joint_rates(
            mechanism, (found := closed_four_bar(rate)[1]).q, found.v, "A"
        )[0]
    )
    np.testing.assert_allclose(rate(jnp.array(6.0)), 1.0, atol=1e-10)


@pytest.mark.slow
def test_what_closing_cannot_keep():
    mechanism = four_bar()
    asked = mbd.place_bodies(mechanism, {"A": 0.3}, {"A": 1.0, "B": 5.0})
    with pytest.raises(ValueError, match='while "A", "B" keep what was asked for'):
        mbd.close_joints(mechanism, asked)
    with pytest.raises(ValueError, match="`keep` of close_joints must be a sequence"):
        mbd.close_joints(mechanism, keep="A")
    with pytest.raises(ValueError, match='There is no joint "Z"'):
        mbd.close_joints(mechanism, keep=["Z"])


class Ramp(eqx.Module):
    speed: float

    def __call__(self, t):
        return self.speed * t


@pytest.mark.slow
def test_velocities_that_do_not_fit_are_named():
    """Two drives of one hinge agree at the time 0, but for their speeds 1 and 3: at 2 rad/s both
    miss 1 rad/s."""
    wheel = mbd.Body("wheel", BOX)
    hinge = mbd.Revolute("hinge", "ground", wheel, point=np.zeros(3), axis=Z)
    drives = [mbd.PrescribedMotion(f"drive {s:.0f}", hinge, Ramp(s)) for s in (1.0, 3.0)]
    mechanism = mbd.Mechanism([wheel], [hinge, *drives])
    state = mbd.close_joints(mechanism, throw=False)
    found = mbd.joint_closure(mechanism, state.report)
    assert not found.open and not found.successful
    assert list(found.moving) == ["drive 1", "drive 3"]
    np.testing.assert_allclose(list(found.moving.values()), 1.0, atol=1e-12)
    assert 'the velocities do not fit "drive 1": |Phi\'|, |Psi| = 1.000e+00' in str(found)


# --- bad input ----------------------------------------------------------------------------------


class Falling(mbd.AbstractSystem):
    """A system that is no mechanism."""

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -G])


def turning(**options):
    """A hinged box, and its motion over two steps."""
    body = mbd.Body("b", BOX)
    hinge = mbd.Revolute("h", "ground", body, point=np.zeros(3), axis=Z)
    mechanism = mbd.Mechanism([body], [hinge])
    return mechanism, mbd.simulate(
        mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=0.02, dt=1e-2, **options
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda w, sol: mbd.audit(w, sol),
        lambda w, sol: mbd.mobility(w),
        lambda w, sol: mbd.place_bodies(w, {"h": 1.0}),
        lambda w, sol: mbd.close_joints(w),
        lambda w, sol: mbd.total_energy(w, sol.q[0], sol.v[0]),
        lambda w, sol: mbd.violation(w, sol.q),
        lambda w, sol: mbd.singularity(w, sol.q),
        lambda w, sol: mbd.reactions(w, sol.t, sol.q, sol.multipliers, "h"),
        lambda w, sol: mbd.unique_reactions(w, sol.state(), "h"),
        lambda w, sol: mbd.joint_path(w, "h", sol.t, sol.q),
        lambda w, sol: mbd.joint_rates(w, sol.q, sol.v, "h"),
        lambda w, sol: mbd.limit_violation(w, sol.q, "h"),
        lambda w, sol: mbd.contact_states(w, sol),
        lambda w, sol: mbd.draw(w),
        lambda w, sol: mbd.animate(w, sol),
        lambda w, sol: mbd.plot_coordinates(w, sol),
        lambda w, sol: mbd.plot_violation(w, sol),
    ],
)
def test_reports_ask_for_a_mechanism(call):
    one = jnp.zeros(1)
    sol = mbd.Solution(
        one, jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.zeros((1, 0)), one, one, None, {},
        mbd.RESULTS.successful,
    )  # fmt: skip
    with pytest.raises(ValueError, match="`mechanism` of .* must be a `mbd.Mechanism`, but is"):
        call(Falling(), sol)


def test_what_reports_refuse(tmp_path):
    mechanism, sol = turning(saveat=diffrax.SaveAt(t0=True, steps=1))
    q, v = sol.q[0], sol.v[0]
    for call, message in (
        (
            lambda: mbd.place_bodies(mechanism, {"h": "open"}),
            '`coordinates` of "h" must be numbers',
        ),
        (lambda: mbd.place_bodies(mechanism, {"h": np.nan}), '`coordinates` of "h" must be finite'),
        (
            lambda: mbd.place_bodies(mechanism, ["h"]),
            "`coordinates` of place_bodies must be a mapping, such as a `dict`",
        ),
        (lambda: mbd.mobility(mechanism, tolerance=-1.0), "`tolerance` of mobility must be pos"),
        (lambda: mbd.animate(mechanism, sol, fps=0), "`fps` of animate must be a whole number"),
        (lambda: mbd.animate(mechanism, sol, speed=0.0), "`speed` of animate must be positive"),
        (
            lambda: mbd.animate(mechanism, sol, tmp_path / "no" / "x.gif", progress=False),
            "`path` must lie in a folder that is there",
        ),
        (lambda: mbd.evaluate(mechanism, None, 0.0, q[:3], v), "`q` has 3 entries, but the coo"),
        (lambda: mbd.evaluate(Falling(), None, 0.0, q[:3], v[:2]), r"`qdot\(q, v\)` must have"),
        (lambda: mbd.PeriodicSpline(1.0, 2.0), "`angles` of PeriodicSpline must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    failed = eqx.tree_at(lambda sol: sol.result, sol, mbd.RESULTS.nonfinite_state)
    with pytest.raises(ValueError, match="1 of 1 motions failed"):
        mbd.audit(mechanism, failed)
    other = mbd.Mechanism([mbd.Body("b", BOX)])
    with pytest.raises(ValueError, match="`multipliers` must have 0 entries"):
        mbd.audit(other, sol)
