"""Closing joints, with a report by name."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..._assemble import AssemblyOptions, AssemblyReport, assembled
from ..._compiler import compiled_quickly, is_known, need_known
from ..._inputs import at_least, checked, positive
from ..._printed import printed
from ..._raising import error_if
from ..._results import succeeded
from ..._system import State
from ..element import replaced
from ..joint_coordinates import joint_rates, joint_with_coordinates
from ..joints import AbstractConstraint, AbstractJoint
from ..mechanism import Mechanism
from ..placing import Placement
from ..relative import shortest
from ..stack import Stack, stacks
from .violation import quoted, rows_by_joint


@printed
@dataclasses.dataclass(frozen=True)
class JointClosure:
    """An `AssemblyReport` by joint; `print` it.

    **Fields:**

    - `open`: name of each joint that remained open -> largest remaining |Phi| [m, or 1 for angles].
    - `moving`: name of each joint with inconsistent velocities -> largest remaining |Phi'|, |Psi|
      [m/s, rad/s].
    - `rows`, `rank`: number of rows, and of independent ones.
    - `displacement`: weighted distance from the given q; `change`: weighted size of the change of
      the given v.
    - `successful`: whether all joints are closed.
    """

    open: dict[str, float]
    moving: dict[str, float]
    rows: int
    rank: int
    displacement: float
    change: float
    successful: bool

    def __str__(self) -> str:
        lines = [
            f"{'assembled' if self.successful else 'not assembled'}: moved by "
            f"{self.displacement:.3e}, velocities changed by {self.change:.3e}; "
            f"{self.rows} rows of rank {self.rank}"
        ]
        for name, left in self.open.items():
            lines.append(f'"{name}" remained open: |Phi| = {left:.3e}')
        for name, left in self.moving.items():
            lines.append(f'the velocities do not fit "{name}": |Phi\'|, |Psi| = {left:.3e}')
        return "\n".join(lines)


@checked
def joint_closure(mechanism: Mechanism, report: AssemblyReport) -> JointClosure:
    """Report how far each joint was closed, from `state.report` of `close_joints` or `assemble`.

    **Raises:** `ValueError` inside `jax.jit`, since the answer is made of names."""
    need_known(report.phi, "`joint_closure` gives names: call it outside `jax.jit` and `jax.vmap`.")
    phi, velocity = np.abs(report.phi), np.abs(report.velocity)
    rows = rows_by_joint(mechanism)
    return JointClosure(
        _largest(phi, np.asarray(report.open), rows),
        _largest(velocity, np.asarray(report.moving), rows),
        len(velocity),
        int(report.rank),
        float(report.displacement),
        float(report.change),
        bool(succeeded(report.result)),
    )


def _largest(left: np.ndarray, missed: np.ndarray, rows: dict[str, np.ndarray]) -> dict[str, float]:
    """Name of each joint with unsatisfied rows -> the largest residual in them."""
    own = {name: mine[mine < len(left)] for name, mine in rows.items()}
    own = {name: mine[missed[mine]] for name, mine in own.items()}
    return {name: float(np.max(left[mine])) for name, mine in own.items() if len(mine)}


@checked
def close_joints(
    mechanism: Mechanism,
    state: State | None = None,
    *,
    keep: Sequence[str] | None = None,
    throw: bool = True,
    weights: Annotated[ArrayLike | None, positive] = None,
    fixed: ArrayLike | Sequence[int] = (),
    fixed_velocities: ArrayLike | Sequence[int] = (),
    tolerance: Annotated[float | None, positive] = None,
    max_iterations: Annotated[int, at_least(1)] = 50,
) -> State:
    """Close all joints of a mechanism by moving its bodies as little as possible.

    This is `assemble` for mechanisms. Errors name the joints that cannot be closed, and joints can
    keep their coordinates.

        state = mbd.close_joints(mechanism)  # from the poses given
        state = mbd.close_joints(mechanism, mbd.place_bodies(mechanism, {"A": 0.3}, {"A": 6.0}))
        state = mbd.close_joints(mechanism, state, keep=["A"])

    **Arguments:**

    - `state`: where to begin, by default as the bodies were given.
    - `keep`: names of the joints whose coordinates and rates stay as they are in `state`. By
      default these are the coordinates and the rates given to `place_bodies`, if it made the state.
      `keep=()` keeps none. The state is then only an initial guess.
    - `throw`: raise if joints remain open.
    - The others as in `assemble`. `Mechanism.indices` gives components of v by name.

    **Returns:** a `State` with `report`, and with the counted `angles` of `state`.

    **Raises:** an error that names the joints that contradict each other, or those that cannot be
    kept. Inside `jax.jit` it is raised at run time and names only the joint that is open most.
    `ValueError` for joints to keep that have no coordinates.
    """
    given = mechanism.state() if state is None else state
    asked = given.report if isinstance(given.report, Placement) else Placement((), ())
    if keep is not None:
        asked = Placement(*2 * (tuple(keep),))
    q, v = mechanism.checked_q(given.q), mechanism.checked_v(given.v)
    if given.angles is not None:
        mechanism = mechanism.near(given.angles)
    held = None
    if asked.coordinates or asked.rates:
        held = holding(mechanism, q, v, asked.coordinates, asked.rates)
    options = AssemblyOptions(weights, fixed, fixed_velocities, tolerance, max_iterations)
    found = assembled(mechanism, held, q, v, given.t, options, throw=False)
    found = State(found.t, found.q, found.v, found.report, given.angles)
    if not throw:
        return found
    report: Any = found.report
    kept = [*dict.fromkeys((*asked.coordinates, *asked.rates))]
    failed = ~succeeded(report.result)
    if not is_known(report.phi):
        return _raised_at_run_time(mechanism, found, failed, kept)
    if failed:
        by_joint = joint_closure(mechanism, report)
        names = quoted(dict.fromkeys([*by_joint.open, *by_joint.moving]))
        what = f"The joints {names} cannot be closed together from the poses given"
        if not names:
            what = "The joints could be closed, but the search failed"
        if kept:
            what += (
                f" while {quoted(kept)} keep what was asked for (`keep=()` takes it for a guess)"
            )
        raise ValueError(
            f"{what}: they contradict one another, or the bodies are too far from where they fit. "
            f"Of what is left:\n{by_joint}"
        )
    return found


def _raised_at_run_time(mechanism, found, failed, kept):
    rows, report = rows_by_joint(mechanism), found.report
    left = jnp.concatenate([jnp.abs(report.phi), jnp.abs(report.velocity[report.phi.size :])])
    worst = jnp.stack([jnp.max(left[own], initial=0.0) for own in rows.values()])
    beside = f" while {quoted(kept)} keep what was asked for" if kept else ""
    messages = [
        f'Joint "{name}" cannot be closed{beside}: its violation is the largest.' for name in rows
    ]
    return error_if(found, failed, jnp.argmax(worst), messages)


class Held(AbstractConstraint):
    """Rows x - coordinates, with angles within half a turn, and x' - rates, for the coordinates x
    of a joint. `None` means no such rows."""

    name: str = eqx.field(static=True)
    joint: AbstractJoint
    coordinates: Float[Array, " coordinates"] | None
    rates: Float[Array, " coordinates"] | None

    @property
    def bodies(self):
        return self.joint.bodies

    @property
    def frames(self):
        return self.joint.frames

    def equations(self, poses, t):
        del t
        if self.coordinates is None:
            return jnp.zeros(0, poses[0].position.dtype)
        return shortest(self.joint.coordinates(*poses) - self.coordinates, self.joint.angles)

    def velocity_equations(self, poses, twists, t):
        del t
        if self.rates is None:
            return jnp.zeros(0, poses[0].position.dtype)
        (a, b), (twist_a, twist_b) = poses, twists
        return self.joint.rates(a, b, twist_a, twist_b) - self.rates


class Holding(eqx.Module):
    """From a mechanism to two with further rows: for its positions and for its velocities. They
    share the arrays of the mechanism, so that what both compute is compiled once."""

    coordinates: tuple[Stack, ...]
    rates: tuple[Stack, ...]

    def __call__(self, mechanism: Mechanism) -> tuple[Mechanism, Mechanism]:
        def beside(kinds):
            return replaced(mechanism, own_joints=(*mechanism.own_joints, *kinds))

        return beside(self.coordinates), beside(self.rates)


def holding(
    mechanism: Mechanism,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    coordinates: Sequence[str],
    rates: Sequence[str],
) -> Holding:
    """Rows that keep the `coordinates` of some joints and the `rates` of some as at (q, v)."""
    for name in (*coordinates, *rates):
        joint_with_coordinates(mechanism, name)
    return _holding(mechanism, q, v, tuple(coordinates), tuple(rates))


@compiled_quickly
def _holding(mechanism, q, v, coordinates, rates):
    def rows(name, x, w):
        joint = joint_with_coordinates(mechanism, name)
        return Held(name, replaced(joint, limits=None), x, w)

    return Holding(
        stacks([rows(name, mechanism.joint_coordinates(q, name), None) for name in coordinates]),
        stacks(
            [rows(name, None, joint_rates(mechanism, State(0.0, q, v), name)) for name in rates]
        ),
    )
