"""Optimal control problems: a system, a start, a horizon, costs and conditions."""

from collections.abc import Callable
from typing import Annotated, Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._checks import check_no_nan, check_system, with_dtype
from .._compiler import array_namespace, broadcast, is_known, to_jax
from .._equations import equations
from .._inputs import at_least, checked, number, positive
from .._methods import AbstractEnforcement, UdwadiaKalaba
from .._sizes import check_fits, check_steps
from .._step import near
from .._system import AbstractSystem, State

# The tolerance of |Phi| and |Phi'| at the start, as in `simulate`.
_START_TOLERANCE = 1e-3


class _Zeros(eqx.Module):
    """The control u = 0, used to check shapes."""

    u: Float[Array, " nu"]

    def __call__(self, t, q, v):
        del t, q, v
        return self.u


class Problem(eqx.Module):
    r"""An optimal control problem of a constrained motion: find controls u(t) that minimise

    $$
    \int_{t_0}^{t_0+T} \ell(t, q, v, u)\,dt + \phi(t_0 + T, q, v)
    $$

    subject to the equations of motion with their constraints Phi = 0, Psi = 0, from a given start,

        lower <= u <= upper,    path(t, q, v, u) <= 0,    final(t, q, v) = 0 at the end,

    on a grid of `steps` equal intervals.

    **Arguments:**

    - `system`: the system. `state`: the start, consistent with the constraints.
    - `duration`: T [s], positive; may be traced. `steps`: the number of control intervals.
    - `nu`: the number of controls, which is the size of `u` in `system.force(t, q, v, u)`.
    - `running_cost`: l(t, q, v, u) -> scalar [cost/s]. `final_cost`: phi(t, q, v) -> scalar.
    - `lower`, `upper`: the bounds of u, scalars or of shape `(nu,)`; default infinite.
    - `final`: (t, q, v) -> vector that must be zero at the end.
    - `path`: (t, q, v, u) -> vector that must not be positive at any point of the grid.
    - `enforcement`: the enforcement of the constraints in methods that simulate, default
      `mbd.UdwadiaKalaba()`. `scheme`: the scheme of these methods, default as in `simulate`.
      `substeps`: the number of its steps in each control interval.

    Costs and conditions are callables that JAX can trace. If their numbers are fields of an
    `eqx.Module`, new numbers need no compilation:

        class Effort(eqx.Module):
            weight: Array
            def __call__(self, t, q, v, u):
                return self.weight * jnp.sum(u**2)

    A plain function also works, but define it once. Another function, even with the same code, is
    compiled again.

    **Raises:** `ValueError` for wrong shapes, bounds that cross, a start that violates the
    constraints, steps or a duration that are not positive, and more steps than fit into memory.
    """

    system: AbstractSystem
    state: State
    duration: Float[Array, "..."]
    steps: int = eqx.field(static=True)
    nu: int = eqx.field(static=True)
    running_cost: Callable | None
    final_cost: Callable | None
    lower: Float[Array, "*batch nu"]
    upper: Float[Array, "*batch nu"]
    final: Callable | None
    path: Callable | None
    enforcement: AbstractEnforcement
    scheme: diffrax.AbstractSolver | None
    substeps: int = eqx.field(static=True)

    @checked
    def __init__(
        self,
        system: AbstractSystem,
        state: State,
        duration: Annotated[ArrayLike, positive],
        steps: Annotated[int, at_least(1)],
        *,
        nu: Annotated[int, at_least(1)],
        running_cost: Callable | None = None,
        final_cost: Callable | None = None,
        lower: Annotated[ArrayLike, number] = -jnp.inf,
        upper: Annotated[ArrayLike, number] = jnp.inf,
        final: Callable | None = None,
        path: Callable | None = None,
        enforcement: AbstractEnforcement | None = None,
        scheme: diffrax.AbstractSolver | None = None,
        substeps: Annotated[int, at_least(1)] = 1,
    ):
        check_no_nan(system=system, state=state)
        dtype = state.q.dtype
        self.steps, self.nu, self.substeps = steps, nu, substeps
        # Plans are functions of poses, with angles within half a turn of those at the start.
        self.system = with_dtype(near(system, state.angles), dtype)
        # The time is an array, so that another start time is not compiled again.
        self.state = State(jnp.asarray(to_jax(state.t), dtype), state.q, state.v)
        self.duration = _duration(duration, dtype)
        self.enforcement = UdwadiaKalaba() if enforcement is None else enforcement
        self.enforcement = with_dtype(self.enforcement, dtype)
        self.scheme = scheme
        self.lower = _bound("lower", lower, self.nu, dtype)
        self.upper = _bound("upper", upper, self.nu, dtype)
        check_system(self.system, _Zeros(to_jax(np.zeros(self.nu, dtype))), state.q, state.v)
        _check_bounds(self.lower, self.upper)
        _check_start(self.system, self.state, self.enforcement)
        check_steps(steps * substeps)
        check_fits(
            (steps + 1) * (state.q.size + state.v.size + nu) * dtype.itemsize,
            f"The states of a motion on a grid of {steps} intervals take",
            "give fewer `steps`, each with more `substeps`",
        )
        u = to_jax(np.zeros(self.nu, dtype))
        at_end, on_path = (self.state.t, state.q, state.v), (self.state.t, state.q, state.v, u)
        self.running_cost = _checked("running_cost", "(t, q, v, u)", running_cost, on_path, 0)
        self.final_cost = _checked("final_cost", "(t, q, v)", final_cost, at_end, 0)
        self.final = _checked("final", "(t, q, v)", final, at_end, 1)
        self.path = _checked("path", "(t, q, v, u)", path, on_path, 1)

    @property
    def dt(self) -> Float[Array, "..."]:
        """The length of a control interval [s]."""
        xp = array_namespace(self.duration)
        return to_jax(xp.asarray(self.duration) / self.steps)

    @property
    def times(self) -> Float[Array, " points"]:
        """The grid, from the start to the end, shape `(steps + 1,)` [s]."""
        xp = array_namespace(self.state.t, self.dt)
        t, dt = xp.asarray(self.state.t), xp.asarray(self.dt)
        return to_jax(t + dt * xp.arange(self.steps + 1, dtype=dt.dtype))


def _duration(duration, dtype):
    duration = jnp.asarray(to_jax(duration), dtype)
    if duration.ndim != 0:
        raise ValueError(
            f"Argument `duration` must be a number of seconds, but has shape {duration.shape}."
        )
    return duration


def _bound(name, value, nu, dtype):
    value = jnp.asarray(to_jax(value), dtype)
    if value.shape not in ((), (nu,)):
        raise ValueError(
            f"Argument `{name}` must be a scalar or have shape ({nu},), one bound for each "
            f"control, but has shape {value.shape}."
        )
    return broadcast(value, (nu,))


def _check_bounds(lower, upper):
    if is_known((lower, upper)):
        for i, (low, high) in enumerate(zip(np.asarray(lower), np.asarray(upper), strict=True)):
            if not low <= high or low == np.inf or high == -np.inf:
                raise ValueError(
                    f"Bounds of control {i} leave no room: `lower` is {low}, `upper` is {high}."
                )


@eqx.filter_jit
def _violation(system, state):
    phi, velocity = equations(system).violation(*_point(state))
    return jnp.max(jnp.abs(phi), initial=0.0), jnp.max(jnp.abs(velocity), initial=0.0)


def _point(state):
    return state.t, state.q, state.v


def _check_start(system, state, enforcement):
    if not enforcement.rigid or not is_known((system, state)):
        return
    position, velocity = map(float, _violation(system, state))
    if not max(position, velocity) <= _START_TOLERANCE:
        raise ValueError(
            f"Argument `state` violates the constraints: |Phi| = {position:.3g}, |Phi'| = "
            f"{velocity:.3g}. Make it consistent with `mbd.assemble`."
        )


def _checked(name: str, signature: str, fn: Any, args: tuple, ndim: int) -> Any:
    """Check that `fn` returns a scalar (`ndim` 0) or a vector (1) of floating-point numbers."""
    if fn is None:
        return None
    check_no_nan(**{name: fn})
    fn = with_dtype(fn, args[1].dtype)
    out = eqx.filter_eval_shape(fn, *args)
    if isinstance(out, float):
        out = jax.ShapeDtypeStruct((), args[1].dtype)
    if not isinstance(out, jax.ShapeDtypeStruct) or out.ndim != ndim:
        kind = ("a scalar", "a vector (`jnp.stack` or `jnp.concatenate`)")[ndim]
        raise ValueError(f"`{name}{signature}` must return {kind}, but returns {out}.")
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise ValueError(f"`{name}{signature}` must return floating point, but is {out.dtype}.")
    return fn
