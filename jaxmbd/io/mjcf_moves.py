"""The coordinates of a joint as hinges and slides of MJCF."""

from typing import Any

import numpy as np

from .._coordinates import algebra
from .._mechanism import (
    Cylindrical,
    Fixed,
    Planar,
    Pose,
    Prismatic,
    Revolute,
    Serial,
    Spherical,
    Universal,
)
from .loaded import pose

# The coordinates of joints as joints of MJCF: kind, and number of the frame and of its axis.
MOVES = {
    Fixed: (),
    Revolute: (("hinge", 0, 2),),
    Prismatic: (("slide", 0, 2),),
    Spherical: (("ball", 0, 2),),
    Cylindrical: (("slide", 0, 2), ("hinge", 0, 2)),
    Planar: (("slide", 0, 0), ("slide", 0, 1), ("hinge", 0, 2)),
    Universal: (("hinge", 0, 0), ("hinge", 1, 1)),
}


def moves(joint: Any, a: Pose, b: Pose, values: np.ndarray) -> list[tuple[str, Any, Any, int]]:
    """The hinges and slides of a joint from body a to body b at the present pose, at these values
    of its coordinates: kind, axis and anchor in the world, and index of the coordinate."""
    if isinstance(joint, Serial):
        return _serial_moves(joint, a, b, values)
    return [
        (kind, (a, b)[end].direction(np.eye(3)[axis]), b.position, i)
        for i, (kind, end, axis) in enumerate(MOVES[type(joint)])
    ]


def _serial_moves(joint: Serial, a: Pose, b: Pose, values: np.ndarray):
    slides, axes = np.asarray(joint.slides), np.asarray(joint.axes)
    anchors = np.zeros_like(axes) if joint.anchors is None else np.asarray(joint.anchors)
    slid: list[tuple[str, Any, Any, int]] = [
        ("slide", a.direction(s), b.position, i) for i, s in enumerate(slides)
    ]
    # From the inner end outwards: each axis is carried by the turns before it.
    found, frame = [], b
    for i in reversed(range(len(axes))):
        axis = frame.direction(axes[i])
        anchor = frame.point(anchors[i])
        found.append(("hinge", axis, anchor, len(slides) + i))
        turned = algebra.quaternion_product(
            frame.orientation, algebra.quaternion_about(axes[i], -values[len(slides) + i])
        )
        frame = pose(anchor - algebra.quaternion_rotate(turned, anchors[i]), turned)
    return slid + found[::-1]
