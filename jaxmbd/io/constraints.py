"""Contacts, limits and equality constraints of a compiled model."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._contact import ContactLaw
from .._mechanism import (
    AbstractConstraint,
    AbstractContact,
    AbstractShape,
    ConvexPoints,
    CoordinateConstraint,
    CoordinateLimit,
    Fixed,
    HeightField,
    Spherical,
)
from .fields import overridden
from .shapes import (
    Side,
    contact,
    few_corners,
    ground_first,
    heights,
    kind_of,
    mesh,
    size_of,
    touching,
)
from .source import Coordinates, MjModel, Source


def limits(source: Source, along: Coordinates) -> list[CoordinateLimit]:
    """Limits of joints and tendons, which act from a margin before the ends of the range."""
    m, found = source.m, []
    if "limit" in source.off:
        return []
    for kind, prefix, coordinate_of, without in (
        ("joint", "jnt", along.joint, "its limit, a cone of rotations"),
        ("tendon", "tendon", along.tendon, "its limit: it wraps round geoms"),
    ):
        for i in map(int, np.flatnonzero(getattr(m, f"{prefix}_limited"))):
            coordinate, margin = coordinate_of(i), float(getattr(m, f"{prefix}_margin")[i])
            if coordinate is None:
                source.drop(kind, i, without)
                continue
            low, high = (float(x) for x in getattr(m, f"{prefix}_range")[i])
            if low + margin > high - margin:
                source.drop(kind, i, "the margin of its limits, which overlap with it")
                margin = 0.0
            name = source.name(kind, i)
            found.append(CoordinateLimit(name, coordinate, lower=low + margin, upper=high - margin))
    return found


def contacts(source: Source, corners: int) -> list[AbstractContact]:
    """Contacts of all pairs of geoms that may touch by the rules of the file, with so many corners
    of the convex hulls of meshes."""
    found = []
    if "contact" in source.off:
        return []
    shapes: dict[int, AbstractShape | None] = {}
    laws: dict[tuple, ContactLaw] = {}
    pairs = _pairs(source)
    # All contacts of a file are alike, so that they are evaluated together.
    margins: dict[float, Array | None] = {margin: None for *_, margin in pairs}
    if any(margins):
        margins = {margin: jnp.asarray(margin) for margin in margins}
    for g, h, dimension, friction, margin in pairs:
        for x in (g, h):
            if x not in shapes:
                shapes[x] = _shape(source, x, corners)
        one, other = shapes[g], shapes[h]
        if one is None or other is None:
            continue
        key = (dimension, *friction)
        if key not in laws:
            laws[key] = _law(dimension, friction)
        a, b = ground_first(_side(source, g, one), _side(source, h, other))
        name = f"{source.name('geom', g)}-{source.name('geom', h)}"
        made = contact(name, a, b, laws[key], margins[margin])
        if made is not None:
            found.append(made)
            continue
        source.drop(
            "geom",
            g,
            f'its contact with "{source.name("geom", h)}", of kinds '
            f"{kind_of(source, g)} and {kind_of(source, h)}",
        )
    return found


def _side(source: Source, g: int, shape: AbstractShape) -> Side:
    m = source.m
    b, velocity = m.geom_bodyid[g], np.array(m.geom_surfacevel[g])
    frame = source.on(b, m.geom_pos[g], m.geom_quat[g])
    return Side(source.body(b), shape, frame, velocity if np.any(velocity) else None)


def _pairs(source: Source) -> list[tuple[int, int, int, tuple[float, float, float], float]]:
    """Geoms that may touch, with the dimension, the friction and the margin of their contact."""
    m = source.m
    excluded = {(int(x) >> 16, int(x) & 0xFFFF) for x in m.exclude_signature}
    filtered = not m.opt.disableflags & source.mujoco.mjtDisableBit.mjDSBL_FILTERPARENT
    explicit = {}
    for k in range(m.npair):
        g, h = sorted((int(m.pair_geom1[k]), int(m.pair_geom2[k])))
        friction, told = _isotropic(m.pair_friction[k], int(m.pair_dim[k]))
        if told and not overridden(source):
            source.drop("pair", k, told)
        explicit[g, h] = (int(m.pair_dim[k]), friction, float(m.pair_margin[k]))
    # Only geoms with a mask count, which spares most of the pairs of a large model.
    able = [g for g in range(m.ngeom) if m.geom_contype[g] or m.geom_conaffinity[g]]
    owner = [source.owner[int(b)] for b in m.geom_bodyid]
    above = [0] * m.nbody
    for b in set(source.owner):
        above[b] = source.owner[int(m.body_parentid[b])]
    found = [(g, h, *law) for (g, h), law in explicit.items() if owner[g] != owner[h]]
    for i, g in enumerate(able):
        for h in able[i + 1 :]:
            a, b = owner[g], owner[h]
            if a == b or (g, h) in explicit:
                continue
            if not (
                m.geom_contype[g] & m.geom_conaffinity[h]
                or m.geom_contype[h] & m.geom_conaffinity[g]
            ):
                continue
            if filtered and a and b and (a == above[b] or b == above[a]):
                continue
            one, other = int(m.geom_bodyid[g]), int(m.geom_bodyid[h])
            if (one, other) in excluded or (other, one) in excluded:
                continue
            found.append((g, h, *_mixed(m, g, h)))
    if not overridden(source):
        return found
    largest = max((dimension for _, _, dimension, *_ in found), default=1)
    friction, told = _isotropic(m.opt.o_friction, largest)
    if told:
        source.drop_option("o_friction", told)
    return [(g, h, n, friction, float(m.opt.o_margin)) for g, h, n, _, _ in found]


def _isotropic(five: np.ndarray, dimension: int) -> tuple[tuple[float, float, float], str]:
    """Friction along, about and across the normal from that of a pair, which has two directions,
    and what of it is lost."""
    slide, across, torsion, roll, other = (float(x) for x in five)
    told = ""
    if dimension >= 3 and slide != across:
        told = "the second coefficient of its anisotropic friction"
    elif dimension >= 6 and roll != other:
        told = "the second coefficient of its anisotropic rolling friction"
    return (slide, torsion, roll), told


def _mixed(m: MjModel, g: int, h: int) -> tuple[int, tuple[float, float, float], float]:
    """Dimension, friction and margin of two geoms: dimension and friction are those of the geom
    with the higher priority, or the larger ones, and margins add."""
    margin = float(m.geom_margin[g] + m.geom_margin[h])
    if m.geom_priority[g] != m.geom_priority[h]:
        first = g if m.geom_priority[g] > m.geom_priority[h] else h
        slide, torsion, roll = (float(x) for x in m.geom_friction[first])
        return int(m.geom_condim[first]), (slide, torsion, roll), margin
    slide, torsion, roll = (float(x) for x in np.maximum(m.geom_friction[g], m.geom_friction[h]))
    return max(int(m.geom_condim[g]), int(m.geom_condim[h])), (slide, torsion, roll), margin


def _law(dimension: int, friction: tuple[float, float, float]) -> ContactLaw:
    slide, torsion, roll = friction
    return ContactLaw(
        friction=slide if dimension >= 3 else None,
        torsional=torsion if dimension >= 4 else None,
        rolling=roll if dimension >= 6 else None,
    )


def _shape(source: Source, g: int, corners: int) -> AbstractShape | None:
    m, kind = source.m, kind_of(source, g)
    if kind == "hfield":
        k = int(m.geom_dataid[g])
        z = heights(m, k)
        spacing = [
            2 * half / (n - 1) for half, n in zip(m.hfield_size[k][:2], z.shape, strict=True)
        ]
        return HeightField(z, spacing)
    if kind == "mesh":
        return ConvexPoints(_hull(source, g, corners))
    shape = touching(kind, size_of(source, g, kind))
    if shape is None:
        source.drop("geom", g, f'its contacts: the kind "{kind}"')
    return shape


def _hull(source: Source, g: int, corners: int) -> np.ndarray:
    """Corners of the convex hull of a mesh. All hulls of a file have the same number of corners,
    some repeated, so that their contacts are alike and are evaluated together."""
    points, _ = mesh(source.m, int(source.m.geom_dataid[g]))
    found, total, missing = few_corners(points, corners)
    if total > len(found):
        source.drop(
            "geom",
            g,
            f"{len(found)} of the {total} corners of its convex hull count for contacts, up to "
            f"{missing:.2g} m of it are missing",
        )
    return np.concatenate([found, np.tile(found[:1], (corners - len(found), 1))])


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
    return [joint(name, *names, frame_a=a, frame_b=b)]


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
