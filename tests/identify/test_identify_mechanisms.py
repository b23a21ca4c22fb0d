"""Sensors on mechanisms against closed forms, and parameters of mechanisms, shared or bound to each
other, against those that the motions were made with."""

import math

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.integrate
from jaxtyping import Array
from known_motions import QUIET, position, state

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd.identify import Parameter, Positive, Record


def turning_bar(rate):
    """A bar of 2 kg turning at a rate about a hinge at its end, hanging down."""
    inertia = mbd.Inertia.box(size=[0.05, 0.05, 1.0], mass=2.0).moved([0, 0, -0.5])
    bar = mbd.Body("bar", inertia, angular_velocity=[0.0, rate, 0.0])
    hinge = mbd.Revolute("hinge", "ground", bar, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
    damper = mbd.TurningFriction.of(hinge, name="damper", viscous=0.1)
    return mbd.Mechanism([bar], [hinge], [damper])


@pytest.mark.slow
def test_sensors_of_a_turning_bar():
    """At the lowest point: no torque of gravity, so that only the damper slows it; the hinge
    carries weight and centripetal force."""
    rate = 3.0
    system = turning_bar(rate)
    start = system.state()

    def read(sensor):
        sample = identify.Sample(system, None, jnp.array(0.0), start.q, start.v)
        return jax.jit(lambda: sensor(sample))()

    moment = float(system.body("bar").inertia.tensor[1, 1]) + 2.0 * 0.25  # about the hinge
    slowing = -0.1 * rate / moment
    np.testing.assert_allclose(read(identify.JointRate("hinge")), [rate], rtol=1e-12)
    np.testing.assert_allclose(read(identify.Gyroscope("bar")), [0, rate, 0], atol=1e-12)
    tip = [0.0, 0.0, -1.0]
    np.testing.assert_allclose(read(identify.BodyPoint("bar", tip)), tip, atol=1e-12)
    # Towards the hinge, upwards: r w^2 + g; along the path, which goes to -x: r times the slowing.
    np.testing.assert_allclose(
        read(identify.Accelerometer("bar", tip)), [-slowing, 0, rate**2 + 9.81], atol=1e-9
    )
    force = read(identify.JointForce("hinge"))
    np.testing.assert_allclose(
        force[:3], [-2.0 * 0.5 * slowing, 0, 2.0 * (9.81 + 0.5 * rate**2)], atol=1e-9
    )


@pytest.mark.slow
def test_accelerometer_is_the_second_derivative():
    """Of a point at a pose where nothing vanishes, against differences of the simulated motion."""
    system = turning_bar(3.0)
    h = 1e-3
    sol = mbd.simulate(
        system, mbd.UdwadiaKalaba(), system.state(), t1=0.2 + h, dt=h,
        saveat=diffrax.SaveAt(ts=[0.2 - h, 0.2, 0.2 + h]),
    )  # fmt: skip
    point = [0.1, 0.2, -0.7]
    samples = [identify.Sample(system, None, sol.t[i], sol.q[i], sol.v[i]) for i in range(3)]
    path = np.stack([identify.BodyPoint("bar", point)(sample) for sample in samples])
    a = (path[0] - 2 * path[1] + path[2]) / h**2 - np.array([0, 0, -9.81])
    R = mbd.rotations.quaternion_to_matrix(system.pose(sol.q[1], "bar").orientation)
    found = identify.Accelerometer("bar", point)(samples[1])
    np.testing.assert_allclose(found, R.T @ a, atol=1e-4)


def test_paths_of_a_mechanism():
    """A path changes the one number it names, and finds whole parts too."""
    system = turning_bar(1.0)
    paths = identify.leaves(system)
    assert paths["forces[damper].viscous"] == 0.1
    assert {"bodies[bar].inertia.mass", "joints[hinge].frame_a.position", "gravity"} <= set(paths)
    model = identify.Leaves(system)
    heavier = mbd.Inertia.sphere(radius=0.1, mass=5.0)
    other = model({"forces[damper].viscous": jnp.array(0.3), "bodies[bar].inertia": heavier})
    assert other.force_element("damper").viscous == 0.3
    assert other.body("bar").inertia.mass == 5.0
    changed = {p for p, x in identify.leaves(other).items() if not np.array_equal(x, paths[p])}
    inertia = {f"bodies[bar].inertia.{field}" for field in ("mass", "tensor", "center")}
    assert changed == {"forces[damper].viscous"} | inertia
    chosen = model.parameters(lambda path, leaf: path.endswith("viscous"))
    assert list(chosen) == ["forces[damper].viscous"]


def inertia_of_bar(mass):
    return mbd.Inertia.box(size=[0.05, 0.05, 1.0], mass=mass).moved([0, 0, -0.5])


class CompoundPendulum(mbd.AbstractSystem):
    """A body about the y axis, hanging at angle 0."""

    inertia: mbd.Inertia
    damping: Array

    def mass_matrix(self, q):
        return self.inertia.about(jnp.zeros(3))[1:2, 1:2]

    def force(self, t, q, v, u):
        return 9.81 * self.inertia.mass * self.inertia.center[2] * jnp.sin(q) - self.damping * v


def compound_pendulum(mass):
    return CompoundPendulum(inertia_of_bar(mass), jnp.array(0.4))


def hanging_bar(mass):
    bar = mbd.Body("bar", inertia_of_bar(mass), angular_velocity=[0.0, 3.0, 0.0])
    hinge = mbd.Revolute("hinge", "ground", bar, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
    damper = mbd.TurningFriction.of(hinge, name="damper", viscous=0.4)
    return mbd.Mechanism([bar], [hinge], [damper])


@pytest.mark.slow
@pytest.mark.parametrize(
    "system, path, sensor",
    [
        (compound_pendulum, "inertia.mass", lambda sample: sample.v),
        (hanging_bar, "bodies[bar].inertia.mass", identify.JointRate("hinge")),
    ],
)
def test_tensor_goes_with_the_mass(system, path, sensor):
    """A compound pendulum of 2 kg whose damper is known is found from a guess of 1.5 kg. With the
    tensor of the guess it would be off by the half of that."""
    mass, moment = 2.0, 2.0 * ((1 + 0.05**2) / 12 + 0.25)
    times = np.linspace(0, 2, 41)
    motion = scipy.integrate.solve_ivp(
        lambda t, y: [y[1], (-0.4 * y[1] - mass * 9.81 * 0.5 * np.sin(y[0])) / moment],
        (0, 2), [0.0, 3.0], t_eval=times, rtol=1e-11, atol=1e-12,
    )  # fmt: skip
    guess = system(1.5)
    start = guess.state() if isinstance(guess, mbd.Mechanism) else state(0.0, 3.0)
    record = Record(times, motion.y[1], start)
    found = identify.fit(guess, {path: Positive()}, record, sensor, dt=1e-2, **QUIET)
    assert found.entries[0] == pytest.approx(mass, rel=1e-6)


def test_tensor_by_its_path():
    """A mass given alone scales the tensor; a tensor given too is taken, in any order; six numbers
    make all tensors of a body."""
    system = compound_pendulum(2.0)
    model = identify.Leaves(system)
    heavier = inertia_of_bar(5.0)
    np.testing.assert_allclose(model({"inertia.mass": 5.0}).inertia.tensor, heavier.tensor)
    other = mbd.Inertia.sphere(radius=0.3, mass=1.0).tensor
    both = model({"inertia.tensor": other, "inertia.mass": jnp.array(5.0)}).inertia
    assert both.mass == 5.0 and np.array_equal(both.tensor, other)
    parameter = model.parameters({"inertia.tensor": identify.LogCholesky()})
    parameters = identify.parameters.Parameters(parameter)
    assert parameters.size == 6
    np.testing.assert_allclose(
        parameters.values(jnp.zeros(6))["inertia.tensor"], system.inertia.tensor, atol=1e-15
    )
    moved = parameters.values(jr.normal(jr.key(0), (6,)))["inertia.tensor"]
    mbd.Inertia(1.0, moved)  # raises for what is no tensor of a body
    assert not np.allclose(moved, jnp.diag(jnp.diag(moved)))


@pytest.mark.parametrize(
    "chosen, remedy",
    [
        ("inertia.tensor", r"LogCholesky\(\)"),
        ("inertia", r"LogCholesky\(\)"),
        (lambda path, leaf: "tensor" in path, r"LogCholesky\(\)"),
        (["inertia.mass", "inertia"], "is a part of"),
    ],
)
def test_numbers_that_do_not_stand_alone(chosen, remedy):
    with pytest.raises(ValueError, match=remedy):
        identify.Leaves(compound_pendulum(2.0)).parameters(chosen)


class Square(eqx.Module):
    """A profile of a cam, and its number."""

    spline: mbd.PeriodicSpline

    def __call__(self, phi):
        return self.spline(phi)


def shared_numbers():
    """Two balls on a floor that touch; one turns about a hinge with limits, a drive and friction,
    and the wind blows on it."""
    inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0).moved([0.0, 0.02, 0.0])
    one, two = (mbd.Body(name, inertia, position=[x, 0, 0.1]) for x, name in enumerate("ab"))
    hinge = mbd.Revolute("hinge", one, two, point=[0.5, 0, 0.1], axis=[0, 1, 0], limits=(-1, 1))
    drive = mbd.PrescribedMotion("drive", hinge, lambda t: t)
    friction = mbd.TurningFriction.of(hinge, name="friction", viscous=0.1)
    pieces = [("ground", mbd.HalfSpace()), (one, mbd.Sphere(0.1)), (two, mbd.Sphere(0.1))]
    angles = np.arange(4.0)
    cam = mbd.Cam(
        "cam", one, two, points=[[0, 0, 0.1], [1, 0, 0.1]], axis=[0, 1, 0],
        profile=Square(mbd.PeriodicSpline(angles, 1 + 0 * angles)),
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
            {
                "joints[drive].driven.joint.frame_a.position",
                "forces[friction].frame_a.position",
                "contacts[stop].joint.frame_a.position",
            },
        ),
        ("contacts[stop].joint.limits", [[-2.0, 1.0]], {"joints[hinge].limits"}),
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
    after = identify.leaves(identify.Leaves(system)({path: jnp.array(value)}))
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
        ("joints[cam].profile.spline.values", "function"),
        ("joints[hinge].frame_a.orientation", r"UnitVector\(\)"),
        ("joints[hinge].frame_a", "whole Pose"),
    ):
        with pytest.raises(ValueError, match=remedy):
            model.parameters(path)


def test_unit_quaternions():
    """Turns of a guess by the angle 2 |z| about all axes, of length 1."""
    guess = jnp.array([0.5, -0.5, 0.5, 0.5])
    transform = identify.UnitVector()
    transform.check("p", guess)
    p = transform.value(guess, jnp.array([0.3, 0.0, 0.4]))
    turn = mbd.rotations.quaternion_product(mbd.rotations.quaternion_conjugate(guess), p)
    expected = [math.cos(0.5), 0.6 * math.sin(0.5), 0.0, 0.8 * math.sin(0.5)]
    np.testing.assert_allclose(turn, expected, atol=1e-15)
    slopes = jax.jacfwd(lambda z: transform.value(guess, z))(jnp.zeros(3))
    np.testing.assert_allclose(slopes.T @ slopes, np.eye(3), atol=1e-15)


@pytest.mark.slow
def test_mechanism_by_paths_and_log_cholesky():
    """A body's damper and inertia from the rate of its hinge. Of the ten numbers of the inertia the
    motion tells two, the moment about the hinge and the static moment: both are found."""
    truth = turning_bar(3.0)
    start = truth.state()
    times = np.linspace(0, 2, 81)
    sol = mbd.simulate(
        truth, mbd.UdwadiaKalaba(), start, t1=2.0, dt=2.5e-3, saveat=diffrax.SaveAt(ts=times)
    )
    rates = mbd.reports.joint_rates(truth, sol.q, sol.v, "hinge")
    guess = mbd.Inertia.box(size=[0.1, 0.1, 0.8], mass=1.5).moved([0, 0, -0.4])
    found = identify.fit(
        truth,
        {
            "forces[damper].viscous": Parameter(0.2, Positive()),
            "bodies[bar].inertia": Parameter(guess, identify.LogCholesky()),
        },
        Record(times, np.asarray(rates), start),
        identify.JointRate("hinge"),
        dt=2.5e-3,
        **QUIET,
    )
    inertia = found.values["bodies[bar].inertia"]

    def told(inertia, damper):
        moment = inertia.mass * inertia.center[2]
        about = inertia.tensor[1, 1] + inertia.mass * jnp.sum(inertia.center[::2] ** 2)
        return [float(moment / about), float(damper / about), float(inertia.center[0])]

    true_inertia = truth.body("bar").inertia
    np.testing.assert_allclose(
        told(inertia, found.values["forces[damper].viscous"]), told(true_inertia, 0.1), atol=1e-6
    )
    # Eleven numbers, and three combinations that the motion tells.
    assert len(found.identifiability().undetermined) == 8


@pytest.mark.slow
def test_geometry_moves_the_start():
    """A pendulum whose length is unknown starts on its own circle, not on that of the guess."""

    class Pendulum(mbd.AbstractSystem):
        length: Array

        def mass_matrix(self, q):
            return jnp.eye(2)

        def force(self, t, q, v, u):
            return jnp.array([0.0, -9.81])

        def constraint(self, q, t):
            return q @ q - self.length**2

    truth = Pendulum(jnp.array(0.5))
    start = mbd.State(0.0, jnp.array([0.3, -0.4]), jnp.zeros(2))
    times = np.linspace(0.0, 1.0, 21)
    sol = mbd.simulate(
        truth, mbd.UdwadiaKalaba(), start, t1=1.0, dt=0.01, saveat=diffrax.SaveAt(ts=times)
    )
    record = Record(times, np.asarray(sol.q), mbd.State(0.0, start.q * 1.2, start.v))
    found = identify.fit(
        Pendulum(jnp.array(0.6)), {"length": Positive()}, record, position, dt=0.01, **QUIET
    )
    assert found.values["length"] == pytest.approx(0.5, rel=1e-8)
    np.testing.assert_allclose(found.starts[0].q, [0.3, -0.4], atol=1e-8)
