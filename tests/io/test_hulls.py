"""Convex hulls of meshes with few corners, and what is said of the rest."""

import numpy as np
import pytest
from inline_models import spec_of
from refusals import check_refused
from scipy.optimize import nnls

import jaxmbd as mbd
from jaxmbd.io.shapes import few_corners

pytestmark = pytest.mark.filterwarnings("ignore:.*has no counterpart")


def distance(point, corners):
    """Of a point from a convex hull, by least squares with weights that are not negative."""
    weight = 1e4
    A = np.vstack([corners.T, weight * np.ones(len(corners))])
    w, _ = nnls(A, np.append(point, weight))
    return np.linalg.norm(corners.T @ w - point)


def test_what_is_missing_is_the_largest_distance():
    """Of an ellipsoid of 400 corners, by a slow computation for each of them."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(400, 3))
    points = points / np.linalg.norm(points, axis=1, keepdims=True) * [0.3, 0.2, 0.1]
    corners, total, missing = few_corners(points, 32)
    assert total == 400 and len(corners) == 32
    assert {tuple(x) for x in corners} <= {tuple(x) for x in points}
    truth = max(distance(point, corners) for point in points)
    np.testing.assert_allclose(missing, truth, rtol=1e-6)
    # Corners that are only as far apart as possible miss 0.049.
    assert missing < 0.025


def test_small_hulls_and_flat_ones_are_whole():
    box = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1.0)])
    corners, total, missing = few_corners(np.vstack([box, [[0.5, 0.5, 0.5]]]), 32)
    assert total == 8 and missing == 0 and {tuple(x) for x in corners} == {tuple(x) for x in box}
    flat = box[box[:, 2] == 0]
    corners, _, missing = few_corners(flat, 4)
    assert missing == 0 and {tuple(x) for x in corners} == {tuple(x) for x in flat}


def ball(count):
    points = np.random.default_rng(2).normal(size=(count, 3))
    points *= 0.1 / np.linalg.norm(points, axis=1, keepdims=True)
    vertices = " ".join(f"{x:.17g}" for x in points.ravel())
    return spec_of(f"""<mujoco>
      <asset><mesh name="m" vertex="{vertices}"/></asset>
      <worldbody>
        <geom name="floor" type="plane" size="1 1 1"/>
        <body><freejoint/><geom name="ball" type="mesh" mesh="m"/></body>
      </worldbody></mujoco>""")


def test_a_file_tells_how_much_of_a_hull_is_missing():
    told = mbd.load(ball(60)).dropped
    [line] = [line for line in told if line.startswith('geom "ball"')]
    assert "32 of the 60 corners of its convex hull count for contacts, up to 0.0" in line
    loaded = mbd.load(ball(60), corners=60)
    assert loaded.dropped == () and loaded.mechanism.contacts[0].count == 60
    check_refused(lambda: mbd.load(ball(60), corners=3), "`corners`.*at least 4")
