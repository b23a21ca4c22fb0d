"""The growth of derivatives of a motion with time."""

import math
import warnings
from typing import Annotated

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._checks import check_no_internal, check_no_nan, with_dtype
from .._compiler import array_namespace, is_known, picked, refuted, to_jax
from .._inputs import at_least, checked, not_negative_or_infinite, positive
from .._methods import AbstractEnforcement, Projection, StepperState
from .._printed import printed
from .._raising import raise_failure
from .._results import RESULTS
from .._search import nonzero, redundancy
from .._simulate import Grid, make_grid
from .._sizes import check_fits
from .._step import Stepper
from .._system import AbstractSystem, State, displacement
from .._tangent_space import state_jacobian
from .._types import Control, RealScalarLike


@eqx.filter_jit
def admissible(stepper: Stepper, state: StepperState) -> tuple[Float[Array, "d d"], Int[Array, ""]]:
    """Orthonormal columns (dp, dv) that change neither Phi nor (Phi', Psi), followed by columns of
    zeros; and the number of the former."""
    system, q = stepper.problem(state).system, state.q
    A = state_jacobian(system, state.t, q, state.v)
    nx = A.shape[1]
    _, values, right = jnp.linalg.svd(jnp.concatenate([A, jnp.zeros((nx, nx), q.dtype)]))
    free = ~nonzero(values, redundancy(values.dtype))
    # Singular values are in falling order, so the free directions come last.
    return jnp.where(free[::-1, None], right[::-1], 0.0).T, jnp.sum(free)


def lengths(grid: Grid, every: int) -> Float[Array, "n every"]:
    """The lengths of the steps of each piece. Steps that fill up the last piece have length 0."""
    pieces = math.ceil(grid.steps / every)
    i = jnp.arange(pieces * every)
    rest = 0.0 if grid.aligned else grid.t1 - (grid.t0 + grid.whole * grid.dt)
    h = jnp.where(i < grid.whole, grid.dt, jnp.where(i == grid.whole, rest, 0.0))
    return h.reshape(pieces, every)


def transported(
    stepper: Stepper,
    control: Control | None,
    state: StepperState,
    Q: Float[Array, "d k"],
    lengths: Float[Array, " every"],
) -> tuple[StepperState, Float[Array, "d k"]]:
    """The state after the steps of a piece, and the tangents (dp, dv) there that start as Q."""
    system, nv = stepper.problem(state).system, state.v.shape[0]

    def flow(q, v):
        def step(state, h):
            go = lambda state: stepper.step(state, h, control)  # noqa: E731
            return jax.lax.cond(h > 0, go, lambda state: state, state), None

        end, _ = jax.lax.scan(step, state.replace(q=q, v=v), lengths)
        return (end.q, end.v), end

    def along(column):
        changes = (system.qdot(state.q, column[:nv]), column[nv:])
        return jax.jvp(flow, (state.q, state.v), changes, has_aux=True)

    _, (dq, dv), ends = jax.vmap(along, in_axes=1)(Q)
    # All tangents belong to one motion.
    end = jax.tree.map(lambda x: x[0], ends)
    system = stepper.problem(end).system
    dp = jax.vmap(lambda dq: displacement(system, end.q, dq, nv))(dq)
    return end, jnp.concatenate([dp, dv], axis=1).T


def orthogonal(Z: Float[Array, "d k"], columns: Bool[Array, " k"]) -> tuple[Array, Array]:
    """Factorise Z = Q R, with zeros in Q and R for all but the given columns."""
    Q, R = jnp.linalg.qr(Z)
    return jnp.where(columns[None], Q, 0.0), jnp.where(columns[None], R, 0.0)


# The default number of pieces between which tangents are made orthogonal.
_PIECES = 200
# Pieces of a motion are easy to fit up to this growth.
_EASY = 100.0


@printed
class TangentGrowth(eqx.Module):
    """The result of `tangent_growth`; `print` it.

    **Fields:**

    - `t`: times, shape `(ns,)` [s].
    - `log_growth`: logarithm of the largest singular value of d(state at t) / d(state at the
      start), `(ns,)`; 0 at the start.
    - `rates`: the mean rates of growth along all independent directions over the second half of the
      time, the fastest first, `(k,)` [1/s]. They are Lyapunov exponents if the time is long enough.
      Under `jax.vmap` k = 2 nv, with -inf for the directions that constraints rule out.
    - `bound`: the growth at which rounding errors reach the tolerance.
    - `reach`: the time [s] from the start until growth exceeds `bound`; inf if it does not.
    - `result`: a member of `RESULTS`. After a failure of the motion the growth stays constant.
    """

    t: Float[Array, " *batch ns"]
    log_growth: Float[Array, " *batch ns"]
    rates: Float[Array, " *batch k"]
    bound: float = eqx.field(static=True)
    result: RESULTS

    @property
    def rate(self) -> Float[Array, " *batch"]:
        """The largest of `rates` [1/s]."""
        return picked(self.rates, np.s_[..., 0])

    @property
    def reach(self) -> Float[Array, " *batch"]:
        return self.until(self.bound)

    @property
    def exceeded(self) -> Bool[Array, " *batch"]:
        """Whether growth exceeds `bound` before the end."""
        return to_jax(array_namespace(self.reach).isfinite(self.reach))

    @checked
    def until(self, growth: Annotated[RealScalarLike, positive]) -> Float[Array, " *batch"]:
        """The time [s] from the start until the growth first exceeds `growth`; inf if it does not.
        For intervals of multiple shooting take 100, for example."""
        xp = array_namespace(self.t, self.log_growth, growth)
        t, log_growth = xp.asarray(self.t), xp.asarray(self.log_growth)
        # Not `>`, so that growth that is NaN counts as exceeded.
        beyond = ~(log_growth <= xp.log(xp.asarray(growth, t.dtype)))
        first = xp.argmax(beyond, axis=-1, keepdims=True)
        last = xp.maximum(first - 1, 0)
        span = xp.take_along_axis(t, last, axis=-1) - t[..., :1]
        return to_jax(xp.where(xp.any(beyond, axis=-1), span[..., 0], xp.inf))

    def __str__(self) -> str:
        return _in_words(self)


@checked
def tangent_growth(
    system: AbstractSystem,
    enforcement: AbstractEnforcement,
    state: State,
    t1: RealScalarLike | None = None,
    dt: Annotated[RealScalarLike | None, positive] = None,
    *,
    t0: float | None = None,
    num_steps: Annotated[int | None, at_least(1)] = None,
    scheme: diffrax.AbstractSolver | None = None,
    control: Control | None = None,
    projection: Projection | None = None,
    every: Annotated[int | None, at_least(1)] = None,
    tolerance: Annotated[float, positive] = 1e-3,
    start_tolerance: Annotated[RealScalarLike, not_negative_or_infinite] = 1e-3,
    throw: bool = True,
) -> TangentGrowth:
    r"""Compute the growth of small changes of the start of a motion,

    $$
    \delta(t) = D(t)\,\delta(0), \qquad \delta = (\delta p, \delta v), \quad
    \delta q = N(q)\,\delta p,
    $$

    through the steps that `simulate` takes, control included, for all $\delta(0)$ that the
    constraints admit. It tells how long derivatives of the motion are meaningful. Growth is the
    largest singular value of $D(t)$, in the units of p and v. Derivatives with respect to
    parameters and controls grow likewise. At times $t_j$ the changes are made orthogonal again,
    $D_j Q_{j-1} = Q_j R_j$. So nothing overflows, and the fastest direction does not hide the
    slower ones. Then

    $$
    D(t_n) = Q_n R_n \cdots R_1 Q_0^\mathsf{T}, \qquad
    \text{rate}_i = \frac{\sum_j \log R_{j,ii}}{\sum_j (t_j - t_{j-1})} .
    $$

    Rounding errors grow as well. Once growth exceeds `tolerance` / eps, with the eps of the dtype,
    the input no longer determines the motion and its derivatives. Fits stop converging much
    earlier, since a step of the parameters must stay below about 1 / growth.

    **Arguments:** as in `simulate`, at fixed steps, and

    - `every`: the number of steps between orthogonalisations, at whose times the growth is
      returned; default about 200 orthogonalisations in all.
    - `tolerance`: the relative rounding error up to which derivatives are meaningful.

    **Returns:** a `TangentGrowth`. It costs about as much as one simulation for each admissible
    direction. If a scheme has a memory of earlier steps, that is not varied.

    **Warns:** if growth exceeds the bound before `t1`; not inside of `jax.jit` and `jax.vmap`.

    **Raises:** `ValueError` for input that `simulate` refuses, for a state in which nothing can
    move, and for an `every` or a `tolerance` that is not positive; a run-time error if the motion
    fails and `throw` is true.

    Reference: Benettin, Galgani, Giorgilli and Strelcyn (1980), Lyapunov characteristic exponents
    for smooth dynamical systems and for Hamiltonian systems, Meccanica 15, part 2.
    """
    check_no_nan(system=system, control=control, enforcement=enforcement, state=state)
    check_no_internal(system)
    dtype = state.q.dtype
    stepper = Stepper(system, enforcement, scheme, projection)
    stepper, control = with_dtype((stepper, control), dtype)
    grid = make_grid(state.t if t0 is None else t0, t1, dt, num_steps, dtype)
    check_fits(
        2 * grid.steps * dtype.itemsize,
        f"The times of {grid.steps:.4g} steps take",
        "give a larger `dt`, an earlier `t1` or fewer `num_steps`",
    )
    if every is None:
        every = math.ceil(grid.steps / _PIECES)
    grid = grid.as_arrays(dtype)
    begin = State(grid.t0, state.q, state.v, angles=state.angles)
    start = stepper.init(begin, start_tolerance=start_tolerance)
    basis, free = admissible(stepper, start)
    if is_known(free):
        if int(free) == 0:
            raise ValueError(
                "The constraints admit no change of the state, so there is nothing that can grow."
            )
        basis = picked(basis, np.s_[:, : int(free)])
    bound = float(tolerance / jnp.finfo(dtype).eps)
    growth = _growth(stepper, control, start, basis, free, grid, every, bound)
    if throw:
        growth = raise_failure(growth, growth.result)
    if refuted(np.logical_not, growth.exceeded):
        warnings.warn(str(growth), stacklevel=2)
    return growth


@eqx.filter_jit
def _growth(stepper, control, start, basis, free, grid, every, bound) -> TangentGrowth:
    columns = jnp.arange(basis.shape[1]) < free

    def piece(carry, lengths):
        state, Q, product, scale = carry
        state, Z = transported(stepper, control, state, Q, lengths)
        Q, R = orthogonal(Z, columns)
        product = R @ product
        size = jnp.max(jnp.abs(product))
        # Scale the product to size one, whatever the growth.
        scale, product = scale + jnp.log(size), product / size
        log_growth = scale + jnp.log(jnp.linalg.norm(product, 2))
        rates = jnp.where(columns, jnp.log(jnp.abs(jnp.diag(R))), -jnp.inf)
        return (state, Q, product, scale), (state.t, log_growth, rates)

    identity = jnp.diag(columns.astype(basis.dtype))
    carry = (start, basis, identity, jnp.zeros((), basis.dtype))
    (end, *_), (t, log_growth, logs) = jax.lax.scan(piece, carry, lengths(grid, every))

    t = jnp.concatenate([start.t[None], t])
    half = len(log_growth) // 2
    rates = jnp.sum(logs[half:], axis=0) / (t[-1] - t[half])
    return TangentGrowth(
        t,
        jnp.concatenate([jnp.zeros_like(log_growth[:1]), log_growth]),
        -jnp.sort(-rates),
        bound,
        end.result,
    )


def _in_words(growth: TangentGrowth) -> str:
    ts, logs = np.atleast_2d(growth.t), np.atleast_2d(growth.log_growth)
    # Of a batch, describe the motion whose tangents grow the most.
    worst = int(np.argmax(np.where(np.isfinite(logs[:, -1]), logs[:, -1], np.inf)))
    one = jax.tree.map(
        lambda x: to_jax(np.asarray(x).reshape(-1, *x.shape[growth.t.ndim - 1 :])[worst]), growth
    )
    t, log, rate = ts[worst], logs[worst], float(one.rate)
    which = f"motion {worst} of {len(ts)}, " if len(ts) > 1 else ""
    head = f"{which}t = {t[0]:g} to {t[-1]:g} s: "
    if not np.all(np.isfinite(log)):
        return head + (
            f"derivatives by the start are not finite after {float(one.reach):.3g} s; "
            "`first_nonfinite` tells why."
        )
    how = f"grow at {rate:.3g}/s" if rate > 0 else f"decay at {-rate:.3g}/s"
    head += f"changes of the start {how}, {_times_over(float(log[-1]))} in all. "
    easy = float(one.until(_EASY))
    pieces = f"They grow {_EASY:g} times in the first {easy:.3g} s. " if easy < np.inf else ""
    if one.exceeded:
        end = (
            f"Derivatives mean something up to {float(one.reach):.3g} s: beyond, growth exceeds "
            f"{growth.bound:.1e}, and rounding errors reach the tolerance. Take shorter pieces."
        )
    else:
        end = "Derivatives mean something all the time."
    return head + pieces + end


def _times_over(log: float) -> str:
    return f"{math.exp(log):.2g} times" if log < 700 else f"10^{log / math.log(10):.0f} times"
