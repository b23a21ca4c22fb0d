"""The example that designs linkages: cognates and a known answer."""

import jax
import linkage_synthesis as synthesis
import numpy as np
import pytest

from jaxmbd._compiler import to_jax


def test_cognate_draws_the_same_curve():
    design, _ = synthesis.known_design()
    lengths = np.asarray(jax.jit(synthesis.cognate)(design))
    known, tilt = np.exp(design.log_lengths), float(design.tilt)
    z = complex(*design.point) / known[2]
    # From z of the base on, turned by 1 - z; its rocker's hinge is that of the first linkage.
    pivot = complex(*design.pivot) + z * known[0] * np.exp(1j * tilt)
    arm, turned = -z / (1 - z) * lengths[2], tilt + np.angle(1 - z)
    points = (to_jax(np.array([x.real, x.imag])) for x in (arm, pivot))
    other = synthesis.Design(to_jax(np.log(lengths)), *points, to_jax(turned))
    curve = jax.jit(lambda *x: synthesis.curve(*x)[0])
    expected, *curves = (
        np.asarray(curve(one, np.linspace(0, 6, 7), np.array(side)))
        for one, side in ((design, 1.0), (other, 1.0), (other, -1.0))
    )
    assert min(np.max(np.abs(x - expected)) for x in curves) < 1e-9


@pytest.mark.slow
def test_known_linkage_is_found_again():
    task, (truth, _) = synthesis.known_task(), synthesis.known_design()
    found, _, error, errors = synthesis.design_for(task, 24, progress=False)
    assert error < 1e-9 and np.sum(errors < 1e-6) >= 2
    known = (truth.lengths, synthesis.cognate(truth))
    assert any(np.allclose(found.design.lengths, x, rtol=1e-6) for x in known)
