"""Which joints could not be closed, by name."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._assemble import AssemblyReport, assemble
from ..._checks import is_concrete
from ..._raising import error_if
from ..._results import RESULTS
from ..._system import State
from ..mechanism import Mechanism
from .rows import quoted, rows_by_joint


@dataclasses.dataclass(frozen=True)
class Assembly:
    """An `AssemblyReport` by joint; `print` it.

    **Fields:**

    - `open`: name of each joint that remained open -> largest |Phi| that is left [m, or 1 for
      angles].
    - `moving`: name of each joint whose velocities do not fit -> largest |Phi'|, |Psi| left
      [m/s, rad/s].
    - `rows`, `rank`: number of rows, and of independent ones.
    - `displacement`: weighted distance from the given q.
    - `successful`: whether all is closed.
    """

    open: dict[str, float]
    moving: dict[str, float]
    rows: int
    rank: int
    displacement: float
    successful: bool

    def __str__(self) -> str:
        lines = [
            f"{'assembled' if self.successful else 'not assembled'}: moved by "
            f"{self.displacement:.3e}; {self.rows} rows of rank {self.rank}"
        ]
        for name, left in self.open.items():
            lines.append(f'"{name}" remained open: |Phi| = {left:.3e}')
        for name, left in self.moving.items():
            lines.append(f'"{name}" is not at rest in itself: |Phi\'|, |Psi| = {left:.3e}')
        return "\n".join(lines)


def assembly(mechanism: Mechanism, report: AssemblyReport) -> Assembly:
    """What `assemble` found, by joint: `state.report` of `assemble(..., throw=False)`.

    **Raises:** `ValueError` inside of `jax.jit`, since the answer is made of names."""
    if not is_concrete(report.phi):
        raise ValueError("`assembly` gives names: call it outside of `jax.jit` and `jax.vmap`.")
    phi, velocity = np.asarray(report.phi), np.asarray(report.velocity)
    missed = np.asarray(report.unsatisfied)
    still_open, moving = {}, {}
    for name, own in rows_by_joint(mechanism).items():
        own = own[missed[own]]
        holonomic = own[own < len(phi)]
        if len(holonomic):
            still_open[name] = float(np.max(np.abs(phi[holonomic])))
        elif len(own):
            moving[name] = float(np.max(np.abs(velocity[own])))
    return Assembly(
        still_open,
        moving,
        len(missed),
        int(report.rank),
        float(report.displacement),
        bool(report.result == RESULTS.successful),
    )


def close_joints(
    mechanism: Mechanism,
    state: State | None = None,
    *,
    throw: bool = True,
    **options: Any,
) -> State:
    """`assemble` for mechanisms: moves the bodies as little as possible until all joints are
    closed, and tells by name which ones cannot be.

        state = mbd.close_joints(mechanism)                                  # from the poses given
        state = mbd.close_joints(mechanism, mbd.place(mechanism, {"crank": 0.3}))

    **Arguments:** `state`: where to begin; default as the bodies were given. `throw`: raise if
    joints remain open. `options`: `weights`, `fixed`, ... of `assemble`.

    **Returns:** a `State` with `report`.

    **Raises:** an error that names the joints that contradict one another; inside of `jax.jit` at
    run time, and only the one that is open most.
    """
    given = mechanism.state() if state is None else state
    found = assemble(mechanism, given.q, given.v, given.t, throw=False, **options)
    if not throw:
        return found
    report: Any = found.report
    if is_concrete(report.phi):
        by_joint = assembly(mechanism, report)
        if not by_joint.successful:
            names = quoted([*by_joint.open, *by_joint.moving]) or "none, but the search failed,"
            raise ValueError(
                f"The joints {names} cannot be closed together from the poses given: they "
                "contradict one another, or the bodies are too far from where they fit. Of what is "
                f"left:\n{by_joint}"
            )
        return found
    rows = rows_by_joint(mechanism)
    left = jnp.concatenate([jnp.abs(report.phi), jnp.abs(report.velocity[report.phi.size :])])
    worst = jnp.stack([jnp.max(left[own], initial=0.0) for own in rows.values()])
    messages = [f'Joint "{name}" cannot be closed: its violation is the largest.' for name in rows]
    failed = report.result != RESULTS.successful
    return error_if(found, failed, jnp.argmax(worst), messages)
