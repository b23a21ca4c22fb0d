"""A mechanism with a closed loop against the same system written by hand."""

import numpy as np
import pytest
import slider_crank_from_bodies

import jaxmbd as mbd


@pytest.mark.slow
def test_slider_crank_from_bodies():
    """Through its singular pose, with the system written by hand."""
    t1 = 1.25
    mechanism = slider_crank_from_bodies.slider_crank_from_bodies()
    sol = slider_crank_from_bodies.run(mechanism, t1)
    by_hand = slider_crank_from_bodies.run_by_hand(t1)
    crank = mbd.reports.joint_path(mechanism, "bearing", sol.t, sol.q, sol.v)[:, 0]
    assert crank[-1] > np.pi / 2
    np.testing.assert_allclose(crank, by_hand.q[:, 2], atol=1e-7)
    np.testing.assert_allclose(
        mechanism.twist(sol.v, "rod").angular[:, 2], by_hand.v[:, 3], atol=1e-6
    )
    assert np.max(sol.phi_norm) < 1e-10
