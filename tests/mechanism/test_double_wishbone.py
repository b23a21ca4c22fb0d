"""A wheel on two wishbones and a tie rod, against circles and spheres."""

import double_wishbone as example
import numpy as np
import pytest

pytestmark = pytest.mark.slow


def test_toe_and_camber():
    """At three heights of the inner end, over the travel; and the derivative of toe by the height,
    against differences of the same construction without the library."""
    heights = example.INNER[2] + np.array([0.0, 0.013, -0.02])
    toe, camber, reached, slope = example.curves(heights)
    assert np.all(reached)
    for i, height in enumerate(heights):
        truth = example.by_circles(height)
        np.testing.assert_allclose((toe[i], camber[i]), truth, atol=1e-10)
        # error of the differences: about h^2 = 1e-10 and 1e-15 / h
        (above, _), (below, _) = (example.by_circles(height + h) for h in (1e-5, -1e-5))
        np.testing.assert_allclose(slope[i], (above - below) / 2e-5, atol=2e-8)
    # The upper wishbone is the shorter one: the top of the wheel leans in as it rises. The tie rod
    # lies behind the axle: with its inner end higher, it pushes the steering arm out.
    assert np.all(np.diff(camber) < 0) and np.ptp(camber) > 0.05
    assert np.all(slope[:, -1] > 1.0) and np.all(slope[:, 0] < -1.0)


def test_signs():
    """The front of a left wheel that points to the right is toe; a top that leans to the left is
    camber."""
    toe, camber = example.alignment(np.array([[np.sin(0.1), np.cos(0.1), 0.0]]))
    np.testing.assert_allclose((toe, camber), [[0.1], [0.0]], atol=1e-15)
    toe, camber = example.alignment(np.array([[0.0, np.cos(0.1), -np.sin(0.1)]]))
    np.testing.assert_allclose((toe, camber), [[0.0], [0.1]], atol=1e-15)
