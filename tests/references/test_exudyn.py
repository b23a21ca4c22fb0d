"""Equilibria, reactions and modes of closed loops by Exudyn: see make_exudyn.py."""

import jax.numpy as jnp
import numpy as np
import pytest
from references import close, read

import jaxmbd as mbd
from jaxmbd.analysis import equilibrium, linearise, modes

EXUDYN = read("exudyn.json")
KINDS = {"revolute": mbd.Revolute, "prismatic": mbd.Prismatic, "ball": mbd.Spherical}
PLANES = {"planar": mbd.Plane(normal=[0.0, 0.0, 1.0]), "spatial": None}


def built(name, loaded):
    """The mechanism, or the one without gravity in which the springs have the lengths they need."""
    given = EXUDYN[name]["system"]
    bodies = {
        body["name"]: mbd.Body(
            body["name"],
            mbd.Inertia(body["mass"], body["tensor"], body["center"]),
            position=body["position"],
            orientation=body["quaternion"],
        )
        for body in given["bodies"]
    }
    joints = []
    for joint in given["joints"]:
        ends = [bodies.get(x, x) for x in joint["bodies"]]
        place = {x: joint[x] for x in ("point", "axis") if x in joint}
        joints.append(KINDS[joint["kind"]](joint["name"], *ends, **place))
    springs = []
    for i, spring in enumerate(given["springs"]):
        unturned = jnp.array([1.0, 0.0, 0.0, 0.0])
        ends = (mbd.Pose(jnp.array(point), unturned) for point in spring["points"])
        frames = dict(zip(("frame_a", "frame_b"), ends))
        options = {x: spring[x] for x in ("stiffness", "damping")}
        options["rest_length"] = spring["rest_length" if loaded else "length_as_given"]
        springs.append(mbd.Spring(f"spring {i}", *spring["bodies"], **frames, **options))
    gravity = given["gravity"] if loaded else np.zeros(3)
    options = dict(gravity=gravity, plane=PLANES[name])
    return mbd.Mechanism(list(bodies.values()), joints, springs, **options)


@pytest.mark.parametrize("name", PLANES)
def test_rest_and_modes(name):
    """To 1e-9: Exudyn's Newton iterations leave residuals of 1e-11 N."""
    given = EXUDYN[name]
    mechanism = built(name, loaded=True)
    rest = equilibrium(mechanism, mechanism.state())
    assert rest.report.stable
    for body, place in given["rest"].items():
        pose = mechanism.pose(rest.q, body)
        axes = mbd.rotations.quaternion_to_matrix(pose.orientation)
        np.testing.assert_allclose(pose.position, place["position"], atol=1e-9)
        np.testing.assert_allclose(axes, place["axes"], atol=1e-9)
    for joint, expected in given["forces"].items():
        lam = rest.report.multipliers
        held = mbd.reports.reactions(mechanism, 0.0, rest.q, lam, joint)
        both = np.concatenate([held.force, held.torque])[: len(expected)]
        np.testing.assert_allclose(both, expected, atol=1e-8)

    free = built(name, loaded=False)
    s = given["eigenvalues"]["real"] + 1j * given["eigenvalues"]["imag"]
    model = linearise(free, free.state())
    close(modes(model).s, s)
