"""Accelerations of two bodies in a chain at random states, against MuJoCo.

MuJoCo computes in C and in joint coordinates. It is exact for trees; its closed loops are soft."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

# Short runs compile longer than they run.
QUICK = {"xla_backend_optimization_level": 0}

CHAIN = """
<mujoco>
  <option gravity="0.4 -0.7 -9.81"/>
  <worldbody>
    <body name="a" pos="0.1 0.2 0.3" quat="0.8 0.2 -0.4 0.4">
      <inertial pos="0.1 -0.2 0.3" mass="1.3"
                fullinertia="0.11 0.13 0.09 0.01 -0.02 0.015"/>
      {first}
      <body name="b" pos="0.5 -0.3 0.2" quat="0.4 0.4 0.8 -0.2">
        <inertial pos="-0.05 0.15 0.1" mass="0.7"
                  fullinertia="0.05 0.04 0.06 -0.005 0.004 0.01"/>
        {second}
      </body>
    </body>
  </worldbody>
</mujoco>
"""
HINGE = """<joint type="hinge" pos="0.1 0 -0.1" axis="0.6 0 0.8" stiffness="3" damping="0.4"
               armature="0.05"/>"""
SLIDE = '<joint type="slide" pos="0.1 0 -0.1" axis="0.6 0 0.8" armature="0.3"/>'
BALL = '<joint type="ball" pos="0.1 0 -0.1"/>'
TURN = '<joint type="hinge" pos="0.1 0 -0.1" axis="0.6 0 0.8"/>'
ARMS = """<joint type="hinge" pos="0.1 0 -0.1" axis="1 0 0"/>
          <joint type="hinge" pos="0.1 0 -0.1" axis="0 1 0"/>"""
PIN = np.array([0.1, 0, -0.1])
DIRECTION = np.array([0.6, 0, 0.8])

# MuJoCo's joints, and ours by a name, two bodies, a place, and the orientation of body b.
KINDS = {
    "hinge": (HINGE, lambda *x, R, **at: mbd.Revolute(*x, axis=R @ DIRECTION, **at)),
    "slide": (SLIDE, lambda *x, R, **at: mbd.Prismatic(*x, axis=R @ DIRECTION, **at)),
    "ball": (BALL, lambda *x, R, **at: mbd.Spherical(*x, **at)),
    "cylinder": (SLIDE + TURN, lambda *x, R, **at: mbd.Cylindrical(*x, axis=R @ DIRECTION, **at)),
    "cross": (ARMS, lambda *x, R, **at: mbd.Universal(*x, orientation=R, **at)),
}


def symmetric(xx, yy, zz, xy, xz, yz):
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


@pytest.mark.parametrize(
    "first, second",
    [
        ("hinge", "ball"),
        ("slide", "cross"),
        ("cylinder", "hinge"),
        pytest.param("cross", "slide", marks=pytest.mark.slow),
        pytest.param("ball", "cylinder", marks=pytest.mark.slow),
    ],
)
def test_accelerations_of_mujoco(first, second):
    mujoco = pytest.importorskip("mujoco", reason="compares with MuJoCo, a test extra")
    kinds = [KINDS[first], KINDS[second]]
    model = mujoco.MjModel.from_xml_string(CHAIN.format(first=kinds[0][0], second=kinds[1][0]))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)

    inertias = [
        mbd.Inertia(1.3, symmetric(0.11, 0.13, 0.09, 0.01, -0.02, 0.015), [0.1, -0.2, 0.3]),
        mbd.Inertia(0.7, symmetric(0.05, 0.04, 0.06, -0.005, 0.004, 0.01), [-0.05, 0.15, 0.1]),
    ]
    bodies = [
        mbd.Body(name, inertia, position=data.xpos[i], orientation=data.xquat[i])
        for i, (name, inertia) in enumerate(zip("ab", inertias), 1)
    ]
    joints, forces = [], []
    for i, (_, joint) in enumerate(kinds, 1):
        R = data.xmat[i].reshape(3, 3)
        ends = ["ground", *bodies][i - 1 : i + 1]
        place = data.xpos[i] + R @ PIN
        joints.append(joint(f"joint {i}", *ends, point=place, R=R))
        rotor = dict(point=place, axis=R @ DIRECTION)
        if (first, second)[i - 1] == "hinge":
            forces.append(mbd.Motor(f"motor {i}", *ends, gear=-5.0, rotor_inertia=0.002, **rotor))
            forces.append(
                mbd.TorsionSpring(f"spring {i}", *ends, stiffness=3.0, damping=0.4, **rotor)
            )
        if (first, second)[i - 1] in ("slide", "cylinder"):
            forces.append(mbd.LinearActuator(f"spindle {i}", *ends, rotor_inertia=0.3, **rotor))
    mechanism = mbd.Mechanism(bodies, joints, forces, gravity=[0.4, -0.7, -9.81])
    idle = lambda t, q, v: jnp.zeros(1)  # noqa: E731
    equations = jax.jit(
        lambda q, v: mbd.evaluate(mechanism, idle, jnp.zeros(()), q, v), compiler_options=QUICK
    )

    random = np.random.default_rng(5)
    for _ in range(5):
        # Within half a turn, where our springs are MuJoCo's.
        data.qpos = model.qpos0
        mujoco.mj_integratePos(model, data.qpos, random.normal(size=model.nv), 1.0)
        data.qvel = 2 * random.normal(size=model.nv)
        mujoco.mj_forward(model, data)
        v, expected = [], []
        for i in (1, 2):
            J, J_rate = np.zeros((6, model.nv)), np.zeros((6, model.nv))
            mujoco.mj_jac(model, data, J[:3], J[3:], data.xpos[i], i)
            mujoco.mj_jacDot(model, data, J_rate[:3], J_rate[3:], data.xpos[i], i)
            v.append(J @ data.qvel)
            expected.append(J @ data.qacc + J_rate @ data.qvel)
        q = np.concatenate([data.xpos[1:], data.xquat[1:]], axis=1).T.ravel()
        found = equations(jnp.asarray(q), jnp.asarray(np.transpose(v).ravel()))
        np.testing.assert_allclose(found.rows.phi, 0, atol=1e-13)
        np.testing.assert_allclose(found.rows.velocity, 0, atol=1e-12)
        M, J = np.asarray(found.M), np.asarray(found.rows.J)
        zero = np.zeros((len(J), len(J)))
        right = np.concatenate([found.f, found.rows.gamma])
        acceleration = np.linalg.solve(np.block([[M, -J.T], [J, zero]]), right)[: len(M)]
        expected = np.transpose(expected).ravel()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(acceleration, expected, atol=1e-9 * scale)
