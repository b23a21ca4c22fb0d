"""What URDF says beyond bodies and joints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from inline_models import mujoco

import jaxmbd as mbd
from jaxmbd.io.compiled import _heard

pytestmark = pytest.mark.filterwarnings("ignore:.*has no counterpart")

INERTIAL = (
    '<inertial><mass value="1"/>'
    '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'
)
ROBOT = f"""<?xml version="1.0"?>
<!-- a <robot> of two links -->
<robot name="two">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="base"><visual><geometry><box size="1 1 0.1"/></geometry></visual></link>
  <link name="one">{INERTIAL}
    <visual><origin xyz="0 0 0.2"/><geometry><cylinder radius="0.1" length="0.4"/></geometry>
      <material name="red"/></visual>
    <visual><geometry><mesh filename="package://two/drawn/part.stl" scale="2 2 2"/></geometry>
    </visual>
    <collision><geometry><mesh filename="package://two/hull/part.stl"/></geometry></collision>
  </link>
  <link name="hand">
    <inertial><mass value="0.5"/>
      <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual name="palm"><origin rpy="0 0 1.5"/><geometry><sphere radius="0.1"/></geometry></visual>
  </link>
  <link name="two"><collision><geometry><sphere radius="0.1"/></geometry></collision></link>
  <joint name="lead" type="revolute">
    <parent link="base"/><child link="one"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="5" velocity="0"/>
  </joint>
  <joint name="grip" type="fixed">
    <parent link="one"/><child link="hand"/><origin xyz="0 0 0.4"/>
    <limit effort="1" velocity="1"/>
  </joint>
  <joint name="follow" type="continuous">
    <parent link="one"/><child link="two"/><origin xyz="1 0 0"/><axis xyz="0 0 1"/>
    <limit effort="0" velocity="3"/>
    <mimic joint="lead" multiplier="-2" offset="0.1"/>
  </joint>
  <transmission name="drive">
    <type>transmission_interface/SimpleTransmission</type>
    <joint name="lead"><hardwareInterface>EffortJointInterface</hardwareInterface></joint>
    <actuator name="motor"><mechanicalReduction>50</mechanicalReduction></actuator>
  </transmission>
  <gazebo reference="one"><mu1>0.2</mu1></gazebo>
</robot>
"""


def write_mesh(path, size):
    """A tetrahedron, as binary STL."""
    corners = size * np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    faces = np.array([(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)])
    table = np.zeros(4, [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("rest", "<u2")])
    table["corners"] = corners[faces]
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(80) + np.uint32(4).tobytes() + table.tobytes())


@pytest.fixture
def load(tmp_path):
    """A function that loads a text beside the two meshes."""
    write_mesh(tmp_path / "two" / "drawn" / "part.stl", 0.1)
    write_mesh(tmp_path / "two" / "hull" / "part.stl", 0.3)

    def loaded(text=ROBOT, name="two.urdf", **options):
        (tmp_path / name).write_text(text)
        return mbd.load(tmp_path / name, **options)

    return loaded


def test_what_is_drawn_is_the_visual(load):
    """In the pose of its link, in its colour. Shapes for contact are of a group that is not drawn
    where a body has others."""
    loaded = load()
    drawn = {x.name: x for x in loaded.visuals if x.group <= 2}
    assert set(drawn) == {"base visual", "one visual", "one visual 2", "hand visual"}
    cylinder, mesh, palm = drawn["one visual"], drawn["one visual 2"], drawn["hand visual"]
    assert cylinder.kind == "cylinder" and cylinder.body == "one"
    np.testing.assert_allclose(cylinder.size, [0.1, 0.2])
    np.testing.assert_allclose(cylinder.position, [0, 0, 0.2])
    np.testing.assert_allclose(cylinder.rgba, [1, 0, 0, 1])
    # MuJoCo moves the frame of a mesh to its centre.
    turned = mbd.Pose(mesh.position, mesh.orientation)
    corners = np.array([np.asarray(turned.point(x)) for x in mesh.vertices])
    np.testing.assert_allclose(np.sort(corners.max(axis=0)), 0.2, atol=1e-6)
    np.testing.assert_allclose(corners.min(axis=0), 0.0, atol=1e-6)
    # "hand" is fixed to "one".
    assert palm.body == "one" and drawn["base visual"].body == "ground"
    np.testing.assert_allclose(palm.position, [0, 0, 0.4])
    others = [x for x in loaded.visuals if x.group > 2]
    assert sorted((x.body, x.kind) for x in others) == [("one", "mesh"), ("two", "sphere")]


def test_visuals_change_nothing_that_moves(load):
    """The mesh for contacts stays that of its own folder, and a link without `<inertial>` has the
    mass of its shapes for contact."""
    loaded, text = load(), ROBOT.replace("<visual", "<!-- <visual")
    bare = load(text.replace("</visual>", "</visual> -->"))
    for one, other in zip(loaded.mechanism.bodies, bare.mechanism.bodies, strict=True):
        assert one.name == other.name and float(one.inertia.mass) == float(other.inertia.mass)
        np.testing.assert_array_equal(one.inertia.tensor, other.inertia.tensor)
    [hull] = [x for x in loaded.visuals if x.kind == "mesh" and x.group > 2]
    apart = np.linalg.norm(hull.vertices[:, None] - hull.vertices, axis=-1).max()
    np.testing.assert_allclose(apart, 0.3 * np.sqrt(2), rtol=1e-6)
    mass = float(loaded.mechanism.body("two").inertia.mass)
    np.testing.assert_allclose(mass, 1000 * 4 / 3 * np.pi * 0.1**3)
    assert len(bare.visuals) == 2


def test_a_floating_base(load):
    text = ROBOT.replace('<link name="base">', f'<link name="base">{INERTIAL}')
    assert load(text, floating=True).sizes == (9, 8) and load(text).sizes == (2, 2)


def test_what_is_left_of_a_robot_is_told(load):
    assert set(load().dropped) == {
        'transmission "drive": the motor of "lead" with the ratio 50. Give the mechanism a '
        "`CoordinateActuator` on `loaded.coordinate(...)`",
        'joint "lead": the limit of its effort, since no actuator acts on it',
        'joint "follow": the limit of its velocity',
        'robot "two": its element `gazebo`',
    }


MIMIC = '<mimic joint="lead"'


@pytest.mark.parametrize(
    "before, after, told",
    [
        (MIMIC, '<mimic joint="gone"', '"gone", which is missing'),
        ('"lead" type="revolute"', '"lead" type="planar"', '"lead", which is planar'),
        ('"follow" type="continuous"', '"follow" type="fixed"', "it is fixed, and does not"),
    ],
    ids=["missing", "planar", "itself fixed"],
)
def test_a_mimic_that_is_not_read_is_told(load, before, after, told):
    loaded = load(ROBOT.replace(before, after), contacts=False)
    [line] = [line for line in loaded.dropped if "not follow" in line]
    assert line.startswith('joint "follow"') and told in line
    assert not any(isinstance(j, mbd.joints.CoordinateConstraint) for j in loaded.mechanism.joints)


def test_a_mimic_holds_at_any_number_of_turns(load):
    """At a pose alone, which does not tell the turns."""
    loaded = load(contacts=False)
    mechanism = loaded.mechanism

    @jax.jit
    def row(turned, beyond):
        state = loaded.state_from(jnp.stack([turned, 0.1 - 2 * turned + beyond]))
        return mechanism.constraint(state.q, 0.0)[mechanism.rows(mechanism.joints[-1].name)[0]]

    for turned in (0.3, 20.0, -7.0):
        np.testing.assert_allclose(row(turned, 0.0), 0.0, atol=1e-12)
        np.testing.assert_allclose(np.abs(row(turned, 0.1)), 0.1, rtol=1e-9)


def test_what_mujoco_warns_of_is_told(capfd):
    """It would write a warning to a file and to the terminal only."""
    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body><joint/><geom size="0.1"/></body></worldbody></mujoco>'
    )
    with _heard(mujoco) as said:
        d = mujoco.MjData(spec.compile())
        d.qpos[0] = np.nan
        mujoco.mj_checkPos(d.model, d)
    assert len(said) == 1 and "QPOS" in said[0]
    assert mujoco.get_mju_user_warning() is None
    assert "QPOS" not in capfd.readouterr().err


def test_meshes_that_cannot_be_drawn_are_told(load, tmp_path):
    """A format that is not read, a file that is missing, and one that is damaged. The robot loads
    with its other shapes."""
    for name in ("part.dae", "gone.stl"):
        loaded = load(ROBOT.replace("drawn/part.stl", f"drawn/{name}"))
        assert sum(x.group <= 2 for x in loaded.visuals) == 3
        assert any(line.startswith("mesh ") and name in line for line in loaded.dropped)
    (tmp_path / "two" / "drawn" / "part.stl").write_bytes(b"no mesh")
    loaded = load()
    assert {x.kind for x in loaded.visuals} == {"mesh", "sphere"}
    assert any(line.startswith("robot visuals: ") for line in loaded.dropped)


def test_urdf_is_known_by_its_root(load):
    for name in ("two.URDF", "two.xml"):
        assert [joint.name for joint in load(name=name).joints] == ["lead", "follow"]


def test_a_xacro_is_refused(refused):
    text = """<robot name="two" xmlns:xacro="http://www.ros.org/wiki/xacro">
      <xacro:property name="x" value="1"/></robot>"""
    refused(text, "is a xacro.*xacro two.urdf", name="two.urdf")
