"""Worlds in SDFormat: several models, the ground, what is included, and names within names."""

import numpy as np
import pytest
from refusals import check_refused
from sdf_files import collision, hinge, link, model, sdf, world

import jaxmbd as mbd

PLANE = collision("<plane><normal>0 0 1</normal></plane>", name="floor")
FLOOR = f'<model name="ground"><static>true</static><link name="l">{PLANE}</link></model>'
BALL = collision("<sphere><radius>0.2</radius></sphere>")


def names(found):
    """Of its bodies."""
    return list(found.mechanism.body_stack.names)


def place(found, name):
    """Where a body starts."""
    return np.asarray(found.mechanism.pose_table(found.state.q))[:, names(found).index(name)]


def ends(contact):
    """The bodies of a contact."""
    return contact.body_a, contact.body_b


def frame(found, name):
    """Where a frame is in the world at the start."""
    body, own = found.frames[name]
    if body != "ground":
        own = found.mechanism.pose(found.state.q, body).compose(own)
    return np.concatenate([own.position, own.orientation])


def test_static_models_are_ground(load):
    """The floor is 0.5 m high, the ball at 1 m. The only model that moves keeps its own names."""
    floor = FLOOR.replace("</static>", "</static><pose>0 0 0.5 0 0 0</pose>")
    ball = model(link("ball", BALL) + link("cart"), "robot")
    placed = ball.replace('"robot">', '"robot"><pose>0 0 1 0 0 0</pose>')
    found = load(world(floor + placed))
    assert names(found) == ["ball", "cart"] and not found.dropped
    (contact,) = found.mechanism.contacts
    assert (contact.name, ends(contact)) == ("ground::l::floor-ball::c", ("ground", "ball"))
    assert isinstance(contact.shape_a, mbd.HalfSpace)
    np.testing.assert_allclose(contact.frame_a.position, [0, 0, 0.5])
    np.testing.assert_allclose(place(found, "ball")[:3], [0, 0, 1])
    assert found.frames["ground::l"][0] == "ground"
    np.testing.assert_allclose(contact.law.friction, 1.0)
    assert load(world(floor + placed), contacts=False).mechanism.contacts == ()


def test_several_models_have_the_names_of_the_format(load):
    """Shapes of one model touch each other only if it says so, and never across a joint."""
    robot = link("a", BALL) + link("b", BALL) + hinge("j", "b", "a") + link("c", BALL)
    two = FLOOR + model(robot, "one") + model(robot + "<self_collide>1</self_collide>", "two")
    found = load(world(two))
    all_of_them = [f"{model}::{name}" for model in ("one", "two") for name in "abc"]
    assert names(found) == all_of_them
    assert [joint.name for joint in found.mechanism.joints] == ["one::j", "two::j"]
    pairs = {ends(contact) for contact in found.mechanism.contacts}
    ground = {("ground", name) for name in all_of_them}
    across = {(f"one::{a}", f"two::{b}") for a in "abc" for b in "abc"}
    assert pairs == ground | across | {("two::a", "two::c"), ("two::b", "two::c")}


def test_masks_of_contacts(load):
    """Two shapes touch if a category of one is among those that the other touches."""
    mask = "<surface><contact><collide_bitmask>{}</collide_bitmask>{}</contact></surface>"
    kind = "<category_bitmask>{}</category_bitmask>"
    free = "<collide_without_contact>true</collide_without_contact>"
    for one, other, touch in (
        (mask.format("0x01", ""), mask.format("0x02", ""), False),
        (mask.format("0x03", ""), mask.format("0x02", ""), True),
        (mask.format("1", kind.format("2")), mask.format("2", kind.format("4")), True),
        (mask.replace("<collide_bitmask>{}</collide_bitmask>{}", free), "", False),
    ):
        shapes = [collision("<sphere/>", inside) for inside in (one, other)]
        both = model(link("a", shapes[0]), "one") + model(link("a", shapes[1]), "two")
        assert len(load(world(both)).mechanism.contacts) == touch


def test_friction_and_restitution_of_a_pair_are_the_smaller_ones(load):
    text = """<surface><friction><ode><mu>{0}</mu><mu2>{0}</mu2></ode></friction><bounce>
      <restitution_coefficient>{1}</restitution_coefficient><threshold>0</threshold></bounce>
      </surface>"""
    one, other = (collision("<sphere/>", text.format(*x)) for x in ((0.3, 0.9), (0.7, 0.5)))
    both = model(link("a", one), "one") + model(link("a", other), "two")
    (contact,) = load(world(both)).mechanism.contacts
    np.testing.assert_allclose([contact.law.friction, contact.law.restitution], [0.3, 0.5])


def test_models_are_chosen_by_name(tmp_path, load, refused):
    text = world(FLOOR + model(link("a", BALL), "one") + model(link("a", BALL), "two"))
    alone = load(text, model="two")
    assert names(alone) == ["a"] and not alone.mechanism.contacts
    both = load(text, model=["two", "ground"])
    assert [ends(contact) for contact in both.mechanism.contacts] == [("ground", "a")]
    refused(text, "no model \"three\" among .'ground', 'one', 'two'.", model="three")
    refused(text, "no model that can move, as .'ground'. are <static>: remove", model="ground")
    check_refused(lambda: mbd.load(tmp_path / "m.xml", model="a"), "chooses from a world.*'a'")


def test_the_world_has_gravity_a_step_and_joints(tmp_path, load):
    """Files before version 1.6 have their gravity among the physics. Of several physics the default
    one counts."""
    old = world("<physics><gravity>0 0 -1.6</gravity></physics>" + model(link()), "1.5")
    np.testing.assert_allclose(load(old).mechanism.gravity, [0, 0, -1.6])
    physics = "<gravity>1 2 3</gravity><physics><max_step_size>0.1</max_step_size></physics>"
    physics += '<physics default="true"><max_step_size>0.004</max_step_size></physics>'
    joint = '<joint name="j" type="fixed"><parent>one::a</parent><child>two::a</child></joint>'
    text = world(physics + model(link(), "one") + model(link(), "two") + joint)
    found = load(text)
    np.testing.assert_allclose(found.mechanism.gravity, [1, 2, 3])
    assert found.dt == 0.004
    assert found.mechanism.joint("j").bodies == ("one::a", "two::a")
    with pytest.warns(UserWarning, match='joint "j" .*: holds a model that is not loaded'):
        assert load(text, model="one").mechanism.joints == ()


def test_frames_within_models_within_the_world(load, refused):
    """Poses relative to frames of the world and of nested models, by hand: each turn is 90 degrees
    about z, so x goes to y and y to -x."""
    outer = f"""<model name="outer">
      <pose relative_to="table" degrees="1">1 0 0 0 0 90</pose> {link("base")}
      <model name="inner" placement_frame="grip">
        <pose relative_to="__model__">0 1 0 0 0 0</pose> {link("tip", pose="1 0 0 0 0 0")}
        <frame name="grip" attached_to="tip"><pose>0 0 2 0 0 0</pose></frame>
      </model>
      <frame name="eye" attached_to="inner::tip"><pose>0 0 0.5 0 0 0</pose></frame>
      <link name="hook"><pose relative_to="inner::grip">3 0 0 0 0 0</pose><inertial/>
        <visual name="v"><pose relative_to="base">0 0 1 0 0 0</pose><geometry><box/></geometry>
        </visual></link></model>"""
    table = '<frame name="table"><pose degrees="1">0 0 10 0 0 90</pose></frame>'
    found = load(world(table + outer))
    turn = [0, 0, 0, 1]  # twice 90 degrees
    # The model is at (0, 1, 10), and turned by half a turn.
    np.testing.assert_allclose(place(found, "base"), [0, 1, 10, *turn], atol=1e-15)
    # Its grip is at (0, 1, 0) there; the tip is 2 m below it.
    np.testing.assert_allclose(frame(found, "inner::grip")[:3], [0, 0, 10], atol=1e-15)
    np.testing.assert_allclose(place(found, "inner::tip"), [0, 0, 8, *turn], atol=1e-15)
    np.testing.assert_allclose(place(found, "hook")[:3], [-3, 0, 10], atol=1e-14)
    # The hook is at (3, 1, 0) in its model, what is drawn of it 1 m above the base.
    (visual,) = (x for x in found.visuals if x.name == "v")
    np.testing.assert_allclose(visual.position, [-3, -1, 1], atol=1e-14)
    assert found.frames["eye"][0] == "inner::tip"
    np.testing.assert_allclose(frame(found, "eye")[:3], [0, 0, 8.5], atol=1e-15)
    np.testing.assert_allclose(frame(found, "table")[:3], [0, 0, 10], atol=1e-15)
    lost = outer.replace("inner::grip", "inner::grap")
    refused(world(table + lost), '"grap", which the <model> "inner"')


def test_included_models(tmp_path, load):
    """Beside the file, in a folder with its `model.config`, in a folder above; with other names and
    places than in their own files."""
    folder = tmp_path / "arm"
    folder.mkdir()
    (folder / "old.sdf").write_text("<sdf version='1.4'/>")
    (folder / "new.sdf").write_text(sdf("<pose>9 9 9 0 0 0</pose>" + link("hand")))
    (folder / "model.config").write_text(
        '<model><sdf version="1.4">old.sdf</sdf><sdf version="1.9">new.sdf</sdf></model>'
    )
    (tmp_path / "floor.sdf").write_text(f'<sdf version="1.9">{FLOOR}</sdf>')
    include = "<include><uri>{}</uri><name>{}</name>{}</include>"
    text = world(
        include.format("arm", "one", "<pose>1 0 0 0 0 0</pose>")
        + include.format(f"file://{folder}", "two", "")
        + include.format("model://arm", "three", "<pose>3 0 0 0 0 0</pose>")
        + include.format("arm/new.sdf", "four", "<static>1</static>")
        + include.format("file://floor.sdf", "", "")
    )
    found = load(text)
    assert names(found) == ["one::hand", "two::hand", "three::hand"] and not found.dropped
    for name, x in (("one", [1, 0, 0]), ("two", [9, 9, 9]), ("three", [3, 0, 0])):
        np.testing.assert_allclose(place(found, f"{name}::hand")[:3], x)
    assert found.frames["four::hand"][0] == "ground" == found.frames["ground::l"][0]


def test_what_cannot_be_included(tmp_path, load, refused):
    part, near = "<include><uri>{}</uri></include>", model(link(), "near")
    with pytest.warns(UserWarning, match="https://x.org/a is not downloaded: put it beside"):
        load(world(near + part.format("https://x.org/a")))
    (tmp_path / "two.sdf").write_text(f"<sdf>{model(link(), 'a')}{model(link(), 'b')}</sdf>")
    (tmp_path / "bad.sdf").write_text(sdf(link().replace("<mass>2", "\n<mass>two")))
    for uri, words in (
        ("nowhere", 'line 7: the <include> of the <world> "w" names nowhere, but there'),
        ("", "needs a <uri>"),
        ("ftp://x/a", "only file:// and model:// are read"),
        ("model.sdf", "includes it again"),
        ("two.sdf", "one <model>, but .*two.sdf has 2 elements <model>"),
        ("bad.sdf", 'bad.sdf, line 4: the <inertial><mass> of the <link> "a" must be'),
    ):
        refused(world(near + part.format(uri)), words)


def test_a_merged_model_is_the_same_as_its_parts_in_place(tmp_path, load, refused):
    """Links, joints, axes and frames of the model of another file become those of this one."""
    parts = "<pose>0 0 7 0 0 0</pose>" + link("x", pose="0 0 1 0 0 0")
    parts += link("y", pose="0 2 1 0 0 0") + hinge("j", "y", "x", pose="0 0 0.5 0 0 0")
    parts += '<frame name="f"><pose>0 0 3 0 0 0</pose></frame>'
    text = sdf(parts, "1.9").replace("<xyz>", '<xyz expressed_in="__model__">')
    (tmp_path / "part.sdf").write_text(text.replace('"m"', '"m" placement_frame="x"'))
    # In place: x is at the pose that the include gives, turned about z by 90 degrees.
    pose = '<pose degrees="1">5 0 0 0 0 90</pose>'
    include = f'<include merge="true"><uri>part.sdf</uri>{pose}</include>'
    merged = load(sdf(link("base") + include, "1.9"))
    nested = load(sdf(link("base") + include.replace("true", "false"), "1.9"))
    assert names(merged) == ["base", "x", "y"]
    assert names(nested) == ["base", "m::x", "m::y"]
    half = np.sqrt(0.5)
    np.testing.assert_allclose(place(merged, "x"), [5, 0, 0, half, 0, 0, half], atol=1e-15)
    np.testing.assert_allclose(place(merged, "y")[:3], [3, 0, 0], atol=1e-15)
    np.testing.assert_allclose(merged.state.q, nested.state.q, atol=1e-15)
    for found, name in ((merged, "j"), (nested, "m::j")):
        for end in found.mechanism.frames(found.mechanism.joint(name), found.state.q):
            np.testing.assert_allclose(end.position, [3, 0, 0.5], atol=1e-15)
            np.testing.assert_allclose(end.direction(np.eye(3)[2]), [-1, 0, 0], atol=1e-15)
    np.testing.assert_allclose(frame(merged, "f"), frame(nested, "m::f"), atol=1e-15)
    loose = world(include + model(link()))
    refused(loose, 'merges the model "m" with its links into the <world>')


def test_what_stands_beside_a_world_is_told(load):
    text = world(model(link())).replace("</sdf>", f"<world name='v'/>{model('', 'n')}</sdf>")
    with pytest.warns(UserWarning, match="no counterpart"):
        found = load(text)
    assert [line.partition(" (")[0] for line in found.dropped] == ['world "v"', 'model "n"']
    # Without a world all of them are loaded, also from another ending.
    both = f"<sdf version='1.6'>{model(link(), 'a')}{model(link(), 'b')}</sdf>"
    assert names(load(both, "yard.WORLD")) == ["a::a", "b::a"]


def test_comments_and_prefixes_that_others_accept(load):
    """Two hyphens in a comment, a prefix that is not declared, and an empty line before the first.
    Lines count as they are."""
    seen = "<gui><gz:size><![CDATA[<!-- -->]]></gz:size></gui>"
    text = world("<!-- gz sim -r --verbose\n -->" + model(link()) + seen)
    text = f"\n<?xml version='1.0'?>{text}"
    found = load(text)
    assert names(found) == ["a"] and not found.dropped
    with pytest.warns(UserWarning, match="line 5"):
        load(text.replace("<inertial>", "<kinematic>1</kinematic><inertial>"))


def test_too_many_pairs_are_refused(monkeypatch, load, refused):
    monkeypatch.setattr("jaxmbd.io.sdf.links._MOST", 2)
    many = "".join(model(link("a", BALL), f"m{i}") for i in range(3))
    refused(world(many), "3 pairs of its shapes.*`contacts=False`")
    assert not load(world(many), contacts=False).mechanism.contacts
