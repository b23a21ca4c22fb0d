"""Accelerations, reactions, linear models, feedback and equilibria by Drake: see make_drake.py."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from points import equations_of_each, solved
from reference_models import (
    close,
    complex_of,
    in_joints,
    mechanism_of,
    motion_of,
    reactions_of,
    read,
    state_of,
)

import jaxmbd as mbd
from jaxmbd.analysis import equilibrium, linearise, lqr, modes

DRAKE = read("drake.json")


def reactions_are(mechanism, q, v, multipliers, bodies, rtol=1e-11, of=None):
    """Force and torque of each joint, or of some, on its body, in the body's axes."""
    given = {body.name: x["reaction"] for body, x in zip(mechanism.bodies, bodies, strict=True)}
    names = tuple(of or given)
    for name, held in zip(names, reactions_of(mechanism, q, v, multipliers, names, "own")):
        close(held, given[name], rtol)


def test_joints_of_several_freedoms():
    """A screw, a universal, a ball and a planar joint, and a damped spring: what accelerates the
    bodies, and what the joints carry."""
    given = DRAKE["joints"]
    mechanism = mechanism_of(given["tree"])
    states, rates = motion_of(mechanism, given["states"])
    found, multipliers = solved(*equations_of_each(mechanism, states.q, states.v, None))
    close(found, rates)
    names = "shaft", "puck", "nut"
    coordinates = jax.jit(jax.vmap(lambda q: [mechanism.joint_coordinates(q, x) for x in names]))
    pitch = given["tree"]["bodies"][0]["pitch"]
    found = map(np.asarray, (states.q, states.v, multipliers, *coordinates(states.q)))
    for *state, shaft, puck, nut, one in zip(*found, given["states"], strict=True):
        reactions_are(mechanism, *state, one["bodies"], of=("nut", "puck"))
        close(shaft, one["q"]["shaft"])
        close(puck, one["q"]["puck"])
        close(nut, one["q"]["nut"] / (2 * np.pi) * pitch)


@pytest.mark.slow
def test_file_in_sdformat():
    """A model that is placed in the world, with frames relative to each other, degrees, quaternions
    and axes expressed in other frames: where its bodies are, and how they accelerate."""
    loaded = mbd.load(pathlib.Path(__file__).with_name("arm.sdf"))
    assert not loaded.dropped
    states, rates = motion_of(loaded.mechanism, DRAKE["file"]["states"])
    close(solved(*equations_of_each(loaded.mechanism, states.q, states.v, None))[0], rates)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cart_pole", "acrobot"])
def test_linear_model_and_feedback(name):
    given = DRAKE[name]
    mechanism = mechanism_of(given["tree"])
    state, _ = state_of(mechanism, given["bodies"])
    model = linearise(mechanism, state, jnp.zeros(1), size=4)
    x = np.concatenate([given["q"], 0 * given["q"]])
    X, _ = map(np.asarray, in_joints(given["tree"])(x, 0 * x))
    y = np.linalg.lstsq(X, model.Z)[0]
    close(X @ y, model.Z)
    close(y @ model.A @ np.linalg.inv(y), given["A"])
    close(y @ model.B, given["B"])
    Q = [given[f"weights_of_{x}"].T.ravel() for x in ("displacements", "velocities")]
    feedback = lqr(model, Q=np.concatenate(Q), R=given["weight_of_input"])
    close(feedback.gain @ model.S.T @ X, given["gain"], 1e-9)
    close(X.T @ feedback.value @ X, given["value"], 1e-9)


@pytest.mark.slow
def test_equilibrium_reactions_and_modes():
    """To 1e-8, as `equilibrium` converges to 1e-10 of the accelerations at its start."""
    given = DRAKE["hanging"]
    mechanism = mechanism_of(given["tree"])
    start = mbd.place_bodies(mechanism, {"upper": 0.2, "lower": -0.3, "slide": 0.05})
    rest = equilibrium(mechanism, start)
    expected, _ = state_of(mechanism, given["bodies"])
    np.testing.assert_allclose(mechanism.difference(expected.q, rest.q), 0.0, atol=1e-9, rtol=0)
    reactions_are(mechanism, rest.q, rest.v, rest.report.multipliers, given["bodies"], 1e-8)
    stiffness = np.asarray(rest.report.stiffness)
    close(np.sort(stiffness[np.isfinite(stiffness)]), given["stiffness"], 1e-8)
    close(modes(linearise(mechanism, rest, size=6)).s, complex_of(given["eigenvalues"]), 1e-8)
