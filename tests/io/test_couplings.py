"""Couplings, springs and limits of files at angles of several turns, against closed forms."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
  <option gravity="0 0 -9.81" timestep="0.002"/>
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
  </tendon>
  <equality>
    <joint name="rope" joint1="load" joint2="drum" polycoef="0 0.1 0 0 0"/>
    <joint name="gears" joint1="a" joint2="b" polycoef="0 -2 0 0 0"/>
  </equality>
</mujoco>"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "couplings.xml"
    path.write_text(MODEL)
    return mbd.load(path)


@pytest.fixture(scope="module")
def motion(loaded):
    """From qpos with several turns on some joints."""
    qpos = [0.0, 0.0, 12.0, -6.0, 10.0, 20.0, 14.0, 7.0]
    qvel = [0.0, 0.0, 20.0, -10.0, 6.0, 12.0, 0.0, 4.0]
    assert loaded.dropped == ()
    return mbd.simulate(
        loaded.mechanism,
        mbd.ContactImpulse(),
        loaded.state_from(qpos, qvel),
        t1=1.0,
        dt=2e-3,
        saveat=diffrax.SaveAt(t0=True, steps=5),
    )


def path(loaded, sol, name):
    return np.asarray(mbd.reports.joint_path(loaded.mechanism, name, sol.t, sol.q, sol.v))[:, 0]


def test_a_winch_falls(loaded, motion):
    """By a t (t + h) / 2 in steps that take the velocity at their ends, a = g m / (m + I / r^2)."""
    t = np.asarray(motion.t)
    a = 9.81 * 3 / (3 + 0.02 / 0.1**2)
    np.testing.assert_allclose(path(loaded, motion, "load"), -a * t * (t + 2e-3) / 2, atol=1e-10)


def test_gears_and_a_tendon_at_rest_turn_on(loaded, motion):
    for name, rate in (("a", 20.0), ("b", -10.0), ("c", 6.0), ("d", 12.0)):
        turned = path(loaded, motion, name)
        np.testing.assert_allclose(turned - turned[0], rate * np.asarray(motion.t), atol=1e-9)
    assert np.max(motion.phi_norm) < 1e-10


def test_a_spring_starts_with_the_turns_of_qpos(loaded, motion):
    """14 rad from 1 rad: 13 cos(w t), w^2 = 0.3 / 0.02, to first order in the step."""
    t, w = np.asarray(motion.t), np.sqrt(0.3 / 0.02)
    turned = 14.0 + path(loaded, motion, "sprung") - path(loaded, motion, "sprung")[0]
    np.testing.assert_allclose(turned, 1.0 + 13.0 * np.cos(w * t), atol=13 * w**2 * 2e-3 / 2)


def test_limits_a_turn_and_more_apart_act(loaded, motion):
    """From 7 rad at 4 rad/s to the stop at 9 rad, where it stays."""
    t = np.asarray(motion.t)
    turned = path(loaded, motion, "stopped")
    np.testing.assert_allclose(
        7.0 + turned - turned[0], np.minimum(7.0 + 4.0 * t, 9.0), atol=4 * 2e-3
    )


URDF = """<robot name="r">
  <link name="base"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  {links}
  <joint name="a" type="continuous"><parent link="base"/><child link="a"/>
    <axis xyz="0 0 1"/></joint>
  <joint name="b" type="continuous"><parent link="base"/><child link="b"/><axis xyz="0 0 1"/>
    <mimic joint="a" multiplier="-1.5" offset="0.2"/></joint>
</robot>""".replace(
    "{links}",
    "".join(
        f"""<link name="{name}"><inertial><mass value="1"/>
        <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>"""
        for name in "ab"
    ),
)


def test_a_mimic_holds_at_any_number_of_turns(tmp_path):
    """At a pose alone, which does not tell the turns."""
    file = tmp_path / "mimic.urdf"
    file.write_text(URDF)
    loaded = mbd.load(file)
    mechanism = loaded.mechanism

    @jax.jit
    def row(turned, beyond):
        state = loaded.state_from(jnp.stack([turned, 0.2 - 1.5 * turned + beyond]))
        return mechanism.constraint(state.q, 0.0)[mechanism.rows(mechanism.joints[-1].name)[0]]

    for turned in (0.3, 20.0, -7.0):
        np.testing.assert_allclose(row(turned, 0.0), 0.0, atol=1e-12)
        np.testing.assert_allclose(np.abs(row(turned, 0.1)), 0.1, rtol=1e-9)
