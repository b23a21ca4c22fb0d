"""Freedoms of a mechanism: their number, redundant rows, singular poses, transmission angles."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._compiler import array_namespace, need_known, to_jax
from ..._coordinates import cross, dot
from ..._equations import equations
from ..._inputs import checked, positive
from ..._printed import counted, printed
from ..._system import AbstractStates, State
from ..batching import batched
from ..mechanism import Mechanism
from .violation import dense_jacobian, points_of, quoted, rows_by_joint, tolerance_for


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
      other, as in a loop that does not close.
    """

    count: int
    parts: dict[str, float]
    misfit: float

    def __str__(self) -> str:
        rows = counted(self.count, "redundant row")
        return f"{rows} of {self._listed()}; misfit {self.misfit:.1e}"

    def _listed(self) -> str:
        return ", ".join(f'"{name}" {part:.2f}' for name, part in self.parts.items())

    def shared(self, rows: str, rounding: float) -> list[str]:
        """What these `rows` share, in lines."""
        lines = [f"{rows} shared by the joints (with their parts) {self._listed()}"]
        if self.misfit > rounding:
            misfit = f"{self.misfit:.1e}"
            lines.append(f"these do not fit together by {misfit}, which no small motion takes back")
        return lines


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
      may share the load in any proportion. Reactions of the other joints are unique.
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
            lines += dependency.shared(counted(dependency.count, "redundant row"), rounding)
        if self.doubtful:
            lines.append(
                f"in doubt: singular values down to {self.ratio:.1e} of the largest count; without "
                f"those that hardly do the rank is {self.rank - self.doubtful}, with "
                f"{counted(self.freedoms + self.doubtful, 'freedom')}"
            )
        for dependency in self.nearly:
            lines += dependency.shared(counted(dependency.count, "nearly dependent row"), rounding)
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
    need_known(
        state.q,
        "`mobility` gives counts and names, so it needs known numbers: call it outside of "
        "`jax.jit` and `jax.vmap`. `singularity` works there.",
    )
    J = np.asarray(dense_jacobian(mechanism, state.t, state.q, state.v))
    phi = np.zeros(len(J))
    t = to_jax(state.t, state.q.dtype)
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


@printed
class Singularity(eqx.Module):
    """The result of `singularity`; `print` it.

    **Fields:**

    - `ratio`: the singular value of J that vanishes in singular poses, relative to the largest one,
      shape `(*batch)`. It is differentiable where it is a simple one.
    - `rank`: number of singular values that do not vanish in each pose, `(*batch)`.
    - `general`: the rank in general position, to which the ratio belongs.
    - `parts`: name of each joint -> its part in the rows that become dependent, between 0 and 1,
      `(*batch)`. The parts add up to 1.
    - `moving`: name of each body -> its part in the motion that becomes free, `(*batch)`.
    """

    ratio: Float[Array, "*batch"]
    rank: Int[Array, "*batch"]
    general: Int[Array, ""]
    parts: dict[str, Float[Array, "*batch"]]
    moving: dict[str, Float[Array, "*batch"]]

    def __str__(self) -> str:
        ratio = np.ravel(np.asarray(self.ratio))
        i = int(np.argmin(ratio))
        where = f" in pose {i} of {len(ratio)}" if len(ratio) > 1 else ""

        def listed(table):
            values = {name: np.ravel(np.asarray(x))[i] for name, x in table.items()}
            ranked = sorted(values.items(), key=lambda item: -item[1])
            return ", ".join(f'"{name}" {x:.2f}' for name, x in ranked if x > 0.005)

        return "\n".join(
            [
                f"smallest ratio of singular values {ratio[i]:.3e}{where}; rank "
                f"{np.ravel(np.asarray(self.rank))[i]}, in general {int(self.general)}",
                f"joints that take part: {listed(self.parts)}",
                f"bodies that become free: {listed(self.moving)}",
            ]
        )


@checked
def singularity(
    mechanism: Mechanism,
    state: AbstractStates,
    *,
    rank: int | None = None,
    length: float = 1.0,
    tolerance: float | None = None,
) -> Singularity:
    """Measure the distance to a singular pose. There rows that are independent elsewhere become
    dependent, and motions that are blocked elsewhere become free:

        ratio = sigma_r / sigma_1,    r = rank J in general position,

    with the singular values sigma_1 >= sigma_2 >= ... of J. Rows that are redundant everywhere do
    not count. The ratio is 0 in a singular pose and about proportional to the distance near it.
    Below about 1e-3 expect large reactions, and use `Pseudoinverse`.

        report = mbd.reports.singularity(mechanism, sol)     # along a motion

    **Arguments:**

    - `state`: a `State` or a `Solution`, with any leading axes. Velocities matter only for rows
      that are not linear in them.
    - `rank`: r, by default the largest rank among these poses. Give it, from `mobility` elsewhere,
      for a single pose that may be singular itself, and inside `jax.vmap`.
    - `length`: [m], by which small rotations are multiplied to compare them with displacements.
      Choose the size of the mechanism.
    - `tolerance`: as in `mobility`.

    **Returns:** a `Singularity`. `parts` and `moving` are not differentiated. They are meaningless
    where several singular values coincide, as in the singular pose of a mechanism with redundant
    rows or other freedoms; look at neighbouring poses.

    Reference: Gosselin and Angeles (1990), Singularity analysis of closed-loop kinematic chains,
    IEEE Trans. Robotics and Automation 6.
    """
    t, q, v = points_of(mechanism, state)
    names, rows = mechanism.body_stack.names, rows_by_joint(mechanism)
    tolerance = tolerance_for(tolerance, q.dtype)
    ratio, ranks, general, left, right = _singular(mechanism, t, q, v, rank, length, tolerance)
    xp = array_namespace(left, right)
    left, right = xp.asarray(left), xp.asarray(right)
    motion = right.reshape(*right.shape[:-1], -1, len(names))
    return Singularity(
        ratio,
        ranks,
        general,
        {name: to_jax(xp.sum(left[..., own] ** 2, axis=-1)) for name, own in rows.items()},
        {name: to_jax(xp.sum(motion[..., i] ** 2, axis=-1)) for i, name in enumerate(names)},
    )


@eqx.filter_jit
def _singular(mechanism, t, q, v, rank, length, tolerance) -> tuple[Array, ...]:
    parts = mechanism.indices(mechanism.body_stack.names[0])
    counts = np.array([parts.linear.size, parts.angular.size]) * len(mechanism.body_stack)
    weights = np.repeat([1.0, 1 / length], counts)
    weights = jnp.asarray(weights, q.dtype)
    jacobian = lambda t, q, v: dense_jacobian(mechanism, t, q, v) * weights[None]  # noqa: E731
    J = batched(jacobian, (t, 0), (q, 1), (v, 1))
    if 0 in J.shape[-2:]:
        raise ValueError("A mechanism without joints has no singular poses.")
    # The derivative of the values alone needs no differences of singular values.
    values = jnp.linalg.svd(J, compute_uv=False)
    left, _, right = jnp.linalg.svd(jax.lax.stop_gradient(J), full_matrices=False)
    ranks = jnp.sum(values > tolerance * values[..., :1], axis=-1)
    general = jnp.max(ranks) if rank is None else jnp.asarray(rank, ranks.dtype)
    i = general - 1
    pick = lambda x, axis: jnp.take(x, i, axis=axis)  # noqa: E731
    return pick(values, -1) / values[..., 0], ranks, general, pick(left, -1), pick(right, -2)


@checked
def transmission_angle(
    mechanism: Mechanism, state: AbstractStates, pins: Sequence[str]
) -> Float[Array, "*batch"]:
    """The angle between coupler and output of a linkage [rad], in [0, pi]. At pi/2 all the force of
    the coupler turns the output. Near 0 and pi it only loads the bearings: keep the angle between
    40 and 140 degrees.

        angle = mbd.reports.transmission_angle(mechanism, found, ["A", "B", "D"])

    **Arguments:**

    - `state`: a `State`, a `Solution`, or the result of `analysis.kinematics`.
    - `pins`: names of three joints: between crank and coupler, between coupler and output, and
      between output and ground.

    **Returns:** the angle at the second pin between the lines to the other two. Differentiable,
    except at 0 and pi.

    **Raises:** `ValueError` for unknown joints and unless there are three.

    Reference: Alt (1932), Der Uebertragungswinkel und seine Bedeutung fuer das Konstruieren
    periodischer Getriebe.
    """
    if len(pins) != 3:
        raise ValueError(f"`pins` must name three joints, but are {list(pins)}.")
    for name in pins:
        mechanism.joint(name)
    return _angle(mechanism, points_of(mechanism, state)[1], tuple(pins))


@eqx.filter_jit
def _angle(mechanism: Mechanism, q: Array, pins: tuple[str, ...]) -> Array:
    def one(q):
        a, b, d = (mechanism.frames(mechanism.joint(name), q)[0].position for name in pins)
        coupler, output = a - b, d - b
        across = cross(coupler, output)
        square = dot(across, across)
        apart = square > 0
        size = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)
        return jnp.atan2(size, dot(coupler, output))

    return batched(one, (q, 1))
