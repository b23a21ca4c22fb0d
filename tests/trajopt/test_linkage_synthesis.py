"""The example that designs linkages: its derivatives, cognates, and known answers."""

import jax
import jax.numpy as jnp
import linkage_synthesis as synthesis
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxmbd._concrete import to_jax


def test_coupler_curve_by_hand():
    """The loop of a crank-rocker closed by the cosine rule, in complex numbers."""
    design, branch = synthesis.known_design()
    base, a, b, c = np.exp(design.log_lengths)
    coupler_point = jax.jit(synthesis.coupler_point)
    for angle in (0.3, 2.0, 4.5):
        tip = a * np.exp(1j * angle)
        d, toward = abs(base - tip), np.angle(base - tip)
        coupler = toward + np.arccos((b**2 + d**2 - c**2) / (2 * b * d))
        point = tip + complex(*design.point) * np.exp(1j * coupler)
        expected = complex(*design.pivot) + point * np.exp(1j * float(design.tilt))
        found, closes = coupler_point(design, angle, branch)
        assert closes
        np.testing.assert_allclose(complex(*found), expected, atol=1e-12)


@pytest.mark.slow
def test_gradient_goes_through_the_assembly():
    task, (design, branch) = synthesis.known_task(5), synthesis.known_design()
    x, unravel = ravel_pytree(synthesis.Unknowns(design, jnp.array(0.4)))
    fn = lambda x: synthesis.residuals(unravel(x), (task, jnp.array(branch)))  # noqa: E731
    x, pushes = np.asarray(x) + 0.02, 1e-6 * np.eye(x.size)
    J, values = jax.jit(lambda x, many: (jax.jacfwd(fn)(x), jax.vmap(fn)(many)))(
        x, np.concatenate([x + pushes, x - pushes])
    )
    ahead, behind = np.split(np.asarray(values), 2)
    np.testing.assert_allclose(J, (ahead - behind).T / 2e-6, atol=1e-7)


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


@pytest.mark.slow
def test_straighter_than_hoecken():
    """Its proportions are rounded, so that the best of nine parameters must be straighter."""
    line, rms, most = synthesis.straight_task()
    found, branch, _, _ = synthesis.design_for(line, 16, seed=1, progress=False)
    drawn = synthesis.curve(found.design, found.first + line.angles, branch)[0]
    own_rms, own_most = synthesis.deviation(drawn, line.points)
    assert own_rms < rms / 2 and own_most < most
