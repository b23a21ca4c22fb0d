"""Equilibria, reactions, modes and a motion of bodies in loops and of a disc: make_exudyn.py."""

import numpy as np
import pytest
from points import motion
from reference_models import close, complex_of, frames, reactions_of, read, some
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd._compiler import to_jax
from jaxmbd.analysis import linearise, modes

EXUDYN = read("exudyn.json")
KINDS = {"revolute": mbd.Revolute, "prismatic": mbd.Prismatic, "ball": mbd.Spherical}
PLANES = {"planar": mbd.Plane(normal=[0.0, 0.0, 1.0]), "spatial": None}


def built(name, loaded):
    """The mechanism, or the one without gravity in which the springs have the lengths they need."""
    given = EXUDYN[name]["system"]
    bodies, joints = {"ground": "ground"}, []
    for body in given["bodies"]:
        inertia = mbd.Inertia(body["mass"], body["tensor"], body["center"])
        place = {"position": body["position"], "orientation": body["quaternion"]}
        bodies[body["name"]] = mbd.Body(body["name"], inertia, **place)
    for joint in given["joints"]:
        ends = [bodies[x] for x in joint["bodies"]]
        joints.append(KINDS[joint["kind"]](joint["name"], *ends, **some(joint, "point", "axis")))
    springs = []
    for i, spring in enumerate(given["springs"]):
        options = frames(*spring["points"]) | some(spring, "stiffness", "damping")
        options["rest_length"] = spring["rest_length" if loaded else "length_as_given"]
        springs.append(mbd.Spring(f"spring {i}", *spring["bodies"], **options))
    gravity = given["gravity"] if loaded else np.zeros(3)
    return mbd.Mechanism(
        list(bodies.values())[1:], joints, springs, gravity=gravity, plane=PLANES[name]
    )


@pytest.mark.parametrize("name", ["planar", pytest.param("spatial", marks=pytest.mark.slow)])
def test_where_it_rests(name):
    """To 1e-8: Exudyn's Newton iterations leave residuals of 1e-11 N."""
    given, mechanism = EXUDYN[name], built(name, loaded=True)
    places = [given["rest"][body.name] for body in mechanism.bodies]
    turns = Rotation.from_matrix([place["axes"] for place in places])
    poses = np.hstack([[x["position"] for x in places], turns.as_quat(scalar_first=True)]).T
    q, v = mechanism.coordinates_of(to_jax(poses), to_jax(np.zeros((6, len(places)))))
    rates, multipliers = motion(mechanism, q, v)
    np.testing.assert_allclose(rates, 0.0, atol=1e-8)
    # Of a plane a slide and a hinge.
    joints = ("guide", "B") if name == "planar" else tuple(given["forces"])
    found = reactions_of(mechanism, q, v, multipliers, joints)
    for joint, held in zip(joints, map(np.asarray, found), strict=True):
        expected = given["forces"][joint]
        np.testing.assert_allclose(held[: len(expected)], expected, atol=1e-8, rtol=0)


@pytest.mark.slow
def test_rolling_disc():
    """RK4 with steps of 1 ms. The axis of a disc is the z axis of its joint, here x of the body."""
    given = EXUDYN["disc"]
    inertia = mbd.Inertia(given["mass"], given["tensor"], given["center"])
    moving = some(given, "position", "velocity", "angular_velocity")
    disc = mbd.Body("disc", inertia, orientation=given["quaternion"], **moving)
    axis = Rotation.from_quat(given["quaternion"], scalar_first=True).as_matrix()[:, 0]
    options = dict(points=[np.zeros(3), given["position"]], axes=[[0.0, 0.0, 1.0], axis])
    rolls = mbd.joints.RollingDisc("rolls", "ground", disc, radius=given["radius"], **options)
    mechanism, end = mbd.Mechanism([disc], [rolls]), given["motion"]
    options = dict(t1=float(end["end"]), dt=1e-3)
    sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), **options)
    (q,), (v,) = np.asarray(sol.q), np.asarray(sol.v)
    axes = Rotation.from_quat(q[3:], scalar_first=True).as_matrix()
    np.testing.assert_allclose(q[:3], end["position"], atol=1e-9, rtol=0)
    np.testing.assert_allclose(axes, end["axes"], atol=1e-9, rtol=0)
    np.testing.assert_allclose(v, [*end["velocity"], *end["angular_velocity"]], atol=1e-8, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["planar", "spatial"])
def test_modes(name):
    """To 1e-10, since eigenvalues magnify rounding."""
    mechanism, s = built(name, loaded=False), complex_of(EXUDYN[name]["eigenvalues"])
    close(modes(linearise(mechanism, mechanism.state(), size=len(s))).s, s, 1e-10)
