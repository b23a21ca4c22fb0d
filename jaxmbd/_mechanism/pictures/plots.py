"""Plots of a motion over time, and of the points that it reaches."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..._compiler import to_jax
from ..._inputs import Vector, checked
from ..._simulate import Solution
from ..._types import Axes, SeveralAxes
from ..appearance import BODIES, INK, has_coordinates, joint_curves, one_motion
from ..contacts import AbstractGap, DryFriction
from ..joint_coordinates import joint_path
from ..mechanism import Mechanism
from ..reports import (
    Audit,
    ContactState,
    contact_forces,
    contact_states,
    no_force,
    over_intervals,
    reactions,
    violation,
)
from .drawing import given_or_new, pyplot

# Colours of contacts that are open, stick or slip. Gaps and joint limits are open or closed.
_BANDS, _CLOSED = ("#e4e7ec", "#4f9d69", "#e08a3c"), "#8d949e"

# Dry friction above this share of its bound slips.
_AT_BOUND = 1 - 1e-6


@checked
def plot_coordinates(
    mechanism: Mechanism,
    sol: Solution,
    names: Sequence[str] | None = None,
    axes: SeveralAxes | None = None,
) -> np.ndarray:
    """Plot joint coordinates over time [s]: displacements [m], and angles [rad] with turns counted.
    Each kind has its own axes.

    **Arguments:** `names`: of the joints, by default all that have coordinates. `axes`: matplotlib
    axes, one for each kind, displacements first; by default new ones.

    **Returns:** the axes, an array.

    **Raises:** `ImportError` without matplotlib; `ValueError` for batches and for joints without
    coordinates.
    """
    motion = one_motion(sol)
    t = np.asarray(motion.t)
    if names is None:
        names = [joint.name for joint in mechanism.joints if has_coordinates(joint)]
    if not names:
        raise ValueError("No joint of this mechanism has coordinates to plot.")
    curves: dict[str, list[tuple[str, np.ndarray]]] = {"displacement [m]": [], "angle [rad]": []}
    for name in names:
        values = np.asarray(joint_path(mechanism, motion, name))
        for kind, label, column in joint_curves(mechanism, name, values):
            curves[kind].append((label, column))
    return _panels(t, {kind: lines for kind, lines in curves.items() if lines}, axes)


@checked
def plot_energies(audit: Audit, ax: Axes | None = None) -> Axes:
    """Plot the energies of an `Audit` over time [s]: kinetic, gravitational, stored, their total,
    and the work of actuators, dampers and drives, if any [J].

    **Returns:** the axes. **Raises:** `ImportError` without matplotlib."""
    t = np.asarray(audit.t)
    parts = [
        ("kinetic", audit.kinetic),
        ("gravity", audit.gravitational),
        ("stored", audit.stored),
        ("work supplied", audit.work),
    ]
    curves = [(label, np.asarray(x)) for label, x in parts if np.any(np.asarray(x) != 0)]
    (panel,) = _panels(t, {"energy [J]": curves}, None if ax is None else [ax])
    panel.plot(t, np.asarray(audit.total), color=INK, linewidth=2.2, label="total")
    _legend(panel)
    return panel


@checked
def plot_reactions(
    mechanism: Mechanism,
    sol: Solution,
    name: str,
    axes: SeveralAxes | None = None,
    *,
    on: str | None = None,
    frame: str | None = None,
    point: ArrayLike | None = None,
) -> np.ndarray:
    """Plot force [N] and torque [N m] of the joint `name` over time [s]: components and magnitude.

    **Arguments:** `axes`: two matplotlib axes, by default new. `on`, `frame`, `point`: as in
    `reactions`.

    **Returns:** the two axes, an array. **Raises:** as `reactions`; `ImportError` without
    matplotlib; `ValueError` for batches."""
    motion = one_motion(sol)
    t = np.asarray(motion.t)
    wrench = reactions(mechanism, motion, name, on=on, frame=frame, point=point)
    where = [f'{key} "{x}"' for key, x in (("on", on), ("frame", frame)) if x is not None]
    of = ", ".join([f'"{name}"', *where])
    force, torque = np.asarray(wrench.force), np.asarray(wrench.torque)
    curves = {
        kind: list(zip("xyz", values.T, strict=True))
        for kind, values in (("force [N]", force), ("torque [N m]", torque))
    }
    panels = _panels(t, curves, axes)
    for ax, values in zip(panels, (force, torque), strict=True):
        size = np.linalg.norm(values, axis=1)
        ax.plot(t, size, color=INK, linewidth=1.0, linestyle="--", label="magnitude", zorder=1)
        _legend(ax)
        if np.max(size) < 1e-8 * (1 + np.max(np.abs(force))):
            ax.set_ylim(-1, 1)  # do not magnify rounding errors
    panels[0].set_title(f"Reaction of {of}", fontsize=10, loc="left")
    return panels


@checked
def plot_contacts(
    mechanism: Mechanism,
    sol: Solution,
    names: Sequence[str] | None = None,
    axes: SeveralAxes | None = None,
) -> np.ndarray:
    """Plot contacts over time [s], with the points of each contact together: the sum of the normal
    forces [N]; the size of the sum of the friction forces [N], and dotted its bound by the static
    coefficient; and coloured bands that show whether the contact is open, sticks, or slips at one
    of its points. Of a `DryFriction` the second panel has the force or torque [N m]. Forces and
    bands are of means since the previous saved time, so that impacts between saved times show.
    Peaks are in `Solution.contact_loads`.

    **Arguments:** `names`: of the contacts, by default all. `axes`: three matplotlib axes, by
    default new.

    **Returns:** the three axes, an array.

    **Raises:** as `contact_states`; `ImportError` without matplotlib; `ValueError` for batches, for
    unknown contacts and for no contacts."""
    motion = one_motion(over_intervals(sol))
    states = contact_states(mechanism, motion)
    known = [contact.name for contact in mechanism.contacts]
    names = known if names is None else list(names)
    if not names or not set(names) <= set(known):
        raise ValueError(f"`names` must be of contacts, which are {known}, but are {names}.")
    t, force = np.asarray(motion.t), np.asarray(motion.contact_force)
    tangential = np.where(np.arange(force.shape[-1]) > 0, force, 0.0)
    friction = np.asarray(contact_forces(mechanism, motion, to_jax(tangential)))
    owner = np.asarray(mechanism.contact_names)
    curves: dict[str, list[tuple[str, np.ndarray]]] = {"normal force [N]": [], "friction [N]": []}
    bounds, bands = [], []
    for name in names:
        contact = mechanism.contact(name)
        points = np.flatnonzero(owner == name)
        normal = force[:, points, 0]
        if isinstance(contact, DryFriction):
            size, bound = np.abs(force[:, points[0], 1]), normal[:, 0]
            curves["friction [N]"].append((name, size))
            bounds.append(bound)
            slips = size >= _AT_BOUND * bound
            bands.append(np.array(_BANDS)[np.where(slips, ContactState.SLIP, ContactState.STICK)])
            continue
        curves["normal force [N]"].append((name, normal.sum(axis=1)))
        if isinstance(contact, AbstractGap):
            least = no_force(force.dtype) * np.max(force[..., 0], initial=0.0)
            closed = np.any(normal > least, axis=1)
            bands.append(np.where(closed, _CLOSED, _BANDS[ContactState.OPEN]))
            continue
        size = np.linalg.norm(friction[:, points].sum(axis=1), axis=1)
        curves["friction [N]"].append((name, size))
        bounds.append(np.sum(np.asarray(contact.law.dense.friction) * normal, axis=1))
        bands.append(np.array(_BANDS)[np.max(np.asarray(states.state)[:, points], axis=1)])
    if axes is None:
        axes = _contact_axes(len(names))
    axes = np.ravel(np.asarray(axes, object))
    if len(axes) != 3:
        raise ValueError(f"`axes` must be 3, for forces, friction and states, not {len(axes)}.")
    _panels(t, curves, axes[:2])
    axes[1].set_xlabel("")
    for line, bound in zip(list(axes[1].lines), bounds, strict=True):
        line.set_color(BODIES[names.index(line.get_label()) % len(BODIES)])  # as above
        axes[1].plot(t, bound, color=line.get_color(), linewidth=1.0, linestyle=":", zorder=1.5)
    _legend(axes[1])
    for line in (*axes[0].lines, *axes[1].lines):
        line.set_drawstyle("steps-pre")  # means since the previous time
    for ax in axes[:2]:
        top = ax.dataLim.y1  # not finite without lines
        # From zero, since constant forces would be magnified to their rounding errors otherwise.
        ax.set_ylim(0, 1.05 * top if np.isfinite(top) and top > 0 else 1)
    _bands(axes[2], t, names, bands)
    return axes


def _contact_axes(count: int) -> np.ndarray:
    """Two panels for forces and a low one for `count` bands."""
    low = 0.4 + 0.28 * count
    _, axes = pyplot().subplots(
        3,
        sharex=True,
        figsize=(6.4, 5.0 + low),
        height_ratios=(2.2, 2.2, low),
        layout="constrained",
    )
    return axes


def _bands(ax: Axes, t: np.ndarray, names: Sequence[str], bands: list[np.ndarray]) -> None:
    """Draw one band for each contact, coloured over the step before each time."""
    from matplotlib.patches import Patch

    for i, colors in enumerate(bands):
        later = colors[1:]
        starts = np.flatnonzero(np.r_[True, later[1:] != later[:-1]]) if len(later) else []
        for a, b in zip(starts, [*starts[1:], len(later)], strict=True):
            ax.broken_barh([(t[a], t[b] - t[a])], (i - 0.36, 0.72), color=later[a], linewidth=0)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlabel("t [s]")
    ax.margins(x=0.01)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)
    used = set(np.concatenate([colors[1:] for colors in bands]))
    labels = {**dict(zip(_BANDS, ("open", "stick", "slip"), strict=True)), _CLOSED: "closed"}
    ax.legend(
        handles=[Patch(color=c, label=label) for c, label in labels.items() if c in used],
        frameon=False,
        fontsize=9,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )


@checked
def plot_violation(
    mechanism: Mechanism, sol: Solution, axes: SeveralAxes | None = None
) -> np.ndarray:
    """Plot the largest violation of each joint over time [s], on logarithmic axes: |Phi| [m, or 1
    for angles], and |Phi'|, |Psi| [m/s, rad/s].

    **Returns:** the two axes, an array. **Raises:** `ImportError` without matplotlib; `ValueError`
    for batches."""
    motion = one_motion(sol)
    t = np.asarray(motion.t)
    found = violation(mechanism, motion)
    tiny = np.finfo(float).tiny
    panels = _panels(
        t,
        {
            kind: [
                # Exact zeros have no place on a logarithmic axis.
                (name, np.where(np.asarray(x) > tiny, np.asarray(x), np.nan))
                for name, x in table.items()
            ]
            for kind, table in (
                ("|Phi| [m, 1]", found.position),
                ("|Phi'|, |Psi| [m/s, rad/s]", found.velocity),
            )
        },
        axes,
    )
    for ax in panels:
        ax.set_yscale("log")
    return panels


def _panels(
    t: np.ndarray,
    curves: dict[str, list[tuple[str, np.ndarray]]],
    axes: SeveralAxes | None,
) -> np.ndarray:
    """Draw one panel for each kind of curve, one above the other."""
    if axes is None:
        height = 1.2 + 2.2 * len(curves)
        _, axes = pyplot().subplots(
            len(curves), sharex=True, squeeze=False, figsize=(6.4, height), layout="constrained"
        )
    axes = np.ravel(np.asarray(axes, object))
    if len(axes) != len(curves):
        raise ValueError(
            f"`axes` must be {len(curves)}, for {list(curves)}, but there are {len(axes)}."
        )
    for ax, (kind, lines) in zip(axes, curves.items(), strict=True):
        for i, (label, values) in enumerate(lines):
            color, dash = BODIES[i % len(BODIES)], "-" if i < len(BODIES) else "--"
            ax.plot(t, values, color=color, linestyle=dash, linewidth=1.5, label=label)
        ax.set_ylabel(kind)
        ax.grid(alpha=0.25, linewidth=0.6)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        ax.margins(x=0.01)
        _legend(ax)
    axes[-1].set_xlabel("t [s]")
    return axes


def _legend(ax: Axes) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))


@checked
def plot_workspace(
    mechanism: Mechanism,
    q: Float[Array, "*batch nq"],
    body: str,
    point: Vector = (0.0, 0.0, 0.0),
    ax: Axes | None = None,
) -> Axes:
    """Plot where a point of a body gets in many poses, in the plane of world axes in which these
    places extend the most: its workspace.

        found = mbd.analysis.kinematics(mechanism, state, ["hip", "knee"], angles, throw=False)
        mbd.plots.workspace(mechanism, found.q[found.ok], "foot")

    **Arguments:** `q`: coordinates of the poses, with any leading axes. `body`, `point`: the body,
    and the point in its frame [m]. `ax`: matplotlib axes, by default new.

    **Returns:** the axes.

    **Raises:** `ImportError` without matplotlib; `ValueError` for an unknown body and for no poses.
    """
    q = mechanism.checked_q(q).reshape(-1, mechanism.coordinates.nq)
    if not len(q):
        raise ValueError("`q` of workspace holds no poses.")
    places = np.asarray(mechanism.pose(q, body).point(jnp.asarray(point, q.dtype)))
    ax = given_or_new(ax, figsize=(5.2, 5.0))
    # The two axes of the largest extent, in their order.
    i, j = sorted(np.argsort(-np.ptp(places, axis=0), kind="stable")[:2])
    ax.plot(places[:, i], places[:, j], ".", color=BODIES[0], markersize=3)
    ax.set_xlabel(f"{'xyz'[i]} [m]")
    ax.set_ylabel(f"{'xyz'[j]} [m]")
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(f'Workspace of "{body}"', fontsize=10, loc="left")
    ax.grid(alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax
