"""Every method, with every solver, tends to the exact motion at its stated order."""

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, METHODS, SOFT, SOLVERS, VARIANTS, slow_unless

import jaxmbd as mbd

# Two or three step sizes in one compilation: equally many steps, of h, 2 h and 4 h, compared where
# they meet.
STEPS, H = 128, 2.5e-3
ORDER_OF_MIDPOINT, ORDER_OF_SPLITTING = 2, 1


def trajectories(method, case, sizes, scheme=None):
    """q and v at every step, shape (sizes, steps, n), with step sizes H, 2 H, ..."""

    given = case.system, method.enforcement, method.projection, case.control, case.state
    path, successful = run(given, scheme, jnp.asarray(H * 2.0 ** np.arange(sizes)))
    assert np.all(successful)
    return np.asarray(path)


@eqx.filter_jit
def run(given, scheme, steps):
    """Of all methods and systems that differ in numbers alone in one program."""
    system, enforcement, projection, control, state = given

    def one(dt):
        sol = mbd.simulate(
            system,
            enforcement,
            state,
            dt=dt,
            num_steps=STEPS,
            scheme=scheme,
            control=control,
            projection=projection,
            saveat=diffrax.SaveAt(steps=True),
        )
        return jnp.concatenate([sol.q, sol.v], axis=1), sol.result == mbd.RESULTS.successful

    return jax.vmap(one)(steps)


def meeting(path):
    """The states at the same time, coarsest step first."""
    sizes = path.shape[0]
    return [path[i, STEPS // 2**i - 1] for i in reversed(range(sizes))]


def observed_order(method, case, scheme):
    coarse, fine = meeting(trajectories(method, case, 2, scheme))
    exact = np.concatenate(case.motion(STEPS // 2 * 2 * H))
    return np.log2(np.linalg.norm(coarse - exact) / np.linalg.norm(fine - exact))


def check_order(name, solver, case_name):
    method, case = helpers.method(name, solver), CASES[case_name]
    scheme = method.scheme(helpers.midpoint())
    stated = ORDER_OF_SPLITTING if method.split else ORDER_OF_MIDPOINT
    assert abs(observed_order(method, case, scheme) - stated) < 0.2


RIGID = [name for name in METHODS if name not in SOFT]
TYPICAL = ["driven_pendulum", "skate_in_space"]


# All with the rows that depend on time; with redundant ones they are compared below. Velocity rows
# are met by methods that differ in more than an option.
OPTIONS = [
    "uncorrected", "multipliers", "impulse", "projected_euclidean", "projected_impulse",
    "augmented_stabilised",
]  # fmt: skip


@pytest.mark.parametrize(
    "case, name",
    slow_unless(
        lambda case, name: case == "driven_pendulum" and name not in VARIANTS,
        [
            (case, name)
            for case in TYPICAL
            for name in RIGID
            if case == "driven_pendulum" or name not in OPTIONS
        ],
    ),
)
def test_order_of_each_method(name, case):
    check_order(name, "automatic", case)


# Solvers are given matrices: they do not know what moves. With accelerations `test_solvers_agree`
# compares them; here each has one other use, and each kind of use a solver with dependent rows and
# one without.
USES = [
    ("impulse_relaxed", "pseudoinverse"),
    ("impulse_relaxed", "cholesky"),
    ("projected_euclidean", "proximal"),
    ("projected_euclidean", "kkt"),
]
# Closed loops are met by what solves for more than accelerations or impulses, turning bodies by one
# method of each kind.
IN_LOOPS = [
    "augmented_lagrangian", "projected", "null_space", "partitioned", "generalised_alpha",
    "variational",
]  # fmt: skip
IN_SPACE = [
    "udwadia_kalaba", "impulse_relaxed", "projected_euclidean", "augmented_stabilised",
    "null_space",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, solver, case",
    [(*use, "slider_crank") for use in USES]
    + [(name, "automatic", "slider_crank") for name in IN_LOOPS]
    + [(name, "automatic", "top") for name in IN_SPACE],
)
def test_order_with_each_solver_and_in_space(name, solver, case):
    check_order(name, solver, case)


# By default one of each kind: no rows, a control, redundant rows, rows in time and of velocities.
KINDS = ["oscillator", "controlled_mass", "redundant_pendulum", "driven_pendulum", "skate_in_space"]


@pytest.mark.parametrize("case", slow_unless(lambda case: case in KINDS, CASES))
def test_fourth_order(case):
    # Held through the stages, the drift correction leaves the order of RK4 as it is; fed back in
    # each stage it would leave 3.
    order = observed_order(helpers.method("udwadia_kalaba"), CASES[case], mbd.RK4())
    assert abs(order - 4) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("solver", [s for s in SOLVERS if s != "automatic"])
def test_solvers_agree(solver):
    for name in ("redundant_pendulum", "slider_crank"):
        if not helpers.allowed(name, solver):
            continue
        case = CASES[name]
        path, reference = (
            trajectories(helpers.method("udwadia_kalaba", s), case, 1, helpers.midpoint())
            for s in (solver, "automatic")
        )
        np.testing.assert_allclose(path, reference, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "name", slow_unless(lambda name: name not in [*VARIANTS, "projected"], METHODS)
)
def test_redundant_copies_change_nothing(name):
    # In a penalty every copy is one more spring, so copies scaled by s are worth a stiffness of
    # the sum of s^2; the others do not notice.
    case = CASES["redundant_pendulum"]
    method = helpers.method(name)
    if name in SOFT:
        share = float(np.sum(np.square(case.system.scales)))
        stiff = jax.tree.map(lambda x: x * share, method.enforcement)
    else:
        stiff, share = method.enforcement, 1.0

    def final(system, enforcement):
        sol = mbd.simulate(
            system,
            enforcement,
            case.state,
            dt=H,
            num_steps=40,
            scheme=method.scheme(helpers.midpoint()),
            projection=method.projection,
        )
        return np.concatenate([sol.q[-1], sol.v[-1]])

    copies = final(case.system, method.enforcement)
    one = final(case.system.pendulum, stiff)
    # The augmented Lagrangian is iterated to a remainder, with more weight on more copies.
    tolerance = 1e-7 if name.startswith("augmented") else 1e-10
    np.testing.assert_allclose(copies, one, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "case", slow_unless(lambda case: case in TYPICAL, [*TYPICAL, "redundant_pendulum"])
)
def test_soft_methods_converge_and_agree(case):
    # A penalty tends to a compliant motion, not to the rigid one, so its order shows in the
    # differences of successive step sizes.
    paths = {}
    for name in ("dual_penalty", "primal_penalty"):
        paths[name] = trajectories(helpers.method(name), CASES[case], 1)
    np.testing.assert_allclose(paths["dual_penalty"], paths["primal_penalty"], rtol=0, atol=1e-9)

    # Gentle enough for the explicit scheme to be in its asymptotic range.
    gains = 30.0, 0.5
    implicit = helpers.Method(mbd.ImplicitPenalty(*gains))
    explicit = helpers.Method(mbd.ExplicitPenalty(*gains))

    def order(coarse, medium, fine):
        return np.log2(np.linalg.norm(coarse - medium) / np.linalg.norm(medium - fine))

    first = meeting(trajectories(implicit, CASES[case], 3))
    second = meeting(trajectories(explicit, CASES[case], 3, helpers.midpoint()))
    assert abs(order(*first) - ORDER_OF_SPLITTING) < 0.2
    assert abs(order(*second) - ORDER_OF_MIDPOINT) < 0.2
    # Both are the same springs and dampers: extrapolation to h = 0 leads from one to the other.
    (_, medium, fine), limit = first, second[-1]
    assert np.linalg.norm(2 * fine - medium - limit) < 0.2 * np.linalg.norm(fine - limit)


@pytest.mark.parametrize("stiffness", [1e4, 1e8, 1e12])
def test_penalty_tends_to_the_rigid_impulse(stiffness):
    # The distance between the compliant and the rigid step falls like 1/K, down to round-off:
    # the dual form stays well conditioned.
    case = CASES["redundant_pendulum"]
    rigid = trajectories(helpers.Method(mbd.ImplicitPenalty(jnp.inf)), case, 1)
    impulse = trajectories(helpers.method("impulse_dead_beat"), case, 1)
    np.testing.assert_allclose(rigid, impulse, rtol=0, atol=1e-11)
    soft = trajectories(helpers.Method(mbd.ImplicitPenalty(stiffness)), case, 1)
    distance = np.max(np.abs(soft - rigid))
    assert distance < 1e3 * 30 / stiffness + 1e-10
    assert distance > 0.1 / stiffness or stiffness > 1e9
