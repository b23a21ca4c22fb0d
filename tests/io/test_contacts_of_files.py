"""Margins, friction and running surfaces of contacts, and what compensates weight, as MuJoCo has
them."""

import equinox as eqx
import numpy as np
import pytest
from inline_models import mujoco, rows_of, spec_of

import jaxmbd as mbd

pytestmark = pytest.mark.filterwarnings("ignore:.*has no counterpart")

TOUCH = """
<mujoco>
  <option cone="elliptic" o_margin="0.05" o_friction="0.3 0.3 0.2 0.1 0.1">
    <flag override="{override}"/>
  </option>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1" margin="0.02" gap="0.5"
      surfacevel="1 0 0 0 0 2"/>
    <body name="a" pos="0.3 0 1"><freejoint/><geom name="a" size="0.1" margin="0.01"/></body>
    <body name="b" pos="1 0 1"><freejoint/><geom name="b" size="0.1" margin="0.01"/></body>
  </worldbody>
  <contact>
    <pair name="p" geom1="floor" geom2="b" margin="0.04" gap="0.01" condim="{condim}"
      friction="1 1 0.1 {rolling}"/>
  </contact>
</mujoco>
"""


def model(override="disable", condim=6, rolling="0.1 0.1"):
    return spec_of(TOUCH.format(override=override, condim=condim, rolling=rolling))


def resting_height(m, name):
    """Where MuJoCo's contact has no force: its distance is `includemargin` there."""
    d = mujoco.MjData(m)
    d.qpos[2::7] = 0.11
    mujoco.mj_forward(m, d)
    [contact] = [c for c in d.contact if m.geom(name).id in c.geom and c.geom[0] == 0]
    return 0.1 + contact.includemargin


@pytest.mark.parametrize("override", ["disable", "enable"])
def test_shapes_touch_at_the_margin_of_mujoco(override):
    """Margins of geoms add, that of a pair and that of the options replace them, and a `gap` only
    looks for contacts earlier."""
    spec = model(override)
    m, loaded = spec.compile(), mbd.load(spec)
    state = loaded.state_from(np.array([0.3, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0]))
    gaps = np.asarray(loaded.mechanism.gap(state.q, 0.0))
    for name, contact in (("a", "floor-a"), ("b", "floor-b")):
        i = [c.name for c in loaded.mechanism.contacts].index(contact)
        np.testing.assert_allclose(1.0 - gaps[i], resting_height(m, name), atol=1e-15)
    assert not [line for line in loaded.dropped if "margin" in line]


def test_options_replace_the_friction_of_all_contacts():
    loaded = mbd.load(model("enable"))
    for contact in loaded.mechanism.contacts:
        assert float(contact.law.friction) == 0.3
    law = loaded.mechanism.contact("floor-b").law
    assert float(law.torsional) == 0.2 and float(law.rolling) == 0.1
    assert float(mbd.load(model()).mechanism.contact("floor-b").law.friction) == 1.0


def test_a_surface_runs_as_that_of_mujoco():
    """A turning belt, whose velocity at the ball 0.3 m beside its axis is (1, 2 * 0.3) m/s."""
    loaded = mbd.load(model(condim=3))
    state = loaded.state
    i = [c.name for c in loaded.mechanism.contacts].index("floor-a")

    @eqx.filter_jit
    def running(mechanism, q):
        rows = mechanism.contact_rows(0.0, q)
        return -rows.J.one(np.asarray(i)).reaction(rows.drift[i][None])

    velocity = np.asarray(running(loaded.mechanism, state.q)).reshape(6, -1)[:2, 0]
    np.testing.assert_allclose(velocity, [1.0, 0.6], atol=1e-12)
    assert not [line for line in loaded.dropped if "surface" in line]


def test_anisotropic_friction_is_told():
    [line] = mbd.load(model(rolling="0.1 0.2")).dropped
    assert line == 'pair "p" (line 13): the second coefficient of its anisotropic rolling friction'
    assert mbd.load(model(rolling="0.1 0.2", condim=3)).dropped == ()


LIMITS = """
<mujoco>
  <worldbody>
    <body name="a"><joint name="slide" type="slide" range="-0.5 1" margin="{}"/>
    <geom size="0.1"/></body>
  </worldbody>
  <tendon>
    <fixed name="t" range="-0.4 0.7" margin="0.2"><joint joint="slide" coef="1"/></fixed>
  </tendon>
</mujoco>
"""


def test_limits_act_from_their_margin_on():
    """MuJoCo's limit has no force where the distance is the margin."""
    mechanism = mbd.load(spec_of(LIMITS.format(0.1))).mechanism
    limits = mechanism.contact("slide"), mechanism.contact("t")
    ends = [float(x) for limit in limits for x in (limit.lower, limit.upper)]
    np.testing.assert_allclose(ends, [-0.4, 0.9, -0.2, 0.5], atol=1e-15)
    loaded = mbd.load(spec_of(LIMITS.format(0.8)))
    [line] = loaded.dropped
    assert line == 'joint "slide" (line 4): the margin of its limits, which overlap with it'
    assert float(loaded.mechanism.contacts[0].lower) == -0.5


WELD = """
<mujoco>
  <worldbody>
    <body name="a"><joint/><geom size="0.1"/></body>
    <body name="b" pos="0.5 0 0"><joint type="ball"/><geom size="0.1"/></body>
  </worldbody>
  <equality><weld name="w" body1="a" body2="b" anchor="-0.2 0 0.1" torquescale="{}"/></equality>
</mujoco>
"""


def test_a_weld_without_a_torque_holds_a_point():
    """MuJoCo's rows of rotations are 0 then. The point is the `anchor`, in the frame of body b."""
    spec = spec_of(WELD.format(0))
    m, loaded = spec.compile(), mbd.load(spec, contacts=False)
    d = mujoco.MjData(m)
    d.qpos[:] = [0.3, 0.8, 0.0, 0.6, 0.0]
    mujoco.mj_forward(m, d)
    assert isinstance(loaded.mechanism.joint("w"), mbd.Spherical)
    (row,) = rows_of(loaded.mechanism, ("w",), loaded.state_from(d.qpos).q)
    np.testing.assert_allclose(d.efc_pos[3:6], 0, atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(row), np.linalg.norm(d.efc_pos[:3]), rtol=1e-12)
    assert isinstance(mbd.load(spec_of(WELD.format(2))).mechanism.joint("w"), mbd.Fixed)


CARRIED = """
<mujoco>
  <worldbody>
    <body gravcomp="1">
      <joint name="j" type="slide" axis="0 0 1" actuatorgravcomp="true" {}/><geom size="0.1"/>
    </body>
  </worldbody>
  {}
</mujoco>
"""
MOTOR = '<actuator><motor joint="j"/></actuator>'


def test_weight_that_actuators_carry_in_part_is_told():
    for limit, motor, told in (
        ("", MOTOR, ""),
        ('actuatorfrcrange="-1 1"', MOTOR, "the limit of its force holds for its weight too"),
        ("", "", "its weight stays without actuators"),
    ):
        lines = mbd.load(spec_of(CARRIED.format(limit, motor))).dropped
        assert [told in line for line in lines] == [True] * bool(told)


def test_contacts_of_a_file_are_written_again(tmp_path):
    """Margins and running surfaces."""
    loaded = mbd.load(model())
    mbd.save(loaded.mechanism, tmp_path / "again.xml")
    again = mbd.load(tmp_path / "again.xml").mechanism
    for contact in loaded.mechanism.contacts:
        twin = next(c for c in again.contacts if set(c.bodies) == set(contact.bodies))
        assert float(contact.margin) == float(twin.margin)
        if contact.surface_velocity_a is not None:
            np.testing.assert_array_equal(contact.surface_velocity_a, twin.surface_velocity_a)
    assert sum(c.surface_velocity_a is not None for c in loaded.mechanism.contacts) == 2
