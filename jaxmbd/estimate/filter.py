"""A Kalman filter over the admissible deviations from a state."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array, Float, PyTree

from .._checks import check_system
from .._compiler import refuted, to_jax
from .._inputs import Numbers, at_least, checked, inside, not_negative, positive
from .._methods import AbstractEnforcement, UdwadiaKalaba
from .._step import Stepper, is_switched, near
from .._system import AbstractSystem, State
from .._types import RealScalarLike
from ..identify import Record
from ..identify.parameters import Parameters
from ..identify.rig import Rig
from ..identify.sensors import SensorsGiven
from .belief import Belief, Innovation
from .chart import first_bases
from .noise import AbstractProcessNoise, ContinuousNoise
from .programs import (
    compiled_covariance,
    compiled_expected,
    compiled_intervals,
    compiled_most_probable,
    compiled_predict,
    compiled_run,
    compiled_smooth,
    compiled_start,
    compiled_step,
    compiled_update,
)
from .rules import AbstractRule, Extended
from .run import FilterRun, SmoothedRun
from .steps import reading_sizes, system_at


class Filter(eqx.Module):
    r"""A Kalman filter of the states of a system, and of unknown parameters, on the constraints.

    The belief about a state is normal in the deviations $\xi$ from its mean that the constraints
    admit: two for each freedom, one for each internal state, and the free numbers of the
    parameters. So quaternions, closed loops and redundant rows need no care, and no covariance has
    directions in which nothing can move. A step is

    $$ \xi^- = A\,\xi + w, \qquad K = P^- H^\mathsf{T} (H P^- H^\mathsf{T} + R)^{-1}, \qquad
    \xi^+ = K (y - h), $$

    with $A$ and $H$ by `rule` of the step of a simulation and of the readings of the sensors. Then
    the mean goes to $\xi^+$ and onto the constraints, and the deviations are counted from there.

        filter = estimate.Filter(
            mechanism,
            {"crank": identify.JointPosition("shaft")},
            {"crank": 1e-3},
            dt=1e-3,
            parameters={"forces[damper].damping": Parameter(0.3, Positive(), sigma=0.1)},
            process_noise=estimate.ContinuousNoise(0.5, drift={"forces[damper].damping": 0.01}),
        )
        belief = filter.start(state, position=0.01, velocity=0.1)
        belief, innovation = filter.step(belief, reading, u)      # in a control loop
        run = filter.run(belief, record)                          # over measurements

    All methods work in `jax.jit`, `jax.vmap` and both modes of differentiation. A `Filter` is a
    pytree, with noises and parameters of the system as leaves.

    **Arguments:**

    - `model`: the system; or a function `values -> system`, as in `identify.fit`.
    - `sensors`: name -> function of a `Sample`, or one such function, as in `identify.fit`; `None`
      if `model` returns the pair of system and sensors. Sensors that lag are refused.
    - `sigma`: name -> standard deviation of the readings, one number or one for each; of one sensor
      also without the name.
    - `dt`: the step of the simulation [s], and the largest one in `run`.
    - `parameters`: name -> `Parameter` with its `sigma`, as in `identify.fit`, and of sensors, such
      as `sensors[gyro].bias`. The transform `Positive()` suits what is positive: it is smooth.
    - `process_noise`: what the model does not know of the motion; default nothing.
    - `enforcement`: default `UdwadiaKalaba()`. `scheme`: as in `simulate`. Each step starts anew.
    - `rule`: `Extended()` (default) or `Unscented()`.
    - `periods`: name -> period of the readings of a sensor, such as 2 pi of angles, whose
      innovations are within half a period.
    - `gate`: the probability with which a right reading is accepted, such as 0.999. Others change
      nothing. By default all are accepted.

    **Raises:** `ValueError` for arguments that do not match, and for parameters without `sigma`.

    References: Barfoot (2017), State Estimation for Robotics, chapter 7 (normal distributions on
    curved spaces); Simon (2010), Kalman filtering with state constraints, IET Control Theory and
    Applications 4.
    """

    rig: Rig
    unknowns: Parameters
    bounds: tuple[Array, Array] | None
    names: tuple[str, ...] = eqx.field(static=True)
    sigma: tuple[Array, ...]
    periods: tuple[float | None, ...] = eqx.field(static=True)
    process_noise: AbstractProcessNoise
    dt: float = eqx.field(static=True)
    enforcement: AbstractEnforcement
    scheme: diffrax.AbstractSolver | None
    rule: AbstractRule
    gate: float | None = eqx.field(static=True)

    @checked
    def __init__(
        self,
        model: AbstractSystem | Callable[[dict[str, PyTree]], AbstractSystem],
        sensors: SensorsGiven | None,
        sigma: Any,
        *,
        dt: Annotated[float, positive],
        parameters: Any = (),
        process_noise: AbstractProcessNoise = ContinuousNoise(),
        enforcement: AbstractEnforcement | None = None,
        scheme: diffrax.AbstractSolver | None = None,
        rule: AbstractRule = Extended(),
        periods: Mapping[str, float] | None = None,
        gate: Annotated[float | None, inside(0, 1)] = None,
    ):
        self.rig = Rig(model, sensors, ())
        self.unknowns = Parameters(self.rig.parameters(parameters))
        rigged = self.rig(self.unknowns.values(to_jax(np.zeros(self.unknowns.size))))
        for name, unknown in self.unknowns.items():
            if unknown.sigma is None:
                raise ValueError(
                    f"The unknown `{name}` of Filter has no standard deviation: give "
                    "`Parameter(guess, transform, sigma)`."
                )
        lower, upper = self.unknowns.bounds
        limited = bool(np.any(np.isfinite(lower)) or np.any(np.isfinite(upper)))
        self.bounds = (to_jax(lower), to_jax(upper)) if limited else None
        self.names = tuple(rigged.named)
        self.sigma = _of_each("sigma", sigma, self.names)
        of_period: dict[str, float | None] = dict.fromkeys(self.names)
        of_period.update(periods or {})
        self.periods = tuple(of_period[name] for name in self.names)
        self.process_noise, self.rule, self.gate = process_noise, rule, gate
        self.dt = float(dt)
        self.enforcement = UdwadiaKalaba() if enforcement is None else enforcement
        self.scheme = scheme
        Stepper(rigged.system, self.enforcement, scheme)  # checks that they fit each other

    def start(
        self,
        state: State,
        *,
        position: Annotated[Numbers, not_negative] = 0.0,
        velocity: Annotated[Numbers, not_negative] = 0.0,
        internal: Annotated[Numbers, not_negative] = 0.0,
        freedoms: int | tuple[int, int] | None = None,
    ) -> Belief:
        """The belief at a state, with the parameters at their guesses.

        **Arguments:**

        - `state`: from `assemble` or `State(t, q, v)`.
        - `position`, `velocity`: the standard deviations of the displacements from `state.q`, and
          of `state.v`: one number or one for each velocity. What the constraints do not admit is
          left out. `internal`: those of the internal states.
        - `freedoms`: the number of freedoms; with nonholonomic constraints those of positions and
          of velocities, a pair. By default they are counted, which needs concrete numbers. So it
          must be given under `jax.jit`.

        **Returns:** a `Belief`. Its `result` says whether the start is consistent.

        **Raises:** `ValueError` for a system with `switch`, and for functions of the system that
        return wrong shapes."""
        dtype = state.q.dtype
        size = (freedoms, freedoms) if isinstance(freedoms, int) else freedoms
        free = jnp.zeros(self.unknowns.size, dtype)
        system = system_at(self, free, None)
        check_system(system, None, state.q, state.v, with_force=False, with_internal=True)
        t = jnp.asarray(state.t, dtype)
        if is_switched(system, t, state.q, state.v):
            raise ValueError(
                "A filter does not remember which rows act, so no `switch` is allowed."
            )
        begin = Stepper(system, self.enforcement, self.scheme).init(state)
        bases = first_bases(near(system, begin.angles), t, state.q, state.v, size)
        still = Belief(
            t,
            state.q,
            state.v,
            None,
            begin.angles,
            begin.z,
            free,
            jnp.zeros((0, 0), dtype),
            bases,
            begin.result,
        )
        return compiled_start(self, still, (position, velocity, internal))

    @checked
    def predict(
        self,
        belief: Belief,
        u: PyTree = None,
        dt: Annotated[RealScalarLike | None, positive] = None,
    ) -> Belief:
        """The belief a step later, without a reading.

        **Arguments:** `u`: as in `Stepper.step`. `dt`: another step [s]."""
        h = self.dt if dt is None else dt
        return compiled_predict(self, belief, u, h)

    @checked
    def update(
        self, belief: Belief, reading: Any, u: PyTree = None, *, present: Any = None
    ) -> tuple[Belief, Innovation]:
        """The belief with a reading, at the same time.

        **Arguments:**

        - `reading`: the numbers of all sensors in their order, shape `(m,)`, or name -> numbers of
          the sensors that were read.
        - `u`: the control, for sensors that depend on it, such as accelerometers.
        - `present`: which numbers were read, `(m,)`; default all.

        **Returns:** the `Belief`, and the `Innovation`.

        **Raises:** `ValueError` for other names or another number of them."""
        return compiled_update(self, belief, reading, present, u)

    @checked
    def step(
        self, belief: Belief, reading: Any, u: PyTree = None, *, present: Any = None
    ) -> tuple[Belief, Innovation]:
        """`predict` over `dt` and `update` by what is read then, in one program. The arguments are
        those of `update`; `u` is constant in the step, or a control u(t, q, v)."""
        return compiled_step(self, belief, reading, present, u)

    @checked
    def run(self, start: Belief, record: Record) -> FilterRun:
        """The filter over a record: the first sample corrects `start`, and each other one the
        belief that is predicted for its time, in equal steps of at most `dt`. Readings without a
        weight are missing; otherwise weights do not count. The control is that of the record.

        **Returns:** a `FilterRun`; `print` it.

        **Raises:** `ValueError` for a record that does not begin at the time of `start`, or with
        other columns than the sensors give."""
        return compiled_run(self, start, *record_for(self, start, record))

    @checked
    def smooth(
        self,
        run: FilterRun,
        record: Record | None = None,
        *,
        iterations: Annotated[int, at_least(1)] = 10,
    ) -> SmoothedRun:
        """The beliefs at all samples of a run, given the readings of the whole record.

        With the `record` of the run, all derivatives are taken again at the smoothed motion, and
        so on, `iterations` times. Where the means stay, they are the most probable motion: the
        least sum of the squares of the start, the process noise and the readings, each divided by
        its standard deviation. If they still move by a thousandth of their standard deviations, the
        result says so. Unlike the filter it does not remember derivatives at bad guesses. Needs the
        rule `Extended()`.

        **Raises:** `ValueError` for another rule.

        References: Rauch, Tung and Striebel (1965), Maximum likelihood estimates of linear dynamic
        systems, AIAA Journal 3; on the constraints with deviations from the mean of each sample.
        Bell (1994), The iterated Kalman smoother as a Gauss-Newton method, SIAM Journal on
        Optimization 4."""
        found = compiled_smooth(self, run)
        if record is None:
            return found
        check_derivatives(self)
        start = jax.tree.map(lambda x: x[0], run.predicted)
        data, substeps = record_for(self, start, record)
        return compiled_most_probable(self, run, found, data, substeps, iterations)

    # ------------------------------------------------------------------ what a belief says

    def system(self, belief: Belief) -> AbstractSystem:
        """The system with the parameters of a belief."""
        return system_at(self, belief.free, None)

    def values(self, belief: Belief) -> dict[str, PyTree]:
        """The mean values of the unknown parameters by name."""
        return self.unknowns.values(belief.free)

    @checked
    def intervals(
        self, belief: Belief, level: Annotated[float, inside(0, 1)] = 0.95
    ) -> dict[str, tuple[Array, Array]]:
        """The ends of the intervals that hold each number of the parameters with the probability
        `level`, by name. They stay where the transforms of the parameters do."""
        reach = float(scipy.stats.norm.ppf((1 + level) / 2))
        low, high = compiled_intervals(self, belief, jnp.asarray(reach, belief.q.dtype))
        return {name: (low[i], high[i]) for i, name in enumerate(self.unknowns.names)}

    @checked
    def expected(
        self, belief: Belief, output: Callable | None = None, u: PyTree = None
    ) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
        """The mean and the covariance of the readings of all sensors, without their noise, or of
        `output`, another function of a `Sample`."""
        return compiled_expected(self, belief, output, u)

    def covariance(self, belief: Belief) -> Float[Array, "nx nx"]:
        """The covariance of all displacements and velocities (dp, dv), nx = 2 nv, which is singular
        across the constraints."""
        return compiled_covariance(self, belief)


def record_for(filter: Filter, start: Belief, record: Record) -> tuple[PyTree, int]:
    """The times, numbers, presence and control of a record, and the number of steps from each
    sample to the next."""
    time, measured = (to_jax(x, start.q.dtype) for x in (record.time, record.measured))
    if refuted(lambda t: np.abs(t - record.time[0]) <= 1e-9 * max(1.0, abs(t)), start.t):
        raise ValueError(
            f"The belief is at {float(start.t):g} s, but the record begins at "
            f"{record.time[0]:g} s: start the filter there."
        )
    longest = float(np.max(np.diff(record.time)))
    substeps = max(1, math.ceil(longest / filter.dt - 1e-6))
    if record.clock is not None:
        raise ValueError("A filter needs one clock: leave out `clock` of the record.")
    sizes = reading_sizes(filter, start, record.control)
    if measured.shape[1] != sum(sizes):
        raise ValueError(
            f"The sensors {list(filter.names)} give {sum(sizes)} numbers, but the record has "
            f"{measured.shape[1]} columns: give one for each, in the same order."
        )
    return (time, measured, to_jax(record.weights > 0), record.control), substeps


def check_derivatives(filter: Filter) -> None:
    if filter.rule.finite:
        raise ValueError(
            f"Smoothing again and again needs derivatives at the means: the rule `Extended()`, not "
            f"`{type(filter.rule).__name__}`."
        )


def _of_each(what: str, given: Any, names: tuple[str, ...]) -> tuple[Array, ...]:
    """A value for each sensor."""
    if not isinstance(given, Mapping):
        given = dict.fromkeys(names, given) if len(names) == 1 else given
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise ValueError(
            f"Argument `{what}` of Filter must have a value for each of the sensors {list(names)}, "
            f"but is {given!r}."
        )
    return tuple(to_jax(given[name], float) for name in names)
