"""What the scripts beside this file share: trees of bodies, and how results are written.

A body is held to its parent by its joint. Its frame is that of the joint, about or along whose z
axis it moves. `position` and `quaternion` (w, x, y, z) place this frame in that of the parent where
the coordinates of the joint are 0. The inertia tensor is about the centre of mass, in the axes of
the body. Everything is in SI units.
"""

import json
import pathlib
import re
import sys

import numpy as np


def write(found, name, *codes):
    """Write `found` to the file `name`, with the versions of the codes used. Lists of numbers stand
    in one line."""
    versions = {"python": sys.version.split()[0], "numpy": np.__version__} | dict(codes)
    text = json.dumps({"versions": versions} | found, default=_plain, indent=1)
    text = re.sub(r"\[[-+.,eE\d\s]*\]", lambda row: " ".join(row[0].split()), text)
    pathlib.Path(__file__).with_name(name).write_text(text + "\n")


def eigenvalues(s):
    """In the order of their sizes, of two conjugates the one above the real axis first."""
    s = s[np.lexsort((-s.imag, np.abs(s).round(9)))]
    return {"real": s.real, "imag": s.imag}


def _plain(x):
    return x.tolist() if isinstance(x, np.ndarray) else x.item()


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
