"""Loads at which friction gives way or a body tips over, against closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import LeaningRod
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import limit_load

GRAVITY = 9.81


class OnSlope(mbd.AbstractSystem):
    """A mass on a rough slope; q = (down the slope, away from it). A spring holds it to x = 0."""

    angle: Array
    friction: Array
    stiffness: Array

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        weight = GRAVITY * jnp.stack([jnp.sin(self.angle), -jnp.cos(self.angle)])
        return weight - self.stiffness * jnp.stack([q[0], 0 * q[0]])

    def gap(self, q, t):
        return q[1:]

    def slip(self, q, v, t):
        return v[:1, None]

    @property
    def contact_law(self):
        return mbd.ContactLaw(self.friction)


def on_slope(angle, friction, stiffness):
    return OnSlope(angle, friction, stiffness)


def tilted(mu, stiffness, end, start=0.0, **options):
    rest = mbd.State(0.0, np.zeros(2), np.zeros(2))
    family = eqx.Partial(on_slope, friction=jnp.asarray(mu), stiffness=jnp.asarray(stiffness))
    return limit_load(family, rest, start, end, progress=False, **options)


def test_block_on_a_slope():
    """It slips at tan(angle) = mu. On a spring it slips too, but rests again nearby, up to the
    upright wall: x = (sin(angle) - mu cos(angle)) g / k."""
    mu = 0.4
    found = tilted(mu, 0.0, 1.0)
    assert not found.holds and found.result == mbd.RESULTS.successful
    np.testing.assert_allclose(found.parameter, np.arctan(mu), atol=2e-6)
    assert 0 < found.beyond - found.parameter <= 1e-6
    np.testing.assert_allclose(found.state.q, 0.0, atol=1e-7)
    np.testing.assert_allclose(found.state.report.share, 1.0, atol=1e-5)
    assert found.after.report.result == mbd.RESULTS.equilibrium_not_found
    held = tilted(mu, 300.0, 1.0)
    assert held.holds and held.parameter == held.beyond == 1.0
    slipped = (np.sin(1.0) - mu * np.cos(1.0)) * GRAVITY / 300
    np.testing.assert_allclose(held.state.q, [slipped, 0.0], atol=1e-8)


class Ladder(LeaningRod):
    """A rod of weight 1, with a person of weight 4 at a share of its length."""

    share: Array
    friction: Array

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([5.0, 5.0, 0.5]))

    def force(self, t, q, v, u):
        arm = (0.5 - self.share) * jnp.cos(q[2])
        return jnp.stack([0 * arm, -5.0 + 0 * arm, 4.0 * arm])


@pytest.mark.slow
def test_person_on_a_ladder():
    """Moments about the foot: the wall carries (1/2 + 4 s) / tan(angle). It slides where this
    exceeds mu 5, and comes to rest on the floor."""
    angle, mu = 1.1, 0.3
    start = mbd.State(0.0, [np.cos(angle) / 2, np.sin(angle) / 2, angle], np.zeros(3))
    family = lambda s: Ladder(s, jnp.array(mu))  # noqa: E731
    found = limit_load(family, start, 0.1, 1.0, progress=False)
    limit = (5 * mu * np.tan(angle) - 0.5) / 4
    np.testing.assert_allclose(found.parameter, limit, atol=2e-6)
    np.testing.assert_allclose(found.state.q, start.q, atol=1e-6)
    np.testing.assert_allclose(found.state.report.share, [1.0, 0.0, 0.0], atol=1e-5)
    assert found.after.q[1] < 0.3


class Box(mbd.AbstractSystem):
    """A box of 0.4 m x 1 m and 1 kg on a rough floor, pushed by u at its upper edge; q = (x, y,
    angle) of its middle."""

    friction: Array

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 0.1]))

    def corners(self, q):
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        R = jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])
        places = jnp.array([[0.2, -0.5], [-0.2, -0.5], [0.2, 0.5], [-0.2, 0.5]])
        return q[None, :2] + places @ R.T

    def force(self, t, q, v, u):
        _, pull = jax.vjp(lambda q: (self.corners(q)[2, 0] + self.corners(q)[3, 0]) / 2, q)
        return pull(u)[0] - jnp.array([0.0, GRAVITY, 0.0])

    def gap(self, q, t):
        return self.corners(q)[:, 1]

    def slip(self, q, v, t):
        return jax.jvp(self.corners, (q,), (v,))[1][:, :1]

    @property
    def contact_law(self):
        return mbd.ContactLaw(self.friction)


def pushed(push, friction):
    return Box(friction), push


@pytest.mark.slow
@pytest.mark.parametrize(
    "mu, limit, slips", [(0.5, 0.2 * GRAVITY, False), (0.15, 0.15 * GRAVITY, True)]
)
def test_box_tips_or_slides(mu, limit, slips):
    """It tips about its lower edge at u = m g a / h with 0.2 m to this edge and 1 m to the push,
    unless it slides before at mu m g."""
    family = eqx.Partial(pushed, friction=jnp.array(mu))
    start = mbd.State(0.0, [0.0, 0.5, 0.0], np.zeros(3))
    found = limit_load(family, start, 0.0, 6.0, progress=False)
    np.testing.assert_allclose(found.parameter, limit, atol=2e-5)
    force = found.state.report.contact_force
    np.testing.assert_allclose(np.sum(force[:, 0]), GRAVITY, rtol=1e-8)
    if slips:
        np.testing.assert_allclose(found.state.report.share[:2], 1.0, atol=1e-4)
    else:
        np.testing.assert_allclose(force[1:, 0], 0.0, atol=1e-3)  # the far edge is about to lift


def test_verdicts():
    """On a slope on which friction does not hold the mass at the start; too few steps; a range
    without length."""
    with pytest.raises(RuntimeError, match="^No equilibrium was found"):
        tilted(0.4, 0.0, 1.0, start=0.6)
    few = tilted(0.4, 0.0, 1.0, max_steps=4, throw=False)
    assert few.result == mbd.RESULTS.continuation_stopped and few.parameter < 0.4
    with pytest.raises(ValueError, match="`end` of limit_load must differ"):
        tilted(0.4, 0.0, 0.0)
