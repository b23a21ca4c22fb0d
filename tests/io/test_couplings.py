"""Couplings, springs and limits of files at angles of several turns, against closed forms."""

import equinox as eqx
import jax
import numpy as np
import pytest
from inline_models import spec_of
from points import motion

import jaxmbd as mbd

SHAFT = """
<body name="{name}" pos="{x} 0 0">
  <joint name="{name}" axis="{axis}" {more}/>
  <inertial pos="0 0 0" mass="1" diaginertia="0.02 0.02 0.02"/>
</body>"""


def shaft(name, x, axis="0 0 1", more=""):
    return SHAFT.format(name=name, x=x, axis=axis, more=more)


MODEL = f"""
<mujoco>
  <compiler angle="radian"/>
  <option gravity="0 0 -9.81"/>
  <worldbody>
    {shaft("drum", 0, axis="0 1 0")}
    <body name="load" pos="0 0 -1">
      <joint name="load" type="slide" axis="0 0 1"/>
      <inertial pos="0 0 0" mass="3" diaginertia="0.01 0.01 0.01"/>
    </body>
    {shaft("a", 1)} {shaft("b", 2)} {shaft("c", 3)} {shaft("d", 4)}
    {shaft("sprung", 5, more='stiffness="0.3" springref="1"')}
    {shaft("stopped", 6, more='range="-1 9"')}
  </worldbody>
  <tendon>
    <fixed name="belt" stiffness="5">
      <joint joint="c" coef="1"/> <joint joint="d" coef="-0.5"/>
    </fixed>
    <fixed name="slack" stiffness="5" springlength="2 20"><joint joint="sprung" coef="1"/></fixed>
    <fixed name="taut" stiffness="5" springlength="2 6.5"><joint joint="stopped" coef="1"/></fixed>
  </tendon>
  <equality>
    <joint name="rope" joint1="load" joint2="drum" polycoef="0 0.1 0 0 0"/>
    <joint name="gears" joint1="a" joint2="b" polycoef="0 -2 0 0 0"/>
  </equality>
</mujoco>"""
QPOS = np.array([0.0, 0.0, 12.0, -6.0, 10.0, 20.0, 14.0, 7.0])
gaps = eqx.filter_jit(mbd.Mechanism.gap)


@pytest.mark.parametrize("turned", [0.0, 1.0], ids=["at rest", "stretched"])
def test_accelerations_and_gaps(turned):
    """With several turns on some joints. A winch falls at g m / (m + I / r^2). Gears turn on; so do
    the shafts of the tendon, unless one is `turned` further. The spring at 14 rad pulls to 1 rad.
    A band is slack from 2 to 20 rad, another pulls beyond 6.5 rad. The stops are at -1 and 9
    rad."""
    loaded, speeds = mbd.load(spec_of(MODEL)), np.array([0.0, 0, 20, -10, 6, 12, 0, 4])
    assert loaded.dropped == ()
    state = loaded.state_from(QPOS + turned * np.eye(8)[5], speeds)
    mechanism = loaded.mechanism.near(state.angles)
    np.testing.assert_allclose(np.asarray(gaps(mechanism, state.q, 0.0)), [8.0, 2.0], atol=1e-12)
    rates, _ = motion(mechanism, state.q, state.v)
    of = dict(zip(mechanism.body_stack.names, rates.reshape(6, -1).T, strict=True))
    np.testing.assert_allclose(of["load"][2], -9.81 * 3 / (3 + 0.02 / 0.1**2), rtol=1e-12)
    pull = 5 * (10.0 - 0.5 * (20.0 + turned))
    about_z = {
        "a": 0,
        "b": 0,
        "c": -pull,
        "d": 0.5 * pull,
        "sprung": -0.3 * 13,
        "stopped": -5 * 0.5,
    }
    for name, torque in about_z.items():
        np.testing.assert_allclose(of[name][5], torque / 0.02, atol=1e-10, err_msg=name)


ROPE = """
<mujoco>
  <worldbody>
    <site name="hook"/>
    <body name="ball"><freejoint/><geom size="0.1"/><site name="eye"/></body>
  </worldbody>
  <tendon>
    <spatial name="rope" stiffness="7" springlength="0">
      <site site="hook"/><site site="eye"/>
    </spatial>
  </tendon>
</mujoco>
"""


def test_a_spring_is_linear_where_its_ends_meet():
    """At rest at the length 0, its force is -k d, with the derivative -k at d = 0 too."""
    loaded = mbd.load(spec_of(ROPE), contacts=False)
    mechanism, (q, v) = loaded.mechanism, (loaded.state.q, loaded.state.v)

    @jax.jit
    def stiffness(q):
        return -jax.jacfwd(lambda q: mechanism.external_force(0.0, q, v, None)[:3])(q)[:, :3]

    np.testing.assert_allclose(stiffness(q), 7 * np.eye(3), atol=1e-15)
