"""Sensors on mechanisms against closed forms, and parameters of mechanisms, shared or bound to
each other, against those that the motions were made with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Pendulum
from known_motions import position

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._compiler import to_jax
from jaxmbd.identify import Positive, Record
from jaxmbd.identify.problem import SimulationOptions, make_problem

MASS, VISCOUS, GRAVITY = 2.0, 0.1, 9.81


def inertia_of_bar(mass):
    return mbd.Inertia.box(size=[0.05, 0.05, 1.0], mass=mass).moved([0, 0, -0.5])


def turning_bar(rate, angle=0.0):
    """A bar of 2 kg turning at a rate about a hinge at its end, at an angle from hanging down."""
    bar = mbd.Body(
        "bar",
        inertia_of_bar(MASS),
        orientation=[np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0],
        angular_velocity=[0.0, rate, 0.0],
    )
    hinge = mbd.Revolute("hinge", "ground", bar, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
    damper = mbd.forces.JointFriction(hinge, name="damper", viscous=VISCOUS)
    return mbd.Mechanism([bar], [hinge], [damper])


def test_sensors_of_a_turning_bar():
    """At a pose where nothing vanishes, by the kinematics and dynamics of the plane."""
    rate, angle, point = 3.0, 0.7, np.array([0.1, 0.2, -0.7])
    half = 0.4
    mounted = np.array([np.cos(half), 0.0, 0.6 * np.sin(half), 0.8 * np.sin(half)])
    off = 0.05 * np.array([np.cos(1.1), np.sin(1.1)])
    system, start = turning_bar(rate), turning_bar(rate, angle).state()
    sensors = (
        identify.JointRate("hinge"),
        identify.BodyPoint("bar", point),
        identify.JointForce("hinge"),
        identify.IMU("bar", point, mounted),
        identify.Encoder("hinge", counts=100, eccentricity=off),
    )

    @jax.jit
    def read(q, v):
        sample = identify.Sample(system, None, jnp.array(0.0), q, v)
        return [sensor(sample) for sensor in sensors]

    c, s = np.cos(angle), np.sin(angle)
    R, weight = np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]), np.array([0, 0, -GRAVITY])
    moment = MASS * ((1 + 0.05**2) / 12 + 0.25)  # about the hinge
    rise = (-MASS * GRAVITY * 0.5 * s - VISCOUS * rate) / moment
    turn, bend = np.array([0, rate, 0]), np.array([0, rise, 0])
    moved = lambda r: np.cross(bend, r) + np.cross(turn, np.cross(turn, r))  # noqa: E731
    middle = R @ [0, 0, -0.5]
    # The axes of the sensor in the body, by Rodrigues' formula.
    K = np.cross([0.0, 0.6, 0.8], np.eye(3)).T
    axes = np.eye(3) + np.sin(2 * half) * K + (1 - np.cos(2 * half)) * K @ K
    force = moved(R @ point) - weight
    # The mark under a head at (1, 0): the head as seen from the centre of the marks, on a disc
    # that turns with the bar.
    c, s = np.cos(angle + 1.1), np.sin(angle + 1.1)
    mark = np.arctan2(-0.05 * s, 1 - 0.05 * c) - angle
    expected = (
        [rate],
        R @ point,
        np.concatenate([MASS * (moved(middle) - weight), np.zeros(3)]),
        np.concatenate([axes.T @ R.T @ force, axes.T @ R.T @ turn]),
        [-mark],
    )
    for found, known in zip(read(start.q, start.v), expected, strict=True):
        np.testing.assert_allclose(found, known, atol=1e-9)


BAR, TENSOR = "bodies[bar].inertia", "bodies[bar].inertia.tensor"


def test_tensor_by_its_path():
    """A mass given alone scales the tensor; a tensor given too is taken, in any order; and a whole
    inertia is. Six numbers make all tensors of a body."""
    model = identify.Leaves(turning_bar(0.0))

    def inertia(values):
        return model(values).body("bar").inertia

    heavier = inertia({f"{BAR}.mass": 5.0})
    np.testing.assert_allclose(heavier.tensor, inertia_of_bar(5.0).tensor)
    whole = mbd.Inertia.sphere(radius=0.3, mass=1.0)
    other = whole.tensor
    np.testing.assert_array_equal(inertia({BAR: whole}).tensor, other)
    both = inertia({TENSOR: other, f"{BAR}.mass": jnp.array(5.0)})
    assert float(both.mass) == 5.0 and np.array_equal(both.tensor, other)
    parameters = identify.parameters.Parameters(model.parameters({TENSOR: identify.LogCholesky()}))
    assert parameters.size == 6
    z = np.stack([np.zeros(6), np.random.default_rng(0).normal(size=6)])
    given, moved = np.asarray(jax.jit(jax.vmap(lambda z: parameters.values(z)[TENSOR]))(z))
    np.testing.assert_allclose(given, inertia_of_bar(MASS).tensor, atol=1e-15)
    mbd.Inertia(1.0, moved)  # raises for what is no tensor of a body
    assert not np.allclose(moved, np.diag(np.diag(moved)))


@pytest.mark.parametrize(
    "chosen, remedy",
    [
        (TENSOR, r"LogCholesky\(\)"),
        (BAR, r"LogCholesky\(\)"),
        (lambda path, leaf: "tensor" in path, r"LogCholesky\(\)"),
        ([f"{BAR}.mass", BAR], "is a part of"),
    ],
)
def test_numbers_that_do_not_stand_alone(chosen, remedy):
    with pytest.raises(ValueError, match=remedy):
        identify.Leaves(turning_bar(0.0)).parameters(chosen)


def shared_numbers():
    """Two balls on a floor that touch; one turns about a hinge with limits, a drive and friction,
    and the wind blows on it."""
    inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0).moved([0.0, 0.02, 0.0])
    one, two = (mbd.Body(name, inertia, position=[x, 0, 0.1]) for x, name in enumerate("ab"))
    hinge = mbd.Revolute("hinge", one, two, point=[0.5, 0, 0.1], axis=[0, 1, 0], limits=(-1, 1))
    drive = mbd.PrescribedMotion("drive", hinge, lambda t: t)
    frames = dict(frame_a=hinge.frame_a, frame_b=hinge.frame_b)
    friction = mbd.TurningFriction("friction", one, two, viscous=0.1, **frames)
    pieces = [("ground", mbd.HalfSpace()), (one, mbd.Sphere(0.1)), (two, mbd.Sphere(0.1))]
    angles = np.arange(4.0)
    cam = mbd.joints.Cam(
        "cam", one, two, points=[[0, 0, 0.1], [1, 0, 0.1]], axis=[0, 1, 0],
        profile=mbd.joints.PeriodicSpline(angles, 1 + 0 * angles),
    )  # fmt: skip
    return mbd.Mechanism(
        [one, two],
        [hinge, drive, cam],
        [friction, mbd.Drag("wind", one, linear=1.0), mbd.Drag("aside", one, point=[0, 0, 1.0])],
        contacts=[mbd.JointLimit(hinge, name="stop"), *mbd.contacts_among(pieces)],
    )


@pytest.mark.parametrize(
    "path, value, expected",
    [
        (
            "joints[hinge].frame_a.position",
            [0.6, 0.0, 0.0],
            {"forces[friction].coordinate.local[0].position"},
        ),
        ("joints[hinge].limits", [[-2.0, 1.0]], set()),
        ("contacts[ground-a].shape_b.radius", 0.2, {"contacts[a-b].shape_a.radius"}),
        ("bodies[a].inertia.center", [0.0, 0.0, 0.1], {"forces[wind].frame.position"}),
        ("forces[wind].frame.position", [0.0, 0.0, 0.1], set()),
        ("contacts[a-b].law.restitution", 0.5, set()),
    ],
)
def test_copies_change_together(path, value, expected):
    """What a mechanism holds several times is one number, and nothing else changes with it."""
    system = shared_numbers()
    before = identify.leaves(system)
    after = identify.leaves(identify.Leaves(system)({path: to_jax(np.array(value))}))
    changed = {p for p, x in after.items() if not np.array_equal(x, before[p])}
    assert changed == {path} | expected
    for other in expected:
        np.testing.assert_array_equal(after[other], value)


def test_copies_are_one_parameter():
    model = identify.Leaves(shared_numbers())
    radii = model.parameters(lambda path, leaf: path.endswith("radius"))
    assert len(radii) == 2
    first, second = "contacts[ground-a].shape_b.radius", "contacts[a-b].shape_a.radius"
    with pytest.raises(ValueError, match="one number"):
        model.parameters([first, second])
    for path, remedy in (
        ("joints[cam].profile.values", "function"),
        ("joints[hinge].frame_a.orientation", r"UnitVector\(\)"),
        ("joints[hinge].frame_a", "whole Pose"),
    ):
        with pytest.raises(ValueError, match=remedy):
            model.parameters(path)


@pytest.mark.parametrize(
    "start",
    [
        mbd.State(0.0, np.array([0.36, -0.48]), np.array([0.4, 0.3])),
        lambda system: mbd.State(0.0, system.length * np.array([0.6, -0.8]), np.array([0.4, 0.3])),
    ],
    ids=["state", "function"],
)
def test_geometry_moves_the_start(start):
    """A pendulum whose length is unknown starts on its own circle, not on that of the guess; and so
    do its derivatives."""
    problem = make_problem(
        Pendulum(length=0.6),
        {"length": Positive()},
        [Record(np.linspace(0.0, 0.1, 5), np.zeros((5, 2)), start)],
        position,
        SimulationOptions(0.1, mbd.UdwadiaKalaba(), None),
        None,
        identify.SingleShooting(),
        identify.Squares(),
    )
    first = lambda z: problem.residuals.motions(z, problem.data).first[0]  # noqa: E731
    found, slope = jax.jit(lambda z: jax.jvp(first, (z,), (jnp.ones(1),)))(np.log([1.5]))
    np.testing.assert_allclose(found, [0.54, -0.72, 0.4, 0.3], atol=1e-9)
    np.testing.assert_allclose(slope, [0.54, -0.72, 0, 0], atol=1e-9)
