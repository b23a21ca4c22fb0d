"""Generalised forces in joint coordinates against the derivatives of energies and the power."""

import numpy as np
import pytest
from joint_kinds import product, slide, turn, turned
from reported import BOX, G, X, Y, Z, four_bar

import jaxmbd as mbd
from jaxmbd._results import code
from jaxmbd.reports import generalised_forces


def slope(fn, x, h=1e-3):
    """Derivative by differences of fourth order."""
    return (8 * (fn(x + h) - fn(x - h)) - fn(x + 2 * h) + fn(x - 2 * h)) / (12 * h)


OBLIQUE = np.array([0.6, 0.0, 0.8])
CENTER = [0.1, 0.2, 0.0]


def places(x):
    """Positions of the upper and the lower arm and their orientation, at two angles about x and y
    through the origin and a displacement."""
    p = product(turn(0, x[0]), turn(1, x[1]))
    return turned(p, [0.3, 0.0, 0.1]), turned(p, [0.5, 0.4, 0.0] + x[2] * OBLIQUE), p


def test_open_chain():
    """Q = -dV/dx of gravity, for joints of several coordinates. A force along the slide is its own
    generalised force. Partial velocities make velocities of rates."""
    x, rates, eye = np.array([0.4, -0.7, 0.2]), np.array([1.0, 2.0, -0.5]), np.eye(3)
    first, second, p = places(x)
    # omega = x1' e_x + x2' R e_y, and velocities by differences.
    spin = rates[0] * X + rates[1] * turned(turn(0, x[0]), Y)
    moving = [slope(lambda s, i=i: places(x + s * rates)[i], 0.0) for i in (0, 1)]
    upper, lower = (
        mbd.Body(name, inertia, position=r, orientation=p, velocity=v, angular_velocity=spin)
        for name, inertia, r, v in zip(
            ("upper", "lower"), (BOX.moved(CENTER), BOX), (first, second), moving, strict=True
        )
    )
    drawn = [mbd.Body(name, BOX, position=r) for name, r in
             zip(("upper", "lower"), ([0.3, 0.0, 0.1], [0.5, 0.4, 0.0]), strict=True)]  # fmt: skip
    slide_at = dict(point=[0.4, 0.2, 0.0], axis=OBLIQUE)
    joints = [
        mbd.Universal("shoulder", "ground", drawn[0], point=np.zeros(3), axes=[X, Y]),
        mbd.Prismatic("slide", *drawn, **slide_at),
    ]
    push = mbd.LinearActuator("push", *drawn, **slide_at)
    mechanism = mbd.Mechanism([upper, lower], joints, [push])

    def weight(x):
        first, second, p = places(x)
        return 1.3 * G * (first + turned(p, CENTER) + second)[2]

    state, u = mechanism.state(), np.array([7.0])
    found = generalised_forces(mechanism, state, u=u)

    def all_of(Q):
        return np.append(Q["shoulder"], Q["slide"])

    gradient = [slope(lambda s, e=e: weight(x + s * e), 0.0) for e in eye]
    np.testing.assert_allclose(all_of(found.gravity), -np.array(gradient), rtol=1e-9)
    np.testing.assert_allclose(all_of(found.elements["push"]), [0, 0, 7.0], atol=1e-12)
    expected = -np.array(gradient) + [0, 0, 7.0]
    np.testing.assert_allclose(all_of(found.total), expected, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(found.partial_velocities) @ rates, state.v, atol=1e-9)


A, D, END = slide(), slide(1.0), slide(1.1, 0.6)
LENGTH = np.linalg.norm(0.4 * np.array([np.cos(1.1), np.sin(1.1), 0])
                        - D - 0.7 * np.array([np.cos(1.4), np.sin(1.4), 0]))  # fmt: skip


def bars(angle):
    """Middles and angles of crank, coupler and rocker of `four_bar`, with the crank at an angle."""
    b = 0.4 * np.array([np.cos(angle), np.sin(angle), 0])
    r = np.linalg.norm(D - b)
    x = (LENGTH**2 - 0.7**2 + r**2) / (2 * r)
    e = (D - b) / r
    c = b + x * e + np.sqrt(LENGTH**2 - x**2) * np.cross(Z, e)
    ends = [(A, b), (b, c), (D, c)]
    return np.array([[*(p + q)[:2] / 2, np.arctan2(*(q - p)[1::-1])] for p, q in ends])


def test_loop():
    """The coordinate of the crank carries the weights of all bars, and a wrench on the rocker:
    Q = -dV/dx along closed poses, and Q x' is the power."""
    rate = 1.7
    v = rate * slope(bars, 1.1)
    drawn = four_bar()
    bodies = [
        mbd.Body(b.name, BOX, position=b.pose.position, velocity=[*w[:2], 0],
                 angular_velocity=[0, 0, w[2]])
        for b, w in zip(drawn.bodies, v, strict=True)
    ]  # fmt: skip
    pull = mbd.Spring("pull", "ground", drawn.body("rocker"), points=[[2.0, 0.5, 0.0], END],
                      stiffness=60.0, rest_length=0.2)  # fmt: skip
    options = dict(gravity=np.array([0.0, -G, 0.0]), plane=mbd.Plane(Z))
    mechanism = mbd.Mechanism(bodies, drawn.joints, [pull], **options)
    push = {"rocker": mbd.forces.Wrench(np.array([3.0, -2.0, 1.0]), np.array([0.5, 0.2, 4.0]))}

    def energy(angle):
        (_, y0, _), (_, y1, _), (*r, turned_by) = bars(angle)
        end = np.array([*r, 0]) + turned(
            turn(2, turned_by - bars(1.1)[2, 2]), END - np.array([*bars(1.1)[2, :2], 0])
        )
        stretch = np.linalg.norm(end - [2.0, 0.5, 0.0]) - 0.2
        return 1.3 * G * (y0 + y1 + r[1]) + 30.0 * stretch**2

    state = mechanism.state()
    batch = mbd.State(np.zeros(2), *(np.stack([x, x]) for x in (state.q, state.v)))
    found = generalised_forces(mechanism, batch, ["A"], wrenches=push)
    Q = np.asarray(found.gravity["A"]) + np.asarray(found.elements["pull"]["A"])
    np.testing.assert_allclose(Q, np.full((2, 1), -slope(energy, 1.1)), rtol=1e-9)
    wrench = push["rocker"]
    power = wrench.force[:2] @ v[2, :2] + wrench.torque[2] * v[2, 2]
    given = np.asarray(found.given["rocker"]["A"])
    np.testing.assert_allclose(given * rate, np.full((2, 1), power), rtol=1e-9)
    np.testing.assert_allclose(found.total["A"], Q + given, rtol=1e-12)
    assert '"pull": ' in str(found) and 'wrench on "rocker"' in str(found)
    with pytest.raises(RuntimeError, match="do not describe the motion"):
        generalised_forces(mechanism, state)
    failed = generalised_forces(mechanism, state, throw=False)
    assert int(code(failed.result)) == int(code(mbd.RESULTS.joints_not_independent))
    with pytest.raises(ValueError, match="nobody"):
        generalised_forces(mechanism, state, ["A"], wrenches={"nobody": push["rocker"]})
