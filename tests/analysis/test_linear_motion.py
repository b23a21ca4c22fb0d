"""Linear models along motions against the growth of deviations, and LQR along motions against
closed forms."""

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
from analysis_systems import CartPole, Springs, gravity
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import linearise, linearise_along, lqr


def through(t, q, v) -> mbd.Solution:
    """A motion through these points."""
    none = dict.fromkeys(["multipliers", "phi_norm", "phidot_norm", "ys"])
    return mbd.Solution(
        jnp.asarray(t),
        jnp.asarray(q),
        jnp.asarray(v),
        stats={},
        result=mbd.RESULTS.successful,
        **none,
    )


def push(t, q, v):
    del q, v
    return 4 * jnp.cos(3 * t)[None]


class Tumbling(mbd.AbstractSystem):
    """A free rigid body in roll, pitch and yaw."""

    coordinates = mbd.RollPitchYawBody()

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([0.3, 0.5, 0.7]))

    def force(self, t, q, v, u):
        return -mbd.rotations.cross(v, self.mass_matrix(q) @ v)


def moving(name):
    """A system, its start and its control."""
    if name == "cart_pole":
        start = mbd.State(0.0, jnp.array([0.0, 0.4]), jnp.array([0.5, -1.0]))
        return CartPole(*jnp.array([1.2, 0.3, 0.7])), start, push
    if name == "tumbling":
        return Tumbling(), mbd.State(0.0, [0.3, 0.6, -0.4], [1.0, -2.0, 1.5]), None
    return h.CASES[name].system, h.CASES[name].state, None


@pytest.mark.parametrize(
    "name",
    h.slow_unless(
        lambda name: name == "cart_pole",
        ["cart_pole", "top", "tumbling", "driven_pendulum", "redundant_pendulum", "skate_in_space"],
    ),
)
def test_deviations_grow_as_the_model_says(name):
    """A_d and B_d of an interval are the derivatives of its end by its beginning and by a constant
    added to the inputs. The error falls with the fifth power of the interval."""
    system, state, control = moving(name)
    stepper = mbd.Stepper(system, mbd.UdwadiaKalaba())
    nv, errors = state.v.size, []

    def flow(state, du, dt):
        def with_push(t, q, v):
            return None if control is None else control(t, q, v) + du

        begin = stepper.init(state, start_tolerance=jnp.inf)
        return jax.lax.fori_loop(0, 8, lambda _, x: stepper.step(x, dt / 8, with_push), begin)

    def end(z, Z, dt, ahead):
        dx = Z @ z[: Z.shape[1]]
        moved = mbd.State(state.t, system.retract(state.q, dx[:nv]), state.v + dx[nv:])
        x = flow(moved, z[Z.shape[1] :], dt)
        return jnp.concatenate([system.difference(ahead.q, x.q), x.v - ahead.v])

    step, by_begin = jax.jit(flow), jax.jit(jax.jacfwd(end))
    nu = 0 if control is None else 1
    for dt in (0.04, 0.02):
        ahead = step(state, jnp.zeros(nu), jnp.asarray(dt))
        ends = zip((0.0, state.q, state.v), (dt, ahead.q, ahead.v))
        model = linearise_along(system, through(*map(np.stack, ends)), control)
        Z = model.Z
        np.testing.assert_allclose(Z.mT @ Z, np.stack([np.eye(Z.shape[2])] * 2), atol=1e-12)
        z = jnp.zeros(Z.shape[2] + nu)
        D = Z[1].T @ by_begin(z, Z[0], jnp.asarray(dt), ahead)
        model = model.discretised()
        found = jnp.concatenate([model.A[0], model.B[0]], axis=1)
        errors.append(np.abs(found - D).max())
        assert np.abs(D - np.eye(*D.shape)).max() > 0.01
    assert errors[1] < 3e-7 and errors[1] < errors[0] / 20, errors


class Pushed(mbd.AbstractSystem):
    """A mass of 1 kg; the push u has the effect 1 + t."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return (1 + t) * u


def test_riccati_equation_in_closed_form():
    """Only the velocity at the end costs: p' = (1 + t)^2 p^2 / r, p(T) = f, so that
    1 / p = 1 / f + ((1 + T)^3 - (1 + t)^3) / (3 r), with the gain (1 + t) p / r on the velocity."""
    t, f, r = np.array([0.0, 0.3, 0.5, 1.1, 1.3, 2.0]), 7.0, 0.4
    rest = through(t, np.zeros((6, 1)), np.zeros((6, 1)))
    model = linearise_along(Pushed(), rest, jnp.zeros(1))

    def gains(r):
        return lqr(model, Q=0.0, R=r, final=jnp.array([0.0, f])).gains[:, 0]

    integral = (27 - (1 + t) ** 3) / 3
    p = 1 / (1 / f + integral / r)
    np.testing.assert_allclose(gains(r), np.stack([0 * t, (1 + t) * p / r], axis=1), rtol=1e-9)
    slope = -(1 + t) * (p / r) ** 2 / f
    for derivative in (jax.jacfwd(gains), jax.jacrev(gains)):
        np.testing.assert_allclose(jax.jit(derivative)(r)[:, 1], slope, rtol=1e-8)


def test_rest_is_an_equilibrium():
    """Along a motion that rests, with the cost to go of the equilibrium at its end, gains are those
    about the equilibrium at all times. Far from the end they do not depend on it. The feedback
    brings the pole upright from 0.3 rad, in `simulate`, in `perform` and in a `Stepper`."""
    system, zeros = CartPole(*jnp.array([1.0, 0.1, 0.5])), np.zeros((41, 2))
    weights = dict(Q=jnp.array([1.0, 2.0, 0.5, 0.1]), R=0.1)
    about = lqr(linearise(system, mbd.State(0.0, zeros[0], zeros[0]), jnp.zeros(1)), **weights)
    t = np.linspace(0.0, 10.0, 41)
    model = linearise_along(system, through(t, zeros, zeros), jnp.zeros(1))
    K = about.gain @ about.model.S.T
    found = lqr(model, **weights, final=about.value)
    np.testing.assert_allclose(found.gains, np.broadcast_to(K, (41, 1, 4)), rtol=1e-8)
    np.testing.assert_allclose(lqr(model, **weights).gains[0], K, rtol=1e-4)
    A, B = model.in_all_coordinates()
    np.testing.assert_allclose(A[3], about.model.A, atol=1e-12)
    np.testing.assert_allclose(B[3], about.model.B, atol=1e-12)

    start = mbd.State(0.0, [0.2, 0.3], [0.0, 0.0])
    sol = mbd.simulate(system, mbd.UdwadiaKalaba(), start, t1=10.0, dt=0.025, control=found)
    np.testing.assert_allclose(np.concatenate([sol.q[-1], sol.v[-1]]), 0.0, atol=1e-2)
    problem = mbd.trajopt.Problem(system, start, 10.0, 40, nu=1, substeps=10)
    plan = mbd.trajopt.perform(problem, found)
    np.testing.assert_allclose(plan.q[-1], sol.q[-1], atol=1e-6)


def test_stiff_dampers():
    """One mass in a damper whose motion decays by exp(-1e5) in an interval, beside a slow one: the
    gains are those about the equilibrium. Growing exponentials of this size would leave NaN."""
    k, d = jnp.diag(jnp.array([1e5, 2.0])), jnp.diag(jnp.array([1e4, 0.1]))
    system, t, zeros = Springs(jnp.eye(2), k, d), np.linspace(0.0, 20.0, 3), np.zeros((3, 2))
    about = lqr(linearise(system, mbd.State(0.0, zeros[0], zeros[0]), jnp.zeros(2)))
    model = linearise_along(system, through(t, zeros, zeros), jnp.zeros(2))
    found = lqr(model, final=about.value)
    K = about.gain @ about.model.S.T
    np.testing.assert_allclose(found.gains, np.stack([K] * 3), atol=1e-9 * np.abs(K).max())
    assert found.result == mbd.RESULTS.successful


def test_verdicts():
    """Of a cost at the end that is negative, which only numbers that are known refuse; of intervals
    in which deviations grow beyond all numbers; and of the model. `throw=True` raises."""
    t, zeros = np.array([0.0, 1.0, 800.0]), np.zeros((3, 1))
    model = linearise_along(Pushed(), through(t[:2], zeros[:2], zeros[:2]), jnp.zeros(1))

    @jax.jit
    def ended(final):
        options = dict(Q=0.0, final=jnp.stack([0.0, final]), throw=False)
        return lqr(model, **options).result, lqr(model.discretised(), **options).result

    for final, verdict in ((0.1, mbd.RESULTS.successful), (-0.1, mbd.RESULTS.riccati_unsolved)):
        assert all(x == verdict for x in ended(final))
    grows = Springs(*(x * jnp.eye(1) for x in (1.0, -1.0, 0.0)))
    model = linearise_along(grows, through(t, zeros, zeros), jnp.zeros(1)).discretised()
    with pytest.raises(RuntimeError, match="^The Riccati equation of `lqr` has no solution"):
        lqr(model)
    assert lqr(model, throw=False).result == mbd.RESULTS.riccati_unsolved
    spoilt = eqx.tree_at(lambda x: x.result, model.motion, mbd.RESULTS.inconsistent_start)
    assert lqr(spoilt, throw=False).result == mbd.RESULTS.inconsistent_start
    with pytest.raises(RuntimeError, match="^The initial state violates"):
        lqr(spoilt)


@pytest.mark.slow
def test_digital_controller():
    """With the cost to go of the endless horizon at the end, the gains are those of the discrete
    algebraic Riccati equation. On the grid of a problem, the correction is held through each
    interval, and x(k+1) = (A - B K) x(k)."""
    mass, k, d, dt = 2.0, 18.0, 4.0, 0.25
    system = Springs(*(x * jnp.eye(1) for x in (mass, k, d)))
    a, b = np.array([[0.0, 1.0], [-k / mass, -d / mass]]), np.array([[0.0], [1 / mass]])
    flow = scipy.linalg.expm(dt * np.block([[a, b], [np.zeros((1, 3))]]))
    A, B, Q, R = flow[:2, :2], flow[:2, 2:], dt * np.diag([40.0, 1.0]), dt * 0.05 * np.eye(1)
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)

    t, zeros = dt * np.arange(9), np.zeros((9, 1))
    model = linearise_along(system, through(t, zeros, zeros), jnp.zeros(1)).discretised()
    found = lqr(model, Q=jnp.array([40.0, 1.0]), R=0.05, final=P)
    np.testing.assert_allclose(found.gains, np.stack([K] * 8), rtol=1e-9)
    np.testing.assert_allclose(found.value, np.stack([P] * 9), rtol=1e-9)

    start = mbd.State(0.0, [0.3], [-0.1])
    problem = mbd.trajopt.Problem(system, start, 2.0, 8, nu=1, substeps=30)
    plan = mbd.trajopt.perform(problem, found)
    x = np.array([0.3, -0.1])
    for q, v in zip(plan.q, plan.v):
        np.testing.assert_allclose(np.append(q, v), x, atol=1e-7)
        x = (A - B @ K) @ x
    assert np.abs(found(0.0, start.q, start.v) + K @ np.array([0.3, -0.1])).max() < 1e-12


class Angle(mbd.AbstractSystem):
    """A pendulum of 1 m and 1 kg by its angle."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return u - gravity * jnp.sin(q)


class Place(mbd.AbstractSystem):
    """The same by its place, on a circle that is stated twice; u is a torque."""

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.stack([-q[1], q[0]]) * u / (q @ q) - jnp.array([0.0, gravity])

    def constraint(self, q, t):
        return jnp.stack([q @ q - 1, 3 * (q @ q - 1)])


def torque(t, q, v):
    del q, v
    return 15 * jnp.sin(2 * t)[None]


@pytest.mark.slow
def test_redundant_coordinates_have_the_same_gains():
    """Of a pendulum that is driven over the top: with the displacement as cost, |dp| is that of the
    angle. Deviations across the circle have no effect, and the basis does not jump."""

    def rates(t, x):
        return [x[1], 15 * np.sin(2 * t) - gravity * np.sin(x[0])]

    t = np.linspace(0.0, 2.0, 401)
    found = scipy.integrate.solve_ivp(rates, (0, 2), [0, 0], t_eval=t, rtol=1e-11, atol=1e-11)
    angle, rate = found.y[0, :, None], found.y[1, :, None]
    assert np.abs(angle).max() > np.pi
    across = np.concatenate([np.sin(angle), -np.cos(angle)], axis=1)
    along = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    weights = dict(R=0.3, final=jnp.diag(jnp.array([2.0, 0.0])))
    by_angle = lqr(
        linearise_along(Angle(), through(t, angle, rate), torque),
        Q=jnp.array([5.0, 0.0]),
        **weights,
    )
    weights["final"] = 2 * jnp.diag(jnp.array([1.0, 1.0, 0.0, 0.0]))
    model = linearise_along(Place(), through(t, across, rate * along), torque)
    by_place = lqr(model, Q=jnp.array([5.0, 5.0, 0.0, 0.0]), **weights)

    # A change of the angle by 1 turns the velocity too.
    turned = np.concatenate([along, -rate * across], axis=1)
    faster = np.concatenate([0 * along, along], axis=1)
    K = np.asarray(by_place.gains)[:, 0]
    found = np.stack([np.sum(K * x, axis=1) for x in (turned, faster)], axis=1)
    np.testing.assert_allclose(found, by_angle.gains[:, 0], atol=2e-6 * np.abs(found).max())
    for none in (
        np.concatenate([across, 0 * across], axis=1),
        np.concatenate([0 * across, across], axis=1),
    ):
        # dp across the circle, and its effect on the velocity along it, which is admissible.
        Z = np.asarray(model.Z)
        normal = none - np.einsum("kxi,kyi,ky->kx", Z, Z, none)
        np.testing.assert_allclose(np.sum(K * normal, axis=1), 0.0, atol=1e-10)
    steps = np.linalg.norm(np.diff(np.asarray(model.Z), axis=0), axis=(1, 2))
    assert steps.max() < 0.2
    u = by_place(t[40], jnp.asarray(across[40]), jnp.asarray(rate[40] * along[40]))
    np.testing.assert_allclose(u, torque(t[40], None, None), atol=1e-8)


def turning(t):
    """A point that runs around the unit circle, and its direction."""
    angle = 0.4 + 1.5 * t
    return jnp.stack([jnp.sin(angle), -jnp.cos(angle)]), jnp.stack([jnp.cos(angle), jnp.sin(angle)])


class Pulled(Place):
    """The pendulum without weight; a spring pulls it to that point, where it is already."""

    stiffness: Array

    def force(self, t, q, v, u):
        weight = jnp.array([0.0, gravity])
        return super().force(t, q, v, u) + weight - self.stiffness * (q - turning(t)[0])


@pytest.mark.slow
def test_derivatives_and_batches():
    """Of gains on admissible deviations by the stiffness, which leaves the motion as it is, with
    redundant rows, against differences; two systems at once."""
    t = np.linspace(0.0, 0.6, 7)
    q, along = (np.asarray(x).T for x in turning(jnp.asarray(t)))
    motion = through(t, q, 1.5 * along)
    turned, faster = np.append(along[0], -1.5 * q[0]), np.append(0 * q[0], along[0])

    def effect(stiffness):
        model = linearise_along(Pulled(stiffness), motion, jnp.zeros(1), size=2)
        K = lqr(model, Q=3.0, R=0.5).gains[0, 0]
        return jnp.stack([K @ turned, K @ faster])

    step = 1e-4
    alone = jax.jit(effect)
    ahead, behind = (alone(jnp.array(4 + x)) for x in (step, -step))
    difference = (ahead - behind) / (2 * step)
    assert np.abs(difference).min() > 1e-3
    # In both modes without rows above.
    np.testing.assert_allclose(jax.jit(jax.jacrev(effect))(4.0), difference, rtol=1e-6)
    both = jax.jit(jax.vmap(effect))(jnp.array([4 - step, 4 + step]))
    np.testing.assert_allclose(both, [behind, ahead], rtol=1e-10)


def test_refused():
    t, zeros = np.linspace(0.0, 1.0, 3), np.zeros((3, 2))
    system = CartPole(*jnp.ones(3))
    motion = through(t, zeros, zeros)
    with pytest.raises(ValueError, match="at least two points"):
        linearise_along(system, through(t[:1], zeros[:1], zeros[:1]), jnp.zeros(1))
    with pytest.raises(ValueError, match="times that increase"):
        linearise_along(system, through(t[::-1], zeros, zeros), jnp.zeros(1))
    with pytest.raises(ValueError, match="must be one motion"):
        pair = jax.tree.map(lambda x: jnp.stack([x, x]), motion)
        linearise_along(system, pair, jnp.zeros(1))
    with pytest.raises(ValueError, match="has no inputs"):
        lqr(linearise(system, motion.state(), push))
    model = linearise(system, motion.state(), jnp.zeros(1))
    with pytest.raises(ValueError, match="`final` is for motions"):
        lqr(model, final=1.0)
    along = linearise_along(system, motion, jnp.zeros(1))
    with pytest.raises(ValueError, match="`final` must not be negative in any"):
        lqr(along, final=jnp.array([1.0, 1.0, -2.0, 1.0]))
    with pytest.raises(ValueError, match="`final` must be a scalar or have 4 entries, or be 4 x 4"):
        lqr(along, final=jnp.ones((4, 3)))
    with pytest.raises(ValueError, match="`size`"):
        jax.jit(lambda u: linearise_along(system, motion, u).A)(jnp.ones(1))
