"""Bad input of reports is refused; the error names the argument."""

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from reported import BOX, G, Z

import jaxmbd as mbd


class Falling(mbd.AbstractSystem):
    """A system that is no mechanism."""

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -G])


def turning(**options):
    """A hinged box, and its motion over two steps."""
    body = mbd.Body("b", BOX)
    hinge = mbd.Revolute("h", "ground", body, point=np.zeros(3), axis=Z)
    mechanism = mbd.Mechanism([body], [hinge])
    return mechanism, mbd.simulate(
        mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=0.02, dt=1e-2, **options
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda w, sol: mbd.reports.audit(w, sol),
        lambda w, sol: mbd.reports.mobility(w),
        lambda w, sol: mbd.place_bodies(w, {"h": 1.0}),
        lambda w, sol: mbd.close_joints(w),
        lambda w, sol: mbd.reports.total_energy(w, sol.q[0], sol.v[0]),
        lambda w, sol: mbd.reports.violation(w, sol.q),
        lambda w, sol: mbd.reports.singularity(w, sol.q),
        lambda w, sol: mbd.reports.reactions(w, sol.t, sol.q, sol.multipliers, "h"),
        lambda w, sol: mbd.reports.unique_reactions(w, sol.state(), "h"),
        lambda w, sol: mbd.reports.joint_path(w, "h", sol.t, sol.q),
        lambda w, sol: mbd.reports.joint_rates(w, sol.q, sol.v, "h"),
        lambda w, sol: mbd.reports.limit_violation(w, sol.q, "h"),
        lambda w, sol: mbd.reports.contact_states(w, sol),
        lambda w, sol: mbd.plots.draw(w),
        lambda w, sol: mbd.plots.animate(w, sol),
        lambda w, sol: mbd.plots.coordinates(w, sol),
        lambda w, sol: mbd.plots.violation(w, sol),
    ],
)
def test_reports_ask_for_a_mechanism(call):
    one = jnp.zeros(1)
    sol = mbd.Solution(
        one, jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.zeros((1, 0)), one, one, None, {},
        mbd.RESULTS.successful,
    )  # fmt: skip
    with pytest.raises(ValueError, match="`mechanism` of .* must be a `mbd.Mechanism`, but is"):
        call(Falling(), sol)


def test_what_reports_refuse(tmp_path):
    mechanism, sol = turning(saveat=diffrax.SaveAt(t0=True, steps=1))
    q, v = sol.q[0], sol.v[0]
    for call, message in (
        (
            lambda: mbd.place_bodies(mechanism, {"h": "open"}),
            '`coordinates` of "h" must be numbers',
        ),
        (lambda: mbd.place_bodies(mechanism, {"h": np.nan}), '`coordinates` of "h" must be finite'),
        (
            lambda: mbd.place_bodies(mechanism, ["h"]),
            "`coordinates` of place_bodies must be a mapping, such as a `dict`",
        ),
        (
            lambda: mbd.reports.mobility(mechanism, tolerance=-1.0),
            "`tolerance` of mobility must be pos",
        ),
        (
            lambda: mbd.plots.animate(mechanism, sol, fps=0),
            "`fps` of animate must be a whole number",
        ),
        (
            lambda: mbd.plots.animate(mechanism, sol, speed=0.0),
            "`speed` of animate must be positive",
        ),
        (
            lambda: mbd.plots.animate(mechanism, sol, tmp_path / "no" / "x.gif", progress=False),
            "`path` must lie in a folder that is there",
        ),
        (lambda: mbd.evaluate(mechanism, None, 0.0, q[:3], v), "`q` has 3 entries, but the coo"),
        (lambda: mbd.evaluate(Falling(), None, 0.0, q[:3], v[:2]), r"`qdot\(q, v\)` must have"),
        (lambda: mbd.PeriodicSpline(1.0, 2.0), "`angles` of PeriodicSpline must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    failed = eqx.tree_at(lambda sol: sol.result, sol, mbd.RESULTS.nonfinite_state)
    with pytest.raises(ValueError, match="1 of 1 motions failed"):
        mbd.reports.audit(mechanism, failed)
    other = mbd.Mechanism([mbd.Body("b", BOX)])
    with pytest.raises(ValueError, match="`multipliers` must have 0 entries"):
        mbd.reports.audit(other, sol)
