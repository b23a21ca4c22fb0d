"""Initial poses by joint coordinates, against closed forms and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joint_kinds import FRAME, KINDS, composed, product
from refusals import check_refused, refusals

import jaxmbd as mbd

BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
_, Y, Z = np.eye(3)


def test_derivatives_of_one_body():
    """Of the middle of a bar with respect to its angle and its length."""

    def middle(x):
        bar = mbd.Body("bar", BOX, position=x[1] / 2 * jnp.asarray(Z))
        hinge = mbd.Revolute("hinge", "ground", bar, point=[0, 0, 0], axis=Y)
        mechanism = mbd.Mechanism([bar], [hinge])
        return mechanism.pose(mbd.place_bodies(mechanism, {"hinge": x[0]}).q, "bar").position

    x, s, c = np.array([0.6, 1.3]), np.sin(0.6), np.cos(0.6)
    expected = np.array([[1.3 * c, s], [0, 0], [-1.3 * s, c]]) / 2
    np.testing.assert_allclose(jax.jit(jax.jacrev(middle))(x), expected, atol=1e-11)


POSE_A = mbd.Pose(np.array([0.1, -0.2, 0.3]), np.array([0.5, 0.5, -0.5, 0.5]))
POSE_B = mbd.Pose(np.array([-0.3, 0.1, 0.2]), np.array([0.6, 0.0, 0.8, 0.0]))
PLACED = {
    mbd.Revolute: [3.0],
    mbd.Prismatic: [-0.8],
    mbd.Cylindrical: [0.5, -2.0],
    mbd.Universal: [1.2, -0.7],
    mbd.Planar: [0.5, -0.4, 3.1],
    mbd.Screw: [0.33],
    mbd.joints.PointOnLine: [0.9],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLACED, ids=lambda x: x.__name__)
def test_every_joint(kind):
    """From bodies given anywhere; also of a joint from the far body to the near one. A turn more is
    the same pose."""
    given = dict(orientation=[0, 0.6, 0, 0.8], velocity=[0.3, 0.1, 1.0])
    bodies = [mbd.Body(name, BOX, position=[0.3, 0.2, 0.1], **given) for name in "bc"]
    at = dict(frame_a=POSE_A, frame_b=POSE_B, **KINDS[kind][0])
    joints = [kind("near", "ground", "b", **at), kind("far", "c", "b", **at)]
    mechanism = mbd.Mechanism(bodies, joints)
    wanted, rates = PLACED[kind], 0.3 * np.arange(1.0, 1 + len(PLACED[kind]))
    more = np.add(wanted, 2 * np.pi if kind is mbd.Revolute else 0.0)
    state = mbd.place_bodies(mechanism, dict(near=wanted, far=more), dict(near=rates, far=-rates))

    def reports(q, v, name):
        state = mbd.State(0.0, q, v)
        found = mbd.reports.violation(mechanism, state)
        dx = mbd.reports.joint_rates(mechanism, state, name)
        x = mechanism.joint_coordinates(q, name)
        return x, dx, found.position[name], found.velocity[name]

    for name, sign in (("near", 1.0), ("far", -1.0)):
        found = jax.jit(reports, static_argnums=2)(state.q, state.v, name)
        for one, other in zip(found, (wanted, sign * rates, 0, 0), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


def test_a_ball_joint_keeps_its_orientation():
    """A joint whose coordinates are not given is closed, and turned no more than needed. The next
    one has what is asked for, also where it turns about all axes."""
    body = mbd.Body("b", BOX, position=[0.4, 0, 0], orientation=[0.8, 0.6, 0, 0])
    tip = mbd.Body("tip", BOX, position=[1, 0, 0])
    shift = mbd.Pose(np.array([0.3, 0.0, 0.0]), FRAME.orientation)
    joints = [
        mbd.Spherical("ball", "ground", body, points=([0, 0, 0], [0.1, 0, 0])),
        mbd.Spherical("next", body, tip, frame_a=POSE_A, frame_b=shift),
    ]
    mechanism = mbd.Mechanism([body, tip], joints)
    angles, rates = np.array([2.2, -0.7, -1.9]), np.array([0.3, 0.6, 0.9])
    state = mbd.place_bodies(mechanism, {"next": angles}, {"next": rates})
    b, found = np.asarray(state.q).reshape(7, 2).T
    np.testing.assert_allclose(b, [0.3, 0, 0, 0.8, 0.6, 0, 0], atol=1e-12)
    back = mbd.Pose(-shift.position, FRAME.orientation)

    def place(s):
        turned = KINDS[mbd.Spherical][2](*angles + s * rates)
        return composed(composed(composed(mbd.Pose(b[:3], b[3:]), POSE_A), turned), back)

    np.testing.assert_allclose(found[:3], place(0.0).position, atol=1e-12)
    np.testing.assert_allclose(abs(found[3:] @ place(0.0).orientation), 1.0, atol=1e-12)
    h = 1e-5
    (r, p), (before, other) = place(h), place(-h)
    spin = product(p, other * [1, -1, -1, -1])[1:] / h
    still, moving = np.asarray(state.v).reshape(6, 2).T
    np.testing.assert_allclose(still, 0, atol=1e-12)
    np.testing.assert_allclose(moving, [*(r - before) / (2 * h), *spin], atol=1e-9)


DOOR = mbd.Body("door", BOX)
HINGES = [mbd.Revolute(f"{z}", "ground", DOOR, point=[0, 0, z], axis=Z) for z in (0, 1)]
HUNG = mbd.Mechanism([DOOR], [*HINGES, mbd.Fixed("weld", "ground", DOOR, point=[0, 0, 0])])


@refusals(
    ("no-coordinates", 'Fixed "weld" has no joint coordinates',
     lambda: mbd.place_bodies(HUNG, {"weld": 1.0})),
    ("two-for-one", r'`coordinates` of "0" must have shape \(1,\)',
     lambda: mbd.place_bodies(HUNG, {"0": [1.0, 2.0]})),
    ("unknown", 'There is no joint "x"', lambda: mbd.place_bodies(HUNG, {}, {"x": 1.0})),
    ("loop", '"1" closes a loop', lambda: mbd.place_bodies(HUNG, {"0": 0.1, "1": 0.1})),
)  # fmt: skip
def test_refused(words, call):
    check_refused(call, words)


def test_rates_that_nothing_can_have():
    """The contact of a leaning disc goes where its rim points, along y, and nowhere else."""
    r, lean = 0.2, 0.6
    axis = np.array([np.sin(lean), 0, np.cos(lean)])
    disc = mbd.Body(
        "disc", BOX, position=[0, 0, r * np.sin(lean)],
        orientation=[np.cos(lean / 2), 0, np.sin(lean / 2), 0],
    )  # fmt: skip
    joint = mbd.joints.RollingDisc("roll", "ground", disc, radius=r, axes=(Z, axis),
                            points=([0, 0, 0], [0, 0, r * np.sin(lean)]))  # fmt: skip
    mechanism = mbd.Mechanism([disc], [joint])
    state = mbd.place_bodies(mechanism, {}, {"roll": [0.0, 0.5]})
    rates = jax.jit(lambda q, v: mbd.reports.joint_rates(mechanism, mbd.State(0.0, q, v), "roll"))
    np.testing.assert_allclose(rates(state.q, state.v), [0, 0.5], atol=1e-12)
    v, omega = np.split(np.asarray(state.v), 2)
    rim = r * np.array([np.cos(lean), 0, -np.sin(lean)])
    np.testing.assert_allclose(v + np.cross(omega, rim), 0, atol=1e-12)  # no slip
    with pytest.raises(RuntimeError, match='RollingDisc "roll" cannot move at the rates asked for'):
        mbd.place_bodies(mechanism, {}, {"roll": [0.1, 0.5]})
