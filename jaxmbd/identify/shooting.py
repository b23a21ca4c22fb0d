"""Where simulations start: the division of records into parts, and their initial states."""

import abc
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._assemble import assemble
from .._compiler import as_one_program, picked, to_jax
from .._equations import equations
from .._extensible import Extensible
from .._inputs import Numbers, at_least, checked, positive, positive_or_infinite
from .._linalg import dense
from .._results import RESULTS
from .._search import nonzero, redundancy
from .._step import near
from .._system import AbstractSystem, State
from .record import MeasuredInput, Record


@checked
class UnknownStart(eqx.Module):
    """The initial state of each record is found as well. It has two free numbers for each degree of
    freedom, along the admissible directions at its guess.

    **Fields:**

    - `position`, `velocity`: typical changes of q (+) N p and v, which are the units of the search.
    - `sigma_position`, `sigma_velocity`: the standard deviations of the guess, if they are known;
      `None` otherwise.
    """

    position: Annotated[Numbers, positive] = 1.0
    velocity: Annotated[Numbers, positive] = 1.0
    sigma_position: Annotated[Numbers, positive_or_infinite] | None = None
    sigma_velocity: Annotated[Numbers, positive_or_infinite] | None = None


def admissible(system: AbstractSystem, state: State) -> np.ndarray:
    """Orthonormal directions B with J B = 0 at a state, shape `(nv, dof)`."""
    t = jnp.asarray(state.t, state.q.dtype)
    J = np.asarray(_jacobian(system, t, state.q, state.v))
    _, values, rows = np.linalg.svd(J, full_matrices=True)
    rank = int(np.sum(nonzero(values, redundancy(values.dtype))))
    return rows[rank:].T


@as_one_program
def _jacobian(system: AbstractSystem, t: Array, q: Array, v: Array) -> Array:
    return dense(equations(system).rows(t, q, v).J)


def displaced(
    system: AbstractSystem,
    state: State,
    directions: Float[Array, "nv dof"],
    z: Float[Array, " two_dof"],
    constrained: bool,
) -> tuple[State, RESULTS]:
    """The consistent state nearest to q (+) N B z_1, v + B z_2; and whether there is one."""
    shift, kick = jnp.split(z, 2)
    q = system.retract(state.q, directions @ shift)
    v = state.v + directions @ kick
    return consistent(system, State(state.t, q, v, angles=state.angles), constrained)


def consistent(system: AbstractSystem, state: State, constrained: bool) -> tuple[State, RESULTS]:
    """The nearest consistent state; and whether there is one."""
    if not constrained:
        return State(state.t, state.q, state.v, angles=state.angles), RESULTS.successful
    system = near(system, state.angles)
    found = assemble(system, state.q, state.v, state.t, throw=False)
    return State(found.t, found.q, found.v, angles=state.angles), found.report.result


class AbstractShooting(Extensible):
    """The division of a record into parts."""

    # The state at the first sample of a later part: `(record, row) -> State`; `None` to take it
    # from a simulation of the guess.
    starts: eqx.AbstractVar[Callable[[Record, int], State] | None]

    @abc.abstractmethod
    def cuts(self, record: Record) -> list[int]:
        """The rows of the record at which parts begin. The first is 0."""


class SingleShooting(AbstractShooting):
    """One simulation from the start of each record to its end. For a long or chaotic motion the
    loss then has many local minima. Use `MultipleShooting` instead; `tangent_growth` tells how long
    parts may be."""

    starts: None = None

    def cuts(self, record):
        return [0]


@checked
class MultipleShooting(AbstractShooting):
    """`parts` simultaneous simulations for each record, each from a start that is found as well.
    Each part must end where the next one begins,

        min  sum |r|^2   subject to   x_k(end) - x_{k+1}(start) = 0.

    This is enforced by the method of multipliers (Nocedal and Wright 2006, Numerical Optimization,
    section 17.3). Errors of the guess do not accumulate over the whole record. So fits converge
    from far guesses and for chaotic motions too.

    **Fields:**

    - `parts`: the number of parts of each record.
    - `starts`: `(record, row) -> State`, a guess of the state at a row from its measurements;
      default a simulation of the guess, which becomes less accurate with time.

    Reference: Bock (1983), Recent advances in parameter identification techniques for O.D.E.,
    Numerical Treatment of Inverse Problems, Birkhäuser.
    """

    parts: Annotated[int, at_least(1)] = eqx.field(static=True)
    starts: Callable[[Record, int], State] | None = None

    def cuts(self, record):
        rows = np.searchsorted(
            record.time, np.linspace(record.time[0], record.time[-1], self.parts + 1)[:-1]
        )
        if len(set(rows)) < self.parts or rows[-1] > len(record.time) - 2:
            raise ValueError(
                f'"{record.name}" has {len(record.time)} samples, too few for {self.parts} parts.'
            )
        return rows.tolist()


class Parts(NamedTuple):
    """All parts of all records, made equally long by repeating the last time with weight 0.

    - `time`, `measured`, `weights`: shapes `(parts, n)`, `(parts, n, m)`, `(parts, n, m)`.
    - `t0`, `t1`: the times between which each is simulated, up to the next part, `(parts,)`.
    - `record`: the record of each part, `(parts,)`. `controls` of the records, stacked.
    """

    time: Float[Array, "parts n"]
    measured: Float[Array, "parts n m"]
    weights: Float[Array, "parts n m"]
    t0: Float[Array, " parts"]
    t1: Float[Array, " parts"]
    record: Int[Array, " parts"]
    controls: PyTree


class Partition(NamedTuple):
    """The places of the parts: part k has the rows `slices[k]` of record `record[k]`. `links` are
    the parts that another part continues."""

    record: tuple[int, ...]
    slices: tuple[tuple[int, int], ...]
    links: tuple[int, ...]


def partition(records: Sequence[Record], shooting: AbstractShooting) -> tuple[Parts, Partition]:
    """Divide records into parts. **Raises:** `ValueError` for records that do not match."""
    columns = {record.measured.shape[1] for record in records}
    if len(columns) != 1:
        names = {record.name: record.measured.shape[1] for record in records}
        raise ValueError(f"Records must have the same columns, but have {names}.")
    owner, slices, links, ends = [], [], [], []
    for k, record in enumerate(records):
        rows = shooting.cuts(record)
        for begin, end in zip(rows, [*rows[1:], None], strict=True):
            if end is not None:
                links.append(len(owner))
            owner.append(k)
            slices.append((begin, len(record.time) if end is None else end))
            ends.append(record.time[-1 if end is None else end])
    n = max(end - begin for begin, end in slices)

    def padded(name, fill):
        rows = []
        for k, (begin, end) in zip(owner, slices, strict=True):
            x = getattr(records[k], name)[begin:end]
            more = np.repeat(x[-1:] if fill is None else np.full_like(x[-1:], fill), n - len(x), 0)
            rows.append(np.concatenate([x, more]))
        return jnp.asarray(np.stack(rows), float)

    time = padded("time", None)
    parts = Parts(
        time,
        padded("measured", 0.0),
        padded("weights", 0.0),
        picked(time, np.s_[:, 0]),
        to_jax(ends, time.dtype),
        to_jax(owner),
        _stacked(records),
    )
    return parts, Partition(tuple(owner), tuple(slices), tuple(links))


def _stacked(records: Sequence[Record]) -> PyTree:
    """The controls, stacked along a leading axis."""
    controls = [record.control for record in records]
    if all(isinstance(control, MeasuredInput) for control in controls):
        controls = _equally_long(controls)
    arrays, rest = zip(*(eqx.partition(c, eqx.is_array) for c in controls), strict=True)
    shapes = [jax.tree.map(jnp.shape, a) for a in arrays]
    if not all(eqx.tree_equal(r, rest[0]) for r in rest) or not all(s == shapes[0] for s in shapes):
        raise ValueError(
            "Controls of all records must be of one kind and size, but they are "
            f"{[type(control).__name__ for control in controls]}. Fit such records one by one, or "
            "give all of them a `MeasuredInput`."
        )
    return eqx.combine(jax.tree.map(lambda *x: jnp.stack(x), *arrays), rest[0])


def _equally_long(inputs: Sequence[MeasuredInput]) -> list[MeasuredInput]:
    n = max(len(each.time) for each in inputs)

    def longer(x):
        return jnp.concatenate([x, jnp.repeat(x[-1:], n - len(x), axis=0)])

    return [
        eqx.tree_at(lambda m: (m.time, m.values), each, (longer(each.time), longer(each.values)))
        for each in inputs
    ]


def control_of(parts: Parts, record: Int[Array, ""]) -> PyTree:
    """The control of one record."""
    return jax.tree.map(lambda x: x[record] if eqx.is_array(x) else x, parts.controls)
