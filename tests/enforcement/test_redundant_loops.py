"""Closed loops whose rows are redundant, for up to 10^5 steps: the motions are those of their few
freedoms, and multipliers stay as large as reactions are."""

import diffrax
import helpers
import jax
import numpy as np
import pytest
import six_r_loop
import two_four_bars

import jaxmbd as mbd

RING = six_r_loop.six_r_loop()


def places(q):
    """Of two hinges of the ring."""
    hinges = [RING.joint_coordinates(q, f"hinge {i}")[:, 0] for i in (1, 2)]
    return np.unwrap(np.stack(hinges))


# Errors of the phase grow with time, since the energy is off by that of the scheme. So positions
# are compared for the first tenth, and the energy to the end.
@pytest.mark.slow
@pytest.mark.parametrize(
    "method, steps, dtype",
    [
        (mbd.UdwadiaKalaba(mbd.solvers.BlockSparse()), 100_000, "float64"),
        (mbd.UdwadiaKalaba(mbd.solvers.Proximal()), 20_000, "float64"),
        (mbd.IndependentCoordinates(), 20_000, "float64"),
        (mbd.UdwadiaKalaba(), 20_000, "float32"),
    ],
    ids=["sparse", "proximal", "independent", "single"],
)
def test_redundant_loops_for_a_long_time(method, steps, dtype):
    mobility, ring = mbd.reports.mobility(RING), helpers.cast(RING, dtype)
    assert (mobility.freedoms, mobility.rows - mobility.rank) == (1, 1)
    saveat = diffrax.SaveAt(t0=True, steps=steps // 500)

    def run():
        options = dict(dt=1e-3, num_steps=steps, saveat=saveat, throw=False)
        return mbd.simulate(ring, method, ring.state(), **options)

    sol = jax.device_get(jax.jit(run, compiler_options=helpers.OPTIMISED)())
    helpers.assert_verdicts(sol.result, mbd.RESULTS.successful)
    assert sol.q.dtype == dtype
    t, q, v = (jax.device_put(np.asarray(x, float)) for x in (sol.t, sol.q, sol.v))
    error, violation, off = (1e-7, 1e-11, 1e-6) if dtype == "float64" else (1e-3, 2e-6, 1e-3)
    assert np.max(np.abs(places(q[:51]) - six_r_loop.exact_motion(np.asarray(t[:51])))) < error
    energy = jax.jit(jax.vmap(lambda state: mbd.reports.total_energy(RING, state)))(
        mbd.State(t, q, v)
    )
    assert np.max(np.abs(energy - energy[0])) < off  # J
    assert np.max(sol.phi_norm) < violation
    assert np.max(np.abs(sol.multipliers)) < 200  # N; of a few bars of 1 kg


@pytest.mark.slow
def test_independent_coordinates_through_singular_poses():
    """In line, the cranks have two more dependent rows, and K is infinite in two directions. How
    much rounding is amplified depends on how near a step comes: the median of nine sizes tells."""
    system, method = two_four_bars.TwoFourBars(), mbd.IndependentCoordinates()

    @jax.jit
    def run(dt):
        every = diffrax.SaveAt(steps=1)
        options = dict(dt=dt, num_steps=4000, saveat=every, throw=False)
        return mbd.simulate(system, method, two_four_bars.exact_start(), **options)

    errors = []
    for dt in 1e-3 * np.linspace(0.992, 1.008, 9):
        sol = run(dt)
        helpers.assert_verdicts(sol.result, mbd.RESULTS.successful)
        assert np.max(sol.phi_norm) < 1e-8
        assert np.sum(np.asarray(sol.phi_norm) > 1e-13) < 20
        angle = two_four_bars.exact_motion(np.asarray(sol.t))
        errors.append(np.max(np.abs(sol.q[:, 0] - np.sin(angle))))
    assert np.median(errors) < 1e-8


def test_loops_that_drift_apart_are_not_said_to_contradict():
    """At steps far too large for it, a method that takes back nothing opens the loop by 0.02 m, and
    then a part of that lies in redundant rows: as much as its square."""
    mechanism = helpers.three_bars(closed=True, gravity=[5.0, -9.81, 0.0])
    method = mbd.VelocityImpulse(mbd.Pseudoinverse(), mbd.methods.NoStabilisation())
    sol = mbd.simulate(mechanism, method, mechanism.state(), dt=0.05, num_steps=100)
    assert np.max(np.asarray(sol.phi_norm)) > 0.02
