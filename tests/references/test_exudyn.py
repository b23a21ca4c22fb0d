"""Equilibria, reactions, modes and motions of closed loops by Exudyn: see make_exudyn.py."""

import numpy as np
import pytest
from points import motion
from reference_models import close, complex_of, frames, reactions_of, read, some
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd._concrete import to_jax
from jaxmbd.analysis import linearise, modes

EXUDYN = read("exudyn.json")
KINDS = {
    "revolute": mbd.Revolute,
    "prismatic": mbd.Prismatic,
    "ball": mbd.Spherical,
    "cylindrical": mbd.Cylindrical,
    "universal": mbd.Universal,
    "point_on_line": mbd.PointOnLine,
    "point_on_plane": mbd.PointOnPlane,
    "distance": mbd.Distance,
}
PLANES = {"planar": mbd.Plane(normal=[0.0, 0.0, 1.0]), "spatial": None, "joints": None}


def body_of(given):
    moving = some(given, "position", "velocity", "angular_velocity")
    inertia = mbd.Inertia(given["mass"], given["tensor"], given["center"])
    return mbd.Body(given.get("name", "disc"), inertia, orientation=given["quaternion"], **moving)


def built(name, loaded):
    """The mechanism, or the one without gravity in which the springs have the lengths they need."""
    given = EXUDYN[name]["system"]
    bodies = {body["name"]: body_of(body) for body in given["bodies"]}
    joints = []
    for joint in given["joints"]:
        ends = [bodies.get(x, x) for x in joint["bodies"]]
        place = some(joint, "point", "axis", "length")
        if "quaternion" in joint:
            place["orientation"] = joint["quaternion"]
        if "points" in joint:
            place |= frames(*joint["points"])
        joints.append(KINDS[joint["kind"]](joint["name"], *ends, **place))
    springs = []
    for i, spring in enumerate(given["springs"]):
        options = frames(*spring["points"]) | some(spring, "stiffness", "damping")
        options["rest_length"] = spring["rest_length" if loaded else "length_as_given"]
        springs.append(mbd.Spring(f"spring {i}", *spring["bodies"], **options))
    gravity = given["gravity"] if loaded else np.zeros(3)
    bodies = list(bodies.values())
    return mbd.Mechanism(bodies, joints, springs, gravity=gravity, plane=PLANES[name])


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


def modes_are(mechanism, given):
    """To 1e-10, since eigenvalues magnify rounding."""
    s = complex_of(given["eigenvalues"])
    close(modes(linearise(mechanism, mechanism.state(), size=len(s))).s, s, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["planar", "spatial"])
def test_modes(name):
    modes_are(built(name, loaded=False), EXUDYN[name])


@pytest.mark.slow
def test_modes_on_bushings():
    """Twelve damped modes of two free bodies."""
    given = EXUDYN["bushings"]
    bodies = {body["name"]: body_of(body) for body in given["bodies"]}
    held = []
    for i, bushing in enumerate(given["bushings"]):
        options = some(bushing, "point", "stiffness", "damping")
        options["orientation"] = bushing["quaternion"]
        ends = (bodies.get(name, name) for name in bushing["bodies"])
        held.append(mbd.Bushing(f"bushing {i}", *ends, **options))
    modes_are(mbd.Mechanism(list(bodies.values()), [], held, gravity=np.zeros(3)), given)


def moves_as(mechanism, given):
    """RK4 with steps of 1 ms."""
    options = dict(t1=float(given["end"]), dt=1e-3)
    sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), **options)
    for body, moving in given["bodies"].items():
        pose, twist = mechanism.pose(sol.q[-1], body), mechanism.twist(sol.v[-1], body)
        axes = mbd.rotations.quaternion_to_matrix(pose.orientation)
        np.testing.assert_allclose(pose.position, moving["position"], atol=1e-9, rtol=0)
        np.testing.assert_allclose(axes, moving["axes"], atol=1e-9, rtol=0)
        np.testing.assert_allclose(twist.linear, moving["velocity"], atol=1e-8, rtol=0)
        np.testing.assert_allclose(twist.angular, moving["angular_velocity"], atol=1e-8, rtol=0)


@pytest.mark.slow
def test_motion_of_a_loop_with_joints_of_several_freedoms():
    moves_as(built("joints", loaded=True), EXUDYN["joints"]["motion"])


@pytest.mark.slow
def test_rolling_disc():
    given = EXUDYN["disc"]
    # The axis of a disc is the z axis of its joint, which is the x axis of the body.
    axis = Rotation.from_quat(given["quaternion"], scalar_first=True).as_matrix()[:, 0]
    disc = body_of(given)
    options = dict(points=[np.zeros(3), given["position"]], axes=[[0.0, 0.0, 1.0], axis])
    rolls = mbd.RollingDisc("rolls", "ground", disc, radius=given["radius"], **options)
    moves_as(mbd.Mechanism([disc], [rolls]), given["motion"])
