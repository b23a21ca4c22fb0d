"""Contacts and limits of a compiled model."""

import math
from typing import Any

import numpy as np

from .._contact import ContactLaw
from ..mechanism import (
    GROUND,
    AbstractContact,
    AbstractShape,
    Box,
    Capsule,
    Contact,
    ConvexPoints,
    CoordinateLimit,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    HeightField,
    Sphere,
)
from .along import Coordinates
from .source import Source, pose
from .visuals import heights, kind_of, mesh

# Corners of the convex hull of a mesh. The cost of a contact grows with their number.
_CORNERS = 32


def limits(source: Source, along: Coordinates) -> list[AbstractContact]:
    """Limits of joints and tendons."""
    m, found = source.m, []
    if "limit" in source.off:
        return []
    for j in map(int, np.flatnonzero(m.jnt_limited)):
        coordinate, (low, high) = along.joint(j), (float(x) for x in m.jnt_range[j])
        if coordinate is None:
            source.drop("joint", j, "its limit, a cone of rotations")
        elif along.member(j).kind == "hinge" and high - low >= 2 * math.pi:
            source.drop("joint", j, "its limits, which are a turn or more apart")
        else:
            name = source.name("joint", j)
            found.append(CoordinateLimit(name, coordinate, lower=low, upper=high))
    for k in map(int, np.flatnonzero(m.tendon_limited)):
        coordinate, (low, high) = along.tendon(k), (float(x) for x in m.tendon_range[k])
        if coordinate is None:
            source.drop("tendon", k, "its limit: it wraps round geoms")
        else:
            name = source.name("tendon", k)
            found.append(CoordinateLimit(name, coordinate, lower=low, upper=high))
    return found


def contacts(source: Source) -> list[AbstractContact]:
    """Contacts of all pairs of geoms that may touch by the rules of the file."""
    m, found = source.m, []
    if "contact" in source.off:
        return []
    shapes: dict[int, AbstractShape | None] = {}
    laws: dict[tuple, ContactLaw] = {}
    for g, h, dimension, friction in _pairs(source):
        for x in (g, h):
            if x not in shapes:
                shapes[x] = _shape(source, x)
        one, other = shapes[g], shapes[h]
        if one is None or other is None:
            continue
        key = (dimension, *friction)
        if key not in laws:
            laws[key] = _law(dimension, friction)
        ends = [
            (source.body(m.geom_bodyid[x]), shape, _frame(source, x))
            for x, shape in ((g, one), (h, other))
        ]
        # The ground comes first, so that normals point away from it.
        ends.sort(key=lambda end: end[0] != GROUND)
        (a, shape_a, frame_a), (b, shape_b, frame_b) = ends
        name = f"{source.name('geom', g)}-{source.name('geom', h)}"
        try:
            contact = Contact(
                name, a, b, shape_a, shape_b, frame_a=frame_a, frame_b=frame_b, law=laws[key]
            )
        except ValueError:
            source.drop(
                "geom",
                g,
                f'its contact with "{source.name("geom", h)}", of kinds '
                f"{kind_of(source, g)} and {kind_of(source, h)}",
            )
            continue
        found.append(contact)
    return found


def _frame(source: Source, g: int):
    m = source.m
    return pose(source.on(m.geom_bodyid[g], m.geom_pos[g], m.geom_quat[g]))


def _pairs(source: Source) -> list[tuple[int, int, int, tuple[float, float, float]]]:
    """Geoms that may touch, with the dimension and the friction of their contact."""
    m = source.m
    excluded = {(int(x) >> 16, int(x) & 0xFFFF) for x in m.exclude_signature}
    filtered = not m.opt.disableflags & source.mujoco.mjtDisableBit.mjDSBL_FILTERPARENT
    explicit = {}
    for k in range(m.npair):
        g, h = sorted((int(m.pair_geom1[k]), int(m.pair_geom2[k])))
        slide, across, torsion, roll, _ = (float(x) for x in m.pair_friction[k])
        if slide != across:
            source.drop("pair", k, "the second coefficient of its anisotropic friction")
        explicit[g, h] = (int(m.pair_dim[k]), (slide, torsion, roll))
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
    return found


def _mixed(m: Any, g: int, h: int) -> tuple[int, tuple[float, float, float]]:
    """Dimension and friction of two geoms: those of the geom with the higher priority, or the
    larger ones."""
    if m.geom_priority[g] != m.geom_priority[h]:
        first = g if m.geom_priority[g] > m.geom_priority[h] else h
        slide, torsion, roll = (float(x) for x in m.geom_friction[first])
        return int(m.geom_condim[first]), (slide, torsion, roll)
    slide, torsion, roll = (float(x) for x in np.maximum(m.geom_friction[g], m.geom_friction[h]))
    return max(int(m.geom_condim[g]), int(m.geom_condim[h])), (slide, torsion, roll)


def _law(dimension: int, friction: tuple[float, float, float]) -> ContactLaw:
    slide, torsion, roll = friction
    return ContactLaw(
        friction=slide if dimension >= 3 else None,
        torsional=torsion if dimension >= 4 else None,
        rolling=roll if dimension >= 6 else None,
    )


def _shape(source: Source, g: int) -> AbstractShape | None:
    m, kind, size = source.m, kind_of(source, g), [float(x) for x in source.m.geom_size[g]]
    if m.geom_margin[g]:
        source.drop("geom", g, "the margin of its contacts")
    if kind == "plane":
        return HalfSpace()
    if kind == "sphere":
        return Sphere(size[0])
    if kind == "capsule":
        return Capsule(size[0], size[1])
    if kind == "cylinder":
        return Cylinder(size[0], size[1])
    if kind == "ellipsoid":
        return Ellipsoid(size)
    if kind == "box":
        return Box(size)
    if kind == "hfield":
        k = int(m.geom_dataid[g])
        z = heights(m, k)
        spacing = [2 * half / (n - 1) for half, n in zip(m.hfield_size[k][:2], z.shape)]
        return HeightField(z, spacing)
    if kind == "mesh":
        return ConvexPoints(_hull(source, g))
    source.drop("geom", g, f'its contacts: the kind "{kind}"')
    return None


def _hull(source: Source, g: int) -> np.ndarray:
    """Corners of the convex hull of a mesh. All hulls of a file have the same number of corners,
    some repeated, so that their contacts are alike and are evaluated together."""
    from scipy.spatial import ConvexHull, QhullError

    points, _ = mesh(source.m, int(source.m.geom_dataid[g]))
    try:
        points = points[ConvexHull(points).vertices]
    except QhullError:
        pass  # a flat mesh
    if len(points) > _CORNERS:
        source.drop("geom", g, f"corners of its convex hull beyond {_CORNERS}, for contacts")
    return points[_spread(points, _CORNERS)]


def _spread(points: np.ndarray, count: int) -> list[int]:
    """Indices of points that are far apart, each the farthest from those before."""
    chosen = [int(np.argmax(np.linalg.norm(points - points.mean(axis=0), axis=1)))]
    distance = np.full(len(points), np.inf)
    for _ in range(count - 1):
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
        chosen.append(int(np.argmax(distance)))
    return chosen
