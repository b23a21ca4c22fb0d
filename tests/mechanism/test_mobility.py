"""Mobility, redundancy and singular poses of mechanisms, against counts by hand and motions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reported import BOX, TIME, Z, four_bar, slider_crank

import jaxmbd as mbd
from jaxmbd.mechanism.reports.rows import dense_jacobian

# --- mobility -----------------------------------------------------------------------------------


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
    found = mbd.reports.mobility(mechanism)
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
    found = mbd.reports.mobility(mechanism)
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
        other = mbd.reports.mobility(nearly_closed(offset, tilt / 10))
        np.testing.assert_allclose(found.ratio / other.ratio, 10.0, rtol=1e-3)
    else:
        assert not found.nearly


def test_mobility_of_a_closed_loop_is_not_in_doubt():
    found = mbd.reports.mobility(four_bar())
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
        (v,) = mbd.reports.mobility(mechanism, tolerance=1e-3).motions
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
            jnp.zeros(21)
        )


# --- violation ----------------------------------------------------------------------------------


def test_violation_by_joint():
    """A body that is 1 mm too low and moves, on a batch of poses."""
    mechanism = four_bar()
    state = mechanism.state()
    q = jnp.stack([state.q, state.q.reshape(7, 3).at[2, 2].add(-1e-3).ravel()])
    v = state.v.reshape(6, 3).at[0, 0].set(0.2).ravel()
    found = mbd.reports.violation(mechanism, q, v=v)
    for name, expected in (("A", 0), ("B", 0), ("C", 1e-3), ("D", 1e-3)):
        np.testing.assert_allclose(found.position[name], [0, expected], atol=1e-15)
    for name, expected in (("A", 0.2), ("B", 0.2), ("C", 0), ("D", 0)):
        np.testing.assert_allclose(found.velocity[name], [expected, expected], atol=1e-15)
    assert "1.0e-03   0.0e+00" in str(found)


# --- singular poses -----------------------------------------------------------------------------


def test_singular_pose_of_the_slider_crank():
    """The ratio falls in proportion to the distance from the upright pose and is 0 there."""
    mechanism = slider_crank(jnp.array(0.3))
    beside = np.array([0.5, 0.02, 0.01, 0.0])
    angles = jnp.asarray(np.pi / 2 - beside)
    q = jax.jit(jax.vmap(lambda theta: slider_crank(theta).state().q))(angles)
    found = mbd.reports.singularity(mechanism, q)
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
        return mbd.reports.singularity(mechanism, slider_crank(theta).state().q, rank=17).ratio

    theta, h = jnp.array(1.2), 1e-5
    ratio = jax.jit(ratio)
    expected = (ratio(theta + h) - ratio(theta - h)) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.grad(ratio))(theta), expected, rtol=1e-8)
