"""Models of files against MuJoCo, which computes the same in joint coordinates."""

import equinox as eqx
import jax
import numpy as np
import pytest
from helpers import slow_unless
from inline_models import (
    ARM,
    EQUALITIES,
    JOINTS,
    largest_difference,
    mujoco,
    random_state,
    rows_of,
    spec_of,
)

import jaxmbd as mbd

pytestmark = pytest.mark.filterwarnings("ignore:.*has no counterpart")


@pytest.mark.parametrize(
    "text", slow_unless(lambda text: text is ARM, [ARM, JOINTS]), ids=["arm", "joints"]
)
def test_accelerations_are_those_of_mujoco(text):
    """Of a servo with a limited force, a motor with a gear, spring, damper, rotor, and a body that
    is fixed to another; of all combinations of joints, and tendons."""
    assert largest_difference(spec_of(text, soft=False)) < (1e-12 if text is ARM else 1e-11)


def anywhere(spec, **options):
    """MuJoCo's model and data, the model that is loaded, and its state, in a random state."""
    m = spec.compile()
    d, loaded = mujoco.MjData(m), mbd.load(spec, contacts=False)
    random_state(m, d, np.random.default_rng(0), **options)
    mujoco.mj_forward(m, d)
    return m, d, loaded, loaded.state_from(d.qpos, d.qvel)


@pytest.mark.parametrize("text", [ARM, JOINTS], ids=["arm", "joints"])
def test_bodies_are_where_mujoco_places_them(text):
    """With all combinations of joints: poses and velocities of the bodies."""
    m, d, loaded, state = anywhere(spec_of(text))
    names, of = loaded.mechanism.body_stack.names, loaded.mechanism
    places = jax.jit(lambda q, v: [(of.pose(q, name), of.twist(v, name)) for name in names])
    for name, (pose, twist) in zip(names, places(state.q, state.v), strict=True):
        body, velocity = d.body(name).id, np.zeros(6)
        np.testing.assert_allclose(pose.position, d.xpos[body], atol=1e-14)
        quaternion = np.asarray(pose.orientation)
        np.testing.assert_allclose(abs(quaternion @ d.xquat[body]), 1.0, atol=1e-14)
        mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_XBODY, body, velocity, 0)
        np.testing.assert_allclose(twist.linear, velocity[3:], atol=1e-13)
        np.testing.assert_allclose(twist.angular, velocity[:3], atol=1e-13)
    if text is JOINTS:
        return  # its joint coordinates take long to compile; see the slow test
    qpos, qvel = loaded.qpos_qvel(state)
    np.testing.assert_allclose(qpos, d.qpos, atol=1e-14)
    np.testing.assert_allclose(qvel, d.qvel, atol=1e-13)


@pytest.mark.slow
def test_coordinates_of_all_joints_come_back():
    m, d, loaded, state = anywhere(spec_of(JOINTS))
    qpos, qvel = loaded.qpos_qvel(state)
    ball = m.jnt_qposadr[m.joint("ball").id]
    for i in (3, ball):  # a quaternion and its opposite are the same rotation
        d.qpos[i : i + 4] *= np.sign(d.qpos[i : i + 4] @ np.asarray(qpos[i : i + 4]))
    np.testing.assert_allclose(qpos, d.qpos, atol=1e-13)
    np.testing.assert_allclose(qvel, d.qvel, atol=1e-12)


def test_what_a_file_says_is_found_by_its_names():
    with pytest.warns(UserWarning, match=r'sensor "touch" \(line \d+\): the kind "touch"'):
        arm = mbd.load(spec_of(ARM))
    mechanism = arm.mechanism
    assert mechanism.body_stack.names == ("upper", "lower")
    assert [joint.name for joint in mechanism.joints] == ["shoulder", "elbow"]
    # The motor of the elbow has the name of a joint with a spring.
    names = {force.name: type(force) for force in mechanism.forces}
    assert names == {
        "shoulder": mbd.forces.CoordinateSpring,
        "elbow": mbd.forces.CoordinateSpring,
        "servo": mbd.forces.CoordinateActuator,
        "elbow actuator": mbd.forces.CoordinateActuator,
        "lower gravcomp": mbd.PointForce,
    }
    controls = ("servo", -1.0, 1.0), ("elbow", -np.inf, np.inf)
    assert tuple(map(tuple, arm.controls)) == controls
    assert arm.frames["plate"][0] == arm.frames["tip"][0] == "upper"
    assert arm.dt == 0.001
    assert arm.dropped == ('sensor "touch" (line 29): the kind "touch"',)
    paths = mbd.identify.leaves(mechanism)
    assert "bodies[lower].inertia.mass" in paths and "forces[elbow].stiffness" in paths
    state, same = arm.keyframes["up"], arm.state_from([0.5, -0.4], [0.1, 0.2])
    np.testing.assert_array_equal(np.append(state.q, state.v), np.append(same.q, same.v))
    np.testing.assert_array_equal(arm.key_controls["up"], [0.3, 0.4])
    # Shapes to draw are the geoms. Neighbours do not touch, and parts of one body do not.
    drawn = {visual.name: visual for visual in arm.visuals}
    assert (drawn["floor"].body, drawn["floor"].kind) == ("ground", "plane")
    np.testing.assert_allclose(drawn["lower"].size, (0.03, 0.15))
    np.testing.assert_allclose(drawn["lower"].position, [0.15, 0.0, 0.0])
    names = [contact.name for contact in mechanism.contacts]
    assert names == ["shoulder", "floor-upper", "floor-plate", "floor-lower"]
    contact = mechanism.contact("floor-plate")
    assert isinstance(contact.shape_b, mbd.Box) and float(contact.law.friction) == 1.0
    assert mbd.load(spec_of(ARM), contacts=False, limits=False).mechanism.contacts == ()


@pytest.mark.parametrize(
    "names",
    [("angle", "gyro", "speed"), pytest.param(("felt",), marks=pytest.mark.slow)],
    ids=["of the motion", "of accelerations"],
)
def test_sensors_read_what_those_of_mujoco_read(names):
    _, d, loaded, state = anywhere(spec_of(ARM, soft=False))
    control = loaded.control(d.ctrl)
    sample = mbd.identify.Sample(loaded.mechanism, control, 0.0, state.q, state.v)
    readings = eqx.filter_jit(lambda sample: [loaded.sensors[name](sample) for name in names])
    for name, reading in zip(names, readings(sample), strict=True):
        expected = d.sensor(name).data
        np.testing.assert_allclose(np.ravel(reading), expected, atol=1e-11, err_msg=name)


SLIDE = """
<mujoco>
  <worldbody>
    <body name="cart"><joint name="rail" type="slide" axis="1 0 0"/><geom size="0.1"/></body>
  </worldbody>
  <sensor><jointpos name="place" joint="rail"/><jointvel name="speed" joint="rail"/></sensor>
</mujoco>
"""


def test_a_joint_is_read_from_the_mechanism_of_the_sample():
    """A fit may change the frames of the joint, here by 0.1 m along the rail."""
    loaded = mbd.load(spec_of(SLIDE))
    state = loaded.state_from([0.3], [0.7])
    for shift in (0.0, 0.1):
        changed = {"joints[rail].frame_a.position": shift * np.eye(3)[0]}
        moved = mbd.identify.Leaves(loaded.mechanism)(changed)
        sample = mbd.identify.Sample(moved, None, 0.0, state.q, state.v)
        sensors = loaded.sensors["place"], loaded.reading("rail"), loaded.sensors["speed"]
        found = eqx.filter_jit(lambda sensors, x: [sensor(x) for sensor in sensors])
        expected = [0.3 - shift] * 2 + [0.7]
        np.testing.assert_allclose(np.ravel(found(sensors, sample)), expected, atol=1e-14)


def test_equality_constraints_are_those_of_mujoco():
    """The violation of each. That of a rotation is twice the vector part of the quaternion, of
    which MuJoCo takes the simple one, and vectors are in other axes."""
    m, d, loaded, state = anywhere(spec_of(EQUALITIES), spread=0.2)
    names = tuple(m.equality(i).name for i in range(m.neq))
    rows = rows_of(loaded.mechanism, names, state.q)
    for i, found in enumerate(map(np.asarray, rows)):
        expected = d.efc_pos[d.efc_id == i]
        if found.size == 1:
            np.testing.assert_allclose(found, expected, atol=1e-14)
            continue
        for part, factor in ((slice(0, 3), 1), (slice(3, None), 2)):
            here, there = np.linalg.norm(found[part]), np.linalg.norm(expected[part])
            np.testing.assert_allclose(here, factor * there, atol=1e-14)
