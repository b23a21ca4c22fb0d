"""Dynamics in joint coordinates by Pinocchio: see make_pinocchio.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from points import equations_of_each, solved
from reference_models import close, in_joints, mechanism_of, motion_of, reactions_of, read, state_of

import jaxmbd as mbd
from jaxmbd.analysis import accelerations, inverse_dynamics, kinematics, linearise, static_inputs

PINOCCHIO = read("pinocchio.json")
ARM, FLOATING, LOOP = (PINOCCHIO[name] for name in ("arm", "floating", "loop"))


@pytest.fixture(scope="module")
def arm():
    """The arm, its states together, and v' there for the given accelerations of the joints."""
    mechanism = mechanism_of(ARM["tree"])
    return mechanism, *motion_of(mechanism, ARM["states"])


@pytest.fixture(scope="module")
def loop():
    mechanism = mechanism_of(LOOP["tree"], LOOP["ball"])
    return mechanism, *state_of(mechanism, LOOP["state"]["bodies"])


def of_states(*keys):
    found = ARM["states"]
    for key in keys:
        found = [x[key] for x in found]
    return np.stack(found)


def test_forces_of_motions_and_of_poses(arm):
    """Under the forces of a motion the bodies move so, and under those of a pose they rest."""
    mechanism, states, rates = arm
    q, v = np.tile(states.q, (2, 1)), np.concatenate([states.v, np.zeros_like(states.v)])
    forces = of_states("inverse_dynamics", "force"), of_states("force_at_rest")
    found, _ = solved(*equations_of_each(mechanism, q, v, np.concatenate(forces)))
    close(found, np.concatenate([rates, 0 * rates]))


@pytest.mark.slow
def test_floating_base():
    mechanism = mechanism_of(FLOATING["tree"])
    states, rates = motion_of(mechanism, FLOATING["states"])
    force = np.stack([state["force"] for state in FLOATING["states"]])
    close(solved(*equations_of_each(mechanism, states.q, states.v, force))[0], rates)


def test_loop(loop):
    """Accelerations under given forces, with the force in the ball joint. Where the crank is driven
    at constant speed, the rows hold with their first and second derivatives."""
    mechanism, state, rates = loop
    given, (driven, turning) = LOOP["state"], motion_of(mechanism, LOOP["driven"]["samples"])
    q, v = (np.vstack(x) for x in ((state.q, driven.q), (state.v, driven.v)))
    force = np.vstack([given["force"], np.zeros((len(q) - 1, 4))])
    M, f, phi, J, gamma = map(np.asarray, equations_of_each(mechanism, q, v, force))
    found, multipliers = solved(*(x[0] for x in (M, f, phi, J, gamma)))
    close(found, rates)
    [held] = reactions_of(mechanism, state.q, state.v, multipliers, ("ball",), "coupler")
    close(held, [*given["ball_force_in_axes_of_coupler"], 0, 0, 0])
    np.testing.assert_allclose(phi, 0.0, atol=1e-13)
    np.testing.assert_allclose(np.einsum("...ij,...j", J, v), 0.0, atol=1e-12)
    close(np.einsum("...ij,...j", J[1:], turning), gamma[1:])


@pytest.mark.slow
def test_forces_and_places_in_joints(arm, loop):
    """Of all forces that the loop allows the least ones, of which there is one freedom."""
    mechanism, states, rates = arm
    found = inverse_dynamics(mechanism, states, rates, jnp.zeros(7))
    close(found.u, of_states("inverse_dynamics", "force"))
    np.testing.assert_allclose(found.missed, 0.0, atol=1e-10 * np.abs(rates).max(), rtol=0)
    close(static_inputs(mechanism, states, jnp.zeros(7)).u, of_states("force_at_rest"))
    names, one = [body["name"] for body in ARM["tree"]["bodies"]], ARM["states"][1]
    placed = mbd.place_bodies(mechanism, *(dict(zip(names, one[key])) for key in ("q", "v")))
    np.testing.assert_allclose(mechanism.difference(states.q[1], placed.q), 0.0, atol=1e-12)
    close(placed.v, states.v[1])
    given, (mechanism, state, rates) = LOOP["state"], loop
    along, found = given["by_force"][0], inverse_dynamics(mechanism, state, rates, jnp.zeros(4))
    close(found.u, along * (along @ given["force"]) / (along @ along))


@pytest.mark.slow
def test_mass_matrix_and_linear_model_of_the_arm(arm):
    """T^T M T for v = T c'. Accelerations c'' and their derivatives in a moving state: x' = A x of
    deviations x = X y gives y' = X^+ (A X - X') y."""
    mechanism, states, _ = arm
    one = ARM["states"][0]
    given = one["forward_dynamics"]
    x, dx = np.append(one["q"], one["v"]), np.append(one["v"], given["acceleration"])
    X, rate = map(np.asarray, in_joints(ARM["tree"])(x, dx))
    T = X[42:, 7:]
    close(T @ one["v"], states.v[0])
    close(T.T @ mechanism.mass_matrix(states.q[0]) @ T, one["mass_matrix"])
    state = mbd.State(0.0, states.q[0], states.v[0])
    model = linearise(mechanism, state, jnp.array(given["force"]), size=14).in_all_coordinates()
    found = np.linalg.lstsq(X, np.hstack([model.A @ X - rate, model.B]))[0]
    none, each = np.zeros((7, 7)), np.eye(7)
    expected = np.block([[none, each, none], [given["by_q"], given["by_v"], given["by_force"]]])
    close(found, expected)
    dv = accelerations(mechanism, state, jnp.array(given["force"]))
    close(dv, T @ given["acceleration"] + rate[42:, 7:] @ one["v"])


@pytest.mark.slow
def test_linear_model_of_the_loop(loop):
    """Along the deviations that the loop admits: x = X y as of the arm, for x in the columns of Z.
    To 1e-10, since the derivatives by q are differences of eighth order."""
    mechanism, state, _ = loop
    given = LOOP["state"]
    model = linearise(mechanism, state, jnp.array(given["force"]))
    q, v, dv = (given[name] for name in ("q", "v", "acceleration"))
    X, rate = map(np.asarray, in_joints(LOOP["tree"])(np.append(q, v), np.append(v, dv)))
    y = np.linalg.lstsq(X, model.Z)[0]
    assert y.shape == (8, 2)
    close(X @ y, model.Z)
    found = np.linalg.lstsq(X, np.hstack([model.rates - rate @ y, model.pushes]))[0]
    of_y = np.vstack([y[4:], np.hstack([given["by_q"], given["by_v"]]) @ y])
    of_u = np.vstack([0 * given["by_force"], given["by_force"]])
    close(found, np.hstack([of_y, of_u]), 1e-10)


@pytest.mark.slow
def test_loop_driven_by_its_crank(loop):
    mechanism, state, _ = loop
    given = LOOP["driven"]
    found = kinematics(mechanism, state, given["joint"], given["values"], rate=given["rate"])
    expected, rates = motion_of(mechanism, given["samples"])
    apart = jax.jit(jax.vmap(lambda q, p: mechanism.difference(q, p)))(expected.q, found.q)
    np.testing.assert_allclose(apart, 0.0, atol=1e-11, rtol=0)
    close(found.v, expected.v)
    close(found.a, rates)
