"""The graph of bodies and joints."""

import itertools
from typing import Any

import numpy as np

from ..._inputs import checked
from ..._system import State
from ..._types import Axes
from ..appearance import BODIES, FORCE, GROUND_FILL, INK
from ..body import GROUND
from ..element import Groups
from ..mechanism import Mechanism
from ..reports import mobility
from .drawing import given_or_new, pyplot

_TREE, _LOOP, _REDUNDANT = INK, BODIES[0], FORCE


@checked
def constraint_graph(
    mechanism: Mechanism,
    state: State | None = None,
    ax: Axes | None = None,
    *,
    labels: bool = True,
    forces: bool = False,
) -> Axes:
    """Draw the graph of a mechanism: bodies as discs, joints as lines between them with their
    numbers of rows. Joints in closed loops are blue, and red if they share
    redundant rows. The rows that can be dropped are counted at the joints that `mobility` names.

    **Arguments:** `state`: the pose in which rows are counted, by default as the bodies were given.
    `ax`: flat matplotlib axes, by default new. `labels`: write the names of the joints. `forces`:
    show force elements between bodies as dotted lines.

    **Returns:** the axes. **Raises:** `ImportError` without matplotlib."""
    pyplot()
    found = mobility(mechanism, state)
    names = [*mechanism.body_stack.names, GROUND]
    rows = {name: 0 for kind in mechanism.joint_stacks for name in kind.names}
    for kind, count in mechanism.row_counts():
        for name in kind.names:
            rows[name] += count
    sharing = {name for dependency in found.dependencies for name in dependency.parts}
    dropped = {name: sum(1 for owner, _ in found.redundant if owner == name) for name in rows}
    joints = [(joint.name, joint.bodies) for joint in mechanism.joints]
    loops = in_loops(joints)
    at = layout(names, [bodies for _, bodies in joints])
    ax = given_or_new(ax, figsize=(6.4, 4.8))
    pairs: dict[tuple, int] = {}
    for name, bodies in joints:
        color = _REDUNDANT if name in sharing else _LOOP if name in loops else _TREE
        text = f"{name}: {rows[name]}" if labels else f"{rows[name]}"
        if dropped[name]:
            text += f"\n{dropped[name]} redundant"
        several = pairs.get(tuple(sorted(bodies)), 0)
        pairs[tuple(sorted(bodies))] = several + 1
        middle = _edge(ax, [at[body] for body in bodies], several, color=color, linewidth=2.2)
        box = dict(boxstyle="round,pad=0.2", facecolor="white", edgecolor="none", alpha=0.85)
        ax.annotate(
            text, tuple(middle), bbox=box, ha="center", va="center", fontsize=8, color=color,
            zorder=3,
        )  # fmt: skip
    if forces:
        for force in mechanism.forces:
            if len(set(force.bodies)) > 1:
                points = [at[body] for body in force.bodies]
                _edge(ax, points, 0, color=FORCE, linewidth=1.2, linestyle=":")
    colors = {b.name: BODIES[i % len(BODIES)] for i, b in enumerate(mechanism.bodies)}
    for name in names:
        if name == GROUND and not any(GROUND in bodies for _, bodies in joints):
            continue
        style = dict(edgecolor=INK, facecolor=colors.get(name, GROUND_FILL))
        ax.scatter(*at[name], s=420, zorder=4, marker="s" if name == GROUND else "o", **style)
        ax.annotate(
            name, tuple(at[name]), xytext=(0, -17), textcoords="offset points",
            ha="center", va="top", fontsize=9, zorder=5,
        )  # fmt: skip
    _legend(ax, sharing, loops, found)
    ax.set_aspect("equal")
    ax.margins(0.2)
    ax.set_axis_off()
    return ax


def in_loops(joints: list[tuple[str, tuple[str, ...]]]) -> set[str]:
    """Names of the joints without which all their bodies stay connected."""
    found = set()
    for i, (name, bodies) in enumerate(joints):
        groups = Groups()
        for j, (_, others) in enumerate(joints):
            if j != i:
                for a, b in itertools.pairwise(others):
                    groups.join(a, b)
        # Joining bodies that are connected already returns false.
        apart = [groups.join(a, b) for a, b in itertools.pairwise(bodies)]
        if len(set(bodies)) > 1 and not any(apart):
            found.add(name)
    return found


def layout(names: list[str], edges: list[tuple[str, ...]]) -> dict[str, np.ndarray]:
    """Positions of nodes whose distances are near the numbers of edges between them.

    Reference: Gansner, Koren and North (2005), Graph drawing by stress majorization, Graph Drawing
    2004."""
    from scipy.sparse.csgraph import shortest_path

    n, index = len(names), {name: i for i, name in enumerate(names)}
    joined = np.zeros((n, n))
    for bodies in edges:
        for a in bodies:
            for b in bodies:
                joined[index[a], index[b]] = a != b
    distance = shortest_path(joined, unweighted=True)
    longest = np.max(distance[np.isfinite(distance)], initial=1.0)
    distance = np.where(np.isfinite(distance), distance, 0.5 * longest + 1.5)
    weight = np.where(distance > 0, 1 / np.maximum(distance, 1e-9) ** 2, 0.0)
    phi = 2 * np.pi * np.arange(n) / n
    x = np.stack([np.cos(phi), np.sin(phi)], axis=1) * longest / 2
    laplacian = np.diag(weight.sum(axis=1)) - weight
    inverse = np.linalg.pinv(laplacian)
    for _ in range(200):
        d = np.linalg.norm(x[:, None] - x[None], axis=2)
        ratio = -weight * distance / np.maximum(d, 1e-9)
        np.fill_diagonal(ratio, 0.0)
        np.fill_diagonal(ratio, -ratio.sum(axis=1))
        x = inverse @ ratio @ x
    return {name: x[index[name]] for name in names}


def _edge(ax: Axes, points: list[np.ndarray], several: int, **style: Any) -> np.ndarray:
    """Draw a line between two points, the next ones between the same two beside it, or a star of
    more points, and return where its label belongs."""
    if len(points) != 2:
        middle = np.mean(points, axis=0)
        for point in points:
            ax.plot(*np.stack([point, middle], axis=1), zorder=1, **style)
        return middle
    a, b = points
    s = np.linspace(0, 1, 31)[:, None]
    d = b - a
    bend = 0.28 * ((several + 1) // 2) * (-1) ** several
    curve = a + s * d + bend * 4 * s * (1 - s) * np.array([-d[1], d[0]])
    ax.plot(*curve.T, zorder=1, **style)
    return curve[15]


def _legend(ax: Axes, sharing: set, loops: set, found: Any) -> None:
    from matplotlib.lines import Line2D

    kinds = [(_TREE, "joint, with its number of rows", True)]
    kinds += [(_LOOP, "in a closed loop", bool(loops - sharing))]
    kinds += [(_REDUNDANT, "shares redundant rows", bool(sharing))]
    handles = [Line2D([], [], color=c, linewidth=2.2, label=x) for c, x, shown in kinds if shown]
    ax.legend(handles=handles, frameon=False, fontsize=9, loc="upper center",
              bbox_to_anchor=(0.5, 0.0), ncols=len(handles))  # fmt: skip
    redundant = found.rows - found.rank
    ax.set_title(
        f"{found.freedoms} freedom{'s' * (found.freedoms != 1)}, {found.rows} rows, "
        f"{redundant} redundant",
        fontsize=10, loc="left",
    )  # fmt: skip
