"""Files that cannot be loaded are refused in one line."""

import numpy as np
import pytest
from inline_models import spec_of
from refusals import check_refused

import jaxmbd as mbd

HINGE = '<joint axis="0 1 0"/>'
BODY = '<body name="arm">{}<geom size="0.1" pos="0.3 0 0"/></body>'


def model(inside, more=""):
    return f"<mujoco>{more}<worldbody>{inside}</worldbody></mujoco>"


MESH = '<body><joint/><geom type="mesh" mesh="part"/></body>'
BAD = {
    "missing mesh": (
        model(MESH, '<asset><mesh name="part" file="nowhere.stl"/></asset>'),
        "nowhere.stl.*Put the mesh there",
    ),
    "unknown element": (model("<bodi/>"), "bodi.*line 1|unrecognized.*bodi"),
    "massless body": (model(f'<body name="thin">{HINGE}</body>'), "mass and inertia.*thin"),
    "no XML": ("<mujoco><worldbody>", "not a model that MuJoCo reads"),
    "name clash": (model(2 * BODY.format(HINGE)), "repeated name 'arm'.*Rename"),
    "nothing moves": (model(BODY.format("")), "no body that can move"),
    "parallel axes": (
        model(BODY.format(HINGE + '<joint axis="0 1 0" pos="0 0 1"/>')),
        "no counterpart.*body with some mass between",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_line(name, refused):
    refused(*BAD[name], name="model.xml")


def test_other_files_are_refused(tmp_path, refused):
    for name in ("none.xml", "none.json"):
        check_refused(lambda x=name: mbd.load(tmp_path / x), "There is no file")
    refused("{}", "not written by `mbd.save`", name="other.json")
    refused('{"format": "jaxmbd", "version": 9}', "version 9", name="other.json")


def test_a_size_in_another_unit_is_told():
    large = BODY.replace("0.1", "400").replace("0.3", "900").format(HINGE)
    with pytest.warns(UserWarning, match="units: the largest part is 800 m.*millimetres"):
        mbd.load(spec_of(model(large)))


def test_wrong_numbers_of_entries_are_refused():
    loaded = mbd.load(spec_of(model(BODY.format(HINGE))))
    check_refused(lambda: loaded.state_from([0.1, 0.2]), "`qpos` must have 1 entries.*'arm joint'")
    check_refused(lambda: loaded.state_from([0.1], np.zeros(3)), "`qvel` must have 1 entries")
    check_refused(lambda: loaded.control([1.0]), "`u` must have one entry")


def test_what_is_dropped_is_told_with_its_place():
    """A muscle and an inactive constraint."""
    more = """<actuator><muscle name="biceps" joint="j" lengthrange="0 1"/></actuator>
      <equality><weld name="hold" body1="arm" active="false"/></equality>"""
    with pytest.warns(UserWarning, match="muscle"):
        loaded = mbd.load(spec_of(model(BODY.format('<joint name="j"/>'), more)))
    told = [line.partition(":")[0] for line in loaded.dropped]
    assert told == ['actuator "biceps" (line 1)', 'equality "hold" (line 2)']
    assert len(loaded.controls) == 1 and loaded.mechanism.forces == ()
