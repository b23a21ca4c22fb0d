"""A check of the derivatives of a loss by finite differences."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compiler import to_jax
from .._inputs import at_least, checked, positive
from .._printed import printed

# The first step relative to the size of the variable, and the ratio of each step to the next.
_FIRST, _RATIO = 0.1, 4
_STEPS = {jnp.dtype("float64"): 10, jnp.dtype("float32"): 6}


def central_difference(
    fn: Callable[[Float[Array, ""]], Float[Array, ""]], dtype: jnp.dtype
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The derivative of fn at 0, and an estimate of its error. The argument of fn has size 1.

    Central differences of ever smaller steps are extrapolated to step 0 (Ridders, Accurate
    computation of F'(x) and F'(x) F''(x), Advances in Engineering Software 4, 1982, eqs. 3 to 5):

        D(k, m) = D(k, m-1) + (D(k, m-1) - D(k-1, m-1)) / (ratio^2m - 1).

    The result is the D that differs least from the two that it was computed from. The rounding
    error of the values counts as a difference. Steps with values that are not finite are left out.
    The error is infinite if no step remains.
    """
    count = _STEPS.get(jnp.dtype(dtype), 6)
    steps = _FIRST / float(_RATIO) ** np.arange(count)
    shifts = jnp.asarray(np.concatenate([steps, -steps]), dtype)
    ahead, behind = jnp.split(jax.vmap(fn)(shifts), 2)
    h = shifts[:count]
    D = (ahead - behind) / (2 * h)
    rounding = jnp.finfo(dtype).eps * jnp.maximum(jnp.abs(ahead), jnp.abs(behind)) / h

    # D[k] of order m, with its error. Differences of the first order have no estimate of their own.
    best, least = jnp.zeros((), dtype), jnp.asarray(jnp.inf, dtype)
    for m in range(1, count):
        fine, coarse = D[1:], D[:-1]
        D = fine + (fine - coarse) / (_RATIO ** (2 * m) - 1)
        rounding = rounding[1:]
        error = jnp.maximum(jnp.abs(D - fine), jnp.abs(D - coarse)) + rounding
        error = jnp.where(jnp.isfinite(error), error, jnp.inf)
        k = jnp.argmin(error)
        best, least = jnp.where(error[k] < least, D[k], best), jnp.minimum(error[k], least)
    return best, least


_MODES = ("reverse", "forward")

# Entries larger than this share of the largest one of their leaf are scaled by themselves.
_SMALL = 1e-3
# The largest error of a difference, as a multiple of `rtol` times the largest derivative of all.
_RESOLVED = 10
# The factor by which the estimated error of a difference may be too small.
_SAFETY = 10


@printed
class CheckedDerivative(NamedTuple):
    """The check of a derivative along one direction of one leaf, scaled to its size.

    **Fields:**

    - `name`: the name of the leaf, with the entry in it or the number of a random direction.
    - `modes`: mode -> derivative by automatic differentiation.
    - `difference`, `error`: the derivative by finite differences, and an estimate of its error.
    - `verdict`: `"right"`; `"wrong"`; `"not finite"`, if a derivative is NaN or infinite; or
      `"unsure"`, if the differences are too inaccurate. Then the loss is not finite nearby, or it
      is rough, or its dependence on the leaf is hardly above its rounding error.
    """

    name: str
    modes: dict[str, float]
    difference: float
    error: float
    verdict: Literal["right", "wrong", "not finite", "unsure"]

    def __str__(self) -> str:
        found = "  ".join(f"{mode} {x:.8g}" for mode, x in self.modes.items())
        by_differences = f"differences {self.difference:.8g} +- {self.error:.1g}"
        return f"{self.name}: {self.verdict}  {found}  {by_differences}"


@printed
class GradientCheck(NamedTuple):
    """The result of `check_gradients`; `print` it.

    **Fields:** `value` of the loss; `derivatives`, one for each entry or direction.
    """

    value: float
    derivatives: tuple[CheckedDerivative, ...]

    @property
    def passed(self) -> bool:
        """Whether all derivatives are right."""
        return not self.failed

    @property
    def failed(self) -> tuple[CheckedDerivative, ...]:
        """The derivatives whose verdict is not `"right"`."""
        return tuple(d for d in self.derivatives if d.verdict != "right")

    def __str__(self) -> str:
        checked, failed = len(self.derivatives), self.failed
        head = f"loss {self.value:.8g}: {checked - len(failed)} of {checked} derivatives are right"
        return "\n".join([head, *(f"  {d}" for d in failed)])


@checked
def check_gradients(
    loss: Callable[..., Float[Array, ""]],
    params: PyTree,
    *args: Any,
    modes: Sequence[Literal["reverse", "forward"]] = _MODES,
    rtol: Annotated[float | None, positive] = None,
    directions: Annotated[int, at_least(1)] = 8,
) -> GradientCheck:
    r"""Compare derivatives of a loss by automatic differentiation with central differences,

    $$
    \frac{\partial L}{\partial x_i}\,s_i \approx \frac{L(x + h\,s_i e_i) - L(x - h\,s_i e_i)}{2h},
    $$

    for every floating-point number x_i in `params`, of size s_i. The steps h are chosen for each of
    them: ten from 0.1 to 4e-7, extrapolated to 0.

    **Arguments:**

    - `loss`: `loss(params, *args)`, a real scalar. It is compiled by this function.
    - `params`: any pytree: a system, a state, controls. Leaves other than floating-point arrays and
      numbers are left unchanged.
    - `modes`: `"reverse"` and `"forward"`, or one of them if the loss supports only that.
    - `rtol`: the relative difference up to which derivatives are right, in addition to ten times
      the error of the differences; default 1e-5 in float64, 1e-2 in float32.
    - `directions`: leaves with more entries than this are checked along as many random directions
      of length 1, the same in each call.

    **Returns:** a `GradientCheck`. All derivatives are scaled by s_i, which is |x_i| or a
    thousandth of the largest entry of the leaf, whichever is larger; 1 if all entries are zero.

    If `params` contains a state, its numbers are changed one by one, which violates the
    constraints. So let `simulate` start from `assemble`, or pass it `start_tolerance=jnp.inf`. A
    loss with kinks, as from contacts, has right derivatives on both sides of a kink and wrong ones
    on it. Derivatives that are small compared to the largest of all are checked as accurately as
    rounding in the loss allows.

    **Raises:** `ValueError` for a loss that is not a real scalar or not finite at `params`, for
    `params` without any floating-point number or with complex ones, and for unknown modes.
    """
    if not modes:
        raise ValueError(f"Argument `modes` must be some of {_MODES}, but is empty.")
    numbers, rest = eqx.partition(params, eqx.is_inexact_array_like)
    numbers = jax.tree.map(to_jax, numbers)
    leaves = jax.tree_util.tree_leaves_with_path(numbers)
    if not leaves:
        raise ValueError(
            "`params` has no floating-point number to differentiate by; its leaves are "
            f"{jax.tree.leaves(params)!r}."
        )
    for path, leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"{_named(path)} of `params` is {leaf.dtype}; give real and imaginary parts."
            )

    def fn(numbers):
        return loss(eqx.combine(numbers, rest), *args)

    out = jax.eval_shape(fn, numbers)
    if not isinstance(out, jax.ShapeDtypeStruct) or out.shape != ():
        raise ValueError(f"`loss` must return a scalar, but returns {out}. Sum up or select.")
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise ValueError(f"`loss` must return a real number, but returns {out.dtype}.")

    names, tangents = _directions(leaves, directions)
    structure = jax.tree.structure(numbers)
    tangents = jax.tree.unflatten(structure, tangents)
    value, found, difference, error = _derivatives(fn, numbers, tangents, tuple(modes))
    if not np.isfinite(value):
        raise ValueError(f"`loss` is {value} at `params`; there is no derivative to check.")
    default = 1e-5 if out.dtype == jnp.float64 else 1e-2
    rtol = default if rtol is None else rtol
    size = max((abs(d) for d, e in zip(difference, error, strict=True) if e < np.inf), default=0.0)
    return GradientCheck(
        float(value),
        tuple(
            _judged(name, {mode: float(found[mode][k]) for mode in modes}, d, e, rtol, size)
            for k, (name, d, e) in enumerate(zip(names, difference, error, strict=True))
        ),
    )


def _named(path) -> str:
    return jax.tree_util.keystr(path) or "params"


def _directions(leaves, most: int) -> tuple[list[str], list[Array]]:
    """The names of the directions, and for each leaf its components in all of them, as rows."""
    rng = np.random.default_rng(0)
    names, blocks = [], []
    for path, leaf in leaves:
        x = np.abs(np.asarray(leaf, float))
        largest = np.max(x, initial=0.0)
        size = np.maximum(x, _SMALL * largest) if largest > 0 else np.ones_like(x)
        if x.size <= most:
            rows = np.eye(x.size).reshape(x.size, *x.shape)
            entries = [str(list(i)) if i else "" for i in np.ndindex(x.shape)]
        else:
            rows = rng.normal(size=(most, *x.shape))
            rows /= np.linalg.norm(rows.reshape(most, -1), axis=1).reshape(most, *(1,) * x.ndim)
            entries = [f" along direction {k}" for k in range(most)]
        names += [_named(path) + entry for entry in entries]
        blocks.append(rows * size)
    ends = np.cumsum([len(block) for block in blocks])
    whole = [np.zeros((ends[-1], *block.shape[1:])) for block in blocks]
    for share, block, end in zip(whole, blocks, ends, strict=True):
        share[end - len(block) : end] = block
    return names, [jnp.asarray(s, x.dtype) for s, (_, x) in zip(whole, leaves, strict=True)]


def _derivatives(fn, numbers, tangents, modes):
    """The value, and along all tangents the derivatives, the differences and their errors."""

    def shifted(direction):
        def at(h):
            return fn(jax.tree.map(lambda x, d: x + h.astype(x.dtype) * d, numbers, direction))

        return at

    def along(g, d):
        """g . d. Entries of g where d is zero may be NaN."""
        return jnp.sum(jnp.where(d != 0, g[None] * d, 0.0), axis=range(1, d.ndim))

    @eqx.filter_jit
    def everything(numbers, tangents):
        value = fn(numbers)
        found = {}
        if "reverse" in modes:
            gradient = jax.grad(fn)(numbers)
            shares = jax.tree.leaves(jax.tree.map(along, gradient, tangents))
            found["reverse"] = sum(x.astype(value.dtype) for x in shares)
        if "forward" in modes:
            found["forward"] = jax.lax.map(lambda d: jax.jvp(fn, (numbers,), (d,))[1], tangents)
        differences = jax.lax.map(lambda d: central_difference(shifted(d), value.dtype), tangents)
        return value, found, *differences

    return jax.tree.map(np.asarray, everything(numbers, tangents))


def _judged(name, modes, difference, error, rtol, size) -> CheckedDerivative:
    difference, error = float(difference), float(error)
    tolerance = rtol * abs(difference) + _SAFETY * error
    if not all(np.isfinite(x) for x in modes.values()):
        verdict = "not finite"
    elif difference == 0 and error < np.inf and not any(modes.values()):
        verdict = "right"
    elif not error <= _RESOLVED * rtol * max(size, *(abs(x) for x in modes.values())):
        verdict = "unsure"
    elif all(abs(x - difference) <= tolerance for x in modes.values()):
        verdict = "right"
    else:
        verdict = "wrong"
    return CheckedDerivative(name, modes, difference, error, verdict)
