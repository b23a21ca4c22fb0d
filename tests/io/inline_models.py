"""Models as text, and what MuJoCo makes of them."""

import equinox as eqx
import numpy as np
import pytest
from points import equations_of_each, solved

import jaxmbd as mbd

mujoco = pytest.importorskip("mujoco", reason="reads models with MuJoCo, of the extra `io`")

# Two hinges with a servo and a motor, a spring, dampers, a rotor, a joint that starts at `ref`, and
# a weight that is carried in part.
ARM = """
<mujoco model="arm">
  <compiler angle="degree"/>
  <option timestep="0.001"/>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 0.1"/>
    <body name="upper" pos="0 0 1" euler="0 0 20">
      <joint name="shoulder" axis="0 1 0" damping="0.3" armature="0.05" ref="10" range="-120 120"/>
      <geom name="upper" type="capsule" fromto="0 0 0 0.4 0 0" size="0.04"/>
      <body name="plate" pos="0.2 0 0.05" euler="10 0 0">
        <geom name="plate" type="box" size="0.05 0.03 0.01"/>
        <site name="tip" pos="0.1 0 0" euler="0 0 90"/>
      </body>
      <body name="lower" pos="0.4 0 0" gravcomp="0.7">
        <joint name="elbow" axis="0 1 1" pos="0.01 0 0" stiffness="3" springref="30"/>
        <geom name="lower" type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="servo" joint="shoulder" kp="20" kv="2" ctrlrange="-1 1" forcerange="-5 5"/>
    <motor name="elbow" joint="elbow" gear="3"/>
  </actuator>
  <sensor>
    <jointpos name="angle" joint="shoulder"/>
    <gyro name="gyro" site="tip"/>
    <accelerometer name="felt" site="tip"/>
    <velocimeter name="speed" site="tip"/>
    <touch name="touch" site="tip"/>
  </sensor>
  <keyframe>
    <key name="up" qpos="0.5 -0.4" qvel="0.1 0.2" ctrl="0.3 0.4"/>
  </keyframe>
</mujoco>
"""

# All kinds of joints, several in one body, before and after each other, and on axes that do not
# meet; a string of joints, and a rope between two sites.
JOINTS = """
<mujoco model="joints">
  <worldbody>
    <site name="hook" pos="0.3 0 0.8"/>
    <body name="base" pos="0 0 1">
      <freejoint name="float"/>
      <geom type="box" size="0.1 0.2 0.3"/>
      <body name="arm" pos="0.2 0.1 0" euler="30 20 10">
        <joint name="hinge" axis="1 2 0" pos="0.1 0 0.1" ref="20"/>
        <geom type="capsule" size="0.05 0.2" pos="0 0.1 0.1"/>
        <body name="slider" pos="0 0 0.4">
          <joint name="slide" type="slide" axis="0 1 1" stiffness="5" springref="0.1"/>
          <geom size="0.1" pos="0.1 0 0"/>
          <body name="ball" pos="0 0 0.4">
            <joint name="ball" type="ball" pos="0.1 0.1 0.1" damping="0.2" stiffness="2"/>
            <geom type="ellipsoid" size="0.1 0.2 0.1" pos="0.1 0 0"/>
          </body>
        </body>
      </body>
    </body>
    <body name="hip" pos="1 0 0">
      <joint name="hip x" axis="1 0 0" pos="0 0 0.1" damping="0.1" armature="0.02"/>
      <joint name="hip y" axis="0 1 0" pos="0 0 0.1" stiffness="1"/>
      <joint name="hip z" axis="0 0 1" pos="0 0 0.1"/>
      <geom type="box" size="0.1 0.2 0.3"/>
      <body name="wheel" pos="1 0 0">
        <joint name="turn" axis="1 0 0"/>
        <joint name="lean" axis="0 1 1" pos="0.1 0 0"/>
        <joint name="lift" type="slide" axis="0 1 0"/>
        <site name="eye" pos="0.3 0 0"/>
        <geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="string" stiffness="4" damping="0.3" springlength="0.2">
      <joint joint="hip z" coef="1"/>
      <joint joint="turn" coef="-2"/>
    </fixed>
    <spatial name="rope" stiffness="20" springlength="0.3">
      <site site="hook"/> <site site="eye"/>
    </spatial>
  </tendon>
  <actuator>
    <motor name="pull" tendon="string" gear="2"/>
    <velocity name="spin" joint="turn" kv="0.5"/>
  </actuator>
</mujoco>
"""

# Every kind of equality constraint, in a pose that violates them all.
EQUALITIES = """
<mujoco model="equalities">
  <worldbody>
    <body name="a" pos="0 0.1 0">
      <joint name="a" axis="0 1 0" ref="0.2"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02"/>
      <body name="b" pos="0.3 0 0">
        <joint name="b" axis="0 0.6 0.8" ref="20"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02"/>
        <site name="tip" pos="0.3 0 0" euler="10 20 30"/>
      </body>
    </body>
    <body name="c" pos="0.4 0 0.2">
      <joint name="c" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.05"/>
      <body name="d" pos="0.1 0 0">
        <joint name="d" type="ball"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02"/>
        <site name="end" pos="0.3 0 0"/>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="one"><joint joint="a" coef="1"/><joint joint="c" coef="2"/></fixed>
    <fixed name="two"><joint joint="b" coef="1.5"/></fixed>
  </tendon>
  <equality>
    <joint name="cubic" joint1="a" joint2="b" polycoef="0.1 2 0.3 -0.4 0.05"/>
    <joint name="held" joint1="c" polycoef="0.05 0 0 0 0"/>
    <tendon name="geared" tendon1="one" tendon2="two" polycoef="0 0.5 0.2 0 0"/>
    <weld name="glued" body1="b" body2="d" anchor="0.05 0 0.1" relpose="0.1 0.2 0.3 0.8 0.6 0 0"/>
    <weld name="joined" site1="tip" site2="end"/>
    <connect name="pinned" body1="b" body2="d" anchor="0.1 0 0"/>
  </equality>
</mujoco>
"""


# What MuJoCo solves as soft constraints.
SOFT = ("CONTACT", "LIMIT", "FRICTIONLOSS", "EQUALITY")


def spec_of(text, soft=True):
    """A `MjSpec`, without the soft constraints if not `soft`."""
    spec = mujoco.MjSpec.from_string(text)
    if not soft:
        for name in SOFT:
            spec.option.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}"))
    return spec


@eqx.filter_jit
def rows_of(mechanism, names, q):
    """The violations of joints, by one program."""
    joints = [mechanism.joint(name) for name in names]
    return [joint.equations(mechanism.frames(joint, q), 0.0) for joint in joints]


def random_state(m, d, rng, spread=0.8):
    """A random pose, velocity and control."""
    mujoco.mj_resetData(m, d)
    mujoco.mj_integratePos(m, d.qpos, spread * rng.uniform(-1, 1, size=m.nv), 1.0)
    d.qvel[:] = rng.normal(size=m.nv)
    d.ctrl[:] = rng.uniform(-1, 1, size=m.nu)


def accelerations(m, d, names):
    """Accelerations of all bodies in MuJoCo, shape (6, bodies), in world axes."""
    mujoco.mj_forward(m, d)
    mujoco.mj_rnePostConstraint(m, d)
    found = np.zeros((len(names), 6))
    for row, name in zip(found, names, strict=True):
        body = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_BODY, name)
        mujoco.mj_objectAcceleration(m, d, mujoco.mjtObj.mjOBJ_XBODY, body, row, 0)
    return np.concatenate([found[:, 3:] + m.opt.gravity, found[:, :3]], axis=1).T


def largest_difference(spec, samples=20):
    """The largest difference of accelerations from those of MuJoCo, relative to the largest."""
    m = spec.compile()
    d, loaded = mujoco.MjData(m), mbd.load(spec)
    rng, states, theirs = np.random.default_rng(0), [], []
    for _ in range(samples):
        random_state(m, d, rng)
        theirs.append(accelerations(m, d, loaded.mechanism.body_stack.names).ravel())
        state = loaded.state_from(d.qpos, d.qvel)
        states.append((state.q, state.v, np.array(d.ctrl)))
    ours, _ = solved(*equations_of_each(loaded.mechanism, *map(np.stack, zip(*states))))
    scale = np.maximum(1.0, np.abs(theirs).max(axis=1))
    return (np.abs(ours - theirs).max(axis=1) / scale).max()
