"""The inputs that a motion requires."""

from collections.abc import Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PyTree

from .._checks import check_no_nan, check_system, one_each, with_dtype
from .._compiler import is_known, stop_gradient, to_jax
from .._inputs import checked, inside, not_negative_or_infinite, number, positive, shown
from .._linalg import AbstractConstraintSolver, Automatic, dense
from .._printed import in_a_line, judged, largest, printed
from .._raising import raise_failure
from .._results import RESULTS, first_failure
from .._search import bounded_least_squares
from .._step import as_control
from .._system import AbstractStates, AbstractSystem, State
from .._types import RealScalarLike
from .acting_contacts import contact_verdict
from .linearise import acceleration, verdict


@printed
class Inputs(eqx.Module):
    """The result of `inverse_dynamics`. For a motion, all arrays have its points as leading axes.

    - `u`: the inputs, with the structure that was given.
    - `multipliers`: lam of the rows, `(nc,)`; the reactions are J^T lam.
    - `missed`: the requested acceleration minus the one under u, `(nv,)`. It is 0 up to rounding if
      the inputs can produce the motion.
    - `result`: `RESULTS.successful`, or why the numbers are not to be trusted: the state violates
      the constraints, the equations or the problem with bounds could not be solved, bounds that
      were traced cross, or a contact acts.
    """

    u: PyTree
    multipliers: Float[Array, "*batch nc"]
    missed: Float[Array, "*batch nv"]
    result: RESULTS

    def __str__(self) -> str:
        found = judged(self.result, "inputs found", "no inputs found")
        u = np.concatenate([np.ravel(x) for x in [np.zeros(0), *jax.tree.leaves(self.u)]])
        left = f"accelerations missed by at most {largest(self.missed):.1e}"
        return f"{found}: u = {in_a_line(u)}\n{left}"


@checked
def inverse_dynamics(
    system: AbstractSystem,
    state: AbstractStates,
    dv: ArrayLike | Sequence[float | int],
    u: PyTree,
    *,
    lower: Annotated[ArrayLike | None, number] = None,
    upper: Annotated[ArrayLike | None, number] = None,
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
    closest in the norm of acceleration energy (Gauss's principle). The same holds within the bounds
    `lower` and `upper`, if they are given. Constraint forces are never solved for, so redundant
    rows are allowed and closed loops need not be cut. `static_inputs` holds a system at rest.
    Contacts and dry friction do not act. Where a contact would, under the inputs that are found,
    the result is `RESULTS.contact_acts`: where it touches and would be entered, or strikes. Limits
    of joints within their range do not act.

    **Arguments:**

    - `system`: the system. `state`: t, q and v at the instant; or a `Solution`, a `Plan` or states
      with leading axes, which are computed in one program.
    - `dv`: v' there, with the shape of v, of a motion that the constraints allow. `accelerations`
      computes them for a motion under another control, or of another system.
    - `u`: any inputs of the right structure and sizes at one instant, e.g. zeros.
    - `lower`, `upper`: the bounds of u, scalars or one number for each number in u.
    - `weights`: W, a positive scalar or one positive number for each number in u.
    - `rtol`: singular values below this share of the largest count as zero.
    - `solver`: the solver of the constraints.
    - `start_tolerance`: the largest violation of the constraints in the state, as in `simulate`.
    - `throw`: raise if `result` is not successful.

    **Returns:** `Inputs`. Derivatives exist if the rank of A and the inputs at their bounds are the
    same nearby.

    **Raises:** `ValueError` for arguments of wrong shape and bounds that cross.

    Reference: Udwadia (2003), A new perspective on the tracking control of nonlinear structural
    and mechanical systems, Proc. R. Soc. A 459, 1783-1800.
    """
    check_no_nan(system=system, state=state, u=u)
    t, q, v = state.points()
    dtype = q.dtype
    dv, u = to_jax(dv, dtype), with_dtype(u, dtype)
    check_system(system, as_control(u, dtype), *_first(q, v))
    if dv.shape != v.shape:
        raise ValueError(f"Argument `dv` must have shape {v.shape}, but has {dv.shape}.")
    size = ravel_pytree(u)[0].size
    weights = jnp.asarray(1.0 if weights is None else weights, dtype)
    weights = one_each(weights, size, "weights", of="numbers in `u`")
    bounds = _bounds(lower, upper, size, dtype)
    given = (with_dtype(system, dtype), u, weights, bounds, rtol, solver, start_tolerance)
    found = _inputs(given, t, q, v, dv)
    return raise_failure(found, found.result) if throw else found


@checked
def static_inputs(
    system: AbstractSystem,
    state: AbstractStates,
    u: PyTree,
    *,
    lower: Annotated[ArrayLike | None, number] = None,
    upper: Annotated[ArrayLike | None, number] = None,
    weights: Annotated[ArrayLike | None, positive] = None,
    solver: AbstractConstraintSolver = Automatic(),
    throw: bool = True,
) -> Inputs:
    """Find the inputs that hold a system at rest in a pose, or in each pose of a motion. Velocities
    are ignored.

    **Arguments:** as in `inverse_dynamics`.

    **Returns:** `Inputs`. If the inputs cannot hold the system, `missed` is the opposite of the
    acceleration with which it starts to move.
    """
    t, q, v = state.points()
    still = to_jax(np.zeros(v.shape, v.dtype))
    options: Any = dict(lower=lower, upper=upper, weights=weights, solver=solver, throw=throw)
    return inverse_dynamics(system, State(t, q, still), still, u, **options)


@checked
def accelerations(
    system: AbstractSystem,
    state: AbstractStates,
    control: PyTree = None,
    *,
    solver: AbstractConstraintSolver = Automatic(),
    start_tolerance: Annotated[RealScalarLike, not_negative_or_infinite] = 1e-3,
    throw: bool = True,
) -> Float[Array, "*batch nv"]:
    """The accelerations v' of a system, for instance along a motion. Contacts and dry friction are
    left out. In a state in which a contact acts, as under a body that rests on the ground, there is
    no answer: `RESULTS.contact_acts`.

    **Arguments:** `state`: t, q and v; or a `Solution`, a `Plan` or states with leading axes.
    `control`: the control u(t, q, v), or constant inputs. The others as in `inverse_dynamics`.

    **Returns:** v', with the shape of v. With `throw=False` it is NaN in states that violate the
    constraints, whose equations could not be solved, or in which a contact acts.

    **Raises:** a run-time error for such a state if `throw` is true.
    """
    check_no_nan(system=system, state=state, control=control)
    t, q, v = state.points()
    control = as_control(control, q.dtype)
    check_system(system, control, *_first(q, v))
    given = (with_dtype(system, q.dtype), control, solver, start_tolerance)
    found, result = _accelerations(given, t, q, v)
    return raise_failure(found, result) if throw else found


def _first(q: Array, v: Array) -> tuple[jax.ShapeDtypeStruct, ...]:
    first, second = (jax.ShapeDtypeStruct(x.shape[-1:], x.dtype) for x in (q, v))
    return first, second


def _bounds(
    lower: ArrayLike | None, upper: ArrayLike | None, size: int, dtype: jnp.dtype
) -> tuple[Array, Array] | None:
    if lower is None and upper is None:
        return None
    given = dict(
        lower=-jnp.inf if lower is None else lower, upper=jnp.inf if upper is None else upper
    )
    if all(map(is_known, given.values())) and not np.all(
        np.less_equal(given["lower"], given["upper"])
    ):
        raise ValueError(
            f"Argument `lower` must not exceed `upper`, but is {shown(lower)}, and `upper` "
            f"{shown(upper)}."
        )
    low, high = (
        one_each(jnp.asarray(x, dtype), size, name, of="numbers in `u`")
        for name, x in given.items()
    )
    return low, high


def _over_leading_axes(fn, *arguments):
    for _ in arguments[0].shape:
        fn = jax.vmap(fn)
    return fn(*arguments)


@eqx.filter_jit
def _accelerations(given, t, q, v):
    system, control, solver, tolerance = given

    def one(t, q, v):
        dv, _ = acceleration(system, solver, control, t, q, v)
        result = first_failure(
            verdict(system, solver, control, t, q, v, tolerance),
            contact_verdict(system, t, q, v, dv),
        )
        return jnp.where(result == RESULTS.successful, dv, jnp.nan), result

    return _over_leading_axes(one, t, q, v)


@eqx.filter_jit
def _inputs(given, t, q, v, dv) -> Inputs:
    system, u, weights, bounds, rtol, solver, tolerance = given
    flat, unravel = ravel_pytree(u)
    scale = 1 / jnp.sqrt(weights)

    def one(t, q, v, dv):
        def motion(flat):
            control = as_control(unravel(flat), dv.dtype)
            return acceleration(system, solver, control, t, q, v)

        none = jnp.zeros_like(flat)
        free, _ = motion(none)
        A = jax.jacfwd(lambda flat: motion(flat)[0])(none)
        R = jnp.linalg.cholesky(dense(system.mass_matrix(q).astype(dv.dtype)), upper=True)
        A, b = R @ A * scale[None], R @ (dv - free)
        within = RESULTS.successful
        if bounds is None:
            found = scale * (jnp.linalg.pinv(A, rtol=rtol) @ b)
        else:
            lower, upper = bounds
            found, solved = _least_within(A, b, lower / scale, upper / scale, rtol)
            found = scale * found
            within = first_failure(
                RESULTS.where(
                    jnp.all(lower <= upper), RESULTS.successful, RESULTS.invalid_parameter
                ),
                RESULTS.where(solved, RESULTS.successful, RESULTS.inputs_not_found),
            )
        made, multipliers = motion(found)
        control = as_control(unravel(found), dv.dtype)
        result = first_failure(
            verdict(system, solver, control, t, q, v, tolerance),
            within,
            contact_verdict(system, t, q, v, made),
        )
        return Inputs(unravel(found), multipliers, dv - made, result)

    return _over_leading_axes(one, t, q, v, dv)


def _least_within(A, b, lower, upper, rtol):
    """The shortest x among those that minimise |A x - b| within the bounds, and whether the search
    for the entries at a bound ended.

    A small multiple of |x|^2 makes the problem strictly convex, and decides which entries are at a
    bound. The others then are the shortest solution without it."""
    fixed, target, low, high = stop_gradient((A, b, lower, upper))
    size = jnp.linalg.norm(fixed)
    little = jnp.finfo(A.dtype).eps ** 0.375 * jnp.where(size > 0, size, 1.0)
    rows = jnp.concatenate([fixed, little * jnp.eye(A.shape[1], dtype=A.dtype)])
    target = jnp.concatenate([target, jnp.zeros_like(low)])
    x, free, solved = bounded_least_squares(
        rows, target, low, high, jnp.clip(jnp.zeros_like(low), low, high)
    )
    at_bound = jnp.where(free, 0.0, jnp.where(x <= low, lower, upper))
    others = jnp.linalg.pinv(jnp.where(free[None], A, 0.0), rtol=rtol) @ (b - A @ at_bound)
    return jnp.clip(jnp.where(free, others, at_bound), lower, upper), solved
