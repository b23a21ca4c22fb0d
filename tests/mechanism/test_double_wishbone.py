"""A wheel on two wishbones and a tie rod, against circles and spheres; and the kinds of joints that
can hold a tie rod."""

import double_wishbone as example
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.analysis import kinematics

INNER, OUTER = example.INNER, example.OUTER
LENGTH = np.linalg.norm(OUTER - INNER)
ALONG = (OUTER - INNER) / LENGTH
ACROSS = np.cross(ALONG, [0.0, 0.0, 1.0]) / np.hypot(*ALONG[:2])
SOME = example.TRAVEL[::6]


@pytest.mark.slow
def test_toe_and_camber():
    """At three heights of the inner end, over the travel; and the derivative of toe by the height,
    against differences of the same construction without the library."""
    heights = INNER[2] + np.array([0.0, 0.013, -0.02])
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


def held_by(kind):
    """The suspension with a tie rod of a kind."""
    drawn = example.suspension(INNER[2])
    rod, upright = drawn.body("tie rod"), drawn.body("upright")
    bodies, joints, names = drawn.bodies, drawn.joints[:4], ("inner end", "ground", rod)
    if kind == "distance":
        ends = dict(points=(INNER, OUTER), length=LENGTH)
        return mbd.Mechanism(bodies[:3], [*joints, mbd.Distance("rod", "ground", upright, **ends)])
    if kind == "two balls":
        inner = mbd.Spherical(*names, point=INNER)
    else:
        inner = mbd.Universal(*names, point=INNER, axes=(ACROSS, ALONG))
    return mbd.Mechanism(bodies, [*joints, inner, drawn.joints[5]])


def moved(mechanism):
    def height(q):
        return mechanism.pose(q, "upright").position[2]

    heights = example.WHEEL[2] + SOME
    return kinematics(mechanism, mechanism.state(), height, heights, throw=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["distance", "two balls", "arm along the rod"])
def test_other_tie_rods(kind):
    """A `Distance` guides the wheel in the same way. Between two balls the rod turns freely about
    itself, and with an arm of the cross along the rod it does so too, in that pose: both are
    told."""
    mechanism = held_by(kind)
    free = mbd.reports.mobility(mechanism)
    assert free.freedoms == (2 if kind == "two balls" else 1)
    found = moved(mechanism)
    if kind == "two balls":
        assert np.all(found.result == mbd.RESULTS.underdriven)
    elif kind == "distance":
        spindles = mechanism.pose(found.q, "upright").direction(example.SPINDLE)
        truth = example.by_circles(INNER[2], SOME)
        assert np.all(found.ok)
        np.testing.assert_allclose(example.alignment(spindles), truth, atol=1e-10)
    else:
        assert not np.any(found.ok)
        assert (found.result == mbd.RESULTS.dead_point)[len(SOME) // 2]
