"""Redundant rows of a loop that is not quite closed, as it is within every step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_verdicts, three_bars

import jaxmbd as mbd
from jaxmbd._methods import contradiction_of, point


def four_bar(lean=0.0, gap=0.0):
    """Twenty rows of rank 17; those of the last hinge lean by an angle, and have a gap along it."""
    closed = three_bars(closed=True)
    turn = np.array([np.cos(lean / 2), np.sin(lean / 2), 0.0, 0.0])
    moved = mbd.Pose(np.array([0.0, 0.0, gap]), turn)
    last = eqx.tree_at(
        lambda j: j.frame_b, closed.joints[3], moved.compose(closed.joints[3].frame_b)
    )
    return mbd.Mechanism(closed.bodies, [*closed.joints[:3], last], gravity=[0.0, -9.81, 0.0])


@pytest.fixture(scope="module")
def points():
    """The equations of the loop closed, and open by displacements of some size."""
    mechanism = four_bar()
    q, way = mechanism.state().q, np.random.default_rng(0).standard_normal(18)

    @jax.jit
    def at(s):
        here = point(mechanism, None, jnp.zeros(()), mechanism.retract(q, s * way), jnp.zeros(18))
        return here, here.dense()

    found = {s: at(s) for s in (0.0, 1e-7, 1e-5, 1e-3)}
    return {s: (here, jax.device_get(dense)) for s, (here, dense) in found.items()}


@pytest.mark.parametrize(
    "solver",
    [
        mbd.Pseudoinverse(),
        mbd.solvers.Proximal(),
        mbd.solvers.BlockSparse(),
        pytest.param(mbd.Pseudoinverse(1e-6), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_open_loops_move_as_closed_ones(points, solver):
    """Turned against each other by the violation, redundant rows would ask for accelerations that
    have nothing to do with the motion, by multipliers of any size."""

    @eqx.filter_jit
    def solve(here, by):
        operator = mbd.solvers.ConstraintOperator(by, here.M, here.rows.J, tilt=here.tilt)
        return operator.solve(here.f, here.rows.gamma)

    (_, exact), rest = points[0.0], np.zeros((20, 20))
    K = np.block([[exact.M, -exact.rows.J.T], [exact.rows.J, rest]])
    right = np.concatenate([exact.f, exact.rows.gamma])
    expected = (np.linalg.pinv(K, rcond=1e-9) @ right)[:18]
    for size, (here, _) in points.items():
        a, lam = solve(here, solver)
        np.testing.assert_allclose(a, expected, rtol=0, atol=1e3 * size + 1e-9)
        assert np.max(np.abs(lam)) < 100  # N; three bars of 1 kg


@eqx.filter_jit
def verdict(mechanism, solver):
    here = point(mechanism, None, jnp.zeros(()), mechanism.state().q, jnp.zeros(18))
    return contradiction_of(here, solver, here.operator(solver), here.rows.phi)


@eqx.filter_jit
def moved(mechanism, enforcement):
    return mbd.simulate(
        mechanism, enforcement, mechanism.state(), dt=2e-3, num_steps=50, throw=False
    )


@pytest.mark.parametrize(
    "solver", [mbd.Pseudoinverse(), mbd.solvers.BlockSparse(), mbd.solvers.Proximal()], ids=str
)
def test_loops_that_do_not_close_contradict_themselves(solver):
    """By a tenth of a millimetre or of a milliradian it is a matter of size whether rows are
    dependent. What is off by rounding is not, and a user who gives the size has decided."""
    for lean, gap in ((1e-4, 0.0), (0.0, 1e-4), (1e-6, 0.0)):
        assert_verdicts(verdict(four_bar(lean, gap), solver), mbd.RESULTS.contradicting_rows)
    for lean, gap in ((0.0, 0.0), (1e-9, 0.0), (0.0, 1e-9)):
        assert_verdicts(verdict(four_bar(lean, gap), solver), mbd.RESULTS.successful)
    if isinstance(solver, mbd.Pseudoinverse):
        decided = mbd.Pseudoinverse(1e-3)
        assert_verdicts(verdict(four_bar(1e-4), decided), mbd.RESULTS.successful)


@pytest.mark.parametrize(
    "enforcement",
    [mbd.VelocityImpulse(), *(pytest.param(x, marks=pytest.mark.slow) for x in (
        mbd.UdwadiaKalaba(), mbd.ContactImpulse()
    ))],
    ids=str,
)  # fmt: skip
def test_simulations_of_loops_that_do_not_close_are_told(enforcement):
    """Neither locked nor free."""
    result = moved(four_bar(1e-4), enforcement).result
    assert_verdicts(result, mbd.RESULTS.contradicting_rows)
    sol = moved(four_bar(1e-9), enforcement)
    assert_verdicts(sol.result, mbd.RESULTS.successful)
    assert np.max(np.abs(sol.v)) > 1.0
