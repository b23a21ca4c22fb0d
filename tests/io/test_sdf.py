"""Models in SDFormat, with poses in the model and loops as they are."""

import equinox as eqx
import numpy as np
import pytest
from sdf_files import hinge, link, sdf

import jaxmbd as mbd

DYNAMICS = """<limit><lower>-1</lower><upper>2</upper></limit><dynamics><damping>0.1</damping>
  <spring_stiffness>3</spring_stiffness><spring_reference>0.2</spring_reference></dynamics>"""

UNIVERSAL = """<joint name="j" type="universal"><parent>world</parent><child>a</child>
  <axis><xyz>{}</xyz></axis><axis2><xyz>{}</xyz></axis2></joint>"""
UP = "0 0 0 0 -1.5707963267948966 0"
# A parallelogram: two cranks of 0.3 m and a coupler of 0.6 m.
FOUR_BAR = sdf(
    link("crank", pose=UP)
    + link("rocker", pose=f"0.6 {UP[2:]}")
    + link("coupler", pose="0 0 0.3 0 0 0")
    + hinge("a", "crank", more=DYNAMICS)
    + hinge("b", "coupler", "crank")
    + hinge("c", "rocker")
    + hinge("d", "rocker", "coupler", pose="0.3 0 0 0 0 0")
)


def test_a_loop_is_a_joint_like_the_others(load):
    model = load(FOUR_BAR)
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
    assert load(FOUR_BAR, limits=False).mechanism.contacts == ()

    # Inertias are turned into the axes of the link.
    body = mechanism.body("crank")
    c, s = np.cos(0.3), np.sin(0.3)
    R = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(body.inertia.tensor, R @ np.diag([0.01, 0.02, 0.025]) @ R.T)
    np.testing.assert_allclose(body.inertia.center, [0.1, 0.0, 0.0])


def test_axes_may_be_those_of_the_model(load):
    """`use_parent_model_frame` of old files, which is the default of still older ones;
    `expressed_in` of new ones, or the frame of the joint."""
    arm = link(pose="0 0 0 0 0 1.5707963267948966")
    flag, plain = "<use_parent_model_frame>1</use_parent_model_frame>", hinge()
    expressed = plain.replace("<xyz>", '<xyz expressed_in="__model__">')
    universal = UNIVERSAL.format("0 0 1", "0 1 0")
    for version, held, along, axis in (
        ("1.4", plain, [0, 0, 1.0], [0.0, 1.0, 0.0]),
        ("1.5", plain, [0, 0, 1.0], [-1.0, 0.0, 0.0]),
        ("1.6", hinge(more=flag), [0, 0, 1.0], [0.0, 1.0, 0.0]),
        ("1.9", expressed, [0, 0, 1.0], [0.0, 1.0, 0.0]),
        ("1.9", universal, [1.0, 0, 0], [0.0, 0.0, 1.0]),
        ("1.9", universal, [0, 1.0, 0], [-1.0, 0.0, 0.0]),
    ):
        found = load(sdf(arm + held, version))
        frame, _ = found.mechanism.frames(found.mechanism.joint("j"), found.state.q)
        at = frame.direction(np.array(along))
        np.testing.assert_allclose(at, axis, atol=1e-15, err_msg=f"{version} {along}")


def test_the_place_of_the_model(load, refused):
    """Its pose, and the frame that is placed by it, here the link itself. Places relative to each
    other, and to another model, are refused."""
    arm, half = link("arm", pose="0 0 1 0 0 0"), np.sqrt(0.5)
    turned = "<pose degrees='true'>1 2 3 0 0 90</pose>"
    for named, place in (("", [1.0, 2.0, 4.0]), (' placement_frame="arm"', [1.0, 2.0, 3.0])):
        text = sdf(turned + arm).replace('name="m"', 'name="m"' + named)
        pose = load(text).state.q
        np.testing.assert_allclose(pose, [*place, half, 0.0, 0.0, half], atol=1e-15)
    around = '<frame name="a" attached_to="b"/><frame name="b" attached_to="a"/>'
    lost = sdf(around + arm.replace("<pose>0 0 1", '<pose relative_to="a">0 0 1'))
    refused(lost, "relative to itself")
    other = sdf(turned.replace("<pose", "<pose relative_to='table'") + arm)
    refused(other, 'refers to "table", which the <sdf> does')


def test_a_joint_may_have_the_name_of_its_link(load):
    """As in old files: it is still placed in the frame of the link."""
    text = sdf(link("arm", pose="1 0 0 0 0 0") + hinge("arm", "arm", pose="0 0 0.5 0 0 0"))
    model = load(text)
    a, b = model.mechanism.frames(model.mechanism.joint("arm"), model.state.q)
    np.testing.assert_allclose([a.position, b.position], 2 * [[1, 0, 0.5]], atol=1e-15)


LIGHT = '<link name="a"><inertial><mass>{}</mass></inertial></link>'
BAD = {
    "oblique axes": (
        sdf(link() + UNIVERSAL.format("1 0 0", "0.5 1 0")),
        'line 7: the <joint> "j" must have axes at right angles.*0.447214',
    ),
    "no XML": ("<sdf>", "is not XML"),
    "no model": ("<robot/>", "holds no <model>"),
    "no mass": (sdf(LIGHT.format(0)), '<inertial> of the <link> "a" has the mass 0'),
    "no link": (sdf(""), "no model that can move, as there is no <link>"),
    "no number": (
        sdf(LIGHT.format("two")),
        "model.sdf, line 1: the <inertial><mass> of the <link> \"a\" must be a number.*'two'",
    ),
    "too few numbers": (
        sdf(link().replace("0 0 0 0 0 0", "\n\n0 0")),
        'line 2: the <pose> of the <link> "a" must be 6 numbers.*0 0',
    ),
    "no flag": (sdf(link(inside="<gravity>no</gravity>")), "<gravity>.*true or false.*'no'"),
    "no axis": (
        sdf(link() + hinge().replace("0 1 0", "0 0 0")),
        '"j" needs an <xyz> of its <axis>',
    ),
    "swapped limits": (
        sdf(link() + hinge(more="<limit><lower>1</lower><upper>-1</upper></limit>")),
        '<joint> "j" has a lower limit 1 above its upper one, -1',
    ),
    "negative damping": (
        sdf(link() + hinge(more="<dynamics><damping>-1</damping></dynamics>")),
        'model.sdf, line 8: the <joint> "j": .*damping.*-1',
    ),
    "no tensor": (sdf(link().replace("0.01<", "-0.01<")), "principal moments.*positive"),
    "name clash": (sdf(2 * link()), "names.*'a'.*twice"),
    "unknown link": (sdf(link() + hinge(parent="b")), '"b", which is no <link>'),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_line(name, refused):
    text, words = BAD[name]
    refused(text, words)


MIMIC = {
    # Kinds of follower and leader; multiplier, follower where the leader is 0, and where it is 0.3.
    "belt": ("revolute", "revolute", np.sqrt(2.0), 0.1, 0.1 + 0.3 * np.sqrt(2.0)),
    "rack": ("prismatic", "revolute", 1.7, 0.1, 0.61),
    "turning nut": ("revolute", "screw", 2.0, 0.0, 0.6),
}


def along_y(kind, x):
    """Position and quaternion of a link whose joint along or about y is at x."""
    shift = {"revolute": 0.0, "prismatic": x, "screw": x / (2 * np.pi)}[kind]
    angle = 0.0 if kind == "prismatic" else x / 2
    return [0, shift, 0, np.cos(angle), 0, np.sin(angle), 0]


constraint = eqx.filter_jit(mbd.Mechanism.constraint)


@pytest.mark.parametrize("name", MIMIC)
def test_an_axis_mimics_another(name, load):
    """follower = multiplier (leader - reference) + offset, with a reference of 0.2. The coordinate
    of a screw is its angle; its pitch is 1 m here."""
    *kinds, ratio, start, at = MIMIC[name]
    mimic = f"""<mimic joint="l"><multiplier>{ratio}</multiplier><reference>0.2</reference>
      <offset>{start + 0.2 * ratio}</offset></mimic>"""
    parts = ""
    for joint, kind, more in zip("fl", kinds, (mimic, ""), strict=True):
        parts += link(joint * 2) + hinge(joint, joint * 2, kind=kind, more=more)
    mechanism = load(sdf(parts)).mechanism
    assert list(mechanism.body_stack.names) == ["ff", "ll"]
    right, wrong = (
        np.array([along_y(kinds[0], x), along_y(kinds[1], 0.3)]).T.ravel() for x in (at, -at)
    )
    assert np.abs(constraint(mechanism, right, 0.0)).max() < 1e-12
    assert np.abs(constraint(mechanism, wrong, 0.0)).max() > 0.05


@pytest.mark.parametrize("given", ["screw_thread_pitch>-0.1", "thread_pitch>62.831853071795864"])
def test_forces_along_a_screw_are_those_of_its_angle(given, load):
    """A stiffness is in N m, limits are angles: of a pitch of 0.1 m and half a turn, 0.05 m. Old
    files give radians per metre, positive for a left-handed thread."""
    more = """<limit><lower>-1</lower><upper>4</upper></limit><dynamics>
      <spring_stiffness>3</spring_stiffness><spring_reference>1</spring_reference></dynamics>"""
    pitch = f"<{given}</{given.partition('>')[0]}></joint>"
    screw = hinge("s", more=more, kind="screw").replace("</joint>", pitch)
    mechanism = load(sdf(link() + screw)).mechanism
    q = np.array([0, -0.05, 0, *along_y("screw", np.pi)[3:]])

    @eqx.filter_jit
    def along(mechanism, q):
        (spring,), (limit,) = mechanism.forces, mechanism.contacts
        poses = mechanism.frames(mechanism.joint("s"), q)
        return spring.energy(poses, 0.0), limit.gaps(poses, 0.0), mechanism.constraint(q, 0.0)

    energy, gaps, phi = along(mechanism, q)
    assert np.abs(phi).max() < 1e-14
    np.testing.assert_allclose(energy, 3 * (np.pi - 1) ** 2 / 2)
    np.testing.assert_allclose(gaps, [np.pi + 1, 4 - np.pi])


@pytest.mark.parametrize("low, high", [(-4.0, 4.0), (-9.0, -1.0)])
def test_limits_that_are_a_turn_or_more_apart(low, high, load):
    """They are kept, and the angle in the pose of the file is 0."""
    more = f"<limit><lower>{low}</lower><upper>{high}</upper></limit>"
    found = load(sdf(link() + hinge(more=more)))
    gaps = eqx.filter_jit(mbd.Mechanism.gap)(found.mechanism, found.state.q, 0.0)
    np.testing.assert_allclose(gaps, [-low, high], atol=1e-14)
    assert not found.dropped
