"""The number of freedoms of a mechanism, and its redundant rows."""

import dataclasses
from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..._concrete import is_concrete
from ..._equations import equations
from ..._inputs import checked, positive
from ..._printed import counted, printed
from ..._system import State
from ..mechanism import Mechanism
from .rows import dense_jacobian, quoted, rows_by_joint, tolerance_for


@printed
@dataclasses.dataclass(frozen=True)
class Dependency:
    """Joints whose rows depend on each other, mostly in closed chains.

    **Fields:**

    - `count`: number of redundant rows among them.
    - `parts`: name of each joint -> size of its part, between 0 and the number of its rows. It is
      the sum over its rows of the diagonal of the projector onto the null space of J^T. The
      parts add up to `count`.
    - `misfit`: |that projector times Phi| of these joints [m, or 1 for angles]: the part of their
      violation that no small motion corrects. If it exceeds rounding, the rows contradict each
      other, as those of a loop that does not close.
    """

    count: int
    parts: dict[str, float]
    misfit: float

    def __str__(self) -> str:
        parts = ", ".join(f'"{name}" {part:.2f}' for name, part in self.parts.items())
        return f"{counted(self.count, 'redundant row')} of {parts}; misfit {self.misfit:.1e}"


@printed
@dataclasses.dataclass(frozen=True)
class Mobility:
    """The result of `mobility`; `print` it.

    **Fields:**

    - `freedoms`: number of independent velocities that the joints allow, nv - rank J.
    - `velocities`, `rows`, `rank`: nv = 6 bodies (3 in a plane), the number of rows, and that
      of independent ones.
    - `grubler`: nv - rows, the number of freedoms if all rows were independent.
    - `redundant`: (name of the joint, number of its row from 0) of the rows that depend on those
      before them, joint by joint in the order given. All of them can be dropped without a change of
      the rank. Another order of the joints would name others.
    - `dependencies`: a `Dependency` for each set of joints that are redundant together.
    - `indeterminate`: names of the joints whose reactions are not unique, because redundant rows
      may share the load in any proportion. Those of the other joints are unique.
    - `motions`: orthonormal basis of the allowed velocities, `(freedoms, nv)`.
    - `doubtful`: number of rows that hardly count as independent: singular values of J between the
      two tolerances of `mobility`. Without them there are `freedoms + doubtful` freedoms.
    - `nearly`: a `Dependency` for each set of joints that these rows belong to.
    - `ratio`: the smallest singular value that counts, relative to the largest.
    """

    freedoms: int
    velocities: int
    rows: int
    rank: int
    grubler: int
    redundant: tuple[tuple[str, int], ...]
    dependencies: tuple[Dependency, ...]
    indeterminate: tuple[str, ...]
    motions: np.ndarray = dataclasses.field(repr=False)
    doubtful: int
    nearly: tuple[Dependency, ...]
    ratio: float

    def __str__(self) -> str:
        lines = [
            f"{counted(self.freedoms, 'freedom')}: {self.velocities} velocities - rank {self.rank}",
            f"{counted(self.rows, 'row')}, {self.rows - self.rank} redundant; Grübler's count: "
            f"{counted(self.grubler, 'freedom')}",
        ]
        rounding = 1e-8 if self.motions.dtype == np.float64 else 1e-4
        if self.redundant:
            dropped: dict[str, list[str]] = {}
            for name, row in self.redundant:
                dropped.setdefault(name, []).append(str(row))
            listed = "; ".join(f'"{name}" {", ".join(rows)}' for name, rows in dropped.items())
            lines.append(f"rows that add nothing to those before: {listed}")
        for dependency in self.dependencies:
            rows = counted(dependency.count, "redundant row")
            lines += _shared(rows, dependency, rounding)
        if self.doubtful:
            lines.append(
                f"in doubt: singular values down to {self.ratio:.1e} of the largest count; without "
                f"those that hardly do the rank is {self.rank - self.doubtful}, with "
                f"{counted(self.freedoms + self.doubtful, 'freedom')}"
            )
        for dependency in self.nearly:
            rows = counted(dependency.count, "nearly dependent row")
            lines += _shared(rows, dependency, rounding)
        if self.indeterminate:
            lines.append(f"reactions not unique: {quoted(self.indeterminate)}")
        return "\n".join(lines)


@checked
def mobility(
    mechanism: Mechanism,
    state: State | None = None,
    *,
    tolerance: Annotated[float | None, positive] = None,
    near: Annotated[float | None, positive] = None,
) -> Mobility:
    """Count the freedoms of a mechanism in a pose, and name its redundant rows by joint,

        freedoms = nv - rank J,    J^T y = 0 for as many independent y as rows are redundant.

    This is the instantaneous mobility. In a singular pose it is larger than along the motion, so
    take a pose in general position, or several; see `singularity`. Redundant rows are no mistake:
    the solvers allow them, the motion is right, and only some reactions are indeterminate.

    Near a singular pose, or where a loop is nearly closed, by 0.1 mm or 1e-4 rad off, the
    dependence of rows is a matter of size. Rows are counted as independent down to a small
    `tolerance`, and again down to `near`. Where the two differ, both counts are given, with the
    joints and the misfit. The misfit distinguishes a loop that does not close from a pose near a
    singular one. Where rows do not fit together, `simulate` ends with `contradicting_rows`, unless
    its solver has a limit up to which they count as dependent: `mbd.Pseudoinverse(rtol=1e-3)`.

    **Arguments:**

    - `state`: the pose, by default as the bodies were given. The joints should be closed there: an
      open joint, beyond the tolerance, makes redundant rows look independent.
    - `tolerance`: singular values below `tolerance` times the largest count as zero; default 1e-9
      (1e-4 in float32).
    - `near`: those below `near` times the largest are in doubt; default 1e-3 (3e-2 in float32).

    **Returns:** a `Mobility`.

    **Raises:** `ValueError` inside `jax.jit` and the like, since the answer has counts and names.

    Reference: Wehage and Haug (1982), Generalized coordinate partitioning, J. Mech. Design 104;
    Wojtyra (2009), Joint reactions in rigid body mechanisms with dependent constraints, Mech.
    Mach. Theory 44.
    """
    state = mechanism.state() if state is None else state
    if not is_concrete(state.q):
        raise ValueError(
            "`mobility` gives counts and names, so it needs known numbers: call it outside of "
            "`jax.jit` and `jax.vmap`. `singularity` works there."
        )
    J = np.asarray(dense_jacobian(mechanism, state.t, state.q, state.v))
    phi = np.zeros(len(J))
    t = jnp.asarray(state.t, state.q.dtype)
    holonomic = np.asarray(equations(mechanism).positions(t, state.q))
    phi[: len(holonomic)] = holonomic
    rows = rows_by_joint(mechanism)
    nc, nv = J.shape
    left, values, right = np.linalg.svd(J)
    largest = max(values, default=0.0)
    limit = tolerance_for(tolerance, J.dtype) * largest
    if near is None:
        near = 1e-3 if J.dtype == np.float64 else 3e-2
    rank, sure = int(np.sum(values > limit)), int(np.sum(values > max(limit, near * largest)))
    null = left[:, rank:]  # J^T null = 0
    order = [(name, i) for name, indices in rows.items() for i in range(len(indices))]
    where = np.array([rows[name][i] for name, i in order], int)
    dropped = _dependent_on_earlier(null[where])
    return Mobility(
        freedoms=nv - rank,
        velocities=nv,
        rows=nc,
        rank=rank,
        grubler=nv - nc,
        redundant=tuple(order[i] for i in dropped),
        dependencies=_dependencies(rows, null, phi),
        indeterminate=tuple(
            name
            for name, own in rows.items()
            if null.size and np.max(np.abs(J[own].T @ null[own]), initial=0.0) > 1e3 * limit
        ),
        motions=right[rank:],
        doubtful=rank - sure,
        nearly=_dependencies(rows, left[:, sure:rank], phi),
        ratio=float(values[rank - 1] / largest) if rank else 0.0,
    )


def _dependent_on_earlier(null: np.ndarray) -> list[int]:
    """Rows i of J with a y that ends there: J^T y = 0, y_i not 0, and y_j = 0 for j > i."""
    rest, chosen = null.copy(), []
    for i in reversed(range(len(rest))):
        size = np.linalg.norm(rest[i])
        if size > 1e-6:
            chosen.append(i)
            direction = rest[i] / size
            rest = rest - np.outer(rest @ direction, direction)
    return chosen[::-1]


def _dependencies(rows, null, phi) -> tuple[Dependency, ...]:
    """One `Dependency` for each set of joints that the projector onto the null space couples."""
    share, left_open = np.sum(null**2, axis=1), null @ (null.T @ phi)
    parts = {name: float(np.sum(share[own])) for name, own in rows.items()}
    left = [name for name, part in parts.items() if part > 1e-6]
    found = []
    while left:
        group, fresh = [], [left.pop(0)]
        while fresh:
            group.append(fresh.pop())
            own = null[rows[group[-1]]]
            coupled = [m for m in left if np.max(np.abs(own @ null[rows[m]].T)) > 1e-6]
            left = [m for m in left if m not in coupled]
            fresh += coupled
        ranked = {name: parts[name] for name in rows if name in group}
        misfit = np.sqrt(sum(np.sum(left_open[rows[name]] ** 2) for name in ranked))
        found.append(Dependency(round(sum(ranked.values())), ranked, float(misfit)))
    return tuple(found)


def _shared(rows: str, dependency: Dependency, rounding: float) -> list[str]:
    parts = ", ".join(f'"{name}" {part:.2f}' for name, part in dependency.parts.items())
    lines = [f"{rows} shared by the joints (with their parts) {parts}"]
    if dependency.misfit > rounding:
        misfit = f"{dependency.misfit:.1e}"
        lines.append(f"these do not fit together by {misfit}, which no small motion takes back")
    return lines
