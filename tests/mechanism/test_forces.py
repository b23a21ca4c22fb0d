"""Forces on bodies against closed forms, power balances, the gradients of their potentials,
differences, and the laws written out in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from force_cases import (
    BOX,
    CONTROL,
    PARAMETERS,
    TIME,
    UNIT,
    X,
    Z,
    definite,
    everything,
    external,
    internal,
    line,
    progressive,
    quartic,
    quiet,
    random_body,
    random_pose,
    world,
)
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd.mechanism import energy
from jaxmbd.mechanism.forces import AbstractForceElement


@pytest.fixture(scope="module")
def bodies():
    rng = np.random.default_rng(0)
    return [random_body(name, rng) for name in "abc"]


@pytest.fixture(scope="module")
def table(bodies):
    """Power of each element, and the power of their generalised force."""

    @jax.jit
    def all_powers():
        mechanism = everything(bodies)
        state = mechanism.state()

        def force(forces):
            some = mbd.Mechanism(bodies, (), forces, gravity=[0, 0, 0])
            return some.force(TIME, state.q, state.v, CONTROL)

        rest = force([])
        found = energy.powers(mechanism, state.q, state.v, TIME, CONTROL)
        inside = force(internal(bodies, PARAMETERS)) - rest
        outside = force(external(bodies, PARAMETERS)) - rest
        return {"powers": found, "internal": inside, "external": outside}

    return all_powers()


# --- power and energy ---------------------------------------------------------------------------


def test_power_of_elements_is_that_of_their_generalised_force(bodies, table):
    powers = [entry.power for entry in table["powers"].values()]
    v = np.concatenate([np.concatenate(body.twist)[:, None] for body in bodies], axis=1).ravel()
    total = (table["internal"] + table["external"]) @ v
    np.testing.assert_allclose(sum(powers), total, rtol=1e-12)


def frame_motion(mechanism, name):
    """Positions, rotations, velocities and angular velocities of the frames of an element."""
    element, state = mechanism.force_element(name), mechanism.state()
    poses = mechanism.frames(element, state.q)
    twists = mechanism.frame_twists(element, state.q, state.v)
    r = [np.asarray(pose.position) for pose in poses]
    R = [Rotation.from_quat(np.asarray(p.orientation), scalar_first=True) for p in poses]
    v, omega = zip(*(map(np.asarray, twist) for twist in twists), strict=True)
    return r, R, v, omega


def subclasses(kind):
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


# Of every kind of force that has a potential energy: nothing that gives or takes besides.
CONSERVATIVE = {
    mbd.Spring: lambda a, b, frames: mbd.Spring(
        "f", a, b, stiffness=30.0, rest_length=0.4, potential=quartic, **frames
    ),
    mbd.TorsionSpring: lambda a, b, frames: mbd.TorsionSpring(
        "f", a, b, stiffness=5.0, rest_angle=0.2, potential=quartic, **frames
    ),
    mbd.Bushing: lambda a, b, frames: mbd.Bushing(
        "f", a, b, stiffness=definite(0), preload=np.arange(6.0), **frames
    ),
    mbd.CoordinateSpring: lambda a, b, frames: mbd.CoordinateSpring(
        "f", mbd.PathLength([a, b], [*frames.values()]), stiffness=30.0, rest=[0.05, 0.1]
    ),
}


def potentials():
    return {
        kind
        for kind in subclasses(AbstractForceElement)
        if kind.energy is not AbstractForceElement.energy and kind.__module__.startswith("jaxmbd.")
    }


@pytest.mark.parametrize(
    "kind",
    [*sorted(potentials(), key=lambda k: k.__name__), None],
    ids=lambda k: k.__name__ if k else "weight",
)
def test_forces_with_a_potential_are_its_gradient(bodies, kind):
    """dV/dt + f . v = 0 for two free bodies, at any poses and any velocities."""
    rng = np.random.default_rng(4)
    a, b, _ = bodies
    frames = dict(frame_a=random_pose(rng), frame_b=random_pose(rng))
    forces = [CONSERVATIVE[kind](a, b, frames)] if kind else []
    mechanism = mbd.Mechanism([a, b], (), forces, gravity=np.zeros(3) if kind else [0.3, 1, -9.0])

    @jax.jit
    @jax.vmap
    def powers(q, v):
        def potential(q):
            still = jnp.zeros_like(v)
            return energy.total_energy(mechanism, q, still)

        _, rate = jax.jvp(potential, (q,), (mechanism.qdot(q, v),))
        bias = mechanism.inertial_force(q, v) - mechanism.inertial_force(q, jnp.zeros_like(v))
        return rate, (mechanism.force(0.0, q, v, None) - bias) @ v

    n = 50
    p = rng.normal(size=(n, 4, 2))
    p /= np.linalg.norm(p, axis=1, keepdims=True)
    q = np.concatenate([rng.normal(size=(n, 3, 2)), p], axis=1).reshape(n, -1)
    rate, power = powers(q, rng.normal(size=(n, 12)))
    assert np.min(np.abs(power)) > 0
    scale = np.max(np.abs(power))
    np.testing.assert_allclose(power, -rate, rtol=1e-10, atol=1e-12 * scale)


def test_energy_and_losses_of_springs(bodies, table):
    """The power is what the energy loses and the damper takes, less what the actuator gives."""
    mechanism = everything(bodies)
    stored = energy.stored_energies(mechanism, mechanism.state().q)
    length, speed = line(mechanism, mechanism.force_element("spring"))
    np.testing.assert_allclose(stored["spring"], 15.0 * (length - 0.4) ** 2, rtol=1e-12)
    np.testing.assert_allclose(table["powers"]["spring"].lost, 2.0 * speed**2, rtol=1e-10)

    length, speed = line(mechanism, mechanism.force_element("rich spring"))
    x = length - 1.0
    np.testing.assert_allclose(stored["rich spring"], 1.5 * x**2 + 7 * x**4 + x**3, rtol=1e-12)
    lost = (0.1 * speed + progressive(x, speed) - 2.0 * CONTROL[3]) * speed
    np.testing.assert_allclose(table["powers"]["rich spring"].lost, lost, rtol=1e-10)
    # Springs that have no energy to lose.
    for name in ("push", "motor", "turning friction"):
        assert stored[name] == 0


@pytest.mark.parametrize("name", ["bushing", "full bushing"])
def test_energy_and_losses_of_bushings(bodies, table, name):
    """For large rotations, with the rotation vector as SciPy has it, and its rate by differences
    along the motion."""
    mechanism = everything(bodies)
    (ra, rb), (Ra, Rb), (va, vb), (wa, wb) = frame_motion(mechanism, name)

    def deflection(h):
        Ah, Bh = Rotation.from_rotvec(h * wa) * Ra, Rotation.from_rotvec(h * wb) * Rb
        d = Ah.inv().apply(rb + h * vb - ra - h * va)
        return np.concatenate([d, (Ah.inv() * Bh).as_rotvec()])

    p = jax.tree.map(np.asarray, PARAMETERS[name])
    K, C = (np.diag(A) if A.ndim == 1 else A for A in (p["stiffness"], p["damping"]))
    x, h = deflection(0.0), 1e-4
    assert 1.0 < np.linalg.norm(x[3:]) < 3.0
    steps = [deflection(k * h) for k in (-2, -1, 1, 2)]
    speed = (8 * (steps[2] - steps[1]) - (steps[3] - steps[0])) / (12 * h)
    element = mechanism.force_element(name)
    stored = element.energy(mechanism.frames(element, mechanism.state().q), TIME)
    np.testing.assert_allclose(stored, x @ K @ x / 2 - p["preload"] @ x, rtol=1e-12)
    entry = table["powers"][name]
    np.testing.assert_allclose(entry.power, speed @ (p["preload"] - K @ x - C @ speed), rtol=1e-9)
    np.testing.assert_allclose(entry.lost, speed @ C @ speed, rtol=1e-9)


def test_losses_of_friction(bodies, table):
    mechanism = everything(bodies)
    (ra, rb), (Ra, _), (va, vb), (wa, wb) = frame_motion(mechanism, "turning friction")
    w = Ra.apply(Z) @ (wb - wa)
    found = table["powers"]["turning friction"].lost
    np.testing.assert_allclose(found, 0.3 * w**2 + 1.7 * w**2 / np.hypot(w, 0.1), rtol=1e-12)

    # The velocity of b as seen from a, which turns.
    (ra, rb), (Ra, _), (va, vb), (wa, wb) = frame_motion(mechanism, "sliding friction")
    w = Ra.apply(Z) @ (vb - va - np.cross(wa, rb - ra))
    found = table["powers"]["sliding friction"].lost
    np.testing.assert_allclose(found, 0.2 * w**2 + 0.7 * w**2 / np.hypot(w, 0.2), rtol=1e-12)


def test_power_of_actuators(bodies, table):
    mechanism = everything(bodies)
    _, (Ra, _), _, (wa, wb) = frame_motion(mechanism, "motor")
    expected = 3.0 * -0.4 * Ra.apply(Z) @ (wb - wa)
    np.testing.assert_allclose(table["powers"]["motor"].power, expected, rtol=1e-12)
    (ra, rb), (Ra, _), (va, vb), (wa, wb) = frame_motion(mechanism, "actuator")
    expected = -2.0 * 1.5 * Ra.apply(Z) @ (vb - va - np.cross(wa, rb - ra))
    np.testing.assert_allclose(table["powers"]["actuator"].power, expected, rtol=1e-12)


def test_drag_and_loads(bodies, table):
    """Wrenches about the origins of the bodies, from laws and levers."""
    p = jax.tree.map(np.array, PARAMETERS)
    expected = np.zeros((3, 6))
    a, b, _ = bodies

    w = np.asarray(a.twist.at(a.pose.direction(a.inertia.center))) - p["drag"]["wind"]
    F = -(0.3 + 0.2 * np.linalg.norm(w)) * w
    arm = np.asarray(a.pose.direction(a.inertia.center))
    expected[0] = np.concatenate([F, np.cross(arm, F) - 0.1 * np.asarray(a.twist.angular)])
    Ra, Rb, Rc = (world(body)[1] for body in bodies)
    expected[0, 3:] += p["twist"]["torque_world"] + Ra.apply(p["twist"]["torque_body"])

    F = p["push"]["force_world"] + Rb.apply(p["push"]["force_body"])
    arm = p["push"]["point"] - np.asarray(b.pose.position)
    expected[1] = np.concatenate([F, np.cross(arm, F)])
    expected[2, :3] = Rc.apply(p["thrust"]["gear"] * 9.0)

    found = table["external"]
    np.testing.assert_allclose(found.reshape(6, 3).T, expected, rtol=1e-11, atol=1e-12)


def test_internal_forces_change_no_momentum(bodies, table):
    F, T = np.asarray(table["internal"]).reshape(2, 3, 3)
    r = np.stack([body.pose.position for body in bodies], axis=1)
    size = np.abs(F).max()
    np.testing.assert_allclose(F.sum(axis=1), 0, atol=1e-13 * size)
    np.testing.assert_allclose((T + np.cross(r, F, axis=0)).sum(axis=1), 0, atol=1e-13 * size)


def test_energies_of_bodies(bodies):
    g = jnp.array([0.3, -9.0, 2.0])
    mechanism = mbd.Mechanism(bodies, (), internal(bodies, PARAMETERS)[:1], gravity=g)
    state = mechanism.state()
    kinetic = energy.kinetic_energies(mechanism, state.q, state.v)
    potential = energy.gravitational_energies(mechanism, state.q)
    for body in bodies:
        expected = body.kinetic_energy(body.pose, body.twist)
        np.testing.assert_allclose(kinetic[body.name], expected, rtol=1e-12)
        height = -g @ body.pose.point(body.inertia.center)
        np.testing.assert_allclose(potential[body.name], 1.3 * height, rtol=1e-12)
    stored = energy.stored_energies(mechanism, state.q)
    total = energy.total_energy(mechanism, state.q, state.v)
    parts = (*kinetic.values(), *potential.values(), *stored.values())
    np.testing.assert_allclose(total, sum(parts), rtol=1e-12)


# --- derivatives --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def derivatives(bodies):
    """Of the generalised force of all elements, weighted, with respect to all parameters: reverse,
    forward, and by differences."""
    weights = jnp.asarray(np.random.default_rng(4).normal(size=18))
    state = quiet(bodies).state()

    def value(parameters):
        force = everything(bodies, parameters).force(TIME, state.q, state.v, CONTROL)
        return weights @ force

    flat, unravel = jax.flatten_util.ravel_pytree(PARAMETERS)
    one = lambda p: value(unravel(p))  # noqa: E731
    reverse = jax.jit(jax.grad(one))(flat)
    forward = jax.jit(lambda p, d: jax.jvp(one, (p,), (d,))[1])
    directions = np.eye(len(flat))
    # All unit directions in one batch; most laws are linear in their parameters.
    forwards = jax.jit(jax.vmap(forward, in_axes=(None, 0)))(flat, directions)
    h = 1e-4
    batch = jax.jit(jax.vmap(one))
    shifted = [batch(np.asarray(flat) + s * h * directions) for s in (-1, 1)]
    differences = (shifted[1] - shifted[0]) / (2 * h)
    return [unravel(jnp.asarray(x)) for x in (reverse, forwards, differences)]


@pytest.mark.parametrize("name", PARAMETERS)
def test_derivatives(derivatives, name):
    reverse, forward, difference = (tree[name] for tree in derivatives)
    for key in PARAMETERS[name]:
        assert np.any(np.abs(difference[key]) > 1e-4)
        # Second differences of the friction in its speed are of the order h^2 / speed^2.
        np.testing.assert_allclose(reverse[key], difference[key], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(forward[key], reverse[key], rtol=1e-11, atol=1e-12)


# --- degenerate points --------------------------------------------------------------------------


@pytest.mark.slow
def test_derivatives_where_laws_have_no_direction():
    """Coincident ends, no deflection, no rate: derivatives by pose and velocity are the linear
    stiffness and damping, wherever the law is smooth there, and finite."""
    K, C = definite(2), definite(3)
    frames = dict(frame_a=mbd.Pose(jnp.zeros(3), UNIT), frame_b=mbd.Pose(jnp.zeros(3), UNIT))
    z = np.outer(Z, Z)
    o = np.zeros((3, 3))
    cases = [
        (mbd.Spring("s", "ground", "s", stiffness=3.0, rest_length=0.0, **frames),
         np.block([[3 * np.eye(3), o], [o, o]]), np.zeros((6, 6))),
        (mbd.Bushing("k", "ground", "k", stiffness=K, damping=C, **frames), K, C),
        (mbd.TorsionSpring("t", "ground", "t", stiffness=2.0, damping=0.5, **frames),
         np.block([[o, o], [o, 2.0 * z]]), np.block([[o, o], [o, 0.5 * z]])),
        (mbd.TurningFriction("f", "ground", "f", viscous=0.5, dry=2.0, speed=0.1, **frames),
         np.zeros((6, 6)), np.block([[o, o], [o, 20.5 * z]])),
        (mbd.SlidingFriction("g", "ground", "g", viscous=0.5, dry=2.0, speed=0.1, **frames),
         np.zeros((6, 6)), np.block([[20.5 * z, o], [o, o]])),
        (mbd.Drag("d", "d", linear=0.4, quadratic=3.0, angular=0.1),
         np.zeros((6, 6)), np.diag([0.4, 0.4, 0.4, 0.1, 0.1, 0.1])),
        # A rest length without a direction: no force, and derivatives of the damper's neither.
        (mbd.Spring("r", "ground", "r", stiffness=3.0, damping=1.0, rest_length=0.5, **frames),
         np.block([[3 * np.eye(3), o], [o, o]]), np.zeros((6, 6))),
    ]  # fmt: skip

    # Each on a body of its own; all bodies are displaced and move in the same way.
    bodies = [mbd.Body(element.name, BOX) for element, _, _ in cases]
    elements = [element for element, _, _ in cases]
    mechanism = mbd.Mechanism(bodies, (), elements, gravity=[0, 0, 0])
    n, zero = len(cases), jnp.zeros(6)

    def force(dp, v):
        all_of_them = lambda x: jnp.tile(x[:, None], (1, n)).ravel()  # noqa: E731
        q = mechanism.coordinates.retract(mechanism.state().q, all_of_them(dp))
        return mechanism.force(TIME, q, all_of_them(v), None).reshape(6, n)

    weights = np.random.default_rng(5).normal(size=(6, n))
    at_rest, forward = jax.jit(jax.jacfwd(lambda *x: (force(*x),) * 2, (0, 1), has_aux=True))(
        zero, zero
    )[::-1]
    reverse = jax.jit(jax.grad(lambda *x: jnp.sum(weights * force(*x)), (0, 1)))(zero, zero)
    np.testing.assert_allclose(at_rest, 0, atol=1e-15)
    for found, backwards, place in zip(forward, reverse, (1, 2), strict=True):
        expected = np.stack([-case[place] for case in cases], axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_allclose(backwards, np.tensordot(weights, expected), atol=1e-12)


# --- motions in closed form -----------------------------------------------------------------------


@pytest.mark.slow
def test_motions():
    """Bodies in one run: a damped oscillation, falls with linear and quadratic drag, and sliders
    that dry friction stops."""
    m, g, t1 = 1.3, 9.81, 1.0
    k, c, length, z0 = 40.0, 0.8, 0.5, 0.1
    hang = -(length + m * g / k)
    c1, c2 = 2.0, 3.0
    dry, slow, v0 = 2.6, 0.01, 1.5
    bodies = [
        mbd.Body("mass", BOX, position=[0, 0, hang + z0]),
        mbd.Body("linear", BOX, position=[1, 0, 0]),
        mbd.Body("quadratic", BOX, position=[2, 0, 0]),
        mbd.Body("slider", BOX, position=[3, 0, 0], velocity=[v0, 0, 0]),
        mbd.Body("creeper", BOX, position=[4, 0, 0], velocity=[v0, 0, 0]),
    ]
    forces = [
        mbd.Spring("spring", "ground", "mass", stiffness=k, damping=c, rest_length=length,
                   frame_a=mbd.Pose(jnp.zeros(3), UNIT), frame_b=mbd.Pose(jnp.zeros(3), UNIT)),
        mbd.Drag("light", bodies[1], linear=c1),
        mbd.Drag("heavy", bodies[2], quadratic=c2),
        mbd.SlidingFriction("rub", "ground", bodies[3], point=[3, 0, 0], axis=X, dry=dry,
                            speed=slow),
        mbd.SlidingFriction("creep", "ground", bodies[4], point=[4, 0, 0], axis=X, dry=dry,
                            speed=10 * slow),
    ]  # fmt: skip
    mechanism = mbd.Mechanism(bodies, (), forces)
    sol = mbd.simulate(
        mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=t1, dt=1e-3, scheme=mbd.RK4()
    )
    end = {body.name: mechanism.pose(sol.q[-1], body.name).position for body in bodies}
    speed = {body.name: mechanism.twist(sol.v[-1], body.name).linear for body in bodies}

    # m z'' = -k z - c z' about the position of rest
    delta, omega = c / (2 * m), np.sqrt(k / m - (c / (2 * m)) ** 2)
    z = z0 * np.exp(-delta) * (np.cos(omega) + delta / omega * np.sin(omega))
    np.testing.assert_allclose(end["mass"], [0, 0, hang + z], atol=1e-10)

    final = m * g / c1
    np.testing.assert_allclose(speed["linear"][2], -final * (1 - np.exp(-t1 * c1 / m)), rtol=1e-10)
    final = np.sqrt(m * g / c2)
    np.testing.assert_allclose(speed["quadratic"][2], -final * np.tanh(g * t1 / final), rtol=1e-10)

    # m v' = -dry v / sqrt(v^2 + s^2) has the integral H(v) + dry t / m = H(v0).
    def H(v, s=10 * slow):
        return np.hypot(v, s) - s * np.arcsinh(s / v)

    np.testing.assert_allclose(H(float(speed["creeper"][0])) + dry * t1 / m, H(v0), rtol=1e-9)
    # Coulomb's law stops it after m v0 / dry = 0.75 s and m v0^2 / (2 dry), up to the creep.
    assert abs(speed["slider"][0]) < 1e-6 * v0
    np.testing.assert_allclose(end["slider"][0] - 3, m * v0**2 / (2 * dry), rtol=1.5 * slow / v0)


def test_mechanisms_with_functions_are_arrays_all_through(bodies):
    """So that they may be arguments of any JAX transformation."""
    mechanism = everything(bodies)
    assert all(eqx.is_inexact_array(x) for x in jax.tree.leaves(mechanism))
    assert everything(bodies).force_element("tether").function.pull == 0.8
