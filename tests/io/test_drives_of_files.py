"""Actuators that lag, and joints that stick, as files of MuJoCo state them."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_verdicts

import jaxmbd as mbd

mujoco = pytest.importorskip("mujoco")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*has no counterpart")]

FILE = """<mujoco><option timestep="0.001" gravity="0 0 0"/><worldbody>
<body name="arm"><inertial pos="0 0 0" mass="1" diaginertia="0.1 0.1 0.1"/>
<joint name="hinge" type="hinge" axis="0 0 1" frictionloss="0.2" damping="0.05"/></body></worldbody>
<actuator><general name="drive" joint="hinge" dyntype="filterexact" dynprm="0.05" gainprm="2"
gear="3"/></actuator></mujoco>"""


def test_lag_and_friction(tmp_path):
    """Within the friction the joint sticks; the activation follows in closed form. What is written
    to a file has the same lag."""
    spec = mujoco.MjSpec.from_string(FILE)
    plain = mbd.load(spec)
    assert any("its activation" in line for line in plain.dropped)
    assert plain.mechanism.contacts == () and plain.mechanism.internal_names == ()

    loaded = mbd.load(spec, sticking=True, activation=True)
    mechanism = loaded.mechanism
    assert not any("its activation" in line for line in loaded.dropped)
    assert mechanism.internal_names == ("drive.activation",)
    (friction,) = mechanism.contacts
    np.testing.assert_allclose([friction.dry, friction.static], 0.2)
    assert mechanism.force_element("hinge").dry is None

    def torque(u):
        sol = mbd.simulate(
            mechanism,
            mbd.ContactImpulse(),
            loaded.state,
            t1=0.1,
            dt=1e-3,
            control=lambda t, q, v: jnp.array([u]),
        )
        assert_verdicts(sol.result, mbd.RESULTS.successful)
        return sol

    held = torque(0.03)  # times the gain and the gear is 0.18 of 0.2
    assert np.all(np.abs(held.v) < 1e-12)
    np.testing.assert_allclose(held.z[-1], 0.03 * (1 - 1.02**-100), rtol=1e-9)
    assert abs(torque(0.1).v[-1, 5]) > 0.1

    mbd.save(mechanism, tmp_path / "drive.xml")
    again = mbd.load(tmp_path / "drive.xml", activation=True).mechanism
    np.testing.assert_allclose(again.force_element("drive").lag, 0.05)
