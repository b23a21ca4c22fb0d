"""Sensors on mechanisms against closed forms, and parameters of mechanisms and loops, shared or
bound to each other, against those that the motions were made with."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import six_r_loop
from jaxtyping import Array
from known_motions import QUIET, position

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd.identify import Parameter, Positive, Record
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
    damper = mbd.TurningFriction.of(hinge, name="damper", viscous=VISCOUS)
    return mbd.Mechanism([bar], [hinge], [damper])


def test_sensors_of_a_turning_bar():
    """At a pose where nothing vanishes, by the kinematics and dynamics of the plane."""
    rate, angle, point = 3.0, 0.7, np.array([0.1, 0.2, -0.7])
    system = turning_bar(rate, angle)
    start = system.state()
    sensors = (
        identify.JointRate("hinge"),
        identify.Gyroscope("bar"),
        identify.BodyPoint("bar", point),
        identify.Accelerometer("bar", point),
        identify.JointForce("hinge"),
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
    expected = (
        [rate],
        turn,
        R @ point,
        R.T @ (moved(R @ point) - weight),
        np.concatenate([MASS * (moved(middle) - weight), np.zeros(3)]),
    )
    for found, known in zip(read(start.q, start.v), expected, strict=True):
        np.testing.assert_allclose(found, known, atol=1e-9)


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


BAR, TENSOR = "bodies[bar].inertia", "bodies[bar].inertia.tensor"


def test_tensor_by_its_path():
    """A mass given alone scales the tensor; a tensor given too is taken, in any order; six numbers
    make all tensors of a body."""
    model = identify.Leaves(turning_bar(0.0))

    def inertia(values):
        return model(values).body("bar").inertia

    heavier = inertia({f"{BAR}.mass": 5.0})
    np.testing.assert_allclose(heavier.tensor, inertia_of_bar(5.0).tensor)
    other = mbd.Inertia.sphere(radius=0.3, mass=1.0).tensor
    both = inertia({TENSOR: other, f"{BAR}.mass": jnp.array(5.0)})
    assert both.mass == 5.0 and np.array_equal(both.tensor, other)
    parameters = identify.parameters.Parameters(model.parameters({TENSOR: identify.LogCholesky()}))
    assert parameters.size == 6
    z = np.stack([np.zeros(6), np.random.default_rng(0).normal(size=6)])
    tensors = jax.jit(jax.vmap(lambda z: parameters.values(z)[TENSOR]))(z)
    np.testing.assert_allclose(tensors[0], inertia_of_bar(MASS).tensor, atol=1e-15)
    moved = np.asarray(tensors)[1]
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


class Pendulum(mbd.AbstractSystem):
    length: Array

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -GRAVITY])

    def constraint(self, q, t):
        return q @ q - self.length**2


def test_geometry_moves_the_start():
    """A pendulum whose length is unknown starts on its own circle, not on that of the guess; and so
    do its derivatives."""
    q, v = np.array([0.36, -0.48]), np.array([0.4, 0.3])
    record = Record(np.linspace(0.0, 0.1, 5), np.zeros((5, 2)), mbd.State(0.0, q, v))
    problem = make_problem(
        Pendulum(jnp.array(0.6)),
        {"length": Positive()},
        [record],
        position,
        SimulationOptions(0.1, mbd.UdwadiaKalaba(), None),
        identify.KnownStart(),
        identify.SingleShooting(),
        identify.Squares(),
    )
    first = lambda z: problem.residuals.motions(z, problem.data).first[0]  # noqa: E731
    start, slope = jax.jit(lambda z: jax.jvp(first, (z,), (jnp.ones(1),)))(np.log([1.5]))
    np.testing.assert_allclose(start, [*1.5 * q, *v], atol=1e-9)
    np.testing.assert_allclose(slope, [*1.5 * q, 0, 0], atol=1e-9)


# --- closed loops ---------------------------------------------------------------------------------


class SliderCrank(mbd.AbstractSystem):
    """Crank 0-P, rod P-S, S slides along y = 0 against friction. q = (P, S)."""

    dry: Array
    viscous: Array
    flywheel: Array

    def mass_matrix(self, q):
        bar = 0.8 / 6 * jnp.array([[2.0, 1.0], [1.0, 2.0]])
        points = jnp.zeros((2, 2)).at[0, 0].add(1.0 / 3 + self.flywheel / 0.01).at[1, 1].add(0.7)
        return jnp.kron(points + bar, jnp.eye(2))

    def force(self, t, q, v, u):
        weight = -GRAVITY * self.mass_matrix(q) @ jnp.array([0.0, 1.0, 0.0, 1.0])
        torque = 1.5 / 0.01 * jnp.stack([-q[1], q[0]])
        friction = -self.viscous * v[2] - self.dry * v[2] / jnp.sqrt(v[2] ** 2 + 0.05**2)
        return weight + jnp.concatenate([torque, jnp.stack([friction, jnp.zeros_like(friction)])])

    def constraint(self, q, t):
        pin, slider = q.reshape(2, 2)
        rod = slider - pin
        return jnp.stack([pin @ pin - 0.01, rod @ rod - 0.09, slider[1]])


@pytest.mark.slow
def test_friction_of_a_loop():
    """Without noise to 1e-6, from a motion by another scheme at adaptive steps."""
    truth = {"dry": 3.0, "viscous": 4.0, "flywheel": 0.02}
    guess = {"dry": 2.0, "viscous": 6.0, "flywheel": 0.03}
    pin, times = 0.1 * np.array([np.cos(0.5), np.sin(0.5)]), np.linspace(0.0, 0.6, 61)
    q = np.array([*pin, pin[0] + np.sqrt(0.09 - pin[1] ** 2), 0.0])
    system = SliderCrank(**{name: jnp.array(x) for name, x in truth.items()})
    v = np.array([-pin[1] * 6.0, pin[0] * 6.0, 0.0, 0.0])
    start = mbd.assemble(system, q, v, fixed_velocities=[0, 1])
    sol = mbd.simulate(
        system,
        mbd.LagrangeMultipliers(solver=mbd.Cholesky()),
        start,
        t1=0.6,
        dt=1e-3,
        scheme=diffrax.Tsit5(),
        stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-12),
        projection=mbd.Projection(),
        saveat=diffrax.SaveAt(ts=times),
    )
    found = identify.fit(
        lambda values: SliderCrank(**values),
        {name: Parameter(x, Positive()) for name, x in guess.items()},
        Record(times, np.asarray(sol.q)[:, [0, 2]], start),
        lambda sample: sample.q[::2],
        dt=1e-3,
        enforcement=mbd.UdwadiaKalaba(solver=mbd.Cholesky()),
        **QUIET,
    )
    assert found.converged
    np.testing.assert_allclose(found.entries, list(truth.values()), rtol=1e-6)


@pytest.mark.slow
def test_geometry_of_a_ring():
    """The length of the links of a closed ring of six hinges (Bricard's), one of whose rows is
    redundant, and whose masses stay where they are, from the path of the middle of link 3: by the
    exact motion, in which only the start depends on the length."""
    given = six_r_loop.six_r_loop()

    def ring(values):
        size = values["length"] / six_r_loop.LENGTH
        lengths = ("pose.position", "frame_a.position", "frame_b.position", "twist.linear")
        leaves = identify.leaves(given).items()
        return identify.Leaves(given)({p: size * x for p, x in leaves if p.endswith(lengths)})

    times = np.linspace(0.0, 0.4, 21)
    theta, phi = six_r_loop.exact_motion(times)
    poses = [six_r_loop.links(jnp.array(angles))[2] for angles in zip(theta, phi)]
    found = identify.fit(
        ring,
        {"length": Parameter(0.3, Positive())},
        Record(times, np.stack([pose.position for pose in poses]), lambda system: system.state()),
        identify.BodyPoint("link 3"),
        dt=4e-3,
        max_steps=20,
        **QUIET,
    )
    assert found.values["length"] == pytest.approx(0.25, rel=1e-6)
