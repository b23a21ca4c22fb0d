"""The origin of what is not finite, in failures as users meet them."""

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import Unit, all_are

import jaxmbd as mbd

IMPULSE, UK = mbd.VelocityImpulse(), mbd.UdwadiaKalaba()
REST = mbd.State(0.0, np.array([1.0, 0.0]), np.zeros(2))
ORIGIN = mbd.State(0.0, np.zeros(2), np.zeros(2))


class Particle(Unit):
    """A particle in the plane with a force and perhaps a constraint of the user's own."""

    law: object
    rows: object = None
    scale: jax.Array = h.parameter(1.0)

    def force(self, t, q, v, u):
        f = self.law(self.scale, q, v)
        return f if u is None else f + u

    def constraint(self, q, t):
        return jnp.zeros(0) if self.rows is None else self.rows(q)


def linear(k, q, v):
    return -k * q


def drag(k, q, v):
    return -k * jnp.sqrt(v @ v) * v - q


def logarithm(k, q, v):
    return jnp.stack([-k, jnp.log(q[0])])


def end(sol):
    return jnp.sum(sol.q[-1])


def find(system, state=REST, method=IMPULSE, *, t1=1.0, dt=0.05, **options):
    return mbd.analysis.first_nonfinite(system, method, state, t1=t1, dt=dt, **options)


def test_a_motion_that_is_finite():
    found = find(Particle(linear))
    assert not found.found and str(found).startswith("All numbers are finite")
    found = find(Particle(linear), loss=end)
    assert not found.found and "derivatives" in str(found)


def test_logarithm_of_a_negative_number():
    """x falls as 0.3 - t^2 / 2, below 0 after t = 0.775: within a step, at a stage of the scheme.
    Before that all is finite."""
    state = mbd.State(0.0, np.array([0.3, 0.0]), np.zeros(2))
    found = find(Particle(logarithm), state, UK)
    assert (found.quantity, found.derivative, found.entry) == ("`force`", False, (1,))
    assert found.step == 15
    np.testing.assert_allclose(found.state.t, 0.75)
    np.testing.assert_allclose(np.asarray(found.state.q)[0], 0.3 - 0.75**2 / 2)
    assert "test_nonfinite.py" in found.line and "jnp.log(q[0])" in found.line
    assert all_are(found.result, mbd.RESULTS.nonfinite_state)
    assert str(found).startswith("step 15, from t = 0.75 s: `force` is not finite, first in entry")


def test_constraint_without_a_direction():
    found = find(Particle(linear, lambda q: jnp.sqrt(q @ q)), ORIGIN)
    assert (found.quantity, found.step) == ("the derivative of `constraint`", 0)
    assert "jnp.sqrt(q @ q)" in found.line


def test_step_too_large():
    found = find(Particle(lambda k, q, v: -1e6 * q**3), method=UK)
    assert found.quantity == "`force`" and "The motion blew up before" in found.remark


class Gains(eqx.Module):
    layers: list
    until: jax.Array = h.parameter(9.0)

    def __call__(self, t, q, v):
        return self.layers[0] @ q * jnp.sqrt(self.until - t)


def test_controls():
    """Weights that are NaN, and an output that is."""
    spoilt = np.array([[1.0, 0.0], [np.nan, 1.0]])
    found = find(Particle(linear), control=Gains([spoilt]))
    assert found.quantity == "the given `control.layers[0]`"
    assert found.entry == (1, 0) and found.step is None
    found = find(Particle(linear), control=Gains([np.eye(2)], 0.42))
    assert (found.quantity, found.step) == ("`control`", 9)
    assert "jnp.sqrt(self.until - t)" in found.line


class Vanishing(Particle):
    """Whose mass vanishes along y with x."""

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([jnp.ones_like(q[0]), jnp.maximum(q[0], 0.0)]))


def test_singular_mass_matrix():
    """x = cos t."""
    found = find(Vanishing(linear), t1=2.0)
    assert found.step in (30, 31, 32) and "eigenvalues from 0 to 1" in found.remark
    assert "solution" in found.quantity or found.quantity == "the step"


class RollPitchYaw(Unit):
    coordinates = mbd.coordinates.RollPitchYawBody()


def test_failures_that_are_no_nan():
    pitching = mbd.State(0.0, np.zeros(3), np.array([0.0, np.pi, 0.0]))
    found = find(RollPitchYaw(), pitching)
    assert found.step == 10 and "gimbal lock" in str(found) and "failed" in str(found)
    away = find(Particle(linear, lambda q: q[0]))
    assert away.step == 0 and "violates the constraints" in str(away)


def test_root_at_zero():
    """A motion that is finite, from rest: drag has no derivative in the first step alone."""
    assert not find(Particle(drag)).found
    found = find(Particle(drag), loss=end)
    assert (found.quantity, found.derivative, found.step) == ("`force`", True, 0)
    assert found.leaves == (".v",) and found.remark.endswith("by the start.")
    assert "jnp.sqrt(v @ v)" in found.line
    assert "the derivative of `force` is not finite, by .v" in str(found)


class Roots(eqx.Module):
    gains: list

    def __call__(self, t, q, v):
        return -sum(jnp.sqrt(k) * q for k in self.gains)


def test_parameters_are_named():
    """Those of the last step first, as what is wrong in every step is."""

    def root(k, q, v):
        return -q * jnp.sqrt(k) + jnp.where(v > 5, jnp.sqrt(v - 9), 0.0)

    found = find(Particle(root, scale=0.0), loss=end)
    assert found.leaves == (".system.scale", ".v") and found.step == 19
    assert found.remark.endswith("by .system.scale, the start.")
    gains = [np.array([1.0, 1.0]), np.array([0.0, 0.0])]
    found = find(Particle(linear), control=Roots(gains), loss=end)
    assert (found.quantity, found.leaves) == ("`control`", (".control.gains[1]",))


def test_the_loss_itself():
    def distance(sol):
        d = sol.q[3] - sol.q[3]
        return jnp.sqrt(d @ d)

    found = find(Particle(linear), loss=distance)
    assert (found.quantity, found.derivative, found.step) == ("`loss`", True, None)
    assert found.leaves == ("sol.q[3, 0]",) and "jnp.sqrt(d @ d)" in found.line
    found = find(Particle(linear), loss=lambda sol: jnp.log(-sol.t[-1]))
    assert (found.quantity, found.derivative) == ("`loss`", False)


INERTIA = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
BODIES = [mbd.Body("cart", INERTIA), mbd.Body("load", INERTIA, position=[0.0, 0.0, 1.0])]


def rope(poses, twists, t, u):
    """A pull whose direction is lost where both ends move alike."""
    dv = twists[1].linear - twists[0].linear
    pull = -2.0 * dv * jnp.sqrt(dv @ dv)
    return (-pull, jnp.zeros(3)), (pull, jnp.zeros(3))


def steep(poses, twists, t, u):
    height = poses[0].position[2]
    return ((jnp.stack([0 * height, 0 * height, jnp.log(height - 0.5)]), jnp.zeros(3)),)


@pytest.mark.slow
def test_elements_are_named():
    """Of a body that falls by its weight and by two forces; and where only derivatives are not
    finite, of two bodies that fall alike, all the time."""

    def push(poses, twists, t, u):
        return ((poses[0].position, jnp.zeros(3)),)

    forces = [mbd.Force("push", ["cart"], push), mbd.Force("drop", ["cart"], steep)]
    mechanism = mbd.Mechanism(BODIES[:1], [], forces)
    found = find(mechanism, mechanism.state(), t1=0.1)
    assert (found.quantity, found.element, found.derivative) == ("`force`", 'Force "drop"', False)
    assert found.step == 0 and 'step 0, from t = 0 s: `force`, Force "drop", is not' in str(found)

    ends = [[0, 0, 0.0], [0, 0, 1.0]]
    spring = mbd.Spring("strut", *BODIES, points=ends, stiffness=10.0, rest_length=1.0)
    mechanism = mbd.Mechanism(BODIES, [], [spring, mbd.Force("rope", ["cart", "load"], rope)])
    found = find(mechanism, mechanism.state(), t1=0.1, loss=end)
    assert (found.quantity, found.element, found.step) == ("`force`", 'Force "rope"', 1)
    assert 'the derivative of `force`, Force "rope", is not finite' in str(found)


def test_bad_input():
    with pytest.raises(ValueError, match="outside of `jax.jit`"):
        shape = jax.ShapeDtypeStruct((2,), float)
        jax.eval_shape(lambda q: find(Particle(linear), mbd.State(0.0, q, q)).found, shape)
    with pytest.raises(ValueError, match="either `t1` or `num_steps`"):
        find(Particle(linear), num_steps=3)
