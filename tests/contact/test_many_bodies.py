"""Contacts of many bodies, which are eliminated sparsely, against the same contacts as arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_verdicts, with_slopes

import jaxmbd as mbd
from jaxmbd._contact import rows
from jaxmbd._contact.solvers import interior_point
from jaxmbd._linalg import sparse_lu

RADIUS, COUNT, DT, STEPS = 0.1, 8, 2e-3, 20


def pile():
    """Two layers of four balls that nearly touch each other and the ground."""
    inertia = mbd.Inertia.sphere(radius=RADIUS, mass=1.0)
    rng = np.random.default_rng(0)
    places = [
        [2.02 * RADIUS * x, 2.02 * RADIUS * y, RADIUS * (1.001 + 2.002 * z)]
        for z in (0, 1)
        for x in (0, 1)
        for y in (0, 1)
    ]
    speeds = 0.3 * rng.normal(size=(COUNT, 3)) - [0.0, 0.0, 0.5]
    bodies = [
        mbd.Body(f"{i}", inertia, position=place, velocity=speed)
        for i, (place, speed) in enumerate(zip(places, speeds, strict=True))
    ]
    pieces = [("ground", mbd.HalfSpace()), *((body, mbd.Sphere(RADIUS)) for body in bodies)]
    contacts = mbd.contacts_among(pieces, law=mbd.ContactLaw(0.4))
    return mbd.Mechanism(bodies, contacts=contacts)


def outcome():
    """The end of a motion as a function of the speeds at its start, and its gradient."""
    mechanism, weight = pile(), np.random.default_rng(1).normal(size=7 * COUNT)
    state = mechanism.state()

    def end(v):
        start = mbd.State(0.0, state.q, v)
        sol = mbd.simulate(mechanism, mbd.ContactImpulse(), start, dt=DT, num_steps=STEPS)
        return weight @ sol.q[-1], (sol.contact_force, sol.contact_residual[-1])

    return jax.jit(jax.value_and_grad(end, has_aux=True)), state.v


@pytest.mark.slow
def test_pile_as_arrays_and_as_blocks(monkeypatch):
    sparse, v = outcome()
    (end, (force, residual)), slope = sparse(v)
    assert residual < 1e-10
    assert np.sum(np.any(force[:, :, 0] > 0, axis=0)) >= 6, "Too few contacts act."
    monkeypatch.setattr(rows, "_FEW", 10**6)
    dense, _ = outcome()
    (same, (forces, _)), slopes = dense(v)
    np.testing.assert_allclose(end, same, rtol=1e-10)
    np.testing.assert_allclose(force, forces, atol=1e-7)
    np.testing.assert_allclose(slope, slopes, rtol=1e-7, atol=1e-9)
    # Against differences, along the motion itself.
    along = np.random.default_rng(2).normal(size=v.shape)
    ahead, behind = (sparse(v + s * jnp.asarray(along))[0][0] for s in (1e-6, -1e-6))
    np.testing.assert_allclose(slope @ along, (ahead - behind) / 2e-6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("by_sweeps", [False, True])
def test_a_failed_step_has_finite_derivatives(by_sweeps, monkeypatch):
    """Three balls that press each other, without room for their edges: the elimination fails, and
    the derivatives are of the start, to which the state went back. Sweeps solve the step without
    an elimination. Only its derivatives lack one then, so it fails only where they are asked for.
    """
    inertia = mbd.Inertia.sphere(radius=RADIUS, mass=1.0)
    places = 2 * RADIUS * np.array([[0, 0, 0.5], [1, 0, 0.5], [0.5, 0.75**0.5, 0.5]])
    inwards = places.mean(axis=0) - places
    bodies = [
        mbd.Body(f"{i}", inertia, position=place, velocity=v)
        for i, (place, v) in enumerate(zip(places, inwards, strict=True))
    ]
    pieces = [("ground", mbd.HalfSpace()), *((body, mbd.Sphere(RADIUS)) for body in bodies)]
    contacts = mbd.contacts_among(pieces, law=mbd.ContactLaw(0.5))
    mechanism = mbd.Mechanism(bodies, contacts=contacts)
    method = mbd.ContactImpulse(contact_solver=mbd.solvers.InteriorPoint(restarts=2))
    weight, v = np.random.default_rng(0).normal(size=18), np.asarray(mechanism.state().v)

    def end(v):
        start = mbd.State(0.0, mechanism.state().q, v)
        sol = mbd.simulate(mechanism, method, start, dt=1e-3, num_steps=1, throw=False)
        return weight @ sol.v[-1], sol.result

    monkeypatch.setattr(rows, "_FEW", 0)
    monkeypatch.setattr(sparse_lu, "_EDGES", -1)
    if by_sweeps:
        method = mbd.ContactImpulse(contact_solver=mbd.solvers.ProjectedGaussSeidel(100))
        assert_verdicts(jax.jit(end)(v)[1], mbd.RESULTS.successful)
    monkeypatch.setattr(interior_point, "_SWEEPS", 0)  # they would solve it
    slope, result = jax.jit(jax.grad(end, has_aux=True))(v)
    assert_verdicts(result, mbd.RESULTS.contact_unsolved)
    np.testing.assert_allclose(slope, weight, rtol=1e-14)


@pytest.mark.slow
def test_a_container_touches_all_that_it_holds():
    """A free floor strikes 306 balls that rest on it, without gravity: all move on together, with
    the momentum of the floor."""
    inertia = mbd.Inertia.box(size=[8.0, 8.0, 0.1], mass=40.0)
    x, y = (0.25 * (np.arange(n) - (n - 1) / 2) for n in (18, 17))
    places = np.stack([*np.meshgrid(x, y), np.full((17, 18), RADIUS)], axis=-1).reshape(-1, 3)

    def end(speed, mass):
        floor = mbd.Body("floor", inertia, velocity=speed * np.array([0.0, 0.0, 1.0]))
        solid = mbd.Inertia.sphere(radius=RADIUS, mass=mass)
        balls = [mbd.Body(f"{i}", solid, position=place) for i, place in enumerate(places)]
        pieces = [(floor, mbd.HalfSpace()), *((ball, mbd.Sphere(RADIUS)) for ball in balls)]
        law = mbd.ContactLaw(0.5)
        near = mbd.contacts_among(pieces, law=law, reach=0.01, pair_budget=8)
        held = mbd.Mechanism(
            [floor, *balls], contacts=near, contact_budget=320, gravity=[0.0, 0.0, 0.0]
        )
        sol = mbd.simulate(held, mbd.ContactImpulse(), held.state(), dt=1e-3, num_steps=2)
        assert sol.v is not None
        return held.twist(sol.v[-1], "305").linear[2]

    given = np.array(0.8), np.array(0.3)
    value, slopes = jax.jit(jax.value_and_grad(end, argnums=(0, 1)))(*given)
    share = 40.0 / (40.0 + len(places) * 0.3)
    np.testing.assert_allclose(value, share * 0.8, rtol=1e-9)
    expected = share, -0.8 * share**2 * len(places) / 40.0
    np.testing.assert_allclose(slopes, expected, rtol=1e-7)


@pytest.mark.slow
def test_located_impacts_of_balls_that_roll_over_each_other():
    """Three balls on the ground carry a fourth, and a fifth strikes them. Where a step has more
    impacts than are located, what pressed rests from there, and few later steps have so many.
    Derivatives by the place and the speed of the strike, against differences."""
    inertia, ring = mbd.Inertia.sphere(radius=RADIUS, mass=1.0), 2 * RADIUS / np.sqrt(3)
    angles = np.pi / 2 + 2 * np.pi / 3 * np.arange(3)
    places = [[ring * np.cos(a), ring * np.sin(a), RADIUS] for a in angles]
    places.append([0.0, 0.0, RADIUS * (1 + np.sqrt(8 / 3))])
    still = [mbd.Body(f"{i}", inertia, position=place) for i, place in enumerate(places)]
    law = mbd.ContactLaw(0.3, rolling=0.003)

    def end(strike):
        side, speed = strike
        ball = mbd.Body(
            "ball",
            inertia,
            position=jnp.stack([side, 0 * side - ring / 2 - 2 * RADIUS - 0.02, 0 * side + RADIUS]),
            velocity=jnp.stack([0 * side, speed, 0 * side]),
            angular_velocity=jnp.stack([-speed / RADIUS, 0 * side, 0 * side]),
        )
        bodies = [*still, ball]
        pieces = [("ground", mbd.HalfSpace()), *((body, mbd.Sphere(RADIUS)) for body in bodies)]
        mechanism = mbd.Mechanism(bodies, contacts=mbd.contacts_among(pieces, law=law))
        method = mbd.ContactImpulse(impacts=mbd.Located(2))
        sol = mbd.simulate(mechanism, method, mechanism.state(), dt=DT, num_steps=45)
        unlocated = sol.stats["unlocated_steps"].astype(float)
        return jnp.concatenate([sol.q[-1], sol.v[-1], unlocated[None]])

    strike, found = jnp.array([-0.06, 1.0]), jax.jit(lambda x: with_slopes(end, x))
    value, slopes = found(strike)
    assert 0 < value[-1] < 9
    for slope, e in zip(slopes[:, :-1], 1e-6 * np.eye(2)):
        difference = (found(strike + e)[0] - found(strike - e)[0])[:-1] / 2e-6
        error = np.linalg.norm(slope - difference) / np.linalg.norm(difference)
        assert error < 1e-4


@pytest.mark.slow
def test_a_box_that_slides_and_turns_on_two_others():
    """Its corners are redundant, and two of them lose their support. With stiffness they share the
    load in one way, and derivatives by the start are those of differences: to 1e-8, but only to
    3e-4 with the default tolerance of the solver. With rigid corners the motion would jump by more
    than its derivative."""
    size, law = [0.2, 0.2, 0.2], mbd.ContactLaw(0.3, stiffness=1e4, damping=30.0)
    inertia = mbd.Inertia.box(size=size, mass=1.0)
    low = [mbd.Body(f"{i}", inertia, position=[x, 0.0, 0.1]) for i, x in enumerate((-0.13, 0.13))]

    def end(start):
        speed, spin = start
        top = mbd.Body(
            "top",
            inertia,
            position=[0.0, 0.01, 0.3],
            velocity=jnp.stack([speed, 0 * speed + 0.3, 0 * speed]),
            angular_velocity=jnp.stack([0 * spin, 0 * spin, spin]),
        )
        pieces = [("ground", mbd.HalfSpace()), *((x, mbd.Box(size=size)) for x in [*low, top])]
        mechanism = mbd.Mechanism([*low, top], contacts=mbd.contacts_among(pieces, law=law))
        method = mbd.ContactImpulse(contact_solver=mbd.solvers.InteriorPoint(1e-12))
        sol = mbd.simulate(mechanism, method, mechanism.state(), dt=DT, num_steps=65)
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    start, found = jnp.array([0.8, 0.5]), jax.jit(lambda x: with_slopes(end, x))
    for slope, e in zip(found(start)[1], 1e-5 * np.eye(2)):
        difference = (found(start + e)[0] - found(start - e)[0]) / 2e-5
        error = np.linalg.norm(slope - difference) / np.linalg.norm(difference)
        assert error < 1e-6
