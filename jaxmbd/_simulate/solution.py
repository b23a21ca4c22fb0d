"""The result of a simulation."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._compiler import picked
from .._printed import counted, in_a_line, judged, largest, printed, span
from .._results import RESULTS
from .._system import AbstractStates, State


@printed
class ContactLoads(NamedTuple):
    """The loads of contacts in all steps from the previous saved time, or the start of the motion,
    to each saved time. The components are as in `Solution.contact_force`, along the axes of the
    contact in each step.

    **Fields**, all of shape `(ns, contacts, d)`:

    - `impulse`: the sum of impulses [N s]. Its sum over all saved times is the impulse of the whole
      motion, whichever times are saved.
    - `mean`: the impulse divided by the duration [N]; 0 for no duration.
    - `peak`: the forces in the step in which the normal force of the contact was the largest [N],
      also if only a part of this step is in the interval. For an impact it is the impulse divided
      by the step.
    """

    impulse: Float[Array, " *batch ns contacts d"]
    mean: Float[Array, " *batch ns contacts d"]
    peak: Float[Array, " *batch ns contacts d"]

    def __str__(self) -> str:
        size = f"{self.mean.shape[-2]} contacts at {self.mean.shape[-3]} times"
        return (
            f"loads of {size}: mean forces up to {largest(self.mean):.6g} N, peaks up to "
            f"{largest(self.peak):.6g} N"
        )


@printed
class PieceLoads(NamedTuple):
    """The loads on the pieces of `NearContacts` in all steps from the previous saved time, or the
    start of the motion, to each saved time: sums of the normal forces of all contacts of a piece,
    which do not cancel each other where it is squeezed. Friction is left out.

    **Fields**, all of shape `(ns, pieces)`, with the pieces in the order of
    `NearContacts.body_names`, those of one element after those of another:

    - `impulse`: the sum of normal impulses [N s].
    - `mean`: the impulse divided by the duration [N]; 0 for no duration.
    - `peak`: the largest sum in a step [N], also if only a part of this step is in the interval.
      For a blow it is the impulse divided by the step.
    """

    impulse: Float[Array, " *batch ns pieces"]
    mean: Float[Array, " *batch ns pieces"]
    peak: Float[Array, " *batch ns pieces"]

    def __str__(self) -> str:
        size = f"{self.mean.shape[-1]} pieces at {self.mean.shape[-2]} times"
        return (
            f"loads on {size}: mean normal forces up to {largest(self.mean):.6g} N, peaks up to "
            f"{largest(self.peak):.6g} N"
        )


@printed
class Solution(AbstractStates):
    """The motion at the saved times, with its verdict.

    **Fields:**

    - `t`: saved times, shape `(ns,)` [s].
    - `q`, `v`: coordinates and velocities, shapes `(ns, nq)`, `(ns, nv)`.
    - `multipliers`: lam, shape `(ns, nc)`, holonomic rows first; the generalised reaction is
      J^T lam. If rows are dependent, only J^T lam is unique, and lam has the least norm.
    - `phi_norm`, `phidot_norm`: largest |Phi| and |(Phi', Psi)| over the rows, shape `(ns,)`.
    - `ys`: the values of `SaveAt(fn=...)`, in place of the fields above, which are then `None`.
    - `contact_force`: of each contact the normal force, then friction along its tangents and
      further components, as means over the step before, shape `(ns, contacts, d)` [N]; `None` for
      methods without contacts.
    - `contact_loads`: the `ContactLoads` since the previous saved time; `None` for methods without
      contacts, and with `NearContacts`, whose contacts have no fixed places.
    - `piece_loads`: with `NearContacts`, the `PieceLoads` since the previous saved time.
    - `contact_pairs`: of each contact of `NearContacts` the numbers of the pieces a and b and of
      the point, shape `(ns, contacts, 3)`; -1 for other contacts, and for empty places. `None` for
      mechanisms without any.
    - `contact_residual`: the largest residual of the contact problems up to that time, shape
      `(ns,)` [m/s].
    - `active`: which rows acted in the step before, shape `(ns, nc)`; `None` for a system without
      a `switch`.
    - `angles`: the angles whose turns are counted, shape `(ns, angles)` [rad].
      Scalar coordinates and torsion springs have such angles, which poses give up to whole turns.
      `None` without any.
    - `z`: the internal states of the system, shape `(ns, nz)`; `None` for a system without any.
    - `stats`: numbers of steps: `"num_steps"` in all; with `Located(n)`, `"unlocated_steps"` with
      more than n impacts.
    - `result`: a member of `RESULTS`. After a failure the state stays at the last good one, so that
      every number is finite.
    """

    t: Float[Array, " *batch ns"]
    q: Float[Array, " *batch ns nq"] | None
    v: Float[Array, " *batch ns nv"] | None
    multipliers: Float[Array, " *batch ns nc"] | None
    phi_norm: Float[Array, " *batch ns"] | None
    phidot_norm: Float[Array, " *batch ns"] | None
    ys: Any
    stats: dict[str, PyTree]
    result: RESULTS
    contact_force: Float[Array, " *batch ns contacts d"] | None = None
    contact_residual: Float[Array, " *batch ns"] | None = None
    contact_loads: ContactLoads | None = None
    active: Bool[Array, " *batch ns nc"] | None = None
    angles: Float[Array, " *batch ns angles"] | None = None
    contact_pairs: Int[Array, " *batch ns contacts 3"] | None = None
    piece_loads: PieceLoads | None = None
    z: Float[Array, " *batch ns nz"] | None = None

    def __str__(self) -> str:
        shape = self.t.shape[:-1]
        many = f"{int(np.prod(shape))} motions" if shape else "motion"
        rows = [
            f"{many} from {span(self.t, 's')}, {counted(self.t.shape[-1], 'saved time')}",
            judged(self.result, "successful", "failed"),
        ]
        if self.phi_norm is not None and self.phidot_norm is not None:
            rows.append(f"largest |Phi| {largest(self.phi_norm):.1e}")
            rows[-1] += f", |Phi'| {largest(self.phidot_norm):.1e}"
        if self.contact_residual is not None:
            rows.append(f"largest residual of contacts {largest(self.contact_residual):.1e} m/s")
        rows += [f"{name.replace('_', ' ')}: {in_a_line(x)}" for name, x in self.stats.items()]
        return "\n".join(rows)

    def state(self, index: int = -1) -> State:
        """The saved state at `index`; the last one by default."""
        _, *both = self.points()
        angles = None if self.angles is None else picked(self.angles, (..., index, slice(None)))
        q, v = (picked(x, (..., index, slice(None))) for x in both)
        z = None if self.z is None else picked(self.z, (..., index, slice(None)))
        return State(picked(self.t, (..., index)), q, v, angles=angles, z=z)
