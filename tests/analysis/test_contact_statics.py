"""Equilibria with contacts and friction, and the loads at which friction gives way or a body tips
over, against closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import Unit
from helpers import assert_verdicts, parameter
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd._results import succeeded
from jaxmbd.analysis import equilibrium, limit_load

GRAVITY = 9.81


class Sled(Unit):
    """A mass above a rough floor at y = 0, pulled to x = 0 by a spring, with its weight tilted
    along x. A belt runs under it."""

    mass: Array
    stiffness: Array
    friction: Array
    tilt: Array = parameter(0.0)
    belt: Array = parameter(0.0)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2)

    def force(self, t, q, v, u):
        weight = GRAVITY * self.mass * jnp.stack([jnp.sin(self.tilt), -jnp.cos(self.tilt)])
        return weight - self.stiffness * jnp.stack([q[0], 0 * q[0]])

    def gap(self, q, t):
        return q[1:]

    def slip(self, q, v, t):
        return v[:1, None] - self.belt

    @property
    def contact_law(self):
        return mbd.ContactLaw(self.friction)


REST = np.zeros(2)


@jax.jit
def sled(values, start):
    """Position, forces and share of friction; whether it is found, the stiffness; and the slopes of
    the numbers by mass, stiffness and friction."""

    def settled(values):
        system = Sled(*values[:3], belt=values[3])
        found = equilibrium(system, mbd.State(0.0, start, REST), throw=False)
        report = found.report
        numbers = jnp.stack([*found.q, *report.contact_force[0], report.share[0]])
        good = (report.result == mbd.RESULTS.successful) & report.closed[0]
        return numbers, (numbers, good, report.stiffness)

    slopes, others = jax.jacfwd(settled, has_aux=True)(values)
    return *others, slopes[:, :3]


M, K, MU = 0.7, 35.0, 0.4
VALUES = np.array([M, K, MU, 0.0])
LOAD = M * GRAVITY
FAR = np.array([2.0, 1.5])
# Derivatives of x, y, normal force, friction and share where friction is at its limit.
OF_X, OF_FRICTION = [MU * GRAVITY / K, -MU * LOAD / K**2, LOAD / K], [MU * GRAVITY, 0, LOAD]
SLIDING = np.array([OF_X, [0, 0, 0], [GRAVITY, 0, 0], OF_FRICTION, [0, 0, 0]])


def test_sled_that_slides_until_friction_holds_it():
    """From far above and aside: x = mu m g / k, with derivatives of the limit of friction."""
    found, good, stiffness, slopes = sled(VALUES, FAR)
    assert good
    np.testing.assert_allclose(found, [MU * LOAD / K, 0, LOAD, MU * LOAD, 1], atol=1e-8)
    np.testing.assert_allclose(stiffness, [K / M, np.inf], rtol=1e-8)
    np.testing.assert_allclose(slopes, SLIDING, atol=1e-7)


def test_sled_that_friction_holds():
    """It stays where it starts, and friction follows the spring."""
    x = 0.3 * MU * LOAD / K
    found, good, _, slopes = sled(VALUES, np.array([x, 0.0]))
    assert good
    np.testing.assert_allclose(found, [x, 0, LOAD, K * x, 0.3], atol=1e-10)
    of_share = np.array([-0.3, 0.3, -0.3]) / VALUES[:3]
    expected = [[0, 0, 0], [0, 0, 0], [GRAVITY, 0, 0], [0, x, 0], of_share]
    np.testing.assert_allclose(slopes, expected, atol=1e-8)


def test_without_friction_and_on_a_belt():
    """A ball on a floor rests where the spring holds it. A belt carries the mass to where the
    spring holds it against friction."""
    found = sled(np.array([M, K, 0.0, 0.0]), FAR)[0]
    np.testing.assert_allclose(found, [0, 0, LOAD, 0, 0], atol=1e-8)
    x, y, *_, share = sled(np.array([M, K, MU, 2.0]), np.array([-0.3, 0.5]))[0].tolist()
    np.testing.assert_allclose([x, y, share], [MU * LOAD / K, 0, 1], atol=1e-9)


@pytest.mark.slow
def test_soft_floor_and_reverse_mode():
    """A soft floor gives way by m g / k. Slopes at the limit of friction in reverse mode."""

    class Soft(Sled):
        @property
        def contact_law(self):
            return mbd.ContactLaw(stiffness=200.0)

    def settled(values, kind):
        found = equilibrium(kind(*values), mbd.State(0.0, FAR, REST), throw=False)
        numbers = jnp.stack([*found.q, *found.report.contact_force[0]])
        return numbers, numbers

    @jax.jit
    def found(x):
        return [jax.jacrev(settled, has_aux=True)(x, kind) for kind in (Soft, Sled)]

    (soft, value), (rigid, _) = jax.device_get(found(VALUES[:3]))
    np.testing.assert_allclose(value, [0, -LOAD / 200, LOAD, 0], atol=1e-8)
    np.testing.assert_allclose(soft[1:3, 0], [-GRAVITY / 200, GRAVITY], atol=1e-7)
    np.testing.assert_allclose(rigid, SLIDING[:4], atol=1e-7)


@pytest.mark.slow
def test_box_on_slope():
    """Four corners of a box in space, statically indeterminate: the forces in sum."""
    slope, mu, mass = 0.3, 0.5, 2.0
    tilted = GRAVITY * np.array([np.sin(slope), 0.0, -np.cos(slope)])
    size = [0.2, 0.2, 0.2]
    body = mbd.Body("box", mbd.Inertia.box(size=size, mass=mass), position=[0.0, 0.0, 0.1])
    floor = mbd.Contact("floor", "ground", body, mbd.HalfSpace(), mbd.Box(size=size), friction=mu)
    box = mbd.Mechanism([body], contacts=[floor], gravity=tilted)
    found = equilibrium(box, box.state())
    normal, *aside = np.sum(found.report.contact_force, axis=0)
    np.testing.assert_allclose(found.q[:3], [0, 0, 0.1], atol=1e-9)
    np.testing.assert_allclose(normal, mass * GRAVITY * np.cos(slope), rtol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(aside), mass * GRAVITY * np.sin(slope), rtol=1e-7)
    assert np.max(found.report.share) <= 1 + 1e-9


def on_slope(angle, friction, stiffness):
    return Sled(jnp.ones_like(angle), stiffness, friction, tilt=angle)


def tilted(stiffness, start, end, **options):
    family = eqx.Partial(on_slope, friction=jnp.asarray(MU), stiffness=jnp.asarray(stiffness))
    rest = mbd.State(0.0, REST, REST)
    return limit_load(family, rest, start, end, progress=False, **options)


def test_block_on_a_slope():
    """It slips at tan(angle) = mu. On a spring it slips too, but rests again nearby, up to the
    upright wall: x = (sin(angle) - mu cos(angle)) g / k."""
    found = tilted(0.0, 0.0, 1.0)
    assert not found.holds and succeeded(found.result)
    np.testing.assert_allclose(found.parameter, np.arctan(MU), atol=2e-6)
    assert 0 < found.beyond - found.parameter <= 1e-6
    np.testing.assert_allclose(found.state.q, 0.0, atol=1e-7)
    np.testing.assert_allclose(found.state.report.share, 1.0, atol=1e-5)
    assert_verdicts(found.after.report.result, mbd.RESULTS.equilibrium_not_found)
    held = tilted(300.0, 0.0, 1.0)
    assert held.holds and held.parameter == held.beyond == 1.0
    slipped = (np.sin(1.0) - MU * np.cos(1.0)) * GRAVITY / 300
    np.testing.assert_allclose(held.state.q, [slipped, 0.0], atol=1e-8)


def test_verdicts():
    """On a slope on which friction does not hold the mass at the start; too few steps; a range
    without length."""
    with pytest.raises(RuntimeError, match="^No equilibrium was found"):
        tilted(0.0, 0.6, 1.0)
    few = tilted(0.0, 0.0, 1.0, max_points=4, throw=False)
    assert_verdicts(few.result, mbd.RESULTS.continuation_stopped)
    assert few.parameter < MU
    with pytest.raises(ValueError, match="`end` of limit_load must differ"):
        tilted(0.0, 0.0, 0.0)
