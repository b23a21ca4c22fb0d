"""Iterative LQR against closed forms, Riccati's equation, and independent optimisers."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from jaxtyping import Array
from trajopt_problems import (
    START,
    Effort,
    Q,
    QuadraticFinal,
    QuadraticRunning,
    R,
    Reach,
    Speed,
    cart,
    least_effort,
    least_norm,
    least_push,
    masses,
    moved_by,
    pushed,
    runge_kutta,
)

import jaxmbd as mbd

trajopt = mbd.trajopt
DT = 0.1


def riccati(dt=DT):
    """P of the endless horizon and its gain, for costs dt (x^T Q x + u^T R u)."""
    A, B = runge_kutta(dt)
    P = scipy.linalg.solve_discrete_are(A, B, dt * Q, dt * R)
    return P, np.linalg.solve(dt * R + B.T @ P @ B, B.T @ P @ A)


def test_regulator_is_riccatis():
    """With P as the cost of the end, a finite horizon has the cost and the gains of the endless
    one; the first iteration finds them."""
    P, gain = riccati()
    plan = trajopt.ilqr(masses(final=P), progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert plan.iterations <= 3
    assert np.isclose(plan.cost, START @ P @ START, rtol=1e-12)
    assert np.allclose(plan.control.gains, -gain, rtol=0, atol=1e-9)
    x = np.concatenate([plan.q[:-1], plan.v[:-1]], axis=1)
    assert np.allclose(plan.u, -x @ gain.T, rtol=0, atol=1e-9)


def test_states_of_a_guess_are_joined(getkey):
    """Of a linear motion one whole step joins any states to the best one; a plan on another grid
    is such states too."""
    P, _ = riccati()
    problem = masses(final=P)
    points = problem.steps + 1
    guess = trajopt.Guess(*(jr.normal(getkey(), (points, 2)) for _ in range(3)))
    plan = trajopt.ilqr(problem, guess, progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert plan.iterations <= 3
    assert np.isclose(plan.cost, START @ P @ START, rtol=1e-12)
    again = trajopt.perform(problem, plan.open_loop)
    assert np.allclose(again.q, plan.q, rtol=0, atol=1e-12)


def condensed(steps, dt=DT):
    """Rows r(U) = a U + b with |r|^2 = cost, U all controls one after the other."""
    A, B = runge_kutta(dt)
    q, r = np.linalg.cholesky(dt * Q).T, np.linalg.cholesky(dt * R).T
    x, x_of_u = START, np.zeros((4, 2 * steps))
    rows, right = [], []
    for k in range(steps):
        u_of_u = np.zeros((2, 2 * steps))
        u_of_u[:, 2 * k : 2 * k + 2] = np.eye(2)
        rows += [q @ x_of_u, r @ u_of_u]
        right += [q @ x, np.zeros(2)]
        x, x_of_u = A @ x, A @ x_of_u + B @ u_of_u
    return np.concatenate(rows), np.concatenate(right), x, x_of_u


def test_bounds_as_in_bounded_least_squares():
    steps, lower, upper = 12, np.array([-0.6, -0.3]), np.array([0.5, 0.2])
    a, b, *_ = condensed(steps)
    bounds = np.tile(lower, steps), np.tile(upper, steps)
    exact = scipy.optimize.lsq_linear(a, -b, bounds, method="bvls", tol=1e-14)
    plan = trajopt.ilqr(masses(steps, lower=lower, upper=upper), progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert np.sum(exact.active_mask != 0) > 5
    assert np.isclose(plan.cost, 2 * exact.cost, rtol=1e-9)
    assert np.allclose(plan.u.ravel(), exact.x, rtol=0, atol=1e-5)
    assert plan.bound_violation == 0


def test_final_conditions_as_in_the_kkt_system():
    """min |a U + b|^2 subject to x_N = 0."""
    steps = 12
    a, b, x, x_of_u = condensed(steps)
    n = 2 * steps
    kkt = np.block([[a.T @ a, x_of_u.T], [x_of_u, np.zeros((4, 4))]])
    U = np.linalg.solve(kkt, np.concatenate([-a.T @ b, -x]))[:n]
    problem = masses(steps, end=Reach(jnp.zeros(2)))
    plan = trajopt.ilqr(problem, condition_tolerance=1e-9, progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert plan.final_violation <= 1e-9
    assert np.isclose(plan.cost, np.sum((a @ U + b) ** 2), rtol=1e-7)
    assert np.allclose(plan.u.ravel(), U, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_path_conditions_as_in_an_independent_optimiser():
    """A cart with a speed limit, against SLSQP on the same unknowns."""
    steps, limit = 10, 1.2
    dt = 1 / steps
    left = 1 - dt * (np.arange(steps) + 0.5)
    speeds = dt * np.tril(np.ones((steps, steps)))
    exact = scipy.optimize.minimize(
        lambda u: dt * u @ u,
        np.zeros(steps),
        jac=lambda u: 2 * dt * u,
        method="SLSQP",
        constraints=[
            dict(type="eq", fun=lambda u: np.array([dt * left @ u - 1, dt * u.sum()])),
            dict(type="ineq", fun=lambda u: limit - speeds @ u),
        ],
        options=dict(ftol=1e-14, maxiter=300),
    )
    plan = trajopt.ilqr(cart(steps, path=Speed(limit)), progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert np.max(plan.v) > limit - 1e-5  # the limit matters
    assert exact.fun > 1.01 * least_effort(steps, 1.0, 1.0)
    assert np.isclose(plan.cost, exact.fun, rtol=1e-5)
    assert np.allclose(plan.u[:, 0], exact.x, rtol=0, atol=1e-3)


class LastControl(eqx.Module):
    """A condition of state and control together: u + v <= 0.5."""

    def __call__(self, t, q, v, u):
        return u + v - 0.5


def test_path_conditions_with_the_last_control():
    """The condition at the end couples the last state with the last control."""
    problem = trajopt.Problem(
        cart(4).system,
        mbd.State(0.0, jnp.zeros(1), jnp.zeros(1)),
        1.0,
        4,
        nu=1,
        running_cost=Pull(),
        path=LastControl(),
    )
    plan = trajopt.ilqr(problem, progress=False, condition_tolerance=1e-8)
    # By hand, the conditions are linear: v(k+1) = v(k) + u(k) / 4.
    v_of_u = np.tril(np.full((5, 4), 0.25), -1)
    u_of_u = np.concatenate([np.eye(4), np.eye(4)[-1:]])
    exact = scipy.optimize.minimize(
        lambda u: np.sum((u - 1) ** 2) / 4,
        np.zeros(4),
        method="SLSQP",
        constraints=[dict(type="ineq", fun=lambda u: 0.5 - (v_of_u + u_of_u) @ u)],
        options=dict(ftol=1e-14),
    )
    assert plan.status == trajopt.STATUS.converged
    assert np.allclose(plan.u[:, 0], exact.x, rtol=0, atol=1e-5)


class Pull(eqx.Module):
    """(u - 1)^2."""

    def __call__(self, t, q, v, u):
        return jnp.sum((u - 1.0) ** 2)


class Angle(mbd.AbstractSystem):
    """A pendulum of 1 kg and 1 m by its angle from the upright."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return 9.81 * jnp.sin(q) + u


class Circle(mbd.AbstractSystem):
    """The same by its place, on a circle stated `rows` times over."""

    rows: int = eqx.field(static=True, default=2)

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        tangent = jnp.stack([q[1], -q[0]]) / (q @ q)
        return jnp.array([0.0, -9.81]) + u[0] * tangent

    def constraint(self, q, t):
        return jnp.full(self.rows, (q @ q - 1.0) / 2)


class OfAngle(eqx.Module):
    """4 (1 - cos(angle - 0.3)) + rate^2 + u^2 / 10."""

    def __call__(self, t, q, v, u):
        return of_angle(q, v) + jnp.sum(u**2) / 10


class OfAngleAtEnd(eqx.Module):
    def __call__(self, t, q, v):
        return 10 * of_angle(q, v)


def of_angle(q, v):
    if q.shape[0] == 1:
        x, y, rate = jnp.sin(q[0]), jnp.cos(q[0]), v[0]
    else:
        (x, y), rate = q, (v[0] * q[1] - v[1] * q[0]) / (q @ q)
    return 4 * (1 - x * jnp.sin(0.3) - y * jnp.cos(0.3)) + rate**2


def swing(system, state, **options):
    return trajopt.Problem(
        system,
        state,
        1.0,
        20,
        nu=1,
        running_cost=OfAngle(),
        final_cost=OfAngleAtEnd(),
        lower=-9.0,
        upper=9.0,
        substeps=16,
        **options,
    )


def on_circle(angle, rate):
    q = jnp.array([jnp.sin(angle), jnp.cos(angle)])
    return mbd.State(0.0, q, rate * jnp.array([q[1], -q[0]]))


@pytest.mark.slow
def test_optimum_does_not_depend_on_the_coordinates():
    """A pendulum by its angle, and by its place with a redundant row, at the bounds at first: the
    motions differ by the error of the scheme, 1e-8. Second derivatives change the way there
    alone."""
    start = 0.8, 0.5
    minimal = swing(Angle(), mbd.State(0.0, [start[0]], [start[1]]))
    redundant = swing(Circle(), on_circle(*start))
    first = trajopt.FirstOrder()
    plans = [
        trajopt.ilqr(p, progress=False, tolerance=1e-11, expansion=first)
        for p in (minimal, redundant)
    ]
    for plan in plans:
        assert plan.status == trajopt.STATUS.converged
    assert np.any(np.abs(plans[0].u) == 9.0)
    assert np.isclose(plans[0].cost, plans[1].cost, rtol=2e-8)
    # The optimum is flat: where costs agree to 1e-9, controls agree to the root of that.
    assert np.allclose(plans[0].u, plans[1].u, rtol=0, atol=1e-3)
    assert plans[1].phi_norm < 1e-8
    second = trajopt.ilqr(minimal, progress=False, tolerance=1e-11)
    assert np.isclose(second.cost, plans[0].cost, rtol=1e-9)
    assert second.iterations < plans[0].iterations


@pytest.mark.slow
def test_loop_of_a_mechanism():
    """A parallelogram on four hinges in space, redundant by three, turned by a motor from rest to
    rest: without gravity its moment of inertia is constant, and the least effort known."""
    length, mass = math.hypot(0.1, 0.3), 2.0
    places = [[0.0, 0, 0], [0.1, 0, 0.3], [0.6, 0, 0.3], [0.5, 0, 0.0]]
    solid = mbd.Inertia(mass, [0.1, 0.02, 0.1])
    a, b, c = (
        mbd.Body(name, solid, position=np.add(p, q) / 2)
        for name, p, q in zip("abc", places, places[1:])
    )
    pairs = [("ground", a), (a, b), (b, c), (c, "ground")]
    at = [dict(point=place, axis=[0.0, 1.0, 0.0]) for place in places]
    joints = [mbd.Revolute(f"hinge {i}", *pairs[i], **at[i]) for i in range(4)]
    motor = mbd.Motor("motor", *pairs[0], **at[0])
    system = mbd.Mechanism([a, b, c], joints, [motor], gravity=[0.0, 0.0, 0.0])
    turned = 2 * (0.02 + mass * (length / 2) ** 2) + mass * length**2

    class Turned(eqx.Module):
        def __call__(self, t, q, v):
            angle = system.joint_coordinates(q, "hinge 0")
            return jnp.concatenate([angle + 0.8, mbd.joint_rates(system, q, v, "hinge 0")])

    problem = trajopt.Problem(
        system,
        system.state(),
        duration=0.6,
        steps=12,
        nu=1,
        running_cost=Effort(jnp.array(1.0)),
        final=Turned(),
    )
    plan = trajopt.ilqr(problem, expansion=trajopt.FirstOrder(), progress=False)
    u, cost = least_norm(0.05, moved_by(12, 0.05, False) / turned, [-0.8, 0.0])
    assert plan.status == trajopt.STATUS.converged
    assert plan.phi_norm < 1e-7  # the error of RK4 at steps of 50 ms
    assert np.isclose(plan.cost, cost, rtol=1e-5)
    assert np.allclose(plan.u[:, 0], u, rtol=0, atol=1e-4 * np.abs(u).max())


@pytest.mark.slow
def test_contact_with_friction():
    """The controls of least effort are those of the equality-constrained least squares of a sliding
    block, as far as the friction law is smoothed: the error is of second order in that."""
    u, cost = least_push(20)
    off = []
    for smoothing in (1e-2, 1e-3):
        problem = pushed(20, smoothing)
        guess = jnp.full((20, 1), 2.5)
        plan = trajopt.ilqr(problem, guess, expansion=trajopt.FirstOrder(), progress=False)
        assert plan.status == trajopt.STATUS.converged and plan.phi_norm == 0
        off.append(abs(float(plan.cost) - cost))
        assert np.allclose(plan.u[:, 0], u, rtol=0, atol=5 * smoothing)
    assert off[1] < 2e-4 and off[0] > 50 * off[1]


class Ball(mbd.AbstractSystem):
    """A rigid body of equal moments of inertia 2 kg m^2, turned by torques in body axes."""

    coordinates = mbd.QuaternionBody()

    def mass_matrix(self, q):
        return 2 * jnp.eye(3)

    def force(self, t, q, v, u):
        return u


class Facing(eqx.Module):
    """At rest in the orientation `goal`."""

    goal: Array

    def __call__(self, t, q, v):
        return jnp.concatenate([Ball().difference(self.goal, q), v])


@pytest.mark.slow
def test_reorientation_by_quaternions():
    """From rest to rest about an inclined axis by 2.5 rad, with least effort: a cart's problem."""
    axis = jnp.array([1.0, -2.0, 3.0]) / jnp.sqrt(14.0)
    q = mbd.quaternion_exp(jnp.array([0.3, 0.2, -0.5]))
    goal = Ball().retract(q, 2.5 * axis)
    problem = trajopt.Problem(
        Ball(),
        mbd.State(0.0, q, jnp.zeros(3)),
        2.0,
        16,
        nu=3,
        running_cost=Effort(),
        final=Facing(goal),
    )
    plan = trajopt.ilqr(problem, progress=False, expansion=trajopt.FirstOrder())
    assert plan.status == trajopt.STATUS.converged
    assert np.isclose(plan.cost, least_effort(16, 2.0, 2.5, 2.0), rtol=1e-5)
    # On the way: a push along the axis, then against it.
    assert np.allclose(plan.u, (plan.u @ axis)[:, None] * axis[None, :], atol=1e-4)
    # A disturbed start, given by the other quaternion of the same orientation.
    dx = 0.01 * jnp.array([1.0, 2.0, 0.0])
    pushed = Ball().retract(q, dx)
    u = plan.control(0.0, -pushed, jnp.zeros(3))
    expected = plan.u[0] + plan.control.gains[0][:, :3] @ dx
    assert np.allclose(u, expected, rtol=0, atol=1e-12)


def cart_pole_by_numpy(U, duration, substeps):
    """Kelly's equations of motion, solved for the accelerations by hand; classical Runge-Kutta."""
    m1, m2, length, g = 1.0, 0.3, 0.5, 9.81

    def rate(x, u):
        s, c = np.sin(x[1]), np.cos(x[1])
        denominator = m1 + m2 * (1 - c * c)
        a = (length * m2 * s * x[3] ** 2 + u + m2 * g * c * s) / denominator
        b = -(length * m2 * c * s * x[3] ** 2 + u * c + (m1 + m2) * g * s) / (length * denominator)
        return np.array([x[2], x[3], a, b])

    x, h = np.zeros(4), duration / len(U) / substeps
    for u in U:
        for _ in range(substeps):
            k1 = rate(x, u)
            k2 = rate(x + h / 2 * k1, u)
            k3 = rate(x + h / 2 * k2, u)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + h * k3, u))
    return x


class CartPole(mbd.AbstractSystem):
    """A cart of 1 kg with a pole of 0.5 m and 0.3 kg, that hangs at angle 0."""

    def mass_matrix(self, q):
        c = 0.15 * jnp.cos(q[1])
        return jnp.array([[1.3, c], [c, 0.075]])

    def force(self, t, q, v, u):
        s = 0.15 * jnp.sin(q[1])
        return jnp.stack([u[0] + s * v[1] ** 2, -9.81 * s])


def cart_pole(steps, **options):
    return trajopt.Problem(
        CartPole(),
        mbd.State(0.0, jnp.zeros(2), jnp.zeros(2)),
        2.0,
        steps,
        nu=1,
        running_cost=Effort(),
        final=Reach(jnp.array([1.0, jnp.pi])),
        lower=-20.0,
        upper=20.0,
        substeps=2,
        **options,
    )


@pytest.mark.slow
def test_cart_pole_swings_up_as_an_independent_optimiser_has_it():
    """From zero controls, against SLSQP on hand-written equations.

    Problem of Kelly (2017), An introduction to trajectory optimization, SIAM Review 59, section
    6 and appendix E."""
    steps = 16
    plan = trajopt.ilqr(cart_pole(steps), progress=False)
    assert plan.status == trajopt.STATUS.converged
    end = cart_pole_by_numpy(np.asarray(plan.u[:, 0]), 2.0, 2)
    goal = np.array([1.0, np.pi, 0.0, 0.0])
    assert np.allclose(end, goal, rtol=0, atol=1e-6)
    exact = scipy.optimize.minimize(
        lambda u: 2 / steps * u @ u,
        np.asarray(plan.u[:, 0]) + np.random.default_rng(0).normal(size=steps),
        jac=lambda u: 4 / steps * u,
        method="SLSQP",
        constraints=dict(type="eq", fun=lambda u: cart_pole_by_numpy(u, 2.0, 2) - goal),
        options=dict(ftol=1e-10, maxiter=200),
    )
    assert np.isclose(plan.cost, exact.fun, rtol=1e-6)
    assert np.allclose(plan.u[:, 0], exact.x, rtol=0, atol=1e-2)


def test_new_numbers_compile_nothing():
    P, _ = riccati()
    count = Count()
    problem = masses(final=P)
    problem = eqx.tree_at(lambda p: p.running_cost, problem, Counted(problem.running_cost, count))
    trajopt.ilqr(problem, jnp.zeros(2), progress=False)
    before = count.calls
    other = eqx.tree_at(
        lambda p: (p.system.stiffness, p.running_cost.inner.R, p.state.q, p.duration),
        problem,
        (jnp.array(1.3), jnp.asarray(2 * R), jnp.array([0.1, 0.2]), jnp.array(1.4)),
    )
    plan = trajopt.ilqr(other, 0.1 * jnp.ones(2), progress=False, tolerance=1e-10)
    assert before > 0 and count.calls == before
    assert plan.status == trajopt.STATUS.converged


class Count:
    """A counter that is the same for every purpose of compilation."""

    calls = 0


class Counted(eqx.Module):
    inner: QuadraticRunning
    count: Count = eqx.field(static=True)

    def __call__(self, *args):
        self.count.calls += 1
        return self.inner(*args)


@pytest.mark.slow
def test_a_batch_is_a_loop():
    """`jax.vmap` over starts; each has its own number of iterations."""
    P, _ = riccati()
    problem = masses(final=P, upper=np.array([0.3, 0.3]))
    starts = jnp.asarray(START[:2])[None] * jnp.array([1.0, 0.1, -2.0])[:, None]

    def from_start(q):
        moved = eqx.tree_at(lambda p: p.state.q, problem, q)
        return trajopt.ilqr(moved, max_iterations=20, progress=True)

    plans = eqx.filter_jit(eqx.filter_vmap(from_start))(starts)
    for i, q in enumerate(starts):
        alone = from_start(q)
        assert np.isclose(plans.cost[i], alone.cost, rtol=1e-12)
        assert plans.iterations[i] == alone.iterations
        assert plans.history.shape == (3, 21)
        assert alone.history.shape == (int(alone.iterations) + 1,)


@pytest.mark.slow
def test_status_tells_what_happened():
    P, _ = riccati()
    upper = np.array([0.3, 0.3])
    assert trajopt.ilqr(masses(final=P, upper=upper), max_iterations=1, progress=False).status == (
        trajopt.STATUS.running
    )
    failed = trajopt.ilqr(masses(final=P), 1e300 * jnp.ones(2), progress=False)
    assert failed.status == trajopt.STATUS.failed_start
    assert "first guess" in str(failed)
    # No force within these bounds gets there.
    impossible = trajopt.ilqr(cart(4, lower=-0.1, upper=0.1), progress=False)
    assert impossible.status == trajopt.STATUS.infeasible
    with pytest.raises(ValueError, match=r"`guess`.*\(12, 2\).*\(3,\)"):
        trajopt.ilqr(masses(final=P), jnp.zeros(3))


@pytest.mark.slow
def test_receding_horizon_is_riccatis():
    """With P as the cost of the end, every plan's first control is that of the endless horizon,
    also for a plant that is not the model."""
    P, gain = riccati()
    problem = masses(5, 5 * DT / 5, final=P)
    plant = eqx.tree_at(lambda s: s.stiffness, problem.system, jnp.array(1.5))
    pursuit = trajopt.receding_horizon(problem, 8, plant=plant, progress=False)
    A, B = runge_kutta(DT, stiffness=1.5)
    x, cost = START, 0.0
    for k in range(8):
        assert np.allclose(np.concatenate([pursuit.q[k], pursuit.v[k]]), x, rtol=0, atol=1e-9)
        u = -gain @ x
        assert np.allclose(pursuit.u[k], u, rtol=0, atol=1e-9)
        cost += DT * (x @ Q @ x + u @ R @ u)
        x = A @ x + B @ u
    assert np.isclose(pursuit.cost, cost, rtol=1e-9)
    assert np.isclose(pursuit.t[-1], 8 * DT) and bool(pursuit.good)
    assert bool(pursuit.successful) and "all searches converged" in str(pursuit)


class StackedPendulums(mbd.AbstractSystem):
    """A cart of 1 kg, and on it two rods of 0.5 m with 0.2 kg at the end of each, one on the other,
    upright at angle 0; all `heavier` by a factor. A `gust` pushes the cart for 0.1 s."""

    heavier: Array = eqx.field(converter=jnp.asarray, default=1.0)
    gust: Array = eqx.field(converter=jnp.asarray, default=0.0)

    def mass_matrix(self, q):
        a, b, e = jnp.cos(q[1]), jnp.cos(q[2]), jnp.cos(q[1] - q[2])
        rows = [[1.4, 0.2 * a, 0.1 * b], [0.2 * a, 0.1, 0.05 * e], [0.1 * b, 0.05 * e, 0.05]]
        return self.heavier * jnp.stack([jnp.stack([x + 0 * a for x in row]) for row in rows])

    def force(self, t, q, v, u):
        (_, a, b), (_, wa, wb) = q, v
        twist = 0.05 * jnp.sin(a - b)
        own = [
            0.2 * jnp.sin(a) * wa**2 + 0.1 * jnp.sin(b) * wb**2,
            0.2 * 9.81 * jnp.sin(a) - twist * wb**2,
            0.1 * 9.81 * jnp.sin(b) + twist * wa**2,
        ]
        gust = jnp.where((t >= 0.5) & (t < 0.6), self.gust, 0.0)
        return self.heavier * jnp.stack(own) + jnp.stack([u[0] + gust, 0 * gust, 0 * gust])


@pytest.mark.parametrize("stiffness, unstable", [(-50.0, False), (-5000.0, True)])
def test_growth_of_errors(stiffness, unstable):
    """Of a linear motion the largest singular value of the products of its transition matrices; at
    most the last one of them, open loop, grows without bound."""
    steps = 12
    problem = eqx.tree_at(lambda p: p.system.stiffness, masses(steps), jnp.array(stiffness))
    A, B = runge_kutta(DT, stiffness)
    products = [np.linalg.matrix_power(A, k) for k in range(1, steps + 1)]
    expected = max(np.linalg.norm(product, 2) for product in products)
    plan = trajopt.perform(problem, jnp.zeros(2))
    assert np.isclose(plan.growth, expected, rtol=1e-9)
    assert (plan.status == trajopt.STATUS.unstable) == unstable
    assert (plan.status == trajopt.STATUS.performed) != unstable
    if unstable:
        assert plan.growth > 1e16 and "errors grow" in str(plan) and "feedback" in str(plan)


@pytest.mark.parametrize("stiffness", [-5e4, 5e6])
def test_performance_that_is_none(stiffness):
    """A motion that runs away, and one that is too stiff for its steps: both end anywhere, and say
    so, with the conditions that they miss by 10^60 and more."""
    problem = masses(final=np.eye(4))
    problem = eqx.tree_at(lambda p: p.system.stiffness, problem, jnp.array(stiffness))
    goal = eqx.tree_at(lambda p: p.final, problem, Reach(jnp.ones(2)), is_leaf=lambda x: x is None)
    plan = trajopt.perform(goal, jnp.zeros(2))
    assert plan.status == trajopt.STATUS.unstable and plan.final_violation > 1e60
    assert "feedback" in str(plan) and "more `substeps`" in str(plan)


def test_growth_under_feedback():
    """The gains of a plan close the loop: A + B K of each step; and the plan knows it from its last
    iteration as its performance does."""
    problem = eqx.tree_at(lambda p: p.system.stiffness, masses(), jnp.array(-200.0))
    plan = trajopt.ilqr(problem, progress=False)
    A, B = runge_kutta(DT, -200.0)
    product, expected = np.eye(4), 0.0
    for gain in np.asarray(plan.control.gains)[::-1]:
        product = product @ (A + B @ gain)
        expected = max(expected, np.linalg.norm(product, 2))
    again = trajopt.perform(problem, plan.control)
    assert np.isclose(plan.growth, expected, rtol=1e-6)
    assert np.isclose(again.growth, expected, rtol=1e-6)
    alone = trajopt.perform(problem, plan.open_loop)
    assert plan.status == trajopt.STATUS.converged and alone.growth > 1e3 * plan.growth


UPRIGHT = np.diag([1.0, 10.0, 10.0, 0.1, 0.1, 0.1])


def stacked_pendulums(duration, steps):
    """Hold them upright, from a lean of 0.1 rad."""
    return trajopt.Problem(
        StackedPendulums(),
        mbd.State(0.0, jnp.array([0.0, 0.1, 0.1]), jnp.zeros(3)),
        duration,
        steps,
        nu=1,
        running_cost=QuadraticRunning(UPRIGHT, 0.01 * np.eye(1)),
        final_cost=QuadraticFinal(np.diag([10.0, 100.0, 100.0, 10.0, 10.0, 10.0])),
        lower=-40.0,
        upper=40.0,
    )


def test_first_plan_of_what_falls():
    """Without a guess as with states for one. From the motion under no control, which falls over,
    the search went to an optimum of 209 that swings about."""
    problem = stacked_pendulums(1.0, 25)
    plan = trajopt.ilqr(problem, progress=False)
    shooting = trajopt.ilqr(problem, trajopt.interpolated(problem), progress=False)
    assert plan.status == trajopt.STATUS.converged and int(plan.iterations) < 10
    assert np.isclose(plan.cost, shooting.cost, rtol=1e-8) and plan.cost < 1
    assert np.max(np.abs(plan.q[:, 1:])) < 0.2


@pytest.mark.slow
def test_receding_horizon_holds_what_falls():
    """Two stacked pendulums lean by 0.1 rad; the plant is 5 % heavier, and a gust of 10 N blows. A
    lean grows 10^6 times in a horizon: warm starts by controls alone, or a first plan from none,
    let them fall to 5 rad."""
    problem = stacked_pendulums(2.0, 50)
    plant = StackedPendulums(1.05, 10.0)
    pursuit = trajopt.receding_horizon(problem, 75, plant=plant, progress=False)
    assert bool(pursuit.successful) and np.mean(pursuit.iterations) < 3
    assert np.max(np.abs(pursuit.q[:, 1:])) < 0.2
    assert np.max(np.abs(pursuit.q[-1, 1:])) < 0.02
    cut = trajopt.receding_horizon(problem, 10, plant=plant, max_iterations=1, progress=False)
    assert not bool(cut.successful) and int(cut.unconverged) >= 5
    assert f"{int(cut.unconverged)} of 10 searches did not converge" in str(cut)
