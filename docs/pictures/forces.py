"""Draws the schematic pictures of the forces for the documentation.

    python docs/pictures/forces.py

writes docs/img/force-*.svg. Body a is grey, body b is blue, forces and torques are orange.
"""

import numpy as np
from sketch import FREE, A, B, X, Y, Z, any_bodies, flat, plate, ring, save_all

STEEL = "#444444"


def coil(p, start, end, radius=0.16, turns=6):
    """A spring along the line from start to end, with straight ends."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    along = end - start
    along /= np.linalg.norm(along)
    u = np.cross(along, Y)
    u /= np.linalg.norm(u)
    w = np.cross(along, u)
    s = np.linspace(0, 1, 40 * turns)[:, None]
    phi = 2 * np.pi * turns * s
    middle = start + (0.15 + 0.7 * s) * (end - start)
    turning = middle + radius * (np.cos(phi) * u + np.sin(phi) * w)
    p.line(np.concatenate([[start, middle[0]], turning, [middle[-1], end]]), STEEL, 1.2)


def damper(p, start, end, radius=0.14):
    start, end = np.asarray(start, float), np.asarray(end, float)
    at = lambda s: start + s * (end - start)  # noqa: E731
    p.line([start, at(0.3)], STEEL, 1.2)
    p.tube(at(0.28), at(0.62), radius, "#dddddd")
    p.tube(at(0.62), at(0.98), 0.04, "#dddddd")


def two_bodies(p):
    p.box([-1.25, 0, 0], [0.35, 0.35, 0.4], A)
    p.box([1.25, 0, 0], [0.35, 0.35, 0.4], B)


def spring(p):
    two_bodies(p)
    coil(p, [-0.9, -0.1, 0.2], [0.9, -0.1, 0.2])
    damper(p, [-0.9, -0.1, -0.25], [0.9, -0.1, -0.25])
    p.arrow([1.25, 0, 0.65], [0.65, 0, 0.65], both=False)


def hinge(p):
    """A shaft of body a along z, on which body b turns."""
    p.axis([0, 0, -0.9], [0, 0, 1.2])
    p.tube([0, 0, -0.7], [0, 0, -0.3], 0.5, A)
    p.tube([0, 0, -0.3], [0, 0, 0.7], 0.12, A)


def torsion_spring(p):
    hinge(p)
    s = np.linspace(0, 1, 200)[:, None]
    phi = 2 * np.pi * 3.4 * s
    wire = 0.26 * np.concatenate([np.cos(phi), np.sin(phi), 0 * s], axis=1)
    p.line(wire + (-0.25 + 0.5 * s) * Z, STEEL, 1.4)
    p.tube([0, 0, 0.3], [0, 0, 0.55], 0.24, B)
    p.box([0.7, 0, 0.42], [0.5, 0.1, 0.1], B)
    p.turning([0, 0, 0.85], Z, 0.42)


def bushing(p):
    p.tube([-0.5, 0, 0], [0.5, 0, 0], 0.75, A)
    p.tube([0.5, 0, 0], [0.52, 0, 0], 0.6, "#555555")
    p.tube([0.5, 0, 0], [1.3, 0, 0], 0.25, B)
    p.arrow([0.9, 0, 0.45], [1.5, 0, 0.45])
    p.arrow([1.1, 0, 0.3], [1.1, 0, 0.95])
    p.turning([1.2, 0, 0], X, 0.4)


def turning_friction(p):
    hinge(p)
    p.tube([0, 0, -0.3], [0, 0, -0.02], 0.42, B)
    p.tube([0, 0, -0.02], [0, 0, 0.1], 0.2, B)
    p.box([0.8, 0, -0.16], [0.5, 0.1, 0.1], B)
    p.path_arrow(flat(ring([0, 0, 0.85], Z, 0.4, 0.6, -2.4)), False)
    p.text([0, 0, 1.35], r"$-\mu,\, -c\,w$", FREE)


def sliding_friction(p):
    plate(p)
    p.box([0, 0, 0.22], [0.45, 0.35, 0.22], B)
    p.arrow([-0.45, 0, 0.03], [-1.0, 0, 0.03], both=False)
    p.path_arrow(flat(np.array([[0.1, 0, 0.75], [0.8, 0, 0.75]])), False)
    p.text([0.95, 0, 0.75], r"$w$", FREE)


def motor(p):
    p.axis([0, 0, -0.9], [0, 0, 1.3])
    p.tube([0, 0, -0.7], [0, 0, 0.1], 0.48, A)
    p.tube([0, 0, 0.1], [0, 0, 0.4], 0.1, "#dddddd")
    p.tube([0, 0, 0.4], [0, 0, 0.6], 0.22, B)
    p.box([0.7, 0, 0.5], [0.5, 0.12, 0.09], B)
    p.path_arrow(flat(ring([0, 0, 0.95], Z, 0.42, -2.4, 0.6)), False)
    p.text([0.75, 0, 1.15], r"$G\,u$", FREE)


def linear_actuator(p):
    p.box([-1.4, 0, 0], [0.2, 0.3, 0.35], A)
    p.tube([-1.2, 0, 0], [-0.1, 0, 0], 0.24, A)
    p.tube([-0.1, 0, 0], [0.8, 0, 0], 0.1, "#dddddd")
    p.box([1.1, 0, 0], [0.3, 0.3, 0.35], B)
    p.arrow([1.1, 0, 0.6], [1.8, 0, 0.6], both=False)
    p.text([1.4, 0, 0.85], r"$G\,u$", FREE)


def coordinate_spring(p):
    """A tendon over a roller."""
    p.tube([0, 0.14, 0], [0, -0.14, 0], 0.42, A)
    p.line([[-1.3, 0, -0.9], [-0.42, -0.14, 0]], STEEL, 1.4)
    over = ring([0, -0.14, 0], Y, 0.42, 0, 2 * np.pi, 80)
    upper = over[over[:, 2] >= -1e-9]
    p.line(upper[np.argsort(upper[:, 0])], STEEL, 1.4)
    coil(p, [0.42, -0.14, 0], [1.2, 0, -0.9], 0.1, 5)
    p.box([-1.4, 0, -1.05], [0.3, 0.25, 0.15], B)
    p.box([1.3, 0, -1.05], [0.3, 0.25, 0.15], A)
    p.text([0, 0, 0.62], r"$x$", FREE)


def coordinate_actuator(p):
    hinge(p)
    p.tube([0, 0, 0.1], [0, 0, 0.4], 0.24, B)
    p.box([0.75, 0, 0.25], [0.52, 0.1, 0.1], B)
    p.path_arrow(flat(ring([0, 0, 0.85], Z, 0.42, -2.4, 0.6)), False)
    p.text([1.15, 0, 1.15], r"$G\,(g\,u + b)$", FREE)


def point_force(p):
    p.box([0, 0, 0], [0.6, 0.4, 0.35], B)
    p.ball([0.45, -0.4, 0.2], 0.06, "#ffffff")
    p.path_arrow(flat(np.array([[0.45, -0.4, 0.2], [1.35, -0.4, 0.75]])), False)
    p.text([1.5, -0.4, 0.85], r"$F$", FREE)


def torque(p):
    p.box([0, 0, 0], [0.6, 0.4, 0.3], B)
    p.axis([0, 0, 0.3], [0, 0, 1.0])
    p.path_arrow(flat(ring([0, 0, 0.7], Z, 0.42, -2.4, 0.6)), False)
    p.text([0.75, 0, 0.95], r"$T$", FREE)


def drag(p):
    for z in (0.45, 0.1, -0.25):
        s = np.linspace(-1.6, -0.75, 30)
        wave = np.stack([s, 0 * s, z + 0.05 * np.sin(12 * s)], axis=1)
        p.path_arrow(flat(wave), False)
    p.ball([0, 0, 0.1], 0.55, B)
    p.arrow([0.6, 0, 0.1], [1.3, 0, 0.1], both=False)


def force(p):
    """Your own, between any bodies."""
    any_bodies(p, r"$f$")


PICTURES = (
    spring, torsion_spring, bushing, turning_friction, sliding_friction, motor, linear_actuator,
    coordinate_spring, coordinate_actuator, point_force, torque, drag, force,
)  # fmt: skip

if __name__ == "__main__":
    save_all(PICTURES, "force")
