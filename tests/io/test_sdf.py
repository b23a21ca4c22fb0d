"""Models in SDFormat, with poses in the model and loops as they are."""

import numpy as np
import pytest
from refusals import check_refused

import jaxmbd as mbd

LINK = """
<link name="{name}"><pose>{pose}</pose>
  <inertial><pose>0.1 0 0 0 0 0.3</pose><mass>2</mass>
    <inertia><ixx>0.01</ixx><iyy>0.02</iyy><izz>0.025</izz><ixy>0</ixy><ixz>0</ixz><iyz>0</iyz></inertia>
  </inertial>
  <visual name="{name} box"><geometry><box><size>0.2 0.1 0.1</size></box></geometry></visual>
</link>"""
HINGE = """
<joint name="{name}" type="revolute"><parent>{parent}</parent><child>{child}</child>
  <pose>{pose}</pose><axis><xyz>0 1 0</xyz>{more}</axis></joint>"""
DYNAMICS = """<limit><lower>-1</lower><upper>2</upper></limit><dynamics><damping>0.1</damping>
  <spring_stiffness>3</spring_stiffness><spring_reference>0.2</spring_reference></dynamics>"""


def sdf(inside, version="1.6"):
    return f'<sdf version="{version}"><model name="m">{inside}</model></sdf>'


# A parallelogram: two cranks of 0.3 m and a coupler of 0.6 m.
FOUR_BAR = sdf(
    LINK.format(name="crank", pose="0 0 0 0 -1.5707963267948966 0")
    + LINK.format(name="rocker", pose="0.6 0 0 0 -1.5707963267948966 0")
    + LINK.format(name="coupler", pose="0 0 0.3 0 0 0")
    + HINGE.format(name="a", parent="world", child="crank", pose="0 0 0 0 0 0", more=DYNAMICS)
    + HINGE.format(name="b", parent="crank", child="coupler", pose="0 0 0 0 0 0", more="")
    + HINGE.format(name="c", parent="world", child="rocker", pose="0 0 0 0 0 0", more="")
    + HINGE.format(name="d", parent="coupler", child="rocker", pose="0.3 0 0 0 0 0", more="")
)


def loaded(text, tmp_path, **options):
    path = tmp_path / "model.sdf"
    path.write_text(text)
    return mbd.load(path, **options)


def test_a_loop_is_a_joint_like_the_others(tmp_path):
    model = loaded(FOUR_BAR, tmp_path)
    mechanism = model.mechanism
    assert [type(joint) for joint in mechanism.joints] == 4 * [mbd.Revolute]
    assert np.abs(mechanism.constraint(model.state.q, 0.0)).max() < 1e-14
    np.testing.assert_allclose(mechanism.gravity, [0.0, 0.0, -9.8])
    # The hinge "d" is at the end of the rocker, 0.3 m along its x axis, which points upwards.
    a, b = mechanism.frames(mechanism.joint("d"), model.state.q)
    np.testing.assert_allclose(a.position, [0.6, 0.0, 0.3], atol=1e-15)
    np.testing.assert_allclose(b.position, [0.6, 0.0, 0.3], atol=1e-15)
    spring = mechanism.force_element("a")
    assert (float(spring.stiffness), float(spring.damping)) == (3.0, 0.1)
    limit = mechanism.contact("a")
    assert (float(limit.lower), float(limit.upper)) == (-1.0, 2.0)
    assert model.visuals[0].size == (0.1, 0.05, 0.05) and not model.dropped
    assert loaded(FOUR_BAR, tmp_path, limits=False).mechanism.contacts == ()


@pytest.mark.slow
def test_a_loop_counts_once(tmp_path):
    found = mbd.reports.mobility(loaded(FOUR_BAR, tmp_path).mechanism)
    assert found.freedoms == 1 and len(found.redundant) == 3


def test_inertias_are_turned_into_the_axes_of_the_link(tmp_path):
    body = loaded(FOUR_BAR, tmp_path).mechanism.body("crank")
    c, s = np.cos(0.3), np.sin(0.3)
    R = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(body.inertia.tensor, R @ np.diag([0.01, 0.02, 0.025]) @ R.T)
    np.testing.assert_allclose(body.inertia.center, [0.1, 0.0, 0.0])


def test_axes_may_be_those_of_the_model(tmp_path):
    """`use_parent_model_frame` of old files, which is the default of still older ones;
    `expressed_in` of new ones, or the frame of the joint."""
    link = LINK.format(name="arm", pose="0 0 0 0 0 1.5707963267948966")
    for version, more, axis in (
        ("1.4", "", [0.0, 1.0, 0.0]),
        ("1.5", "", [-1.0, 0.0, 0.0]),
        ("1.6", "<use_parent_model_frame>1</use_parent_model_frame>", [0.0, 1.0, 0.0]),
    ):
        hinge = HINGE.format(name="a", parent="world", child="arm", pose="0 0 0 0 0 0", more=more)
        model = loaded(sdf(link + hinge, version), tmp_path)
        frame, _ = model.mechanism.frames(model.mechanism.joint("a"), model.state.q)
        np.testing.assert_allclose(frame.direction(np.array([0.0, 0.0, 1.0])), axis, atol=1e-15)
    hinge = hinge.replace("<xyz>", '<xyz expressed_in="__model__">').replace(more, "")
    model = loaded(sdf(link + hinge, "1.9"), tmp_path)
    frame, _ = model.mechanism.frames(model.mechanism.joint("a"), model.state.q)
    np.testing.assert_allclose(frame.direction(np.array([0.0, 0.0, 1.0])), [0, 1, 0], atol=1e-15)


def test_the_place_of_the_model(tmp_path):
    """Its pose, and the frame that is placed by it, here the link itself. Places relative to each
    other, and to another model, are refused."""
    link = LINK.format(name="arm", pose="0 0 1 0 0 0")
    turned = "<pose degrees='true'>1 2 3 0 0 90</pose>"
    for named, place in (("", [1.0, 2.0, 4.0]), (' placement_frame="arm"', [1.0, 2.0, 3.0])):
        text = sdf(turned + link).replace('name="m"', 'name="m"' + named)
        pose = loaded(text, tmp_path).state.q
        half = np.sqrt(0.5)
        np.testing.assert_allclose(pose, [*place, half, 0.0, 0.0, half], atol=1e-15)
    around = '<frame name="a" attached_to="b"/><frame name="b" attached_to="a"/>'
    lost = link.replace("<pose>0 0 1", '<pose relative_to="a">0 0 1')
    check_refused(lambda: loaded(sdf(around + lost), tmp_path), "relative to itself")
    other = turned.replace("<pose", "<pose relative_to='table'")
    check_refused(lambda: loaded(sdf(other + link), tmp_path), "relative to .table., which is not")


def test_a_universal_joint_has_its_two_axes(tmp_path):
    link = LINK.format(name="arm", pose="0 0 0 0 0 0")
    joint = """<joint name="u" type="universal"><parent>world</parent><child>arm</child>
      <axis><xyz>0 0 1</xyz></axis><axis2><xyz>0 1 0</xyz></axis2></joint>"""
    model = loaded(sdf(link + joint), tmp_path)
    frame, _ = model.mechanism.frames(model.mechanism.joint("u"), model.state.q)
    for own, axis in (([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]), ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])):
        np.testing.assert_allclose(frame.direction(np.array(own)), axis, atol=1e-15)


@pytest.mark.parametrize(
    "pitch",
    ["<screw_thread_pitch>0.1</screw_thread_pitch>", "<thread_pitch>-62.8318530718</thread_pitch>"],
)
def test_a_screw_advances_by_its_pitch(pitch, tmp_path):
    """Old files give radians per metre, positive for a left-handed thread."""
    joint = f"""<joint name="s" type="screw"><parent>world</parent><child>nut</child>
      <axis><xyz>0 0 1</xyz></axis>{pitch}</joint>"""
    model = loaded(sdf(LINK.format(name="nut", pose="0 0 0 0 0 0") + joint), tmp_path)
    np.testing.assert_allclose(model.mechanism.joint("s").pitch, 0.1, rtol=1e-11)


BAD = {
    "oblique axes": (
        sdf(
            LINK.format(name="a", pose="0 0 0 0 0 0")
            + """<joint name="u" type="universal"><parent>world</parent><child>a</child>
            <axis><xyz>1 0 0</xyz></axis><axis2><xyz>0.5 1 0</xyz></axis2></joint>"""
        ),
        'axes of the joint "u" must be at right angles.*0.447214',
    ),
    "no XML": ("<sdf>", "is not XML"),
    "no model": ("<robot/>", "holds no <model>"),
    "no mass": (sdf('<link name="a"/>'), 'link> "a" has no mass'),
    "no tensor": (
        sdf(LINK.format(name="a", pose="0 0 0 0 0 0").replace("0.01<", "-0.01<")),
        "principal moments.*positive",
    ),
    "name clash": (sdf(2 * LINK.format(name="a", pose="0 0 0 0 0 0")), "names.*'a'.*twice"),
    "unknown link": (
        sdf(
            LINK.format(name="a", pose="0 0 0 0 0 0")
            + HINGE.format(name="j", parent="b", child="a", pose="0 0 0 0 0 0", more="")
        ),
        '"b", which is no <link>',
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_line(name, tmp_path):
    text, words = BAD[name]
    check_refused(lambda: loaded(text, tmp_path), words)


def test_what_is_dropped_is_told(tmp_path):
    link = LINK.format(name="a", pose="0 0 0 0 0 0").replace("0.025<", "0.05<")
    ends = "<parent>a</parent><child>a</child>"
    more = f'<plugin name="p"/><joint name="j" type="gearbox">{ends}</joint>'
    with pytest.warns(UserWarning, match="(?s)no mass distribution.*gearbox.*plugin"):
        loaded(sdf(link + more), tmp_path)
    link = LINK.format(name="a", pose="0 0 0 0 0 0").replace("<inertial>", "{}<inertial>", 1)
    mimic = HINGE.format(
        name="j", parent="world", child="a", pose="0 0 0 0 0 0", more="<mimic joint='k'/>"
    )
    off = "<static>1</static>" + link.format("<gravity>false</gravity>") + mimic
    with pytest.warns(UserWarning, match="(?s)static.*no weight.*mimics"):
        loaded(sdf(off), tmp_path)
    second = sdf(LINK.format(name="a", pose="0 0 0 0 0 0")).replace(
        "</model>", "</model><model name='second'/>"
    )
    with pytest.warns(UserWarning, match='model "second": not read'):
        loaded(second, tmp_path)
    on = loaded(sdf(link.format("<gravity>1</gravity>")), tmp_path)
    np.testing.assert_allclose(on.mechanism.gravity, [0.0, 0.0, -9.8])
