"""Bad input of `assemble`: wrong shapes, and constraints that contradict each other or are out of
reach, with the nearest point known."""

import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import check_refused, refusals
from short_runs import PENDULUM, START, Wrong

import jaxmbd as mbd
from jaxmbd._results import code


@refusals(
    ("no v", "Give `v`.*`qdot`", lambda: mbd.assemble(Wrong({}), START.q)),
    ("weights", r"weights.*\(2,\).*\(3,\)",
     lambda: mbd.assemble(PENDULUM, START.q, weights=np.ones(3))),
    ("fixed", "fixed.*below 2", lambda: mbd.assemble(PENDULUM, START.q, fixed=[2])),
    ("fixed v", "fixed_velocities.*shape",
     lambda: mbd.assemble(PENDULUM, START.q, fixed_velocities=[True])),
    ("NaN in system", "`system.length` is NaN",
     lambda: mbd.assemble(h.Pendulum(length=np.nan), START.q)),
    ("NaN in q", "`q` of assemble must be finite.*nan",
     lambda: mbd.assemble(PENDULUM, np.array([np.nan, 0.0]))),
    ("M", r"mass_matrix.*\(2, 2\)",
     lambda: mbd.assemble(Wrong({"mass_matrix": lambda q: jnp.eye(3)}), START.q, START.v)),
)  # fmt: skip
def test_refused(words, call):
    check_refused(call, words)


def failed(state):
    return int(code(state.report.result)) == code(mbd.RESULTS.assembly_failed)


def test_contradiction_at_assembly():
    """x = 0 and x = 1: the nearest point satisfies y = 2 and reports both other rows."""
    rows = lambda q, t: jnp.stack([q[0], q[0] - 1.0, q[1] - 2.0])  # noqa: E731
    system = Wrong({"constraint": rows})
    with pytest.raises(RuntimeError, match="could not be satisfied.*contradict"):
        mbd.assemble(system, START.q, START.v)
    state = mbd.assemble(system, START.q, START.v, throw=False)
    assert failed(state)
    assert state.report.unsatisfied.tolist() == [True, True, False]
    np.testing.assert_allclose(state.q, [0.5, 2.0], rtol=0, atol=1e-9)
    assert int(state.report.rank) == 2


def test_unreachable_at_assembly():
    """Two circles around the origin and around (3, 0), both of radius 0.9, do not meet."""
    circles = lambda q, t: jnp.stack([q @ q - 0.81, (q[0] - 3.0) ** 2 + q[1] ** 2 - 0.81])  # noqa: E731
    state = mbd.assemble(Wrong({"constraint": circles}), START.q, START.v, throw=False)
    assert failed(state)
    assert np.all(np.isfinite(state.q))


def test_contradictory_velocities_at_assembly():
    """A row and its copy that moves: x = 0 and x = t agree at t = 0, their rates do not."""
    system = Wrong({"constraint": lambda q, t: jnp.stack([q[0], q[0] - t])})
    state = mbd.assemble(system, np.zeros(2), np.zeros(2), throw=False)
    assert failed(state)
    np.testing.assert_allclose(np.abs(state.report.velocity), [0.5, 0.5], rtol=0, atol=1e-12)


def test_fixed_coordinates_that_must_move():
    with pytest.raises(RuntimeError, match="could not be satisfied"):
        mbd.assemble(PENDULUM, np.array([0.5, 0.5]), fixed=[0, 1])


def test_nan_at_assembly():
    found = jax.jit(lambda x: mbd.assemble(h.Pendulum(length=x), START.q, throw=False))(np.nan)
    assert failed(found)
