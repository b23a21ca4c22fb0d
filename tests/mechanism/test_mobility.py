"""Mobility, redundancy and singular poses of mechanisms, against counts by hand and motions."""

import jax
import numpy as np
import pytest
from reported import BOX, TIME, Z, four_bar

import jaxmbd as mbd
from jaxmbd._mechanism.reports.violation import dense_jacobian


def test_mobility_of_the_four_bar():
    """One freedom, and three rows too many: those across the plane, of which any one joint has
    three, its position along the axis and its two tilts."""
    found = mbd.reports.mobility(four_bar())
    assert (found.freedoms, found.velocities, found.rows, found.rank) == (1, 18, 20, 17)
    assert found.grubler == -2
    assert found.redundant == (("D", 2), ("D", 3), ("D", 4))
    (dependency,) = found.dependencies
    assert dependency.count == 3 and list(dependency.parts) == ["A", "B", "C", "D"]
    np.testing.assert_allclose(sum(dependency.parts.values()), 3)
    assert found.indeterminate == ("A", "B", "C", "D")
    assert found.doubtful == 0 and not found.nearly and found.ratio > 0.01
    assert all(group.misfit < 1e-14 for group in found.dependencies)
    text = str(found)
    assert "1 freedom: 18 velocities - rank 17" in text and '"D" 2, 3, 4' in text
    assert "doubt" not in text and "fit" not in text
    # What is said to be redundant can be dropped.
    mechanism = four_bar()
    state = mechanism.state()
    J = np.asarray(dense_jacobian(mechanism, TIME, state.q, state.v))
    dropped = [mechanism.rows(name)[row] for name, row in found.redundant]
    assert np.linalg.matrix_rank(np.delete(J, dropped, axis=0), tol=1e-9) == found.rank
    # The motion that is left: all turn about z, at the rates of the plane four-bar.
    angular = found.motions.reshape(1, 6, 3)[0, 3:]
    np.testing.assert_allclose(angular[:2], 0, atol=1e-12)
    assert np.all(np.abs(angular[2]) > 1e-3)


def nearly_closed(offset, tilt):
    """The four-bar with the last hinge in the ground off along its axis, or tilted."""
    right, place = four_bar(), np.array([1.0, 0, 0])
    axes = Z, np.array([np.sin(tilt), 0.0, np.cos(tilt)])
    ends = dict(points=(place, place + offset * Z), axes=axes)
    last = mbd.Revolute("D", right.body("rocker"), "ground", **ends)
    return mbd.Mechanism(right.bodies, [*right.joints[:3], last])


@pytest.mark.parametrize("offset, tilt", [(1e-4, 0.0), (0.0, 1e-5), (1e-4, 1e-4)])
def test_mobility_of_a_loop_that_is_nearly_closed(offset, tilt):
    """Where it is tilted, a count at 1e-9 gives no freedom and one at 1e-3 one, as it moves in a
    simulation; what does not fit is the residual of the least squares |J dp + Phi|."""
    mechanism = nearly_closed(offset, tilt)
    found = mbd.reports.mobility(mechanism)
    assert found.freedoms + found.doubtful == 1 and found.rank - found.doubtful == 17
    assert found.doubtful == (1 if tilt else 0)
    state = mechanism.state()
    J = np.asarray(dense_jacobian(mechanism, TIME, state.q, state.v))
    phi = np.asarray(mechanism.constraint(state.q, TIME))
    for rcond, groups in ((1e-9, found.dependencies), (1e-3, (*found.dependencies, *found.nearly))):
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
        other = mbd.reports.mobility(nearly_closed(offset, tilt / 10))
        np.testing.assert_allclose(found.ratio / other.ratio, 10.0, rtol=1e-3)
    else:
        assert not found.nearly


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
    found = mbd.reports.mobility(mbd.Mechanism([door, bob, free], joints))
    assert found.freedoms == 1 + 3 + 6 and found.grubler == 18 - 13
    (dependency,) = found.dependencies
    assert dependency.count == 5 and list(dependency.parts) == ["upper", "lower"]
    assert {name for name, _ in found.redundant} == {"lower"}
    assert found.indeterminate == ("upper", "lower")


def test_mobility_without_joints_and_inside_of_jit():
    found = mbd.reports.mobility(mbd.Mechanism([mbd.Body("b", BOX)]))
    assert found.freedoms == found.grubler == 6 and not found.redundant
    assert "6 freedoms" in str(found)
    with pytest.raises(ValueError, match="outside of `jax.jit`"):
        jax.jit(lambda x: mbd.reports.mobility(four_bar(), mbd.State(0.0, x, x)).freedoms)(
            np.zeros(21)
        )


def test_violation_by_joint():
    """A body that is 1 mm too low and moves, on a batch of poses."""
    mechanism = four_bar()
    q = np.tile(mechanism.state().q, (2, 1))
    q.reshape(2, 7, 3)[1, 2, 2] -= 1e-3
    v = np.eye(18)[0] * 0.2
    found = mbd.reports.violation(mechanism, mbd.State(0.0, q, np.tile(v, (2, 1))))
    for name, expected in (("A", 0), ("B", 0), ("C", 1e-3), ("D", 1e-3)):
        np.testing.assert_allclose(found.position[name], [0, expected], atol=1e-15)
    for name, expected in (("A", 0.2), ("B", 0.2), ("C", 0), ("D", 0)):
        np.testing.assert_allclose(found.velocity[name], [expected, expected], atol=1e-15)
    assert "1.0e-03   0.0e+00" in str(found)


def test_rotations_are_compared_by_a_length():
    """Of a ball joint at r = 1.5 m the rows are (1, -[r]x / L): ratio 1 / sqrt(1 + (r / L)^2)."""
    body = mbd.Body("b", BOX, position=[1.5, 0.0, 0.0])
    ball = mbd.Mechanism([body], [mbd.Spherical("A", "ground", body, point=np.zeros(3))])
    found = mbd.reports.singularity(ball, ball.state(), length=2.0)
    np.testing.assert_allclose(found.ratio, 0.8, rtol=1e-12)


def poses(theta):
    """Of crank and rod of one length, and a slider, at a crank angle: singular upright, where the
    slider lies on the pivot and the rod can turn with the crank."""
    c, s, o = np.cos(theta), np.sin(theta), np.zeros(3)
    half = np.array([theta, -theta, 0]) / 2
    places = [c / 2, 3 * c / 2, 2 * c], [s / 2, s / 2, 0], o
    return np.array([*places, np.cos(half), o, o, np.sin(half)])


def test_singular_pose_of_the_slider_crank():
    """The ratio falls in proportion to the distance from the upright pose and is 0 there."""
    q, names = poses(0.3), ("crank", "rod", "slider")
    bodies = [mbd.Body(n, BOX, position=x[:3], orientation=x[3:]) for n, x in zip(names, q.T)]
    crank, rod, slider = bodies
    knee, pin = 2 * q[:3, 0], q[:3, 2]
    joints = [
        mbd.Revolute("base", "ground", crank, point=[0, 0, 0], axis=Z),
        mbd.Revolute("knee", crank, rod, point=knee, axis=Z),
        mbd.Revolute("pin", rod, slider, point=pin, axis=Z),
        mbd.Prismatic("guide", "ground", slider, point=pin, axis=[1, 0, 0]),
    ]
    mechanism = mbd.Mechanism(bodies, joints)
    q = np.stack([poses(np.pi / 2 - beside).ravel() for beside in (0.5, 0.02, 0.01, 0.0)])
    found = mbd.reports.singularity(mechanism, mbd.State(0.0, q, np.zeros((4, 18))))
    assert int(found.general) == 17
    np.testing.assert_array_equal(found.rank, [17, 17, 17, 16])
    ratio = np.asarray(found.ratio)
    np.testing.assert_allclose(ratio[1] / ratio[2], 2, rtol=1e-3)
    assert ratio[3] < 1e-15 and ratio[0] > 0.05
    np.testing.assert_allclose(sum(np.asarray(x)[2] for x in found.parts.values()), 1)
    moving = {name: np.asarray(x)[2] for name, x in found.moving.items()}
    assert moving["slider"] < 0.05 and moving["crank"] > 0.1 and moving["rod"] > 0.1
    assert "pose 3 of 4; rank 16, in general 17" in str(found)
