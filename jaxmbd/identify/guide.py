"""Simulations that are pulled towards the measurements, for searches from bad guesses."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import inverse, stop_gradient, to_jax
from .._equations import equations
from .._inputs import at_least, checked, positive
from .._linalg import Automatic, ConstraintOperator
from .._results import RESULTS
from .._step import Stepper
from .._system import AbstractSystem, State
from .._types import RealScalarLike, Scalar
from .instruments import Unwrapped, chain
from .record import Record, between
from .sample import Sample, SavedMotion
from .sensors import Sensor
from .shooting import AbstractShooting, Parts

# Added to J A J^T, relative to its largest diagonal so far: readings that nearly depend on each
# other then share what they ask for, and one at a turning point, where J = 0, asks for little.
_SHARED = 1e-3

# Rates of the stages by default: times the sampling rate, and divided by the duration.
_FASTEST, _SLOWEST = 0.5, 5.0


@checked
class GuidedShooting(AbstractShooting):
    r"""One simulation of each record, which at first is pulled towards the measurements y, and in
    the last stage is not. After each step of length h, it is corrected as

    $$
    q \leftarrow q \oplus (1 - \theta^2)\,K\,(y - h(q)), \quad
    v \leftarrow v + \tfrac{(1 - \theta)^2}{h}\,K\,(y - h(q)), \quad \theta = e^{-\kappa h},
    $$

    so that deviations decay at the rate $\kappa$, $K = A J_h^T (J_h A J_h^T)^{-1}$ with the
    mobility A of the constrained system, less where readings have a turning point. Readings of
    velocities correct v alone. A bad guess then changes how much has to be corrected, but not when
    a mass sticks, hits or turns round. So the loss has few local minima. Each stage begins with the
    parameters of the one before, and has a lower rate; the last one, without correction, is single
    shooting.

    Sensors whose readings depend on accelerations or forces, and those that count turns, do not
    pull. Sensors that lag pull as if they did not.

    **Fields:**

    - `stages`: the number of stages with correction.
    - `fastest`, `slowest`: their rates [1/s], from the first to the last in equal ratios; default
      half the sampling rate, and 5 divided by the duration of the longest record.
    - `max_iterations`: the limit in each of these stages.

    Reference: Vyasarayani, Uchida, McPhee (2012), Single-shooting homotopy method for parameter
    identification in dynamical systems, Physical Review E 85, 036201, with a continuous correction.
    """

    stages: Annotated[int, at_least(1)] = eqx.field(static=True, default=5)
    fastest: Annotated[float | None, positive] = eqx.field(static=True, default=None)
    slowest: Annotated[float | None, positive] = eqx.field(static=True, default=None)
    max_iterations: Annotated[int, at_least(1)] = eqx.field(static=True, default=30)
    starts: None = None

    def cuts(self, record):
        return [0]

    def rates(self, records: tuple[Record, ...]) -> np.ndarray:
        """The rates of the stages [1/s]."""
        duration = max(float(record.time[-1] - record.time[0]) for record in records)
        interval = min(float(np.median(np.diff(record.time))) for record in records)
        fastest = _FASTEST / interval if self.fastest is None else self.fastest
        slowest = _SLOWEST / duration if self.slowest is None else self.slowest
        return np.geomspace(max(fastest, slowest), slowest, self.stages)


class Target(NamedTuple):
    """What was measured at a time, for all columns, and whether it was."""

    y: Float[Array, " m"]
    present: Bool[Array, " m"]


def target(parts: Parts, k: Array, t: Scalar) -> Target:
    """The measurements of part k at a time, linear between samples."""
    y, weights = parts.measured[k], parts.weights[k]
    i, s = between(parts.time[k], t)
    present = (weights[i] > 0) & (weights[i + 1] > 0)
    return Target(jnp.where(present, y[i] + s * (y[i + 1] - y[i]), 0.0), present)


class Guide(eqx.Module):
    """The correction of simulated states.

    - `rate`: kappa [1/s].
    - `sensors`: which sensors pull, and `columns`: the places of their numbers in a record.
    - `position`, `velocity`: which of these numbers depend on q alone, and which on v.
    """

    rate: Scalar
    sensors: tuple[int, ...] = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)
    position: tuple[int, ...] = eqx.field(static=True)
    velocity: tuple[int, ...] = eqx.field(static=True)

    def states(
        self,
        stepper: Stepper,
        sensors: tuple[Sensor, ...],
        start: State,
        control: Any,
        parts: Parts,
        k: Array,
        dt: Scalar,
        steps: int,
    ) -> tuple[Float[Array, "steps_1 d"], RESULTS]:
        """The states q, v, z at all steps of part k, before their corrections, and the verdict."""
        members = tuple(sensors[i] for i in self.sensors)

        def read(system, t, q, v, z):
            here = still(system, control, t, q, v, z)
            return jnp.concatenate([jnp.ravel(member(here)) for member in members])

        def step(carry, _):
            state, largest = carry
            wanted = target(parts, k, state.t)
            y, present = (x[np.array(self.columns)] for x in wanted)
            r = jnp.where(present, y - read(stepper.system, state.t, state.q, state.v, state.z), 0)
            pulled, largest = self._pulled(stepper.system, state, read, r, present, dt, largest)
            # What a scheme remembers is of the state before the correction.
            pulled = stepper.enforcement.anew(stepper.problem(pulled), pulled)
            return (stepper.step(pulled, dt, control), largest), saved(state)

        first = stepper.init(start, check=False)
        none = jnp.zeros(len(self.position) + len(self.velocity), first.q.dtype)
        (last, _), before = jax.lax.scan(step, (first, none), length=steps)
        return jnp.concatenate([before, saved(last)[None]]), last.result

    def _pulled(self, system, state, read, r, present, dt, largest):
        """The state after the correction, and the largest mobilities of the readings so far. For
        derivatives the gains are constants, which is right where there is nothing to correct."""
        fixed, at = stop_gradient((system, (state.t, state.q, state.v, state.z)))
        places = self.position, self.velocity
        of_q, of_v, largest = _gains(fixed, at, read, present, *places, stop_gradient(largest))
        decay = jnp.exp(-self.rate.astype(r.dtype) * dt)
        off = r[np.array(self.position, int)]
        dp, kick = (1 - decay**2) * (off @ of_q), (1 - decay) ** 2 / dt * (off @ of_q)
        kick = kick + (1 - decay) * (r[np.array(self.velocity, int)] @ of_v)
        q = system.normalise(system.retract(state.q, dp))
        return state.replace(q=q, v=state.v + kick), largest


def _gains(
    system: AbstractSystem, at: tuple, read: Any, present: Array, position, velocity, largest: Array
):
    """K^T for the readings of positions and for those of velocities, `(n, nv)` each, and their
    largest mobilities so far, `(n,)` of both."""
    t, q, v, z = at
    zero = jnp.zeros_like(v)

    def displaced(dp, dv):
        return read(system, t, system.retract(q, dp), v + dv, z)

    of_p, of_v = jax.jacfwd(displaced, argnums=(0, 1))(zero, zero)
    of = equations(system)
    rows = of.rows(t, q, v)
    tilt = of.tilt(q, v, rows.J, rows.phi) if rows.phi.shape[0] else None
    operator = ConstraintOperator(Automatic(), of.mass(q), rows.J, tilt=tilt)
    still = jnp.zeros_like(rows.velocity)

    def gains(J, present, largest):
        if not len(J):
            return J, largest
        J = jnp.where(present[:, None], J, 0.0)
        moved = jnp.stack([operator.solve(f, still)[0] for f in J])
        mobility = moved @ J.T
        largest = jnp.maximum(largest, jnp.diagonal(mobility))
        room = jnp.where(largest > 0, _SHARED * largest, 1.0)
        return inverse(mobility + jnp.diag(room))[0] @ moved, largest

    position, velocity = np.array(position, int), np.array(velocity, int)
    of_q, of_positions = gains(of_p[position], present[position], largest[: len(position)])
    of_v, of_velocities = gains(of_v[velocity], present[velocity], largest[len(position) :])
    return of_q, of_v, jnp.concatenate([of_positions, of_velocities])


def saved(state: State) -> Float[Array, " d"]:
    """q, v and the internal states as one vector."""
    return _joined(state.q, state.v, state.z)


def _joined(q, v, z):
    return jnp.concatenate([q, v, *([] if z is None else [jnp.asarray(z, q.dtype)])])


def still(
    system: AbstractSystem,
    control: Any,
    t: RealScalarLike,
    q: Array,
    v: Array,
    z: Array | None,
    kind: type[SavedMotion] = SavedMotion,
) -> Sample:
    """The sample of a motion that rests at one state, so that lags have passed."""
    t, x = jnp.asarray(t, q.dtype), _joined(q, v, z)
    states = jnp.stack([x, x])
    motion = kind(system, control, t, jnp.ones_like(t), states, len(q), len(v), points=2)
    return motion.moment(t, x)


class _NeedsForces(Exception):
    """A sensor reads accelerations or multipliers."""


class _WithoutForces(SavedMotion):
    """A motion that refuses both."""

    def moment(self, t, x):
        return _SampleWithoutForces(**vars(SavedMotion.moment(self, t, x)))

    def mean_acceleration(self, t):
        raise _NeedsForces


class _SampleWithoutForces(Sample):
    @property
    def _motion(self):
        raise _NeedsForces


def guide_of(
    system: AbstractSystem,
    named: Mapping[str, Sensor],
    sizes: tuple[int, ...],
    control: Any,
    state: State,
) -> Guide:
    """The guide by those sensors that read positions or velocities, with the rate 0.

    **Raises:** `ValueError` if none of them does."""
    rng = np.random.default_rng(0)
    ends = np.cumsum([0, *sizes])
    sensors, columns, kinds = [], [], []
    for i, (member, begin, end) in enumerate(zip(named.values(), ends[:-1], ends[1:], strict=True)):
        if any(isinstance(each, Unwrapped) for each in chain(member)):
            continue

        def read(dp, dv, member=member):
            q, v = system.retract(state.q, dp), state.v + dv
            z = system.initial_internal
            here = still(system, control, state.t, q, v, z, _WithoutForces)
            return jnp.ravel(member(here))

        # A derivative may vanish at the start by chance, so it is also computed nearby.
        near = 0.1 * rng.normal(size=(2, 2, len(state.v)))
        near = [to_jax(x, state.q.dtype) for x in near]
        try:
            slopes = jax.jit(jax.vmap(jax.jacfwd(read, argnums=(0, 1))))(*near)
        except _NeedsForces:
            continue
        of_p, of_v = (np.any(np.asarray(x), axis=(0, 2)) for x in slopes)
        sensors.append(i)
        columns += range(begin, end)
        kinds += ["v" if v else "q" if p else "" for p, v in zip(of_p, of_v, strict=True)]
    if not any(kinds):
        raise ValueError(
            "`GuidedShooting` needs a sensor of positions or velocities that counts no turns, but "
            f"the sensors are {list(named)}: use `SingleShooting()` with a `multistart`."
        )
    places = [tuple(i for i, kind in enumerate(kinds) if kind == which) for which in "qv"]
    return Guide(to_jax(0.0, state.q.dtype), tuple(sensors), tuple(columns), *places)
