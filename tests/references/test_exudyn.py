"""Equilibria, reactions and modes of closed loops by Exudyn: see make_exudyn.py."""

import jax.numpy as jnp
import numpy as np
import pytest
from reference_models import close, reactions_of, read

import jaxmbd as mbd
from jaxmbd.analysis import equilibrium, linearise, modes

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


def frames(points):
    """Frames at points of two bodies."""
    a, b = (mbd.Pose(jnp.array(point), jnp.array([1.0, 0.0, 0.0, 0.0])) for point in points)
    return {"frame_a": a, "frame_b": b}


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
        place = {x: joint[x] for x in ("point", "axis", "length") if x in joint}
        if "quaternion" in joint:
            place["orientation"] = joint["quaternion"]
        if "points" in joint:
            place |= frames(joint["points"])
        joints.append(KINDS[joint["kind"]](joint["name"], *ends, **place))
    springs = []
    for i, spring in enumerate(given["springs"]):
        options = frames(spring["points"]) | {x: spring[x] for x in ("stiffness", "damping")}
        options["rest_length"] = spring["rest_length" if loaded else "length_as_given"]
        springs.append(mbd.Spring(f"spring {i}", *spring["bodies"], **options))
    gravity = given["gravity"] if loaded else np.zeros(3)
    options = dict(gravity=gravity, plane=PLANES[name])
    return mbd.Mechanism(list(bodies.values()), joints, springs, **options)


def bodies_are(mechanism, q, expected):
    for body, place in expected.items():
        pose = mechanism.pose(q, body)
        axes = mbd.rotations.quaternion_to_matrix(pose.orientation)
        np.testing.assert_allclose(pose.position, place["position"], atol=1e-9, rtol=0)
        np.testing.assert_allclose(axes, place["axes"], atol=1e-9, rtol=0)


def ends_as(mechanism, sol, expected):
    bodies_are(mechanism, sol.q[-1], expected)
    for body, moving in expected.items():
        twist = mechanism.twist(sol.v[-1], body)
        np.testing.assert_allclose(twist.linear, moving["velocity"], atol=1e-8, rtol=0)
        np.testing.assert_allclose(twist.angular, moving["angular_velocity"], atol=1e-8, rtol=0)


@pytest.mark.parametrize("name", ["planar", pytest.param("spatial", marks=pytest.mark.slow)])
def test_rest_and_modes(name):
    """To 1e-9: Exudyn's Newton iterations leave residuals of 1e-11 N. Eigenvalues to 1e-10, since
    they magnify rounding."""
    given = EXUDYN[name]
    mechanism = built(name, loaded=True)
    rest = equilibrium(mechanism, mechanism.state())
    assert rest.report.stable
    bodies_are(mechanism, rest.q, given["rest"])
    names, lam = tuple(given["forces"]), rest.report.multipliers
    found = reactions_of(mechanism, rest.q, rest.v, lam, names)
    for held, expected in zip(found, given["forces"].values()):
        np.testing.assert_allclose(held[: len(expected)], expected, atol=1e-8, rtol=0)

    free = built(name, loaded=False)
    s = given["eigenvalues"]["real"] + 1j * given["eigenvalues"]["imag"]
    close(modes(linearise(free, free.state(), size=len(s))).s, s, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANES)
def test_motion(name):
    """RK4 with steps of 1 ms."""
    mechanism, given = built(name, loaded=True), EXUDYN[name]["motion"]
    options = dict(t1=float(given["end"]), dt=1e-3)
    sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), **options)
    ends_as(mechanism, sol, given["bodies"])


@pytest.mark.slow
def test_rolling_disc():
    """RK4 with steps of 1 ms."""
    given = EXUDYN["disc"]
    # The axis of a disc is the z axis of its joint, which is the x axis of the body.
    axis = mbd.rotations.quaternion_to_matrix(given["quaternion"])[:, 0]
    state = {x: given[x] for x in ("position", "velocity", "angular_velocity")}
    inertia = mbd.Inertia(given["mass"], given["tensor"], given["center"])
    disc = mbd.Body("disc", inertia, orientation=given["quaternion"], **state)
    points, axes = [np.zeros(3), given["position"]], [[0.0, 0.0, 1.0], axis]
    rolls = mbd.RollingDisc(
        "rolls", "ground", disc, radius=given["radius"], points=points, axes=axes
    )
    mechanism, end = mbd.Mechanism([disc], [rolls]), float(given["motion"]["end"])
    sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=end, dt=1e-3)
    ends_as(mechanism, sol, given["motion"]["bodies"])


@pytest.mark.slow
def test_modes_on_bushings():
    """Twelve damped modes of two free bodies."""
    given, bodies = EXUDYN["bushings"], {}
    for body in given["bodies"]:
        inertia = mbd.Inertia(body["mass"], body["tensor"], body["center"])
        place = dict(position=body["position"], orientation=body["quaternion"])
        bodies[body["name"]] = mbd.Body(body["name"], inertia, **place)
    held = [
        mbd.Bushing(
            f"bushing {i}",
            *(bodies.get(name, name) for name in bushing["bodies"]),
            point=bushing["point"],
            orientation=bushing["quaternion"],
            stiffness=bushing["stiffness"],
            damping=bushing["damping"],
        )
        for i, bushing in enumerate(given["bushings"])
    ]
    mechanism = mbd.Mechanism(list(bodies.values()), [], held, gravity=np.zeros(3))
    s = given["eigenvalues"]["real"] + 1j * given["eigenvalues"]["imag"]
    close(modes(linearise(mechanism, mechanism.state(), size=24)).s, s, 1e-10)
