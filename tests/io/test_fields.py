"""Every field of MuJoCo's compiled model is read, told or without effect on motions."""

import sys

import numpy as np
import pytest
from inline_models import ARM, EQUALITIES, JOINTS, mujoco, spec_of

import jaxmbd as mbd
from jaxmbd.io import fields
from jaxmbd.io.compiled import compiled
from jaxmbd.io.source import Source

pytestmark = pytest.mark.filterwarnings("ignore:.*has no counterpart")

# Everything that a told field needs in order to act: limits, friction, contacts, a medium; and what
# else the importer reads.
EVERYTHING = """
<mujoco>
  <option density="1"/>
  <asset>
    <mesh name="m" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
    <hfield name="h" nrow="3" ncol="3" size="1 1 1 0.1"/>
    <material name="red" rgba="1 0 0 1"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="a">
      <joint name="j" range="-1 1" frictionloss="0.1" actuatorfrcrange="-1 1"/>
      <geom name="g" size="0.1"/>
      <site name="s"/>
    </body>
    <body name="b" gravcomp="0.5">
      <joint name="free" type="free" actuatorgravcomp="true"/>
      <geom type="mesh" mesh="m" material="red"/>
    </body>
    <geom type="hfield" hfield="h"/>
  </worldbody>
  <contact><pair name="p" geom1="floor" geom2="g"/><exclude body1="a" body2="b"/></contact>
  <tendon>
    <fixed name="t" range="-1 1" frictionloss="0.1" actuatorfrcrange="-1 1">
      <joint joint="j" coef="1"/>
    </fixed>
  </tendon>
  <equality><joint name="e" joint1="j"/></equality>
  <actuator>
    <position name="m" joint="j" timeconst="0.1" forcerange="-1 1"/> <motor tendon="t"/>
  </actuator>
  <sensor><jointpos name="r" joint="j"/></sensor>
  <keyframe><key name="k"/></keyframe>
</mujoco>
"""

KINDS = "body jnt dof geom pair eq tendon actuator sensor key".split()
NAMES = dict(zip(KINDS, "ajjgpetmrk", strict=True))


class Proxy:
    """A compiled model that remembers which fields are asked for, perhaps with more fields."""

    def __init__(self, m, seen=None, **more):
        self._m, self._seen = m, set() if seen is None else seen
        vars(self).update(more)

    def __getattr__(self, name):
        self._seen.add(name)
        return getattr(self._m, name)

    def __dir__(self):
        return [*dir(self._m), *(name for name in vars(self) if name[0] != "_")]


def test_every_field_is_classified():
    """Of this version of MuJoCo, each in one list only."""
    m = spec_of(EVERYTHING).compile()
    of_model = [x for x in fields.fields_of(m) if not fields.is_size(x, getattr(m, x))]
    flags = [*fields.flags_of(mujoco, "DSBL_"), *fields.flags_of(mujoco, "ENBL_")]
    assert len(of_model) > 400 and len(flags) > 25
    unknown = {x for x in of_model if not fields.is_not_told(x)} - set(fields.TOLD)
    unknown |= {*fields.fields_of(m.opt)} - {*fields.OPTIONS_TOLD, *fields.OPTIONS_NOT_TOLD}
    unknown |= {*flags} - {*fields.FLAGS_TOLD, *fields.FLAGS_NOT_TOLD}
    assert unknown == set()
    listed = [*fields.READ, *fields.TOLD, *fields.WITHOUT_EFFECT]
    assert len(set(listed)) == len(listed)
    assert set(listed) - set(fields.fields_of(m)) == set()


def test_what_is_said_to_be_read_is_read(monkeypatch):
    """The importer asks for each of these fields in one of a few models."""
    seen = set()

    def recorded(path, floating=False):
        source = compiled(path, floating)
        source.m = Proxy(source.m, seen)
        return source

    module = sys.modules["jaxmbd.io.load"]  # `jaxmbd.io.load` is the function
    monkeypatch.setattr(module, "compiled", recorded)
    monkeypatch.setattr(module, "tell", lambda *_: None)
    arm = ARM.replace("<position ", '<pid input="pos" ').replace("<motor ", "<intvelocity ")
    arm = arm.replace('gear="3"', 'actrange="-1 1"')
    for text in (arm, JOINTS, EQUALITIES, EVERYTHING):
        mbd.load(spec_of(text), activation=True)
    # What `compiled` and `tell` read: names, sizes, bodies moved by motion capture.
    early = {name for name in fields.READ if name.startswith("name_")}
    early |= {"names", "geom_rbound", "body_mocapid", "dof_jntid"}
    assert fields.READ - early - seen == set()


def told(spec, m):
    source = Source(mujoco, spec, m, "model")
    fields.tell(source)
    return source.dropped


@pytest.mark.parametrize("field", fields.TOLD)
def test_a_field_without_counterpart_is_told(field):
    """It is told with the name of its element where it differs, and only there."""
    spec = spec_of(EVERYTHING)
    m = spec.compile()
    before = told(spec, m)
    prefix = field.partition("_")[0]
    getattr(m, field)[{"body": 1, "geom": 2}.get(prefix, 0)] += 1
    (new,) = [line for line in told(spec, m) if line not in before]
    kind = {"jnt": "joint", "dof": "joint", "eq": "equality"}.get(prefix, prefix)
    assert new.startswith(f'{kind} "{NAMES[prefix]}"') and fields.TOLD[field].why in new


def test_options_without_counterpart_are_told():
    spec = spec_of(EVERYTHING)
    m = spec.compile()
    m.opt.enableflags |= 1 | int(mujoco.mjtEnableBit.mjENBL_SLEEP)  # 1: override
    for option in fields.OPTIONS_TOLD:
        setattr(m.opt, option, getattr(m.opt, option) + 1)
    lines = told(spec, m)
    for name in (*fields.OPTIONS_TOLD, "ENBL_SLEEP"):
        assert any(line.startswith(f"option {name}: ") for line in lines), name


def test_a_field_of_a_later_version_is_told(monkeypatch):
    """Where it differs from that of a default model, with the name of its element."""
    spec = spec_of(EVERYTHING)
    plain = fields._plain(mujoco)
    sticky = np.zeros(plain.ngeom)
    monkeypatch.setattr(fields, "_plain", lambda mujoco: Proxy(plain, geom_sticky=sticky))
    lines = told(spec, Proxy(spec.compile(), geom_sticky=np.eye(4)[2]))
    assert 'geom "g" (line 13): its field geom_sticky, which is new' in lines
    assert not any('"floor"' in line for line in lines)


def test_what_does_not_act_is_not_told():
    """Contacts that are not loaded, limits that are off, a shape without a medium."""
    text = EVERYTHING.replace('density="1"', 'timestep="0.001"')
    text = text.replace('name="g" size', 'name="g" solref="0.1 1" fluidshape="ellipsoid" size')
    text = text.replace('range="-1 1" frictionloss="0.1"', "solreflimit='0.1 1' margin='0.1'", 1)
    starts = "geom", "joint", "option"
    lines = mbd.load(spec_of(text), contacts=False).dropped
    assert [line for line in lines if line.startswith(starts)] == []
    [line] = [line for line in mbd.load(spec_of(text)).dropped if line.startswith(starts)]
    assert line == 'geom "g" (line 13): the softness of its contacts, which are rigid here'
