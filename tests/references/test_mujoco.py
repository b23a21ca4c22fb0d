"""Drives of a file: in closed form, and where they saturate beside MuJoCo: make_mujoco.py."""

import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_models import read
from scipy.linalg import expm

import jaxmbd as mbd

mujoco = pytest.importorskip("mujoco")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*has no counterpart")]

DRIVES = read("mujoco.json")["drives"]
PATH = pathlib.Path(__file__).with_name("drives.xml")
ARMS = ("lag", "spin", "servo", "wound", "rough", "held")
# The states of the elements in the order of the activations: element and state, factor, summand.
STATES = [
    ("lag.activation", "lag actuator.activation", 1.0, 0.0),
    ("spin.activation", "spin actuator.activation", 1.0, 0.0),
    ("servo.integral", "servo actuator.integral", -1 / 2, 0.0),
    ("wound.temperature", "wound actuator.temperature", 1.0, 30.0),
    ("wound.current", "wound actuator.current", 1.0, 0.0),
    ("rough.temperature", "rough actuator.temperature", 1.0, 30.0),
    ("rough.deflection", "rough friction.deflection", 1 / 5, 0.0),
    ("held.integral", "held actuator.integral", -1 / 10, 0.0),
    ("held.current", "held actuator.current", 1.0, 0.0),
]


class Swing(eqx.Module):
    """Amplitudes cos(rate t)."""

    amplitudes: jax.Array
    rate: jax.Array

    def __call__(self, t, q, v):
        return self.amplitudes * jnp.cos(self.rate * t)


@pytest.fixture(scope="module")
def loaded():
    return mbd.load(PATH, activation=True)


@pytest.fixture(scope="module")
def end(loaded):
    """Positions, velocities and activations after 0.5 s, as a function of the control."""

    @jax.jit
    def run(control):
        sol = mbd.simulate(
            loaded.mechanism,
            mbd.UdwadiaKalaba(),
            loaded.state,
            t1=DRIVES["duration"],
            dt=1e-3,
            control=control,
        )
        return *loaded.qpos_qvel(sol), sol.z

    def at_the_end(amplitudes, rate):
        control = Swing(jnp.asarray(amplitudes), jnp.asarray(rate))
        qpos, qvel, z = (np.asarray(x)[-1] for x in run(control))
        return qpos, qvel, activations(loaded, z)

    return at_the_end


def activations(loaded, z):
    names = loaded.mechanism.internal_names
    return np.array([(z[names.index(of)] - more) / factor for _, of, factor, more in STATES])


def test_saturated(end):
    """Limits of activations, of an integral, of forces, of a voltage and of the rate of a current,
    cogging and bristles, beside MuJoCo."""
    qpos, qvel, act = end(DRIVES["amplitudes"], DRIVES["rate"])
    turns = (qpos - DRIVES["position"]) / (2 * np.pi)
    np.testing.assert_allclose(2 * np.pi * (turns - np.round(turns)), 0.0, atol=1e-5)
    np.testing.assert_allclose(qvel, DRIVES["velocity"], atol=2e-5)
    np.testing.assert_allclose(act, DRIVES["activation"], atol=2e-5)


J, C, T = 0.1, 0.05, DRIVES["duration"]


def linear(rates):
    """Position, velocity and two states at the end of y' = rates(y), linear, from rest; y ends
    with a constant 1."""
    A = np.array([rates(*unit) for unit in np.eye(5)]).T
    return (expm(A * T) @ np.eye(5)[-1])[:-1]


def test_linear(end):
    """Small controls that do not change, in closed form: a lag, a target that is an integral, a
    controller, a winding, and a motor with a controller."""
    u = np.array([0.3, 0.05, 0.01, 0.02, 0.03, 0.8, 0.0, 0.02, 0.03, 0.01])
    qpos, qvel, act = end(u, 0.0)

    def lag(q, v, a, _, one):
        return v, (3 * 2 * a - C * v) / J, (0.3 * one - a) / 0.05, 0, 0

    def spin(q, v, a, _, one):
        return v, (10 * (a - q) - (1 + C) * v) / J, 0.05 * one, 0, 0

    def servo(q, v, z, _, one):
        length, speed = -2 * q, -2 * v
        force = 10 * (0.01 * one - length) + 0.02 * one - speed + 0.03 * one + 30 * z
        return v, (-2 * force - C * v) / J, 0.01 * one - length, 0, 0

    def wound(q, v, i, heat, one):
        return v, (-10 * 0.05 * i - C * v) / J, (0.8 * one - 2 * i + 10 * 0.05 * v) / 0.1, 0, 0

    def held(q, v, z, i, one):
        length, speed = -10 * q, -10 * v
        error = 0.02 * one - length
        torque = 0.5 * error + z + 0.02 * (0.03 * one - speed) + 0.01 * one
        volts = 2 / 0.05 * torque + 0.05 * speed
        slope = (volts - 2 * i - 0.05 * speed) / 0.02
        return v, (-10 * 0.05 * i - C * v) / J, error, slope, 0

    found = {
        "lag": act[:1],
        "spin": act[1:2],
        "servo": act[2:3],
        "wound": act[4:5],
        "held": act[7:],
    }
    for law in (lag, spin, servo, wound, held):
        name = law.__name__
        k, states = ARMS.index(name), found[name]
        exact = linear(law)[: 2 + len(states)]
        np.testing.assert_allclose([qpos[k], qvel[k], *states], exact, atol=1e-8, err_msg=name)


def test_what_is_written(loaded, tmp_path):
    """It is read again as it was; what a file cannot hold is told."""
    mbd.save(loaded.mechanism, tmp_path / "again.xml")
    same = mbd.load(tmp_path / "again.xml", activation=True).mechanism
    drives = [f for f in loaded.mechanism.forces if f.name.startswith(ARMS) and " " in f.name]
    assert len(drives) == 9
    for drive in drives:
        if drive.name == "rough drive":
            continue  # damping and a rotor, which are those of the joint then
        leaves, others = map(jax.tree.leaves, (drive, same.force_element(drive.name)))
        for x, y in zip(leaves, others, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-12, err_msg=drive.name)
    hinge = mbd.OfJoint("lag")
    forces = [
        mbd.forces.DCMotor(
            "geared", hinge, resistance=1.0, inductance=None, constant=1.0, ripple=0.1
        ),
        mbd.forces.PIDController("far", hinge, proportional=1.0, target=lambda t: t),
    ]
    of = loaded.mechanism
    mechanism = mbd.Mechanism(of.bodies, of.joints, forces)
    with pytest.warns(UserWarning, match='(?s)"geared": its ripple.*"far": its inputs are no'):
        mbd.save(mechanism, tmp_path / "told.xml")


def test_keyframes_and_what_is_told(loaded):
    """Activations of a keyframe, and what is without `activation`."""
    z = np.asarray(loaded.keyframes["warm"].z)
    np.testing.assert_allclose(
        activations(loaded, z), [0.1, 0.2, 0.3, 20, 0.5, 10, 0.01, 0.4, 0.6], rtol=1e-12
    )
    assert loaded.dropped == ()
    controls = [control.name for control in loaded.controls]
    assert controls[1:5] == ["spin", "servo pos", "servo vel", "servo ff"]
    plain = mbd.load(PATH)
    assert plain.mechanism.internal_names == ()
    lines = " ".join(plain.dropped)
    for name, what in (
        ("lag", "its activation"),
        ("spin", 'its dynamics "integrator"'),
        ("servo", "the integral of its controller"),
        ("wound", "its inductance"),
        ("wound", "its heat"),
        ("rough", "its friction"),
    ):
        assert any(f'actuator "{name}"' in x and what in x for x in plain.dropped), lines
    assert 'key "warm": the activation of actuators: load(activation=True) reads it' in lines
    text = PATH.read_text().replace('imax="0.02"', 'slewmax="2"').replace("0.5 1 0.02 0", "0 0 0 0")
    again = mbd.load(mujoco.MjSpec.from_string(text), activation=True)
    assert any('its "slewmax"' in line for line in again.dropped)
