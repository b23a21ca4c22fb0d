"""Equality constraints of a compiled model, as exact rows."""

from typing import Any

import numpy as np

from ..mechanism import AbstractConstraint, CoordinateConstraint, Fixed, Spherical
from .along import Coordinates
from .source import Source, pose

# The entry of the data of a weld that weighs its torque.
_TORQUE_SCALE = 10


def equalities(source: Source, along: Coordinates) -> list[AbstractConstraint]:
    """All active equality constraints."""
    m, found = source.m, []
    for k in range(m.neq):
        if not m.eq_active0[k]:
            source.drop("equality", k, "it is not active")
            continue
        kind = source.mujoco.mjtEq(m.eq_type[k]).name.removeprefix("mjEQ_").lower()
        name = source.name("equality", k)
        if kind in ("connect", "weld"):
            found += _between_bodies(source, k, kind, name)
        elif kind in ("joint", "tendon"):
            found += _between_coordinates(source, along, k, kind, name)
        else:
            source.drop("equality", k, f'its kind "{kind}"')
    return found


def _between_bodies(source: Source, k: int, kind: str, name: str) -> list[AbstractConstraint]:
    m, data = source.m, np.array(source.m.eq_data[k])
    ends = [int(m.eq_obj1id[k]), int(m.eq_obj2id[k])]
    if m.eq_objtype[k] == int(source.mujoco.mjtObj.mjOBJ_SITE):
        bodies = [int(m.site_bodyid[site]) for site in ends]
        frames = [
            source.on(b, m.site_pos[site], m.site_quat[site])
            for b, site in zip(bodies, ends, strict=True)
        ]
    elif kind == "connect":
        bodies = ends
        frames = [source.on(ends[0], data[:3]), source.on(ends[1], data[3:6])]
    else:
        bodies = ends
        frames = [source.on(ends[0], data[3:6], data[6:10]), source.on(ends[1], data[:3])]
    names = [source.body(b) for b in bodies]
    if names[0] == names[1]:
        source.drop("equality", k, f'both ends are on "{names[0]}"')
        return []
    a, b = frames
    # A weld without a torque holds a point only.
    point_only = kind == "connect" or data[_TORQUE_SCALE] == 0
    joint: Any = Spherical if point_only else Fixed
    return [joint(name, *names, frame_a=pose(a), frame_b=pose(b))]


def _between_coordinates(
    source: Source, along: Coordinates, k: int, kind: str, name: str
) -> list[AbstractConstraint]:
    m, data = source.m, np.array(source.m.eq_data[k][:5])
    coordinate = along.joint if kind == "joint" else along.tendon
    first, second = int(m.eq_obj1id[k]), int(m.eq_obj2id[k])
    x = coordinate(first)
    y = None if second < 0 else coordinate(second)
    if x is None or (second >= 0 and y is None):
        source.drop("equality", k, f"a {kind} that it couples has no single coordinate")
        return []

    def start(i: int) -> float:
        values = m.qpos0[m.jnt_qposadr[i]] if kind == "joint" else m.tendon_length0[i]
        return float(values)

    # Without trailing zeros, so that linear couplings stay linear.
    count = 1 if y is None else max([2, *(np.flatnonzero(data) + 1)])
    return [
        CoordinateConstraint(
            name,
            x,
            y,
            coefficients=data[:count],
            zero=start(first),
            zero_of=0.0 if y is None else start(second),
        )
    ]
