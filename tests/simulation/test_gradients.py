"""Derivatives of simulations: reverse mode, forward mode, central differences and closed forms."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optimistix as optx
import pytest
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd


def loss_of(fixed, **options):
    """Of (system, enforcement, projection, control, q, v): a number of order 1 in which each
    coordinate, velocity and multiplier at the end has its own weight."""

    def loss(tree):
        system, enforcement, projection, control, q, v = eqx.combine(tree, fixed)
        sol = mbd.simulate(
            system,
            enforcement,
            mbd.State(0.0, q, v),
            control=control,
            projection=projection,
            start_tolerance=jnp.inf,  # the differences leave the constraints on purpose
            **options,
        )
        ends = jnp.concatenate([sol.q[-1], sol.v[-1], 0.1 * sol.multipliers[-1]])
        return jnp.cos(1.0 + jnp.arange(ends.size, dtype=ends.dtype)) @ ends

    return loss


def check(case, method, *, modes=("reverse", "forward"), rtol=1e-6, **options):
    """All derivatives of a method on a case agree."""
    control = options.pop("control", case.control)
    state = case.state
    # Gains of 0 stand at the border of what is allowed: the differences would cross it.
    enforcement = jax.tree.map(
        lambda x: jnp.where(x == 0, 0.01, x) if eqx.is_inexact_array(x) else x, method.enforcement
    )
    tree = (case.system, enforcement, method.projection, control, state.q, state.v)
    tree, fixed = eqx.partition(tree, eqx.is_inexact_array)
    value, gradients, differences = h.derivatives(loss_of(fixed, **options), tree, modes=modes)
    largest = jnp.max(jnp.abs(differences))
    assert jnp.isfinite(value)
    assert largest > 1e-2  # something depends on something
    for gradient in gradients.values():
        # A component of 1e-3 of the largest is still checked to 1e-6 of itself.
        np.testing.assert_allclose(gradient, differences, rtol=rtol, atol=1e-9 * largest)
    if len(modes) == 2:
        reverse, forward = gradients.values()
        # The matrix of the augmented Lagrangian has a condition number of 5e3.
        rounding = 1e-11 if isinstance(method.enforcement, mbd.AugmentedLagrangian) else 1e-12
        np.testing.assert_allclose(reverse, forward, rtol=rounding, atol=rounding * largest)
    return ravel_pytree(tree)[1](gradients[modes[0]])


EULER = diffrax.Euler()  # the scheme is not what most tests are about, and it compiles fast


def options_of(method, **options):
    scheme = None if method.split else EULER
    return {"dt": 0.01, "num_steps": 30, "scheme": scheme, **options}


# --- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, solver",
    h.slow_unless(lambda m, s: s == "automatic" and m not in h.VARIANTS, h.pairs()),
)
def test_every_method_and_solver(method, solver):
    """All parameters, start, gains, pivot motion; the rows depend on q and t."""
    method = h.method(method, solver)
    check(h.CASES["driven_pendulum"], method, **options_of(method))


QUICK = [
    ("oscillator", "udwadia_kalaba"),
    ("controlled_mass", "impulse_dead_beat"),
    ("skate", "dual_penalty"),
]
FAMILIES = ["udwadia_kalaba", "impulse_dead_beat", "dual_penalty", "augmented_lagrangian"]
LONG = (
    [("skate", "udwadia_kalaba"), ("rotating_guide", "udwadia_kalaba")]
    + [(case, m) for case in ("redundant_pendulum", "skate_in_space") for m in h.METHODS]
    + [(case, m) for case in ("slider_crank", "top") for m in [*FAMILIES, "projected"]]
)


@pytest.mark.parametrize(
    "case, method",
    h.slow_unless(lambda *item: item in QUICK, [*QUICK, *(x for x in LONG if x not in QUICK)]),
)
def test_every_case_and_method(case, method):
    method = h.method(method)
    steps = 10 if case in ("top", "slider_crank") else 20
    check(h.CASES[case], method, **options_of(method, num_steps=steps))


@pytest.mark.parametrize(
    "method", ["udwadia_kalaba", pytest.param("projected", marks=pytest.mark.slow)]
)
def test_redundant_rows(method):
    """Motion and least-norm multipliers, also with respect to the scales of the copies. With the
    proximal solver the multipliers carry rounding of eps / rho = 2e-6, which differences would
    magnify: its derivatives are compared with those of the pseudoinverse instead."""
    case, options = h.CASES["redundant_pendulum"], dict(num_steps=15)
    reference = h.method(method, "pseudoinverse")
    expected = check(case, reference, **options_of(reference, **options))
    expected, _ = ravel_pytree(expected)

    proximal = h.method(method, "proximal")
    state = case.state
    tree = (case.system, proximal.enforcement, proximal.projection, None, state.q, state.v)
    tree, fixed = eqx.partition(tree, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(tree)
    loss = loss_of(fixed, **options_of(proximal, **options))
    gradients = both_modes(lambda x: loss(unravel(x)), flat)
    atol = 1e-6 * np.max(np.abs(expected))
    # `check` differentiates by x / max(|x|, 1)
    scale = np.maximum(np.abs(flat), 1.0)
    for gradient in gradients:
        np.testing.assert_allclose(scale * gradient, expected, rtol=1e-6, atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["guided_mass", "top"])
def test_stages(case):
    """Classical Runge-Kutta: the held correction through all stages."""
    check(h.CASES[case], h.method("udwadia_kalaba"), dt=0.02, num_steps=8, scheme=mbd.RK4())


@pytest.mark.parametrize(
    "name", ["table", "neural", pytest.param("feedback", marks=pytest.mark.slow)]
)
def test_controls(name, getkey):
    """With respect to all numbers of the control."""
    control = {
        "table": h.Table(jr.normal(getkey(), (4, 2)), 0.2),
        "feedback": h.Feedback(),
        "neural": h.neural(getkey()),
    }[name]
    method = h.method("udwadia_kalaba")
    case = h.CASES["pendulum"]
    # The kinks at 1/3 and 2/3 of the table's duration stay between the same grid points.
    check(case, method, control=control, **options_of(method, dt=0.008, num_steps=18))


# --- closed forms --------------------------------------------------------------------------------


def complex_step(fn, x):
    """Exact derivatives of an analytic NumPy function."""
    return np.array([np.imag(fn(x + 1e-30j * e)) / 1e-30 for e in np.eye(len(x))])


def both_modes(fn, x):
    """Gradients in reverse and forward mode from one compilation."""
    modes = jax.jit(lambda x: (jax.jacrev(fn)(x), jax.jacfwd(fn)(x)))
    return modes(jnp.asarray(x))


@pytest.mark.parametrize(
    "name", ["udwadia_kalaba", pytest.param("multipliers", marks=pytest.mark.slow)]
)
def test_guided_oscillator(name):
    """Spring, damper and gravity along an inclined guide, by m, k, c, angle, g, r0 and w0: 1e-8.
    The error of the scheme is 1e-10."""
    x, t = np.array([1.3, 5.0, 0.4, 0.6, 9.81, 0.7, -0.4]), 0.8

    def simulated(x):
        system = h.GuidedMass(*x[:5])
        along = jnp.stack([jnp.cos(x[3]), jnp.sin(x[3])])
        state = mbd.State(0.0, x[5] * along, x[6] * along)
        return h.method(name).simulate(system, state, t1=t, dt=4e-3).q[-1, 0]

    def exact(x):
        m, k, c, angle, g, r0, w0 = x
        rest = -m * g * np.sin(angle) / k
        return np.cos(angle) * (rest + h.oscillation(m, k, c, r0 - rest, w0, t)[0])

    expected = complex_step(exact, x)
    assert np.min(np.abs(expected)) > 1e-2
    for gradient in both_modes(simulated, x):
        np.testing.assert_allclose(gradient, expected, rtol=1e-8)


def test_free_oscillator():
    """Without constraints, velocity at the end; also at zero damping."""
    t = 0.8

    def simulated(x):
        state = mbd.State(0.0, x[3:4], x[4:])
        sol = mbd.simulate(h.Oscillator(*x[:3]), mbd.UdwadiaKalaba(), state, t1=t, dt=2e-3)
        return sol.v[-1, 0]

    for damping in (0.4, 0.0):
        x = np.array([1.3, 5.0, damping, 0.7, -0.4])
        expected = complex_step(lambda x: h.oscillation(*x, t)[1], x)
        for gradient in both_modes(simulated, x):
            np.testing.assert_allclose(gradient, expected, rtol=1e-8)


@pytest.mark.parametrize(
    "name", ["udwadia_kalaba", pytest.param("projected", marks=pytest.mark.slow)]
)
def test_small_angle_pendulum(name):
    """x = l theta0 cos(sqrt(g/l) t) by l, g and theta0; the amplitude of 1e-5 rad leaves 1e-10."""
    amplitude, t = 1e-5, 0.7

    def simulated(x):
        length, gravity, angle = x
        q = length * jnp.stack([jnp.sin(amplitude * angle), -jnp.cos(amplitude * angle)])
        system = h.Pendulum(length=length, gravity=gravity)
        state = mbd.State(0.0, q, jnp.zeros(2))
        return h.method(name).simulate(system, state, t1=t, dt=4e-3).q[-1, 0] / amplitude

    def exact(x):
        length, gravity, angle = x
        return length * angle * np.cos(np.sqrt(gravity / length) * t)

    x = np.array([0.9, 9.81, 1.1])
    for gradient in both_modes(simulated, x):
        np.testing.assert_allclose(gradient, complex_step(exact, x), rtol=1e-8)


# --- hard places ---------------------------------------------------------------------------------

ROBUST = ["udwadia_kalaba", "baumgarte", "impulse_dead_beat", "dual_penalty", "primal_penalty"] + [
    "explicit_penalty",
    "augmented_lagrangian",
    "projected",
]
SINGULAR = {  # a pose where rows lose rank, and a motion along the branch that must be kept
    "slider_crank": (
        h.EqualSliderCrank(),
        np.array([0.0, 0.0, np.pi / 2, -np.pi / 2]),
        np.array([0.0, 0.0, 1.5, -1.5]),
    ),
    "two_four_bars": (
        h.TwoFourBars(),
        np.array([1.0, 0.0, 2.0, 0.0, 3.0, 0.0]),
        np.array([0.0, -1.0] * 3),
    ),
}


@pytest.mark.parametrize(
    "name, method, moving",
    h.slow_unless(
        lambda n, m, v: m == "udwadia_kalaba" and v and n == "slider_crank",
        [(n, m, v) for n in SINGULAR for m in ROBUST for v in (True, False)],
    ),
)
def test_finite_at_singular_poses(name, method, moving):
    """Started exactly in the pose, at rest or moving: every derivative is a number."""
    system, q, v = SINGULAR[name]
    method = h.method(method)
    tree = (system, method.enforcement, method.projection, None, jnp.asarray(q), v * moving)
    tree, fixed = eqx.partition(h.cast(tree, float), eqx.is_inexact_array)
    loss = loss_of(fixed, **options_of(method, num_steps=5))
    flat, unravel = ravel_pytree(tree)

    def gradients(x):
        return jax.jacrev(lambda x: loss(unravel(x)))(x), jax.jacfwd(lambda x: loss(unravel(x)))(x)

    reverse, forward = jax.jit(gradients)(flat)
    assert np.all(np.isfinite(reverse)) and np.any(reverse != 0)
    largest = np.max(np.abs(reverse))
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-9 * largest)


@pytest.mark.parametrize("solver", ["automatic", pytest.param("proximal", marks=pytest.mark.slow)])
def test_through_the_singular_pose(solver):
    """Parallel cranks pass the horizontal, where five rows have rank three: all derivatives are
    those of theta'' = 7/6 g/l sin(theta), the angle from the upright."""

    def start(theta, rate, length):
        tip = length * jnp.stack([jnp.sin(theta), jnp.cos(theta)])
        speed = length * rate * jnp.stack([jnp.cos(theta), -jnp.sin(theta)])
        pivots = length * jnp.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
        return jnp.ravel(tip[None] + pivots), jnp.tile(speed, 3)

    def simulated(x):
        gravity, length, theta, rate = x
        system = h.TwoFourBars(gravity=gravity, length=length)
        enforcement = mbd.UdwadiaKalaba(h.SOLVERS[solver])
        state = mbd.State(0.0, *start(theta, rate, length))
        return mbd.simulate(system, enforcement, state, t1=0.1, dt=2e-3).q[-1, 1]

    def exact(x):
        """The same by many small steps in the one coordinate."""
        gravity, length, theta, rate = x
        steps = 2000

        def rates(y):
            return jnp.stack([y[1], 7 / 6 * gravity / length * jnp.sin(y[0])])

        def step(y, _):
            dt = 0.1 / steps
            k1 = rates(y)
            k2 = rates(y + dt / 2 * k1)
            k3 = rates(y + dt / 2 * k2)
            k4 = rates(y + dt * k3)
            return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        y, _ = jax.lax.scan(step, jnp.stack([theta, rate]), length=steps)
        return length * jnp.cos(y[0])

    x = jnp.array([9.81, 1.0, 1.4, 3.0])
    expected = jax.jit(jax.jacfwd(exact))(x)
    gradient = jax.jit(jax.jacrev(simulated))(x)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


@pytest.mark.parametrize("method", h.slow_unless(lambda m: m == "udwadia_kalaba", ROBUST))
def test_at_rest_without_damping(method):
    """A pendulum that hangs still: every derivative is finite and right, none by luck."""
    rest = np.array([0.0, -0.9]), np.array([0.0, 0.0])
    case = h.Case(h.Pendulum(damping=0.0), lambda t: rest)
    method = h.method(method)
    check(case, method, **options_of(method, num_steps=10))


# The dual form needs a stiffness or a damping in each row.
NO_ROWS = [(0.0, 0.0, mbd.Primal())]


@pytest.mark.parametrize(
    "stiffness, damping, form",
    [(k, d, f) for k, d in [(50.0, 0.0), (0.0, 2.0)] for f in (mbd.Dual(), mbd.Primal())] + NO_ROWS,
)
def test_soft_rows(stiffness, damping, form):
    """From nothing on: derivatives by K and D are those of the literal scheme, each step
    (M + h J^T (h K + D) J) v+ = M v* - h J^T K Phi."""
    pendulum, h_ = h.Pendulum(), 0.01
    q0, v0 = jnp.array([0.8, -0.6]), jnp.array([0.5, 0.4])

    def simulated(x):
        enforcement = mbd.ImplicitPenalty(x[0], x[1], form)
        sol = mbd.simulate(pendulum, enforcement, mbd.State(0.0, q0, v0), dt=h_, num_steps=5)
        return sol.q[-1, 0] + sol.v[-1, 1]

    def literal(x):
        K, D = x
        q, v = q0, v0
        M, weight = pendulum.mass_matrix(q), pendulum.force(0.0, q, v, None)
        for _ in range(5):
            J, phi = 2 * q[None], q @ q - pendulum.length**2
            left = M + h_ * (h_ * K + D) * J.T @ J
            v = jnp.linalg.solve(left, M @ v + h_ * weight - h_ * K * phi * J[0])
            q = q + h_ * v
        return q[0] + v[1]

    x = jnp.array([stiffness, damping])
    expected = jax.jacfwd(literal)(x)
    assert np.min(np.abs(expected)) > 1e-5
    for gradient in both_modes(simulated, x):
        np.testing.assert_allclose(gradient, expected, rtol=1e-10)


def test_infinitely_stiff_rows():
    """K = inf is rigid: all other derivatives are those of the impulse that lands on Phi = 0."""
    case = h.CASES["pendulum"]

    def gradient(enforcement):
        def loss(system, q, v):
            state = mbd.State(0.0, q, v)
            options = dict(dt=0.01, num_steps=10, start_tolerance=1.0)
            sol = mbd.simulate(system, enforcement, state, **options)
            return sol.q[-1, 0] + sol.v[-1, 1] + 0.1 * sol.multipliers[-1, 0]

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(case.system, case.state.q, case.state.v)

    stiff = gradient(mbd.ImplicitPenalty(jnp.inf, 0.0))
    rigid = gradient(mbd.VelocityImpulse(stabilisation=mbd.DeadBeat()))
    for a, b in zip(jax.tree.leaves(stiff), jax.tree.leaves(rigid), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


# --- assembly ------------------------------------------------------------------------------------


def check_assembly(fn, tree):
    value, gradients, differences = h.derivatives(fn, tree)
    largest = np.max(np.abs(differences))
    assert np.isfinite(value) and largest > 1e-2
    for gradient in gradients.values():
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8 * largest)


def assembled(tree, **options):
    system, q, v, weights = tree
    state = mbd.assemble(system, q, v, 0.1, weights=weights, **options)
    ends = jnp.concatenate([state.q, state.v])
    return jnp.cos(1.0 + jnp.arange(ends.size, dtype=ends.dtype)) @ ends


def test_assembly_closed_form():
    """q = l q0 / |q0| and v without its radial part: derivatives by l, q0, v0 by hand."""
    q0, v0 = np.array([0.5, -0.9]), np.array([0.7, 0.2])
    norm = np.hypot(*q0)
    radial = q0 / norm
    across = np.eye(2) - np.outer(radial, radial)

    def run(length, q, v):
        state = mbd.assemble(h.Pendulum(length=length), q, v)
        return state.q, state.v

    for jacobian in (jax.jacrev, jax.jacfwd):
        derivative = jax.jit(jacobian(run, argnums=(0, 1, 2)))
        (q_l, q_q, q_v), (v_l, v_q, v_v) = derivative(jnp.array(0.9), q0, v0)
        np.testing.assert_allclose(q_l, radial, rtol=1e-9)
        np.testing.assert_allclose(q_q, 0.9 / norm * across, rtol=0, atol=1e-9)
        np.testing.assert_allclose(q_v, np.zeros((2, 2)), rtol=0, atol=1e-9)
        np.testing.assert_allclose(v_l, np.zeros(2), rtol=0, atol=1e-9)
        np.testing.assert_allclose(v_v, across, rtol=0, atol=1e-9)
        turn = -(np.outer(radial, v0 @ across) + (radial @ v0) * across) / norm
        np.testing.assert_allclose(v_q, turn, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "name, options",
    [
        ("driven_pendulum", dict()),
        ("driven_pendulum", dict(fixed=[0], fixed_velocities=[1])),
        ("redundant_pendulum", dict()),
        pytest.param("skate_in_space", dict(fixed=[3]), marks=pytest.mark.slow),
        pytest.param("slider_crank", dict(fixed=[0, 2]), marks=pytest.mark.slow),
        pytest.param("top", dict(), marks=pytest.mark.slow),
    ],
)
def test_assembly(name, options):
    """By q, v, parameters and weights, from a start off the constraints; redundant rows too."""
    case = h.CASES[name]
    rough = 0.05 * jnp.sin(1.0 + jnp.arange(case.state.q.size, dtype=float))
    q, v = case.state.q + rough, case.state.v + 0.3
    weights = 1.0 + jnp.arange(v.size, dtype=float) / 2
    check_assembly(lambda tree: assembled(tree, **options), (case.system, q, v, weights))


@pytest.mark.slow
def test_simulation_from_an_assembled_start():
    """The whole chain that an identification differentiates."""
    case = h.CASES["driven_pendulum"]

    def loss(tree):
        system, q, v = tree
        state = mbd.assemble(system, q, v)
        sol = mbd.simulate(
            system, mbd.UdwadiaKalaba(), state, t1=0.1, dt=0.01, scheme=EULER, start_tolerance=1e-8
        )
        return sol.q[-1, 0] + sol.v[-1, 1]

    check_assembly(loss, (case.system, case.state.q + 0.1, case.state.v))


# --- ways to differentiate -----------------------------------------------------------------------


@pytest.mark.parametrize("steps", [30, pytest.param(1031, marks=pytest.mark.slow)])
def test_checkpoints_change_nothing(steps):
    """Recomputed, stored and forward derivatives are the same numbers to rounding."""
    case = h.CASES["driven_pendulum"]

    def end(system, adjoint):
        options = dict(dt=0.3 / steps, num_steps=steps, scheme=EULER, adjoint=adjoint)
        sol = mbd.simulate(system, mbd.UdwadiaKalaba(), case.state, **options)
        return sol.q[-1, 0] + sol.v[-1, 1]

    def gradient(jacobian, adjoint):
        compiled = jax.jit(jacobian(lambda system: end(system, adjoint)))
        return ravel_pytree(compiled(case.system))[0]

    checkpointed = gradient(jax.jacrev, diffrax.RecursiveCheckpointAdjoint())
    stored = gradient(jax.jacrev, diffrax.DirectAdjoint())
    forward = gradient(jax.jacfwd, diffrax.ForwardMode())
    np.testing.assert_allclose(stored, checkpointed, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(forward, checkpointed, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("scheme", [diffrax.Heun(), diffrax.Tsit5()])
def test_schemes_of_diffrax_in_both_modes(scheme):
    """At fixed steps the default adjoint supports forward mode, with any explicit scheme."""
    case = h.CASES["oscillator"]
    check(case, h.Method(mbd.UdwadiaKalaba()), dt=0.02, num_steps=5, scheme=scheme)


IMPLICIT = {
    "crank_nicolson": mbd.CrankNicolson(root_finder=optx.Newton(rtol=1e-13, atol=1e-13)),
    "kvaerno3": diffrax.Kvaerno3(root_finder=optx.Newton(rtol=1e-13, atol=1e-13)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme, method",
    [
        ("crank_nicolson", "udwadia_kalaba"),
        ("crank_nicolson", "impulse_dead_beat"),
        ("kvaerno3", "impulse_dead_beat"),
        ("kvaerno3", "udwadia_kalaba"),
    ],
)
def test_implicit_schemes(scheme, method):
    """The derivative of the converged stages, not of their iteration."""
    options = dict(dt=0.02, num_steps=8, scheme=IMPLICIT[scheme])
    modes = ("reverse",) if scheme == "kvaerno3" else ("reverse", "forward")
    check(h.CASES["guided_mass"], h.method(method), modes=modes, **options)


class ScaledRate(mbd.AbstractSystem):
    """A spring-mass system in other units of position: q' = scale v, with a parameter in qdot."""

    scale: jax.Array = h.parameter(2.0)
    stiffness: jax.Array = h.parameter(3.0)

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.stiffness * q

    def qdot(self, q, v):
        return self.scale * v


@pytest.mark.parametrize("scheme", [mbd.RK4(), IMPLICIT["crank_nicolson"]])
def test_parameter_of_the_kinematic_map(scheme):
    case = h.Case(ScaledRate(), lambda t: (np.array([0.7]), np.array([0.3])))
    check(case, h.Method(mbd.UdwadiaKalaba()), dt=0.02, num_steps=8, scheme=scheme)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_adaptive_steps(mode):
    """Against the closed form, at the tolerance of the controller."""
    x, t = np.array([1.3, 5.0, 0.4, 0.7, -0.4]), 0.5
    adjoint, jacobian = {
        "reverse": (diffrax.RecursiveCheckpointAdjoint(), jax.jacrev),
        "forward": (diffrax.ForwardMode(), jax.jacfwd),
    }[mode]

    def simulated(x):
        along = jnp.array([0.8, 0.6])
        system = h.GuidedMass(x[0], x[1], x[2], angle=jnp.arctan2(0.6, 0.8), gravity=0.0)
        sol = mbd.simulate(
            system,
            mbd.UdwadiaKalaba(),
            mbd.State(0.0, x[3] * along, x[4] * along),
            t1=t,
            dt=0.01,
            scheme=diffrax.Tsit5(),
            stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-9),
            adjoint=adjoint,
            max_steps=256,
        )
        return sol.q[-1, 0]

    expected = complex_step(lambda x: 0.8 * h.oscillation(*x, t)[0], x)
    gradient = jax.jit(jacobian(simulated))(jnp.asarray(x))
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def _bent(system, q, v):
    options = dict(dt=0.02, num_steps=4, scheme=EULER, start_tolerance=1.0)
    sol = mbd.simulate(system, mbd.UdwadiaKalaba(), mbd.State(0.0, q, v), **options)
    return sol.q[-1, 0] + sol.v[-1, 1]


@pytest.mark.parametrize("inner", ["forward", "reverse"])
@pytest.mark.parametrize(
    "case",
    [
        "pendulum",
        pytest.param("slider_crank", marks=pytest.mark.slow),
        pytest.param("redundant_pendulum", marks=pytest.mark.slow),
    ],
)
def test_second_derivatives(case, inner):
    """Of a directional derivative in either mode: both modes, and differences."""
    case = h.CASES[case]
    tree = (case.system, case.state.q, case.state.v)

    def slope(tree):
        flat, unravel = ravel_pytree(tree)
        direction = jnp.cos(jnp.arange(flat.size, dtype=flat.dtype))
        if inner == "reverse":
            return jax.grad(lambda x: _bent(*unravel(x)))(flat) @ direction
        return jax.jvp(lambda x: _bent(*unravel(x)), (flat,), (direction,))[1]

    value, gradients, differences = h.derivatives(slope, tree)
    largest = np.max(np.abs(differences))
    assert np.isfinite(value) and largest > 1e-2
    for gradient in gradients.values():
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8 * largest)


def test_batch_of_gradients():
    """vmap of grad is the loop over grads."""
    lengths = jnp.array([0.7, 0.9, 1.2])

    def loss(length):
        state = mbd.State(0.0, length * jnp.array([1.0, 0.0]), jnp.zeros(2))
        system = h.Pendulum(length=length)
        sol = mbd.simulate(system, mbd.UdwadiaKalaba(), state, dt=0.01, num_steps=20, scheme=EULER)
        return sol.q[-1, 1]

    gradient = jax.jit(jax.grad(loss))
    together = jax.jit(jax.vmap(jax.grad(loss)))(lengths)
    np.testing.assert_allclose(together, [gradient(x) for x in lengths], rtol=1e-12)
