"""What a file in SDFormat holds is read, told, or without effect on motions."""

import warnings

import numpy as np
import pytest
from sdf_files import collision, hinge, link, model, sdf, world

import jaxmbd as mbd
from jaxmbd.io.sdf.document import Node
from jaxmbd.io.sdf.table import table

# What is in a file once, with all that the table knows, and what it needs to be a model.
NEEDED = {
    "model": link("base") + "<include><uri>part.sdf</uri>{include}</include>",
    "joint": "<parent>world</parent><child>base</child>",
    "geometry": "<box/>",
    "axis2": "<xyz>1 0 0</xyz>",
}
ATTRIBUTES = {"joint": 'type="universal"', "axis": "", "axis2": "", "sdf": 'version="1.12"'}
# Recursions, and what chooses other files, worlds or ways to state a thing.
LEFT_OUT = "include axis2/xyz model/model sdf/model world/joint world/frame mimic".split()
NAMED = ("sdf", "world", "model", "link", "joint", "collision", "visual", "frame")


def children(entry, path):
    """The entries below one of the table, with their paths."""
    paths = {f"{path}/{name}": one for name, one in entry.below.items()}
    return {at: x for at, x in paths.items() if not at.endswith(tuple(f"/{y}" for y in LEFT_OUT))}


def leaves(entry, path):
    for at, one in children(entry, path).items():
        yield at, one
        yield from leaves(one, at)


def other(default):
    """A value that is not the default."""
    if default in ("true", "false"):
        return "false" if default == "true" else "true"
    return " ".join(["7"] * max(1, len(default.split())))


def written(entry, tag, verdict, value, path):
    """An element with everything below it that has a verdict, and the lines that tell so."""
    text, own = "", ATTRIBUTES.get(tag, "")
    for at, one in children(entry, path).items():
        name = at.rpartition("/")[2]
        if name.startswith("@"):
            if one.verdict == verdict and name != "@name":
                own += f' {name[1:]}="{value(one.default)}"'
        elif one.verdict == "read":
            text += written(one, name, verdict, value, at)
        elif one.verdict == verdict:
            named = f' name="{name} x"' if one.whole else ""
            text += f"<{name}{named}>{'' if one.whole else value(one.default)}</{name}>"
    if tag in NAMED[1:]:
        own += f' name="{tag} x"'
    return f"<{tag} {own}>{NEEDED.get(tag, '')}{text}</{tag}>"


def everything(verdict, value, tmp_path, load):
    """A model with all entries of a verdict, which includes another file."""
    (tmp_path / "part.sdf").write_text(sdf(link("part")))
    text = written(table()["sdf"], "sdf", verdict, value, "/sdf")
    given = "<model_state/><plugin name='p'/>" if verdict == "told" else ""
    return load(text.replace("{include}", given))


@pytest.mark.filterwarnings("ignore:.*no counterpart")
def test_each_entry_of_the_table_is_told(tmp_path, load):
    """A model that holds each told element and attribute, at another value than the default: all of
    them are told, by name and line. At the defaults none is but what has no default."""
    told = [(at, x) for at, x in leaves(table()["sdf"], "/sdf") if x.verdict == "told"]
    assert len(told) > 120
    lines = everything("told", other, tmp_path, load).dropped
    for at, entry in told:
        parts = at.split("/")[1:]
        owner = max(i for i, part in enumerate(parts) if part in NAMED)
        path = "".join(f"<{part}>" for part in parts[owner + 1 :] if part[0] != "@")
        if parts[-1].startswith("@"):
            path += f' has {parts[-1][1:]}="'
        # A whole element has a name of its own.
        said = [(f'{parts[owner]} "', f"): {path}"), (f'{parts[-1]} "', "): not read")]
        which = said[entry.whole]
        assert any(line.startswith(which[0]) and which[1] in line for line in lines), at
    assert all("(line " in line for line in lines)
    assert len(lines) >= len(told) + 2  # the include has a state and a plugin
    at_defaults = everything(
        "told", lambda x: x.replace("unlimited", "inf"), tmp_path, load
    ).dropped
    assert len(at_defaults) <= sum(entry.whole for _, entry in told) + 3


def test_what_has_no_effect_is_not_told(tmp_path, load):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everything("none", lambda default: "7", tmp_path, load)


SHAPES = "box capsule cone cylinder ellipsoid plane sphere".split()
# Of these the reader tells what is below, or asks by the path of that.
BELOW = set(
    "@version wind velocity_decay fluid_added_mass physics dart simbody torsional bullet "
    "constraints soft_contact limit suspension".split()
).union(SHAPES)


@pytest.mark.filterwarnings("ignore:.*no counterpart")
def test_what_the_table_calls_read_is_asked_for(tmp_path, monkeypatch, load):
    """Of elements, by names."""
    asked = set()
    for method, mark in (("all", ""), ("find", ""), ("get", "@")):

        def told(node, path, inner=getattr(Node, method), mark=mark):
            asked.update(mark + name for name in path.split("/"))
            return inner(node, path)

        monkeypatch.setattr(Node, method, told)
    parts = "".join(
        collision(f"<{x}/>", name=x)
        + f'<visual name="{x}"><geometry><{x}/></geometry><material/></visual>'
        for x in SHAPES
    )
    axes = '<axis><xyz>1 0 0</xyz><mimic joint="universal"/></axis><axis2><xyz>0 1 0</xyz></axis2>'
    inside = f"{ENDS}{axes}<thread_pitch>1</thread_pitch>"
    kinds = "revolute universal screw gearbox ball".split()
    (tmp_path / "part.sdf").write_text(sdf(link("part")))
    text = (
        link(inside=collision("<sphere/>"))
        + f'<link name="b"><inertial auto="true"/>{parts}</link>'
        + "".join(f'<joint name="{x}" type="{x}">{inside}</joint>' for x in kinds)
        + '<frame name="f" attached_to="a"><pose>0 0 0 0 0 0</pose></frame>'
        + '<include merge="1"><uri>part.sdf</uri></include>'
    )
    load(world(f'<physics type="ode"/>{model(text)}'))
    entries = leaves(table()["sdf"], "/sdf")
    assert {at.rpartition("/")[2] for at, x in entries if x.verdict == "read"} - asked <= BELOW


def test_what_the_table_does_not_know_is_told(load):
    inside = link(inside='<new_thing>3</new_thing><gz:box xmlns:gz="x"/>')
    with pytest.warns(UserWarning, match="no counterpart"):
        lines = load(sdf(inside.replace('name="a"', 'name="a" odd="1"'))).dropped
    assert list(lines) == [
        'link "a" (line 2): has odd="1", which is no attribute of SDFormat 1.12',
        'link "a" (line 7): <new_thing> is no element of SDFormat 1.12',
        'link "a" (line 7): <gz:box> is no element of SDFormat 1.12',
    ]


def test_equal_reasons_are_told_on_one_line(load):
    surface = "<surface><contact><ode><kp>1e6</kp></ode></contact></surface>"
    inside = "".join(link(name, collision("<sphere/>", surface)) for name in "abcdefg")
    with pytest.warns(UserWarning, match=r"a::c\" .*and 3 more: <surface>.*<kp> 1e6 is not read"):
        load(sdf(inside))
    assert not load(sdf(inside), contacts=False).dropped


def test_limits_that_mean_none_are_not_told(load):
    """Negative efforts of old files, and large ones. Others are told."""
    for effort, told in (("-1", []), ("1e16", []), ("inf", []), ("30", ["<limit><effort> 30 is"])):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            more = f"<limit><effort>{effort}</effort></limit>"
            found = load(sdf(link() + hinge(more=more))).dropped
        assert len(found) == len(told) == len(caught)
        assert all(words in line for words, line in zip(told, found))


ENDS = "<parent>world</parent><child>a</child>"
SURFACE = "<surface><friction><ode><mu>0.5</mu></ode></friction></surface>"
ONLY_READER = {
    "no mass distribution": link().replace("0.025<", "0.05<"),
    'has the type "plane"': link() + f'<joint name="j" type="plane">{ENDS}</joint>',
    'mimics "k"': link() + hinge(more="<mimic joint='k'/>"),
    "which a ball does not have": link()
    + f'<joint name="j" type="ball">{ENDS}<axis><dynamics><damping>1</damping></dynamics>'
    "</axis></joint>",
    "friction is 0.5 in all": link(inside=collision("<sphere/>", SURFACE)),
    "cone> touches nothing": link(inside=collision("<cone/>")),
}


@pytest.mark.parametrize("words", ONLY_READER)
def test_what_only_the_reader_can_tell(words, load):
    with pytest.warns(UserWarning, match="no counterpart"):
        (line,) = load(sdf(ONLY_READER[words])).dropped
    assert words in line and "(line " in line


def test_a_link_without_weight_falls_up_by_none(load):
    """The force at its centre of mass is its weight, upwards."""
    found = load(sdf(link(inside="<gravity>false</gravity>")))
    (lift,) = found.mechanism.forces
    assert isinstance(lift, mbd.PointForce) and lift.force_world is not None
    assert not found.dropped
    np.testing.assert_allclose(lift.force_world(0.0, None), [0, 0, 2 * 9.8])
    np.testing.assert_allclose(lift.frame.position, [0.1, 0, 0])
    assert load(sdf(link(inside="<gravity>1</gravity>"))).mechanism.forces == ()
