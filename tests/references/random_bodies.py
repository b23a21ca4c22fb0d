"""Bodies for trees of bodies, the format that the scripts beside this file share.

A body is held to its parent by its joint. Its frame is that of the joint, about or along whose z
axis it moves. `position` and `quaternion` (w, x, y, z) place this frame in that of the parent where
the coordinates of the joint are 0. The inertia tensor is about the centre of mass, in the axes of
the body. Everything is in SI units.
"""

import numpy as np


def spring_between(bodies, points, stiffness, damping, **more):
    given = {"bodies": bodies, "points": np.array(points)}
    return given | {"stiffness": stiffness, "damping": damping} | more


def random_body(random, name, parent, joint, position=None, quaternion=None, **joint_options):
    """A body of arbitrary inertia, off its own axes, at a random place unless it is given."""
    position = random.uniform(-0.5, 0.5, size=3).round(3) if position is None else position
    quaternion = random.normal(size=4).round(2) if quaternion is None else np.array(quaternion)
    axes = np.linalg.qr(random.normal(size=(3, 3)))[0]
    # Of a solid box, so that no principal moment exceeds the sum of the others.
    mass, size = random.uniform(0.5, 3.0), random.uniform(0.1, 0.5, size=3)
    moments = mass / 12 * (np.sum(size**2) - size**2)
    tensor = np.round(axes * moments @ axes.T, 4)
    return {
        "name": name,
        "parent": parent,
        "joint": joint,
        **joint_options,
        "position": position,
        "quaternion": quaternion / np.linalg.norm(quaternion),
        "mass": round(mass, 3),
        "center": random.uniform(-0.2, 0.2, size=3).round(3),
        "tensor": (tensor + tensor.T) / 2,
    }
