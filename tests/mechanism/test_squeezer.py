"""Andrews' squeezing mechanism from bodies, against published and reference solutions.

Schiehlen (1990), Multibody Systems Handbook; Hairer and Wanner, Solving Ordinary Differential
Equations II, section VII.7: seven plane bodies in three loops, driven by a constant torque
against a spring, beta turning two and a half times in 0.03 s."""

import json
from types import SimpleNamespace

import equinox as eqx
import numpy as np
import pytest
from joint_kinds import acceleration

import jaxmbd as mbd


@pytest.fixture(scope="module")
def data(shared):
    return json.loads((shared / "references" / "andrews_squeezer.json").read_text())


def along(angle):
    return np.array([np.cos(angle), np.sin(angle)])


def across(angle):
    return np.array([np.sin(angle), -np.cos(angle)])


def geometry(p, q):
    """Angles and centres of mass of the bodies, and places of the joints and of the spring's ends,
    at q = (beta, Theta, gamma, Phi, delta, Omega, epsilon)."""
    be, th, ga, ph, de, om, ep = q
    k1, k2, k3, k4, k5, k6, k7 = angles = np.array([be, be + th, ga, ph + de, de, om + ep, ep])
    A, B, C = np.array([[p.xa, p.ya], [p.xb, p.yb], [p.xc, p.yc]])
    centers = [
        p.ra * along(k1),
        p.rr * along(k1) - p.da * along(k2),
        B + p.sb * along(k3) + p.sa * across(k3),
        A + p.zt * along(k5) + (p.e - p.ea) * across(k4),
        A + p.ta * along(k5) - p.tb * across(k5),
        A + p.u * across(k7) + (p.zf - p.fa) * along(k6),
        A + p.ua * across(k7) - p.ub * along(k7),
    ]
    places = {
        "O": 0 * A, "F": p.rr * along(k1), "B": B, "A": A, "G": A + p.zt * along(k5),
        "H": A + p.u * across(k7), "E": p.rr * along(k1) - p.d * along(k2), "C": C,
        "spring": B + p.sd * along(k3) + p.sc * across(k3),
    }  # fmt: skip
    return angles, np.array(centers), places


@pytest.fixture(scope="module")
def squeezer(data):
    """Seven bodies in space, ten hinges: 50 rows for 42 velocities, nine of them redundant. The
    frames of the bodies lie in their centres of mass. The motion is plane, so any moments about the
    other axes will do."""
    p = SimpleNamespace(**data["parameters"])
    angles, centers, places = geometry(p, data["initial"]["q"])
    at = {name: np.append(place, 0.0) for name, place in places.items()}
    bodies = [
        mbd.Body(
            f"K{i + 1}",
            mbd.Inertia(data["parameters"][f"m{i + 1}"], [data["parameters"][f"I{i + 1}"]] * 3),
            position=np.append(centers[i], 0.0),
            orientation=[np.cos(angles[i] / 2), 0, 0, np.sin(angles[i] / 2)],
        )
        for i in range(7)
    ]
    ends = "ground", *bodies
    pairs = [("O", 0, 1), ("F", 1, 2), ("B", 0, 3), ("A", 0, 5), ("A", 0, 7), ("G", 5, 4),
             ("H", 7, 6), ("E", 2, 3), ("E", 2, 4), ("E", 2, 6)]  # fmt: skip
    joints = [
        mbd.Revolute(f"{place}{i}{j}", ends[i], ends[j], point=at[place], axis=[0, 0, 1])
        for place, i, j in pairs
    ]
    forces = [
        mbd.Spring("spring", "ground", bodies[2], points=(at["C"], at["spring"]), stiffness=p.c0,
                   rest_length=p.l0),
        mbd.Torque("drive", bodies[0], torque_world=[0, 0, p.mom]),
    ]  # fmt: skip
    return p, mbd.Mechanism(bodies, joints, forces, gravity=[0, 0, 0])


def test_accelerations(data, squeezer):
    """And positions of the joints, at the states of the reference."""
    p, mechanism = squeezer
    assert mechanism.row_count == 50
    phi, o = eqx.filter_jit(mechanism.constraint), np.zeros(7)
    for point in data["reference"]:
        q, v, a = (np.array(point[name]) for name in "qva")
        h = 3e-3 / np.linalg.norm(v) if np.any(v) else 1e-6

        def tables(s, q=q, v=v, a=a):
            angles, centers, _ = geometry(p, q + s * v + s**2 / 2 * a)
            return np.array([*centers.T, angles])

        x = {k: tables(k * h) for k in (-2, -1, 0, 1, 2)}
        rate = (8 * (x[1] - x[-1]) - (x[2] - x[-2])) / (12 * h)
        bend = (16 * (x[1] + x[-1]) - (x[2] + x[-2]) - 30 * x[0]) / (12 * h**2)
        angle = x[0][2]
        here = np.array([*x[0][:2], o, np.cos(angle / 2), o, o, np.sin(angle / 2)]).ravel()
        moving, expected = (np.array([y[0], y[1], o, o, o, y[2]]).ravel() for y in (rate, bend))
        np.testing.assert_allclose(phi(here, 0.0), 0, atol=1e-9)
        found = acceleration(mechanism, state=mbd.State(0.0, here, moving))
        np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())
