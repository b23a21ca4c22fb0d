"""Derivatives of bodies that touch exactly at the start: the gap is 0, up to rounding.

They are those on one side of the kink, and where there is none, those on both."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

R, T, COUNT = 0.1, 0.04, 3
IMPACTS = [mbd.contacts.AtStepStart(), mbd.Located(4)]


def discs(gaps, masses, speeds, planar, near):
    """Discs in a row along x, with these gaps between them."""
    bodies = []
    for i in range(COUNT):
        x = 2 * R * i + jnp.sum(gaps[:i])
        bodies.append(
            mbd.Body(
                f"{i}",
                mbd.Inertia.sphere(radius=R, mass=masses[i]),
                position=jnp.stack([x, 0.0, 0.0]),
                velocity=jnp.stack([speeds[i], 0.0, 0.0]),
            )
        )
    pieces = [(body, mbd.Sphere(R)) for body in bodies]
    room = 8 if near else None
    contacts = mbd.contacts_among(pieces, law=mbd.ContactLaw(0.3), pair_budget=room)
    plane = mbd.Plane(normal=[0.0, 0.0, 1.0]) if planar else None
    return mbd.Mechanism(bodies, contacts=contacts, plane=plane)


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def struck(gaps, masses, speeds, impacts, planar, near):
    """Places and speeds along x after the time `T`, and their derivatives in both modes."""

    def end(gaps, masses, speeds):
        row = discs(gaps, masses, speeds, planar, near)
        sol = mbd.simulate(row, mbd.ContactImpulse(impacts=impacts), row.state(), t1=T, dt=0.01)
        assert sol.q is not None and sol.v is not None
        poses = [row.pose(sol.q[-1], f"{i}").position[0] for i in range(COUNT)]
        return jnp.stack([*poses, *(row.twist(sol.v[-1], f"{i}").linear[0] for i in range(COUNT))])

    given = gaps, masses, speeds
    return end(*given), *(d(end, argnums=(0, 1, 2))(*given) for d in (jax.jacfwd, jax.jacrev))


@jax.jit
def stuck_together(gaps, masses, speeds):
    """The same in closed form, where all discs have touched: their momentum carries them on."""
    place, share = 2 * R * np.arange(COUNT), masses / jnp.sum(masses)
    x = place + jnp.concatenate([jnp.zeros(1), jnp.cumsum(gaps)])
    speed = jnp.sum(share * speeds)
    together = place - jnp.sum(share * place) + jnp.sum(share * x) + T * speed
    return jnp.concatenate([together, jnp.broadcast_to(speed, COUNT)])


@pytest.mark.slow
@pytest.mark.parametrize("impacts", IMPACTS)
@pytest.mark.parametrize("planar, near", [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("gap", [0.013, 0.0])
def test_a_plastic_blow_on_discs_that_touch(impacts, planar, near, gap):
    """The second and the third disc touch at the start, and so does the first one, or it strikes
    after 0.013 s. The motion after the blow depends smoothly on all masses, speeds and gaps."""
    given = np.array([gap, 0.0]), np.array([1.0, 2.0, 0.5]), np.array([1.0, 0.0, 0.0])
    value, forward, reverse = struck(*given, impacts, planar, near)
    np.testing.assert_allclose(value, stuck_together(*given), atol=1e-9)
    expected = jax.jit(jax.jacfwd(stuck_together, argnums=(0, 1, 2)))(*given)
    for found in (forward, reverse):
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-7)


class Point(mbd.AbstractSystem):
    """A point mass on the ground, which slides."""

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -10.0])

    def gap(self, q, t):
        return q[1:]

    def slip(self, q, v, t):
        return v[:1, None]

    @property
    def contact_law(self):
        return mbd.ContactLaw(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("impacts", IMPACTS)
def test_a_point_on_the_ground_does_not_float(impacts):
    """Whichever sign rounding gives to its gap: it ends on the ground, from above and from below.
    From above it flies while friction would have taken its speed, so it comes farther by mu times
    the height, to first order; from below it is lifted without friction."""
    method = mbd.ContactImpulse(impacts=impacts)

    @jax.jit
    @jax.jacfwd
    def slope(height):
        start = mbd.State(0.0, jnp.stack([0.0, height]), jnp.array([1.0, 0.0]))
        sol = mbd.simulate(Point(), method, start, t1=0.03, dt=0.01)
        assert sol.q is not None and sol.v is not None
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    for height in (0.0, 1e-17, -1e-17, -1e-13):
        along, *others = slope(height)
        np.testing.assert_allclose(others, 0.0, atol=1e-9)
        assert min(abs(along - 0.5), abs(along)) < 1e-9
