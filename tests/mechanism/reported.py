"""Small mechanisms, for the tests of reports on them."""

import numpy as np

import jaxmbd as mbd

TIME = np.zeros(())
BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
X, Y, Z = np.eye(3)
G = 9.81


def four_bar():
    """Bars of revolutes about z, in the plane z = 0."""
    a, d = np.zeros(3), np.array([1.0, 0, 0])
    b = 0.4 * np.array([np.cos(1.1), np.sin(1.1), 0])
    c = d + 0.7 * np.array([np.cos(1.4), np.sin(1.4), 0])
    bodies = [
        mbd.Body(name, BOX, position=(start + end) / 2)
        for name, start, end in (("crank", a, b), ("coupler", b, c), ("rocker", d, c))
    ]
    first, middle, last = bodies
    joints = [
        mbd.Revolute("A", "ground", first, point=a, axis=Z),
        mbd.Revolute("B", first, middle, point=b, axis=Z),
        mbd.Revolute("C", middle, last, point=c, axis=Z),
        mbd.Revolute("D", last, "ground", point=d, axis=Z),
    ]
    return mbd.Mechanism(bodies, joints)
