"""How many freedoms a mechanism has, and which of its rows say nothing new."""

import dataclasses
from typing import Annotated

import jax.numpy as jnp
import numpy as np

from ..._concrete import is_concrete
from ..._equations import equations
from ..._inputs import checked, positive
from ..._system import State
from ..mechanism import Mechanism
from .rows import dense_jacobian, quoted, rows_by_joint, tolerance_for


@dataclasses.dataclass(frozen=True)
class Dependency:
    """Joints whose rows depend on one another: closed chains, mostly.

    **Fields:**

    - `count`: how many of their rows are redundant.
    - `parts`: name of each joint -> size of its part, between 0 and the number of its rows: the
      sum over its rows of the diagonal of the projector onto the null space of J^T. The parts sum
      up to `count`.
    - `misfit`: |that projector times Phi| of these joints, [m, or 1 for angles]: what of their
      violation no small motion takes back. More than rounding tells that the rows contradict one
      another, as those of a loop that does not close.
    """

    count: int
    parts: dict[str, float]
    misfit: float


@dataclasses.dataclass(frozen=True)
class Mobility:
    """What `mobility` found; `print` it.

    **Fields:**

    - `freedoms`: independent velocities that the joints leave, nv - rank J.
    - `velocities`, `rows`, `rank`: nv = 6 bodies, the number of rows, and how many of them are
      independent.
    - `grubler`: nv - rows, the count of freedoms that takes all rows for independent.
    - `redundant`: (name of the joint, number of its row from 0) of the rows that add nothing to
      those before them, joint by joint in the order given. They can be dropped together without
      any change of the rank; another order of the joints would name others.
    - `dependencies`: a `Dependency` for each set of joints that are redundant together.
    - `indeterminate`: names of the joints whose reaction is not unique, because redundant rows
      share the load in any proportion; those of the other joints are.
    - `motions`: orthonormal basis of the velocities left, `(freedoms, nv)`.
    - `doubtful`: how many of the rows counted as independent are so by little: singular values of J
      between the two tolerances of `mobility`. Without them there are `freedoms + doubtful`
      freedoms.
    - `nearly`: a `Dependency` for each set of joints that these rows belong to.
    - `ratio`: the smallest singular value that was counted, relative to the largest.
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
            f"{_count(self.freedoms, 'freedom')}: {self.velocities} velocities - rank {self.rank}",
            f"{_count(self.rows, 'row')}, {self.rows - self.rank} redundant; Grübler's count: "
            f"{_count(self.grubler, 'freedom')}",
        ]
        rounding = 1e-8 if self.motions.dtype == np.float64 else 1e-4
        if self.redundant:
            dropped: dict[str, list[str]] = {}
            for name, row in self.redundant:
                dropped.setdefault(name, []).append(str(row))
            listed = "; ".join(f'"{name}" {", ".join(rows)}' for name, rows in dropped.items())
            lines.append(f"rows that add nothing to those before: {listed}")
        for dependency in self.dependencies:
            rows = _count(dependency.count, "redundant row")
            lines += _shared(rows, dependency, rounding)
        if self.doubtful:
            lines.append(
                f"in doubt: singular values down to {self.ratio:.1e} of the largest count; without "
                f"those that hardly do the rank is {self.rank - self.doubtful}, with "
                f"{_count(self.freedoms + self.doubtful, 'freedom')}"
            )
        for dependency in self.nearly:
            rows = _count(dependency.count, "nearly dependent row")
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

    It is the mobility at this instant. In a singular pose it is larger than along the motion, so
    take a pose in general position, or look at several; see `singularity`. Rows that are
    redundant are no mistake: the solvers of the core allow for them, the motion is right, and only
    some reactions are indeterminate.

    Whether rows are dependent is a matter of size where a loop is nearly closed, by 0.1 mm or
    1e-4 rad off, or a pose nearly singular. The count takes rows for independent down to a small
    `tolerance`, and down to `near`: where the two differ, both counts are given, with the joints,
    and with the misfit, which tells a loop that does not close from a pose near a singular one.
    Where rows do not fit together, `simulate` ends with `contradicting_rows`, unless its solver is
    told up to where they count as dependent, as by `mbd.Pseudoinverse(rtol=1e-3)`.

    **Arguments:**

    - `state`: where; default as the bodies were given. The joints should be closed there: beyond
      the tolerance an open joint makes redundant rows look independent.
    - `tolerance`: singular values below `tolerance` times the largest count as zero; default 1e-9
      (1e-4 in float32).
    - `near`: those below `near` times the largest are in doubt; default 1e-3 (3e-2 in float32).

    **Returns:** a `Mobility`.

    **Raises:** `ValueError` inside of `jax.jit` and the like, since the answer is made of counts
    and names.

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
    """The rows i of J with a y that ends there, J^T y = 0, y_i not 0 and y_j = 0 for j > i."""
    rest, chosen = null.copy(), []
    for i in reversed(range(len(rest))):
        size = np.linalg.norm(rest[i])
        if size > 1e-6:
            chosen.append(i)
            direction = rest[i] / size
            rest = rest - np.outer(rest @ direction, direction)
    return chosen[::-1]


def _dependencies(rows, null, phi) -> tuple[Dependency, ...]:
    """Joints are redundant together where the projector onto the null space couples them."""
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if abs(number) == 1 else f"{number} {noun}s"
