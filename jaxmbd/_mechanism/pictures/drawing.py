"""Drawings of mechanisms as skeletons, by matplotlib."""

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int

from ..._inputs import Numbers, checked
from ..._system import State
from ..._types import Axes
from ..appearance import (
    INK,
    PointForces,
    WorldFrames,
    attachments,
    body_colors,
    body_frames,
    concrete,
    element_frames,
    placed_shapes,
    point_forces,
    symbol_size,
)
from ..body import GROUND
from ..glyphs import Glyph
from ..joints import AbstractConstraint
from ..mechanism import Mechanism
from ..reports import contact_forces
from . import symbols
from .polylines import View, lines, pieces
from .shapes import extent, grounds, solid
from .symbols import Stroke

# Length of the longest arrow, and largest length of heads, relative to the picture.
_ARROW, _HEAD = 0.25, 0.035

# Most bodies that are drawn with their names, axes and centres of mass by default.
_FEW = 50


def pyplot() -> ModuleType:
    """Import `matplotlib.pyplot`. **Raises:** `ImportError` that names the remedy."""
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib. Install it with `pip install jaxmbd[viz]`."
        ) from error
    return matplotlib.pyplot


def given_or_new(ax: Axes | None, **looks: object) -> Axes:
    """The axes, by default new ones with these `looks` of `pyplot.subplots`."""
    return pyplot().subplots(layout="constrained", **looks)[1] if ax is None else ax


@checked
def draw(
    mechanism: Mechanism,
    q: Float[Array, " nq"] | None = None,
    ax: Axes | None = None,
    *,
    plane: str | Sequence[Numbers] | None = None,
    labels: bool | None = None,
    frames: bool | None = None,
    contact_force: Float[Array, "contacts d"] | None = None,
    contact_pairs: Int[Array, "contacts 3"] | None = None,
    force_scale: float | None = None,
) -> Axes:
    """Draw a mechanism as a skeleton. Each body is drawn as bars from its centre of mass to the
    frames of its joints, each joint by its symbol, each spring as a zigzag or helix. What is fixed
    to the ground stands on a hatched support. Bodies with contacts are drawn with their shapes,
    others with at most one joint as the box with the same inertia.

    **Arguments:**

    - `q`: coordinates, shape `(nq,)`, by default as the bodies were given.
    - `ax`: matplotlib axes to draw on, by default new ones: flat if `plane` is given, 3D otherwise.
    - `plane`: `None` for a view in perspective, or the world directions to the right and up of a
      flat picture: a pair of vectors, or two of the letters x, y, z, such as "xz".
    - `labels`: write the names of the bodies. `frames`: show their axes: x red, y green, z blue. By
      default for up to 50 bodies. Of more bodies with shapes no centres of mass are shown.
    - `contact_force`: contact forces at q, as in `Solution.contact_force`, shown by arrows; by
      default none. They are those on body b, or on a if b is the ground.
    - `contact_pairs`: with `NearContacts`, to which pairs these forces belong, as in
      `Solution.contact_pairs`.
    - `force_scale`: length of the arrows [m/N]. By default the longest one is a quarter of the
      picture.

    **Returns:** the axes.

    **Raises:** `ImportError` without matplotlib, which is in `pip install jaxmbd[viz]`;
    `ValueError` for a bad `plane`, for 3D axes with `plane` and flat ones without, for forces of
    other contacts, and for a scale that is not positive.
    """
    pyplot()
    view = make_view(mechanism, plane)
    q = mechanism.state().q if q is None else mechanism.checked_q(q)
    at, forces = concrete(q)[None], None
    few = len(mechanism.body_stack) <= _FEW
    labels, frames = (few if x is None else x for x in (labels, frames))
    if contact_force is not None:
        state = State(0.0, q, np.zeros(mechanism.coordinates.nv, q.dtype))
        pairs = None if contact_pairs is None else concrete(contact_pairs)[None]
        world = concrete(contact_forces(mechanism, state, contact_force, contact_pairs))
        forces = point_forces(mechanism, at, world[None], force_scale, pairs)
    return Picture(mechanism, at, view, ax, labels=labels, frames=frames, forces=forces).ax


def make_view(mechanism: Mechanism, plane: str | Sequence[Numbers] | None) -> View:
    """Return the view. **Raises:** `ValueError` for a bad `plane`."""
    gravity = concrete(mechanism.gravity)
    flat = plane is not None
    right, up = np.eye(3)[[0, 2]] if plane is None else _directions(plane)
    inside = gravity - (gravity @ np.cross(right, up)) * np.cross(right, up) if flat else gravity
    strength = np.linalg.norm(inside)
    down = inside / strength if strength > 1e-9 * max(np.linalg.norm(gravity), 1) else -up
    return View(right, up, down, flat)


def _directions(plane: str | Sequence[Numbers]) -> np.ndarray:
    if isinstance(plane, str) and len(plane) == 2 and set(plane) <= set("xyz"):
        plane = [np.eye(3)["xyz".index(letter)] for letter in plane]
    try:
        given = np.asarray(plane, float)
        right, up = given
        right = right / np.linalg.norm(right)
        up = up - (up @ right) * right
        directions = np.stack([right, up / np.linalg.norm(up)])
    except (TypeError, ValueError):
        directions = np.full((2, 3), np.nan)
    if directions.shape != (2, 3) or not np.all(np.isfinite(directions)):
        raise ValueError(
            'Argument `plane` must be two of the letters x, y, z, such as "xz", or the vectors to '
            f"the right and up, but is {plane!r}."
        )
    return directions


class Picture:
    """The strokes of a mechanism in several pictures, and the matplotlib artists that show one."""

    def __init__(
        self,
        mechanism: Mechanism,
        q: np.ndarray,
        view: View,
        ax: Axes | None,
        *,
        labels: bool,
        frames: bool,
        forces: PointForces | None = None,
    ):
        self.view = view
        self.strokes, self.names = strokes(mechanism, q, view, forces, labels=labels, frames=frames)
        self.ax, self.own = _axes(ax, view), ax is None
        self.artists = [self._artist(stroke) for stroke in self.strokes]
        self.texts = [self._text(name, points[0]) for name, points in self.names.items()]
        self._frame()

    def show(self, i: int) -> list[Any]:
        """Move everything to picture `i` and return the artists."""
        for stroke, artist in zip(self.strokes, self.artists, strict=True):
            x = self._seen(stroke.points[i])
            if stroke.fill is not None:
                flat_one = self.view.flat and not stroke.several
                artist.set_xy(x) if flat_one else artist.set_verts(pieces(x))
            elif self.view.flat:
                artist.set_data(*x.T)
            else:
                artist.set_data_3d(*x.T)
        for text, points in zip(self.texts, self.names.values(), strict=True):
            x = self._seen(points[i])
            if self.view.flat:
                text.xy = tuple(x)
            else:
                text.set_position_3d(x)
        return [*self.artists, *self.texts]

    def _seen(self, points: np.ndarray) -> np.ndarray:
        if self.view.flat:
            return points @ np.stack([self.view.right, self.view.up], axis=1)
        return points

    def _artist(self, stroke: Stroke) -> Any:
        x, style = self._seen(stroke.points[0]), stroke.style
        if stroke.fill is None:
            return self.ax.plot(*x.T, **style)[0]
        import matplotlib.collections
        import matplotlib.colors
        import matplotlib.patches
        from mpl_toolkits.mplot3d.art3d import Poly3DCollection

        face = matplotlib.colors.to_rgba(stroke.fill, stroke.alpha)
        edge = matplotlib.colors.to_rgba(style["color"], min(1.0, 2 * stroke.alpha))
        looks: dict[str, Any] = dict(
            facecolor=face,
            edgecolor=edge,
            linewidth=style["linewidth"],
            zorder=style["zorder"],
        )
        if not self.view.flat:
            return self.ax.add_collection3d(Poly3DCollection(pieces(x), **looks))
        if stroke.several:
            return self.ax.add_collection(matplotlib.collections.PolyCollection(pieces(x), **looks))
        return self.ax.add_patch(matplotlib.patches.Polygon(x, joinstyle="round", **looks))

    def _text(self, name: str, point: np.ndarray) -> Any:
        from matplotlib.patheffects import withStroke

        halo = [withStroke(linewidth=2.5, foreground=(1, 1, 1, 0.8))]
        style = dict(color=INK, fontsize=9, zorder=8, path_effects=halo)
        x = self._seen(point)
        if self.view.flat:
            return self.ax.annotate(
                name, x, xytext=(7, 7), textcoords="offset points", annotation_clip=False, **style
            )
        return self.ax.text(*x, f"  {name}", **style)

    def _frame(self) -> None:
        """Set limits around all pictures, with the same scale for all axes."""
        points = np.concatenate(
            [
                self._seen(stroke.points).reshape(-1, 2 if self.view.flat else 3)
                for stroke in self.strokes
                if stroke.framed
            ]
        )
        low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
        middle, half = (low + high) / 2, (high - low) / 2
        half = np.maximum(1.06 * half, 0.3 * np.max(half))
        low, high = middle - half, middle + half
        ax = self.ax
        if self.view.flat:
            ax.set_aspect("equal")
            ax.set_xlim(low[0], high[0])
            ax.set_ylim(low[1], high[1])
            if self.own:
                ax.figure.set_size_inches(6.4, np.clip(6 * half[1] / half[0] + 0.7, 2.2, 6.4))
            return
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
        ax.set_box_aspect(half, zoom=1.0)
        for axis, share in zip((ax.xaxis, ax.yaxis, ax.zaxis), half / np.max(half), strict=True):
            axis.set_major_locator(pyplot().MaxNLocator(max(1, round(4 * share))))


def strokes(
    mechanism: Mechanism,
    q: np.ndarray,
    view: View,
    at_contacts: PointForces | None,
    *,
    labels: bool,
    frames: bool,
) -> tuple[list[Stroke], dict[str, np.ndarray]]:
    """All strokes, and the names with their positions."""
    bodies, colors = body_frames(mechanism, q), body_colors(mechanism)
    members, few = mechanism.bodies, len(mechanism.body_stack) <= _FEW
    elements = (*mechanism.joints, *mechanism.forces)
    ends = [element_frames(element, bodies) for element in elements]
    centers = {b.name: bodies[b.name].at(b.inertia.center)[:, 0] for b in members}
    places = placed_shapes(mechanism, bodies)
    solids = [place for place in places if not place.unbounded]
    found = [x for place in solids for x in solid(place, colors[place.body], view)]
    origins = [frame.origin for own in ends for frame in own]
    size = symbol_size([*centers.values(), *origins, *(s.points for s in found)])
    for element, own in zip(elements, ends, strict=True):
        joint, coil = isinstance(element, AbstractConstraint), Glyph.COIL in element.glyphs
        for name, frame in zip(element.bodies, own, strict=True):
            if name == GROUND and joint:
                found += symbols.ground(frame, view, size)
            elif name == GROUND and coil:
                found += symbols.ground(frame, view, 0.6 * size, _away(frame, own, view))
        found += symbols.element(element, own, view, size)
    attached, shaped = attachments(mechanism, size), {place.body for place in solids}
    for body in members:
        frame, points = bodies[body.name], np.reshape(attached[body.name], (-1, 3))
        skeleton = body.name not in shaped
        marks = few or skeleton
        found += symbols.body(body, frame, points, colors[body.name], size, skeleton, marks)
        if frames:
            found += symbols.triad(frame, size)
    cloud = np.concatenate([stroke.points for stroke in found], axis=1)
    found += grounds([place for place in places if place.unbounded], cloud, view)
    if at_contacts is not None:
        found += _arrows(at_contacts, found, view)
    return found if few else _joined(found), centers if labels else {}


def _joined(strokes: list[Stroke]) -> list[Stroke]:
    """The same, with strokes that look alike as one, since matplotlib is slow with thousands."""
    alike: dict[Any, list[Stroke]] = {}
    for i, stroke in enumerate(strokes):
        looks = (*sorted(stroke.style.items()), stroke.fill, stroke.alpha, stroke.framed)
        alike.setdefault(i if "marker" in stroke.style else looks, []).append(stroke)
    return [
        replace(group[0], points=lines(*(stroke.points for stroke in group)))
        for group in alike.values()
    ]


def _arrows(forces: PointForces, others: list[Stroke], view: View) -> list[Stroke]:
    size = extent(np.concatenate([stroke.points for stroke in others], axis=1))
    largest = np.max(np.linalg.norm(forces.force, axis=2), initial=0.0, where=~forces.idle)
    scale = forces.scale
    if scale is None:
        scale = _ARROW * size / largest if largest > 0 else 0.0
    absent = forces.idle[..., None]
    at, vector = (np.where(absent, np.nan, x) for x in (forces.at, scale * forces.force))
    found = symbols.arrows(at, vector, view, _HEAD * size)
    for stroke in found:
        # With a given scale an impact may have an arrow so long that its limits hide the rest.
        stroke.framed = forces.scale is None
    return found


def _away(frame: WorldFrames, ends: list[WorldFrames], view: View) -> np.ndarray:
    """Direction in which a spring pulls on its support, from the first picture."""
    d = frame.origin[0] - ends[0].origin[0] - (ends[1].origin[0] - frame.origin[0])
    if view.flat:
        d = (d @ view.right) * view.right + (d @ view.up) * view.up
    length = np.linalg.norm(d)
    return d / length if length > 0 else view.down


def _axes(ax: Any, view: View) -> Any:
    if ax is None:
        figure = pyplot().figure(figsize=(6.4, 4.8), layout="constrained")
        ax = figure.add_subplot(projection=None if view.flat else "3d")
        if not view.flat:
            ax.view_init(elev=22, azim=-58)
    if (ax.name == "3d") == view.flat:
        raise ValueError(
            'Argument `ax` must be 3D axes (`projection="3d"`) without `plane`, and flat ones with '
            f"it, but is {ax.name!r}."
        )
    if view.flat:
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.set_axisbelow(True)
        ax.set_xlabel(f"{_letter(view.right)} [m]")
        ax.set_ylabel(f"{_letter(view.up)} [m]")
        return ax
    ax.computed_zorder = False
    for axis, letter in ((ax.xaxis, "x"), (ax.yaxis, "y"), (ax.zaxis, "z")):
        axis.set_pane_color((1, 1, 1, 0))
        axis._axinfo["grid"].update(color=(0, 0, 0, 0.08), linewidth=0.6)
        axis.set_label_text(f"{letter} [m]")
    return ax


def _letter(direction: np.ndarray) -> str:
    for letter, e in zip("xyz", np.eye(3), strict=True):
        if np.allclose(direction, e):
            return letter
    return "along " + np.array2string(direction, precision=2, separator=", ")
