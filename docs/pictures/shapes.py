"""Draws the schematic pictures of the shapes for the documentation.

    python docs/pictures/shapes.py

writes docs/img/shape-*.svg.
"""

import numpy as np
from sketch import TOWARDS, A, B, X, Z, flat, hull, ring, save_all

EDGE = "#5b7fa8"


def size(p, start, end, text, offset):
    p.path_arrow(flat(np.array([start, end], float)), True)
    p.text((np.array(start, float) + end) / 2 + offset, text)


def in_front(loop, normals):
    """The part of a closed line on a surface that can be seen, from its first point to its last."""
    seen = normals @ TOWARDS > 0
    first = int(np.flatnonzero(seen & ~np.roll(seen, 1))[0])
    return np.roll(loop, -first, axis=0)[: int(seen.sum())]


def sphere(p):
    p.ball([0, 0, 0], 0.9, B)
    equator = ring([0, 0, 0], Z, 0.9, count=200)
    p.line(in_front(equator, equator), EDGE, 0.7)
    size(p, [0, 0, 0], 0.9 * np.array([0.6, 0, 0.8]), r"$r$", [-0.15, 0, 0.12])


def half_space(p):
    p.box([0, 0, -0.2], [1.3, 1.1, 0.2], A)
    p.path_arrow(flat(np.array([[0, 0, 0], [0, 0, 0.8]])), False)
    p.text([0.2, 0, 0.75], r"$z$")


def box(p):
    p.box([0, 0, 0], [0.9, 0.5, 0.4], B)
    size(p, [0, -0.5, -0.62], [0.9, -0.5, -0.62], r"$a$", [0, 0, -0.2])
    size(p, [1.1, 0, -0.4], [1.1, -0.5, -0.4], r"$b$", [0.18, 0, 0])
    size(p, [-1.05, -0.5, 0], [-1.05, -0.5, 0.4], r"$c$", [-0.18, 0, 0])


def capsule(p):
    ends = [np.array([s * 0.7, 0, 0]) for s in (-1, 1)]
    outline = [flat(ring(end, TOWARDS, 0.42)) for end in ends]
    p.face(hull(np.concatenate(outline)), B, light=0.1)
    for end in ends:
        around = ring(end, X, 0.42, count=200)
        p.line(in_front(around, around - end), EDGE, 0.7)
    size(p, ends[0] + [0, 0, -0.65], ends[1] + [0, 0, -0.65], r"$2\,l$", [0, 0, -0.2])
    size(p, ends[1], ends[1] + [0, 0, 0.42], r"$r$", [0.15, 0, 0])


def cylinder(p):
    p.tube([0, 0, -0.7], [0, 0, 0.7], 0.55, B)
    size(p, [0, 0, 0.7], [0.55, 0, 0.7], r"$r$", [0, 0, 0.15])
    size(p, [0.9, 0, -0.7], [0.9, 0, 0.7], r"$2\,l$", [0.25, 0, 0])


def disc(p):
    p.circle([0, 0, 0], Z, 1.0, B, light=0.25)
    p.axis([0, 0, 0], [0, 0, 0.8])
    size(p, [0, 0, 0], [1.0, 0, 0], r"$r$", [0, 0, 0.15])


def ellipsoid(p):
    # The outline of an ellipsoid: its support points where the normal is across the view.
    semiaxes = np.array([1.1, 0.7, 0.55])
    phi = np.linspace(0, 2 * np.pi, 200)
    u = np.cross(TOWARDS, Z)
    u /= np.linalg.norm(u)
    w = np.cross(TOWARDS, u)
    n = np.cos(phi)[:, None] * u + np.sin(phi)[:, None] * w
    points = semiaxes**2 * n / np.linalg.norm(semiaxes * n, axis=1)[:, None]
    p.face(hull(flat(points)), B, light=0.15)
    around = np.stack([1.1 * np.cos(phi), 0.7 * np.sin(phi), 0 * phi], axis=1)
    p.line(in_front(around, around / semiaxes**2), EDGE, 0.7)


def convex_points(p):
    rng = np.random.default_rng(4)
    points = rng.normal(size=(18, 3))
    points /= np.linalg.norm(points, axis=1)[:, None]
    points *= [1.0, 0.8, 0.75]
    p.face(hull(flat(points)), B, light=0.2)
    from scipy.spatial import ConvexHull

    for facet in ConvexHull(points).simplices:
        a, b, c = points[facet]
        normal = np.cross(b - a, c - a)
        normal *= np.sign(normal @ (a + b + c))
        if normal @ TOWARDS > 0:
            light = 0.15 + 0.5 * max(0.0, normal[2] / np.linalg.norm(normal))
            p.face(flat(points[facet]), B, edge=EDGE, light=light)
    for point in points:
        if point @ TOWARDS > 0.05:
            p.ball(point, 0.05, "#ffffff")


def height_field(p):
    x = np.linspace(-1.2, 1.2, 13)
    height = lambda x, y: 0.28 * np.sin(2.1 * x + 0.4) * np.cos(1.7 * y) + 0.1 * y  # noqa: E731
    cells = [(i, j) for i in range(12) for j in range(12)]
    cells.sort(key=lambda ij: TOWARDS[0] * x[ij[0]] + TOWARDS[1] * x[ij[1]])
    for i, j in cells:
        corners = np.array(
            [[x[a], x[b], height(x[a], x[b])] for a, b in
             ((i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1))]
        )  # fmt: skip
        slope = np.cross(corners[1] - corners[0], corners[3] - corners[0])
        p.face(flat(corners), A, edge="#8a8f96", light=0.7 * max(0.0, slope[0] * 8 + 0.5))


PICTURES = (
    half_space, sphere, box, capsule, cylinder, disc, ellipsoid, convex_points, height_field,
)  # fmt: skip

if __name__ == "__main__":
    save_all(PICTURES, "shape")
