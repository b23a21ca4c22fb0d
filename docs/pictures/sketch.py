"""Schematic pictures in three dimensions, as SVG: solids, lines and arrows, drawn one over the
other in the order of the calls."""

import pathlib

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, Polygon

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "img"
A, B, FREE, AXIS = "#b8bcc2", "#7fb0e6", "#e07b00", "#555555"
X, Y, Z = np.eye(3)

# The view: from the right front, a little from above.
AZIMUTH, ELEVATION = np.radians(-62), np.radians(24)
TOWARDS = np.array(
    [
        np.cos(ELEVATION) * np.cos(AZIMUTH),
        np.cos(ELEVATION) * np.sin(AZIMUTH),
        np.sin(ELEVATION),
    ]
)
RIGHT = np.array([-np.sin(AZIMUTH), np.cos(AZIMUTH), 0.0])
UP = np.cross(TOWARDS, RIGHT)


def flat(points):
    """Points on the picture."""
    return np.asarray(points) @ np.stack([RIGHT, UP], axis=1)


def across(axis):
    """Two unit vectors across an axis."""
    axis = np.asarray(axis) / np.linalg.norm(axis)
    other = X if abs(axis[0]) < 0.7 else Y
    u = np.cross(axis, other)
    u /= np.linalg.norm(u)
    return u, np.cross(axis, u)


def hull(points):
    """Convex hull of points of the picture, in order around it."""
    points = sorted(map(tuple, np.round(points, 9)))

    def chain(points):
        kept = []
        for p in points:
            while len(kept) > 1 and (
                (kept[-1][0] - kept[-2][0]) * (p[1] - kept[-2][1])
                - (kept[-1][1] - kept[-2][1]) * (p[0] - kept[-2][0])
                <= 0
            ):
                kept.pop()
            kept.append(p)
        return kept[:-1]

    return np.array(chain(points) + chain(points[::-1]))


class Picture:
    def __init__(self):
        self.figure, self.axes = plt.subplots(figsize=(2.4, 2.0))
        self.axes.set_aspect("equal")
        self.axes.axis("off")
        self.order = 0

    def face(self, points, color, edge="#333333", light=0.0):
        color = np.array(matplotlib.colors.to_rgb(color))
        color = color + light * (1 - color)
        self.order += 1
        patch = Polygon(points, closed=True, fc=color, ec=edge, lw=0.7, zorder=self.order)
        self.axes.add_patch(patch)

    def line(self, points, color="#333333", width=0.8, style="-"):
        self.order += 1
        p = flat(points)
        self.axes.plot(p[:, 0], p[:, 1], style, color=color, lw=width, zorder=self.order)

    def circle(self, center, axis, radius, color, light=0.0):
        self.face(flat(ring(center, axis, radius)), color, light=light)

    def tube(self, start, end, radius, color):
        start, end = np.asarray(start, float), np.asarray(end, float)
        axis = end - start
        if axis @ TOWARDS < 0:
            start, end = end, start
        ends = [flat(ring(p, axis, radius)) for p in (start, end)]
        self.face(hull(np.concatenate(ends)), color)
        self.face(ends[1], color, light=0.45)

    def box(self, center, half, color, axes=(X, Y, Z)):
        center = np.asarray(center, float)
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            normal = axes[i] * np.sign(axes[i] @ TOWARDS)
            corners = [
                center + half[i] * normal + s * half[j] * axes[j] + r * half[k] * axes[k]
                for s, r in ((-1, -1), (1, -1), (1, 1), (-1, 1))
            ]
            self.face(flat(corners), color, light=(0.2, 0.0, 0.5)[i])

    def ball(self, center, radius, color):
        self.circle(center, TOWARDS, radius, color, light=0.15)

    def axis(self, start, end):
        self.line([start, end], AXIS, 0.7, "-.")

    def arrow(self, start, end, both=True):
        self.path_arrow(flat([start, end]), both)

    def turning(self, center, axis, radius, start=-2.4, end=0.6):
        self.path_arrow(flat(ring(center, axis, radius, start, end)), True)

    def text(self, point, text, color="#333333"):
        x, y = flat(point)
        self.axes.text(x, y, text, color=color, fontsize=9, ha="center", va="center", zorder=999)

    def path_arrow(self, path, both=True):
        self.order += 1
        style = {"arrowstyle": "-|>", "mutation_scale": 7, "color": FREE, "lw": 1.2}
        self.axes.plot(path[:, 0], path[:, 1], color=FREE, lw=1.2, zorder=self.order)
        for tip, before in ((path[-1], path[-2]), (path[0], path[1])):
            back = tip + 1e-3 * (before - tip) / np.linalg.norm(before - tip)
            self.axes.add_patch(
                FancyArrowPatch(back, tip, shrinkA=0, shrinkB=0, zorder=self.order, **style)
            )
            if not both:
                return

    def save(self, name):
        self.axes.autoscale_view()
        self.axes.margins(0.04)
        matplotlib.rcParams["svg.hashsalt"] = name.partition("-")[2]
        path = FOLDER / f"{name}.svg"
        self.figure.savefig(path, bbox_inches="tight", pad_inches=0.02, metadata={"Date": None})
        plt.close(self.figure)


def ring(center, axis, radius, start=0.0, end=2 * np.pi, count=40):
    u, w = across(axis)
    phi = np.linspace(start, end, count)[:, None]
    radius = np.broadcast_to(np.asarray(radius, float), (count,))[:, None]
    return np.asarray(center) + radius * (np.cos(phi) * u + np.sin(phi) * w)


def plate(p, height=0.0, size=1.1):
    p.box([0, 0, height - 0.06], [size, size, 0.06], A)


def any_bodies(p, text):
    """What acts between any number of bodies."""
    places = ([-0.9, 0, -0.4], [0.9, 0, -0.3], [0.05, 0, 0.9])
    for place in places:
        p.line([place, [0, 0, 0.1]], FREE, 1.2)
    for place, color in zip(places, (A, B, "#d6e6f7"), strict=True):
        p.box(place, [0.28, 0.22, 0.2], color)
    p.ball([0, 0, 0.1], 0.24, "#ffffff")
    p.text([0, 0, 0.1], text, FREE)


def save_all(pictures, prefix):
    """Draw each function of `pictures` into docs/img/PREFIX-NAME.svg."""
    FOLDER.mkdir(exist_ok=True)
    for draw in pictures:
        picture = Picture()
        draw(picture)
        picture.save(f"{prefix}-{draw.__name__.replace('_', '-')}")
