"""Transcriptions, which turn an interval of the grid into a few equations."""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from .._compiler import inverse
from .._extensible import Extensible
from .._methods import point
from .._results import RESULTS
from .._step import Stepper, off_branch
from .._system import AbstractSystem, State
from .._types import Coordinates, RealScalarLike, Rows, Scalar, Velocity
from .controls import AbstractControl, Held, PiecewiseConstant, PiecewiseLinear, PiecewiseQuadratic
from .motion import cost_rate, path_conditions
from .problem import Problem


class Knot(NamedTuple):
    """The unknowns at one grid point. The control `u` has size 0 if the intervals have it."""

    q: Coordinates
    v: Velocity
    u: Float[Array, " nu"]
    lam: Rows


class Variables(NamedTuple):
    """The layout x = (duration, knots 0 ... steps, unknowns of intervals 0 ... steps - 1).

    - `knot`: the sizes of the parts of a `Knot`. `interval`: the sizes of the parts of an interval.
    """

    steps: int
    knot: tuple[int, int, int, int]
    interval: tuple[int, ...]

    @property
    def size(self) -> int:
        return 1 + (self.steps + 1) * sum(self.knot) + self.steps * sum(self.interval)

    def knots(self) -> np.ndarray:
        """Indices of the unknowns of each grid point, shape `(steps + 1, nz)`."""
        size = sum(self.knot)
        return 1 + np.arange((self.steps + 1) * size).reshape(self.steps + 1, size)

    def intervals(self) -> np.ndarray:
        """Indices of the unknowns of each interval, shape `(steps, nw)`."""
        size, first = sum(self.interval), 1 + (self.steps + 1) * sum(self.knot)
        return first + np.arange(self.steps * size).reshape(self.steps, size)

    def with_duration(self, index: np.ndarray) -> np.ndarray:
        """Prepend the index of the duration to each row of `index`."""
        return np.concatenate([np.zeros((len(index), 1), int), index], axis=1)

    def around_intervals(self) -> np.ndarray:
        """Indices of the duration, both ends and own unknowns of each interval."""
        knots = self.knots()
        return self.with_duration(np.concatenate([knots[:-1], knots[1:], self.intervals()], axis=1))

    def split_knot(self, z) -> Knot:
        return Knot(*split(z, self.knot))

    def split_interval(self, w) -> tuple:
        return split(w, self.interval)


def split(x, sizes) -> tuple:
    """Split the last axis into consecutive parts."""
    ends = np.cumsum(sizes)
    return tuple(x[..., end - size : end] for end, size in zip(ends, sizes, strict=True))


class Instant(NamedTuple):
    """The motion at (t, q, v, u, lam): q', v', and the residuals of the chosen rows."""

    qdot: Coordinates
    acceleration: Velocity
    position: Rows
    velocity: Rows
    level: Rows  # at the level of acceleration: J v' - gamma
    J: Float[Array, "rows nv"]
    M: Float[Array, "nv nv"]


@jax.custom_jvp
def solve(M: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """Compute M^-1 b. Derivatives of all orders and in all directions reuse one inverse. The
    derivatives of an elimination would go through each of its operations."""
    return inverse(M)[0] @ b


@solve.defjvp
def _solve_jvp(primals, tangents):
    (M, b), (dM, db) = primals, tangents
    a = solve(M, b)
    return a, solve(M, db - dM @ a)


class Dynamics(eqx.Module):
    """The equations M v' = f + J^T lam with only the independent `rows`, one entry of lam for each.

    - `holonomic`: the independent rows of Phi. `rows`: those of (Phi, Psi), holonomic ones first.
    """

    system: AbstractSystem
    holonomic: Int[Array, " nh"]
    rows: Int[Array, " nc"]

    def at(self, t: RealScalarLike, q: Coordinates, v: Velocity, u: Array, lam: Rows) -> Instant:
        """The motion at one instant."""
        here = point(self.system, Held(u), t, q, v).dense()
        J = here.rows.J[self.rows]
        a = solve(here.M, here.f + J.T @ lam)
        return Instant(
            self.system.qdot(q, v),
            a,
            here.rows.phi[self.holonomic],
            here.rows.velocity[self.rows],
            J @ a - here.rows.gamma[self.rows],
            J,
            here.M,
        )

    def ends(self, interval: "Interval") -> tuple[Instant, Instant]:
        """The motion at both ends of an interval."""
        t, h, begin, end, _ = interval
        times = jnp.stack([t, t + h])
        knots = jax.tree.map(lambda a, b: jnp.stack([a, b]), begin, end)
        both = jax.vmap(self.at)(times, *knots)  # two calls would take longer to compile
        return jax.tree.map(lambda x: x[0], both), jax.tree.map(lambda x: x[1], both)

    def normal(self, instant: Instant, slack: Rows) -> Velocity:
        """J^T slack with the holonomic rows of J: a displacement across the constraints."""
        return instant.J[: self.holonomic.shape[0]].T @ slack

    def multipliers(self, t, q, v, u) -> Rows:
        """The lam of least norm that satisfies the chosen rows."""
        free = self.at(t, q, v, u, jnp.zeros(self.rows.shape[0], q.dtype))
        G = free.J @ jax.vmap(solve, (None, 1), 1)(free.M, free.J.T)
        return -jnp.linalg.pinv(G, hermitian=True) @ free.level

    @eqx.filter_jit
    def all_multipliers(self, t, q, v, u) -> Float[Array, "points nc"]:
        """`multipliers` at many points."""
        return jax.vmap(self.multipliers)(t, q, v, u)


class Interval(NamedTuple):
    """One interval of the grid. It begins at `t` [s] and lasts `h` [s]. `begin` and `end` are the
    unknowns at its ends; `own` are the unknowns that belong to it alone."""

    t: RealScalarLike
    h: Scalar
    begin: Knot
    end: Knot
    own: tuple[Array, ...]


class Equations(NamedTuple):
    """The terms of an interval in the program: its share of the cost, rows that must be zero
    (`defects`), and rows that must not be positive (`path`). `across` is the velocity across the
    constraints that keeps the motion on them, since the method alone would leave them."""

    cost: Scalar
    defects: Float[Array, " rows"]
    path: Float[Array, " path"]
    across: Velocity


class AbstractTranscription(Extensible):
    """A method that turns motions and controls into finitely many unknowns and equations."""

    # Whether controls and multipliers are unknowns of the grid points. Then the constraints hold
    # there at all three levels. Otherwise each interval has a control of its own.
    at_knots: eqx.AbstractClassVar[bool]
    # Whether the first of the unknowns `own` is a control.
    holds_control: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def own(self, problem: Problem, holonomic: int, rows: int) -> tuple[int, ...]:
        """The sizes of the unknowns of an interval. If it has a control, that comes first.

        - `holonomic`, `rows`: the numbers of independent rows of Phi and of (Phi, Psi)."""

    @abc.abstractmethod
    def own_guess(self, u: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, ...]:
        """Initial values of the first unknowns `own`, from controls and multipliers at grid points.
        The other unknowns start at 0."""

    @abc.abstractmethod
    def equations(self, problem: Problem, dynamics: Dynamics, interval: Interval) -> Equations:
        """The equations of an interval."""

    @abc.abstractmethod
    def control(
        self, t0: ArrayLike, dt: ArrayLike, knots: ArrayLike, own: ArrayLike
    ) -> AbstractControl:
        """The control of a solution, from its values at grid points (`knots`) and in the intervals
        (`own`)."""


class Trapezoidal(AbstractTranscription):
    r"""Trapezoidal collocation. Each interval (0 to 1) is a step of the rule; u is linear in it:

        q_1 = q_0 + h / 2 (q'_0 + q'_1) + h N(q_1) J_1^T gamma,
        v_1 = v_0 + h / 2 (v'_0 + v'_1) + h M^-1 J_1^T mu,

    and Phi = 0, Phi' = 0, Phi'' = 0 (or Psi = 0, Psi' = 0) at the grid points. The rule alone
    leaves the manifold by its error, and the slacks gamma and mu take the end back to it. Without
    them there would be more equations than unknowns (as in the stabilised index-2 form of Gear,
    Gupta and Leimkuhler, 1985). q_1 is normalised, which keeps quaternions at length one.

    The cost is integrated by the trapezoidal rule. The order is two. The method is robust, and
    cheap for rough first plans, from which `HermiteSimpson` can then start.

    Reference: Betts (2010), Practical methods for optimal control, section 4.
    """

    at_knots: ClassVar[bool] = True
    holds_control: ClassVar[bool] = False

    def own(self, problem: Problem, holonomic: int, rows: int) -> tuple[int, ...]:
        return (rows, holonomic)

    def own_guess(self, u: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, ...]:
        del lam
        return (np.zeros((len(u) - 1, 0)),)

    def equations(self, problem: Problem, dynamics: Dynamics, interval: Interval) -> Equations:
        t, h, (q0, v0, u0, _), (q1, v1, u1, _), (mu, gamma) = interval
        begin, end = dynamics.ends(interval)
        qdot = begin.qdot + end.qdot
        across = dynamics.normal(end, gamma)
        q_end = q0 + h / 2 * qdot + h * dynamics.system.qdot(q1, across)
        a = begin.acceleration + end.acceleration
        v_end = v0 + h / 2 * a + h * solve(end.M, end.J.T @ mu)
        defects = jnp.concatenate([q1 - dynamics.system.normalise(q_end), v1 - v_end])
        costs = cost_rate(problem, t, q0, v0, u0) + cost_rate(problem, t + h, q1, v1, u1)
        return Equations(h / 2 * costs, defects, jnp.zeros(0, q0.dtype), across)

    def control(
        self, t0: ArrayLike, dt: ArrayLike, knots: ArrayLike, own: ArrayLike
    ) -> PiecewiseLinear:
        del own
        return PiecewiseLinear(t0, dt, knots)


class HermiteSimpson(AbstractTranscription):
    r"""Hermite-Simpson collocation. In each interval, q and v are cubics that satisfy the equations
    of motion at begin, middle and end (0, c, 1); the control is quadratic:

        q_c = (q_0 + q_1) / 2 + h / 8 (q'_0 - q'_1),     likewise v_c,
        q_1 = q_0 + h / 6 (q'_0 + 4 q'_c + q'_1),        q'_c = N(q_c) (v_c + J_c^T gamma),
        v_1 = v_0 + h / 6 (v'_0 + 4 v'_c + v'_1),        M v'_c = f_c + J_c^T lam_c,

    and Phi = 0, Phi' = 0, Phi'' = 0 (or Psi = 0, Psi' = 0) at the grid points. The cubic cannot
    stay on the manifold, so without the velocity slack gamma there would be more equations than
    unknowns. gamma is as small as the error of the scheme. Both q_c and q_1 are normalised. This
    keeps quaternions at length one without rows for them.

    The multipliers at the grid points and in the middles are unknowns. The cost is integrated by
    Simpson's rule, and bounds and `path` hold in the middles too. The order is four without
    constraints. Choose this method for smooth motions.

    Reference: Posa, Kuindersma and Tedrake (2016), Optimization and stabilization of trajectories
    for constrained dynamical systems, ICRA, section III; Kelly (2017), An introduction to
    trajectory optimization, SIAM Review 59, section 4.
    """

    at_knots: ClassVar[bool] = True
    holds_control: ClassVar[bool] = True

    def own(self, problem: Problem, holonomic: int, rows: int) -> tuple[int, ...]:
        return (problem.nu, rows, holonomic)

    def own_guess(self, u: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, ...]:
        return ((u[1:] + u[:-1]) / 2, (lam[1:] + lam[:-1]) / 2)

    def equations(self, problem: Problem, dynamics: Dynamics, interval: Interval) -> Equations:
        t, h, (q0, v0, u0, _), (q1, v1, u1, _), (u, lam, gamma) = interval
        begin, end = dynamics.ends(interval)
        q = dynamics.system.normalise((q0 + q1) / 2 + h / 8 * (begin.qdot - end.qdot))
        v = (v0 + v1) / 2 + h / 8 * (begin.acceleration - end.acceleration)
        middle = dynamics.at(t + h / 2, q, v, u, lam)
        across = dynamics.normal(middle, gamma)
        qdot = dynamics.system.qdot(q, v + across)
        q_end = q0 + h / 6 * (begin.qdot + 4 * qdot + end.qdot)
        v_end = v0 + h / 6 * (begin.acceleration + 4 * middle.acceleration + end.acceleration)
        defects = jnp.concatenate([q1 - dynamics.system.normalise(q_end), v1 - v_end])
        costs = (
            cost_rate(problem, t, q0, v0, u0),
            cost_rate(problem, t + h / 2, q, v, u),
            cost_rate(problem, t + h, q1, v1, u1),
        )
        cost = h / 6 * (costs[0] + 4 * costs[1] + costs[2])
        return Equations(cost, defects, path_conditions(problem, t + h / 2, q, v, u), across)

    def control(
        self, t0: ArrayLike, dt: ArrayLike, knots: ArrayLike, own: ArrayLike
    ) -> PiecewiseQuadratic:
        return PiecewiseQuadratic(t0, dt, knots, own)


class DirectMultipleShooting(AbstractTranscription):
    r"""Multiple shooting. Each interval is simulated from its first grid point, with the
    `enforcement`, `scheme` and `substeps` of the problem, under a constant control of its own. With
    q^, v^ at the end of this simulation,

        q_1 = q^ + h N(q_1) J_1^T gamma,    v_1 = v^ + M^-1 J_1^T mu,

    and Phi = 0, Phi' = 0 (or Psi = 0) at the grid points. Both ends lie on the manifold, so only
    their distance along it must be made zero. In the directions across it, continuity would repeat
    the constraints. The slacks gamma and mu free these directions. They vanish in a solution.

    The motion is as exact as the simulation. It stays on the manifold within the intervals too, and
    includes switches and contacts if the enforcement does. Derivatives go through the simulation.
    The cost is integrated by the trapezoidal rule over the substeps. `path` holds at the grid
    points, with the control of the interval that begins there.

    Reference: Bock and Plitt (1984), A multiple shooting algorithm for direct solution of optimal
    control problems, IFAC World Congress.
    """

    at_knots: ClassVar[bool] = False
    holds_control: ClassVar[bool] = True

    def own(self, problem: Problem, holonomic: int, rows: int) -> tuple[int, ...]:
        return (problem.nu, rows, holonomic)

    def own_guess(self, u: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, ...]:
        del lam
        return (u[:-1],)

    def equations(self, problem: Problem, dynamics: Dynamics, interval: Interval) -> Equations:
        t, h, (q0, v0, *_), (q1, v1, *_), (u, mu, gamma) = interval
        step, n = h / problem.substeps, problem.substeps
        stepper = Stepper(dynamics.system, problem.enforcement, problem.scheme)

        def onwards(state, _):
            state = stepper.step(state, step, Held(u))
            return state, (state.q, state.v)

        # The constraints need not hold during the search.
        start = stepper.init(State(t, q0, v0), start_tolerance=jnp.inf)
        last, later = jax.lax.scan(onwards, start, None, length=n)
        q, v = (jnp.concatenate([x[None], more]) for x, more in zip((q0, v0), later, strict=True))
        end = dynamics.at(t + h, q1, v1, u, jnp.zeros_like(mu))
        across = dynamics.normal(end, gamma)
        back = h * dynamics.system.qdot(q1, across)
        v_end = v[-1] + solve(end.M, end.J.T @ mu)
        defects = jnp.concatenate([q1 - dynamics.system.normalise(q[-1] + back), v1 - v_end])
        # After a failure the state stays constant. That must not count as a motion.
        good = (last.result == RESULTS.successful) & jnp.logical_not(
            off_branch(dynamics.system, last)
        )
        defects = jnp.where(good, defects, jnp.nan)
        rate = jax.vmap(cost_rate, (None, 0, 0, 0, None))
        costs = rate(problem, t + step * jnp.arange(n + 1, dtype=q0.dtype), q, v, u)
        cost = step * jnp.sum((costs[1:] + costs[:-1]) / 2)
        return Equations(cost, defects, path_conditions(problem, t, q0, v0, u), across)

    def control(
        self, t0: ArrayLike, dt: ArrayLike, knots: ArrayLike, own: ArrayLike
    ) -> PiecewiseConstant:
        del knots
        return PiecewiseConstant(t0, dt, own)
