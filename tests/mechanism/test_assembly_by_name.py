"""Assembly and closing of mechanisms by names of joints, against the geometry of linkages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reported import BOX, TIME, Z, four_bar

import jaxmbd as mbd
from jaxmbd._results import code


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


def test_assembly_by_name():
    """20 cm that are missing stay between the two ball joints."""
    state = mbd.close_joints(ladder(1.0))
    np.testing.assert_allclose(np.asarray(state.q)[:6:2], [0.5, 0, 0], atol=1e-9)
    found = mbd.reports.joint_closure(ladder(1.0), state.report)
    assert found.successful and not found.open and found.rows == 11 and found.rank == 10
    assert str(found).startswith("assembled: moved by")
    with pytest.raises(ValueError, match='The joints "left", "right" cannot be closed together'):
        mbd.close_joints(ladder(1.2))
    failed = mbd.close_joints(ladder(1.2), throw=False)
    found = mbd.reports.joint_closure(ladder(1.2), failed.report)
    assert list(found.open) == ["left", "right"]
    np.testing.assert_allclose(sum(found.open.values()), 0.2, atol=1e-3)
    assert '"left" remained open: |Phi| = ' in str(found)


@pytest.mark.slow
def test_assembly_by_name_in_a_program():
    with pytest.raises(Exception, match='Joint "(left|right)" cannot be closed'):
        jax.jit(lambda span: mbd.close_joints(ladder(span)).q)(1.2)


def closed_four_bar(rate, **options):
    """The crank 0.3 rad from where it was drawn, at the given rate, and the loop closed."""
    mechanism = four_bar()
    placed = mbd.place_bodies(mechanism, {"A": 0.3}, {"A": rate})
    return mechanism, mbd.close_joints(mechanism, placed, **options)


def coordinate(mechanism, state, name):
    """Of a joint, and its rate."""
    x = mechanism.joint_coordinates(state.q, name)
    return float(x[0]), float(mbd.reports.joint_rates(mechanism, state, name)[0])


@pytest.mark.slow
def test_closing_keeps_what_was_asked_for():
    """Without anything to keep the nearest pose and motion are others."""
    mechanism, state = closed_four_bar(6.0)
    np.testing.assert_allclose(coordinate(mechanism, state, "A"), [0.3, 6.0], atol=1e-11)
    assert np.max(np.abs(mechanism.constraint(state.q, TIME))) < 1e-11
    found = mbd.reports.joint_closure(mechanism, state.report)
    assert found.successful and found.displacement > 1e-3 and found.change > 0.1
    assert (found.rows, found.rank) == (20, 17)
    _, free = closed_four_bar(6.0, keep=())
    assert np.min(np.abs(np.subtract(coordinate(mechanism, free, "A"), [0.3, 6.0]))) > 1e-3


@pytest.mark.slow
def test_closing_keeps_joints_by_name():
    """A joint of a state that was made by hand; the derivative of what is kept is exact."""
    mechanism, state = closed_four_bar(6.0)

    def kept(bend):
        q = state.q.reshape(7, 3).at[:2, 2].add(bend).ravel()  # the rocker, off its place
        found = mbd.close_joints(mechanism, mbd.State(0.0, q, state.v), keep=["A"])
        return mechanism.joint_coordinates(found.q, "A")[0], found.q

    differentiated = jax.jit(lambda bend: jax.jvp(kept, (bend,), (jnp.ones_like(bend),)))
    (angle, q), (slope, _) = differentiated(jnp.array(0.01))
    np.testing.assert_allclose(angle, 0.3, atol=1e-12)
    np.testing.assert_allclose(slope, 0.0, atol=1e-9)
    # One freedom: the crank alone says where all are.
    x = [mechanism.joint_coordinates(y, "C") for y in (q, state.q)]
    np.testing.assert_allclose(*x, atol=1e-8)


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


@pytest.mark.slow
def test_what_a_large_ratio_cannot_keep():
    """The row of the gear misses its tolerance, 1e6 times that of a hinge, by far less than the
    second shaft misses its speed: 2 rad/s."""
    bodies = [mbd.Body(n, BOX, position=[x, 0, 0]) for n, x in (("a", 0.0), ("b", 1.0))]
    a, b = (
        mbd.Revolute(body.name, "ground", body, point=body.pose.position, axis=Z) for body in bodies
    )
    mechanism = mbd.Mechanism(bodies, [a, b, mbd.joints.Coupler("gear", a, b, ratio=1e6)])
    asked = mbd.place_bodies(mechanism, {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 2.0})
    state = mbd.close_joints(mechanism, asked, throw=False)
    assert not np.any(state.report.moving)
    assert code(state.report.result) == code(mbd.RESULTS.assembly_failed)


@pytest.mark.slow
def test_velocities_that_do_not_fit_are_named():
    """Two drives of one hinge agree at the time 0, but for their speeds 1 and 3: at 2 rad/s both
    miss 1 rad/s."""
    wheel = mbd.Body("wheel", BOX)
    hinge = mbd.Revolute("hinge", "ground", wheel, point=np.zeros(3), axis=Z)
    drives = [
        mbd.PrescribedMotion(f"drive {s:.0f}", hinge, lambda t, s=s: s * t) for s in (1.0, 3.0)
    ]
    mechanism = mbd.Mechanism([wheel], [hinge, *drives])
    state = mbd.close_joints(mechanism, throw=False)
    found = mbd.reports.joint_closure(mechanism, state.report)
    assert not found.open and not found.successful
    assert list(found.moving) == ["drive 1", "drive 3"]
    np.testing.assert_allclose(list(found.moving.values()), 1.0, atol=1e-12)
    assert 'the velocities do not fit "drive 1": |Phi\'|, |Psi| = 1.000e+00' in str(found)
