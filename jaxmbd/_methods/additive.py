"""An additive Runge-Kutta scheme: explicit for the motion, implicit for internal states."""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._compiler import checkpointed
from .._types import Scalar
from .schemes import OneStep

# The coefficients are those of KenCarp4, by stages: A, b, c and the error's.
_EXPLICIT, _IMPLICIT = diffrax.KenCarp4.tableau.tableaus


def _square(tableau: Any) -> np.ndarray:
    A = np.zeros((6, 6))
    for i, row in enumerate(tableau.a_lower, start=1):
        A[i, :i] = row
    return A if tableau.a_diagonal is None else A + np.diag(tableau.a_diagonal)


class AdditiveRungeKutta(OneStep, diffrax.AbstractAdaptiveSolver):
    """The additive Runge-Kutta method ARK4(3)6L[2]SA, for systems with internal states z and
    continuous methods, whose default it is then. It is of order 4, with an error estimate of
    order 3: explicit for q and v, implicit for z. However fast z decays, the step is limited only
    by the motion, and z then follows it to second order. Six stages.

    A scheme of diffrax treats q, v and z alike: `diffrax.Tsit5()` explicitly, `diffrax.Kvaerno5()`
    implicitly, as needed where z and v together are stiff.

    Reference: Kennedy and Carpenter (2003), Additive Runge-Kutta schemes for
    convection-diffusion-reaction equations, Applied Numerical Mathematics 44, appendix C.
    """

    interpolation_cls: ClassVar[Callable[..., diffrax.AbstractLocalInterpolation]] = (
        diffrax.ThirdOrderHermitePolynomialInterpolation
    )

    def order(self, terms):
        del terms
        return 4

    def error_order(self, terms):
        del terms
        return 4

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        raise NotImplementedError  # `continuous.py` takes the step by `additive_step`


def additive_step(
    stage: Callable[..., tuple[Any, PyTree]], t0: Scalar, t1: Scalar, y0: Any, memory: PyTree
) -> tuple[Any, Any, dict[str, Any], PyTree]:
    """(y1, error, dense, memory) of a step of y0 = (q, v, z) by `stage(t, (q, v), known, gain,
    is_first, memory)`, which returns the rates of q, v and z, where z = known + gain z', and the
    memory."""
    h = t1 - t0
    dtype = y0[2].dtype
    explicit, implicit = (jnp.asarray(_square(x), dtype) for x in (_EXPLICIT, _IMPLICIT))
    c = jnp.asarray([0.0, *_EXPLICIT.c], dtype)
    number = jnp.arange(6)

    def sum_of(weights, rates):
        return jax.tree.map(lambda k: h * (weights @ k), rates)

    def turn(carry, row):
        rates, memory = carry
        i, a, implicit_a, c = row
        moved = jax.tree.map(jnp.add, y0[:2], sum_of(a, rates[:2]))
        known = y0[2] + sum_of(jnp.where(number < i, implicit_a, 0.0), rates[2])
        gain = h * jnp.sum(jnp.where(number == i, implicit_a, 0.0))
        new, memory = stage(t0 + c * h, moved, known, gain, i == 0, memory)
        rates = jax.tree.map(lambda k, x: jnp.where((number == i)[:, None], x, k), rates, new)
        return (rates, memory), None

    none = jax.tree.map(lambda x: jnp.zeros((6, *x.shape), x.dtype), y0)
    rows = (number, explicit, implicit, c)
    (rates, memory), _ = jax.lax.scan(checkpointed(turn), (none, memory), rows)
    y1 = jax.tree.map(jnp.add, y0, sum_of(jnp.asarray(_EXPLICIT.b_sol, dtype), rates))
    error = sum_of(jnp.asarray(_EXPLICIT.b_error, dtype), rates)
    first, last = (jax.tree.map(lambda k, i=i: h * k[i], rates) for i in (0, 5))
    return y1, error, dict(y0=y0, y1=y1, k0=first, k1=last), memory
