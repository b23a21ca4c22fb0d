"""Draws the schematic pictures of the joints for the documentation.

    python docs/pictures/joints.py

writes docs/img/joint-*.svg. Body a is grey, body b is blue, freedoms are orange.
"""

import numpy as np
from sketch import (
    FREE,
    TOWARDS,
    A,
    B,
    X,
    Y,
    Z,
    across,
    any_bodies,
    flat,
    hull,
    plate,
    ring,
    save_all,
)


def wheel(p, center, axis, radius, teeth, color, width=0.12, turned=0.0):
    """A toothed disc."""
    phi = np.linspace(0, 2 * np.pi, 8 * teeth, endpoint=False)
    wave = radius + 0.05 * np.clip(2 * np.sin(teeth * phi + turned), -1, 1)
    u, w = across(axis)
    front = np.asarray(center) + wave[:, None] * (
        np.cos(phi)[:, None] * u + np.sin(phi)[:, None] * w
    )
    back = front - width * axis * np.sign(axis @ TOWARDS)
    p.face(flat(back), color)
    p.face(flat(front), color, light=0.35)
    p.circle(center, axis, 0.08, "#ffffff")


def fixed(p):
    p.box([-0.5, 0, 0], [0.5, 0.35, 0.35], A)
    p.box([0.5, 0, 0], [0.5, 0.35, 0.35], B)


def spherical(p):
    p.tube([0, 0, -1.1], [0, 0, -0.3], 0.16, A)
    p.tube([0, 0, -0.42], [0, 0, -0.1], 0.42, A)
    p.ball([0, 0, 0.05], 0.38, B)
    p.tube([0.1, 0, 0.32], [0.5, 0, 1.15], 0.12, B)
    p.turning([0.35, 0, 0.85], [0.4, 0, 0.83], 0.35)


def revolute(p, arrow=True):
    p.axis([0, 0, -1.0], [0, 0, 1.1])
    p.box([-0.75, 0, -0.45], [0.55, 0.12, 0.2], A)
    p.tube([0, 0, -0.7], [0, 0, -0.25], 0.28, A)
    p.box([0.75, 0, 0], [0.55, 0.12, 0.2], B)
    p.tube([0, 0, -0.25], [0, 0, 0.25], 0.28, B)
    p.box([-0.75, 0, 0.45], [0.55, 0.12, 0.2], A)
    p.tube([0, 0, 0.25], [0, 0, 0.7], 0.28, A)
    if arrow:
        p.turning([0, 0, 0.95], Z, 0.4)


def prismatic(p):
    p.box([-0.75, 0, 0], [0.6, 0.16, 0.16], A)
    p.box([0, 0, 0], [0.4, 0.38, 0.34], B)
    p.box([0.9, 0, 0], [0.5, 0.16, 0.16], A)
    p.arrow([-0.5, 0, 0.62], [0.5, 0, 0.62])


def cylindrical(p):
    p.axis([-1.7, 0, 0], [1.8, 0, 0])
    p.tube([-1.35, 0, 0], [1.4, 0, 0], 0.15, A)
    p.tube([-0.4, 0, 0], [0.4, 0, 0], 0.36, B)
    p.tube([0.4, 0, 0], [1.4, 0, 0], 0.15, A)
    p.arrow([-0.5, 0, 0.68], [0.5, 0, 0.68])
    p.turning([1.0, 0, 0], X, 0.4)


def universal(p):
    p.tube([-1.4, 0, 0], [-0.5, 0, 0], 0.13, A)
    for s in (1, -1):
        p.box([-0.3, 0, 0.42 * s], [0.36, 0.12, 0.07], A)
    p.box([-0.62, 0, 0], [0.06, 0.14, 0.48], A)
    p.tube([0, 0, -0.42], [0, 0, 0.42], 0.06, "#dddddd")
    p.tube([0, -0.42, 0], [0, 0.42, 0], 0.06, "#dddddd")
    for s in (1, -1):
        p.box([0.3, 0.42 * s, 0], [0.36, 0.07, 0.12], B)
    p.box([0.62, 0, 0], [0.06, 0.48, 0.14], B)
    p.tube([0.65, 0, 0], [1.4, 0, 0], 0.13, B)
    p.turning([0, 0, 0.62], Z, 0.3)
    p.turning([0, -0.75, 0], Y, 0.3)


def constant_velocity(p):
    bend = np.array([np.cos(0.5), 0, np.sin(0.5)])
    p.tube([-1.5, 0, 0], [-0.3, 0, 0], 0.14, A)
    p.tube([-0.45, 0, 0], [-0.05, 0, 0], 0.45, A)
    p.ball([0, 0, 0], 0.34, B)
    p.tube(0.25 * bend, 1.5 * bend, 0.14, B)
    p.turning([-1.05, 0, 0], X, 0.36)
    p.turning(1.05 * bend, bend, 0.36)
    p.text([-1.0, 0, 0.62], r"$\omega$", FREE)
    p.text(1.0 * bend + [-0.15, 0, 0.62], r"$\omega$", FREE)


def planar(p):
    plate(p)
    p.box([0, 0, 0.2], [0.45, 0.35, 0.2], B)
    p.arrow([0.45, 0, 0.02], [1.0, 0, 0.02], both=False)
    p.arrow([0, -0.35, 0.02], [0, -0.95, 0.02], both=False)
    p.turning([0, 0, 0.62], Z, 0.35)


def point_on_line(p):
    p.tube([-1.3, 0, 0], [1.3, 0, 0], 0.07, A)
    p.tube([0, 0, 0], [0.35, 0, 1.0], 0.08, B)
    p.ball([0, 0, 0], 0.2, B)
    p.arrow([-0.6, 0, -0.4], [0.6, 0, -0.4])
    p.turning([0.25, 0, 0.75], [0.35, 0, 1.0], 0.32)


def point_on_plane(p):
    plate(p)
    p.tube([0, 0, 0.2], [0.35, 0, 1.1], 0.08, B)
    p.ball([0, 0, 0.16], 0.2, B)
    p.arrow([0.3, 0, 0.02], [0.95, 0, 0.02], both=False)
    p.arrow([0, -0.3, 0.02], [0, -0.95, 0.02], both=False)
    p.turning([0.27, 0, 0.9], [0.35, 0, 0.9], 0.32)


def distance(p):
    p.box([-1.2, 0, -0.3], [0.35, 0.3, 0.3], A)
    p.box([1.2, 0, 0.45], [0.35, 0.3, 0.3], B)
    p.tube([-1.0, -0.3, -0.1], [1.0, -0.3, 0.3], 0.05, "#dddddd")
    p.ball([-1.0, -0.3, -0.1], 0.12, A)
    p.ball([1.0, -0.3, 0.3], 0.12, B)
    p.text([0, -0.3, 0.38], "length")


def screw(p):
    p.tube([-1.35, 0, 0], [1.4, 0, 0], 0.2, A)
    s = np.linspace(0, 1, 30)[:, None]
    for x in np.arange(-1.25, 1.3, 0.18):
        half = ring([x, 0, 0], X, 0.2, -2.2, 0.75, 30)
        p.line(half + s * [0.09, 0, 0], width=0.6)
    u, w = across(X)
    corners = [0.45 * (np.cos(k) * u + np.sin(k) * w) for k in np.arange(6) * np.pi / 3]
    ends = [flat(np.array(corners) + [x, 0, 0]) for x in (-0.3, 0.3)]
    p.face(hull(np.concatenate(ends)), B)
    p.face(ends[int(TOWARDS[0] > 0)], B, light=0.45)
    p.tube([0.3, 0, 0], [1.4, 0, 0], 0.2, A)
    for x in np.arange(0.42, 1.3, 0.18):
        p.line(ring([x, 0, 0], X, 0.2, -2.2, 0.75, 30) + s * [0.09, 0, 0], width=0.6)
    p.arrow([-0.5, 0, 0.72], [0.5, 0, 0.72])
    p.turning([-0.9, 0, 0], X, 0.42)


def gear(p):
    wheel(p, [-0.5, 0, 0], -Y, 0.45, 12, A)
    wheel(p, [0.75, 0, 0], -Y, 0.75, 20, B, turned=np.pi)
    p.turning([-0.5, -0.05, 0], Y, 0.28, -0.6, 2.2)
    p.turning([0.75, -0.05, 0], Y, 0.5, -0.6, 2.2)
    p.text([-0.5, 0, 0.7], r"$N_1$")
    p.text([0.75, 0, 1.0], r"$N_2$")


def coupler(p):
    small, large = np.array([-0.9, 0, 0]), np.array([0.8, 0, 0])
    p.tube(small + [0, 0.1, 0], small, 0.3, A)
    p.tube(large + [0, 0.1, 0], large, 0.65, B)
    lean = np.arcsin((0.65 - 0.3) / 1.7)
    for s in (1, -1):
        n = np.array([-np.sin(lean), 0, s * np.cos(lean)])
        p.line([small + 0.3 * n, large + 0.65 * n], "#222222", 1.6)
    p.turning(small, Y, 0.18, -0.6, 2.2)
    p.turning(large, Y, 0.45, -0.6, 2.2)


def rack_and_pinion(p):
    wheel(p, [0, 0, 0.62], -Y, 0.5, 13, B)
    x = np.linspace(-1.2, 1.2, 121)
    teeth = 0.06 + 0.05 * np.clip(2 * np.sin(26 * x), -1, 1)
    profile = [[u, -0.1, w] for u, w in zip(x, teeth, strict=True)]
    p.face(flat([*profile, [1.2, -0.1, -0.2], [-1.2, -0.1, -0.2]]), A, light=0.2)
    p.turning([0, -0.05, 0.62], Y, 0.3, -0.6, 2.2)
    p.arrow([-0.5, -0.1, -0.38], [0.5, -0.1, -0.38])


def rolling_sphere(p):
    plate(p)
    p.ball([0, 0, 0.5], 0.5, B)
    p.turning([0, 0, 0.5], Y, 0.3, -0.8, 2.0)
    p.arrow([0.55, 0, 0.02], [1.05, 0, 0.02], both=False)


def rolling_disc(p):
    plate(p)
    e = np.array([0.15, -0.85, 0.45])
    e /= np.linalg.norm(e)
    s = np.hypot(e[0], e[1])
    arm = 0.6 * np.array([e[0] * e[2] / s, e[1] * e[2] / s, -s])
    p.tube(-arm - 0.04 * e, -arm + 0.04 * e, 0.6, B)
    p.axis(-arm, -arm + 0.8 * e)
    p.turning(-arm + 0.5 * e, e, 0.25)
    p.arrow([0.3, 0, 0.02], [0.95, 0, 0.02], both=False)


def point_on_curve(p):
    s = np.linspace(-1, 1, 60)
    curve = np.stack([1.3 * s, 0.5 * np.sin(3 * s), 0.5 * s**3 + 0.3 * np.cos(3 * s)], axis=1)
    p.line(curve, "#888c92", 3.0)
    p.tube(curve[36], curve[36] + [0.3, 0, 0.8], 0.07, B)
    p.ball(curve[36], 0.15, B)
    p.path_arrow(flat(curve[14:31] - [0, 0, 0.22]), True)


def cam(p):
    phi = np.linspace(0, 2 * np.pi, 90)
    rho = 0.6 + 0.28 * np.cos(phi - 2.2) + 0.05 * np.cos(3 * phi)
    front = np.stack([rho * np.cos(phi), 0 * phi, rho * np.sin(phi)], axis=1)
    p.face(flat(front + 0.12 * Y), A)
    p.face(flat(front), A, light=0.35)
    p.circle([0, 0, 0], Y, 0.08, "#ffffff")
    top = 0.6 + 0.28 * np.cos(np.pi / 2 - 2.2)
    p.tube([0, 0, top + 0.1], [0, 0, top + 0.9], 0.08, B)
    p.ball([0, 0, top + 0.05], 0.09, B)
    p.arrow([0.35, 0, top + 0.15], [0.35, 0, top + 0.8])
    p.turning([0, -0.02, 0], Y, 0.25, -0.6, 2.2)


def prescribed_motion(p):
    revolute(p, arrow=False)
    p.path_arrow(flat(ring([0, 0, 0.95], Z, 0.4, -2.4, 0.6)), False)
    p.text([0.75, 0, 1.15], r"$f(t)$", FREE)


def prescribed_pose(p):
    s = np.linspace(0, 1, 40)
    path = np.stack([2.2 * s - 1.1, 0 * s, 0.7 * np.sin(2.6 * s)], axis=1)
    p.line(path, FREE, 1.2, "--")
    for i in (0, 20, 39):
        phi = 0.9 * s[i]
        axes = (
            np.array([np.cos(phi), 0, np.sin(phi)]),
            Y,
            np.array([-np.sin(phi), 0, np.cos(phi)]),
        )
        p.box(path[i], [0.24, 0.18, 0.16], B if i == 39 else "#d6e6f7", axes)
    p.text([0.1, 0, 0.15], r"$f(t)$", FREE)


def constraint(p):
    any_bodies(p, r"$\Phi$")


PICTURES = (
    fixed, spherical, revolute, prismatic, cylindrical, universal, constant_velocity, planar,
    point_on_line, point_on_plane, distance, screw, gear, coupler, rack_and_pinion,
    rolling_sphere, rolling_disc, point_on_curve, cam, prescribed_motion, prescribed_pose,
    constraint,
)  # fmt: skip


if __name__ == "__main__":
    save_all(PICTURES, "joint")
