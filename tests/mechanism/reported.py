"""Small mechanisms, for the tests of reports on them."""

import jax.numpy as jnp
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


def slider_crank(theta=0.3):
    """Crank and rod of one length, at a crank angle: singular upright, where the slider lies on the
    pivot and the rod can turn with the crank."""
    c, s = jnp.cos(theta), jnp.sin(theta)
    o = jnp.zeros_like(c)

    def turned(angle):
        return mbd.rotations.quaternion_exp(jnp.stack([o, o, angle]))

    places = [(0.5 * c, 0.5 * s, theta), (1.5 * c, 0.5 * s, -theta), (2 * c, o, o)]
    crank, rod, slider = (
        mbd.Body(name, BOX, position=jnp.stack([x, y, o]), orientation=turned(angle))
        for name, (x, y, angle) in zip(("crank", "rod", "slider"), places, strict=True)
    )
    joints = [
        mbd.Revolute("base", "ground", crank, point=[0, 0, 0], axis=Z),
        mbd.Revolute("knee", crank, rod, point=jnp.stack([c, s, o]), axis=Z),
        mbd.Revolute("pin", rod, slider, point=jnp.stack([2 * c, o, o]), axis=Z),
        mbd.Prismatic("guide", "ground", slider, point=jnp.stack([2 * c, o, o]), axis=X),
    ]
    return mbd.Mechanism([crank, rod, slider], joints)
