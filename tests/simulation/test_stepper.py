"""`Stepper`: the step that `simulate` takes, for loops of one's own."""

import cart_pole_environment
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from diffrax import SaveAt
from helpers import (
    COMPILED,
    METHODS,
    SOLVERS,
    WITHOUT_SOLVER,
    GuidedMass,
    Oscillator,
    Pendulum,
    compilation_events,
)

import jaxmbd as mbd

DT = 1e-3
PENDULUM = Pendulum()
SWINGING = mbd.State(0.0, jnp.array([0.9, 0.0]), jnp.array([0.0, -0.3]))


class Puck(mbd.AbstractSystem):
    """A point that falls on the ground y = 0, with friction along x."""

    restitution: float = 0.6

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81], q.dtype) + (0.0 if u is None else u)

    def gap(self, q, t):
        return q[1:]

    def slip(self, q, v, t):
        return v[:1][None]

    @property
    def contact_law(self):
        return mbd.ContactLaw(friction=0.3, restitution=self.restitution)


class Tether(mbd.AbstractSystem):
    """A point that falls until a string of length 1 is taut, and hangs on it from then on."""

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81], q.dtype) + (0.0 if u is None else u)

    def constraint(self, q, t):
        return q[:1] ** 2 + q[1:] ** 2 - 1

    def switch(self, q, v, t, active):
        return active | (jnp.sum(q**2) > 1)


class Pushed(mbd.AbstractSystem):
    """A free mass on a line."""

    mass: float = 1.3

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros(1, q.dtype) if u is None else u


class Push(eqx.Module):
    """A force that depends on all it may depend on."""

    size: float = 0.4

    def __call__(self, t, q, v):
        return self.size * jnp.stack([jnp.sin(9 * t) + q[1], v[0]])


def falling(height):
    q, v = jnp.array([0.1, height]), jnp.array([0.3, 0.0])
    return mbd.State(0.0, q, v)


def a_box():
    body = mbd.Body("box", mbd.Inertia.box(size=[0.2, 0.3, 0.1], mass=1.0), position=[0, 0, 0.06])
    floor = mbd.Contact("floor", "ground", body, mbd.HalfSpace(), mbd.Box([0.1, 0.15, 0.05]))
    return mbd.Mechanism([body], contacts=[floor])


def method(name):
    solver = SOLVERS["automatic" if name in WITHOUT_SOLVER else "pseudoinverse"]
    made = METHODS[name](solver)
    return PENDULUM, SWINGING, made.enforcement, made.projection


# Those that differ in what is kept from step to step.
KEPT = (
    "udwadia_kalaba", "impulse_dead_beat", "augmented_lagrangian", "projected", "partitioned",
    "generalised_alpha", "variational",
)  # fmt: skip
CASES = {
    **{name: lambda name=name: method(name) for name in KEPT},
    "contact": lambda: (Puck(), falling(0.01), mbd.ContactImpulse(), None),
    "located impacts": lambda: (
        Puck(),
        falling(0.01),
        mbd.ContactImpulse(impacts=mbd.Located(2)),
        None,
    ),
    "switched impulse": lambda: (Tether(), falling(-0.97), mbd.VelocityImpulse(), None),
    "switched acceleration": lambda: (Tether(), falling(-0.97), mbd.UdwadiaKalaba(), None),
}
QUICK = ("udwadia_kalaba", "impulse_dead_beat", "contact", "switched acceleration")
ALL = [pytest.param(x, marks=() if x in QUICK else pytest.mark.slow) for x in CASES]


@eqx.filter_jit
def scanned(stepper, state, control, steps, dt=DT):
    def step(state, _):
        state = stepper.step(state, dt, control)
        return state, state

    return jax.lax.scan(step, stepper.init(state), None, length=steps)[1]


def same(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("case", ALL)
def test_simulate_is_a_scan_over_steps(case):
    """Bit for bit, with a step that floating point does not hold exactly."""
    system, state, enforcement, projection = CASES[case]()
    stepper = mbd.Stepper(system, enforcement, projection=projection)
    states = scanned(stepper, state, Push(), 120)
    options = dict(control=Push(), projection=projection, saveat=SaveAt(steps=True))
    sol = mbd.simulate(system, enforcement, state, dt=DT, num_steps=120, **options)
    for name in ("t", "q", "v"):
        same(getattr(states, name), getattr(sol, name))
    assert np.all(states.result == mbd.RESULTS.successful) and sol.result == mbd.RESULTS.successful
    if sol.contact_force is not None:
        same(states.contacts.force, sol.contact_force)
        same(states.contacts.residual, sol.contact_residual)
        assert jnp.any(sol.contact_force != 0)
    if sol.active is not None:
        same(states.active, sol.active)
        assert not sol.active[0, 0] and sol.active[-1, 0]
    last = jax.tree.map(lambda x: x[-1], states)
    np.testing.assert_allclose(stepper.multipliers(last, Push()), sol.multipliers[-1], rtol=1e-12)


@pytest.mark.slow
def test_mechanism_and_its_contacts():
    box, enforcement = a_box(), mbd.ContactImpulse()
    states = scanned(mbd.Stepper(box, enforcement), box.state(), None, 80)
    sol = mbd.simulate(
        box, enforcement, box.state(), dt=DT, num_steps=80, saveat=SaveAt(steps=True)
    )
    same(states.q, sol.q)
    same(states.contacts.force, sol.contact_force)
    assert jnp.any(sol.contact_force > 0)


@pytest.mark.parametrize("enforcement", [mbd.UdwadiaKalaba(), mbd.VelocityImpulse()])
def test_numbers_in_numbers_out(enforcement):
    """A loop in Python is the loop in JAX, bit for bit, and compiles each of the two parts once."""
    stepper, push = mbd.Stepper(PENDULUM, enforcement), Push()
    states = scanned(stepper, SWINGING, push, 5)
    state = stepper.step(stepper.init(SWINGING), 3e-3, push)
    with compilation_events() as events:
        state = stepper.init(SWINGING)
        for _ in range(5):
            state = stepper.step(state, DT, push)
        stepper.step(state, 2 * DT, Push(0.7))
    assert events[COMPILED] == 0
    same(state.q, states.q[-1])
    same(state.t, states.t[-1])


@pytest.mark.parametrize("enforcement", [mbd.UdwadiaKalaba(), mbd.VelocityImpulse()])
def test_held_controls(enforcement):
    """Forces u0, u1 on a free mass, each held for a time h: v = (u0 + u1) h / m, and the position
    (3 u0 + u1) h^2 / 2 m of a scheme of second order, (2 u0 + u1) h^2 / m where it moves with the
    new velocities."""
    system, h = Pushed(), 0.1
    stepper = mbd.Stepper(system, enforcement)

    @jax.jit
    def run(us):
        state = stepper.init(mbd.State(0.0, jnp.zeros(1), jnp.zeros(1)))
        for u in us:
            state = stepper.step(state, h, u)
        return jnp.concatenate([state.q, state.v])

    us, m = jnp.array([[0.7], [-0.2]]), float(system.mass)
    continuous = isinstance(enforcement, mbd.UdwadiaKalaba)
    by_q = [1.5 * h**2 / m, 0.5 * h**2 / m] if continuous else [2 * h**2 / m, h**2 / m]
    exact = np.array([by_q, [h / m, h / m]])
    np.testing.assert_allclose(run(us), exact @ us[:, 0], rtol=1e-13)
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(derivative(run))(us)[:, :, 0], exact, rtol=1e-13)


def test_time_is_not_lost():
    """Each of 10^5 steps rounds t in float32, all to the same side. Their sum does not."""
    state = mbd.State(0.0, jnp.zeros(1, jnp.float32), jnp.zeros(1, jnp.float32))
    stepper = mbd.Stepper(Oscillator(), mbd.UdwadiaKalaba(), scheme=mbd.SemiImplicitEuler())
    dt = jnp.float32(1e-3)

    @eqx.filter_jit
    def run(state):
        step = lambda _, state: stepper.step(state, dt)  # noqa: E731
        return jax.lax.fori_loop(0, 100_000, step, stepper.init(state)).t

    exact = 100_000 * float(dt)
    naive = np.add.accumulate(np.full(100_000, dt, np.float32))[-1]
    eps = np.spacing(np.float32(exact))
    assert abs(float(run(state)) - exact) <= eps < 100 * eps < abs(float(naive) - exact)


def test_failure_is_held():
    """The first failure stays, with the state before it; t goes on."""
    stepper = mbd.Stepper(PENDULUM, mbd.UdwadiaKalaba(), drift_tolerance=1e-12)
    good = stepper.step(stepper.init(SWINGING), DT)
    assert good.result == mbd.RESULTS.successful
    off = good.replace(q=good.q + 1e-6)
    bad = stepper.step(stepper.step(off, DT), DT)
    assert bad.result == mbd.RESULTS.drift
    same(bad.q, off.q)
    np.testing.assert_allclose(bad.t, 3 * DT, rtol=1e-12)
    nan = stepper.step(good, DT, jnp.array([jnp.nan, 0.0]))
    assert nan.result == mbd.RESULTS.nonfinite_state
    same(nan.v, good.v)
    with pytest.raises(eqx.EquinoxRuntimeError, match="not finite|NaN"):
        mbd.raise_if_failed(nan)


def test_verdict_on_the_start():
    stepper = mbd.Stepper(PENDULUM, mbd.UdwadiaKalaba())
    off = mbd.State(0.0, SWINGING.q * 1.1, SWINGING.v)
    assert stepper.init(off).result == mbd.RESULTS.inconsistent_start
    assert stepper.init(off, start_tolerance=1.0).result == mbd.RESULTS.successful
    low = mbd.Stepper(Puck(), mbd.ContactImpulse()).init(falling(-0.1))
    assert low.result == mbd.RESULTS.overlapping_start


@pytest.mark.parametrize("enforcement", [mbd.UdwadiaKalaba(), mbd.VelocityImpulse()])
def test_derivatives_by_held_controls(enforcement):
    """By each of the controls of a loop, in both modes, against differences."""
    system = GuidedMass()
    start = mbd.State(0.0, jnp.zeros(2), jnp.zeros(2))
    stepper = mbd.Stepper(system, enforcement)

    @jax.jit
    def end(us):
        step = lambda state, u: (stepper.step(state, 0.05, u), None)  # noqa: E731
        state, _ = jax.lax.scan(step, stepper.init(start), us)
        return state.q @ jnp.array([1.0, 2.0]) + state.v @ jnp.array([0.3, 0.1])

    us = jnp.array([[0.4, -0.2], [1.0, 0.3], [-0.5, 0.9]])
    backwards, forwards = jax.jit(lambda us: (jax.grad(end)(us), jax.jacfwd(end)(us)))(us)
    np.testing.assert_allclose(backwards, forwards, rtol=1e-10, atol=1e-12)
    h = 1e-5
    for place in np.ndindex(us.shape):
        quotient = (end(us.at[place].add(h)) - end(us.at[place].add(-h))) / (2 * h)
        np.testing.assert_allclose(forwards[place], quotient, rtol=1e-6, atol=1e-9)


def test_batch_with_starts_of_its_own():
    """`vmap`, with samples that start anew within `jit`: each is the sample alone."""
    stepper = mbd.Stepper(Puck(), mbd.ContactImpulse())
    heights = jnp.array([0.01, 0.02, 0.05])

    def one(height):
        begin = stepper.init(falling(height))

        def step(state, _):
            state = stepper.step(state, 5e-3)
            anew = state.q[0] > 0.115
            return jax.tree.map(lambda a, b: jnp.where(anew, a, b), begin, state), state.q

        return jax.lax.scan(step, begin, None, length=60)[1]

    together = jax.jit(jax.vmap(one))(heights)
    alone = jax.jit(one)
    for height, batched in zip(heights, together, strict=True):
        np.testing.assert_allclose(alone(height), batched, rtol=1e-9, atol=1e-12)
    assert np.any(np.diff(together[0, :, 0]) < 0)


def test_multipliers_of_the_state():
    """The tension of a pendulum at rest: m g, held by a row (|q|^2 - L^2) / 2, say."""
    length, g, m = float(PENDULUM.length), float(PENDULUM.gravity), float(PENDULUM.mass)
    rest = mbd.State(0.0, jnp.array([0.0, -length]), jnp.zeros(2))
    for enforcement in (mbd.UdwadiaKalaba(), mbd.VelocityImpulse()):
        stepper = mbd.Stepper(PENDULUM, enforcement)
        state = stepper.step(stepper.init(rest), DT)
        J = jax.jit(jax.jacfwd(lambda q: PENDULUM.constraint(q, 0.0)))(rest.q)
        reaction = jnp.atleast_2d(J).T @ stepper.multipliers(state)
        np.testing.assert_allclose(reaction, [0.0, m * g], rtol=1e-9, atol=1e-9)


def test_refusals():
    with pytest.raises(ValueError, match="`enforcement` of Stepper must be"):
        mbd.Stepper(PENDULUM, mbd.Pseudoinverse())
    with pytest.raises(ValueError, match="`UdwadiaKalaba` ignores"):
        mbd.Stepper(Puck(), mbd.UdwadiaKalaba()).init(falling(1.0))
    stepper = mbd.Stepper(PENDULUM, mbd.UdwadiaKalaba())
    with pytest.raises(ValueError, match="`state` of Stepper.step must be a `mbd.StepperState`"):
        stepper.step(SWINGING, DT)
    with pytest.raises(ValueError, match="`dt` of Stepper.step must be positive"):
        stepper.step(stepper.init(SWINGING), -DT)
    still = mbd.State(0.0, jnp.zeros(1), jnp.zeros(1))
    free = mbd.Stepper(Pushed(), mbd.UdwadiaKalaba())
    with pytest.raises(ValueError, match=r"`force\(t, q, v, u\)` must have shape \(1,\)"):
        free.step(free.init(still), DT, jnp.zeros(2))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["by_derivatives", "by_rewards"])
def test_example_learns(loss, monkeypatch):
    """Poles stay up twice as long with a policy that has learned as without a push."""
    monkeypatch.setattr(cart_pole_environment, "BATCH", 256)
    with jax.numpy_dtype_promotion("standard"):  # optax counts in integers of two sizes
        rewards, policy = cart_pole_environment.learn(getattr(cart_pole_environment, loss), 60)
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.1
    up = cart_pole_environment.time_up
    assert up(policy) > 2 * up(lambda seen: 0.0)
