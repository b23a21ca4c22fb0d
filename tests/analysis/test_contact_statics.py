"""Equilibria with contacts and friction against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import LeaningRod
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import equilibrium

GRAVITY = 9.81


class Sled(mbd.AbstractSystem):
    """A mass above a rough floor at y = 0, pulled to x = 0 by a spring."""

    mass: Array
    stiffness: Array
    friction: Array

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.stack([-self.stiffness * q[0], -GRAVITY * self.mass])

    def gap(self, q, t):
        return q[1:]

    def slip(self, q, v, t):
        return v[:1, None]

    @property
    def contact_law(self):
        return mbd.ContactLaw(self.friction)


def settled(values, start):
    """Position, forces, and share of friction; and the verdict and the stiffness."""
    found = equilibrium(Sled(*values), mbd.State(0.0, start, jnp.zeros(2)), throw=False)
    report = found.report
    numbers = jnp.stack([*found.q, *report.contact_force[0], report.share[0]])
    return numbers, (report.result, report.stiffness)


@jax.jit
def sled(values, start):
    """The same, and the slopes of the numbers by mass, stiffness and friction."""

    def twice(values):
        numbers, others = settled(values, start)
        return numbers, (numbers, *others)

    slopes, others = jax.jacfwd(twice, has_aux=True)(values)
    return *others, slopes


M, K, MU = VALUES = np.array([0.7, 35.0, 0.4])
LOAD = M * GRAVITY
FAR = np.array([2.0, 1.5])
# Derivatives of x, y, normal force, friction and share where friction is at its limit.
SLIDING = np.array(
    [
        [MU * GRAVITY / K, -MU * LOAD / K**2, LOAD / K],
        [0, 0, 0],
        [GRAVITY, 0, 0],
        [MU * GRAVITY, 0, LOAD],
        [0, 0, 0],
    ]
)


def test_sled_that_slides_until_friction_holds_it():
    """From far above and aside: x = mu m g / k, with derivatives of the limit of friction."""
    found, result, stiffness, slopes = sled(VALUES, FAR)
    assert result == mbd.RESULTS.successful
    np.testing.assert_allclose(found, [MU * LOAD / K, 0, LOAD, MU * LOAD, 1], atol=1e-8)
    np.testing.assert_allclose(stiffness, [K / M, np.inf], rtol=1e-8)
    np.testing.assert_allclose(slopes, SLIDING, atol=1e-7)


@pytest.mark.slow
def test_reverse_mode():
    numbers = lambda values: settled(values, FAR)[0]  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.jacrev(numbers))(VALUES), SLIDING, atol=1e-7)


def test_sled_that_friction_holds():
    """It stays where it starts, and friction follows the spring."""
    x = 0.3 * MU * LOAD / K
    found, result, _, slopes = sled(VALUES, np.array([x, 0.0]))
    assert result == mbd.RESULTS.successful
    np.testing.assert_allclose(found, [x, 0, LOAD, K * x, 0.3], atol=1e-10)
    of_share = np.array([-0.3, 0.3, -0.3]) / VALUES
    expected = [[0, 0, 0], [0, 0, 0], [GRAVITY, 0, 0], [0, x, 0], of_share]
    np.testing.assert_allclose(slopes, expected, atol=1e-8)


def test_without_friction():
    """A ball on a floor rests where the spring holds it."""
    found = sled(np.array([M, K, 0.0]), FAR)[0]
    np.testing.assert_allclose(found, [0, 0, LOAD, 0, 0], atol=1e-8)


class Ladder(LeaningRod):
    """A uniform rod under its own weight."""

    friction: Array

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([jnp.ones_like(q[0]), jnp.ones_like(q[0]), 1 / 12 + 0 * q[0]]))

    def force(self, t, q, v, u):
        return jnp.stack([0 * q[0], -GRAVITY + 0 * q[0], 0 * q[0]])


@pytest.mark.slow
def test_ladder():
    """It stands if tan(angle) >= 1 / (2 mu). Above the limit, its share is 1 / (2 mu tan(angle)).
    Below, it slides down to the floor."""
    angle = 1.0
    limit = 1 / (2 * np.tan(angle))
    start = np.array([np.cos(angle) / 2, np.sin(angle) / 2, angle])

    @jax.jit
    @jax.vmap
    def leaning(mu):
        found = equilibrium(Ladder(mu), mbd.State(0.0, start, jnp.zeros(3)), throw=False)
        return found.q, found.report

    q, report = leaning(limit * jnp.array([1.01, 0.99]))
    assert np.all(report.result == mbd.RESULTS.successful)
    np.testing.assert_allclose(q[0], start, atol=1e-9)
    np.testing.assert_allclose(report.share[0], [1 / 1.01, 0, 0], rtol=1e-8)
    wall = GRAVITY / (2 * np.tan(angle))
    np.testing.assert_allclose(report.contact_force[0, :, 0], [GRAVITY, 0, wall], atol=1e-8)
    np.testing.assert_array_equal(report.closed[0], [True, False, True])
    np.testing.assert_allclose(q[1, 1:], 0, atol=1e-7)
    np.testing.assert_allclose(np.sum(report.contact_force[1, :2, 0]), GRAVITY, rtol=1e-8)


@pytest.mark.slow
def test_compliant_contact_and_belt_and_none():
    """A soft floor gives way by m g / k. A belt that runs under the mass carries it to where the
    spring holds it against friction. On a steep slope there is no equilibrium."""

    class Belt(Sled):
        def slip(self, q, v, t):
            return v[:1, None] - 2.0

    carried = equilibrium(Belt(*VALUES), mbd.State(0.0, [-0.3, 0.5], [0.0, 0.0]))
    np.testing.assert_allclose(carried.q, [MU * LOAD / K, 0], atol=1e-9)
    np.testing.assert_allclose(carried.report.share, [1], rtol=1e-9)

    class Soft(Sled):
        @property
        def contact_law(self):
            return mbd.ContactLaw(stiffness=self.friction)

    start = mbd.State(0.0, [0.1, 0.5], [0.0, 0.0])
    depth = lambda k: equilibrium(Soft(jnp.array(0.7), jnp.array(35.0), k), start).q[1]  # noqa: E731
    value, slope = jax.jit(jax.value_and_grad(depth))(200.0)
    np.testing.assert_allclose(value, -0.7 * GRAVITY / 200, rtol=1e-9)
    np.testing.assert_allclose(slope, 0.7 * GRAVITY / 200**2, rtol=1e-8)

    class Slope(Sled):
        def force(self, t, q, v, u):
            return jnp.array([1.0, -2.0])

    sliding = Slope(jnp.array(0.7), jnp.array(0.0), jnp.array(0.49))
    found = equilibrium(sliding, start, max_iterations=50, throw=False)
    assert found.report.result == mbd.RESULTS.equilibrium_not_found
    assert np.all(np.isfinite(found.q))


@pytest.mark.slow
def test_box_on_slope():
    """Four corners of a box in space, statically indeterminate: the forces in sum, the share
    tan(slope) / mu, and the derivative of the load by the mass."""
    slope, mu, mass = 0.3, 0.5, 2.0
    tilted = GRAVITY * np.array([np.sin(slope), 0.0, -np.cos(slope)])
    size = [0.2, 0.2, 0.2]

    def held(mass):
        body = mbd.Body("box", mbd.Inertia.box(size=size, mass=mass), position=[0.0, 0.0, 0.1])
        floor = mbd.Contact(
            "floor", "ground", body, mbd.HalfSpace(), mbd.Box(np.array(size) / 2), friction=mu
        )
        box = mbd.Mechanism([body], contacts=[floor], gravity=tilted)
        found = equilibrium(box, box.state(), throw=False)
        forces = found.report.contact_force
        sums = jnp.stack([jnp.sum(forces[:, 0]), jnp.linalg.norm(jnp.sum(forces[:, 1:], axis=0))])
        return sums, found

    (sums, found), (slopes, _) = jax.jit(lambda m: jax.jvp(held, (m,), (jnp.ones_like(m),)))(mass)
    assert found.report.result == mbd.RESULTS.successful
    expected = mass * GRAVITY * np.array([np.cos(slope), np.sin(slope)])
    np.testing.assert_allclose(found.q[:3], [0, 0, 0.1], atol=1e-9)
    np.testing.assert_allclose(sums, expected, rtol=1e-7)
    np.testing.assert_allclose(slopes, expected / mass, rtol=1e-6)
    assert np.max(found.report.share) <= 1 + 1e-9


@pytest.mark.slow
def test_hinged_rod_on_a_floor():
    """A joint, stated twice, and a contact: the ball at the free end slides down to the floor, so
    friction is at its limit and takes a part of the load by its lever about the hinge."""
    rod = mbd.Body("rod", mbd.Inertia.box(size=[1.0, 0.05, 0.05], mass=2.0), position=[0.5, 0, 0.1])
    hinge, axis = [0.0, 0.0, 0.1], [0.0, 1.0, 0.0]
    twice = [mbd.Revolute(name, "ground", rod, point=hinge, axis=axis) for name in ("A", "B")]
    floor = mbd.Contact(
        "floor",
        "ground",
        rod,
        mbd.HalfSpace(),
        mbd.Sphere(0.1),
        frame_b=mbd.Pose(np.array([0.5, 0, 0]), np.array([1.0, 0, 0, 0])),
        friction=0.5,
    )
    mechanism = mbd.Mechanism([rod], twice, contacts=[floor])
    raised = mbd.place_bodies(mechanism, {"A": -0.4})
    found = equilibrium(mechanism, mbd.State(0.0, raised.q, raised.v))
    np.testing.assert_allclose(found.q[:3], [0.5, 0, 0.1], atol=1e-8)
    load = GRAVITY / (1 + 0.5 * 0.1)
    np.testing.assert_allclose(found.report.contact_force[0], [load, load / 2, 0], atol=1e-7)
    reaction = mbd.reports.reactions(mechanism, 0.0, found.q, found.report.multipliers, "A")
    rest = 2 * GRAVITY - load
    np.testing.assert_allclose(2 * np.abs(reaction.force), [load / 2, 0, rest], atol=1e-7)
