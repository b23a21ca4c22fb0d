"""Newton's method for the equations of an implicit step, and the derivative of its solution."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.flatten_util import ravel_pytree
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._compiler import (
    apply,
    each,
    general_inverse,
    save_for_reverse,
    stop_gradient,
    tree_where,
)
from .._results import RESULTS

# If corrections shrink by less than this factor, a new Jacobian is worth its evaluation.
_SLOW = 0.5
# Jacobians until the search gives up.
_MAX_JACOBIANS = 10

# Corrections with an old Jacobian are not taken if they shrink by less than this factor, and those
# of a derivative end, but not among the first.
_SHRINKING = 0.9
_FIRST = 8
_MAX_CORRECTIONS = 60


class Unknowns(NamedTuple):
    """The unknowns of a step, and the residuals of its equations, which have the same shapes. The
    derivative of the residuals with respect to `rest` is nearly the identity."""

    main: Float[Array, " n"]
    rest: PyTree


class Change(NamedTuple):
    """The size of a correction, the size that is small enough, and the size below which it is due
    to rounding if it does not shrink."""

    size: Float[Array, ""]
    goal: Float[Array, ""]
    rounding: Float[Array, ""]


Residual = Callable[[Unknowns], Unknowns]
Measure = Callable[[Unknowns, Unknowns], Change]


def solve_step(residual: Residual, guess: Unknowns, measure: Measure) -> tuple[Unknowns, RESULTS]:
    """The zero of `residual`, as a function of all that `residual` depends on, and the verdict.
    `measure(correction, x)` is the size of a correction at x."""
    residual = eqx.filter_closure_convert(residual, guess)
    x, inverse, solved = _search(stop_gradient(residual), stop_gradient(guess), measure)
    # The reverse pass then needs no search.
    x, inverse, solved = save_for_reverse((x, inverse, solved))
    unsolved = RESULTS.implicit_scheme_unsolved
    return _zero(residual, x, inverse), RESULTS.where(solved, RESULTS.successful, unsolved)


class _Inverse(NamedTuple):
    """The inverse of the derivative [A 0; B 1] of the residuals."""

    A_inv: Float[Array, "n n"]
    B: PyTree  # of arrays (n, ...)

    def __call__(self, r: Unknowns) -> Unknowns:
        main = apply(self.A_inv, r.main)
        return Unknowns(main, jax.tree.map(lambda x, b: x - apply(b.T, main), r.rest, self.B))


def _inverse_of(along: Callable[[Array], Unknowns], main: Float[Array, " n"]) -> _Inverse:
    """For `along`, the derivative of the residuals with respect to `main`."""
    units = jnp.eye(main.shape[0], dtype=main.dtype)
    # One by one where loops cost nothing: a batch of all would call a library for its products.
    columns = each(along, units)
    return _Inverse(general_inverse(columns.main.T)[0], columns.rest)


class _Search(NamedTuple):
    """After a correction of x: its size, whether the next one needs a new Jacobian, and how many
    there were."""

    x: Unknowns
    inverse: _Inverse
    size: Float[Array, ""]
    stale: Bool[Array, ""]
    solved: Bool[Array, ""]
    lost: Bool[Array, ""]
    jacobians: Int[Array, ""]


def _search(residual: Residual, guess: Unknowns, measure: Measure):
    """(zero, inverse of the last Jacobian, whether it is a zero). As in `Chord`, the Jacobian is
    evaluated again when corrections no longer shrink."""

    def corrected(at: _Search) -> _Search:
        # The residual and its derivative are compiled once, in one place.
        r, along = jax.linearize(lambda main: residual(at.x._replace(main=main)), at.x.main)
        inverse = jax.lax.cond(
            at.stale, lambda _: _inverse_of(along, at.x.main), lambda old: old, at.inverse
        )
        d = inverse(r)
        x = jax.tree.map(jnp.subtract, at.x, d)
        change = measure(d, x)
        rate = jnp.where(at.stale, 0.0, change.size / at.size)
        error = change.size * jnp.where(at.stale, 1.0, rate / (1 - jnp.minimum(rate, _SLOW)))
        slow, close = ~(rate <= _SLOW), error <= change.goal
        solved = close | (slow & (change.size <= change.rounding))
        # Across a kink an old Jacobian leads far away, and from there the new one back, for ever.
        x = tree_where((rate > _SHRINKING) & ~solved, at.x, x)
        jacobians = jnp.where(at.stale, at.jacobians + 1, at.jacobians)
        return _Search(x, inverse, change.size, slow, solved, jnp.isnan(change.size), jacobians)

    def going(at: _Search):
        return ~at.solved & ~at.lost & ~(at.stale & (at.jacobians >= _MAX_JACOBIANS))

    n, no = guess.main.shape[0], jnp.array(False)
    B = jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), guess.rest)
    none = _Inverse(jnp.zeros((n, n), guess.main.dtype), B)
    size = jnp.full((), jnp.inf, guess.main.dtype)
    start = _Search(guess, none, size, jnp.array(True), no, no, jnp.array(0))
    end = jax.lax.while_loop(going, corrected, start)
    return end.x, end.inverse, end.solved


@eqx.filter_custom_jvp
def _zero(residual: Residual, x: Unknowns, inverse: _Inverse) -> Unknowns:
    """x, a zero of `residual`, with the derivative of the zero.

    A scan drops the rule below when its reverse pass is differentiated. Then the derivative is that
    of a step of Newton's method, which is the same but takes longer to compile."""
    d = _solve(residual, x, inverse, residual(x))
    return jax.tree.map(lambda x, d: _with_derivative_of.bind(x, x - d), x, d)


@_zero.def_jvp
def _zero_jvp(primals, tangents):
    residual, x, inverse = primals
    x = _zero(residual, x, inverse)
    if not jax.tree.leaves(tangents[0]):
        return x, jax.tree.map(jnp.zeros_like, x)
    r, dr = eqx.filter_jvp(lambda residual: residual(x), (residual,), (tangents[0],))
    dr = jax.tree.map(lambda r, dr: jnp.zeros_like(r) if dr is None else dr, r, dr)
    return x, jax.tree.map(jnp.negative, _solve(residual, x, inverse, dr))


# with_derivative_of(x, y) returns x, with the derivative of y. Without derivatives y is never
# computed.
_with_derivative_of = Primitive("with_derivative_of")
_with_derivative_of.def_impl(lambda x, _: x)
_with_derivative_of.def_abstract_eval(lambda x, _: x)


def _with_derivative_of_batched(operands, dims):
    size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
    x, y = (
        jnp.broadcast_to(x[None], (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(operands, dims, strict=True)
    )
    return _with_derivative_of.bind(x, y), 0


ad.primitive_jvps[_with_derivative_of] = lambda xy, d: (_with_derivative_of.bind(*xy), d[1])
batching.primitive_batchers[_with_derivative_of] = _with_derivative_of_batched
mlir.register_lowering(_with_derivative_of, lambda ctx, x, y: [x])


def _solve(residual: Residual, x: Unknowns, inverse: _Inverse, r: Unknowns) -> Unknowns:
    """d with (derivative of `residual` at x) d = r."""
    flat, parts = ravel_pytree(r)

    def along(d):
        return ravel_pytree(jax.jvp(residual, (x,), (parts(d),))[1])[0]

    def approximate(r):
        return ravel_pytree(stop_gradient(inverse)(parts(r)))[0]

    def transposed(r):
        return jax.linear_transpose(approximate, r)(r)[0]

    return parts(
        jax.lax.custom_linear_solve(
            along,
            flat,
            lambda along, r: _refined(along, approximate, parts, r),
            lambda along, r: _refined(along, transposed, parts, r),
        )
    )


def _refined(along: Callable, inverse: Callable, parts: Callable, r: Array) -> Array:
    """d with `along(d)` = r, by corrections with the approximate inverse, until none of the parts
    of d changes any more. The first ones may grow, since `rest` follows `main` with delay."""
    eps = 8 * jnp.finfo(r.dtype).eps

    def sizes(d):
        leaves = jax.tree.leaves(parts(d))
        return jnp.stack([jnp.max(jnp.abs(x), initial=0.0) for x in leaves])

    def going(carry):
        d, change, before, _, count = carry
        size = sizes(change)
        shrinks = (size <= _SHRINKING * before) | (count < _FIRST)
        return jnp.any((size > eps * sizes(d)) & shrinks) & (count < _MAX_CORRECTIONS)

    def corrected(carry):
        d, change, _, _, count = carry
        new = inverse(r - along(d))
        return d + new, new, sizes(change), None, count + 1

    first = inverse(r)
    infinite = jnp.full_like(sizes(first), jnp.inf)
    start = (first, first, infinite, None, jnp.array(0))
    return jax.lax.while_loop(going, corrected, start)[0]
