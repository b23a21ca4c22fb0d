"""The inputs that a motion requires."""

from collections.abc import Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import ArrayLike

from .._checks import check_no_nan, check_system, one_each, with_dtype
from .._inputs import checked, inside, not_negative_or_infinite, positive
from .._linalg import AbstractConstraintSolver, Automatic, dense
from .._raising import raise_failure
from .._results import RESULTS
from .._simulation import as_control
from .._system import AbstractSystem, State
from .._types import RealScalarLike, Rows, Velocity
from .field import acceleration, verdict


class Inputs(eqx.Module):
    """The result of `inverse_dynamics`.

    - `u`: the inputs, with the structure that was given.
    - `multipliers`: lam of the rows, `(nc,)`; the reactions are J^T lam.
    - `missed`: the requested acceleration minus the one under u, `(nv,)`. It is 0 up to rounding if
      the inputs can produce the motion.
    - `result`: `RESULTS.successful`, or why the numbers are not to be trusted: the state violates
      the constraints, or the equations could not be solved.
    """

    u: Any
    multipliers: Rows
    missed: Velocity
    result: RESULTS


@checked
def inverse_dynamics(
    system: AbstractSystem,
    state: State,
    dv: ArrayLike | Sequence[float | int],
    u: Any,
    *,
    weights: Annotated[ArrayLike | None, positive] = None,
    rtol: Annotated[float, inside(0, 1)] = 1e-9,
    solver: AbstractConstraintSolver = Automatic(),
    start_tolerance: Annotated[RealScalarLike, not_negative_or_infinite] = 1e-3,
    throw: bool = True,
) -> Inputs:
    r"""Find the inputs under which a system has the accelerations `dv` in a state,

    $$ M \dot v = f(t, q, v, u) + J^\mathsf{T} \lambda, $$

    for forces that are linear in u, $f = f_0 + F u$. The constrained acceleration is linear in u as
    well, $\dot v(u) = \dot v_0 + A u$, and

    $$ u = W^{-1/2} \left(R A W^{-1/2}\right)^{+} R \,(\dot v - \dot v_0), \qquad
    M = R^\mathsf{T} R . $$

    For fully actuated systems that is the only solution u. With more inputs than degrees of freedom
    it is the one of least $u^\mathsf{T} W u$. With fewer it is the one whose acceleration is
    closest in the norm of acceleration energy (Gauss's principle). Constraint forces are never
    solved for, so redundant rows are allowed and closed loops need not be cut. For the torques
    that hold a system at rest, give zeros for v and `dv`.

    **Arguments:**

    - `system`: the system. `state`: t, q and v at the instant. `dv`: v' there, shape `(nv,)`, of a
      motion that the constraints allow.
    - `u`: any inputs of the right structure and sizes, e.g. zeros.
    - `weights`: W, a positive scalar or one positive number for each number in u.
    - `rtol`: singular values below this share of the largest count as zero.
    - `solver`: the solver of the constraints.
    - `start_tolerance`: the largest violation of the constraints in the state, as in `simulate`.
    - `throw`: raise if `result` is not successful.

    **Returns:** `Inputs`. Use `jax.vmap` for many instants. Derivatives exist if the rank of A is
    constant nearby.

    **Raises:** `ValueError` for arguments of wrong shape.

    Reference: Udwadia (2003), A new perspective on the tracking control of nonlinear structural
    and mechanical systems, Proc. R. Soc. A 459, 1783-1800.
    """
    check_no_nan(system=system, state=state, u=u)
    dtype = state.q.dtype
    dv, u = jnp.asarray(dv, dtype), with_dtype(u, dtype)
    check_system(system, as_control(u, dtype), state.q, state.v)
    if dv.shape != state.v.shape:
        raise ValueError(f"Argument `dv` must have shape {state.v.shape}, but has {dv.shape}.")
    size = ravel_pytree(u)[0].size
    weights = jnp.asarray(1.0 if weights is None else weights, dtype)
    weights = one_each(weights, size, "weights", of="numbers in `u`")
    found = _inputs(with_dtype(system, dtype), state, dv, u, weights, rtol, solver, start_tolerance)
    return raise_failure(found, found.result) if throw else found


@eqx.filter_jit
def _inputs(system, state, dv, u, weights, rtol, solver, tolerance):
    t = jnp.asarray(state.t, dv.dtype)
    flat, unravel = ravel_pytree(u)

    def motion(flat):
        control = as_control(unravel(flat), dv.dtype)
        return acceleration(system, solver, control, t, state.q, state.v)

    none = jnp.zeros_like(flat)
    free, _ = motion(none)
    A = jax.jacfwd(lambda flat: motion(flat)[0])(none)
    R = jnp.linalg.cholesky(dense(system.mass_matrix(state.q).astype(dv.dtype)), upper=True)
    scale = 1 / jnp.sqrt(weights)
    found = scale * (jnp.linalg.pinv(R @ A * scale[None], rtol=rtol) @ (R @ (dv - free)))
    made, multipliers = motion(found)
    control = as_control(unravel(found), dv.dtype)
    result = verdict(system, solver, control, t, state.q, state.v, tolerance)
    return Inputs(unravel(found), multipliers, dv - made, result)
